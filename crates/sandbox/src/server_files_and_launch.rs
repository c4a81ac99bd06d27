//! The files of one server, how the server is started, and how it is detected that the server is ready.

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use tailwater_wire::Flavour;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::cache_folder::Cache;
use crate::child_process_lifetime::{self, Lifetime, ProcessLimits, Program};
use crate::data_directory_template;
use crate::error::{FileContext, SandboxError};
use crate::install::{Install, is_plain_path};
use crate::server_instance_folder::socket_path;

/// Time limit for the start of a server in seconds, including crash recovery of a big data directory.
const START_SECONDS_MAX: u64 = 120;

/// Everything that is needed to start one server.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) install: Install,
    pub(crate) data: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) pid_file: PathBuf,
    /// Temporary folder of this server only. When a server starts, it deletes temporary files with names like
    /// its own. In a shared folder, it would delete the files of other running servers.
    pub(crate) temporary: PathBuf,
    pub(crate) error_log: PathBuf,
    /// Option file; empty unless the user wrote to it. It always exists: without an option file, MySQL also
    /// ignores the settings of `SET PERSIST`.
    pub(crate) option_file: PathBuf,
    /// Variables added to the server's environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Layout {
    /// Prepares a server's files in `folder`. The data directory is `data` if that is given, else a copy of
    /// the template.
    pub(crate) fn prepare(
        install: Install,
        cache: &Cache,
        folder: &Path,
        data: Option<&Path>,
    ) -> Result<Self, SandboxError> {
        let data = match data {
            Some(data) => data.to_owned(),
            None => {
                let data = folder.join("data");
                data_directory_template::copy_to(&install, cache, &data)?;
                data
            }
        };
        let temporary = folder.join("tmp");
        fs::create_dir_all(&temporary).on_path("create", &temporary)?;
        let option_file = folder.join("my.cnf");
        // An existing option file belongs to a server that is started again, and is kept.
        let opened = fs::OpenOptions::new().create(true).append(true).open(&option_file);
        opened.on_path("write", &option_file)?;
        Ok(Self {
            install,
            data,
            temporary,
            socket: socket_path(folder)?,
            pid_file: folder.join("pid"),
            error_log: folder.join("error.log"),
            option_file,
            environment: Vec::new(),
        })
    }

    /// Returns the command line of the server: options for files, then safe defaults for a small server, then
    /// the caller's options.
    fn program(&self, port: u16, options: &[String]) -> Result<Program, SandboxError> {
        let kind = self.install.kind();
        let mut program = self.install.program(kind.daemon())?;
        let mut option_file = OsString::from("--defaults-file=");
        option_file.push(&self.option_file);
        program.arg(option_file);
        for option in self.install.layout_options() {
            program.arg(option);
        }
        for (name, path) in [
            ("--datadir=", &self.data),
            ("--socket=", &self.socket),
            ("--pid-file=", &self.pid_file),
            ("--tmpdir=", &self.temporary),
        ] {
            debug_assert!(is_plain_path(path), "the path cannot be an option value: {}", path.display());
            let mut option = OsString::from(name);
            option.push(path);
            program.arg(option);
        }
        program.arg(format!("--port={port}")).arg(format!("--server-id={port}"));
        if rustix::process::geteuid().is_root() {
            program.arg("--user=root");
        }
        // The server never looks up names: a slow or absent DNS resolver must not delay a login. Full
        // durability and a row-based binlog are set explicitly, because the defaults of the two families
        // differ.
        for option in [
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--secure-file-priv=",
            "--innodb-buffer-pool-size=128M",
            "--innodb-flush-log-at-trx-commit=1",
            "--sync-binlog=1",
            "--log-bin=binlog",
        ] {
            program.arg(option);
        }
        match kind.flavour() {
            Flavour::MySql => program.arg("--gtid-mode=ON").arg("--enforce-gtid-consistency=ON"),
            // Since 11.4, MariaDB would generate an RSA key at each start, which takes seconds. The option
            // `--ssl` enables TLS again, and so do options with certificates.
            Flavour::MariaDb => program.arg("--skip-ssl").arg("--binlog-format=ROW"),
        };
        for option in data_directory_template::shape_options(kind.flavour()) {
            program.arg(*option);
        }
        for option in options {
            program.arg(option);
        }
        program.environment.clone_from(&self.environment);
        Ok(program)
    }

    /// Starts the server process. The server is not ready when this returns.
    pub(crate) fn launch(
        &self,
        port: u16,
        options: &[String],
        lifetime: Lifetime,
        limits: ProcessLimits,
    ) -> Result<Child, SandboxError> {
        match fs::remove_file(&self.pid_file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).on_path("remove", &self.pid_file);
            }
            _ => {}
        }
        child_process_lifetime::spawn(&self.program(port, options)?, &self.error_log, lifetime, limits)
    }

    /// Waits until the server accepts clients, and returns the version from its handshake packet.
    pub(crate) async fn wait_ready(
        &self,
        name: &str,
        child: &mut Child,
        port: u16,
    ) -> Result<String, SandboxError> {
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        loop {
            let wait = Instant::now() + Duration::from_millis(20);
            let ended =
                child_process_lifetime::wait_until(child, wait).await.on_path("wait for", &self.pid_file)?;
            if let Some(status) = ended {
                return Err(self.ended_early(name, status));
            }
            // Another server could use the port. The server is the right one only if its PID file names the
            // child process.
            let pid = fs::read_to_string(&self.pid_file).unwrap_or_default();
            if pid.trim().parse() == Ok(child.id())
                && let Some(version) = greeting(port).await
            {
                return Ok(version);
            }
            if Instant::now() >= deadline {
                return Err(self.timed_out(name, "ready", START_SECONDS_MAX));
            }
        }
    }

    fn ended_early(&self, name: &str, status: ExitStatus) -> SandboxError {
        SandboxError::EndedEarly {
            name: name.to_owned(),
            status: status.to_string(),
            log: self.error_log.clone(),
            tail: tail_of(&self.error_log),
        }
    }

    pub(crate) fn timed_out(&self, name: &str, state: &'static str, seconds: u64) -> SandboxError {
        SandboxError::TimedOut {
            name: name.to_owned(),
            state,
            seconds,
            log: self.error_log.clone(),
            tail: tail_of(&self.error_log),
        }
    }
}

