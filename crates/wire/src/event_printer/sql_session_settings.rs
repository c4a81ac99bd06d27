//! The session variables of a statement, as a `SET` statement.
//!
//! The replication thread of a server takes the session variables from the event. It also turns off some
//! checks, because it accepts everything that its source accepted. In the session of a client, the output
//! must set the variables and the checks explicitly. String literals name their character set, because the
//! character set of the session may be UCS-2.

use super::row_text::put;
use super::sql_output::refused;
use super::{PrintError, charset};
use crate::Flavour;
use crate::binlog_event::{QueryEvent, SessionCharset, StatusVars};

/// Returns the statement that sets the session variables on which `query` depends. `source` is the flavour of
/// the server that logged the query. `target` is the flavour of the server that runs the statement.
/// `timestamp` is in seconds since 1970. The statement does not set the default database. It also does not
/// set `default_table_encryption`, because an account needs more privileges for that.
///
/// # Errors
/// [`PrintError::NotExact`] if the statement depends on state that has no SQL form; [`PrintError::Event`].
pub fn session_statement(
    timestamp: u32,
    query: &QueryEvent<'_>,
    source: Flavour,
    target: Flavour,
) -> Result<Vec<u8>, PrintError> {
    let vars = query.status_vars()?;
    if !vars.unknown.is_empty() {
        let reason = format!(
            "the statement depends on the session variable {}, which Tailwater does not know",
            vars.unknown[0]
        );
        return Err(refused("a statement", &reason));
    }
    let mut text = Vec::new();
    put(&mut text, format_args!("SET TIMESTAMP={timestamp}"));
    if let Some(micros) = vars.microseconds.or(vars.hrnow).filter(|micros| *micros != 0) {
        put(&mut text, format_args!(".{micros:06}"));
    }
    put_variable(&mut text, "pseudo_thread_id", query.thread_id);
    put_flags(&mut text, &vars);
    if let Some(mode) = vars.sql_mode {
        put_variable(&mut text, "sql_mode", mode);
    }
    let (increment, offset) = vars.auto_increment.map_or((1, 1), |it| (it.increment, it.offset));
    put_variable(&mut text, "auto_increment_increment", increment);
    put_variable(&mut text, "auto_increment_offset", offset);
    if let Some(charset) = &vars.charset {
        put_charset(&mut text, charset);
    }
    if let Some(zone) = vars.time_zone {
        let zone = std::str::from_utf8(zone).ok().filter(|zone| !zone.contains(['\'', '\\', '\n']));
        let Some(zone) = zone else {
            return Err(refused("a statement", "the time zone of the statement has no name"));
        };
        put_variable(&mut text, "time_zone", format_args!("_utf8mb4'{zone}'"));
    } else {
        // For a `CREATE EVENT` without times, servers do not log the time zone, although they store it with
        // the event. A replica stores its own time zone, so the output also sets the server's own time zone.
        put_variable(&mut text, "time_zone", "DEFAULT");
    }
    put_variable(&mut text, "lc_time_names", vars.lc_time_names.unwrap_or(0));
    match vars.charset_database {
        Some(collation) => put_variable(&mut text, "collation_database", collation),
        None => put_variable(&mut text, "collation_database", "DEFAULT"),
    }
    match target {
        Flavour::MySql => put_mysql(&mut text, &vars),
        Flavour::MariaDb => put_mariadb(&mut text, &vars, source)?,
    }
    Ok(text)
}

/// Adds `default_table_encryption` to a [`session_statement`], if the statement depends on it.
///
/// # Errors
/// [`PrintError::Event`].
pub(super) fn put_default_encryption(text: &mut Vec<u8>, query: &QueryEvent<'_>) -> Result<(), PrintError> {
    if let Some(encryption) = query.status_vars()?.default_table_encryption {
        put(text, format_args!(" /*!80016 , @@session.default_table_encryption={encryption} */"));
    }
    Ok(())
}

fn put_variable(text: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    put(text, format_args!(", @@session.{name}={value}"));
}

/// Appends the session options that both flavours have.
fn put_flags(text: &mut Vec<u8>, vars: &StatusVars<'_>) {
    let Some(flags) = vars.flags2 else { return };
    let on = |flag: u32| u8::from(flags & flag != 0);
    put_variable(text, "foreign_key_checks", 1 - on(StatusVars::OPTION_NO_FOREIGN_KEY_CHECKS));
    put_variable(text, "unique_checks", 1 - on(StatusVars::OPTION_RELAXED_UNIQUE_CHECKS));
    put_variable(text, "sql_auto_is_null", on(StatusVars::OPTION_AUTO_IS_NULL));
}

fn put_charset(text: &mut Vec<u8>, charset: &SessionCharset) {
    // The event has the number of a collation, but the server accepts only the default collation of a
    // character set. So set the name of the character set.
    match charset::character_set(u32::from(charset.client)) {
        // Quote the names, because the name `binary` is a keyword.
        Some(name) => put_variable(text, "character_set_client", format_args!("_utf8mb4'{name}'")),
        None => put_variable(text, "character_set_client", charset.client),
    }
    put_variable(text, "collation_connection", charset.connection);
    put_variable(text, "collation_server", charset.server);
}

fn put_mysql(text: &mut Vec<u8>, vars: &StatusVars<'_>) {
    if let Some(explicit) = vars.explicit_defaults_for_timestamp {
        put_variable(text, "explicit_defaults_for_timestamp", u8::from(explicit));
    }
    if let Some(collation) = vars.default_collation_for_utf8mb4 {
        put_variable(text, "default_collation_for_utf8mb4", collation);
    }
    if let Some(required) = vars.sql_require_primary_key {
        put_variable(text, "sql_require_primary_key", required);
    }
    // Turn this restriction off, because the binlog does not hold the variable and replicas ignore it.
    put(text, format_args!(" /*!80400 , @@session.restrict_fk_on_non_standard_key=0 */"));
}

