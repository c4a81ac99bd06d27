//! Programs that tests run and that are no servers: in the cache, where `./dev setup` puts them, or of the
//! system.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::process;

/// A program that a Debian package has.
pub(crate) struct Tool {
    /// As it is called, and its folder below `tools` in the cache.
    pub name: &'static str,
    /// Where it lies in that folder.
    pub path: &'static str,
    /// The package.
    pub package: &'static str,
}

impl Tool {
    /// The program. `None` means that a test ends at once, and one loud line has named it.
    ///
    /// # Panics
    /// If it is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require(&self) -> Option<PathBuf> {
        let Self { name, path, package } = self;
        let cached = Cache::locate().ok().map(|cache| cache.root().join("tools").join(name).join(path));
        let found = cached.filter(|path| path.is_file()).or_else(|| process::on_path(OsStr::new(name)));
        if found.is_some() {
            return found;
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let line = format!("SKIPPED {test}: needs {name}: run ./dev setup, or install the package {package}");
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        assert!(!set("CI") || set("TAILWATER_ALLOW_MISSING_SERVERS"), "{line}");
        // Not `eprintln!`, whose output the test harness hides for tests that pass.
        let _ = writeln!(std::io::stderr(), "{line}");
        None
    }
}

/// What an unpacked program's environment has to have, so that it finds the libraries that were unpacked with
/// it.
pub(crate) fn library_path(program: &Path) -> Option<(OsString, OsString)> {
    // usr/sbin/NAME, and usr/lib/ARCHITECTURE next to it.
    let usr = program.parent()?.parent()?;
    if usr == Path::new("/usr") {
        return None;
    }
    let folders = std::fs::read_dir(usr.join("lib")).ok()?.flatten().map(|entry| entry.path());
    let folders = std::env::join_paths(folders.filter(|path| path.is_dir())).ok()?;
    Some((OsString::from("LD_LIBRARY_PATH"), folders))
}
