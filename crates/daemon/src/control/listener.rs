//! The daemon's side of a connection.

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

use super::dispatch::{answered, obey, pause};
use super::protocol::too_long;
use super::{Answer, DaemonState, LINE_BYTES_MAX, Request, SIGN_OF_LIFE_EVERY};

/// Listens at `socket` until the task that is given back is dropped.
///
/// # Errors
/// If the socket cannot be made.
pub fn listen(socket: &Path, controlled: Arc<DaemonState>) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    // Left by one that was killed; one that lives holds the folder's lock, and we would not be here.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", socket.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(socket).with_context(|| format!("listen at {}", socket.display()))?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))
        .with_context(|| format!("protect {}", socket.display()))?;
    Ok(tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(converse(stream, Arc::clone(&controlled)));
                }
                Err(error) => {
                    warn!("control socket: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }))
}

async fn converse(stream: UnixStream, controlled: Arc<DaemonState>) {
    let mut paused = Vec::new();
    talk(stream, &controlled, &mut paused).await;
    for name in paused {
        let Some((channel, _)) = controlled.channels.get(&name) else { continue };
        if let Err(error) = channel.resume(None).await {
            warn!(channel = name, "it was paused, and cannot go on: {error}");
        }
    }
}

/// Until the other side ends it; `paused` are the channels that go on then.
async fn talk(stream: UnixStream, controlled: &DaemonState, paused: &mut Vec<String>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        match (&mut read).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // What follows is the rest of it, and no request.
        let is_cut = line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n");
        let answer = async {
            if is_cut {
                return Answer::Failed { code: None, message: too_long("the request") };
            }
            match serde_json::from_slice::<Request>(&line) {
                Ok(Request::Pause { channel }) => {
                    answered(pause(&channel, controlled, paused).await, controlled)
                }
                Ok(request) => obey(request, controlled).await,
                Err(error) => Answer::Failed { code: None, message: format!("not understood: {error}") },
            }
        };
        let answer = alive(&write, SIGN_OF_LIFE_EVERY, answer).await;
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

/// Does the work, and tells the other side meanwhile that it is being done.
async fn alive<T>(write: &OwnedWriteHalf, every: Duration, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        match tokio::time::timeout(every, &mut work).await {
            Ok(done) => return done,
            // Who is gone, or does not read, is told by the answer.
            Err(_) => drop(write.try_write(b"\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answers(stream: &mut BufReader<UnixStream>) -> anyhow::Result<Answer> {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }

    #[tokio::test]
    async fn what_takes_long_gives_signs_of_life() -> anyhow::Result<()> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let (_read, write) = theirs.into_split();
        let (end, ends) = tokio::sync::oneshot::channel();
        let work = tokio::spawn(async move { alive(&write, Duration::from_millis(10), ends).await });
        let mut signs = [0; 3];
        ours.read_exact(&mut signs).await?;
        assert_eq!(signs, *b"\n\n\n");
        assert!(end.send(7).is_ok());
        assert_eq!(work.await??, 7);
        Ok(())
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_what_follows_it_is_no_request() -> anyhow::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let conversation = tokio::spawn(converse(theirs, Arc::default()));
        let mut ours = BufReader::new(ours);
        ours.write_all(b"{\"request\": \"channel_list\"}\n").await?;
        assert!(matches!(answers(&mut ours).await?, Answer::Channels(channels) if channels.is_empty()));
        ours.write_all(b"nonsense\n").await?;
        let answer = answers(&mut ours).await?;
        assert!(
            matches!(&answer, Answer::Failed { message, .. } if message.starts_with("not understood")),
            "{answer:?}"
        );

        let mut line = vec![b' '; LINE_BYTES_MAX as usize];
        line.extend_from_slice(b"\n{\"request\": \"channel_list\"}\n");
        // It may be closed before all of it is written.
        let _ = ours.write_all(&line).await;
        let answer = answers(&mut ours).await?;
        let expected = "the request is longer than 4194304 bytes";
        assert!(matches!(&answer, Answer::Failed { message, .. } if message == expected), "{answer:?}");
        conversation.await?;
        assert!(answers(&mut ours).await.is_err(), "it goes on");
        Ok(())
    }
}
