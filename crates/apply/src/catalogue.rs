//! The target's tables, as it says they are: asked for once, kept until a statement may have changed them.
//!
//! [`Catalogue`] asks; what the answers mean is in `schema` (one table) and `foreign_keys` (how tables depend on each
//! other).

mod foreign_keys;
mod schema;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use self::foreign_keys::ForeignKeys;
use self::schema::{SchemaRows, build};
use crate::error::ApplyError;
use crate::target::{TargetColumn, TargetTable};
use crate::writeset::IndexId;

/// Names of a table, folded as the server folds them.
type QualifiedName = (String, String);

/// What is known of a target's tables.
#[derive(Debug)]
pub struct Catalogue {
    flavour: Flavour,
    /// Whether names of schemas and tables are the same in either case; `None` until the server was asked.
    folds_names: Option<bool>,
    tables: FxHashMap<QualifiedName, Arc<TargetTable>>,
    foreign_keys: ForeignKeys,
    /// Nothing was forgotten since the server was asked for them.
    foreign_keys_are_fresh: bool,
    ids: IndexIds,
}

/// Gives numbers to indexes, the same for as long as it lives.
///
/// An index goes by its columns rather than its name. So whoever only refers to it (a foreign key of another table) has
/// its number without knowing more of its table, and two indexes on the same columns are one.
#[derive(Debug, Default)]
struct IndexIds {
    numbers: FxHashMap<(QualifiedName, String), IndexId>,
}

impl IndexIds {
    /// The number of the index of `table` whose columns `parts` spells; empty for the table's rows as a whole.
    fn id(&mut self, table: &QualifiedName, parts: &str) -> IndexId {
        let next = IndexId(self.numbers.len() as u32);
        *self.numbers.entry((table.clone(), parts.to_owned())).or_insert(next)
    }
}

impl Catalogue {
    /// Knows nothing yet of a target of this family.
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

    /// A table that was loaded. `None` as well after something was forgotten, until the next [`Catalogue::load`]: any
    /// table may have a foreign key more.
    pub fn get(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>> {
        self.foreign_keys_are_fresh.then(|| self.tables.get(&self.name(schema, table)).cloned())?
    }

    /// Asks the target for a table; `None` if it has none of that name.
    ///
    /// Asks for all foreign keys of the server too, once until something is forgotten: cascades reach across tables.
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
            self.folds_names = Some(schema::prepare(connection, self.flavour).await?);
        }
        if !self.foreign_keys_are_fresh {
            let foreign_keys = ForeignKeys::ask(connection, self.folds_names == Some(true)).await?;
            self.take_foreign_keys(foreign_keys);
        }
        let name = self.name(schema, table);
        if let Some(known) = self.tables.get(&name) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(answers) = SchemaRows::ask(connection, self.flavour, schema, table).await? else {
            return Ok(None);
        };
        let built = Arc::new(build(answers, self.flavour, name.clone(), &self.foreign_keys, &mut self.ids));
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

    /// Forgets a table whose definition may have changed. Tables that were given out stay as they are.
    pub fn forget(&mut self, schema: &str, table: &str) {
        let name = self.name(schema, table);
        self.tables.remove(&name);
        self.foreign_keys_are_fresh = false;
    }

    /// Forgets all tables. Numbers of indexes stay what they are.
    pub fn forget_all(&mut self) {
        self.tables.clear();
        self.foreign_keys_are_fresh = false;
    }

    fn name(&self, schema: &str, table: &str) -> QualifiedName {
        fold(schema, table, self.folds_names == Some(true))
    }
}

/// The columns that table maps of a table have, in order; `None` if the server shows no such base table.
///
/// # Errors
/// [`ApplyError::Session`].
pub(crate) async fn columns_of(
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<Option<Vec<TargetColumn>>, ApplyError> {
    let flavour = connection.server().flavour;
    schema::prepare(connection, flavour).await?;
    Ok(SchemaRows::ask(connection, flavour, schema, table).await?.map(SchemaRows::into_columns))
}

/// Names as the server compares them.
fn fold(schema: &str, table: &str, folds: bool) -> QualifiedName {
    match folds {
        true => (schema.to_lowercase(), table.to_lowercase()),
        false => (schema.to_owned(), table.to_owned()),
    }
}

/// A name as a literal that is right in every `sql_mode` and needs no character to be escaped.
fn literal(name: &str) -> String {
    let hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    match hex.is_empty() {
        true => "''".to_owned(),
        false => format!("_utf8mb3 X'{hex}'"),
    }
}

/// Whether the server does not know what was asked of it, being older.
fn is_unknown(error: &SessionError) -> bool {
    // Unknown column, syntax error, unknown table, unknown system variable.
    matches!(error, SessionError::Server { error, .. } if [1054, 1064, 1109, 1193].contains(&error.number))
}