/// Connects, and reads the version from the server's handshake packet. Returns `None` if the server does not
/// send this packet.
async fn greeting(port: u16) -> Option<String> {
    let read = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        let mut bytes = Vec::with_capacity(128);
        // The handshake is one small packet. The version is after the protocol number 10, and ends with a
        // zero byte.
        while bytes.len() < 512 {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
            if let Some(version) = greeted_version(&bytes) {
                return Some(version);
            }
        }
        None
    };
    tokio::time::timeout(Duration::from_secs(2), read).await.ok().flatten()
}

fn greeted_version(packet: &[u8]) -> Option<String> {
    let (&protocol, rest) = packet.get(4..)?.split_first()?;
    if protocol != 10 {
        return None;
    }
    let end = rest.iter().position(|&byte| byte == 0)?;
    let version = String::from_utf8_lossy(rest.get(..end)?).into_owned();
    // MariaDB 10 sends this prefix so that old replicas mistake it for a newer MySQL.
    Some(version.strip_prefix("5.5.5-").map_or(version.clone(), str::to_owned))
}

/// Returns the last lines of a log, for error messages.
pub(crate) fn tail_of(log: &Path) -> String {
    const BYTES_MAX: usize = 4096;
    const LINES_MAX: usize = 15;
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(BYTES_MAX)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_handshake_packets() {
        let check = |bytes: &[u8], want: Option<&str>| assert_eq!(greeted_version(bytes).as_deref(), want);
        check(b"\x4a\0\0\0\x0a9.7.0-2\0rest", Some("9.7.0-2"));
        check(b"\x4a\0\0\0\x0a5.5.5-10.11.18-MariaDB\0", Some("10.11.18-MariaDB"));
        check(b"\x4a\0\0\0\x0a9.7", None);
        check(b"\x4a\0\0\0\xff\x10\x04Too many connections\0", None);
        check(b"\x4a\0", None);
    }
}
