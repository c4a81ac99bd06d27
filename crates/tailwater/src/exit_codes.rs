//! The documented exit codes (docs/reference/exit-codes.md).

use std::process::ExitCode;

use tailwater_daemon::options_from_config::ConfigurationRefused;

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

/// The exit code of `tailwater run` for a configuration that it refuses: `EX_CONFIG` of sysexits.h, which
/// systemd prints as `78/CONFIG`. After this exit code, the systemd unit does not start the daemon again.
const CONFIGURATION_REFUSED: u8 = 78;

/// Returns the exit code for an error: 78 if the daemon refuses its configuration, otherwise 1.
pub fn of_error(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<ConfigurationRefused>() {
        Some(ConfigurationRefused) => ExitCode::from(CONFIGURATION_REFUSED),
        None => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_does_not_restart_a_daemon_without_a_usable_configuration() {
        let unit = include_str!("../debian/tailwater.service");
        let line = format!("\nRestartPreventExitStatus={CONFIGURATION_REFUSED}\n");
        assert!(unit.contains(&line), "the unit lacks the line {line:?}");
        let page = include_str!("../../../docs/reference/exit-codes.md");
        assert!(
            page.contains(&format!("\n| {CONFIGURATION_REFUSED} |")),
            "exit code {CONFIGURATION_REFUSED} is not documented"
        );
    }
}
