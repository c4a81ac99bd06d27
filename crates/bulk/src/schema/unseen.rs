//! What there may be besides what a server lists: it leaves out what the user may not see, and does not say so.

use tailwater_session::{Connection, Granted};
use tailwater_wire::Flavour;

use super::inventory::{Inventory, SYSTEM_SCHEMAS, Selection};
use crate::error::BulkError;
use crate::sql::qualified;

/// What of a selection has to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// Tables, and whatever else has a definition.
    Definitions,
    /// Rows of tables.
    Rows,
}

/// Refuses a selection of which the user may not see all, before anything is done: what is left out of a list looks
/// like what is not there.
///
/// # Errors
/// [`BulkError::Unseen`]; [`BulkError::Session`].
pub async fn check_seen(
    connection: &mut Connection,
    schemas: &[String],
    selection: &Selection,
    whole: Whole,
) -> Result<(), BulkError> {
    let granted = Granted::read(connection).await?;
    let flavour = connection.server().flavour;
    let server = connection.endpoint().to_owned();
    if !selection.tables.is_empty() {
        let unseen =
            selection.tables.iter().find(|table| !granted.on_table("SELECT", &table.schema, &table.name));
        return match unseen.filter(|_| whole == Whole::Rows) {
            Some(table) => Err(BulkError::Unseen {
                what: format!("table {table}"),
                server,
                lacking: format!("SELECT ON {}", qualified(&table.schema, &table.name)),
            }),
            None => Ok(()),
        };
    }
    for schema in schemas {
        let mut lacking = lacking_on_schema(&granted, flavour, schema);
        if whole == Whole::Rows {
            lacking.retain(|privilege| *privilege == "SELECT");
        }
        if !lacking.is_empty() {
            let (what, lacking) = (format!("database {schema}"), lacking.join(", "));
            return Err(BulkError::Unseen { what, server, lacking });
        }
    }
    if selection.schemas.is_empty() && !granted.everywhere_but("SELECT", &SYSTEM_SCHEMAS) {
        // There may be databases that are not even listed.
        let (what, lacking) = ("its databases".to_owned(), "SELECT ON *.*".to_owned());
        return Err(BulkError::Unseen { what, server, lacking });
    }
    Ok(())
}

/// Each database of which something may be missing, and what the user would have to be granted to see it.
///
/// # Errors
/// [`BulkError::Session`]
pub async fn unseen(
    connection: &mut Connection,
    inventory: &Inventory,
    selection: &Selection,
) -> Result<Vec<(String, Vec<&'static str>)>, BulkError> {
    let granted = Granted::read(connection).await?;
    let flavour = connection.server().flavour;
    let lacking = |schema: &String| match selection.tables.is_empty() {
        true => lacking_on_schema(&granted, flavour, schema),
        false => {
            let mut tables = inventory.tables.iter().filter(|table| table.schema == *schema);
            let all = tables.all(|table| granted.on_table("TRIGGER", schema, &table.name));
            if all { Vec::new() } else { vec!["TRIGGER"] }
        }
    };
    let schemas = inventory.schemas.iter().map(|schema| (schema.clone(), lacking(schema)));
    Ok(schemas.filter(|(_, lacking)| !lacking.is_empty()).collect())
}

fn lacking_on_schema(granted: &Granted, flavour: Flavour, schema: &str) -> Vec<&'static str> {
    let mut lacking: Vec<_> = ["SELECT", "TRIGGER", "EVENT"]
        .into_iter()
        .filter(|needed| !granted.on_schema(needed, schema))
        .collect();
    let (needed, sees_routines) = match flavour {
        Flavour::MySql => {
            ("SHOW_ROUTINE", granted.everywhere("SHOW_ROUTINE") || granted.everywhere("SELECT"))
        }
        Flavour::MariaDb => (
            "SELECT ON mysql.proc",
            granted.on_table("SELECT", "mysql", "proc") || granted.on_schema("SHOW CREATE ROUTINE", schema),
        ),
    };
    // One of these shows that a routine is there; that its body cannot be read is an error then.
    let named = ["EXECUTE", "ALTER ROUTINE", "CREATE ROUTINE"];
    if !sees_routines && !named.iter().any(|privilege| granted.on_schema(privilege, schema)) {
        lacking.push(needed);
    }
    lacking
}
