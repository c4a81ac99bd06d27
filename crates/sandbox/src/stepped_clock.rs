//! A wall clock that can be set while a program of the sandbox runs.
//!
//! A small library is compiled on demand and preloaded into the program. It changes the wall clock that the
//! program reads. Monotonic clocks are unchanged. Use it only for programs that measure waits by monotonic
//! clocks, such as Tailwater. Database servers pass wall-clock times to the kernel when they wait, and the
//! kernel does not know the changed clock.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{FileContext, SandboxError};
use crate::preload_library;

const SOURCE: &str = include_str!("stepped_clock.c");

/// A settable clock, and the library that makes programs read it.
#[derive(Debug)]
pub struct SteppedClock {
    library: PathBuf,
    /// File with the offset from the machine's clock.
    path: PathBuf,
    file: File,
}

impl SteppedClock {
    /// Compiles the library into `folder`. The folder must exist as long as programs run with the library. At
    /// first the clock equals the machine's clock.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] if there is no C compiler; [`SandboxError::Client`] with the compiler's
    /// message if it fails.
    pub fn compile(folder: &Path) -> Result<Self, SandboxError> {
        let library = preload_library::compile(folder, "stepped_clock", SOURCE, &[])?;
        let path = folder.join("stepped_clock");
        let file = File::create(&path).on_path("make", &path)?;
        let clock = Self { library, path, file };
        clock.set_offset_ms(0)?;
        Ok(clock)
    }

    /// Sets the offset from the machine's clock in milliseconds. A negative offset sets the clock back.
    /// Running programs see the change at once.
    ///
    /// # Errors
    /// [`SandboxError::File`] if the offset cannot be written to its file.
    pub fn set_offset_ms(&self, ms: i64) -> Result<(), SandboxError> {
        let ns = ms.saturating_mul(1_000_000);
        self.file.write_all_at(&ns.to_ne_bytes(), 0).on_path("write", &self.path)
    }

    /// Returns the environment variables that make a program use this clock.
    pub fn environment(&self) -> [(OsString, OsString); 2] {
        [
            preload_library::environment(&self.library),
            ("STEPPED_CLOCK".into(), self.path.clone().into_os_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::SlowSync;

    #[test]
    fn a_running_program_sees_the_changed_clock() {
        if !SlowSync::is_possible() {
            eprintln!("SKIPPED a_running_program_sees_the_changed_clock: no C compiler (package gcc)");
            return;
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        let clock = SteppedClock::compile(folder.path()).expect("compile");
        let seconds = || {
            let date = Command::new("date").arg("+%s").envs(clock.environment()).output().expect("date");
            String::from_utf8_lossy(&date.stdout).trim().parse::<i64>().expect("seconds")
        };
        let before = seconds();
        clock.set_offset_ms(86_400_500).expect("set");
        assert!((86_400..90_000).contains(&(seconds() - before)));
        clock.set_offset_ms(-86_400_500).expect("set");
        assert!((82_000..=86_401).contains(&(before - seconds())));
    }
}
