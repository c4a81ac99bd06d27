//! The session variables that every session of Tailwater sets.
//!
//! A session inherits the server's global variables, and `init_connect` may change them for accounts without
//! administrative privileges. Some variables change results without an error. For example, with
//! `sql_select_limit=6` a dump of seven rows has only six, and a comparison under the same limit finds no
//! difference. So [`crate::Connection::connect`] sets the variables to the server's compiled-in defaults in
//! each session, and reads them back. The caller may set other values later.
//!
//! One query reads all of [`SETTINGS`]. On a server with default values, this query is the only round trip. A
//! session sets only values that differ, because a few variables need a privilege. [`UNCHANGED`] lists the
//! variables that sessions do not set, with the reason. A test reads all session variables of each server. It
//! fails if a variable is in neither list.

mod required_variable_values;

use tailwater_wire::Flavour;

pub use required_variable_values::{
    AcceptedValues, SETTINGS, SessionSetting, SettingNeed, SettingServers, UNCHANGED,
};

use crate::connection::Connection;
use crate::error::SessionError;

const UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;
const NOT_OF_A_SESSION: u16 = 1238;

/// A text that each error message of a relay's binlog server contains. Clients recognise such a server by
/// this text.
pub const SERVED_LOG: &str = "This is Tailwater's binlog server";

/// This statement runs before the query that reads the settings. Without it, that query may return no row, or
/// text in a two-byte character set.
const READABLE: &str =
    "SET SESSION sql_select_limit = 18446744073709551615, SESSION character_set_results = utf8mb4";

/// Which variables a new session sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionPreset {
    /// The server's compiled-in default values. If the account lacks the privilege to set a variable that
    /// changes only the result of DDL, the variable may keep its value.
    #[default]
    Shipped,
    /// Like [`SessionPreset::Shipped`], but every variable must have its default value. Sessions that execute
    /// DDL use this preset.
    ForDefinitions,
    /// The values that the session inherits from the server. The session sets no variable.
    Inherited,
}

/// The settings for a server of this flavour and version, in the order in which a session sets them.
pub fn settings_for(
    flavour: Flavour,
    version: (u16, u16, u16),
) -> impl Iterator<Item = &'static SessionSetting> {
    SETTINGS.iter().filter(move |setting| setting.servers.include(flavour, version))
}

/// The default value of a session variable. The binlog server returns it, because it imitates a MySQL or
/// MariaDB server. `None` if sessions do not set the variable. NULL is "".
pub fn default_value(flavour: Flavour, name: &str) -> Option<&'static str> {
    let setting = SETTINGS.iter().find(|setting| setting.name == name && setting.servers.is_of(flavour))?;
    Some(match setting.accepted {
        AcceptedValues::Is(value) => value,
        AcceptedValues::OneOf(values) => values.first()?,
        AcceptedValues::AtLeast(_) | AcceptedValues::Has(_) => setting.value.trim_matches('\''),
    })
}

/// Sets the variables of a preset in a new session.
///
/// # Errors
/// [`SessionError::SessionSetting`] if a variable cannot be set. [`SessionError::SettingNotKept`] if a
/// variable does not keep its value. Any other error breaks the connection.
pub(crate) async fn apply(connection: &mut Connection, preset: SessionPreset) -> Result<(), SessionError> {
    if preset == SessionPreset::Inherited {
        return Ok(());
    }
    let server = connection.server();
    let mut settings: Vec<_> = settings_for(server.flavour, server.version).collect();
    let found = read(connection, &mut settings).await?;
    let different = differing(&settings, &found);
    if different.is_empty() {
        return Ok(());
    }
    let tolerated = settings.iter().zip(&found).filter(|(setting, value)| setting.tolerated == Some(value));
    let tolerated: Vec<_> = tolerated.map(|(setting, _)| setting.name).collect();
    match set_and_read_back(connection, different, &tolerated, preset).await {
        // Accept other values from a relay's binlog server, which has no tables and therefore returns no rows
        // that a variable could change. Older relays answer with the values of their source.
        Err(SessionError::SettingNotKept { .. }) if is_served_log(connection).await? => Ok(()),
        done => done,
    }
}

async fn set_and_read_back(
    connection: &mut Connection,
    settings: Vec<&'static SessionSetting>,
    tolerated: &[&str],
    preset: SessionPreset,
) -> Result<(), SessionError> {
    let mut set = set(connection, settings, tolerated, preset).await?;
    let found = read(connection, &mut set).await?;
    match differing(&set, &found).first() {
        None => Ok(()),
        Some(setting) => Err(not_kept(connection, setting)),
    }
}

/// Whether the server is a relay's binlog server. It is recognised by the text of its error messages, because
/// its `@@version_comment` may be that of the relay's source.
async fn is_served_log(connection: &mut Connection) -> Result<bool, SessionError> {
    match connection.query("SELECT @@served_log").await {
        Err(SessionError::Server { error, .. }) => Ok(error.message.expose().contains(SERVED_LOG)),
        Err(error) => Err(error),
        Ok(_) => Ok(false),
    }
}

/// The variables that limit the rows of a query.
const OF_ROWS: [&str; 2] = ["sql_select_limit", "system_versioning_asof"];

