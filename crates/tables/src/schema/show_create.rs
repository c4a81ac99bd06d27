//! Reads the definitions of objects.

use tailwater_session::{Connection, QueryResult};

use super::object_inventory::{SchemaObject, TableName, unexpected};
use super::sql_script::Script;
use crate::error::BulkError;
use crate::schema::ObjectKind;
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier, string_literal};

/// The SQL mode for the scripts of objects that have no SQL mode of their own. It accepts zero and invalid
/// dates as defaults. It also makes the server reject a table whose engine is missing, instead of using
/// another engine.
const PLAIN_MODE: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION";

/// Prepares a session for reading definitions: names in backquotes, times in UTC, and all text in the bytes
/// that the server stores. The session has no default database, so that the server qualifies all names.
///
/// # Errors
/// [`BulkError::Session`].
pub async fn prepare(connection: &mut Connection) -> Result<(), BulkError> {
    let sql = "SET SESSION sql_mode = '', sql_quote_show_create = 1, time_zone = '+00:00', \
               character_set_client = utf8mb4, character_set_connection = utf8mb4, \
               character_set_results = binary";
    connection.execute(sql).await?;
    // Makes MySQL show generated invisible primary keys. Otherwise such a key would be missing from the dump.
    // A replica that was loaded from the dump would then take the key column of row events for the first
    // column of the table.
    const SHOW_HIDDEN_KEYS: &str = "SET SESSION show_gipk_in_create_table_and_information_schema = ON";
    if connection.server().has(ServerFeature::GeneratedInvisiblePrimaryKeys) {
        connection.execute(SHOW_HIDDEN_KEYS).await?;
    }
    Ok(())
}

/// Returns the script that creates an object. The script runs on an empty server, or after the objects that
/// precede the object in [`super::SchemaInventory::objects`]. The connection must be prepared by [`prepare`].
///
/// # Errors
/// [`BulkError::DefinitionHidden`] if the account lacks the privilege to see the definition;
/// [`BulkError::Session`], also if the object does not exist any more.
pub async fn ddl(connection: &mut Connection, object: &SchemaObject) -> Result<Vec<u8>, BulkError> {
    let script = match object {
        SchemaObject::Schema(name) => schema(connection, object, name).await?,
        SchemaObject::Table(table) => self::table(connection, object, table).await?,
        SchemaObject::Other { kind: ObjectKind::Sequence, schema, name } => {
            sequence(connection, object, schema, name).await?
        }
        SchemaObject::Other { kind: ObjectKind::View, schema, name } => {
            view(connection, object, schema, name).await?
        }
        SchemaObject::Other { kind, schema, name } => {
            program(connection, object, *kind, schema, name).await?
        }
    };
    Ok(script.into_bytes())
}

async fn schema(connection: &mut Connection, object: &SchemaObject, name: &str) -> Result<Script, BulkError> {
    let sql = format!("SHOW CREATE DATABASE IF NOT EXISTS {}", quote_identifier(name));
    let shown = ShowCreateResult::ask(connection, object, &sql).await?;
    Ok(Script::default().then("SET NAMES utf8mb4").then(shown.bytes("Create Database")?))
}

async fn table(
    connection: &mut Connection,
    object: &SchemaObject,
    table: &TableName,
) -> Result<Script, BulkError> {
    let sql = format!("SHOW CREATE TABLE {}", qualified_name(&table.schema, &table.name));
    let shown = ShowCreateResult::ask(connection, object, &sql).await?;
    Ok(plain(&table.schema).then(shown.bytes("Create Table")?))
}

async fn sequence(
    connection: &mut Connection,
    object: &SchemaObject,
    schema: &str,
    name: &str,
) -> Result<Script, BulkError> {
    let sequence = qualified_name(schema, name);
    let shown =
        ShowCreateResult::ask(connection, object, &format!("SHOW CREATE SEQUENCE {sequence}")).await?;
    let sql = format!(
        "SELECT next_not_cached_value, cycle_count, \
         IF(increment > 0, next_not_cached_value > maximum_value, next_not_cached_value < minimum_value), \
         IF(increment > 0, maximum_value, minimum_value) FROM {sequence}"
    );
    let state = connection.query(&sql).await?;
    // The type of a sequence may be BIGINT UNSIGNED, whose values exceed a signed 64-bit integer.
    let number = |column: usize| state.first().and_then(|row| row.get_str(column)?.parse::<i128>().ok());
    let (Some(next), Some(round), Some(used_up), Some(last)) = (number(0), number(1), number(2), number(3))
    else {
        return Err(unexpected(format!("sequence {sequence} has no state")));
    };
    let (value, is_used) = if used_up == 1 { (last, 1) } else { (next, 0) };
    let set = format!("DO SETVAL({}, {value}, {is_used}, {round})", quote_identifier(name));
    Ok(plain(schema).then(shown.bytes("Create Table")?).then(set))
}

