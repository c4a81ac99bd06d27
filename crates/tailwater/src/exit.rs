//! The documented exit codes (docs/reference/exit-codes.md).

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 3: differences or damage found.
    ProblemsFound,
    /// 4: refused because unsafe; the reason is on standard error.
    Refused,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::ProblemsFound => Self::from(3),
            Exit::Refused => Self::from(4),
        }
    }
}