/// Checks that no variable has limited the rows of this session's queries: the variables that limit rows
/// still have the values that Tailwater set.
///
/// # Errors
/// [`SessionError::SettingNotKept`] if a variable has another value. Any other error breaks the connection.
pub async fn check_rows_unlimited(connection: &mut Connection) -> Result<(), SessionError> {
    let server = connection.server();
    let of_rows =
        settings_for(server.flavour, server.version).filter(|setting| OF_ROWS.contains(&setting.name));
    let mut settings: Vec<_> = of_rows.collect();
    let values = connection.query(&question(&settings)).await?;
    let values = values.first().map(|row| {
        (0..settings.len()).map(|at| row.get_str(at).unwrap_or_default().to_owned()).collect::<Vec<_>>()
    });
    // If the answer has no row, `sql_select_limit` is zero.
    let different = match values {
        Some(values) => differing(&settings, &values),
        None => std::mem::take(&mut settings),
    };
    match different.first() {
        None => Ok(()),
        Some(setting) => Err(not_kept(connection, setting)),
    }
}

fn not_kept(connection: &Connection, setting: &SessionSetting) -> SessionError {
    SessionError::SettingNotKept {
        endpoint: connection.endpoint().to_owned(),
        variable: setting.name,
        wanted: setting.value,
    }
}

fn differing(settings: &[&'static SessionSetting], found: &[String]) -> Vec<&'static SessionSetting> {
    let pairs = settings.iter().zip(found);
    pairs.filter(|(setting, value)| !setting.accepted.admits(value)).map(|(setting, _)| *setting).collect()
}

/// Reads the values of the settings, in order. Removes from the list the variables that the server does not
/// know.
async fn read(
    connection: &mut Connection,
    settings: &mut Vec<&'static SessionSetting>,
) -> Result<Vec<String>, SessionError> {
    const DOING: &str = "reading the settings of the session";
    let mut is_made_readable = false;
    while !settings.is_empty() {
        let result = match connection.query(&question(settings)).await {
            Ok(result) => result,
            Err(SessionError::Server { doing, error, statement })
                if [UNKNOWN_SYSTEM_VARIABLE, NOT_OF_A_SESSION].contains(&error.number) =>
            {
                // The error message is in the server's language, but the variable's name in the message is
                // not translated.
                let Some(index) =
                    settings.iter().position(|setting| names(error.message.expose(), setting.name))
                else {
                    return Err(SessionError::Server { doing, error, statement });
                };
                settings.remove(index);
                continue;
            }
            Err(error) => return Err(error),
        };
        let values = result.first().map(|row| {
            (0..settings.len()).map(|at| row.get_str(at).unwrap_or_default().to_owned()).collect::<Vec<_>>()
        });
        match values {
            Some(values) if !values.iter().any(|value| value.contains('\0')) => return Ok(values),
            _ if is_made_readable => {
                let reason = "the query of the session variables returned no row, or a row that is not text"
                    .to_owned();
                return Err(SessionError::UnexpectedResult { doing: DOING, reason });
            }
            _ => {
                connection.execute(READABLE).await?;
                is_made_readable = true;
            }
        }
    }
    Ok(Vec::new())
}

fn question(settings: &[&SessionSetting]) -> String {
    let names: Vec<_> = settings.iter().map(|setting| format!("@@SESSION.{}", setting.name)).collect();
    format!("SELECT {}", names.join(", "))
}

/// Whether `text` contains `name` as a whole word.
fn names(text: &str, name: &str) -> bool {
    let is_in_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.split(|character| !is_in_word(character)).any(|word| word.eq_ignore_ascii_case(name))
}

/// Sets all variables. Uses one statement if the server accepts it. Returns the variables that were set.
async fn set(
    connection: &mut Connection,
    settings: Vec<&'static SessionSetting>,
    tolerated: &[&str],
    preset: SessionPreset,
) -> Result<Vec<&'static SessionSetting>, SessionError> {
    let assignments: Vec<_> = settings.iter().map(|setting| setting.assignment()).collect();
    match connection.execute(&format!("SET {}", assignments.join(", "))).await {
        Ok(_) => return Ok(settings),
        Err(SessionError::Server { .. }) => {}
        Err(error) => return Err(error),
    }
    // Set each variable alone, to find the variable that the server rejects.
    let mut set = Vec::with_capacity(settings.len());
    for setting in settings {
        match connection.execute(&format!("SET {}", setting.assignment())).await {
            Ok(_) => set.push(setting),
            Err(SessionError::Server { error, .. })
                if setting.is_needed_by(preset) && !tolerated.contains(&setting.name) =>
            {
                let server = connection.server();
                return Err(SessionError::SessionSetting {
                    endpoint: connection.endpoint().to_owned(),
                    variable: setting.name,
                    wanted: setting.value,
                    privilege: setting.privilege(server.flavour, server.version),
                    error: Box::new(error),
                });
            }
            Err(SessionError::Server { error, .. }) => {
                tracing::debug!(variable = setting.name, %error, "the session keeps the value that it inherited");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(set)
}

impl SessionSetting {
    fn assignment(&self) -> String {
        format!("SESSION {} = {}", self.name, self.value)
    }

    fn is_needed_by(&self, preset: SessionPreset) -> bool {
        match self.need {
            SettingNeed::Always => true,
            SettingNeed::ForDefinitions => preset == SessionPreset::ForDefinitions,
            SettingNeed::IfAllowed => false,
        }
    }
}

#[cfg(test)]
mod tests;
