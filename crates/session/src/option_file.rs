//! Connection options from option files and the environment, so that passwords need not be on a command line.
//!
//! Later sources in this list override earlier ones:
//! 1. `USER`, `MYSQL_HOST`, `MYSQL_TCP_PORT`, `MYSQL_UNIX_PORT`, `MYSQL_PWD`;
//! 2. the option file: the file that the user names, otherwise `~/.my.cnf` if it exists. Later lines override
//!    earlier lines, also in other groups. The groups `[client]`, `[client-server]`, `[client-mariadb]`,
//!    `[tailwater]` and those that the caller adds are read;
//! 3. `TAILWATER_HOST`, `TAILWATER_PORT`, `TAILWATER_SOCKET`, `TAILWATER_USER`, `TAILWATER_PASSWORD`;
//! 4. values that the calling program sets.
//!
//! The global files (`/etc/my.cnf` and others) are not read. Unknown options are ignored, because other
//! programs use the same groups.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::connection_options::{ConnectOptions, Endpoint, PasswordText, TlsMode, TlsOptions};
use crate::error::SessionError;

/// The groups of an option file that are always read.
pub const GROUPS: [&str; 4] = ["client", "client-server", "client-mariadb", "tailwater"];

/// The default port of MySQL and MariaDB.
pub const DEFAULT_PORT: u16 = 3306;

/// The maximum size of an option file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where to read the options of a client from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OptionSources {
    /// The option file to read instead of `~/.my.cnf`. It must exist.
    pub defaults_file: Option<PathBuf>,
    /// Groups to read in addition to [`GROUPS`].
    pub groups: Vec<String>,
}

/// The options that were found. `None` for an option that no source sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// The option `host`.
    pub host: Option<String>,
    /// The option `port`.
    pub port: Option<u16>,
    /// The option `socket`.
    pub socket: Option<PathBuf>,
    /// The option `user`.
    pub user: Option<String>,
    /// The option `password`.
    pub password: Option<PasswordText>,
    /// The option `database`.
    pub database: Option<String>,
    /// The option `ssl-mode`, or `ssl` and `skip-ssl`.
    pub tls_mode: Option<TlsMode>,
    /// The option `ssl-verify-server-cert` of MariaDB: whether to verify the server's certificate and its
    /// host name.
    pub tls_verify: Option<bool>,
    /// The option `ssl-ca`.
    pub tls_ca: Option<PathBuf>,
    /// The option `ssl-cert`.
    pub tls_certificate: Option<PathBuf>,
    /// The option `ssl-key`.
    pub tls_key: Option<PathBuf>,
    /// The option `server-public-key-path`.
    pub server_public_key: Option<PathBuf>,
    /// The option `enable-cleartext-plugin`.
    pub clear_password_allowed: Option<bool>,
    /// The option `connect-timeout`, which is in seconds in the file.
    pub connect_timeout: Option<Duration>,
}

impl OptionSources {
    /// Reads this process's environment and the option file.
    ///
    /// # Errors
    /// [`SessionError::OptionFile`] if the file that the user names does not exist, a file cannot be read or
    /// is writable by all users, or a value is invalid. [`SessionError::Environment`] for an invalid
    /// environment variable.
    pub fn load(&self) -> Result<ClientOptions, SessionError> {
        self.load_from(|name| env::var_os(name))
    }

