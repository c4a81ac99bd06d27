//! The daemon of `tailwater run`: starts all parts of the configuration and runs until the last capture has
//! ended.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context;
use parking_lot::Mutex;
use tailwater_apply::channel::SourceTime;
use tailwater_apply::{Channel, ChannelOptions};
use tailwater_binlog_server::{BinlogServer, StreamReaders};
use tailwater_capture::Capture;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::bearer_token::NamedToken;
use crate::chart_history::{self, ChartHistory};
use crate::cluster_prober::ClusterObserver;
use crate::configuration_reload::{ConfigurationReload, ReloadSource};
use crate::control_api::{ChangeCounter, Control, DaemonState, SourceHandle};
use crate::control_socket::DirectoryLock;
use crate::jobs::job_service::JobService;
use crate::manager::manager_startup::LocalCapture;
use crate::manager::promotable_channel_targets::{ApplyChannelControl, ChannelControls};
use crate::monitoring::Monitor;
use crate::options_from_config::{ConfigurationRefused, ResolvedConfig};
use crate::replica_prefetch::RunningPrefetch;
use crate::segment_archiver::{self, ArchiveStatus};
use crate::systemd_notifications::ServiceManager;
use crate::unwritable_files::FileFaults;
use crate::{manager, options_from_config};
use tailwater_config::{Config, HISTORY_FILE, LoadedConfig};

/// A running capture: the source's name, the capture, and the token that is cancelled when the capture ends.
type RunningCapture = (String, Capture, CancellationToken);

/// What clients of the daemon connect to. The daemon calls each function once, within a tokio runtime: first
/// `bind`, then `serve`.
pub trait FrontEnd {
    /// Binds the addresses and sockets, so that an address in use ends the daemon before it captures.
    ///
    /// # Errors
    /// If an address cannot be bound.
    fn bind(&mut self, config: &Config, tokens: Vec<NamedToken>) -> anyhow::Result<()>;

    /// Serves clients until the returned tasks are dropped.
    ///
    /// # Errors
    /// If the control socket cannot be created.
    fn serve(&mut self, config: &Config, control: &Arc<Control>) -> anyhow::Result<JoinSet<()>>;
}

/// Captures every source of the configuration until SIGTERM or SIGINT, or until no capture is left.
///
/// If a capture refuses its source (for example because the source lacks transactions that the log has), only
/// this capture stops. If the configuration names other servers of the cluster, the capture waits for an
/// order of the manager instead. If a log cannot be written, the process ends, because a capture must not
/// acknowledge transactions that its log does not hold. SIGHUP reloads the configuration from `reload`.
///
/// # Errors
/// If the configuration or a log cannot be opened, or the first error that ended a capture.
pub fn run(loaded: LoadedConfig, reload: ReloadSource, front_end: &mut dyn FrontEnd) -> anyhow::Result<()> {
    let config = &loaded.config.clone();
    // This runtime runs the binlog servers, the managers and the HTTP API. They must answer even if the disk
    // is slow.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // This runtime runs the channels, and the captures that do not acknowledge commits. A capture that
    // acknowledges commits of its source has its own thread.
    let apply_runtime =
        tokio::runtime::Builder::new_multi_thread().thread_name("replay").enable_all().build()?;
    // The signal handlers are installed before the first capture starts, because from then on a signal must
    // close the log properly.
    let (signals, hangup) =
        runtime.block_on(async { anyhow::Ok((Signals::new()?, signal(SignalKind::hangup())?)) })?;
    let service_manager = ServiceManager::from_environment();
    service_manager.starting("opening the logs");
    let resolved = ResolvedConfig::of(config).map_err(ConfigurationRefused::mark)?;
    let ResolvedConfig { captures: mut options, channels, serves, tokens } = resolved;
    let _lock = DirectoryLock::take(&config.log.directory)?;
    let (archived, schedule) = options_from_config::archiving(config, &mut options)?;
    let schedule = Arc::new(Mutex::new(schedule));
    let mut opened = Vec::new();
    for options in options {
        let name = options.name.clone();
        opened.push((name.clone(), Capture::open(options).with_context(|| format!("source {name}"))?));
    }
    // The addresses are bound after the logs are opened, and before anything is captured. If another daemon
    // uses the same logs, it usually also uses the same addresses. The error must then name the logs.
    let mut bound = Vec::new();
    for (source, options) in serves {
        bound.push((source, runtime.block_on(BinlogServer::bind(options))?));
    }
    runtime.block_on(async { front_end.bind(config, tokens) })?;
    let mut captures = Vec::new();
    for (name, opened) in opened {
        let ended = CancellationToken::new();
        let capture = opened
            .start(ended.clone(), Some(apply_runtime.handle()))
            .with_context(|| format!("source {name}"))?;
        captures.push((name, capture, ended));
    }
    let archives: BTreeMap<_, _> =
        archived.iter().map(|job| (job.archive.source().to_owned(), job.status.clone())).collect();
    if !archived.is_empty() {
        segment_archiver::start(archived, Arc::clone(&schedule)).context("cannot start the archiving")?;
    }
    let mut servers = Vec::new();
    let mut readers = BTreeMap::<String, Vec<StreamReaders>>::new();
    for (name, server) in bound {
        let of_source = config.sources.iter().zip(&captures).find(|(config, _)| config.name == name);
        let (source, (_, capture, _)) = of_source.with_context(|| format!("there is no source {name:?}"))?;
        let served = options_from_config::served(source, capture)?;
        let server = runtime.block_on(async { server.serve(served) });
        readers.entry(name).or_default().push(server.readers());
        servers.push(server);
    }
    let control = runtime
        .block_on(async { start(config, channels, readers, &archives, &captures, apply_runtime.handle()) })?;
    control.set_reload(ConfigurationReload::new(reload, loaded, schedule));
    let clients = runtime.block_on(async { front_end.serve(config, &control) })?;
    runtime.block_on(async {
        service_manager.ready(&control);
        let supervised = async {
            let ended = supervise(captures, signals, &control, &service_manager).await;
            drop(clients);
            for server in servers {
                server.stop().await;
            }
            ended
        };
        tokio::select! {
            ended = supervised => ended,
            never = service_manager.keep_informed(&control) => match never {},
            never = reload_on_hangup(hangup, &control, &service_manager) => match never {},
        }
    })
}

