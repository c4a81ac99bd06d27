//! Sends orders to a running capture, and reads its state.

use std::sync::Arc;
use std::time::Duration;

use tailwater_log::{AckMode, LogHandle};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::capture_status::{CaptureState, CaptureStatus};
use crate::persisted_manager_orders::{AckerState, CaptureOrder, OrderNumber};
use crate::{CaptureError, CaptureOptions};

/// How long a capture may take to execute an order of the manager. Most of this time is needed for two
/// fdatasyncs: one of the log, and one of the file that stores the orders.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many orders may be queued while the capture is busy. A manager never has that many orders waiting.
const QUEUED_ORDERS_MAX: usize = 16;

/// An order of the manager that was sent to the capture and is not executed yet.
#[derive(Debug)]
pub(crate) struct OrderRequest {
    pub order: CaptureOrder,
    pub number: OrderNumber,
    pub answer: oneshot::Sender<Result<(), CaptureError>>,
}

pub(crate) fn order_channel() -> (mpsc::Sender<OrderRequest>, mpsc::Receiver<OrderRequest>) {
    mpsc::channel(QUEUED_ORDERS_MAX)
}

/// A handle for a manager to a running capture, which is an acker: a replica that sends semi-sync ACKs. Cheap
/// to clone. After the capture has ended, the handle still works and reports that the capture has ended.
///
/// The capture refuses an order if it has executed one with a higher [`OrderNumber`]. Each method returns in
/// bounded time. If the future of an order is dropped early, the order may still be executed.
#[derive(Debug, Clone)]
pub struct CaptureAcker {
    /// The name of the capture's own source. The capture can be ordered to follow it like any other server.
    source: String,
    /// The names of the other servers that the capture can follow.
    servers: Arc<[String]>,
    orders: mpsc::Sender<OrderRequest>,
    log: LogHandle,
    status: Arc<CaptureStatus>,
    /// Whether every transaction is durable before the capture acknowledges it.
    durable: bool,
}

impl CaptureAcker {
    pub(crate) fn new(
        options: &CaptureOptions,
        orders: mpsc::Sender<OrderRequest>,
        log: LogHandle,
        status: Arc<CaptureStatus>,
    ) -> Self {
        let servers = options.servers.keys().cloned().collect();
        // Without semi-sync, the capture sends no ACKs at all, so none precedes the sync of a transaction.
        let durable = options.log.ack == AckMode::Durable || !options.semi_sync;
        Self { source: options.name.clone(), servers, orders, log, status, durable }
    }

    /// Stops the capture until an order to start or to follow a server; a restart does not start it. When
    /// this method returns, the capture acknowledges nothing more: its connection is closed, and every whole
    /// transaction that it received is durable. The order is durable too.
    ///
    /// # Errors
    /// [`CaptureError::StaleOrder`]; [`CaptureError::SupersededOrder`]; [`CaptureError::OrderNotTaken`];
    /// [`CaptureError::Log`] if the order could not be persisted. In the last case the capture continues, but
    /// may be stopped after a restart.
    pub async fn stop(&self, number: impl Into<OrderNumber>) -> Result<AckerState, CaptureError> {
        self.send_order(CaptureOrder::Stop, number.into()).await?;
        self.read()
    }

    /// Reads the acker's state and which transactions its log has. Changes nothing.
    ///
    /// # Errors
    /// [`CaptureError::Log`] if the log cannot be read.
    pub fn read(&self) -> Result<AckerState, CaptureError> {
        // Read the orders before the log: if the orders have stopped the capture, the log then contains
        // everything that the capture acknowledged.
        let orders = self.status.orders();
        let holds = self.log.gtid_set();
        let before = self.log.gtids_purged_or_before()?.or_else(|| holds.clone());
        Ok(AckerState { orders, durable: self.durable, holds, before })
    }

    /// Lets the capture run again, from the same server as before. Does not wait for the stream. A capture
    /// that is already running reconnects.
    ///
    /// # Errors
    /// The errors of [`Self::stop`].
    pub async fn start(&self, number: impl Into<OrderNumber>) -> Result<(), CaptureError> {
        self.send_order(CaptureOrder::Start, number.into()).await
    }

    /// Makes the capture follow `server` from now on, also after restarts. Waits at most `timeout` for the
    /// stream to start.
    ///
    /// # Errors
    /// The errors of [`Self::stop`]. [`CaptureError::UnknownServer`]. [`CaptureError::NotFollowing`] if the
    /// stream does not start in time. The capture then continues to try.
    pub async fn follow(
        &self,
        number: impl Into<OrderNumber>,
        server: &str,
        timeout: Duration,
    ) -> Result<(), CaptureError> {
        let is_own = server == self.source;
        if !is_own && !self.servers.iter().any(|known| known == server) {
            let known = self.servers.iter().map(String::as_str).chain([self.source.as_str()]);
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(CaptureError::UnknownServer { server: server.to_owned(), known });
        }
        let until = Instant::now() + timeout;
        let order = CaptureOrder::Follow((!is_own).then(|| server.to_owned()));
        self.send_order(order, number.into()).await?;
        self.wait_until_streaming(server, until).await
    }

    async fn send_order(&self, order: CaptureOrder, number: OrderNumber) -> Result<(), CaptureError> {
        // Check the number here too: an order that is refused must not interrupt the stream.
        self.status.orders().check(number)?;
        let not_executed = |reason: &str| CaptureError::OrderNotTaken { reason: reason.to_owned() };
        let (answer, result) = oneshot::channel();
        let sent_and_answered = async {
            let sent = self.orders.send(OrderRequest { order, number, answer }).await;
            sent.map_err(|_| not_executed("the capture has ended"))?;
            result.await.map_err(|_| not_executed("the capture ended before it executed the order"))?
        };
        match tokio::time::timeout(ORDER_TIMEOUT, sent_and_answered).await {
            Ok(result) => result,
            Err(_) => Err(not_executed("the capture did not answer in time; it may still execute the order")),
        }
    }

    async fn wait_until_streaming(&self, server: &str, until: Instant) -> Result<(), CaptureError> {
        let failed = |reason: String| CaptureError::NotFollowing { server: server.to_owned(), reason };
        loop {
            // Subscribe to changes before reading the state, so that no change is missed.
            let changed = self.status.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let state = self.status.snapshot().state;
            match &state {
                CaptureState::Streaming => return Ok(()),
                CaptureState::Refused(reason) => return Err(failed(reason.clone())),
                CaptureState::StoppedByOrder(_) => {
                    return Err(failed("another order stopped the capture".into()));
                }
                CaptureState::Stopped => return Err(failed("the capture has ended".into())),
                CaptureState::Connecting | CaptureState::Waiting(_) => {}
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                return Err(failed(match state {
                    CaptureState::Waiting(reason) => reason,
                    _ => "the server does not answer in time".into(),
                }));
            }
        }
    }
}