    /// Reads the option file like [`OptionSources::load`], with the environment variables that the caller
    /// passes.
    ///
    /// # Errors
    /// The same as for [`OptionSources::load`].
    pub fn load_from(
        &self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<ClientOptions, SessionError> {
        let text = |name: &'static str| match variable(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => value.into_string().map(Some).map_err(|_| SessionError::Environment {
                name,
                reason: "the value is not valid UTF-8".to_owned(),
            }),
        };
        let port = |name: &'static str| match text(name)? {
            None => Ok(None),
            Some(value) => {
                parse_port(&value).map(Some).map_err(|reason| SessionError::Environment { name, reason })
            }
        };
        let mut options = ClientOptions {
            user: text("USER")?,
            host: text("MYSQL_HOST")?,
            port: port("MYSQL_TCP_PORT")?,
            socket: text("MYSQL_UNIX_PORT")?.map(PathBuf::from),
            password: text("MYSQL_PWD")?.map(PasswordText::from),
            ..ClientOptions::default()
        };
        match (&self.defaults_file, variable("HOME")) {
            (Some(file), _) => self.read_file(file, &mut options)?,
            (None, Some(home)) => {
                let file = Path::new(&home).join(".my.cnf");
                if file.exists() {
                    self.read_file(&file, &mut options)?;
                }
            }
            (None, None) => {}
        }
        let over = ClientOptions {
            user: text("TAILWATER_USER")?,
            host: text("TAILWATER_HOST")?,
            port: port("TAILWATER_PORT")?,
            socket: text("TAILWATER_SOCKET")?.map(PathBuf::from),
            password: text("TAILWATER_PASSWORD")?.map(PasswordText::from),
            ..ClientOptions::default()
        };
        options.override_with(over);
        Ok(options)
    }

    fn read_file(&self, file: &Path, options: &mut ClientOptions) -> Result<(), SessionError> {
        let text = read_text(file)?;
        let mut in_group = false;
        for (index, line) in text.lines().enumerate() {
            let failed = |reason| SessionError::OptionFile { file: file.to_owned(), line: index + 1, reason };
            match parse_line(line).map_err(failed)? {
                OptionLine::Nothing => {}
                OptionLine::Group(group) => {
                    in_group = GROUPS.contains(&group) || self.groups.iter().any(|wanted| wanted == group);
                }
                OptionLine::Option { name, value } if in_group => {
                    options.set(&name, value, file).map_err(failed)?
                }
                OptionLine::Option { .. } => {}
            }
        }
        Ok(())
    }
}

/// Reads an option file. Refuses a file that all users may write to, because its content decides where
/// passwords are sent.
fn read_text(file: &Path) -> Result<String, SessionError> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |reason: String| SessionError::OptionFile { file: file.to_owned(), line: 0, reason };
    let open = fs::File::open(file).map_err(|error| failed(error.to_string()))?;
    let metadata = open.metadata().map_err(|error| failed(error.to_string()))?;
    if metadata.permissions().mode() & 0o002 != 0 {
        return Err(failed(
            "all users may write to this file, so Tailwater does not trust it; run chmod o-w on the file"
                .to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    open.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("the file is longer than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| failed("the file is not valid UTF-8".to_owned()))
}

enum OptionLine<'a> {
    Nothing,
    Group(&'a str),
    Option { name: String, value: Option<String> },
}

fn parse_line(line: &str) -> Result<OptionLine<'_>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Ok(OptionLine::Nothing);
    }
    if line.starts_with('!') {
        let directive = line.split_whitespace().next().unwrap_or_default();
        return Err(format!(
            "{directive} is not supported; put the included options into this file, or use the included file instead"
        ));
    }
    if let Some(rest) = line.strip_prefix('[') {
        let group = rest.split_once(']').ok_or("the name of an option group must end with ']'")?.0;
        return Ok(OptionLine::Group(group.trim()));
    }
    let line = without_comment(line);
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim(), Some(unquoted(value.trim()))),
        None => (line.trim(), None),
    };
    // Accept both spellings of an option name, with `-` and with `_`, as the clients of MySQL and MariaDB do.
    Ok(OptionLine::Option { name: name.replace('_', "-"), value })
}

/// Removes a comment: everything after a '#' that is not in quotes, as the clients of MySQL and MariaDB do.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut escaped) = (None, false);
    for (index, character) in line.char_indices() {
        match (character, quote) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            ('\'' | '"', None) => quote = Some(character),
            (_, Some(open)) if character == open => quote = None,
            ('#', None) => return &line[..index],
            _ => {}
        }
    }
    line
}

