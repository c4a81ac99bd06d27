//! `tailwater man`: manual pages, one for each command.

use std::fs;

use anyhow::Context;
use clap_mangen::Man;

use crate::arguments::{Cli, ManArgs, Output};
use crate::exit_codes::Exit;

/// Writes the pages into a folder, and prints how many.
///
/// # Errors
/// If the folder cannot be created or written to.
pub fn man(arguments: &ManArgs, output: Output) -> anyhow::Result<Exit> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut names = Vec::new();
    for (name, page) in pages()? {
        let path = directory.join(&name);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        names.push(name);
    }
    match output {
        Output::Text => println!("{} manual pages are in {}", names.len(), directory.display()),
        Output::Json => {
            println!("{}", serde_json::json!({ "directory": directory, "pages": names }));
        }
    }
    Ok(Exit::Done)
}

/// Returns the pages with the names of their files.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::definition().disable_help_subcommand(true);
    // Gives each command its full name, and the global options.
    root.build();
    let mut pages = Vec::new();
    let mut commands = vec![root];
    while let Some(command) = commands.pop() {
        let visible = command.get_subcommands().filter(|command| !is_left_out(command));
        commands.extend(visible.cloned());
        let page = Man::new(command);
        let mut text = Vec::new();
        page.render(&mut text)?;
        pages.push((page.get_filename(), text));
    }
    pages.sort();
    Ok(pages)
}

/// Whether a command has no manual page. These are the commands for developers, and `help`, which prints the
/// same text as the pages.
fn is_left_out(command: &clap::Command) -> bool {
    command.is_hide_set() || command.get_name() == "help"
}
