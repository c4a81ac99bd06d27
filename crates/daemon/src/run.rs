//! The daemon of `tailwater run`, from the configuration to the last capture's end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tailwater_apply::channel::SourceTime;
use tailwater_apply::{Channel, ChannelOptions};
use tailwater_binlog_server::BinlogServer;
use tailwater_capture::Capture;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::Config;
use crate::control::{self, DaemonState, DirectoryLock, SourceHandle};
use crate::manager::channel_controls::{ApplyChannelControl, ChannelControls};
use crate::manager::startup::LocalCapture;
use crate::wiring::ResolvedConfig;
use crate::{archiver, http, manager, wiring};

/// Captures every source of the configuration until SIGTERM or SIGINT, or until no capture is left.
///
/// A source that is refused (its history is behind the log's, say) stops alone; where the configuration names other servers of
/// its cluster it waits for orders instead, and the process goes on. A log that cannot take more ends the
/// process: going on would be a promise that cannot be kept.
///
/// # Errors
/// A configuration or a log that cannot be opened, or the first error that ended a capture.
pub fn run(config: &Config) -> anyhow::Result<()> {
    // What has to answer whatever the disk does: binlog servers, managers, the control socket, HTTP.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Channels, and the captures that only they wait for. Captures that a source waits for have threads of their own.
    let replaying = tokio::runtime::Builder::new_multi_thread().thread_name("replay").enable_all().build()?;
    // Before the first capture: told to stop at any moment after that, it closes its log in good order.
    let signals = runtime.block_on(async { Signals::new() })?;
    let ResolvedConfig { captures: mut options, channels, serves, secret } = ResolvedConfig::of(config)?;
    let _lock = DirectoryLock::take(&config.log.directory)?;
    let (archived, schedule) = wiring::archiving(config, &mut options)?;
    let mut opened = Vec::new();
    for options in options {
        let name = options.name.clone();
        opened.push((name.clone(), Capture::open(options).with_context(|| format!("source {name}"))?));
    }
    // Before anything is captured, and not before the logs: another daemon that has them has the addresses, too.
    let mut bound = Vec::new();
    for (source, options) in serves {
        bound.push((source, runtime.block_on(BinlogServer::bind(options))?));
    }
    let http = runtime.block_on(http::HttpListener::of(config, secret))?;
    let mut captures = Vec::new();
    for (name, opened) in opened {
        let ended = CancellationToken::new();
        let capture = opened
            .start(ended.clone(), Some(replaying.handle()))
            .with_context(|| format!("source {name}"))?;
        captures.push((name, capture, ended));
    }
    if !archived.is_empty() {
        archiver::start(archived, schedule).context("start archiving")?;
    }
    let mut servers = Vec::new();
    let mut sources: BTreeMap<String, SourceHandle> = captures.iter().map(controlled_source).collect();
    for (name, server) in bound {
        let of_source = config.sources.iter().zip(&captures).find(|(config, _)| config.name == name);
        let (source, (_, capture, _)) = of_source.with_context(|| format!("there is no source {name:?}"))?;
        let served = wiring::served(source, capture)?;
        let server = runtime.block_on(async { server.serve(served) });
        if let Some(source) = sources.get_mut(&name) {
            source.readers.push(server.readers());
        }
        servers.push(server);
    }
    let controlled =
        runtime.block_on(async { start(config, channels, sources, &captures, replaying.handle()) })?;
    let control = runtime.block_on(async {
        control::listen(&control::socket_of(&config.log.directory), Arc::clone(&controlled))
    })?;
    let http = runtime
        .block_on(async { http.map(|http| http.serve(config, Arc::clone(&controlled))).transpose() })?;
    let ended = runtime.block_on(supervise(captures, signals, Arc::clone(&controlled)));
    runtime.block_on(async {
        control.abort();
        if let Some(http) = http {
            http.abort();
        }
        for server in servers {
            server.stop().await;
        }
    });
    ended
}

fn controlled_source((name, capture, _): &(String, Capture, CancellationToken)) -> (String, SourceHandle) {
    let source = SourceHandle {
        acker: capture.acker(),
        log: capture.log(),
        status: capture.status(),
        readers: Vec::new(),
    };
    (name.clone(), source)
}