/// The reason that a stopped channel reports if the configuration stops it until `tailwater channel start`.
pub(crate) const STOPPED_BY_CONFIGURATION: &str = "the channel's configuration has stopped = true";

/// Starts the channels on `apply_runtime`, and the manager if one is configured. Each channel comes with the
/// name of its source and whether it stays stopped.
fn start(
    config: &Config,
    channels: Vec<(String, ChannelOptions, bool)>,
    mut readers: BTreeMap<String, Vec<StreamReaders>>,
    archives: &BTreeMap<String, ArchiveStatus>,
    captures: &[RunningCapture],
    apply_runtime: &Handle,
) -> anyhow::Result<Arc<Control>> {
    let changes = ChangeCounter::default();
    let observers = ClusterObserver::start_all(config, &changes)?;
    let file_faults = FileFaults::default();
    let jobs = JobService::open(&config.log.directory, changes.clone(), file_faults.clone());
    let monitor = Monitor::start(config);
    let mut state = DaemonState { monitor, jobs, file_faults, ..DaemonState::default() };
    let mut channel_controls = ChannelControls::new();
    for (source, options, stopped) in channels {
        let capture = captures.iter().find(|(name, ..)| *name == source);
        let (_, capture, _) = capture.with_context(|| format!("there is no source {source:?}"))?;
        let name = options.name.clone();
        let channel = start_channel(config, (&source, capture), options, stopped, &observers, apply_runtime)?;
        let control = ApplyChannelControl::new(Arc::clone(&channel), capture.log());
        channel_controls.insert(name.clone(), Arc::new(control));
        state.channels.insert(name, (channel, capture.log()));
    }
    let local = captures.iter().map(|(source, capture, _)| LocalCapture {
        source: source.clone(),
        acker: capture.acker(),
        status: capture.status(),
        log: capture.log(),
    });
    let local: Vec<_> = local.collect();
    state.manager =
        manager::manager_startup::start(config, &local, &channel_controls, &observers, &state.jobs)?;
    for ((name, capture, _), (source, observer)) in captures.iter().zip(config.sources.iter().zip(&observers))
    {
        let handle = SourceHandle {
            acker: capture.acker(),
            log: capture.log(),
            status: capture.status(),
            readers: readers.remove(name).unwrap_or_default(),
            server_id: source.server_id,
            semi_sync: source.semi_sync,
            own: observer.wiring().own.clone(),
            archive: archives.get(name).cloned(),
        };
        state.sources.insert(name.clone(), handle);
    }
    state.prefetches = start_prefetches(config, &state, apply_runtime)?;
    let history = Arc::new(ChartHistory::new(&config.log.directory.join(HISTORY_FILE)));
    state.history = Some(Arc::clone(&history));
    let control = Arc::new(Control::new(state, observers, changes));
    tokio::spawn(chart_history::record_forever(Arc::downgrade(&control), history));
    Ok(control)
}

