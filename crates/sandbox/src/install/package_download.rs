//! Downloads servers as Debian packages and unpacks them into the cache, without root and without changing
//! the system.
//!
//! apt resolves and downloads the packages with a separate state: package lists, cache, and an empty list of
//! installed packages. So apt downloads all dependencies including the C library. `dpkg-deb` unpacks the
//! packages. Nothing is installed, and no script of a package runs.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::unpacked_server::{InstallMarker, PackageVersion};
use super::{Install, debian_mirror, remove_tree};
use crate::cache_folder::{Cache, FileLock};
use crate::error::{FileContext, SandboxError};
use crate::server_kind::ServerKind;

/// Environment variable that overrides the mirror from this machine's apt sources, for machines that are not
/// Debian.
const MIRROR_VARIABLE: &str = "TAILWATER_DEBIAN_MIRROR";
const KEYRINGS: [&str; 2] =
    ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];
/// Folders of packages that a server does not need.
const UNNEEDED_FOLDERS: [&str; 4] = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"];

/// The packages that are unpacked into one folder (a tree): those of a server, or those of its test suites.
pub(super) struct PackageSet {
    /// The Debian release.
    pub(super) suite: &'static str,
    /// The package whose version is the version of the tree.
    pub(super) server: &'static str,
    /// Packages that are downloaded with all their dependencies. May be empty.
    pub(super) packages: &'static [&'static str],
    /// Packages from which only single files are needed (plugins, client programs). They are downloaded
    /// without their dependencies.
    pub(super) alone: &'static [&'static str],
}

fn recipe(kind: ServerKind) -> PackageSet {
    // libc6 is listed explicitly, because its program loader runs all other programs.
    match kind {
        ServerKind::Mysql97 => PackageSet {
            suite: "sid",
            server: "mysql-server-core",
            packages: &["mysql-server-core", "mysql-client-core", "libc6"],
            alone: &[],
        },
        ServerKind::Mariadb1011 => PackageSet {
            suite: "bookworm",
            server: "mariadb-server-core",
            packages: MARIADB,
            alone: &["mariadb-server", "mariadb-client"],
        },
        ServerKind::Mariadb118 => PackageSet {
            suite: "sid",
            server: "mariadb-server-core",
            packages: MARIADB,
            alone: &["mariadb-server", "mariadb-client"],
        },
    }
}

const MARIADB: &[&str] =
    &["mariadb-server-core", "mariadb-client-core", "mariadb-backup", "mariadb-plugin-rocksdb", "libc6"];

/// Progress of a download. [`std::fmt::Display`] formats it as a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallProgress {
    /// Another process is downloading the same server. This process waits for it.
    Waiting {
        /// The server.
        kind: ServerKind,
    },
    /// The list of packages is being downloaded.
    Listing {
        /// The server.
        kind: ServerKind,
        /// The Debian release.
        suite: &'static str,
        /// URL of the mirror.
        mirror: String,
    },
    /// The packages are known, and the download begins.
    Fetching {
        /// The server.
        kind: ServerKind,
        /// Number of packages.
        packages: usize,
        /// Number of bytes to download.
        bytes: u64,
        /// URL of the mirror.
        mirror: String,
        /// Folder into which the packages are unpacked.
        into: PathBuf,
    },
    /// Reported repeatedly while packages are downloaded.
    Downloaded {
        /// Number of bytes downloaded so far.
        bytes: u64,
        /// Number of bytes in total.
        total: u64,
    },
    /// The packages are being unpacked.
    Unpacking {
        /// The server.
        kind: ServerKind,
        /// Number of packages that are unpacked.
        done: usize,
        /// Number of packages in total.
        total: usize,
    },
    /// The server is ready for use.
    Done {
        /// The server.
        kind: ServerKind,
        /// Version of the server's package.
        version: String,
        /// Folder of the server.
        root: PathBuf,
    },
}

