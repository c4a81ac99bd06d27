//! Runs one capture: reads the stream, appends to the log, syncs, acknowledges, and executes orders.
//!
//! An order of the manager can end the stream at any point. The capture first drops the future that reads the
//! stream and sends ACKs. This closes the connection to the source. So after an order to stop, the capture
//! cannot acknowledge any further commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tailwater_log::{LogWriter, SourceIdentity};
use tailwater_session::{
    AccountPurpose, Backoff, ConnectOptions, Connection, DumpStream, SessionError, check_privileges,
};
use tailwater_wire::Flavour;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, warn};

use crate::binlog_stream_ingest::StreamIngest;
use crate::binlog_stream_position::{StreamKind, StreamTracker};
use crate::binlog_stream_request::is_refusal;
use crate::capture_handle_for_manager::OrderRequest;
use crate::capture_start_and_stop::CaptureOptions;
use crate::capture_status::{CaptureState, CaptureStatus};
use crate::error::{CaptureError, CaptureRetry, ServerIdHolder};
use crate::failure_report_limiter::FailureLog;
use crate::periodic_source_checks::{
    CapturedServer, SemiSyncHistory, check_source_periodically, purge_periodically, update_source_clock,
};
use crate::persisted_manager_orders::CaptureOrder;
use crate::resume_position::{self, LogCoverage, ResumePoint, SourceState, StartPolicy};
use crate::source_queries;

/// How long the source may take to answer a query. If the network has silently cut the connection for
/// queries, only this time limit detects it. So the limit also bounds how long commits on the source wait for
/// an ACK after such a cut.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct CaptureDriver {
    pub options: CaptureOptions,
    /// The options to connect to the other servers that an order can make the capture follow, with a read
    /// timeout set.
    servers: BTreeMap<String, ConnectOptions>,
    /// The options to connect to the configured source, with a read timeout set.
    own: ConnectOptions,
    /// The options to connect to the server that the capture reads from now: the configured source, or a
    /// server that it follows.
    pub connect: ConnectOptions,
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    pub log: LogWriter,
    /// The binlog file that the source reports as torn; see [`LogCoverage::torn`].
    pub torn_file: Option<String>,
    /// Whether the last stream request timed out; see [`CaptureDriver::free_hung_dump_thread`].
    stream_hung: bool,
    /// The error that stopped the capture. Set only while the capture waits for orders.
    refused: Option<String>,
    semi_sync_history: SemiSyncHistory,
    pauses: ReconnectPauses,
    failures: FailureLog,
}

/// Why the driver stopped reading the stream or waiting.
enum Wakeup {
    Shutdown,
    Order(OrderRequest),
    Stream(Result<(), CaptureError>),
}

/// The pauses between connection attempts.
struct ReconnectPauses {
    backoff: Backoff,
    /// The pauses while another replica has the same `server_id` as the capture. Whenever the capture or the
    /// replica connects, the source ends the connection of the other one. During a pause of the capture, the
    /// replica can read.
    displaced: Backoff,
    next: Option<Duration>,
}

impl ReconnectPauses {
    fn new() -> Self {
        let seed = u64::from(std::process::id());
        Self {
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(2), seed),
            displaced: Backoff::new(Duration::from_secs(1), Duration::from_secs(15), seed),
            next: None,
        }
    }

    fn after(&mut self, error: &CaptureError, has_captured: bool) -> Duration {
        let pause = if matches!(error, CaptureError::ServerIdTaken { .. }) {
            self.displaced.next_delay()
        } else {
            if has_captured {
                self.backoff.reset();
            }
            self.displaced.reset();
            self.backoff.next_delay()
        };
        self.next = Some(pause);
        pause
    }
}

impl CaptureDriver {
    pub(crate) fn new(
        options: CaptureOptions,
        status: Arc<CaptureStatus>,
        stop: CancellationToken,
        log: LogWriter,
    ) -> Self {
        let timeout_max = ANSWER_TIMEOUT.max(options.heartbeat * 3);
        let with_timeout = |connect: &ConnectOptions| ConnectOptions {
            read_timeout: Some(connect.read_timeout.map_or(timeout_max, |timeout| timeout.min(timeout_max))),
            ..connect.clone()
        };
        let servers =
            options.servers.iter().map(|(name, connect)| (name.clone(), with_timeout(connect))).collect();
        let own = with_timeout(&options.connect);
        status.set_heartbeat(options.heartbeat);
        Self {
            options,
            servers,
            connect: own.clone(),
            own,
            status,
            stop,
            log,
            torn_file: None,
            stream_hung: false,
            refused: None,
            semi_sync_history: SemiSyncHistory::default(),
            pauses: ReconnectPauses::new(),
            failures: FailureLog::default(),
        }
    }

