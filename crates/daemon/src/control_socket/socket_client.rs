//! Sends commands to the daemon.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use reqwest::{Client, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use tailwater_apply::channel::ChannelStatus;

use super::command_to_http_request::ApiRequest;
use super::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use crate::api::daemon_requests::{ControlAnswer, ControlCommand};

/// How long the daemon may take to answer a health check. A command may take longer.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// While a command runs, the health of the daemon is checked at this interval.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// Interval of the attempts to connect to a socket whose backlog is full.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// Why the daemon cannot be reached, or cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No daemon listens at the socket.
    #[error("no daemon listens at {}; is `tailwater run` running with this configuration?", socket.display())]
    NoDaemon {
        /// The path of the socket.
        socket: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The daemon accepts the connection but sends nothing.
    #[error(
        "the daemon that listens at {} has sent nothing for {silent_ms} ms: it hangs, and may still execute the command",
        socket.display()
    )]
    Silent {
        /// The path of the socket.
        socket: PathBuf,
        /// How long the daemon has sent nothing, in milliseconds.
        silent_ms: u128,
    },
    /// The daemon's answer is not a response of the API.
    #[error(
        "the answer of the daemon that listens at {} cannot be understood: {reason}; it may be of another version: restart \
         `tailwater run`",
        socket.display()
    )]
    BadAnswer {
        /// The path of the socket.
        socket: PathBuf,
        /// What is wrong with the answer.
        reason: String,
    },
    /// Another daemon uses the log's folder.
    #[error(
        "the log's folder {} is in use by {holder}, another `tailwater run`; stop that process, or set log.directory to another folder",
        directory.display()
    )]
    DirectoryInUse {
        /// The log's folder.
        directory: PathBuf,
        /// The process that uses the folder.
        holder: String,
    },
    /// The log's folder cannot be used.
    #[error("the log's folder {} cannot be used: {source}", directory.display())]
    Directory {
        /// The log's folder.
        directory: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl ControlError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoDaemon { .. } => "TW-CTL-0001",
            Self::Silent { .. } => "TW-CTL-0002",
            Self::DirectoryInUse { .. } => "TW-CTL-0003",
            Self::Directory { .. } => "TW-CTL-0004",
            Self::BadAnswer { .. } => "TW-CTL-0005",
        }
    }
}

/// Sends a command to the daemon that listens at `socket`, and returns the answer.
///
/// # Errors
/// If no daemon listens there, or it does not answer.
pub fn ask(socket: &Path, command: &ControlCommand) -> anyhow::Result<ControlAnswer> {
    // The caller may run in a tokio runtime, whose threads must not block. So the request has its own thread.
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(send(socket, command))
        });
        asking.join()
    });
    asked.map_err(|_| anyhow!("the thread that sends the request has failed"))?
}

/// Sends a command to the daemon that listens at `socket`, and returns the answer.
///
/// # Errors
/// If no daemon listens there, or it does not answer.
pub async fn send(socket: &Path, command: &ControlCommand) -> anyhow::Result<ControlAnswer> {
    send_within(socket, command, SILENCE_MAX).await
}

/// Gets a resource of the API of the daemon that listens at `socket`, such as `["status"]`.
///
/// # Errors
/// If no daemon listens there, or it does not answer, or its answer has another shape.
pub async fn get<T: DeserializeOwned>(socket: &Path, path: &[&str]) -> anyhow::Result<T> {
    let request = ApiRequest::get(path)?;
    let (is_success, body) = exchange(socket, &request, SILENCE_MAX).await?;
    if !is_success {
        let failed = ApiRequest::failure(&body);
        return Err(match failed.map_err(|error| bad_answer(socket, format!("{error:#}")))? {
            ControlAnswer::Failed { code: Some(code), message } => anyhow!("{code}: {message}"),
            ControlAnswer::Failed { message, .. } => anyhow!("{message}"),
            _ => anyhow!("the daemon reports a failure, but its answer does not describe the failure"),
        });
    }
    serde_json::from_slice(&body).map_err(|error| bad_answer(socket, error.to_string()).into())
}

/// Sends a command like [`send`], but waits at most `silence_max` for a sign of life.
///
/// # Errors
/// If no daemon listens there, or it does not answer.
pub async fn send_within(
    socket: &Path,
    command: &ControlCommand,
    silence_max: Duration,
) -> anyhow::Result<ControlAnswer> {
    let request = ApiRequest::of(command)?;
    let (is_success, body) = exchange(socket, &request, silence_max).await?;
    let answer = if is_success { request.answer(&body) } else { ApiRequest::failure(&body) };
    answer.map_err(|error| bad_answer(socket, format!("{error:#}")).into())
}