impl std::fmt::Display for InstallProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mb = |bytes: u64| bytes.div_ceil(1_000_000);
        match self {
            Self::Waiting { kind } => write!(f, "another process is installing {kind}; waiting for it"),
            Self::Listing { kind, suite, mirror } => {
                write!(f, "{kind}: reading the package list of Debian {suite} from {mirror}")
            }
            Self::Fetching { kind, packages, bytes, mirror, into } => write!(
                f,
                "{kind}: downloading {packages} packages, {} MB, from {mirror} into {} (the system is not changed)",
                mb(*bytes),
                into.display()
            ),
            Self::Downloaded { bytes, total } => write!(f, "{} of {} MB", mb(*bytes), mb(*total)),
            Self::Unpacking { kind, done, total } => write!(f, "{kind}: unpacked {done} of {total} packages"),
            Self::Done { kind, version, root } => {
                write!(f, "{kind}: version {version} is ready in {}", root.display())
            }
        }
    }
}

impl Install {
    /// Finds a server as [`Install::find`] does, but downloads it if it is missing: about 60 MB. Blocks
    /// during the download.
    ///
    /// # Errors
    /// [`SandboxError::Install`] with apt's output. An interrupted attempt leaves no tree that counts as
    /// installed. The next attempt reuses the packages that were downloaded.
    pub fn ensure(
        kind: ServerKind,
        cache: &Cache,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> Result<Self, SandboxError> {
        match Self::find(kind, cache) {
            Err(SandboxError::NotInstalled { .. }) => {}
            found => return found,
        }
        let servers = cache.servers();
        let lock = servers.join(format!(".lock-{}", kind.name()));
        let _lock = FileLock::acquire(&lock, || progress(InstallProgress::Waiting { kind }))?;
        // The process that had the lock may have installed the server.
        match Self::find(kind, cache) {
            Err(SandboxError::NotInstalled { .. }) => {}
            found => return found,
        }
        Fetch::prepare(kind, kind.name(), recipe(kind), cache)?.run(progress)?;
        Self::find(kind, cache)
    }
}

/// One attempt to download a server, or its test suites.
pub(super) struct Fetch {
    kind: ServerKind,
    recipe: PackageSet,
    mirror: String,
    /// The separate state of apt: lists, cache, sources.
    state: PathBuf,
    /// Folder of downloaded packages. It is kept after an interrupted attempt.
    packages: PathBuf,
    /// Folder into which packages are unpacked until the tree is complete.
    work: PathBuf,
    root: PathBuf,
}

impl Fetch {
    /// Prepares the download of the packages in `recipe` for the folder `name` of the cache's servers.
    pub(super) fn prepare(
        kind: ServerKind,
        name: &str,
        recipe: PackageSet,
        cache: &Cache,
    ) -> Result<Self, SandboxError> {
        let failed = |reason: String| SandboxError::Install { kind, reason };
        let mirror = match std::env::var(MIRROR_VARIABLE) {
            Ok(mirror) if !mirror.is_empty() => mirror,
            _ => debian_mirror::debian_mirror(Path::new("/etc/apt")).ok_or_else(|| {
                failed(format!(
                    "no Debian mirror in /etc/apt/sources.list or /etc/apt/sources.list.d; set {MIRROR_VARIABLE} to \
                     the URI of one"
                ))
            })?,
        };
        let keyring = KEYRINGS.into_iter().find(|path| Path::new(path).is_file()).ok_or_else(|| {
            failed(format!("{} is missing; install the package debian-archive-keyring", KEYRINGS[0]))
        })?;
        let servers = cache.servers();
        // Each server has its own apt state, because two servers may be downloaded at the same time.
        let state = servers.join(format!(".apt-state-{name}"));
        let packages = state.join("packages");
        for folder in [state.join("lists/partial"), state.join("cache"), packages.join("partial")] {
            fs::create_dir_all(&folder).on_path("create", &folder)?;
        }
        let status = state.join("status");
        fs::write(&status, "").on_path("write", &status)?;
        let list = state.join("sources.list");
        let line = format!("deb [signed-by={keyring}] {mirror} {} main\n", recipe.suite);
        fs::write(&list, line).on_path("write", &list)?;
        let work = servers.join(format!(".new-{name}"));
        Ok(Self { kind, recipe, mirror, state, packages, work, root: servers.join(name) })
    }

