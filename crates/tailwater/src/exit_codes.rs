//! The documented exit codes (docs/reference/exit-codes.md).

use std::process::ExitCode;

/// The exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: the command succeeded.
    Done,
    /// 3: differences or damage were found.
    ProblemsFound,
    /// 4: the command refused because the action would be unsafe. The reason is on standard error.
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
