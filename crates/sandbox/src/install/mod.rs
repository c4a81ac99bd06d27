//! Servers installed in user space: found in the cache folder or on the system, or fetched without touching
//! the system.

mod fetch;
mod sources;
mod suites;
mod tree;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tailwater_wire::Flavour;

use crate::cache::Cache;
use crate::error::SandboxError;
use crate::kind::ServerKind;
use crate::process::{self, Program};
pub use fetch::InstallProgress;
pub use suites::TestSuites;
pub use tree::{InstallMarker, PackageVersion};

/// An installed server: its program files and how to run them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    kind: ServerKind,
    /// The folder that holds `usr/`: `/` for a server of the system.
    root: PathBuf,
    /// Unpacked programs run with the C library they were built for, through that library's own loader.
    loader: Option<tree::ProgramLoader>,
    /// Distinguishes this build from others of the same kind; names the template data directory.
    build: String,
}

impl Install {
    /// Looks for a server: complete in the cache, else on the system (`PATH`) in the right release series.
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
        let loader = tree::ProgramLoader::find(root)
            .ok_or_else(|| format!("{} holds no program loader (ld-linux)", root.display()))?;
        let install = Self { kind, root: root.to_owned(), loader: Some(loader), build: marker.build() };
        install.program(kind.daemon()).map_err(|error| error.to_string())?;
        Ok(install)
    }

    fn on_system(kind: ServerKind) -> Result<Self, String> {
        let daemon = process::on_path(OsStr::new(kind.daemon()))
            .ok_or_else(|| format!("{} is not on PATH", kind.daemon()))?;
        // Relocated installations (tarballs, containers) have options of their own; only the packaged layout
        // is known.
        if daemon != Path::new("/usr/sbin").join(kind.daemon()) {
            return Err(format!("{} is not where packages put it", daemon.display()));
        }
        let mut program = Program::new(&daemon);
        program.arg("--no-defaults").arg("--version");
        let output = process::run_to_end(&program, std::process::Stdio::null()).map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = version_in(&text).ok_or_else(|| format!("{} prints no version", daemon.display()))?;
        if !version.strip_prefix(kind.series()).is_some_and(|rest| rest.starts_with('.')) {
            return Err(format!("{} is version {version}", daemon.display()));
        }
        Ok(Self { kind, root: PathBuf::from("/"), loader: None, build: format!("system-{version}") })
    }

    /// What was installed.
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// The folder that holds the server's `usr/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Names this build among others of the same kind, for example in folder names.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// A command for one of the client programs that came with the server, such as `mysqlbinlog`,
    /// `mysqldump`, `mariadb-binlog`, `mariadb-dump` or `mariadb-backup`. It reads no option files unless the
    /// caller asks for it: callers begin their arguments with `--no-defaults`.
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
        // The loader runs ELF files only; scripts would need an interpreter out of the tree as well.
        if !tree::is_elf(&path) {
            return Err(missing(format!("{} is a script, not a program", path.display())));
        }
        let mut program = Program::new(&loader.path);
        program.arg("--library-path").arg(&loader.library_path).arg(path);
        Ok(program)
    }

    /// Options without which a server out of a tree does not find its own files.
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

    /// The folder of the server's message files, charsets and SQL scripts.
    pub(crate) fn share(&self) -> PathBuf {
        let share = self.root.join("usr/share");
        match self.kind.flavour() {
            Flavour::MariaDb if share.join("mariadb/charsets").is_dir() => share.join("mariadb"),
            _ => share.join("mysql"),
        }
    }

    /// The folder of the server's plug-ins.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("usr/lib/mysql/plugin")
    }
}

/// The first `N.N.N` in what `--version` printed.
fn version_in(text: &str) -> Option<String> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .map(|word| word.trim_matches('.'))
        .find(|word| word.split('.').filter(|part| !part.is_empty()).count() >= 3)
        .map(str::to_owned)
}

/// Whether a path survives the way through an option of the server unchanged.
pub(crate) fn is_plain_path(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_control())
}

/// Removes a folder tree if it is there.
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
    fn version_is_found_in_what_servers_print() {
        let check = |text, want: Option<&str>| assert_eq!(version_in(text).as_deref(), want, "{text}");
        check("mariadbd  Ver 10.11.18-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64", Some("10.11.18"));
        check("/usr/sbin/mysqld  Ver 9.7.0 for Linux on x86_64 (Debian)", Some("9.7.0"));
        check("no version. at all 1.2", None);
    }

    #[test]
    fn an_unmarked_tree_is_not_used() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::at(folder.path());
        let root = cache.servers().join("mysql-9.7/usr/sbin");
        fs::create_dir_all(&root).expect("tree");
        fs::write(root.join("mysqld"), b"\x7fELF").expect("program");
        let error = Install::in_tree(ServerKind::Mysql97, &cache.servers().join("mysql-9.7"));
        assert!(error.is_err_and(|reason| reason.contains("not complete")));
    }
}