/// Starts channels on `replaying`, each with the name of its source, and whether it is to wait; and the manager, if there is one.
fn start(
    config: &Config,
    channels: Vec<(String, ChannelOptions, bool)>,
    sources: BTreeMap<String, SourceHandle>,
    captures: &[(String, Capture, CancellationToken)],
    replaying: &Handle,
) -> anyhow::Result<Arc<DaemonState>> {
    let mut controlled = DaemonState { sources, ..DaemonState::default() };
    let mut feeds = ChannelControls::new();
    let clusters = wiring::clusters(config)?;
    for (source, options, stopped) in channels {
        let capture = captures.iter().find(|(name, ..)| *name == source);
        let (_, capture, _) = capture.with_context(|| format!("there is no source {source:?}"))?;
        let name = options.name.clone();
        let leads = clusters.iter().any(|cluster| cluster.is_led_by_target(&name));
        let held = leads.then(|| "its target is the primary that the log follows now".to_owned());
        if let Some(held) = &held {
            warn!(channel = name, "stays stopped: {held}");
        }
        let stopped = stopped.then(|| "its configuration has stopped = true".to_owned());
        let catalogue = wiring::source_catalogue(config, &source, capture.status())?;
        let options = ChannelOptions { source_catalogue: Some(catalogue), ..options };
        let status = capture.status();
        let source_time = SourceTime::new(move || status.source_now_us());
        let channel = {
            let _there = replaying.enter();
            Arc::new(Channel::start_unless_stopped(options, capture.log(), source_time, held.or(stopped)))
        };
        feeds.insert(name.clone(), Arc::new(ApplyChannelControl::new(Arc::clone(&channel), capture.log())));
        controlled.channels.insert(name, (channel, capture.log()));
    }
    let own = captures.iter().map(|(source, capture, _)| LocalCapture {
        source: source.clone(),
        acker: capture.acker(),
        status: capture.status(),
        log: capture.log(),
    });
    controlled.manager = manager::startup::start(config, &own.collect::<Vec<_>>(), &feeds)?;
    Ok(Arc::new(controlled))
}

/// What tells the process to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn supervise(
    captures: Vec<(String, Capture, CancellationToken)>,
    mut signals: Signals,
    controlled: Arc<DaemonState>,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let watchers = captures.into_iter().map(|(name, capture, ended)| {
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = stop.cancelled() => capture.stop(),
            }
            let result = tokio::task::spawn_blocking(move || capture.join()).await;
            (name, result)
        })
    });
    let mut running: Vec<_> = watchers.collect();
    let mut first_error = None;
    while !running.is_empty() {
        let finished = tokio::select! {
            () = signals.recv() => {
                info!("told to stop");
                if let Some(manager) = &controlled.manager {
                    manager.stop().await;
                }
                // While the log still is open: what is under way commits, and the targets are told what they have.
                pause_all(&controlled).await;
                stop.cancel();
                continue;
            }
            finished = any_finished(&mut running) => finished,
        };
        let (name, result) = finished.context("waiting for a capture")?;
        match result.context("waiting for a capture")? {
            Ok(()) => info!(source = name, "capture ended"),
            Err(error) => {
                if error.retry() == tailwater_capture::CaptureRetry::Fatal {
                    error!(source = name, code = error.code(), "ending: the log cannot be kept: {error}");
                    stop.cancel();
                } else if !running.is_empty() {
                    warn!(
                        source = name,
                        code = error.code(),
                        "this source is no longer captured; others go on"
                    );
                }
                let error = anyhow::Error::new(error).context(format!("source {name}"));
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Has every channel commit what is under way, for a bounded time: what is not committed then is applied at the next start.
async fn pause_all(controlled: &DaemonState) {
    const PATIENCE: Duration = Duration::from_secs(10);
    let pausing = controlled.channels.values().map(|(channel, _)| async {
        if tokio::time::timeout(PATIENCE, channel.pause()).await.is_err() {
            warn!(
                channel = channel.name(),
                "it does not stop; what is under way is applied at the next start"
            );
        }
    });
    futures_util::future::join_all(pausing).await;
}

async fn any_finished<T>(running: &mut Vec<tokio::task::JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    std::future::poll_fn(|context| {
        for index in 0..running.len() {
            if let std::task::Poll::Ready(result) = std::pin::Pin::new(&mut running[index]).poll(context) {
                drop(running.swap_remove(index));
                return std::task::Poll::Ready(result);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