    pub(super) fn run(&self, progress: &mut dyn FnMut(InstallProgress)) -> Result<(), SandboxError> {
        let kind = self.kind;
        progress(InstallProgress::Listing { kind, suite: self.recipe.suite, mirror: self.mirror.clone() });
        self.apt(&["update"], "reading the package list")?;

        let install: Vec<&str> = ["install", "--yes", "--no-install-recommends"]
            .iter()
            .chain(self.recipe.packages)
            .copied()
            .collect();
        let alone: Vec<&str> = ["download"].iter().chain(self.recipe.alone).copied().collect();
        let mut wanted = if self.recipe.packages.is_empty() { Vec::new() } else { self.wanted(&install)? };
        if !self.recipe.alone.is_empty() {
            wanted.extend(self.wanted(&alone)?);
        }
        self.drop_other_packages(&wanted)?;
        let total = wanted.iter().map(|package| package.bytes).sum();
        let there = folder_bytes(&self.packages).min(total);
        progress(InstallProgress::Fetching {
            kind,
            packages: wanted.len(),
            bytes: total - there,
            mirror: self.mirror.clone(),
            into: self.root.clone(),
        });
        let mut watch =
            || progress(InstallProgress::Downloaded { bytes: folder_bytes(&self.packages), total });
        if !self.recipe.packages.is_empty() {
            let download = [&["--download-only"], &install[..]].concat();
            self.apt_watched(&download, "downloading packages", &mut watch)?;
        }
        if !self.recipe.alone.is_empty() {
            self.apt_watched(&alone, "downloading packages", &mut watch)?;
        }
        self.unpack(progress)?;
        // The downloaded packages are deleted, because the disk space is worth more than avoiding a second
        // download.
        remove_tree(&self.state).on_path("remove", &self.state)
    }

    /// Returns all packages that this command needs, including those that are already downloaded.
    fn wanted(&self, command: &[&str]) -> Result<Vec<WantedPackage>, SandboxError> {
        // apt omits packages that it finds in its folder, so this call gives it an empty folder.
        let nothing = self.state.join("nothing");
        let partial = nothing.join("partial");
        fs::create_dir_all(&partial).on_path("create", &partial)?;
        let option = format!("Dir::Cache::Archives={}", nothing.display());
        let mut apt = self.apt_command(&[&["--print-uris", "-o", &option], command].concat());
        apt.current_dir(&nothing);
        let text = self.finish(apt, "resolving packages")?;
        // Only lines that begin with a quoted URL describe packages.
        Ok(text.lines().filter_map(WantedPackage::parse).collect())
    }

    /// Deletes packages of an earlier attempt that are not needed any more, because the mirror has newer
    /// ones. They must not be unpacked.
    fn drop_other_packages(&self, wanted: &[WantedPackage]) -> Result<(), SandboxError> {
        for path in self.downloaded()? {
            let name = path.file_name().unwrap_or_default();
            if !wanted.iter().any(|package| name == package.file.as_str()) {
                fs::remove_file(&path).on_path("remove", &path)?;
            }
        }
        Ok(())
    }

    fn downloaded(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let entries = fs::read_dir(&self.packages).on_path("list", &self.packages)?;
        let mut paths: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        paths.sort();
        Ok(paths)
    }

    fn unpack(&self, progress: &mut dyn FnMut(InstallProgress)) -> Result<(), SandboxError> {
        let kind = self.kind;
        remove_tree(&self.work).on_path("remove", &self.work)?;
        fs::create_dir_all(&self.work).on_path("create", &self.work)?;
        let paths = self.downloaded()?;
        let mut packages = Vec::with_capacity(paths.len());
        for (path, done) in paths.iter().zip(1..) {
            packages.push(self.describe(path)?);
            let mut command = Command::new("dpkg-deb");
            command.arg("--extract").arg(path).arg(&self.work);
            self.finish(command, "unpacking packages")?;
            progress(InstallProgress::Unpacking { kind, done, total: paths.len() });
        }
        for folder in UNNEEDED_FOLDERS {
            let folder = self.work.join(folder);
            remove_tree(&folder).on_path("remove", &folder)?;
        }
        let server = packages.iter().find(|package| package.name == self.recipe.server).cloned();
        let server = server.ok_or_else(|| {
            self.failed(format!("{} is not among the unpacked packages", self.recipe.server))
        })?;
        let version = server.version.clone();
        InstallMarker::new(server, packages).write(&self.work).on_path("mark as complete", &self.work)?;
        self.put_in_place()?;
        progress(InstallProgress::Done { kind, version, root: self.root.clone() });
        Ok(())
    }