async fn view(
    connection: &mut Connection,
    object: &SchemaObject,
    schema: &str,
    name: &str,
) -> Result<Script, BulkError> {
    let shown = ShowCreateResult::ask(
        connection,
        object,
        &format!("SHOW CREATE VIEW {}", qualified_name(schema, name)),
    )
    .await?;
    Ok(plain(schema).then(shown.character_sets()?).then(shown.bytes("Create View")?))
}

/// Returns the script for a routine, trigger or event. The meaning of its body depends on the settings of the
/// session that created it, so the script sets them.
async fn program(
    connection: &mut Connection,
    object: &SchemaObject,
    kind: ObjectKind,
    schema: &str,
    name: &str,
) -> Result<Script, BulkError> {
    let (keyword, column) = match kind {
        ObjectKind::Procedure => ("PROCEDURE", "Create Procedure"),
        ObjectKind::Package => ("PACKAGE", "Create Package"),
        ObjectKind::PackageBody => ("PACKAGE BODY", "Create Package Body"),
        ObjectKind::Trigger => ("TRIGGER", "SQL Original Statement"),
        ObjectKind::Event => ("EVENT", "Create Event"),
        _ => ("FUNCTION", "Create Function"),
    };
    let shown = ShowCreateResult::ask(
        connection,
        object,
        &format!("SHOW CREATE {keyword} {}", qualified_name(schema, name)),
    )
    .await?;
    let body = shown.bytes(column)?;
    let mut script = plain(schema).then(shown.character_sets()?);
    script = script.then(format!("SET sql_mode = {}", string_literal(shown.text("sql_mode")?)));
    if kind == ObjectKind::Event {
        script = script.then(format!("SET time_zone = {}", string_literal(shown.text("time_zone")?)));
    }
    // A parameter or variable without a character set has the character set that the database had when the
    // routine was created.
    let collation = shown.text("Database Collation")?;
    let sql = format!(
        "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = {}",
        string_literal(schema)
    );
    let now = connection.query(&sql).await?;
    let now = now.scalar().unwrap_or(collation);
    let alter = |collation: &str| format!("ALTER DATABASE {} COLLATE {collation}", quote_identifier(schema));
    match now == collation {
        true => Ok(script.then(body)),
        false => Ok(script.then(alter(collation)).then(body).then(alter(now))),
    }
}

/// Starts a script with the statements that are the same for every object in the database.
fn plain(schema: &str) -> Script {
    Script::default()
        .then("SET NAMES utf8mb4")
        .then("SET foreign_key_checks = 0, unique_checks = 0, time_zone = '+00:00'")
        .then(format!("SET sql_mode = '{PLAIN_MODE}'"))
        .then(format!("USE {}", quote_identifier(schema)))
}

/// The result of a SHOW CREATE statement.
struct ShowCreateResult<'a> {
    object: &'a SchemaObject,
    result: QueryResult,
}

impl<'a> ShowCreateResult<'a> {
    async fn ask(
        connection: &mut Connection,
        object: &'a SchemaObject,
        sql: &str,
    ) -> Result<Self, BulkError> {
        Ok(Self { object, result: connection.query(sql).await? })
    }

    /// Returns the bytes of a column. The server shows NULL to accounts that may not see the definition.
    fn bytes(&self, column: &str) -> Result<&[u8], BulkError> {
        let index = self.result.column(column);
        let value = index.and_then(|index| self.result.first()?.get(index));
        value.ok_or_else(|| BulkError::DefinitionHidden { object: self.object.to_string() })
    }

    fn text(&self, column: &str) -> Result<&str, BulkError> {
        let bytes = self.bytes(column)?;
        str::from_utf8(bytes).map_err(|_| unexpected(format!("{column} of {} is not text", self.object)))
    }

    fn character_sets(&self) -> Result<String, BulkError> {
        let (client, collation) = (self.text("character_set_client")?, self.text("collation_connection")?);
        Ok(format!("SET character_set_client = {client}, collation_connection = {collation}"))
    }
}
