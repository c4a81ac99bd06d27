//! A folder with a Debian system without Tailwater, and the package that a test installs in it.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Cache, ChildProcess};
use tempfile::TempDir;

use crate::documentation::markdown::workspace;
use crate::shell_session::{EARLIER_BUILD, PROGRAM};
use crate::systemd_notify_socket::Notifications;

/// Environment variable with the path of the package to test. If it is not set, the test makes a package of
/// the program under test.
const PACKAGE: &str = "TAILWATER_PACKAGE";

/// Environment variable that enables the tests of the package. They need root, a Debian mirror and a
/// container with its own systemd, which not every machine has.
const SWITCH: &str = "TAILWATER_PACKAGE_TESTS";

/// Returns the path of the clean Debian system. The test also needs `cargo-deb` and root. If anything is
/// missing, this function prints to standard error what is missing, and returns `None`.
///
/// # Panics
/// If something is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
pub fn require() -> Option<PathBuf> {
    if std::env::var_os(SWITCH).is_none() {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED the test of the Debian package: run ./dev package --test");
        return None;
    }
    let image = Cache::locate().ok().map(|cache| cache.root().join("tools/debian-root"));
    let image = image.filter(|image| image.join("usr/bin/dpkg").is_file());
    let missing = if !rustix::process::geteuid().is_root() {
        "root, for chroot"
    } else if image.is_none() {
        "a clean Debian system: run ./dev package --test"
    } else if !Command::new("cargo").args(["deb", "--version"]).output().is_ok_and(|ran| ran.status.success())
    {
        "cargo-deb: run ./dev package --test"
    } else {
        return image;
    };
    let line = format!("SKIPPED the test of the Debian package: needs {missing}");
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!set("CI") || set("TAILWATER_ALLOW_MISSING_SERVERS"), "{line}");
    // The line is not printed with `eprintln!`, because the test harness hides that output if the test
    // passes.
    let _ = writeln!(std::io::stderr(), "{line}");
    None
}

/// Returns the path of the package to test. The package is created in `folder`.
pub fn package(folder: &Path) -> Result<PathBuf> {
    let package = folder.join("tailwater.deb");
    if let Some(given) = std::env::var_os(PACKAGE) {
        std::fs::copy(&given, &package).with_context(|| format!("cannot copy {}", given.display()))?;
        return Ok(package);
    }
    // cargo-deb takes the program from the folder of release builds.
    let target = folder.join("target");
    std::fs::create_dir_all(target.join("release"))?;
    let program = target.join("release/tailwater");
    if std::fs::hard_link(PROGRAM, &program).is_err() {
        std::fs::copy(PROGRAM, &program)?;
    }
    let dev = workspace().join("dev");
    done(Command::new(dev).args(["package-files", PROGRAM]).arg(target.join("release/package-files")))?;
    let mut command = Command::new("cargo");
    command.args(["deb", "--no-build", "--strip", "--fast", "--offline"]);
    command.args(["--package", "tailwater", "--output"]).arg(&package);
    command.env("CARGO_TARGET_DIR", &target).current_dir(env!("CARGO_MANIFEST_DIR"));
    done(&mut command)?;
    Ok(package)
}

/// Returns the path of an earlier package, from which a test upgrades to `package`. It is a copy of `package`
/// with another version, and with one more line in its example configuration. If `TAILWATER_EARLIER_BUILD` is
/// set, the copy contains the program that this variable names.
pub fn with_version(package: &Path, version: &str) -> Result<PathBuf> {
    let tree = package.with_extension("tree");
    done(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&tree))?;
    let control = std::fs::read_to_string(tree.join("DEBIAN/control"))?;
    let lines = control.lines().map(|line| match line.starts_with("Version: ") {
        true => format!("Version: {version}"),
        false => line.to_owned(),
    });
    std::fs::write(tree.join("DEBIAN/control"), lines.collect::<Vec<_>>().join("\n") + "\n")?;
    let example = tree.join("etc/tailwater/tailwater.toml");
    let text = std::fs::read_to_string(&example)?;
    std::fs::write(&example, format!("# This is the example of version {version}.\n{text}"))?;
    if let Some(program) = std::env::var_os(EARLIER_BUILD) {
        let copy = tree.join("usr/bin/tailwater");
        done(Command::new("strip").arg("-o").arg(&copy).arg(&program))?;
    }
    let earlier = package.with_extension(format!("{version}.deb"));
    let mut build = Command::new("dpkg-deb");
    done(build.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]).arg(&tree).arg(&earlier))?;
    Ok(earlier)
}

