//! The servers' own test suites (Debian packages `mariadb-test` and `mysql-testsuite`). They are downloaded
//! and unpacked like the servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use tailwater_wire::Flavour;

use super::package_download::{Fetch, InstallProgress, PackageSet};
use super::unpacked_server::{self, InstallMarker};
use super::{Install, child_process_lifetime};
use crate::cache_folder::{Cache, FileLock};
use crate::error::SandboxError;
use crate::server_kind::ServerKind;

fn recipe(kind: ServerKind) -> PackageSet {
    // The client of MariaDB's suites needs one library that the servers do not need.
    const MARIADB: &[&str] = &["mariadb-test", "mariadb-test-data", "libpcre2-posix3"];
    match kind {
        ServerKind::Mysql97 => {
            PackageSet { suite: "sid", server: "mysql-testsuite", packages: &[], alone: &["mysql-testsuite"] }
        }
        ServerKind::Mariadb1011 => {
            PackageSet { suite: "bookworm", server: "mariadb-test", packages: &[], alone: MARIADB }
        }
        ServerKind::Mariadb118 => {
            PackageSet { suite: "sid", server: "mariadb-test", packages: &[], alone: MARIADB }
        }
    }
}

/// The unpacked test suites of a server, and the client program that runs them.
#[derive(Debug, Clone)]
pub struct TestSuites {
    root: PathBuf,
    install: Install,
}

impl TestSuites {
    /// Finds the suites in the cache, or downloads them: 30 MB for MariaDB, 340 MB for MySQL. Blocks during
    /// the download.
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`] if the server itself is missing; [`SandboxError::Install`] with apt's
    /// output.
    pub fn ensure(
        kind: ServerKind,
        cache: &Cache,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> Result<Self, SandboxError> {
        let install = Install::find(kind, cache)?;
        let name = format!("{}-suites", kind.name());
        let root = cache.servers().join(&name);
        if InstallMarker::read(&root, kind).is_err() {
            let lock = cache.servers().join(format!(".lock-{name}"));
            let _lock = FileLock::acquire(&lock, || progress(InstallProgress::Waiting { kind }))?;
            // The process that had the lock may have installed the suites.
            if InstallMarker::read(&root, kind).is_err() {
                Fetch::prepare(kind, &name, recipe(kind), cache)?.run(progress)?;
            }
        }
        Ok(Self { root, install })
    }

    /// Returns the folder with `include`, `std_data` and the suites. The client must run in this folder.
    pub fn folder(&self) -> PathBuf {
        let names: &[&str] = match self.install.kind().flavour() {
            Flavour::MySql => &["usr/lib/mysql-test"],
            // The folder's name changed in MariaDB 11.
            Flavour::MariaDb => &["usr/share/mariadb/mariadb-test", "usr/share/mysql/mysql-test"],
        };
        let folders = names.iter().map(|name| self.root.join(name));
        folders.clone().find(|folder| folder.is_dir()).unwrap_or_else(|| self.root.join(names[0]))
    }

    /// Returns a command for the client that runs test files (`mysqltest`), without arguments.
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`] if the tree does not contain the client.
    pub fn client(&self) -> Result<Command, SandboxError> {
        let path = match self.install.kind().flavour() {
            Flavour::MySql => "usr/lib/mysql-test/bin/mysqltest",
            Flavour::MariaDb => "usr/bin/mariadb-test",
        };
        self.command(&self.root.join(path))
    }

    /// Returns a command for a program of the test suites' package. It runs with the C library and the
    /// libraries of the server's package.
    fn command(&self, path: &Path) -> Result<Command, SandboxError> {
        if !unpacked_server::is_elf(path) {
            let reason = format!("{} is not a program", path.display());
            return Err(SandboxError::NotInstalled { kind: self.install.kind(), reason });
        }
        let mut program = child_process_lifetime::Program::new(path);
        if let Some(loader) = &self.install.loader {
            program = child_process_lifetime::Program::new(&loader.path);
            let own = self.root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
            let mut folders = loader.library_path.clone();
            folders.push(":");
            folders.push(own);
            program.arg("--library-path").arg(folders).arg(path);
        }
        Ok(program.command())
    }
}
