//! The entry point: parses the command line, runs the command, and prints an error with its code. The exit
//! codes are documented in docs/reference/exit-codes.md.

use std::process::ExitCode;

use clap::FromArgMatches;
use tailwater::arguments::{Cli, Command};
use tailwater::{commands, exit_codes};

fn main() -> ExitCode {
    let parsed = Cli::definition().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = parsed.unwrap_or_else(|error| error.exit());
    // Many people read the daemon's log, so the daemon never prints row values.
    let is_daemon = matches!(cli.command, Command::Run(_));
    let show_values = cli.show_values && !is_daemon;
    match commands::dispatch(cli) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("tailwater: {}", commands::render_error(&error));
            match commands::private_detail(&error) {
                Some(detail) if show_values => eprintln!("  with values: {detail}"),
                Some(_) if !is_daemon => {
                    eprintln!("  (row values are hidden; use --show-values to show them)")
                }
                _ => {}
            }
            exit_codes::of_error(&error)
        }
    }
}