/// A Debian system in a folder.
pub struct CleanRoot {
    folder: TempDir,
}

impl CleanRoot {
    /// Copies the system at `image` into a new folder.
    pub fn copy(image: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        done(Command::new("cp").arg("--archive").arg(image.join(".")).arg(folder.path()))?;
        // The daemon's account must be able to enter the folder.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { folder })
    }

    /// Returns the path at which this process sees a file of the system.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside.trim_start_matches('/'))
    }

    pub fn read(&self, inside: &str) -> Result<String> {
        std::fs::read_to_string(self.path(inside)).with_context(|| inside.to_owned())
    }

    /// Runs a shell command in the system, and returns its output. Returns an error if the command fails.
    pub fn run(&self, line: &str) -> Result<String> {
        let output = self.output(line)?;
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "the command {line} ended with {}: {text}{errors}", output.status);
        Ok(format!("{text}{errors}"))
    }

    /// Runs a shell command in the system, and returns its exit status and output.
    pub fn output(&self, line: &str) -> Result<Output> {
        let [program, arguments @ ..] = &self.chroot(line)[..] else { unreachable!("chroot has a program") };
        Command::new(program).args(arguments).output().with_context(|| line.to_owned())
    }

    /// Installs a package.
    pub fn install(&self, package: &Path) -> Result<String> {
        self.run(&self.install_command(package)?)
    }

    /// Copies the package into the system. Returns the command that installs it without questions and keeps
    /// changed configuration files.
    pub fn install_command(&self, package: &Path) -> Result<String> {
        let name = package.file_name().and_then(|name| name.to_str()).context("a package has a name")?;
        // The package is not copied to /tmp, because a booted system mounts a file system in memory there.
        std::fs::copy(package, self.path("srv").join(name))?;
        Ok(format!("dpkg --force-confdef --force-confold --install '/srv/{name}'"))
    }

    /// Starts the command of a unit as systemd would: under the unit's account and in its folder. Returns the
    /// process and what it reports to the service manager.
    pub fn start(&self, unit: &str, output: &Path) -> Result<(ChildProcess, Notifications)> {
        let text = self.read(&format!("/usr/lib/systemd/system/{unit}"))?;
        let setting = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.with_context(|| format!("{unit} has no {name}: {text}"))
        };
        ensure!(setting("Type")? == "notify", "the unit does not have Type=notify: {text}");
        let socket = self.path("run/notify");
        if socket.exists() {
            std::fs::remove_file(&socket)?;
        }
        let notifications = Notifications::bind(&socket)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777))?;
        let (user, group) = (setting("User")?, setting("Group")?);
        let line = format!(
            "cd {} && umask {} && exec setpriv --reuid {user} --regid {group} --init-groups --no-new-privs \
             --inh-caps=-all --bounding-set=-all env -i PATH=/usr/bin:/bin NOTIFY_SOCKET=/run/notify {}",
            setting("WorkingDirectory")?,
            setting("UMask")?,
            setting("ExecStart")?,
        );
        let [program, arguments @ ..] = &self.chroot(&line)[..] else { unreachable!("chroot has a program") };
        Ok((ChildProcess::start(program, arguments, output)?, notifications))
    }

    /// Returns a command that runs `line` in the system with its own `/proc`. The command and `line` run in
    /// the same process.
    fn chroot(&self, line: &str) -> Vec<OsString> {
        let script = "mount -t proc proc \"$1/proc\" && exec chroot \"$1\" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
                      LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive sh -c \"$2\"";
        let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"];
        let words = words.into_iter().map(OsString::from);
        words.chain([self.folder.path().into(), line.into()]).collect()
    }
}

/// Runs a command. Returns an error if it fails.
fn done(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    Ok(())
}
