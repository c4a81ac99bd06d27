//! The settings that every session of ours begins with.
//!
//! A session inherits the server's global settings, and `init_connect` may change them for accounts without administrative rights.
//! Some change results without an error: with `sql_select_limit=6` a dump of seven rows has six, and a comparison under the same limit
//! finds no difference. So [`crate::Connection::connect`] gives each session the values that a server ships with, and reads them
//! back. What the caller sets afterwards wins.
//!
//! One query asks for all of [`SETTINGS`]; on a server with ordinary settings that is all, one round trip. Only what differs is set: a
//! few settings need a privilege, which then is not needed. [`UNCHANGED`] lists the variables that are left as they are, with the
//! reason; a test asks each server for its variables, and fails for one that is in neither list.

mod variables;

use tailwater_wire::Flavour;

pub use variables::{AcceptedValues, SETTINGS, SessionSetting, SettingNeed, SettingServers, UNCHANGED};

use crate::connection::Connection;
use crate::error::SessionError;

const UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;
const NOT_OF_A_SESSION: u16 = 1238;

/// What the binlog server of a relay says that it is, in each refusal.
pub const SERVED_LOG: &str = "This is Tailwater's binlog server";

/// Without these an answer may have no row, or letters of two bytes.
const READABLE: &str =
    "SET SESSION sql_select_limit = 18446744073709551615, SESSION character_set_results = utf8mb4";

/// What a new session's settings become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionPreset {
    /// Those that servers ship with. What only changes definitions may stay where the account lacks the privilege to set it.
    #[default]
    Shipped,
    /// As [`SessionPreset::Shipped`], for sessions that execute definitions: all must be set.
    ForDefinitions,
    /// Whatever the server gives to new sessions.
    Inherited,
}

/// The settings of this server, in the order in which they are set.
pub fn settings_for(
    flavour: Flavour,
    version: (u16, u16, u16),
) -> impl Iterator<Item = &'static SessionSetting> {
    SETTINGS.iter().filter(move |setting| setting.servers.include(flavour, version))
}

/// The value of a session variable on a server of this family as it ships, for servers that are made up; `None` if the variable
/// is not one that sessions of ours set. NULL is "".
pub fn default_value(flavour: Flavour, name: &str) -> Option<&'static str> {
    let setting = SETTINGS.iter().find(|setting| setting.name == name && setting.servers.is_of(flavour))?;
    Some(match setting.accepted {
        AcceptedValues::Is(value) => value,
        AcceptedValues::OneOf(values) => values.first()?,
        AcceptedValues::AtLeast(_) | AcceptedValues::Has(_) => setting.value.trim_matches('\''),
    })
}

/// Gives a new session the settings of its preset.
///
/// # Errors
/// [`SessionError::SessionSetting`] if one cannot be set, [`SessionError::SettingNotKept`] if it is not what it was set to;
/// anything that breaks the connection.
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
        // There are no rows that a setting could change: older versions answer with what their source has.
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

/// Whether the server is the binlog server of a relay: that says what it is with each refusal. `@@version_comment` may be that of its
/// source.
async fn is_served_log(connection: &mut Connection) -> Result<bool, SessionError> {
    match connection.query("SELECT @@served_log").await {
        Err(SessionError::Server { error, .. }) => Ok(error.message.expose().contains(SERVED_LOG)),
        Err(error) => Err(error),
        Ok(_) => Ok(false),
    }
}

/// The settings under which a query gives fewer rows than there are.
const OF_ROWS: [&str; 2] = ["sql_select_limit", "system_versioning_asof"];

/// Whether nothing has taken rows from this session's queries since it began: the settings that do are as they were made.
///
/// # Errors
/// [`SessionError::SettingNotKept`] if one is not; anything that breaks the connection.
pub async fn check_rows_unlimited(connection: &mut Connection) -> Result<(), SessionError> {
    let server = connection.server();
    let of_rows =
        settings_for(server.flavour, server.version).filter(|setting| OF_ROWS.contains(&setting.name));
    let mut settings: Vec<_> = of_rows.collect();
    let values = connection.query(&question(&settings)).await?;
    let values = values.first().map(|row| {
        (0..settings.len()).map(|at| row.get_str(at).unwrap_or_default().to_owned()).collect::<Vec<_>>()
    });
    // Without a row for the answer there is a limit of none.
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

/// The values of the settings, in their order. Those that the server does not know are taken out of the list.
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
                // The message is in the server's language, the name in it is not.
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
                let reason = "no row, or no letters, for a question about variables".to_owned();
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

/// Whether a text has the name as a word.
fn names(text: &str, name: &str) -> bool {
    let is_in_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.split(|character| !is_in_word(character)).any(|word| word.eq_ignore_ascii_case(name))
}

/// Sets all, in one statement if the server takes it. Gives those that are set.
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
    // Which of them it was is found by setting each by itself.
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
                tracing::debug!(variable = setting.name, %error, "the session keeps what it inherited");
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