/// A channel that the daemon starts again when this value is dropped, also if the process is killed.
#[derive(Debug)]
pub struct PausedChannel {
    /// The channel's status after it was paused.
    pub status: ChannelStatus,
    /// The response, which does not end.
    _response: Response,
}

/// Pauses a channel of the daemon that listens at `socket`. When this function returns, the channel's running
/// transactions have committed.
///
/// # Errors
/// If no daemon listens there, or the channel cannot be paused.
pub async fn pause_channel(socket: &Path, channel: &str) -> anyhow::Result<PausedChannel> {
    let request = ApiRequest::of(&ControlCommand::Pause { channel: channel.to_owned() })?;
    let mut response = respond(socket, &request, SILENCE_MAX).await?;
    let unclear = |reason: String| bad_answer(socket, reason);
    if !response.status().is_success() {
        let body = body_of(response, socket).await?;
        let failed = ApiRequest::failure(&body).map_err(|error| unclear(format!("{error:#}")))?;
        let ControlAnswer::Failed { code, message } = failed else {
            return Err(unclear(String::new()).into());
        };
        return Err(anyhow!("{}{message}", code.map(|code| format!("{code}: ")).unwrap_or_default()));
    }
    // The first line has the status of the channel. Empty lines follow while the channel is paused.
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let chunk = chunk_of(&mut response, socket).await?;
        line.extend_from_slice(
            &chunk
                .ok_or_else(|| unclear("the answer ended before its first line was complete".to_owned()))?,
        );
        ensure!(line.len() <= RESPONSE_BYTES_MAX, unclear(too_long("the response", RESPONSE_BYTES_MAX)));
    }
    let status = serde_json::from_slice(&line).map_err(|error| unclear(error.to_string()))?;
    Ok(PausedChannel { status, _response: response })
}

/// Sends a request, and returns whether it was successful, and the body of the response.
async fn exchange(
    socket: &Path,
    request: &ApiRequest,
    silence_max: Duration,
) -> anyhow::Result<(bool, Vec<u8>)> {
    let response = respond(socket, request, silence_max).await?;
    let is_success = response.status().is_success();
    Ok((is_success, body_of(response, socket).await?))
}

/// Sends a request, and waits for the head of the response for as long as the daemon answers health checks.
async fn respond(socket: &Path, request: &ApiRequest, silence_max: Duration) -> anyhow::Result<Response> {
    let client = client(socket)?;
    let mut sending = client.request(request.method.clone(), request.url.clone());
    if let Some(body) = &request.body {
        let body = serde_json::to_vec(body)?;
        ensure!(body.len() <= REQUEST_BYTES_MAX, too_long("the request", REQUEST_BYTES_MAX));
        sending = sending.header("content-type", "application/json").body(body);
    }
    let mut responding = std::pin::pin!(connect_and_send(socket, sending, silence_max));
    loop {
        match tokio::time::timeout(HEALTH_INTERVAL.min(silence_max), &mut responding).await {
            Ok(response) => return Ok(response?),
            Err(_) => {
                let health = client.get("http://localhost/healthz");
                let health = connect_and_send(socket, health, silence_max);
                match tokio::time::timeout(silence_max, health).await {
                    Ok(healthy) => drop(healthy?),
                    Err(_) => return Err(silent(socket, silence_max).into()),
                }
            }
        }
    }
}

/// Sends a request. Tries to connect again while the backlog of the socket is full because the daemon accepts
/// no connection.
async fn connect_and_send(
    socket: &Path,
    request: RequestBuilder,
    silence_max: Duration,
) -> Result<Response, ControlError> {
    let started = Instant::now();
    loop {
        let attempt = request
            .try_clone()
            .ok_or_else(|| bad_answer(socket, "the request cannot be repeated".to_owned()))?;
        let error = match attempt.send().await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        match io_error(&error) {
            Some(cause) if error.is_connect() && cause.kind() == io::ErrorKind::WouldBlock => {
                if started.elapsed() >= silence_max {
                    return Err(silent(socket, silence_max));
                }
                tokio::time::sleep(CONNECT_INTERVAL.min(silence_max)).await;
            }
            Some(cause) if error.is_connect() => {
                let source = io::Error::new(cause.kind(), cause.to_string());
                return Err(ControlError::NoDaemon { socket: socket.to_owned(), source });
            }
            _ => return Err(bad_answer(socket, root_cause(&error))),
        }
    }
}

/// Returns the next part of a response's body; `None` at its end. Waits for a limited time, because a daemon
/// that has sent the head of a response sends the body without a pause.
async fn chunk_of(response: &mut Response, socket: &Path) -> Result<Option<bytes::Bytes>, ControlError> {
    match tokio::time::timeout(SILENCE_MAX, response.chunk()).await {
        Ok(chunk) => chunk.map_err(|error| bad_answer(socket, root_cause(&error))),
        Err(_) => Err(silent(socket, SILENCE_MAX)),
    }
}

