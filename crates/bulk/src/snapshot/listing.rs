//! What there is at the point in time of a snapshot: a table that came just before it belongs to it, too.

use std::collections::{HashMap, HashSet};

use tailwater_session::Connection;

use crate::error::BulkError;
use crate::folder::ObjectKind;
use crate::schema::{self, Inventory, Object, TableName};
use crate::sql::literals;

/// What there is, and what is to be read of it.
#[derive(Debug)]
pub(super) struct Listing {
    /// All that is selected.
    pub(super) inventory: Inventory,
    /// Tables that will be read, about in the order in which they will be finished.
    pub(super) tables: Vec<TableName>,
    /// Definitions of all that no lock keeps as it is for longer; see [`Listing::define`].
    pub(super) definitions: HashMap<Object, Vec<u8>>,
}

impl Listing {
    /// Of what there is tables that are `finished` are not read any more.
    pub(super) fn new(inventory: Inventory, finished: &HashSet<TableName>, lengths: &Lengths) -> Self {
        let left = inventory.tables.iter().filter(|table| !finished.contains(*table));
        let tables = lengths.largest_first(left.cloned().collect());
        Self { inventory, tables, definitions: HashMap::new() }
    }

    /// Reads the definitions of all but tables, and but sequences: those say which value comes next, which must not be one that
    /// a row of the snapshot has already, and are read behind it.
    ///
    /// # Errors
    /// As [`schema::ddl`].
    pub(super) async fn define(&mut self, connection: &mut Connection) -> Result<(), BulkError> {
        let schemas = self.inventory.schemas.iter().cloned().map(Object::Schema);
        let is_sequence =
            |object: &&Object| matches!(object, Object::Other { kind: ObjectKind::Sequence, .. });
        let objects = self.inventory.objects.iter().filter(|object| !is_sequence(object));
        for object in schemas.chain(objects.cloned()) {
            let definition = schema::ddl(connection, &object).await?;
            self.definitions.insert(object, definition);
        }
        Ok(())
    }
}

/// About how long tables are, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Lengths(HashMap<TableName, u64>);

impl Lengths {
    /// Asks for the lengths of the tables of these databases.
    ///
    /// # Errors
    /// [`BulkError::Session`]
    pub(crate) async fn read(connection: &mut Connection, schemas: &[String]) -> Result<Self, BulkError> {
        if schemas.is_empty() {
            return Ok(Self::default());
        }
        let sql = format!(
            "SELECT table_schema, table_name, data_length FROM information_schema.tables WHERE table_schema IN ({})",
            literals(schemas.iter().map(String::as_str))
        );
        let mut bytes = HashMap::new();
        for row in &connection.query(&sql).await?.rows {
            if let (Some(schema), Some(name), Some(length)) = (row.get_str(0), row.get_str(1), row.get_u64(2))
            {
                bytes.insert(TableName::new(schema, name), length);
            }
        }
        Ok(Self(bytes))
    }

    /// Tables in the order in which they are begun: the largest first, so that at the end all connections have work.
    pub(crate) fn largest_first(&self, mut tables: Vec<TableName>) -> Vec<TableName> {
        tables.sort_by_key(|table| std::cmp::Reverse(self.0.get(table).copied().unwrap_or(0)));
        tables
    }
}