fn put_mariadb(text: &mut Vec<u8>, vars: &StatusVars<'_>, source: Flavour) -> Result<(), PrintError> {
    let flags = vars.flags2.filter(|_| source == Flavour::MariaDb);
    let on = |flag: u32| u8::from(flags.unwrap_or(0) & flag != 0);
    let explicit = flags.map(|_| on(StatusVars::OPTION_EXPLICIT_DEFAULTS_FOR_TIMESTAMP));
    match vars.explicit_defaults_for_timestamp.map(u8::from).or(explicit) {
        Some(explicit) => put_variable(text, "explicit_defaults_for_timestamp", explicit),
        None => put_variable(text, "explicit_defaults_for_timestamp", "DEFAULT"),
    }
    put_variable(text, "check_constraint_checks", 1 - on(StatusVars::OPTION_NO_CHECK_CONSTRAINT_CHECKS));
    put(text, format_args!(" /*M!100502 , @@session.sql_if_exists={} */", on(StatusVars::OPTION_IF_EXISTS)));
    let history = on(StatusVars::OPTION_INSERT_HISTORY);
    put(text, format_args!(" /*M!101011 , @@session.system_versioning_insert_history={history} */"));
    // KEEP allows `ALTER TABLE` on system-versioned tables. The binlog does not hold the variable, and
    // replicas ignore it.
    put(text, format_args!(" /*M!100304 , @@session.system_versioning_alter_history=KEEP */"));
    put_default_collations(text, vars)
}

/// Appends the default collations of character sets (MariaDB 11.3 and later), on which a `CREATE TABLE`
/// depends.
fn put_default_collations(text: &mut Vec<u8>, vars: &StatusVars<'_>) -> Result<(), PrintError> {
    let mut pairs = Vec::new();
    for (set, collation) in vars.character_set_collations.iter().flatten() {
        let names = (
            charset::character_set(u32::from(*set)),
            charset::collation_name(u32::from(*collation), Flavour::MariaDb),
        );
        let (Some(set), Some(collation)) = names else {
            let reason =
                format!("Tailwater does not know the default collation {collation} of the statement");
            return Err(refused("a statement", &reason));
        };
        pairs.push(format!("{set}={collation}"));
    }
    // Under the SQL mode `EMPTY_STRING_IS_NULL`, `''` is NULL. So write the empty string as `X''`.
    let pairs = if pairs.is_empty() { " X''".to_owned() } else { format!("'{}'", pairs.join(",")) };
    put(text, format_args!(" /*M!110300 , @@session.character_set_collations=_utf8mb4{pairs} */"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(status_vars: &[u8], source: Flavour, target: Flavour) -> Result<String, PrintError> {
        let query = QueryEvent {
            thread_id: 7,
            execution_seconds: 0,
            error_code: 0,
            status_vars_bytes: status_vars,
            database: b"",
            query: b"",
            compressed: false,
        };
        let text = session_statement(5, &query, source, target)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn every_collation_can_be_a_default_and_every_client_charset_is_known() {
        // `character_set_client` is cp1251, given as a collation that is not the default collation of cp1251.
        // `character_set_collations` sets the default collation of latin1.
        let vars = b"\x04\x32\0\x32\0\x08\0\x83\x01\x08\0\x2f\0";
        let text = statement(vars, Flavour::MariaDb, Flavour::MariaDb).unwrap();
        for part in [
            "character_set_client=_utf8mb4'cp1251', @@session.collation_connection=50",
            "character_set_collations=_utf8mb4'latin1=latin1_bin'",
        ] {
            assert!(text.contains(part), "the output lacks {part}: {text}");
        }
        let unknown = statement(b"\x83\x01\x08\0\xff\xff", Flavour::MariaDb, Flavour::MariaDb);
        assert_eq!(unknown.unwrap_err().code(), "TW-WIRE-0007");
    }

    #[test]
    fn mariadb_option_bits_are_set_only_for_mariadb() {
        let bits = StatusVars::OPTION_NO_CHECK_CONSTRAINT_CHECKS
            | StatusVars::OPTION_EXPLICIT_DEFAULTS_FOR_TIMESTAMP
            | StatusVars::OPTION_IF_EXISTS
            | StatusVars::OPTION_INSERT_HISTORY;
        let mut vars = vec![0];
        vars.extend_from_slice(&bits.to_le_bytes());
        let own = statement(&vars, Flavour::MariaDb, Flavour::MariaDb).unwrap();
        for part in [
            "check_constraint_checks=0",
            "explicit_defaults_for_timestamp=1",
            "sql_if_exists=1",
            "system_versioning_insert_history=1",
            "system_versioning_alter_history=KEEP",
            "foreign_key_checks=1",
        ] {
            assert!(own.contains(part), "the output lacks {part}: {own}");
        }
        let foreign = statement(&vars, Flavour::MySql, Flavour::MariaDb).unwrap();
        assert!(
            foreign.contains("check_constraint_checks=1")
                && foreign.contains("explicit_defaults_for_timestamp=DEFAULT")
                && foreign.contains("sql_if_exists=0"),
            "unexpected settings for MariaDB: {foreign}"
        );
        let mysql = statement(b"\0\0\0\0\0\x13\x01", Flavour::MySql, Flavour::MySql).unwrap();
        assert!(
            mysql.contains("sql_require_primary_key=1") && !mysql.contains("check_constraint"),
            "unexpected settings for MySQL: {mysql}"
        );
    }
}