async fn body_of(mut response: Response, socket: &Path) -> Result<Vec<u8>, ControlError> {
    let mut body = Vec::new();
    while let Some(chunk) = chunk_of(&mut response, socket).await? {
        if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err(bad_answer(socket, too_long("it", RESPONSE_BYTES_MAX)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn client(socket: &Path) -> anyhow::Result<Client> {
    // The library needs a cryptography provider also for requests without TLS. If the process already has a
    // provider, installing another one fails, and the client uses the installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .unix_socket(socket)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(0)
        .build()
        .context("the client of the control socket cannot be created")
}

/// Returns an error and its causes, the deepest one last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Returns the error of the operating system that caused an error.
fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    causes(error).find_map(|error| error.downcast_ref())
}

fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn silent(socket: &Path, silence_max: Duration) -> ControlError {
    ControlError::Silent { socket: socket.to_owned(), silent_ms: silence_max.as_millis() }
}

fn bad_answer(socket: &Path, reason: String) -> ControlError {
    ControlError::BadAnswer { socket: socket.to_owned(), reason }
}

fn too_long(what: &str, bytes_max: usize) -> String {
    format!("{what} is longer than {bytes_max} bytes")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::control_socket::socket_of;

    const SHORT: Duration = Duration::from_millis(100);

    fn is_silent(asked: &anyhow::Error) -> bool {
        asked.downcast_ref::<ControlError>().is_some_and(|error| error.code() == "TW-CTL-0002")
    }

    #[test]
    fn every_code_is_documented() {
        let page = include_str!("../../../../docs/reference/errors.md");
        let socket = || PathBuf::from("control.sock");
        let errors = [
            ControlError::NoDaemon { socket: socket(), source: io::ErrorKind::NotFound.into() },
            ControlError::Silent { socket: socket(), silent_ms: 1 },
            ControlError::BadAnswer { socket: socket(), reason: String::new() },
            ControlError::DirectoryInUse { directory: socket(), holder: "process 1".into() },
            ControlError::Directory { directory: socket(), source: io::ErrorKind::NotFound.into() },
        ];
        for error in &errors {
            // This match does not compile if it lacks a variant of the error. A new variant must also be
            // added to `errors`.
            match error {
                ControlError::NoDaemon { .. }
                | ControlError::Silent { .. }
                | ControlError::DirectoryInUse { .. }
                | ControlError::BadAnswer { .. }
                | ControlError::Directory { .. } => {}
            }
            assert_eq!(
                page.matches(&format!("\n| {} | ", error.code())).count(),
                1,
                "errors.md does not list the code exactly once: {error}"
            );
        }
        assert_eq!(
            page.matches("\n| TW-CTL-").count(),
            errors.len(),
            "errors.md lists codes that no error has"
        );
    }

    #[tokio::test]
    async fn a_daemon_that_hangs_causes_a_time_out() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let list = || send_within(&socket, &ControlCommand::List, SHORT);
        let absent = list().await.expect_err("no daemon listens");
        assert!(
            matches!(absent.downcast_ref(), Some(ControlError::NoDaemon { .. })),
            "the error for a missing daemon is wrong: {absent:#}"
        );
        // The listener accepts no connection: connections wait until the backlog is full.
        let listener = UnixListener::bind(&socket)?;
        rustix::net::listen(&listener, 1)?;
        for _ in 0..4 {
            let asked = list().await.expect_err("the daemon does not answer");
            assert!(is_silent(&asked), "the error for a silent daemon is wrong: {asked:#}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn an_answer_that_is_not_http_names_the_version() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let listener = UnixListener::bind(&socket)?;
        let daemon = std::thread::spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let _ = stream.read(&mut [0; 4096])?;
            stream.write_all(b"{\"failed\":{\"code\":null,\"message\":\"the command cannot be parsed\"}}\n")
        });
        let asked = send(&socket, &ControlCommand::List).await.expect_err("the answer is not HTTP");
        let text = asked.to_string();
        assert!(
            text.contains("cannot be understood") && text.contains("restart `tailwater run`"),
            "the error lacks the cause or the remedy: {text}"
        );
        daemon.join().expect("the thread of the old daemon has ended")?;
        Ok(())
    }

    #[test]
    fn a_command_that_is_too_long_is_not_sent() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let _listener = UnixListener::bind(&socket)?;
        let gtids = "x".repeat(REQUEST_BYTES_MAX);
        let error = ask(&socket, &ControlCommand::Seek { channel: "replica".into(), gtids });
        assert!(error.is_err_and(|error| error.to_string().contains("longer than 4194304 bytes")));
        Ok(())
    }
}