/// Removes quotes and resolves the escapes `\b \t \n \r \s \\ \" \'`.
fn unquoted(value: &str) -> String {
    let quoted = |quote| value.len() >= 2 && value.starts_with(quote) && value.ends_with(quote);
    let value = if quoted('"') || quoted('\'') { &value[1..value.len() - 1] } else { value };
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('b') => out.push('\u{8}'),
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('s') => out.push(' '),
            Some(same @ ('\\' | '"' | '\'')) => out.push(same),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

fn parse_port(value: &str) -> Result<u16, String> {
    match value.parse() {
        Ok(0) | Err(_) => Err(format!("{value:?} is not a port number")),
        Ok(port) => Ok(port),
    }
}

fn parse_switch(value: Option<&str>) -> Result<bool, String> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("1" | "on" | "true" | "yes") => Ok(true),
        Some("0" | "off" | "false" | "no") => Ok(false),
        Some(other) => Err(format!("{other:?} is neither on nor off")),
    }
}

/// Parses the value of `ssl-mode`, in the spelling of MySQL's and MariaDB's clients or of Tailwater's
/// configuration.
///
/// # Errors
/// If the value is not a TLS mode.
pub fn parse_tls_mode(value: &str) -> Result<TlsMode, String> {
    Ok(match value.to_ascii_uppercase().replace('-', "_").as_str() {
        "DISABLED" | "OFF" => TlsMode::Off,
        "PREFERRED" => TlsMode::Preferred,
        "REQUIRED" => TlsMode::Required,
        "VERIFY_CA" => TlsMode::VerifyCa,
        "VERIFY_IDENTITY" | "VERIFY_FULL" => TlsMode::VerifyFull,
        _ => {
            return Err(format!(
                "{value:?} is not a TLS mode: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY"
            ));
        }
    })
}

/// Options whose prefix (such as `skip-`) switches them on or off, as in the clients of MySQL and MariaDB.
fn switch_of<'a>(name: &'a str, value: Option<&str>) -> Option<(&'a str, Result<bool, String>)> {
    const SWITCHES: [&str; 2] = ["ssl", "ssl-verify-server-cert"];
    let (base, is_negated) = match name.split_once('-') {
        Some(("skip" | "disable", base)) => (base, true),
        Some(("enable", base)) => (base, false),
        _ => (name, false),
    };
    SWITCHES.contains(&base).then(|| (base, parse_switch(value).map(|on| on != is_negated)))
}

impl ClientOptions {
    fn set(&mut self, name: &str, value: Option<String>, file: &Path) -> Result<(), String> {
        let text = || value.clone().ok_or(format!("{name} needs a value"));
        // A relative path is relative to the file that contains it.
        let path =
            || text().map(|text| file.parent().map_or(PathBuf::from(&text), |folder| folder.join(&text)));
        let name = name.strip_prefix("loose-").unwrap_or(name);
        match switch_of(name, value.as_deref()) {
            Some(("ssl", on)) => {
                self.tls_mode = Some(if on? { TlsMode::Required } else { TlsMode::Off });
                return Ok(());
            }
            Some((_, on)) => {
                self.tls_verify = Some(on?);
                return Ok(());
            }
            None => {}
        }
        match name {
            "host" => self.host = Some(text()?),
            "port" => self.port = Some(parse_port(&text()?)?),
            "socket" => self.socket = Some(path()?),
            "user" => self.user = Some(text()?),
            // The clients of MySQL and MariaDB prompt for the password if the option `password` has no value.
            // Tailwater reports an error, because it may have no terminal.
            "password" => self.password = Some(PasswordText::from(text()?)),
            "database" => self.database = Some(text()?),
            "ssl-mode" => self.tls_mode = Some(parse_tls_mode(&text()?)?),
            // These options restrict which servers are trusted. If one of them were ignored, Tailwater would
            // trust more servers than the user wants.
            "ssl-capath" | "ssl-crl" | "ssl-crlpath" | "ssl-fp" | "ssl-fplist" => {
                return Err(format!(
                    "{name} is not supported; give the authorities in one file, with ssl-ca"
                ));
            }
            "ssl-ca" => self.tls_ca = Some(path()?),
            "ssl-cert" => self.tls_certificate = Some(path()?),
            "ssl-key" => self.tls_key = Some(path()?),
            "server-public-key-path" => self.server_public_key = Some(path()?),
            "enable-cleartext-plugin" => self.clear_password_allowed = Some(parse_switch(value.as_deref())?),
            "connect-timeout" => {
                let text = text()?;
                let seconds = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
                self.connect_timeout = Some(Duration::from_secs(seconds));
            }
            _ => {}
        }
        Ok(())
    }

