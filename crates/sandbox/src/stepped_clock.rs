//! A wall clock that is set while programs run, for programs started here.
//!
//! A small library, compiled on demand, is preloaded into the program and changes its wall clock. Monotonic
//! clocks are unchanged. It suits programs that wait by monotonic clocks, such as ours; the servers wait for
//! wall-clock times, which the kernel does not know to be changed.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{FileContext, SandboxError};
use crate::preload;

const SOURCE: &str = include_str!("stepped_clock.c");

/// A clock, and the library that makes programs read it.
#[derive(Debug)]
pub struct SteppedClock {
    library: PathBuf,
    /// File with the offset to the machine's clock.
    path: PathBuf,
    file: File,
}

impl SteppedClock {
    /// Compiles the library into `folder`, which must outlive the programs that are started with it. The
    /// clock is the machine's at first.
    ///
    /// # Errors
    /// [`SandboxError::Spawn`] without a C compiler, [`SandboxError::Client`] with its message if it fails.
    pub fn compile(folder: &Path) -> Result<Self, SandboxError> {
        let library = preload::compile(folder, "stepped_clock", SOURCE, &[])?;
        let path = folder.join("stepped_clock");
        let file = File::create(&path).on_path("make", &path)?;
        let clock = Self { library, path, file };
        clock.set_offset_ms(0)?;
        Ok(clock)
    }

    /// Sets its offset to the machine's clock in milliseconds; negative if the clock is slow. Running
    /// programs see it at once.
    ///
    /// # Errors
    /// [`SandboxError::File`] if its file cannot be written.
    pub fn set_offset_ms(&self, ms: i64) -> Result<(), SandboxError> {
        let ns = ms.saturating_mul(1_000_000);
        self.file.write_all_at(&ns.to_ne_bytes(), 0).on_path("write", &self.path)
    }

    /// What the environment of a program must say for it to go by this clock.
    pub fn environment(&self) -> [(OsString, OsString); 2] {
        [preload::environment(&self.library), ("STEPPED_CLOCK".into(), self.path.clone().into_os_string())]
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::SlowSync;

    #[test]
    fn a_program_that_runs_sees_the_clock_set() {
        if !SlowSync::is_possible() {
            eprintln!("SKIPPED a_program_that_runs_sees_the_clock_set: no C compiler (package gcc)");
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