/// Starts the prefetches of replicas and of channels' targets, on `runtime`.
fn start_prefetches(
    config: &Config,
    state: &DaemonState,
    runtime: &Handle,
) -> anyhow::Result<Vec<RunningPrefetch>> {
    let _runtime = runtime.enter();
    let mut running = Vec::new();
    for prefetch in &config.prefetches {
        if let Some(source) = state.sources.get(&prefetch.source) {
            running.extend(RunningPrefetch::of_replica(prefetch, &source.log)?);
        }
    }
    for channel in &config.channels {
        if let Some((started, log)) = state.channels.get(&channel.name) {
            running.extend(RunningPrefetch::of_channel(channel, started, log)?);
        }
    }
    Ok(running)
}

fn start_channel(
    config: &Config,
    (source, capture): (&str, &Capture),
    options: ChannelOptions,
    stopped: bool,
    observers: &[ClusterObserver],
    apply_runtime: &Handle,
) -> anyhow::Result<Arc<Channel>> {
    let name = options.name.clone();
    let is_primary = observers.iter().any(|observer| observer.wiring().is_target_primary(&name));
    let conflict =
        is_primary.then(|| "the channel's target is the primary that the log follows now".to_owned());
    if let Some(conflict) = &conflict {
        warn!(channel = name, "the channel stays stopped: {conflict}");
    }
    let stopped = stopped.then(|| STOPPED_BY_CONFIGURATION.to_owned());
    let catalogue = options_from_config::source_catalogue(config, source, capture.status())?;
    let options = ChannelOptions { source_catalogue: Some(catalogue), ..options };
    let status = capture.status();
    let source_time = SourceTime::new(move || status.source_now_us());
    let _runtime = apply_runtime.enter();
    let channel = Channel::start_unless_stopped(options, capture.log(), source_time, conflict.or(stopped));
    Ok(Arc::new(channel))
}

/// Reloads the configuration after each SIGHUP. The reload logs its result.
async fn reload_on_hangup(
    mut hangup: Signal,
    control: &Control,
    service_manager: &ServiceManager,
) -> Infallible {
    loop {
        if hangup.recv().await.is_none() {
            return std::future::pending().await;
        }
        info!("reloading the configuration after SIGHUP");
        service_manager.reloading();
        let _ = control.reload().await;
        service_manager.ready(control);
    }
}

/// The signals that stop the process.
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
    captures: Vec<RunningCapture>,
    mut signals: Signals,
    control: &Control,
    service_manager: &ServiceManager,
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
                info!("stopping after a signal");
                service_manager.stopping("stopping after a signal");
                // The channels stop while the logs are still open, so that running transactions commit, and
                // the targets store their GTIDs.
                control.state().stop().await;
                stop.cancel();
                continue;
            }
            finished = any_finished(&mut running) => finished,
        };
        let (name, result) = finished.context("the task that waits for a capture failed")?;
        match result.context("the task that waits for a capture failed")? {
            Ok(()) => info!(source = name, "capture ended"),
            Err(error) => {
                if error.retry() == tailwater_capture::CaptureRetry::Fatal {
                    error!(
                        source = name,
                        code = error.code(),
                        "stopping: the log cannot be written: {error}"
                    );
                    service_manager.stopping(&format!(
                        "stopping: the log of source {name} cannot be written: {}",
                        error.code()
                    ));
                    stop.cancel();
                } else if !running.is_empty() {
                    warn!(
                        source = name,
                        code = error.code(),
                        "this source is no longer captured; the other sources are still captured"
                    );
                }
                let error = anyhow::Error::new(error).context(format!("source {name}"));
                first_error.get_or_insert(error);
            }
        }
    }
    service_manager.stopping("stopping: no source is captured any more");
    match first_error {
        Some(error) => Err(error),
        None => Ok(()),
    }
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
