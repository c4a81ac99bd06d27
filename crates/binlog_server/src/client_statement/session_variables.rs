//! The variables that a client has set with `SET`, and that affect its binlog stream.

use std::collections::BTreeMap;
use std::time::Duration;

use tailwater_wire::binlog_event::ChecksumAlgorithm;

use crate::client_error::ClientError;

/// The maximum number of user variables of a client.
const VARIABLES_MAX: usize = 256;

/// The maximum size in bytes of all user variables of a client together.
const VARIABLES_BYTES_MAX: usize = 4 << 20;

/// The maximum length of a database name, in characters.
const DATABASE_CHARACTERS_MAX: usize = 64;

/// An SQL value. Only the types that replicas use are distinguished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlValue {
    /// `NULL`.
    Null,
    /// A whole number.
    Integer(i128),
    /// Any other value.
    Text(String),
}

impl SqlValue {
    /// The value as text for a row of a result; `None` for `NULL`.
    pub fn into_cell(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Integer(number) => Some(number.to_string()),
            Self::Text(text) => Some(text),
        }
    }

    /// Converts the value to a number as SQL does: uses the number at its start, or 0 if there is none.
    pub fn to_integer(&self) -> Option<i128> {
        match self {
            Self::Null => None,
            Self::Integer(number) => Some(*number),
            Self::Text(text) => {
                let text = text.trim_start();
                let digits = text.trim_start_matches(['-', '+']);
                let sign = text.len() - digits.len();
                let count = digits.bytes().take_while(u8::is_ascii_digit).count();
                Some(text.get(..sign + count).and_then(|number| number.parse().ok()).unwrap_or(0))
            }
        }
    }
}

/// How many bytes a user variable counts towards [`VARIABLES_BYTES_MAX`].
fn variable_bytes(name: &str, value: &SqlValue) -> usize {
    match value {
        SqlValue::Text(text) => name.len() + text.len(),
        SqlValue::Null | SqlValue::Integer(_) => name.len() + 16,
    }
}

/// What one client has set: user variables, the database, and the system variables that this server uses.
#[derive(Debug, Clone, Default)]
pub struct StatementSession {
    /// The user variables by their name in lower case, without the `@`.
    variables: BTreeMap<String, SqlValue>,
    bytes: usize,
    skip_replication: bool,
    database: Option<String>,
}

impl StatementSession {
    /// A session in which no variable is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a user variable; `NULL` if it was not set.
    pub fn variable(&self, name: &str) -> SqlValue {
        self.variables.get(&name.to_lowercase()).cloned().unwrap_or(SqlValue::Null)
    }

    /// Sets a user variable.
    ///
    /// # Errors
    /// [`ClientError::OUT_OF_RESOURCES`] if the client has more than 256 variables, or more than 4 MiB of
    /// variables.
    pub fn set_variable(&mut self, name: &str, value: SqlValue) -> Result<(), ClientError> {
        let name = name.to_lowercase();
        let before = self.variables.get(&name).map(|value| variable_bytes(&name, value));
        let bytes = self.bytes - before.unwrap_or(0) + variable_bytes(&name, &value);
        let count = self.variables.len() + usize::from(before.is_none());
        if count > VARIABLES_MAX || bytes > VARIABLES_BYTES_MAX {
            let limit = format!("{VARIABLES_MAX} user variables with {VARIABLES_BYTES_MAX} bytes in total");
            let message = format!("A client of this binlog server can set no more than {limit}");
            return Err(ClientError::new(ClientError::OUT_OF_RESOURCES, message));
        }
        self.bytes = bytes;
        self.variables.insert(name, value);
        Ok(())
    }

    /// Checks the limits and the stored size of the session's variables.
    ///
    /// # Panics
    /// If the variables exceed a limit, or if the stored size is wrong.
    pub(crate) fn assert_bounded(&self) -> usize {
        let bytes = self.variables.iter().map(|(name, value)| variable_bytes(name, value)).sum();
        assert_eq!(self.bytes, bytes);
        assert!(self.variables.len() <= VARIABLES_MAX && bytes <= VARIABLES_BYTES_MAX);
        assert!(self.database.as_ref().is_none_or(|name| name.chars().count() <= DATABASE_CHARACTERS_MAX));
        bytes
    }

    /// Sets a system variable of the session. Ignores a variable that has no effect on this server.
    pub fn set_system_variable(&mut self, name: &str, value: &SqlValue) {
        if name.eq_ignore_ascii_case("skip_replication") {
            let on = matches!(value, SqlValue::Text(text) if text.eq_ignore_ascii_case("on"));
            self.skip_replication = on || value.to_integer().is_some_and(|number| number != 0);
        }
    }

    /// The database that the client chose with `USE`. This server has no databases, but `DATABASE()` must
    /// return the chosen name.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Stores the database that the client chose.
    pub fn set_database(&mut self, name: &str) {
        self.database = Some(name.chars().take(DATABASE_CHARACTERS_MAX).collect());
    }