    pub(crate) async fn run(self, orders: mpsc::Receiver<OrderRequest>) -> Result<(), CaptureError> {
        let retention = tokio::spawn(purge_periodically(self.log.handle()).in_current_span());
        let result = self.capture(orders).await;
        retention.abort();
        result
    }

    async fn capture(mut self, mut orders: mpsc::Receiver<OrderRequest>) -> Result<(), CaptureError> {
        self.apply_persisted_orders();
        loop {
            let transactions_before = self.status.snapshot().transactions;
            let wakeup = self.wait_for_wakeup(&mut orders).await;
            // A part of a transaction may be in the log. Remove this part, because the source sends the
            // transaction again from its start.
            let error = match (wakeup, self.log.rollback_partial()) {
                (Wakeup::Stream(Ok(())), Ok(())) => continue,
                (Wakeup::Stream(Err(error)), Ok(())) => error,
                (Wakeup::Shutdown, Ok(())) => {
                    self.log.close()?;
                    self.status.set_state(CaptureState::Stopped);
                    return Ok(());
                }
                (Wakeup::Order(order), Ok(())) => match self.execute_order(order) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                // If the rollback fails after an error of the log, that earlier error states the cause.
                (Wakeup::Stream(Err(error @ CaptureError::Log(_))), Err(_)) => error,
                (_, Err(log_error)) => log_error.into(),
            };
            let has_captured = self.status.snapshot().transactions > transactions_before;
            if let Some(error) = self.handle_error(error, has_captured) {
                if error.retry() == CaptureRetry::Refuse
                    && let Err(error) = self.log.close()
                {
                    warn!(code = error.code(), "cannot close the log: {error}");
                }
                self.status.set_failed(CaptureState::Refused, &error);
                return Err(error);
            }
        }
    }

