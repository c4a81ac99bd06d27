//! Programs that tests run and that are not database servers. They come from the cache, where `./dev setup`
//! stores them, or from the system.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::cache_folder::Cache;
use crate::child_process_lifetime;

/// A program from a Debian package.
pub(crate) struct Tool {
    /// Name of the program, and of its folder below `tools` in the cache.
    pub name: &'static str,
    /// Path of the program in that folder.
    pub path: &'static str,
    /// Name of the Debian package.
    pub package: &'static str,
}

impl Tool {
    /// Returns the path of the program. If the program is missing, prints a line on standard error and
    /// returns `None`. The test must then end.
    ///
    /// # Panics
    /// If the program is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
    pub fn require(&self) -> Option<PathBuf> {
        let Self { name, path, package } = self;
        let cached = Cache::locate().ok().map(|cache| cache.root().join("tools").join(name).join(path));
        let found = cached
            .filter(|path| path.is_file())
            .or_else(|| child_process_lifetime::on_path(OsStr::new(name)));
        if found.is_some() {
            return found;
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let line = format!("SKIPPED {test}: needs {name}: run ./dev setup, or install the package {package}");
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        assert!(!set("CI") || set("TAILWATER_ALLOW_MISSING_SERVERS"), "{line}");
        // The line is not printed with `eprintln!`, because the test harness hides that output if the test
        // passes.
        let _ = writeln!(std::io::stderr(), "{line}");
        None
    }
}

/// Returns the environment variable that an unpacked program needs to find the libraries that were unpacked
/// with it.
pub(crate) fn library_path(program: &Path) -> Option<(OsString, OsString)> {
    // The program is usr/sbin/NAME, and its libraries are in usr/lib/ARCHITECTURE.
    let usr = program.parent()?.parent()?;
    if usr == Path::new("/usr") {
        return None;
    }
    let folders = std::fs::read_dir(usr.join("lib")).ok()?.flatten().map(|entry| entry.path());
    let folders = std::env::join_paths(folders.filter(|path| path.is_dir())).ok()?;
    Some((OsString::from("LD_LIBRARY_PATH"), folders))
}
