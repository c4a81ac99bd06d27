//! Scripts with which the programs of a server run by their names, as if the server were installed on this
//! machine.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use tailwater_wire::Flavour;

use super::Install;
use crate::error::{FileContext, SandboxError};

impl Install {
    /// Writes scripts named like the server, its client and, for MariaDB, `mariadb-install-db` into `folder`,
    /// and returns the folder to put on `PATH`. A server that such a script starts ends with the process that
    /// started the script.
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`] if a program is missing, or an error of the files.
    pub fn write_wrappers(&self, folder: &Path) -> Result<PathBuf, SandboxError> {
        let programs = folder.join("bin");
        fs::create_dir_all(&programs).on_path("create", &programs)?;
        let mut options: Vec<String> =
            self.layout_options().iter().map(|option| quoted(&option.to_string_lossy())).collect();
        if rustix::process::geteuid().is_root() {
            options.push("--user=root".to_owned());
        }
        let kind = self.kind();
        let server = programs.join(kind.daemon());
        // The server accepts an option such as `--defaults-file` only before all other options. So the
        // options that this script adds come after the caller's options.
        let end_with_parent = "setpriv --pdeathsig KILL -- ";
        script(
            &server,
            &format!("{end_with_parent}{} \"$@\" {}", self.words(kind.daemon())?, options.join(" ")),
        )?;
        let plugins = format!("--plugin-dir={}", quoted(&self.plugins().to_string_lossy()));
        script(&programs.join(kind.client()), &format!("{} \"$@\" {plugins}", self.words(kind.client())?))?;
        if kind.flavour() == Flavour::MariaDb {
            self.write_install_script(folder, &programs, &server)?;
        }
        Ok(programs)
    }

    /// Writes a wrapper for `mariadb-install-db`. The original is a script that searches one folder for
    /// programs and files. So this function also creates such a folder, with wrappers and links.
    fn write_install_script(
        &self,
        folder: &Path,
        programs: &Path,
        server: &Path,
    ) -> Result<(), SandboxError> {
        let base = folder.join("base");
        for name in ["bin", "sbin", "share"] {
            fs::create_dir_all(base.join(name)).on_path("create", &base)?;
        }
        for name in ["my_print_defaults", "resolveip"] {
            script(&base.join("bin").join(name), &format!("{} \"$@\"", self.words(name)?))?;
        }
        let links =
            [(server, "sbin/mariadbd"), (&self.share(), "share/mysql"), (&self.share(), "share/mariadb")];
        for (original, name) in links {
            symlink(original, base.join(name)).on_path("link", &base)?;
        }
        let original = quoted(&self.root().join("usr/bin/mariadb-install-db").to_string_lossy());
        let base = quoted(&base.to_string_lossy());
        let user = if rustix::process::geteuid().is_root() { "--user=root" } else { "" };
        let line = format!("/bin/sh {original} \"$@\" --basedir={base} {user}");
        script(&programs.join("mariadb-install-db"), &line)
    }

    /// Returns the words of a shell command that runs a program.
    fn words(&self, name: &str) -> Result<String, SandboxError> {
        let program = self.program(name)?;
        let words = std::iter::once(&program.path).chain(&program.arguments);
        Ok(words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" "))
    }
}

/// Writes a shell script that executes `line`.
fn script(path: &Path, line: &str) -> Result<(), SandboxError> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(path);
    file.and_then(|mut file| writeln!(file, "#!/bin/sh\nexec {line}")).on_path("write", path)
}

/// Returns the text as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