    /// Moves the complete tree to its final name. An incomplete or outdated tree there is replaced. Servers
    /// that run from the old tree keep their open files.
    fn put_in_place(&self) -> Result<(), SandboxError> {
        let name = self.root.file_name().unwrap_or_default().to_string_lossy();
        let old = self.work.with_file_name(format!(".old-{name}"));
        remove_tree(&old).on_path("remove", &old)?;
        match fs::rename(&self.root, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).on_path("rename", &self.root);
            }
            _ => {}
        }
        fs::rename(&self.work, &self.root).on_path("rename", &self.work)?;
        remove_tree(&old).on_path("remove", &old)
    }

    fn describe(&self, path: &Path) -> Result<PackageVersion, SandboxError> {
        let mut command = Command::new("dpkg-deb");
        command.args(["--show", "--showformat=${Package} ${Version}"]).arg(path);
        let text = self.finish(command, "reading a package")?;
        match text.trim().split_once(' ') {
            Some((name, version)) => {
                Ok(PackageVersion { name: name.to_owned(), version: version.to_owned() })
            }
            None => Err(self.failed(format!("{} has no name and version", path.display()))),
        }
    }

    /// Returns an `apt-get` command that uses nothing of the system's apt state.
    fn apt_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        let state = self.state.display();
        let options = [
            format!("Dir::Etc::SourceList={state}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::Etc::Preferences=/dev/null".to_owned(),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
            format!("Dir::State={state}"),
            format!("Dir::State::Lists={state}/lists"),
            format!("Dir::State::Status={state}/status"),
            format!("Dir::Cache={state}/cache"),
            format!("Dir::Cache::Archives={}", self.packages.display()),
            // In some releases, apt could lock this folder only as root. So apt's lock is disabled, and this
            // process locks the folder itself.
            "Debug::NoLocking=1".to_owned(),
            // As root, apt would download as a user that is not allowed to write to this folder.
            "APT::Sandbox::User=root".to_owned(),
            format!("APT::Default-Release={}", self.recipe.suite),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ];
        command.arg("--quiet=2");
        for option in &options {
            command.arg("-o").arg(option);
        }
        // `apt-get download` stores the packages in the working directory.
        command.args(arguments).current_dir(&self.packages).env("LC_ALL", "C.UTF-8");
        command
    }

    fn apt(&self, arguments: &[&str], doing: &str) -> Result<String, SandboxError> {
        self.finish(self.apt_command(arguments), doing)
    }

    /// Runs apt, and calls `watch` repeatedly while apt runs.
    fn apt_watched(
        &self,
        arguments: &[&str],
        doing: &str,
        watch: &mut dyn FnMut(),
    ) -> Result<(), SandboxError> {
        let mut command = self.apt_command(arguments);
        let log = self.state.join("apt.log");
        let errors = fs::File::create(&log).on_path("create", &log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let spawn = |source| SandboxError::Spawn { program: "apt-get".to_owned(), source };
        let mut child = command.spawn().map_err(spawn)?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(spawn)? {
                break status;
            }
            watch();
            std::thread::sleep(Duration::from_millis(200));
        };
        if status.success() {
            return Ok(());
        }
        let mut text = String::new();
        let _ = fs::File::open(&log).and_then(|mut file| file.read_to_string(&mut text));
        Err(self.failed(format!("{doing} failed ({status}): {}", text.trim())))
    }

    fn finish(&self, mut command: Command, doing: &str) -> Result<String, SandboxError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command.stdin(Stdio::null()).output().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => self.failed(format!(
                "{program} is not on this machine; it is needed to download servers as Debian packages"
            )),
            _ => SandboxError::Spawn { program, source },
        })?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(self.failed(format!("{doing} failed ({}): {}", output.status, text.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn failed(&self, reason: String) -> SandboxError {
        SandboxError::Install { kind: self.kind, reason }
    }
}

/// A package that apt would download.
#[derive(Debug, PartialEq, Eq)]
struct WantedPackage {
    file: String,
    bytes: u64,
}

impl WantedPackage {
    /// Parses `'URI' FILE BYTES HASH`, as printed by `--print-uris`.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.strip_prefix('\'')?.split_once("' ")?;
        let mut words = rest.split(' ');
        let (file, bytes) = (words.next()?, words.next()?);
        Some(Self { file: file.to_owned(), bytes: bytes.parse().ok()? })
    }
}

/// Returns the number of bytes of the packages in a folder, including incomplete packages.
fn folder_bytes(folder: &Path) -> u64 {
    [folder.to_owned(), folder.join("partial")]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| entry.metadata().ok())
        .filter(|metadata| metadata.is_file())
        .map(|metadata| metadata.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_packages_is_parsed() {
        let line =
            "'http://m.example/debian/pool/main/m/x_1%3a1.2_amd64.deb' x_1%3a1.2_amd64.deb 4711 SHA256:00ff";
        let want = WantedPackage { file: "x_1%3a1.2_amd64.deb".to_owned(), bytes: 4711 };
        assert_eq!(WantedPackage::parse(line), Some(want));
        assert_eq!(WantedPackage::parse("Reading package lists..."), None);
        assert_eq!(WantedPackage::parse("'unfinished"), None);
    }

    /// Builds a package that contains one file.
    fn build(packages: &Path, name: &str, version: &str, file: &str) {
        let source = packages.join(format!("{name}.source"));
        fs::create_dir_all(source.join("DEBIAN")).expect("folder");
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: x\n"
        );
        fs::write(source.join("DEBIAN/control"), control).expect("control");
        let path = source.join(file);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(&path, b"\x7fELF").expect("file");
        let package = packages.join(format!("{name}_{version}_all.deb"));
        let mut command = Command::new("dpkg-deb");
        command.args(["--root-owner-group", "--build"]).arg(&source).arg(package);
        assert!(command.output().expect("dpkg-deb").status.success());
        fs::remove_dir_all(&source).expect("remove the source");
    }

    /// Files that an interrupted attempt left do not count as an installed server, and the next attempt
    /// succeeds.
    #[test]
    fn an_interrupted_unpacking_is_repeated() {
        if crate::child_process_lifetime::on_path(std::ffi::OsStr::new("dpkg-deb")).is_none() {
            eprintln!("SKIPPED: no dpkg-deb");
            return;
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::at(folder.path());
        let kind = ServerKind::Mysql97;
        let servers = cache.servers();
        let state = servers.join("state");
        let fetch = Fetch {
            kind,
            recipe: recipe(kind),
            mirror: String::new(),
            packages: state.join("packages"),
            state,
            work: servers.join(".new-mysql-9.7"),
            root: servers.join("mysql-9.7"),
        };
        fs::create_dir_all(&fetch.packages).expect("folder");
        build(&fetch.packages, "mysql-server-core", "9.7.1-1", "usr/sbin/mysqld");
        let loader = format!("usr/lib/{}-linux-gnu/ld-linux.so.2", std::env::consts::ARCH);
        build(&fetch.packages, "libc6", "2.40-1", &loader);
        // These are the files of a first attempt: half of a tree under the final name, which the program
        // itself never leaves there, and half of a work folder.
        for half in [&fetch.root, &fetch.work] {
            fs::create_dir_all(half.join("usr/sbin")).expect("folder");
            fs::write(half.join("usr/sbin/mysqld"), b"\x7fEL").expect("half a file");
            fs::write(half.join("stray"), b"").expect("stray file");
        }
        let missing = Install::find(kind, &cache).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            missing.contains("is not complete"),
            "the error does not say that the server is not complete: {missing}"
        );
        let mut lines = Vec::new();
        fetch.unpack(&mut |progress| lines.push(progress.to_string())).expect("unpack");
        let install = Install::find(kind, &cache).expect("installed");
        assert_eq!((install.root(), install.build()), (fetch.root.as_path(), "9.7.1-1"));
        assert!(!fetch.root.join("stray").exists() && !fetch.work.exists());
        assert!(
            lines.last().is_some_and(|line| line.contains("9.7.1-1 is ready in")),
            "the last progress line is not `is ready`: {lines:?}"
        );

        // If the server's own package is missing, the new tree is not marked as complete, and the existing
        // tree is not replaced.
        fs::remove_file(fetch.packages.join("mysql-server-core_9.7.1-1_all.deb")).expect("remove");
        assert!(fetch.unpack(&mut |_| {}).is_err());
        assert!(Install::find(kind, &cache).is_ok());
    }
}