    /// Captures, or waits while the capture is stopped, until one of the events in [`Wakeup`] happens.
    async fn wait_for_wakeup(&mut self, orders: &mut mpsc::Receiver<OrderRequest>) -> Wakeup {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Wakeup::Shutdown,
            Some(order) = orders.recv() => Wakeup::Order(order),
            result = self.capture_or_wait() => Wakeup::Stream(result),
        }
    }

    async fn capture_or_wait(&mut self) -> Result<(), CaptureError> {
        if self.refused.is_some() || self.status.orders().stopped.is_some() {
            return std::future::pending().await;
        }
        if let Some(pause) = self.pauses.next.take() {
            tokio::time::sleep(pause).await;
        }
        self.status.set_state(CaptureState::Connecting);
        self.stream_once().await
    }

    /// Decides what to do after an error: reconnect later, wait for orders, or end the capture with the
    /// returned error.
    fn handle_error(&mut self, error: CaptureError, has_captured: bool) -> Option<CaptureError> {
        let error = match error {
            error if error.reports_duplicate_server_id() => {
                let holder = ServerIdHolder::Replica;
                CaptureError::ServerIdTaken { holder, server_id: self.options.server_id }
            }
            error => error,
        };
        match error.retry() {
            CaptureRetry::Reconnect => {
                let pause = self.pauses.after(&error, has_captured);
                let text = error.to_string();
                let pause_ms = pause.as_millis() as u64;
                match self.failures.record(&text, Instant::now()) {
                    Some(0) => warn!(code = error.code(), pause_ms, "capture interrupted: {text}"),
                    Some(repeated) => {
                        warn!(code = error.code(), pause_ms, repeated, "capture still interrupted: {text}");
                    }
                    None => debug!(code = error.code(), pause_ms, "capture interrupted: {text}"),
                }
                self.status.set_failed(CaptureState::Waiting, &error);
                None
            }
            CaptureRetry::Refuse if self.options.wait_when_refused => {
                error!(code = error.code(), "the capture has stopped and waits for orders: {error}");
                self.enter_refused(&error);
                None
            }
            CaptureRetry::Refuse | CaptureRetry::Fatal => {
                error!(code = error.code(), "capture stopped: {error}");
                Some(error)
            }
        }
    }

    fn enter_refused(&mut self, error: &CaptureError) {
        self.refused = Some(error.to_string());
        self.status.set_failed(CaptureState::Refused, error);
    }

    /// Before the first connection, applies the orders that an earlier process persisted.
    fn apply_persisted_orders(&mut self) {
        let ordered = self.status.orders();
        if let Some(server) = &ordered.follows {
            info!(server, term = ordered.token, "the capture follows another server, as it was ordered to");
        }
        if let Some(stop) = ordered.stopped {
            warn!(
                term = stop.token,
                since_ms = stop.since_ms,
                "the capture is stopped by order of a manager: it acknowledges nothing until an order to start or follow"
            );
        }
        self.follow_orders();
    }

    /// Switches to the server that the orders name, or leaves the capture stopped.
    fn follow_orders(&mut self) {
        self.refused = None;
        let ordered = self.status.orders();
        let followed = match &ordered.follows {
            None => Ok(None),
            Some(name) => self.servers.get(name).map(Some).ok_or(name),
        };
        match followed {
            Ok(followed) => {
                self.connect = followed.unwrap_or(&self.own).clone();
                self.status.set_followed(followed.cloned());
                self.status.set_state(match ordered.stopped {
                    Some(stop) => CaptureState::StoppedByOrder(stop),
                    None => CaptureState::Connecting,
                });
            }
            // The capture refuses an order to follow an unknown server. So the server is unknown here only if
            // the configuration was changed before a restart.
            Err(name) => {
                let known = self.servers.keys().map(String::as_str).chain([self.options.name.as_str()]);
                let known = known.collect::<Vec<_>>().join(", ");
                let error = CaptureError::UnknownServer { server: name.clone(), known };
                error!(code = error.code(), "the capture has stopped and waits for orders: {error}");
                self.enter_refused(&error);
            }
        }
    }

    /// Executes an order of the manager after the stream has ended. Returns an error only if the log failed.
    fn execute_order(
        &mut self,
        OrderRequest { order, number, answer }: OrderRequest,
    ) -> Result<(), CaptureError> {
        let before = self.status.orders();
        let ordered = match before.after(&order, number, now_ms()) {
            Ok(ordered) => ordered,
            Err(error) => {
                // Ignore a failure to send: the sender of the order may have stopped waiting for the answer.
                let _ = answer.send(Err(error));
                return Ok(());
            }
        };
        // Make all of the log durable first, because the answer states which transactions the log has.
        self.log.sync()?;
        let result = ordered.write(&self.options.directory).map_err(CaptureError::from);
        if let Err(error) = &result {
            error!(
                code = error.code(),
                "the order to the capture cannot be written to disk, so it has no effect: {error}"
            );
        } else {
            log_order(&order, number.token);
            if ordered.follows != before.follows {
                self.reset_source_state();
            }
            self.status.set_orders(ordered);
            self.pauses.next = None;
            self.follow_orders();
        }
        let _ = answer.send(result);
        Ok(())
    }

    /// Resets the state that belongs to the previous server.
    fn reset_source_state(&mut self) {
        (self.torn_file, self.stream_hung, self.semi_sync_history, self.pauses) =
            (None, false, SemiSyncHistory::default(), ReconnectPauses::new());
        self.failures.reset();
    }

    /// Captures over one connection. Returns an error, or `Ok` if the capture should reconnect without a
    /// pause.
    async fn stream_once(&mut self) -> Result<(), CaptureError> {
        let mut control = Connection::connect(&self.connect).await?;
        let mut source = self.query_source(&mut control).await?;
        let coverage = self.log_coverage(source.identity.flavour)?;
        if coverage.tail.is_none() && self.options.start == StartPolicy::Current {
            let current =
                source_queries::query_current_binlog(&mut control, &self.connect, self.options.server_id);
            source.current_binlog = current.await?;
        }
        let catch_up = self.catch_up_target(&mut control, &coverage, &source).await?;
        let resume = resume_position::decide(&coverage, &source, &self.options.start)?;
        let (stream, kind) =
            self.request_stream(&mut control, &coverage, &mut source, &resume, catch_up.is_none()).await?;
        self.status.count_connection();
        self.status.set_state(CaptureState::Streaming);
        self.failures.reset();

        let mut ingest = StreamIngest::new(
            &self.status,
            tracker(kind, &coverage, &source.identity, self.log.has_empty_partial_segment()),
            source.identity.clone(),
            &mut self.log,
            self.options.log.ack,
            coverage.head.clone(),
            catch_up,
        );
        let server = CapturedServer { connect: &self.connect, identity: &source.identity };
        let checks = check_source_periodically(
            control,
            server,
            &self.options,
            &self.status,
            &mut self.semi_sync_history,
        );
        let result = tokio::select! {
            result = ingest.run(stream) => result,
            result = checks => result,
        };
        let has_source_events = ingest.has_source_events();
        match result {
            // The source refused the stream before it sent any event, because it cannot read an event at the
            // position where the log ends.
            Err(CaptureError::Session(refusal)) if !has_source_events && is_refusal(&refusal) => {
                let mut control = Connection::connect(&self.connect).await?;
                self.classify_refusal(&mut control, &coverage, &mut source, &resume, refusal).await?;
                Err(CaptureError::stream(
                    "the source refused to send the stream from the position where the log ends",
                ))
            }
            Err(error) => {
                if has_source_events && error.reports_torn_file() {
                    self.torn_file = self.log.source_tail().map(|tail| tail.file);
                }
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Queries the source's state, checks the account's privileges and the `server_id`, and updates the
    /// status.
    async fn query_source(&self, control: &mut Connection) -> Result<SourceState, CaptureError> {
        check_privileges(control, AccountPurpose::Capture).await?;
        let source = source_queries::query_state(control).await?;
        if source.identity.server_id == self.options.server_id {
            let holder = ServerIdHolder::Source;
            return Err(CaptureError::ServerIdTaken { holder, server_id: self.options.server_id });
        }
        self.status.set_source_variables(source_queries::query_variables(control).await?);
        update_source_clock(control, &self.status).await?;
        Ok(source)
    }

    /// Opens the stream at `resume`. If the source refuses this position, opens the stream by GTIDs, provided
    /// that no transaction would be missing.
    async fn request_stream(
        &mut self,
        control: &mut Connection,
        coverage: &LogCoverage,
        source: &mut SourceState,
        resume: &ResumePoint,
        synchronous: bool,
    ) -> Result<(DumpStream, StreamKind), CaptureError> {
        let freeing_stream = if std::mem::take(&mut self.stream_hung) {
            self.free_hung_dump_thread(resume, coverage).await
        } else {
            None
        };
        let opened = self.open_stream(resume, coverage, synchronous).await;
        drop(freeing_stream);
        let (stream, kind) = match opened {
            Err(CaptureError::Session(error @ SessionError::Timeout { .. })) => {
                self.stream_hung = self.options.semi_sync && source.identity.flavour == Flavour::MariaDb;
                return Err(error.into());
            }
            Err(CaptureError::Session(refusal)) if is_refusal(&refusal) => {
                self.classify_refusal(control, coverage, source, resume, refusal).await?;
                match self.open_stream(&ResumePoint::Gtid, coverage, synchronous).await {
                    Err(CaptureError::Session(refusal)) if is_refusal(&refusal) => {
                        return Err(resume_position::refused_by_gtid(coverage, &refusal.to_string()));
                    }
                    result => result?,
                }
            }
            result => result?,
        };
        if self.options.semi_sync && synchronous && !stream.semi_sync() {
            return Err(CaptureError::SemiSyncOff);
        }
        Ok((stream, kind))
    }
}

/// Creates the tracker for a stream from `source` that continues the log.
fn tracker(
    kind: StreamKind,
    coverage: &LogCoverage,
    source: &SourceIdentity,
    has_empty_partial_segment: bool,
) -> StreamTracker {
    match &coverage.tail {
        Some((_, identity)) if !identity.same_server(source) => StreamTracker::for_another_server(),
        // The log's last segment does not have its format description event yet. The new stream starts with
        // this event.
        Some(_) if has_empty_partial_segment => StreamTracker::new(kind, None),
        tail => StreamTracker::new(kind, tail.as_ref().map(|(tail, _)| tail.clone())),
    }
}

fn log_order(order: &CaptureOrder, term: u64) {
    match order {
        CaptureOrder::Stop => {
            warn!(
                term,
                "the manager ordered the capture to stop: the capture reads and acknowledges nothing more"
            )
        }
        CaptureOrder::Start => info!(term, "the manager ordered the capture to start"),
        CaptureOrder::Follow(None) => info!(term, "the manager ordered the capture to follow its own source"),
        CaptureOrder::Follow(Some(server)) => {
            info!(term, server, "the manager ordered the capture to follow another server")
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
