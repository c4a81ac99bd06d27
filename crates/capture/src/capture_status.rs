//! The state and counters of a running capture, for other parts of the process.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tailwater_session::ConnectOptions;
use tailwater_session::semi_sync::SemiSyncSource;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::CaptureError;
use crate::persisted_manager_orders::{PersistedOrders, StopOrder};
use crate::semi_sync_monitor::SemiSyncAlarm;
use crate::source_clock::SourceClock;

/// What a capture is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureState {
    /// The capture connects, or queries the source to find out where to continue.
    Connecting,
    /// The capture reads the stream.
    Streaming,
    /// The capture waits before its next attempt. The text states why the last attempt ended.
    Waiting(String),
    /// The capture stopped permanently, or until a new order. The text has the cause and the remedy.
    Refused(String),
    /// A manager ordered the capture to stop. Only an order to start or to follow a server starts the capture
    /// again; a restart of the process does not. See [`crate::persisted_manager_orders`].
    StoppedByOrder(StopOrder),
    /// [`Capture::stop`](crate::Capture::stop) stopped the capture.
    Stopped,
}

/// The state and counters of one capture. The capture's thread writes them, and observers read them.
#[derive(Debug, Default)]
pub struct CaptureStatus {
    transactions: AtomicU64,
    event_bytes: AtomicU64,
    acks: AtomicU64,
    syncs: AtomicU64,
    /// When the capture last appended a transaction to the log, in milliseconds since [`MONOTONIC_START`]. 0
    /// if it has not appended one.
    appended_ms: AtomicU64,
    /// When the capture last received bytes from the source, including heartbeats, in milliseconds since
    /// [`MONOTONIC_START`]. 0 if it has not received any.
    received_ms: AtomicU64,
    /// The heartbeat period in milliseconds: a healthy source sends something at least this often.
    heartbeat_ms: AtomicU64,
    connections: AtomicU64,
    commits_without_ack: AtomicU64,
    clock: SharedSourceClock,
    detail: Mutex<CaptureDetail>,
    /// Notified at every change of the state.
    changes: Notify,
}

#[derive(Debug, Default)]
struct CaptureDetail {
    state: Option<CaptureState>,
    fault_code: Option<&'static str>,
    last_failure: Option<CaptureFailure>,
    alarms: Vec<SemiSyncAlarm>,
    semi_sync: Option<SemiSyncSource>,
    source_variables: BTreeMap<String, String>,
    orders: PersistedOrders,
    followed: Option<ConnectOptions>,
}

/// Why a capture last stopped, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureFailure {
    /// The text of the error.
    pub message: String,
    /// When the capture stopped.
    pub at: SystemTime,
}

/// A copy of the values of a [`CaptureStatus`].
#[derive(Debug, Clone)]
pub struct StatusSnapshot {
    /// What the capture is doing.
    pub state: CaptureState,
    /// The number of transactions appended to the log since the capture started.
    pub transactions: u64,
    /// The number of bytes of events appended to the log since the capture started.
    pub event_bytes: u64,
    /// The number of semi-sync ACKs sent since the capture started.
    pub acks: u64,
    /// The number of times that the capture synced the log for an ACK since it started. `transactions`
    /// divided by `syncs` is the average size of a commit group.
    pub syncs: u64,
    /// The number of streams opened since the capture started.
    pub connections: u64,
    /// Why the capture last stopped. `None` if it has never stopped. The value stays the same when the
    /// capture runs again.
    pub last_failure: Option<CaptureFailure>,
    /// The stable code of the error after which the capture waits, or for which it refuses its source.
    pub fault_code: Option<&'static str>,
    /// The alarms of the last semi-sync check.
    pub alarms: Vec<SemiSyncAlarm>,
    /// The source's semi-sync settings and counters in the last semi-sync check. `None` before the first
    /// check, or if the plugin is not loaded.
    pub semi_sync: Option<SemiSyncSource>,
    /// The number of commits that the source acknowledged to clients without an ACK, as all checks together
    /// have counted them since the capture started.
    pub commits_without_ack: u64,
}

