//! Arguments of `completions` and `man`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that completes command lines of `tailwater` with the printed script.
    pub shell: CompletionShell,
}

/// Shell with completion of command lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// Fish.
    Fish,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages; it is created if it does not exist.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
