//! Checks that the account can see all selected objects. A server leaves objects that the account may not see
//! out of its lists, without an error.

use tailwater_session::{Connection, UserPrivileges};
use tailwater_wire::Flavour;

use super::object_inventory::{SYSTEM_SCHEMAS, SchemaInventory, Selection, TableName};
use crate::error::BulkError;
use tailwater_wire::sql_quote::qualified_name;

/// Which content of the selected objects the account must be able to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibilityScope {
    /// The tables and all other objects with definitions.
    Definitions,
    /// Only the rows of tables.
    Rows,
}

/// Refuses a selection if the account cannot see every object of it, before any work begins. The server's
/// lists do not show whether an object is hidden or does not exist. Returns the account's privileges.
///
/// # Errors
/// [`BulkError::MissingPrivilege`]; [`BulkError::Session`].
pub async fn check_visible(
    connection: &mut Connection,
    schemas: &[String],
    selection: &Selection,
    whole: VisibilityScope,
) -> Result<UserPrivileges, BulkError> {
    let granted = UserPrivileges::read(connection).await?;
    let flavour = connection.server().flavour;
    let server = connection.endpoint().to_owned();
    if !selection.tables.is_empty() {
        let unseen =
            selection.tables.iter().find(|table| !granted.has_on_table("SELECT", &table.schema, &table.name));
        return match unseen.filter(|_| whole == VisibilityScope::Rows) {
            Some(table) => Err(BulkError::MissingPrivilege {
                what: format!("table {table}"),
                server,
                lacking: format!("SELECT ON {}", qualified_name(&table.schema, &table.name)),
                instead: "",
            }),
            None => Ok(granted),
        };
    }
    for schema in schemas {
        let mut lacking = lacking_on_schema(&granted, flavour, schema);
        if whole == VisibilityScope::Rows {
            lacking.retain(|privilege| *privilege == "SELECT");
        }
        if !lacking.is_empty() {
            let (what, lacking) = (format!("database {schema}"), lacking.join(", "));
            return Err(BulkError::MissingPrivilege {
                what,
                server,
                lacking,
                instead: ", or name its tables with --table",
            });
        }
    }
    if selection.schemas.is_empty() && !granted.has_global_except("SELECT", &SYSTEM_SCHEMAS) {
        // Without this privilege, there may be databases that the server does not list.
        let (what, lacking) = ("the databases".to_owned(), "SELECT ON *.*".to_owned());
        let instead = ", or name databases with --database or tables with --table";
        return Err(BulkError::MissingPrivilege { what, server, lacking, instead });
    }
    Ok(granted)
}

/// Returns the tables whose triggers this account may not see. If whole databases are dumped,
/// [`check_visible`] has already refused such an account.
pub fn hidden_triggers<'a>(granted: &UserPrivileges, inventory: &'a SchemaInventory) -> Vec<&'a TableName> {
    let is_unseen = |table: &&TableName| !granted.has_on_table("TRIGGER", &table.schema, &table.name);
    inventory.tables.iter().filter(is_unseen).collect()
}

fn lacking_on_schema(granted: &UserPrivileges, flavour: Flavour, schema: &str) -> Vec<&'static str> {
    let mut lacking: Vec<_> = ["SELECT", "TRIGGER", "EVENT"]
        .into_iter()
        .filter(|needed| !granted.has_on_schema(needed, schema))
        .collect();
    let (needed, sees_routines) = match flavour {
        Flavour::MySql => {
            ("SHOW_ROUTINE", granted.has_global("SHOW_ROUTINE") || granted.has_global("SELECT"))
        }
        Flavour::MariaDb => (
            "SELECT ON mysql.proc",
            granted.has_on_table("SELECT", "mysql", "proc")
                || granted.has_on_schema("SHOW CREATE ROUTINE", schema),
        ),
    };
    // With one of these privileges, the server lists the routine. If the account may not read its body,
    // reading the definition fails later.
    let named = ["EXECUTE", "ALTER ROUTINE", "CREATE ROUTINE"];
    if !sees_routines && !named.iter().any(|privilege| granted.has_on_schema(privilege, schema)) {
        lacking.push(needed);
    }
    lacking
}
