//! Reads table definitions of the target once, and caches them until a statement may have changed them.
//!
//! [`Catalogue`] runs the queries. `information_schema_reader` interprets the definition of one table, and
//! `foreign_key_graph` the dependencies between tables.

mod foreign_key_graph;
mod information_schema_reader;
mod qualified_names;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use self::foreign_key_graph::ForeignKeys;
use self::information_schema_reader::{SchemaRows, build};
use self::qualified_names::{IndexIds, QualifiedName, fold};
use crate::error::ApplyError;
use crate::target_table::{TargetColumn, TargetTable};

/// Cached table definitions of a target.
#[derive(Debug)]
pub struct Catalogue {
    flavour: Flavour,
    /// Whether the server treats names of databases and tables as case-insensitive; `None` before the server
    /// was queried.
    folds_names: Option<bool>,
    tables: FxHashMap<QualifiedName, Arc<TargetTable>>,
    foreign_keys: ForeignKeys,
    /// Whether the cached foreign keys are complete: no table was removed from the cache since they were
    /// read.
    foreign_keys_are_fresh: bool,
    ids: IndexIds,
}

impl Catalogue {
    /// Returns an empty catalogue for a target of this flavour.
    pub fn new(flavour: Flavour) -> Self {
        Self {
            flavour,
            folds_names: None,
            tables: FxHashMap::default(),
            foreign_keys: ForeignKeys::default(),
            foreign_keys_are_fresh: false,
            ids: IndexIds::default(),
        }
    }

    /// Returns a loaded table. After a table was removed from the cache, returns `None` for every table until
    /// the next [`Catalogue::load`], because any table may have new foreign keys.
    pub fn get(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>> {
        self.foreign_keys_are_fresh.then(|| self.tables.get(&self.name(schema, table)).cloned())?
    }

    /// Loads a table from the target. Returns `None` if the table does not exist.
    ///
    /// The first load after a table was removed from the cache also reads all foreign keys of the server,
    /// because a cascade reaches other tables.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub async fn load(
        &mut self,
        connection: &mut Connection,
        schema: &str,
        table: &str,
    ) -> Result<Option<Arc<TargetTable>>, ApplyError> {
        if self.folds_names.is_none() {
            self.folds_names = Some(information_schema_reader::prepare(connection, self.flavour).await?);
        }
        if !self.foreign_keys_are_fresh {
            let foreign_keys = ForeignKeys::query(connection, self.folds_names == Some(true)).await?;
            self.take_foreign_keys(foreign_keys);
        }
        let name = self.name(schema, table);
        if let Some(known) = self.tables.get(&name) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(rows) = SchemaRows::query(connection, self.flavour, schema, table).await? else {
            return Ok(None);
        };
        let built = Arc::new(build(rows, self.flavour, name.clone(), &self.foreign_keys, &mut self.ids));
        self.tables.insert(name, Arc::clone(&built));
        Ok(Some(built))
    }

    fn take_foreign_keys(&mut self, foreign_keys: ForeignKeys) {
        if foreign_keys != self.foreign_keys {
            self.tables.retain(|name, _| !foreign_keys.concern(name) && !self.foreign_keys.concern(name));
            self.foreign_keys = foreign_keys;
        }
        self.foreign_keys_are_fresh = true;
    }

    /// Removes a table from the cache, because its definition may have changed. An `Arc` that the caller
    /// holds stays unchanged.
    pub fn forget(&mut self, schema: &str, table: &str) {
        let name = self.name(schema, table);
        self.tables.remove(&name);
        self.foreign_keys_are_fresh = false;
    }

    /// Removes all tables from the cache. Each index keeps its writeset ID.
    pub fn forget_all(&mut self) {
        self.tables.clear();
        self.foreign_keys_are_fresh = false;
    }

    fn name(&self, schema: &str, table: &str) -> QualifiedName {
        fold(schema, table, self.folds_names == Some(true))
    }
}

/// Returns the columns that the table maps of a table contain, in order. `None` if the server shows no base
/// table of this name.
///
/// # Errors
/// [`ApplyError::Session`].
pub(crate) async fn columns_of(
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<Option<Vec<TargetColumn>>, ApplyError> {
    let flavour = connection.server().flavour;
    information_schema_reader::prepare(connection, flavour).await?;
    Ok(SchemaRows::query(connection, flavour, schema, table).await?.map(SchemaRows::into_columns))
}
