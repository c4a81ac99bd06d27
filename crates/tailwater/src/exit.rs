//! The documented exit codes (docs/reference/exit-codes.md).

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 3: found what it looked for (a failed verification, drift).
    Found,
    /// 4: refused because it would be unsafe; why stands on standard error.
    Refused,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Found => Self::from(3),
            Exit::Refused => Self::from(4),
        }
    }
}
