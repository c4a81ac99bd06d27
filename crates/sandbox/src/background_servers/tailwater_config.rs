//! Writes the Tailwater configuration for a cluster that `tailwater sandbox up --semi-sync` started.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::DetachedServer;
use crate::cache_folder::Cache;
use crate::error::{FileContext, SandboxError};
use crate::free_port::ReservedPort;
use crate::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};

/// Name of the source in the configuration.
pub(crate) const SOURCE_NAME: &str = "sandbox";

/// Writes the configuration and its password files into the folder of the first server.
pub(super) fn write(servers: &[DetachedServer], cache: &Cache) -> Result<PathBuf, SandboxError> {
    let Some(source) = servers.first() else { return Err(SandboxError::NoCacheFolder) };
    let folder = source.folder(cache);
    let login = format!("[client]\nuser={REPLICATION_USER}\npassword={REPLICATION_PASSWORD}\n");
    write_private(&folder.join("tailwater.cnf"), &login)?;
    write_private(&folder.join("tailwater.password"), &format!("{REPLICATION_PASSWORD}\n"))?;
    let ports = (ReservedPort::pick()?.number(), ReservedPort::pick()?.number());
    let path = folder.join("tailwater.toml");
    write_private(&path, &text(servers, &folder, ports))?;
    Ok(path)
}

fn text(servers: &[DetachedServer], folder: &Path, (serve, http): (u16, u16)) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut text = format!("[log]\ndirectory = \"{}\"\n", file("log"));
    let server = |port: u16| {
        format!(
            "host = \"127.0.0.1\"\nport = {port}\ndefaults_file = \"{}\"\ntls = \"off\"\n",
            file("tailwater.cnf")
        )
    };
    for (number, DetachedServer { name, port, .. }) in servers.iter().enumerate() {
        if number == 0 {
            // Sandbox servers use their port as server_id. So the port of the binlog server is a server_id
            // that no server uses.
            let _ = write!(
                text,
                "\n[[source]]\nname = \"{SOURCE_NAME}\"\nserver_id = {serve}\n{}",
                server(*port)
            );
        }
        let _ =
            write!(text, "\n[[server]]\nname = \"{name}\"\nsource = \"{SOURCE_NAME}\"\n{}", server(*port));
    }
    let _ = write!(
        text,
        "\n[[serve]]\nsource = \"{SOURCE_NAME}\"\nlisten = \"127.0.0.1:{serve}\"\n\
         \n[[serve.user]]\nname = \"{REPLICATION_USER}\"\npassword_file = \"{}\"\n\
         \n[http]\nlisten = \"127.0.0.1:{http}\"\nanonymous = [\"checks\", \"metrics\", \"status\"]\n\
         \n[manager]\nautomatic = true\n",
        file("tailwater.password")
    );
    text
}

fn write_private(path: &Path, text: &str) -> Result<(), SandboxError> {
    let file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).on_path("write", path)
}
