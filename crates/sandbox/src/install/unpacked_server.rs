//! An unpacked server on disk: the file that marks it as complete, and its program loader.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::server_kind::ServerKind;

/// Name of the file that marks a completely unpacked tree.
const MARKER_FILE: &str = ".tailwater-complete.json";

/// The version of the list of files that an unpacked server needs. It is increased when the list changes. A
/// server that was unpacked with another version is downloaded again.
pub(super) const RECIPE: u32 = 1;

/// A package that was unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageVersion {
    /// Name of the package.
    pub name: String,
    /// Version of the package.
    pub version: String,
}

/// The contents of the file that marks a complete tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallMarker {
    recipe: u32,
    server: PackageVersion,
    /// All packages in the tree.
    pub packages: Vec<PackageVersion>,
}

impl InstallMarker {
    pub(super) fn new(server: PackageVersion, packages: Vec<PackageVersion>) -> Self {
        Self { recipe: RECIPE, server, packages }
    }

    /// Reads the file that marks a tree as complete. The error is the reason why the tree cannot be used.
    pub(super) fn read(root: &Path, kind: ServerKind) -> Result<Self, String> {
        let path = root.join(MARKER_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && root.is_dir() => {
                return Err(format!("{} is not complete", root.display()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!("{} does not exist", root.display()));
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let marker: Self =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if marker.recipe != RECIPE {
            return Err(format!("{} was unpacked by another version of this program", root.display()));
        }
        if !marker.server.upstream().starts_with(kind.series()) {
            return Err(format!("{} holds version {}", root.display(), marker.server.version));
        }
        Ok(marker)
    }

    /// Marks a tree as complete. All files are synced to disk before the marker file is written, so that
    /// after a power failure a marked tree has no empty files.
    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        let folder = File::open(root)?;
        rustix::fs::syncfs(&folder)?;
        let temporary = root.join(".tailwater-complete.new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&temporary, root.join(MARKER_FILE))?;
        folder.sync_all()
    }

    /// Returns a name for this build that can be used as a folder name.
    pub(super) fn build(&self) -> String {
        let clean = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
        self.server.version.chars().map(clean).collect()
    }
}

impl PackageVersion {
    /// Returns the version without Debian's epoch: `10.11.18-0+deb12u1` for `1:10.11.18-0+deb12u1`.
    fn upstream(&self) -> &str {
        self.version.split_once(':').map_or(self.version.as_str(), |(_, rest)| rest)
    }
}

/// The program loader of the tree's C library. Programs from a newer Debian release need their own C library,
/// but the loader path in the program (`/lib64/...`) names the loader of this machine. With the tree's
/// loader, the programs run without chroot and without root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgramLoader {
    pub(super) path: PathBuf,
    /// Folders of libraries, separated by colons, for `--library-path`.
    pub(super) library_path: OsString,
}

impl ProgramLoader {
    pub(super) fn find(root: &Path) -> Option<Self> {
        let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
        // The loader is not searched in `lib64/`: in releases before Debian's merge of /usr, that is an
        // absolute link, which leads out of the tree.
        let path = ["usr/lib", "lib"].iter().find_map(|lib| {
            let entries = fs::read_dir(root.join(lib).join(&triple)).ok()?;
            entries.flatten().map(|entry| entry.path()).find(|path| {
                let name = path.file_name().map(|name| name.to_string_lossy());
                name.is_some_and(|name| name.starts_with("ld-linux") && name.contains(".so."))
            })
        })?;
        let folders =
            [format!("usr/lib/{triple}"), format!("lib/{triple}"), "usr/lib/mysql/private".to_owned()];
        let library_path = std::env::join_paths(folders.iter().map(|folder| root.join(folder))).ok()?;
        Some(Self { path, library_path })
    }
}

/// Whether a file is a compiled program.
pub(super) fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, version: &str) -> PackageVersion {
        PackageVersion { name: name.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn a_marker_file_is_valid_only_for_its_release_series() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let server = version("mariadb-server-core", "1:10.11.18-0+deb12u1");
        let marker = InstallMarker::new(server.clone(), vec![server, version("libc6", "2.36-9")]);
        assert!(InstallMarker::read(folder.path(), ServerKind::Mariadb1011).is_err());
        marker.write(folder.path()).expect("write");
        assert_eq!(InstallMarker::read(folder.path(), ServerKind::Mariadb1011).as_ref(), Ok(&marker));
        assert!(InstallMarker::read(folder.path(), ServerKind::Mariadb118).is_err());
        assert_eq!(marker.build(), "1_10.11.18-0_deb12u1");
        fs::write(folder.path().join(MARKER_FILE), b"{").expect("tear");
        assert!(InstallMarker::read(folder.path(), ServerKind::Mariadb1011).is_err());
    }

    #[test]
    fn the_program_loader_inside_the_tree_is_used() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert_eq!(ProgramLoader::find(folder.path()), None);
        let lib = folder.path().join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
        fs::create_dir_all(&lib).expect("folders");
        fs::write(lib.join("ld-linux-test.so.2"), b"").expect("loader");
        assert_eq!(
            ProgramLoader::find(folder.path()).map(|loader| loader.path),
            Some(lib.join("ld-linux-test.so.2"))
        );
    }
}