impl CaptureStatus {
    /// Returns a copy of the current values. The counters are read one after the other, so they may belong to
    /// slightly different moments.
    pub fn snapshot(&self) -> StatusSnapshot {
        let detail = self.detail();
        StatusSnapshot {
            state: detail.state.clone().unwrap_or(CaptureState::Connecting),
            transactions: self.transactions.load(Ordering::Relaxed),
            event_bytes: self.event_bytes.load(Ordering::Relaxed),
            acks: self.acks.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            last_failure: detail.last_failure.clone(),
            fault_code: detail.fault_code,
            alarms: detail.alarms.clone(),
            semi_sync: detail.semi_sync.clone(),
            commits_without_ack: self.commits_without_ack.load(Ordering::Relaxed),
        }
    }

    /// The source's global variables that readers of its binlog query, with the values that the capture last
    /// read. Empty before the capture has reached the source.
    pub fn source_variables(&self) -> BTreeMap<String, String> {
        self.detail().source_variables.clone()
    }

    /// Milliseconds since the capture last appended a transaction to the log. `None` if it has not appended
    /// one since it started.
    pub fn appended_ago_ms(&self) -> Option<u64> {
        ago_ms(&self.appended_ms)
    }

    /// The time on the source's clock, in microseconds since 1970. Before the source's first answer it is
    /// this machine's time.
    pub fn source_now_us(&self) -> u64 {
        u64::try_from(self.clock.known().now_us(monotonic_us(Instant::now()))).unwrap_or(0)
    }

    /// Milliseconds since the capture last received bytes from the source, including heartbeats. `None` if it
    /// has received nothing since it started. A high value shows that the source is frozen: its connections
    /// stay open, but it sends nothing.
    pub fn received_ago_ms(&self) -> Option<u64> {
        ago_ms(&self.received_ms)
    }

    /// The longest time between two packets of a healthy source, in milliseconds.
    pub fn heartbeat_ms(&self) -> u64 {
        self.heartbeat_ms.load(Ordering::Relaxed)
    }

    /// The persisted orders that are in force.
    pub fn orders(&self) -> PersistedOrders {
        self.detail().orders.clone()
    }

    /// The address of the server that the capture follows by order; `None` while it reads from its own
    /// source.
    pub fn followed_server(&self) -> Option<ConnectOptions> {
        self.detail().followed.clone()
    }

    /// Returns a counter of the steps of the source's clock. After a step, earlier results of
    /// [`CaptureStatus::source_now_us`] are wrong, and clients that received them must query the time again.
    pub fn clock_steps(&self) -> watch::Receiver<u64> {
        self.clock.steps.subscribe()
    }

    /// Records the time that the source has just returned. `asked` is the moment at which the capture sent
    /// the query.
    pub(crate) fn observe_clock(&self, source_us: i64, asked: Instant) {
        let answered_us = monotonic_us(Instant::now());
        let stepped_us = self.clock.known().observe(source_us, monotonic_us(asked), answered_us);
        if let Some(stepped_us) = stepped_us {
            warn!(
                ahead_ms = stepped_us / 1_000,
                "the source's clock has stepped: disconnecting replicas so that they read it again"
            );
            self.clock.steps.send_modify(|steps| *steps += 1);
        }
    }

