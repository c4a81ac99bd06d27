//! Runs the stock client of a server.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::Server;
use tailwater_wire::Flavour;

/// Returns the command that runs the stock client of a server as its superuser.
pub fn client(server: &Server) -> Result<Command> {
    let mut command = server.tool(server.kind().client())?;
    command.args(["--no-defaults", "--host=127.0.0.1", "--user=root", "--batch", "--binary-mode"]);
    command.arg(format!("--port={}", server.port()));
    if server.kind().flavour() == Flavour::MariaDb {
        command.arg("--skip-ssl");
    }
    Ok(command)
}

/// Runs a script with the stock client.
pub fn run_script(server: &Server, script: &[u8]) -> Result<()> {
    let mut child =
        client(server)?.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("the stock client has no standard input")?;
    // If the client failed, its own message gives the reason. So a write error is only reported if the client
    // succeeded.
    let written = stdin.write_all(script);
    drop(stdin);
    let output = child.wait_with_output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    let front = &script[..script.len().min(4096)];
    ensure!(
        output.status.success(),
        "the stock client has failed: {messages}\n{}",
        String::from_utf8_lossy(front)
    );
    Ok(written?)
}
