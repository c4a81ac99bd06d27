//! `[[serve]]`: listeners for native replicas and `mysqlbinlog`, and the accounts of these clients.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `[[serve]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Name of the source whose log is served.
    pub source: String,
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// The `server_id` that clients see. If absent, the `server_id` of the source section, under which
    /// Tailwater registers as a replica of the source.
    pub server_id: Option<u32>,
    /// The `server_uuid` that MySQL replicas see. If absent, it is derived from the source's name and
    /// `server_id`.
    pub server_uuid: Option<String>,
    /// Whether connections are encrypted.
    #[serde(default)]
    pub tls: ServeTlsConfig,
    /// PEM file with the certificate and its chain. If absent, a self-signed certificate is created when the
    /// daemon starts.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the key of `tls_certificate`.
    pub tls_key: Option<PathBuf>,
    /// The greatest number of connections at the same time, including those before login.
    #[serde(default = "default_connections_max")]
    pub connections_max: usize,
    /// How long a client may accept no data before it is disconnected, in milliseconds.
    #[serde(default = "default_write_timeout_ms")]
    pub write_timeout_ms: u64,
    /// The accounts of the clients.
    #[serde(default, rename = "user")]
    pub users: Vec<UserConfig>,
}

/// `serve.tls`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServeTlsConfig {
    /// The listener does not offer TLS.
    Off,
    /// TLS is used if the client requests it.
    #[default]
    Preferred,
    /// Clients without TLS are refused.
    Required,
}

/// `[[serve.user]]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// The user's name.
    pub name: String,
    /// The password in plain text.
    pub password: Option<String>,
    /// A file whose first line is the password; relative to the configuration file.
    pub password_file: Option<PathBuf>,
    /// The password hash as in `mysql.user`: one hash, or several hashes for different plugins.
    #[serde(default)]
    pub hash: OneOrMany,
    /// Whether the account may purge the log and kill connections of other accounts.
    #[serde(default)]
    pub admin: bool,
}

/// One string or several.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "OneOrManyText")]
pub struct OneOrMany(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrManyText {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrManyText> for OneOrMany {
    fn from(text: OneOrManyText) -> Self {
        match text {
            OneOrManyText::One(one) => Self(vec![one]),
            OneOrManyText::Many(many) => Self(many),
        }
    }
}

// `Debug` is implemented by hand, because derived code would print the password.
impl fmt::Debug for UserConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

fn default_connections_max() -> usize {
    512
}

fn default_write_timeout_ms() -> u64 {
    60_000
}

impl ServeConfig {
    /// Makes paths relative to `base`.
    pub(crate) fn rebase(&mut self, base: &Path) {
        let of_users = self.users.iter_mut().map(|user| &mut user.password_file);
        let own = [&mut self.tls_certificate, &mut self.tls_key];
        for file in own.into_iter().chain(of_users).flatten() {
            *file = base.join(&*file);
        }
    }

    /// Checks the section for contradictions. `sources` has the names of all sources.
    pub(crate) fn check(&self, sources: &HashSet<&String>) -> Result<(), String> {
        let what = format!("serve {}", self.listen);
        if !sources.contains(&self.source) {
            return Err(format!("{what}: source = {:?}: there is no [[source]] of that name", self.source));
        }
        if self.server_id == Some(0) {
            return Err(format!("{what}: server_id must not be 0"));
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err(format!("{what}: tls_certificate and tls_key must be given together"));
        }
        if self.tls == ServeTlsConfig::Off && self.tls_certificate.is_some() {
            return Err(format!("{what}: tls = \"off\" contradicts tls_certificate"));
        }
        if self.users.is_empty() {
            return Err(format!("{what}: no client could log in without a [[serve.user]]; add one"));
        }
        if self.connections_max == 0 || self.write_timeout_ms < 1_000 {
            return Err(format!(
                "{what}: connections_max must be at least 1, and write_timeout_ms at least 1000"
            ));
        }
        let mut names = HashSet::new();
        for user in &self.users {
            let what = format!("{what}: user {:?}", user.name);
            if user.name.is_empty() || user.name.chars().count() > 80 {
                return Err(format!("{what}: a name has 1 to 80 characters"));
            }
            if !names.insert(&user.name) {
                return Err(format!("{what} is given twice"));
            }
            let passwords = [user.password.is_some(), user.password_file.is_some(), !user.hash.0.is_empty()];
            if passwords.into_iter().filter(|given| *given).count() != 1 {
                return Err(format!("{what}: give one of password, password_file and hash"));
            }
        }
        Ok(())
    }
}
