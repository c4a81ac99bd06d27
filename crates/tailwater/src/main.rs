//! The command line's entry: parse, dispatch, print errors with their codes, exit as documented.

use std::process::ExitCode;

use clap::Parser;
use tailwater::cli::Cli;
use tailwater::commands;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match commands::dispatch(cli) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("tailwater: {}", commands::render_error(&error));
            ExitCode::FAILURE
        }
    }
}