    /// The text of the first user variable in `names` that is set.
    fn text(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.variable(name).into_cell())
    }

    fn integer(&self, names: &[&str]) -> Option<i128> {
        names.iter().find_map(|name| self.variable(name).to_integer())
    }

    /// The client's heartbeat period, from `@source_heartbeat_period` in nanoseconds or from the variable's
    /// old name. `None` if the client wants no heartbeats.
    pub fn heartbeat_period(&self) -> Option<Duration> {
        let period = self.integer(&["source_heartbeat_period", "master_heartbeat_period"])?;
        u64::try_from(period).ok().filter(|nanoseconds| *nanoseconds > 0).map(Duration::from_nanos)
    }

    /// The checksum algorithm that the client supports; `None` if it did not set the variable.
    pub fn checksum(&self) -> Option<ChecksumAlgorithm> {
        let text = self.text(&["source_binlog_checksum", "master_binlog_checksum"])?;
        Some(match text.eq_ignore_ascii_case("crc32") || text == "1" {
            true => ChecksumAlgorithm::Crc32,
            false => ChecksumAlgorithm::Off,
        })
    }

    /// How much of MariaDB's binlog format the client understands: `@mariadb_slave_capability`; `None` if it
    /// is not set.
    pub fn mariadb_capability(&self) -> Option<i128> {
        self.integer(&["mariadb_slave_capability"])
    }

    /// `@slave_connect_state`: the GTID position of a MariaDB replica; `None` if the replica does not use
    /// GTIDs.
    pub fn connect_state(&self) -> Option<String> {
        self.text(&["slave_connect_state"])
    }

    /// `@slave_until_gtid`: the GTIDs at which the stream of a MariaDB replica must stop.
    pub fn until(&self) -> Option<String> {
        self.text(&["slave_until_gtid"])
    }

    /// Whether a user variable is set to a number other than 0.
    pub fn is_on(&self, name: &str) -> bool {
        self.integer(&[name]).is_some_and(|number| number != 0)
    }

    /// The `server_uuid` of a MySQL replica.
    pub fn replica_uuid(&self) -> Option<String> {
        self.text(&["replica_uuid", "slave_uuid"])
    }

    /// Whether the client will acknowledge transactions.
    pub fn semi_sync(&self) -> bool {
        self.is_on("rpl_semi_sync_replica") || self.is_on("rpl_semi_sync_slave")
    }

    /// For MariaDB: whether to leave out events marked with `@@skip_replication`.
    pub fn skip_replication(&self) -> bool {
        self.skip_replication
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> SqlValue {
        SqlValue::Text(text.into())
    }

    #[test]
    fn text_converts_to_numbers_as_in_sql() {
        let check = |from: &str, expected| {
            assert_eq!(
                text(from).to_integer(),
                Some(expected),
                "the text {from:?} was converted to a wrong number"
            )
        };
        check("30000001024", 30_000_001_024);
        check(" 12abc", 12);
        check("-7", -7);
        check("+7", 7);
        check("--7", 0);
        check("", 0);
        check("abc", 0);
        check(&"9".repeat(60), 0);
        assert_eq!(SqlValue::Null.to_integer(), None);
    }

    #[test]
    fn old_and_new_variable_names_are_accepted() {
        let mut session = StatementSession::new();
        assert_eq!((session.checksum(), session.heartbeat_period()), (None, None));
        session.set_variable("MASTER_binlog_checksum", text("NONE")).unwrap();
        session.set_variable("master_heartbeat_period", SqlValue::Integer(1_500_000_000)).unwrap();
        session.set_variable("slave_uuid", text("u")).unwrap();
        assert_eq!(session.checksum(), Some(ChecksumAlgorithm::Off));
        assert_eq!(session.heartbeat_period(), Some(Duration::from_millis(1500)));
        assert_eq!(session.replica_uuid().as_deref(), Some("u"));
        session.set_variable("source_binlog_checksum", text("CRC32")).unwrap();
        session.set_variable("source_heartbeat_period", SqlValue::Integer(0)).unwrap();
        assert_eq!(session.checksum(), Some(ChecksumAlgorithm::Crc32));
        assert_eq!(session.heartbeat_period(), None);
        assert!(!session.semi_sync());
        session.set_variable("rpl_semi_sync_replica", SqlValue::Integer(1)).unwrap();
        assert!(session.semi_sync());
    }

    #[test]
    fn client_variables_are_bounded() {
        let mut session = StatementSession::new();
        let big = text(&"x".repeat(1 << 20));
        for _ in 0..100 {
            session.set_variable("same", big.clone()).unwrap();
        }
        let results: Vec<_> =
            (0..5).map(|number| session.set_variable(&format!("v{number}"), big.clone())).collect();
        assert!(results.iter().any(|result| result.as_ref().is_err_and(|error| error.code == 1041)));
        let mut session = StatementSession::new();
        for number in 0..VARIABLES_MAX {
            session.set_variable(&format!("v{number}"), SqlValue::Null).unwrap();
        }
        session.set_variable("v0", text("again")).unwrap();
        assert!(session.set_variable("one more", SqlValue::Null).is_err());
        // A variable with an empty name and value counts too.
        let mut session = StatementSession::new();
        for number in 1..VARIABLES_MAX {
            session.set_variable(&format!("v{number}"), SqlValue::Null).unwrap();
        }
        session.set_variable("", text("")).unwrap();
        session.set_variable("", text("again")).unwrap();
        session.assert_bounded();
    }
}
