//! Finds servers in the cache folder or on the system, or downloads them without changing the system.

mod debian_mirror;
mod package_download;
mod program_wrappers;
mod server_test_suites;
mod unpacked_server;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tailwater_wire::Flavour;

use crate::cache_folder::Cache;
use crate::child_process_lifetime::{self, Program};
use crate::error::SandboxError;
use crate::server_kind::ServerKind;
pub use package_download::InstallProgress;
pub use server_test_suites::TestSuites;
pub use unpacked_server::{InstallMarker, PackageVersion};

/// An installed server: its program files, and how to run them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    kind: ServerKind,
    /// The folder that contains `usr/`. It is `/` for a server of the system.
    root: PathBuf,
    /// The program loader of the C library that the unpacked programs were built for. `None` for a server of
    /// the system.
    loader: Option<unpacked_server::ProgramLoader>,
    /// Name that distinguishes this build from other builds of the same kind. The template data directory has
    /// the same name.
    build: String,
}

impl Install {
    /// Finds a server: a complete installation in the cache, otherwise a server of the right release series
    /// on the system (`PATH`).
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`] names the searched paths.
    pub fn find(kind: ServerKind, cache: &Cache) -> Result<Self, SandboxError> {
        let root = cache.servers().join(kind.name());
        let reason = match Self::in_tree(kind, &root) {
            Ok(install) => return Ok(install),
            Err(reason) => reason,
        };
        match Self::on_system(kind) {
            Ok(install) => Ok(install),
            Err(system) => Err(SandboxError::NotInstalled { kind, reason: format!("{reason}; {system}") }),
        }
    }

    fn in_tree(kind: ServerKind, root: &Path) -> Result<Self, String> {
        let marker = InstallMarker::read(root, kind)?;
        let loader = unpacked_server::ProgramLoader::find(root)
            .ok_or_else(|| format!("{} contains no program loader (ld-linux)", root.display()))?;
        let install = Self { kind, root: root.to_owned(), loader: Some(loader), build: marker.build() };
        install.program(kind.daemon()).map_err(|error| error.to_string())?;
        Ok(install)
    }

    fn on_system(kind: ServerKind) -> Result<Self, String> {
        let daemon = child_process_lifetime::on_path(OsStr::new(kind.daemon()))
            .ok_or_else(|| format!("{} is not on PATH", kind.daemon()))?;
        // Other installations (tarballs, containers) have their own folder structure. Only the structure of
        // Debian packages is supported.
        if daemon != Path::new("/usr/sbin").join(kind.daemon()) {
            return Err(format!("{} is not in the folder that Debian packages use", daemon.display()));
        }
        let mut program = Program::new(&daemon);
        program.arg("--no-defaults").arg("--version");
        let output = child_process_lifetime::run_to_end(&program, std::process::Stdio::null())
            .map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = version_in(&text).ok_or_else(|| format!("{} prints no version", daemon.display()))?;
        if !version.strip_prefix(kind.series()).is_some_and(|rest| rest.starts_with('.')) {
            return Err(format!("{} is version {version}", daemon.display()));
        }
        Ok(Self { kind, root: PathBuf::from("/"), loader: None, build: format!("system-{version}") })
    }

    /// Returns the kind of server.
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Returns the folder that contains the server's `usr/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a name that distinguishes this build from other builds of the same kind, for example for
    /// folder names.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// Returns a command for one of the client programs of the server, such as `mysqlbinlog`, `mysqldump`,
    /// `mariadb-binlog`, `mariadb-dump` or `mariadb-backup`. Callers begin the arguments with
    /// `--no-defaults`, unless the program should read option files.
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`] if there is no such compiled program.
    pub fn tool(&self, name: &str) -> Result<Command, SandboxError> {
        Ok(self.program(name)?.command())
    }

    pub(crate) fn program(&self, name: &str) -> Result<Program, SandboxError> {
        let folders = ["usr/sbin", "usr/bin", "sbin", "bin"];
        let path = folders.iter().map(|folder| self.root.join(folder).join(name)).find(|path| path.is_file());
        let missing = |reason| SandboxError::NotInstalled { kind: self.kind, reason };
        let path = path.ok_or_else(|| missing(format!("no program {name} under {}", self.root.display())))?;
        let Some(loader) = &self.loader else { return Ok(Program::new(path)) };
        // The program loader runs only ELF files. A script would also need its interpreter from the tree.
        if !unpacked_server::is_elf(&path) {
            return Err(missing(format!("{} is a script, not a program", path.display())));
        }
        let mut program = Program::new(&loader.path);
        program.arg("--library-path").arg(&loader.library_path).arg(path);
        Ok(program)
    }

    /// Returns the options that a server in a tree needs to find its own files.
    pub(crate) fn layout_options(&self) -> Vec<OsString> {
        let usr = self.root.join("usr");
        let share = self.share();
        let option = |name: &str, path: &Path| {
            let mut text = OsString::from(name);
            text.push(path);
            text
        };
        vec![
            option("--basedir=", &usr),
            option("--lc-messages-dir=", &share),
            option("--character-sets-dir=", &share.join("charsets")),
            option("--plugin-dir=", &self.plugins()),
        ]
    }

    /// Returns the folder of the server's message files, character sets and SQL scripts.
    pub(crate) fn share(&self) -> PathBuf {
        let share = self.root.join("usr/share");
        match self.kind.flavour() {
            Flavour::MariaDb if share.join("mariadb/charsets").is_dir() => share.join("mariadb"),
            _ => share.join("mysql"),
        }
    }

    /// Returns the folder of the server's plugins.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("usr/lib/mysql/plugin")
    }
}

/// Returns the first `N.N.N` in the output of `--version`.
fn version_in(text: &str) -> Option<String> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .map(|word| word.trim_matches('.'))
        .find(|word| word.split('.').filter(|part| !part.is_empty()).count() >= 3)
        .map(str::to_owned)
}

/// Whether a path can be the value of a server option without being changed by the server.
pub(crate) fn is_plain_path(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_control())
}

/// Removes a folder with its contents, if it exists.
pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_the_output_of_servers() {
        let check = |text, want: Option<&str>| {
            assert_eq!(version_in(text).as_deref(), want, "wrong version in: {text}")
        };
        check("mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64", Some("10.11.18"));
        check("/usr/sbin/mysqld  Ver 9.7.0 for Linux on x86_64 (Debian)", Some("9.7.0"));
        check("no version. at all 1.2", None);
    }

    #[test]
    fn a_tree_without_its_marker_file_is_not_used() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::at(folder.path());
        let root = cache.servers().join("mysql-9.7/usr/sbin");
        fs::create_dir_all(&root).expect("tree");
        fs::write(root.join("mysqld"), b"\x7fELF").expect("program");
        let error = Install::in_tree(ServerKind::Mysql97, &cache.servers().join("mysql-9.7"));
        assert!(error.is_err_and(|reason| reason.contains("not complete")));
    }
}