    /// Replaces options by those that are set in `over`.
    pub fn override_with(&mut self, over: Self) {
        fn take<T>(option: &mut Option<T>, over: Option<T>) {
            if over.is_some() {
                *option = over;
            }
        }
        // A host replaces the socket that an earlier option source sets, and a socket replaces the host.
        if over.host.is_some() && over.socket.is_none() {
            self.socket = None;
        }
        if over.socket.is_some() && over.host.is_none() {
            self.host = None;
        }
        take(&mut self.host, over.host);
        take(&mut self.port, over.port);
        take(&mut self.socket, over.socket);
        take(&mut self.user, over.user);
        take(&mut self.password, over.password);
        take(&mut self.database, over.database);
        // A TLS mode replaces the option `ssl-verify-server-cert` that an earlier option source sets.
        if over.tls_mode.is_some() {
            self.tls_verify = None;
        }
        take(&mut self.tls_mode, over.tls_mode);
        take(&mut self.tls_verify, over.tls_verify);
        take(&mut self.tls_ca, over.tls_ca);
        take(&mut self.tls_certificate, over.tls_certificate);
        take(&mut self.tls_key, over.tls_key);
        take(&mut self.server_public_key, over.server_public_key);
        take(&mut self.clear_password_allowed, over.clear_password_allowed);
        take(&mut self.connect_timeout, over.connect_timeout);
    }

    /// The server's address. If a socket is set and the host is unset or `localhost`, the address is the
    /// socket. Otherwise it is a TCP address, by default 127.0.0.1 with port 3306.
    pub fn endpoint(&self) -> Endpoint {
        match (&self.socket, self.host.as_deref()) {
            (Some(path), None | Some("localhost")) => Endpoint::unix(path),
            (_, host) => Endpoint::tcp(host.unwrap_or("127.0.0.1"), self.port.unwrap_or(DEFAULT_PORT)),
        }
    }

    /// The TLS mode that results from all options. With `ssl-ca`, every mode except `DISABLED` verifies the
    /// certificate. MariaDB's clients verify it even with `ssl-verify-server-cert` off, because that option
    /// concerns only the host name. MySQL's clients verify it if no mode is set. With an explicit `PREFERRED`
    /// or `REQUIRED`, MySQL's clients ignore `ssl-ca` and print a warning. This method cannot decide by
    /// flavour, because the flavour is unknown before the server is trusted.
    fn effective_tls_mode(&self) -> TlsMode {
        match (self.tls_mode, self.tls_verify) {
            (Some(mode @ (TlsMode::Off | TlsMode::VerifyCa | TlsMode::VerifyFull)), _) => mode,
            (_, Some(true)) => TlsMode::VerifyFull,
            _ if self.tls_ca.is_some() => TlsMode::VerifyCa,
            (mode, _) => mode.unwrap_or_default(),
        }
    }