    /// Completes at the next change of the state.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changes.notified()
    }

    pub(crate) fn set_orders(&self, orders: PersistedOrders) {
        self.detail().orders = orders;
    }

    /// Called when the capture starts to read from another server. Resets the values that belong to the
    /// previous server.
    pub(crate) fn set_followed(&self, followed: Option<ConnectOptions>) {
        self.received_ms.store(0, Ordering::Relaxed);
        let mut detail = self.detail();
        detail.alarms.clear();
        detail.semi_sync = None;
        detail.followed = followed;
    }

    pub(crate) fn set_source_variables(&self, variables: BTreeMap<String, String>) {
        self.detail().source_variables = variables;
    }

    pub(crate) fn set_state(&self, state: CaptureState) {
        self.change_state(state, None);
    }

    /// Enters a state in which the capture does not run because of `error`.
    pub(crate) fn set_failed(&self, state: impl FnOnce(String) -> CaptureState, error: &CaptureError) {
        self.change_state(state(error.to_string()), Some(error.code()));
    }

    fn change_state(&self, state: CaptureState, fault_code: Option<&'static str>) {
        let mut detail = self.detail();
        // Keep the error code during a new connection attempt: the cause of the last error may remain.
        if fault_code.is_some() || state != CaptureState::Connecting {
            detail.fault_code = fault_code;
        }
        if let CaptureState::Waiting(message) | CaptureState::Refused(message) = &state {
            detail.last_failure = Some(CaptureFailure { message: message.clone(), at: SystemTime::now() });
        }
        detail.state = Some(state);
        drop(detail);
        self.changes.notify_waiters();
    }

    /// Records the result of a semi-sync check.
    pub(crate) fn set_semi_sync(&self, semi_sync: Option<SemiSyncSource>, alarms: Vec<SemiSyncAlarm>) {
        for alarm in &alarms {
            if let SemiSyncAlarm::CommitsWithoutAck(count) = alarm {
                self.commits_without_ack.fetch_add(*count, Ordering::Relaxed);
            }
        }
        let mut detail = self.detail();
        (detail.semi_sync, detail.alarms) = (semi_sync, alarms);
    }

    pub(crate) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_appended(&self, bytes: u64, transactions: u64) {
        self.event_bytes.fetch_add(bytes, Ordering::Relaxed);
        if transactions > 0 {
            self.transactions.fetch_add(transactions, Ordering::Relaxed);
            self.appended_ms.store(monotonic_ms(), Ordering::Relaxed);
        }
    }

    pub(crate) fn set_heartbeat(&self, heartbeat: Duration) {
        self.heartbeat_ms.store(u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn mark_received(&self) {
        self.received_ms.store(monotonic_ms(), Ordering::Relaxed);
    }

    pub(crate) fn count_ack(&self) {
        self.acks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    fn detail(&self) -> parking_lot::MutexGuard<'_, CaptureDetail> {
        self.detail.lock()
    }
}

/// The source's clock, which all readers of the time share.
#[derive(Debug)]
struct SharedSourceClock {
    known: Mutex<SourceClock>,
    steps: watch::Sender<u64>,
}

impl Default for SharedSourceClock {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall_us = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
        let known = SourceClock::from_local_clock(wall_us, monotonic_us(Instant::now()));
        Self { known: Mutex::new(known), steps: watch::Sender::default() }
    }
}

impl SharedSourceClock {
    fn known(&self) -> parking_lot::MutexGuard<'_, SourceClock> {
        self.known.lock()
    }
}

/// The start of the monotonic clock, with which the capture measures how long a source is silent. A change of
/// the time of day must not affect this measurement.
static MONOTONIC_START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds since [`MONOTONIC_START`]; at least 1, because 0 means never.
fn monotonic_ms() -> u64 {
    u64::try_from(MONOTONIC_START.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}

/// Microseconds since [`MONOTONIC_START`].
fn monotonic_us(at: Instant) -> i64 {
    i64::try_from(at.saturating_duration_since(*MONOTONIC_START).as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds since `moment`, an earlier result of [`monotonic_ms`]. `None` if `moment` is 0.
fn ago_ms(moment: &AtomicU64) -> Option<u64> {
    let moment_ms = moment.load(Ordering::Relaxed);
    (moment_ms > 0).then(|| monotonic_ms().saturating_sub(moment_ms))
}
