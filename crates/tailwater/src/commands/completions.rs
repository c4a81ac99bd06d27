//! `tailwater completions`: scripts that complete command lines in a shell.

use clap_complete::Shell;

use crate::arguments::{Cli, CompletionShell, CompletionsArgs};
use crate::exit_codes::Exit;

/// Prints the script for a shell.
///
/// # Errors
/// If standard output cannot be written to.
pub fn completions(arguments: &CompletionsArgs) -> anyhow::Result<Exit> {
    let shell = match arguments.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    // The script is generated in memory, because the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "tailwater", &mut script);
    super::write_stdout(&script)?;
    Ok(Exit::Done)
}
