//! Lists the objects that exist at the point in time of a snapshot, including a table that was created just
//! before that time.

use std::collections::{HashMap, HashSet};

use tailwater_session::Connection;

use crate::error::BulkError;
use crate::schema::{self, ObjectKind, SchemaInventory, SchemaObject, TableName, texts};
use tailwater_wire::sql_quote::string_literals;

/// The existing objects, and the tables to read.
#[derive(Debug)]
pub(super) struct TableList {
    /// All selected objects that exist.
    pub(super) inventory: SchemaInventory,
    /// Tables to read, in about the order in which they will be finished.
    pub(super) tables: Vec<TableName>,
    /// Definitions of objects that no lock protects after the snapshot; see [`TableList::define`].
    pub(super) definitions: HashMap<SchemaObject, Vec<u8>>,
}

impl TableList {
    /// Creates the list of tables to read, without the `finished` ones.
    pub(super) fn new(
        inventory: SchemaInventory,
        finished: &HashSet<TableName>,
        lengths: &TableSizes,
    ) -> Self {
        let left = inventory.tables.iter().filter(|table| !finished.contains(*table));
        let tables = lengths.largest_first(left.cloned().collect());
        Self { inventory, tables, definitions: HashMap::new() }
    }

    /// Reads the definitions of all objects except tables and sequences. The definition of a sequence has its
    /// next value, which must be greater than the values in the rows of the snapshot. So it is read later.
    ///
    /// # Errors
    /// The same as for [`schema::ddl`].
    pub(super) async fn define(&mut self, connection: &mut Connection) -> Result<(), BulkError> {
        let schemas = self.inventory.schemas.iter().cloned().map(SchemaObject::Schema);
        let is_sequence =
            |object: &&SchemaObject| matches!(object, SchemaObject::Other { kind: ObjectKind::Sequence, .. });
        let objects = self.inventory.objects.iter().filter(|object| !is_sequence(object));
        for object in schemas.chain(objects.cloned()) {
            let definition = schema::ddl(connection, &object).await?;
            self.definitions.insert(object, definition);
        }
        Ok(())
    }
}

/// Storage engines that have no savepoints and never join a transaction.
const NEVER_JOIN: [&str; 7] = ["myisam", "mrg_myisam", "memory", "csv", "archive", "blackhole", "federated"];

/// Size and engine of each table, which decide the reading order.
#[derive(Debug, Default)]
pub struct TableSizes(HashMap<TableName, TableSize>);

#[derive(Debug, Clone, Copy, Default)]
struct TableSize {
    /// Estimated size of the table in bytes.
    bytes: u64,
    /// Whether the engine joins transactions and has no savepoints. A connection that has read such a table
    /// sets no more savepoints, see [`super::table_metadata_locks`].
    ends_savepoints: bool,
}

impl TableSizes {
    /// Reads the sizes and engines of all tables of these databases.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub async fn read(connection: &mut Connection, schemas: &[String]) -> Result<Self, BulkError> {
        if schemas.is_empty() {
            return Ok(Self::default());
        }
        let sql = "SELECT engine FROM information_schema.engines WHERE savepoints = 'YES'";
        let with: HashSet<_> =
            texts(&connection.query(sql).await?)?.into_iter().map(|[engine]| engine.to_lowercase()).collect();
        let sql = format!(
            "SELECT table_schema, table_name, data_length, engine FROM information_schema.tables WHERE table_schema IN ({})",
            string_literals(schemas.iter().map(String::as_str))
        );
        let mut weights = HashMap::new();
        for row in &connection.query(&sql).await?.rows {
            let (Some(schema), Some(name)) = (row.get_str(0), row.get_str(1)) else { continue };
            let ends_savepoints = row
                .get_str(3)
                .map(str::to_lowercase)
                .is_some_and(|engine| !with.contains(&engine) && !NEVER_JOIN.contains(&engine.as_str()));
            let bytes = row.get_u64(2).unwrap_or(0);
            weights.insert(TableName::new(schema, name), TableSize { bytes, ends_savepoints });
        }
        Ok(Self(weights))
    }

    /// Sorts tables into the order in which they are started: the largest first, so that all connections have
    /// work until the end. Tables whose engine allows no savepoints come before all others.
    pub fn largest_first(&self, mut tables: Vec<TableName>) -> Vec<TableName> {
        tables.sort_by_key(|table| {
            let TableSize { bytes, ends_savepoints } = self.0.get(table).copied().unwrap_or_default();
            (!ends_savepoints, std::cmp::Reverse(bytes))
        });
        tables
    }
}
