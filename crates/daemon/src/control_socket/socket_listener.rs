//! The daemon's side of the control socket.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tracing::{debug, warn};

use super::{KEEPALIVE_INTERVAL, LINE_BYTES_MAX, too_long};
use crate::api::daemon_requests::{CommandError, ControlAnswer, ControlCommand};
use crate::control_api::{Control, ControlSession};

/// Listens at `socket` until the returned task is aborted.
///
/// # Errors
/// If the socket cannot be created.
pub fn listen(socket: &Path, control: Arc<Control>) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    // A daemon that was killed may have left the socket. A running daemon would hold the folder's lock.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", socket.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot restrict the permissions of {}", socket.display()))?;
    Ok(tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(serve(stream, Arc::clone(&control)));
                }
                Err(error) => {
                    warn!("control socket: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }))
}

async fn serve(stream: UnixStream, control: Arc<Control>) {
    let mut session = control.session();
    answer_commands(stream, &mut session).await;
    session.close().await;
}

/// Executes commands until the client closes the connection.
async fn answer_commands(stream: UnixStream, session: &mut ControlSession) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        match (&mut read).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // The line is too long. The next bytes are the rest of this line, and not a command.
        let is_cut = line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n");
        let answer = async {
            if is_cut {
                return ControlAnswer::Failed { code: None, message: too_long("the request") };
            }
            match serde_json::from_slice::<ControlCommand>(&line) {
                Ok(command) => session.execute(command).await.unwrap_or_else(ControlAnswer::from),
                Err(error) => ControlAnswer::Failed {
                    code: None,
                    message: format!("the command cannot be parsed: {error}"),
                },
            }
        };
        let answer = with_keepalive(&write, KEEPALIVE_INTERVAL, answer).await;
        let Ok(mut answer) = serde_json::to_vec(&answer) else { return };
        answer.push(b'\n');
        if let Err(error) = write.write_all(&answer).await {
            debug!("control socket: {error}");
            return;
        }
        if is_cut {
            return;
        }
    }
}

impl From<CommandError> for ControlAnswer {
    fn from(error: CommandError) -> Self {
        Self::Failed { code: error.code, message: error.message }
    }
}

/// Runs `work`, and sends empty lines until it ends.
async fn with_keepalive<T>(write: &OwnedWriteHalf, interval: Duration, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        match tokio::time::timeout(interval, &mut work).await {
            Ok(done) => return done,
            // If the client has closed the connection or does not read, this is noticed when the answer is
            // written.
            Err(_) => drop(write.try_write(b"\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answers(stream: &mut BufReader<UnixStream>) -> anyhow::Result<ControlAnswer> {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }

    #[tokio::test]
    async fn empty_lines_are_sent_during_a_slow_command() -> anyhow::Result<()> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let (_read, write) = theirs.into_split();
        let (end, ends) = tokio::sync::oneshot::channel();
        let work = tokio::spawn(async move { with_keepalive(&write, Duration::from_millis(10), ends).await });
        let mut signs = [0; 3];
        ours.read_exact(&mut signs).await?;
        assert_eq!(signs, *b"\n\n\n");
        assert!(end.send(7).is_ok());
        assert_eq!(work.await??, 7);
        Ok(())
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_its_rest_is_not_a_command() -> anyhow::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let conversation = tokio::spawn(serve(theirs, Arc::default()));
        let mut ours = BufReader::new(ours);
        ours.write_all(b"{\"request\": \"channel_list\"}\n").await?;
        assert!(
            matches!(answers(&mut ours).await?, ControlAnswer::Channels(channels) if channels.is_empty())
        );
        ours.write_all(b"nonsense\n").await?;
        let answer = answers(&mut ours).await?;
        assert!(
            matches!(&answer, ControlAnswer::Failed { message, .. } if message.starts_with("the command cannot be parsed")),
            "{answer:?}"
        );

        let mut line = vec![b' '; LINE_BYTES_MAX as usize];
        line.extend_from_slice(b"\n{\"request\": \"channel_list\"}\n");
        // The daemon may close the connection before all of the line is written.
        let _ = ours.write_all(&line).await;
        let answer = answers(&mut ours).await?;
        let expected = "the request is longer than 4194304 bytes";
        assert!(
            matches!(&answer, ControlAnswer::Failed { message, .. } if message == expected),
            "{answer:?}"
        );
        conversation.await?;
        assert!(answers(&mut ours).await.is_err(), "the connection was not closed");
        Ok(())
    }
}
