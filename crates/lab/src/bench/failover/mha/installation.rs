//! MHA as downloaded by `./dev bench failover`, and the changes that it needs to run today.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tailwater_sandbox::{Cache, Install};

/// MHA's last release is from 2018. It needs these two changes to run with current versions of Perl and
/// MariaDB.
const FIXES: [ModulePatch; 2] = [
    // MHA compares only a part of a version number. Perl warns about the unused components, and MHA makes
    // every warning fatal.
    ModulePatch {
        module: "NodeUtil.pm",
        from: "use warnings FATAL => 'all';\n",
        to: "use warnings FATAL => 'all';\nno warnings 'redundant';\n",
    },
    // MariaDB has no variable super_read_only, and MHA treats the server's error as a failure.
    ModulePatch {
        module: "SlaveUtil.pm",
        from: r"SELECT \@\@global.super_read_only as Value",
        to: "SELECT 0 as Value",
    },
];

/// A replacement of text in one of MHA's modules. The downloaded module itself is not changed.
struct ModulePatch {
    module: &'static str,
    from: &'static str,
    to: &'static str,
}

/// The downloaded files: MHA with its Perl modules, and an SSH server.
#[derive(Debug, Clone)]
pub struct MhaTools {
    root: PathBuf,
}

/// The environment in which MHA's programs run.
#[derive(Debug, Clone)]
pub struct MhaEnvironment {
    path: OsString,
    perl: OsString,
    libraries: OsString,
}

impl MhaTools {
    /// Returns the downloaded files; `None` if MHA was not downloaded.
    ///
    /// # Errors
    /// If there is no cache folder.
    pub fn find() -> anyhow::Result<Option<Self>> {
        let root = Cache::locate()?.root().join("tools/mha");
        let tools = Self { root };
        Ok(tools.manager().is_file().then_some(tools))
    }

    /// Returns the path of MHA's program that monitors the primary and fails over.
    pub fn manager(&self) -> PathBuf {
        self.root.join("usr/bin/masterha_manager")
    }

    /// Returns the path of the SSH server.
    pub fn sshd(&self) -> PathBuf {
        self.root.join("usr/sbin/sshd")
    }

    /// Returns the library that makes a program read a list of accounts from a file instead of the machine's
    /// list.
    pub fn accounts_library(&self) -> PathBuf {
        self.libraries().join("libnss_wrapper.so")
    }

    /// Returns the folder with the libraries that were downloaded with the programs.
    pub fn libraries(&self) -> PathBuf {
        self.root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
    }

    /// Creates further files that the programs need in `folder`: the changed modules of MHA, and the server's
    /// client programs under the names that MHA uses.
    ///
    /// # Errors
    /// If a file cannot be written, or MHA has an unknown version.
    pub fn prepare(&self, folder: &Path, install: &Install) -> anyhow::Result<MhaEnvironment> {
        let programs = folder.join("bin");
        std::fs::create_dir_all(&programs)?;
        for name in ["mysql", "mysqlbinlog"] {
            write_script(&programs.join(name), &install.tool(name)?)?;
        }
        let modules = folder.join("perl");
        self.write_fixed(&modules.join("MHA"))?;
        let system = std::env::var_os("PATH").unwrap_or_default();
        let mut path = vec![programs, self.root.join("usr/bin")];
        path.extend(std::env::split_paths(&system));
        let mut perl = vec![modules, self.root.join("usr/share/perl5")];
        let compiled = std::fs::read_dir(self.libraries().join("perl5"))
            .context("cannot list MHA's compiled Perl modules")?;
        perl.extend(compiled.flatten().map(|entry| entry.path()));
        Ok(MhaEnvironment {
            path: std::env::join_paths(path)?,
            perl: std::env::join_paths(perl)?,
            libraries: self.libraries().into(),
        })
    }

    fn write_fixed(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        for ModulePatch { module, from, to } in FIXES {
            let path = self.root.join("usr/share/perl5/MHA").join(module);
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            ensure!(text.matches(from).count() == 1, "{} belongs to another version of MHA", path.display());
            std::fs::write(folder.join(module), text.replace(from, to))?;
        }
        Ok(())
    }

    /// Returns the version that MHA prints.
    ///
    /// # Errors
    /// If MHA does not run.
    pub fn version(&self, environment: &MhaEnvironment) -> anyhow::Result<String> {
        let ran = Command::new(self.manager()).arg("--version").envs(environment.variables()).output()?;
        let text = String::from_utf8_lossy(&ran.stdout);
        let version = text.trim().trim_end_matches('.').rsplit(' ').next().unwrap_or_default();
        ensure!(
            ran.status.success() && !version.is_empty(),
            "masterha_manager --version failed: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
        Ok(version.to_owned())
    }
}

impl MhaEnvironment {
    /// Returns the environment variables and their values.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let Self { path, perl, libraries } = self;
        vec![
            ("PATH".into(), path.clone()),
            ("PERL5LIB".into(), perl.clone()),
            ("LD_LIBRARY_PATH".into(), libraries.clone()),
        ]
    }
}

/// Writes a script that runs a program under another name.
fn write_script(path: &Path, command: &Command) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"));
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).map(quoted).collect();
    std::fs::write(path, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
