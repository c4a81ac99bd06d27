//! An SSH server on loopback with its own keys. MHA needs an SSH server, because MHA runs its programs on the
//! machines of the database servers by SSH.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_sandbox::{ChildProcess, ReservedPort};

use super::installation::{MhaEnvironment, MhaTools};

/// The chroot folder for the unprivileged part of an SSH server that runs as root. The path is compiled into
/// the SSH server.
const CHROOT_FOLDER: &str = "/run/sshd";
const PATIENCE: Duration = Duration::from_secs(20);

/// The SSH server. It ends when this value is dropped.
#[derive(Debug)]
pub struct SshServer {
    process: ChildProcess,
    port: ReservedPort,
    user: String,
    folder: PathBuf,
}

impl SshServer {
    /// Starts the SSH server with its files in `folder`. It accepts only the key in that folder, and only for
    /// the user that runs this process. Its sessions get the variables of `environment`.
    ///
    /// # Errors
    /// If the SSH server cannot be started.
    pub async fn start(
        tools: &MhaTools,
        folder: &Path,
        environment: &MhaEnvironment,
    ) -> anyhow::Result<Self> {
        let port = ReservedPort::pick()?;
        let user = output_of(Command::new("id").arg("-un"))?;
        for name in ["host_key", "user_key"] {
            output_of(
                Command::new("ssh-keygen")
                    .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                    .arg(folder.join(name)),
            )?;
        }
        let config = folder.join("sshd_config");
        std::fs::write(&config, config_text(folder, port.number(), environment))?;
        let mut variables = vec![("LD_LIBRARY_PATH".into(), tools.libraries().into_os_string())];
        if user == "root" {
            variables.extend(accounts(tools, folder)?);
        }
        let arguments = ["-D".into(), "-e".into(), "-f".into(), config.into_os_string()];
        let output = folder.join("sshd.log");
        let process = ChildProcess::start_with(tools.sshd(), arguments, variables, &output)?;
        let mut server = Self { process, port, user, folder: folder.to_owned() };
        server.wait_listening(&output).await?;
        Ok(server)
    }

    async fn wait_listening(&mut self, output: &Path) -> anyhow::Result<()> {
        let started = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port.number())).await.is_err() {
            if !self.process.is_running() || started.elapsed() > PATIENCE {
                bail!(
                    "sshd does not accept connections: {}",
                    std::fs::read_to_string(output).unwrap_or_default()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Returns the lines of MHA's configuration for connections to this SSH server.
    pub fn settings(&self) -> String {
        let folder = self.folder.display();
        format!(
            "ssh_user={}\nssh_port={}\nssh_options=\"-F none -i {folder}/user_key -o UserKnownHostsFile={folder}/known_hosts \
             -o LogLevel=ERROR\"\n",
            self.user,
            self.port.number()
        )
    }
}

fn config_text(folder: &Path, port: u16, environment: &MhaEnvironment) -> String {
    let folder = folder.display();
    let mut text = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/user_key.pub\n\
         PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nMaxStartups 100\n\
         Subsystem sftp internal-sftp\nSetEnv"
    );
    for (name, value) in environment.variables() {
        let _ = write!(text, " {}={}", name.to_string_lossy(), value.to_string_lossy());
    }
    text.push('\n');
    text
}

/// Prepares what an SSH server that runs as root needs: an account `sshd` and a folder, which its Debian
/// package would create. The account exists only in a file that this SSH server reads instead of the
/// machine's list of accounts. The folder is created empty, as the package creates it.
fn accounts(tools: &MhaTools, folder: &Path) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let (users, groups) = (folder.join("passwd"), folder.join("group"));
    std::fs::write(
        &users,
        "root:x:0:0:root:/root:/bin/sh\nsshd:x:65533:65534::/nonexistent:/usr/sbin/nologin\n",
    )?;
    std::fs::write(&groups, "root:x:0:\nnogroup:x:65534:\n")?;
    std::fs::create_dir_all(CHROOT_FOLDER).context(CHROOT_FOLDER)?;
    Ok(vec![
        ("NSS_WRAPPER_PASSWD".into(), users.into()),
        ("NSS_WRAPPER_GROUP".into(), groups.into()),
        ("LD_PRELOAD".into(), tools.accounts_library().into()),
    ])
}

fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = command.output().with_context(|| format!("cannot run {name}"))?;
    ensure!(ran.status.success(), "{name} failed: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}