    /// All connection options. Options that no source sets have the defaults of [`ConnectOptions::new`].
    pub fn connect_options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new(self.endpoint(), self.user.clone().unwrap_or_default());
        options.password = self.password.clone().unwrap_or_default();
        options.database = self.database.clone();
        options.tls = TlsOptions {
            mode: self.effective_tls_mode(),
            ca: self.tls_ca.clone(),
            certificate: self.tls_certificate.clone(),
            key: self.tls_key.clone(),
        };
        options.server_public_key = self.server_public_key.clone();
        options.clear_password_allowed = self.clear_password_allowed.unwrap_or(false);
        options.connect_timeout = self.connect_timeout.unwrap_or(options.connect_timeout);
        options
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn load(file: &str, variables: &[(&str, &str)]) -> Result<ClientOptions, SessionError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.cnf");
        fs::write(&path, file).unwrap();
        let sources = OptionSources { defaults_file: Some(path), groups: vec!["extra".to_owned()] };
        sources.load_from(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn later_sources_override_earlier_ones() {
        let file = "[client]\nhost=file\nuser=u\n[mysqld]\nport=1\n[extra]\nuser = v\n[tailwater]\nport=3307";
        let weak = [("MYSQL_HOST", "weak"), ("MYSQL_PWD", "pw"), ("MYSQL_TCP_PORT", "9"), ("USER", "me")];
        let options = load(file, &weak).unwrap();
        assert_eq!(options.host.as_deref(), Some("file"));
        assert_eq!((options.user.as_deref(), options.port), (Some("v"), Some(3307)));
        assert_eq!(options.password, Some(PasswordText::from("pw")));

        let strong = [("TAILWATER_HOST", "strong"), ("TAILWATER_USER", "w"), ("TAILWATER_PORT", "5")];
        let options = load(file, &strong).unwrap();
        assert_eq!(options.endpoint(), Endpoint::tcp("strong", 5));
        assert_eq!(options.user.as_deref(), Some("w"));
    }

    #[test]
    fn values_are_parsed_as_the_servers_clients_parse_them() {
        for (line, expected) in [
            ("password=plain", "plain"),
            ("password = spaced ", "spaced"),
            ("password=\"a # in quotes\"", "a # in quotes"),
            ("password='single'", "single"),
            ("password=cut#here", "cut"),
            (r"password=tab\tspace\sback\\slash\q", "tab\tspace back\\slash\\q"),
            (r#"password="a \" quote # and more" # comment"#, "a \" quote # and more"),
            ("password=", ""),
            ("password==", "="),
            ("password=\"", "\""),
        ] {
            let options = load(&format!("[client]\n{line}\n"), &[]).unwrap();
            assert_eq!(
                options.password.unwrap().expose(),
                expected,
                "the wrong password was read from this line: {line}"
            );
        }
    }

    #[test]
    fn tls_options_of_both_flavours_are_read() {
        for (lines, mode) in [
            ("ssl-mode=VERIFY_IDENTITY", TlsMode::VerifyFull),
            ("ssl_mode=verify_ca", TlsMode::VerifyCa),
            ("ssl-mode=DISABLED", TlsMode::Off),
            ("ssl", TlsMode::Required),
            ("ssl=0", TlsMode::Off),
            ("skip-ssl", TlsMode::Off),
            ("ssl\nssl-verify-server-cert", TlsMode::VerifyFull),
            ("ssl-verify-server-cert\nssl", TlsMode::VerifyFull),
            ("ssl\nssl-verify-server-cert=off", TlsMode::Required),
            ("ssl\nskip-ssl-verify-server-cert", TlsMode::Required),
            ("loose-ssl\ndisable_ssl_verify_server_cert=0", TlsMode::VerifyFull),
            ("skip-ssl=0", TlsMode::Required),
            ("enable-ssl", TlsMode::Required),
            ("", TlsMode::Preferred),
            // With `ssl-ca`, the certificate is verified.
            ("ssl-ca=ca.pem", TlsMode::VerifyCa),
            ("ssl-ca=ca.pem\nssl-mode=PREFERRED", TlsMode::VerifyCa),
            ("ssl-mode=REQUIRED\nssl-ca=ca.pem", TlsMode::VerifyCa),
            ("ssl\nssl-ca=ca.pem", TlsMode::VerifyCa),
            ("ssl-ca=ca.pem\nssl-verify-server-cert", TlsMode::VerifyFull),
            ("ssl-ca=ca.pem\nssl-mode=VERIFY_IDENTITY\nskip-ssl-verify-server-cert", TlsMode::VerifyFull),
            // `ssl-verify-server-cert=0` turns off only the check of the host name.
            ("ssl\nssl-ca=ca.pem\nssl-verify-server-cert=0", TlsMode::VerifyCa),
            ("ssl-ca=ca.pem\nskip-ssl-verify-server-cert", TlsMode::VerifyCa),
            // Without TLS, no certificate is verified.
            ("ssl-ca=ca.pem\nskip-ssl", TlsMode::Off),
            ("ssl-ca=ca.pem\nssl-mode=DISABLED", TlsMode::Off),
        ] {
            let options = load(&format!("[client]\n{lines}"), &[]).unwrap();
            assert_eq!(
                options.connect_options().tls.mode,
                mode,
                "the wrong options were read from these lines: {lines}"
            );
        }
        let mut options = load("[client]\nssl-verify-server-cert=0\nssl-ca=ca.pem", &[]).unwrap();
        options
            .override_with(ClientOptions { tls_mode: Some(TlsMode::Required), ..ClientOptions::default() });
        assert_eq!(options.connect_options().tls.mode, TlsMode::VerifyCa);
    }

    #[test]
    fn the_endpoint_follows_from_socket_and_host() {
        let socket = Endpoint::unix("/run/s.sock");
        for (lines, endpoint) in [
            ("socket=/run/s.sock", socket.clone()),
            ("socket=/run/s.sock\nhost=localhost", socket.clone()),
            ("socket=/run/s.sock\nhost=db1", Endpoint::tcp("db1", 3306)),
            ("port=3307", Endpoint::tcp("127.0.0.1", 3307)),
            ("", Endpoint::tcp("127.0.0.1", 3306)),
        ] {
            assert_eq!(
                load(&format!("[client]\n{lines}"), &[]).unwrap().endpoint(),
                endpoint,
                "the wrong options were read from these lines: {lines}"
            );
        }
        let over = load("[client]\nsocket=/run/s.sock", &[("TAILWATER_HOST", "localhost")]).unwrap();
        assert_eq!(over.endpoint(), Endpoint::tcp("localhost", 3306));
        let over = load("[client]\nhost=db1", &[("TAILWATER_SOCKET", "/run/s.sock")]).unwrap();
        assert_eq!(over.endpoint(), socket);
    }

    #[test]
    fn errors_name_the_line_of_the_option_file() {
        for (file, line, reason) in [
            ("[client]\nport=x", 2, "is not a port number"),
            ("[client]\nport=0", 2, "is not a port number"),
            ("\n[client\nport=1", 2, "']'"),
            ("[client]\n\n!includedir /etc/x", 3, "!includedir is not supported"),
            ("[client]\nssl-mode=MAYBE", 2, "not a TLS mode"),
            ("[client]\nuser", 2, "needs a value"),
            ("[client]\nssl-capath=/etc/ssl", 2, "ssl-capath is not supported"),
            ("[client]\nssl\nssl-fp=aa", 3, "ssl-fp is not supported"),
            ("[client]\nskip-ssl=maybe", 2, "neither on nor off"),
        ] {
            match load(file, &[]) {
                Err(SessionError::OptionFile { line: found, reason: text, .. }) => {
                    assert_eq!(found, line, "the error for the file {file} names the wrong line");
                    assert!(
                        text.contains(reason),
                        "the file {file} was refused with an unexpected error: {text}"
                    );
                }
                other => panic!("the file {file} must be refused, but the result is {other:?}"),
            }
        }
        assert!(matches!(
            load("", &[("MYSQL_TCP_PORT", "99999")]),
            Err(SessionError::Environment { name: "MYSQL_TCP_PORT", .. })
        ));
    }

    #[test]
    fn untrusted_and_missing_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.cnf");
        let sources = OptionSources { defaults_file: Some(path.clone()), groups: Vec::new() };
        assert!(matches!(sources.load_from(|_| None), Err(SessionError::OptionFile { .. })));
        fs::write(&path, "[client]\nuser=u").unwrap();
        assert_eq!(sources.load_from(|_| None).unwrap().user.as_deref(), Some("u"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let error = sources.load_from(|_| None).unwrap_err();
        assert!(error.to_string().contains("chmod"), "the error must name the remedy chmod: {error}");
    }

    #[test]
    fn the_file_in_the_home_folder_is_optional() {
        let home = tempfile::tempdir().unwrap();
        let variable = |name: &str| (name == "HOME").then(|| home.path().as_os_str().to_owned());
        let sources = OptionSources::default();
        assert_eq!(sources.load_from(variable).unwrap(), ClientOptions::default());
        fs::write(home.path().join(".my.cnf"), "[client]\nuser=u\nssl-ca=ca.pem").unwrap();
        let options = sources.load_from(variable).unwrap();
        assert_eq!(options.user.as_deref(), Some("u"));
        assert_eq!(options.tls_ca, Some(home.path().join("ca.pem")));
    }

    #[test]
    fn passwords_are_not_printed() {
        let options = load("[client]\npassword=geheim", &[]).unwrap();
        assert!(!format!("{options:?} {:?}", options.connect_options()).contains("geheim"));
    }
}
