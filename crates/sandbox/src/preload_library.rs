//! Compiles small C libraries that are preloaded into servers and other programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::child_process_lifetime::on_path;
use crate::error::{FileContext, SandboxError};

/// Whether a C compiler is available.
pub(crate) fn is_possible() -> bool {
    on_path("cc".as_ref()).is_some()
}

/// Compiles `source` into the library `name` in `folder`. `options` are options of the compiler, such as
/// `-DNAME=value`.
///
/// # Errors
/// [`SandboxError::Spawn`] if there is no C compiler; [`SandboxError::Client`] with the compiler's message if
/// it fails.
pub(crate) fn compile(
    folder: &Path,
    name: &str,
    source: &str,
    options: &[String],
) -> Result<PathBuf, SandboxError> {
    let file = folder.join(format!("{name}.c"));
    std::fs::write(&file, source).on_path("write", &file)?;
    let library = folder.join(format!("{name}.so"));
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror"])
        .args(options)
        .arg("-o")
        .args([&library, &file])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| SandboxError::Spawn { program: "cc (packages gcc, libc6-dev)".into(), source })?;
    if !output.status.success() {
        return Err(SandboxError::Client {
            program: "cc".into(),
            status: output.status.to_string(),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(library)
}

/// Returns the environment variable that preloads a library into a program.
pub(crate) fn environment(library: &Path) -> (OsString, OsString) {
    ("LD_PRELOAD".into(), library.as_os_str().to_owned())
}
