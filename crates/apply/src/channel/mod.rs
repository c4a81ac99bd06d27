//! A channel applies one log to one target, and retries after temporary failures.
//!
//! The modules:
//! - [`channel_options`], [`channel_status`]: what an operator sets and sees. This file: the supervisor,
//!   which starts, stops and edits the channel, and retries.
//! - `channel_coordinator`: one run of a channel. `start_position`, `log_durability_wait` and
//!   `applied_gtids_from_log` find where it starts. `log_reader` turns the log into transactions.
//!   `worker_pool` holds all workers. `worker` writes one batch to the target, with `row_writer`,
//!   `multi_statement_packets` (few round trips) and `affected_rows_check` (whether all rows were changed).
//! - `statement_runner`, `source_statement_session`, `statement_filter`, `ddl_object_fingerprint`,
//!   `started_ddl_records`, `channel_lock`: transactions that are logged as statements instead of rows.
//! - `progress_store`, `worker_progress_row`: the progress on the target. `target_gtid_queries`,
//!   `gtid_next_session`: the GTIDs of the target. `applied_gtid_tracker`: the applied GTIDs, which
//!   `target_gtid_publisher` sets on the target. `applied_log_retention`: which part of the log is kept for a
//!   target that loses commits. `transaction_rate`: throughput; [`source_clock`]: lag. `rejected_row_search`:
//!   which row the target rejected.
//! - [`IdempotentSession`]: writes rows over existing rows, for a rejoin.

mod account_statement_effects;
mod account_statement_parser;
mod affected_rows_check;
mod applied_gtid_tracker;
mod applied_gtids_from_log;
mod applied_log_retention;
mod channel_coordinator;
mod channel_lock;
pub mod channel_options;
pub mod channel_status;
mod current_user_rewrite;
mod ddl_exec_mode;
mod ddl_object_fingerprint;
mod dml_statement_tables;
mod gtid_next_session;
pub(crate) mod hex_literal;
mod idempotent_row_writer;
mod log_durability_wait;
mod log_reader;
mod multi_statement_packets;
mod nontransactional_rows;
mod progress_store;
mod rejected_row_search;
mod repeatable_statement;
mod row_writer;
mod scheduled_event_status;
mod shared_channel_state;
mod slow_batch_trace_span;
pub mod source_clock;
mod source_statement_session;
mod sql_log_bin_off_connection;
mod sql_tokenizer;
mod start_position;
mod started_ddl_records;
pub(crate) mod statement_filter;
mod statement_rewrite;
mod statement_runner;
mod target_gtid_publisher;
mod target_gtid_queries;
mod temporary_role_admin_grant;
mod transaction_rate;
mod worker;
mod worker_activity;
mod worker_pool;
mod worker_progress_row;

use std::time::Duration;

use tailwater_log::{LogHandle, LogPosition, blocking};
use tailwater_session::{Backoff, Endpoint};
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use channel_options::{
    ChannelOptions, ChannelStart, GtidMode, OldTemporalPrecision, UntilCondition, log_reader_name,
};
pub use channel_status::{ChannelFault, ChannelState, ChannelStatus};
pub use ddl_exec_mode::DdlExecMode;
pub use idempotent_row_writer::IdempotentSession;
pub use source_clock::SourceTime;
pub use statement_filter::OWN_SCHEMA;
pub use worker_activity::{WorkerState, WorkerStatus};

use crate::error::{ApplyError, ApplyRetry};
use crate::replication_filter::FilterSet;
use channel_coordinator::{RunEnd, RunSetup};
use progress_store::ChannelStore;

/// The maximum number of commands that wait for the channel.
const COMMANDS_MAX: usize = 16;
/// Before the channel looks up a GTID that an operator names, it waits this long for the log's sync.
const DURABLE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The options that can be changed while a channel runs. `None` leaves an option unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelEdit {
    /// Number of connections that apply to the target in parallel.
    #[schema(minimum = 1, maximum = 64)]
    pub workers: Option<usize>,
    /// The maximum number of source transactions in one target transaction.
    #[schema(minimum = 1)]
    pub batch_transactions_max: Option<usize>,
    /// The maximum number of bytes of row images in one target transaction.
    #[schema(minimum = 1)]
    pub batch_bytes_max: Option<usize>,
    /// The order in which transactions commit on the target.
    pub commit_order: Option<crate::scheduler::CommitOrder>,
    /// Under which GTIDs the target logs the transactions.
    pub gtid: Option<GtidMode>,
    /// What to do with a `CREATE TABLE` or `DROP TABLE` if the target's tables differ from the source's.
    pub ddl_exec_mode: Option<DdlExecMode>,
    /// The number of seconds between a transaction's commit on the source and its apply on the target.
    #[schema(maximum = 2147483647)]
    pub delay_seconds: Option<u64>,
}

/// The greatest number of workers. A channel with more workers is not faster, because the additional workers
/// only wait for other workers. Each worker also needs a connection and memory.
pub const WORKERS_MAX: usize = 64;
/// The greatest delay, in seconds, as on the servers (`SOURCE_DELAY`).
pub const DELAY_SECONDS_MAX: u64 = i32::MAX as u64;

impl ChannelEdit {
    /// Checks that each option is in its range.
    ///
    /// # Errors
    /// The name and the range of the first option that is out of its range.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.workers.is_some_and(|workers| !(1..=WORKERS_MAX).contains(&workers)) {
            return Err(("workers", format!("1 to {WORKERS_MAX}")));
        }
        for (option, value) in [
            ("batch_transactions_max", self.batch_transactions_max),
            ("batch_bytes_max", self.batch_bytes_max),
        ] {
            if value == Some(0) {
                return Err((option, "at least 1".to_owned()));
            }
        }
        if self.delay_seconds.is_some_and(|delay| delay > DELAY_SECONDS_MAX) {
            return Err(("delay_seconds", format!("0 to {DELAY_SECONDS_MAX}")));
        }
        Ok(())
    }
}

enum SupervisorCommand {
    Start(Option<UntilCondition>),
    /// Stop the channel, for this reason.
    Stop(String),
    Skip(Gtid),
    Seek(GtidSet),
    Filter {
        filters: FilterSet,
        from: Option<Gtid>,
    },
    Set(ChannelEdit),
    Tolerate(Option<Gtid>),
}

type CommandReply = oneshot::Sender<Result<(), ApplyError>>;

/// A channel of this process. It runs until [`Channel::shut_down`].
#[derive(Debug)]
pub struct Channel {
    name: String,
    target: Endpoint,
    commands: mpsc::Sender<(SupervisorCommand, CommandReply)>,
    status: watch::Receiver<ChannelStatus>,
    task: JoinHandle<()>,
}

impl Channel {
    /// Starts a channel on the current tokio runtime. If `stopped` is false, the channel starts to apply at
    /// once. `source_time` measures the channel's lag.
    pub fn start(options: ChannelOptions, log: LogHandle, source_time: SourceTime, stopped: bool) -> Self {
        let reason = stopped.then(|| "the channel's configuration has stopped = true".to_owned());
        Self::start_unless_stopped(options, log, source_time, reason)
    }

    /// Starts a channel. If `stopped_because` has a reason, the channel stays stopped, and its status shows
    /// the reason.
    pub fn start_unless_stopped(
        options: ChannelOptions,
        log: LogHandle,
        source_time: SourceTime,
        stop_reason: Option<String>,
    ) -> Self {
        let stopped = stop_reason.is_some();
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (name, target) = (options.name.clone(), options.target.endpoint.clone());
        let state = if stopped { ChannelState::Stopped } else { ChannelState::Connecting };
        let first = ChannelStatus {
            name: name.clone(),
            state,
            stop_reason,
            workers: options.workers,
            gtid: options.gtid,
            delay_seconds: options.delay.as_secs(),
            ..ChannelStatus::default()
        };
        let (sender, status) = watch::channel(first);
        let supervisor = Supervisor {
            backoff: backoff(),
            options,
            log,
            source_time,
            status: sender,
            commands: received,
            should_run: !stopped,
            single_step_until: None,
            refused_gtid: None,
        };
        Self { name, target, commands, status, task: tokio::spawn(supervisor.run()) }
    }

    /// Returns the channel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of the channel's target.
    pub fn target(&self) -> &Endpoint {
        &self.target
    }

    /// Returns the channel's status, to read it or to wait for changes.
    pub fn status(&self) -> watch::Receiver<ChannelStatus> {
        self.status.clone()
    }

    /// Starts applying again after the last applied transaction. Stops at `until`, if given.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`].
    pub async fn resume(&self, until: Option<UntilCondition>) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Start(until)).await
    }

    /// Stops the channel once the running batches have committed, and sets the applied GTIDs on the target.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`].
    pub async fn pause(&self) -> Result<(), ApplyError> {
        self.pause_with_reason("an operator stopped the channel (`tailwater channel stop`)").await
    }

    /// Stops the channel like [`Channel::pause`], with a reason that the status shows.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`].
    pub async fn pause_with_reason(&self, reason: &str) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Stop(reason.to_owned())).await
    }

    /// Skips a transaction permanently, and records the skip on the target. If the channel has failed, it
    /// starts again.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Session`] if the channel cannot connect to the target.
    pub async fn skip(&self, gtid: Gtid) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Skip(gtid)).await
    }

    /// Starts the channel again as if exactly `gtids` were applied.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Start`] if the log does not contain the transactions that
    /// follow `gtids`.
    pub async fn seek(&self, gtids: GtidSet) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Seek(gtids)).await
    }

    /// Replaces the filters, starting with the transaction `from`. Without `from`, the new filters start with
    /// the first transaction that is not running yet.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Filter`] for invalid filters; [`ApplyError::Start`] if
    /// the transaction is not in the log.
    pub async fn set_filters(&self, filters: FilterSet, from: Option<Gtid>) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Filter { filters, from }).await
    }

    /// Starts the channel again, and tolerates rows of the target that differ from the source up to the
    /// transaction `until`. Without `until`, tolerates such rows up to the transaction that failed; see
    /// [`ChannelOptions::tolerate_until`].
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Start`] if the log does not contain the transaction, or
    /// if `until` is `None` and no transaction failed.
    pub async fn tolerate(&self, until: Option<Gtid>) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Tolerate(until)).await
    }

    /// Changes options of the channel.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::OptionOutOfRange`].
    pub async fn edit(&self, edit: ChannelEdit) -> Result<(), ApplyError> {
        edit.check().map_err(|(option, range)| ApplyError::OptionOutOfRange {
            channel: self.name.clone(),
            option,
            range,
        })?;
        self.send(SupervisorCommand::Set(edit)).await
    }

    /// Stops the channel and ends its task.
    pub async fn shut_down(self) {
        // Ignore an error: the pause fails only if the channel has already ended.
        let _ = self.pause().await;
        drop(self.commands);
        let _ = self.task.await;
    }

    async fn send(&self, command: SupervisorCommand) -> Result<(), ApplyError> {
        let gone = || ApplyError::ChannelClosed { channel: self.name.clone() };
        let (answer, answered) = oneshot::channel();
        self.commands.send((command, answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(5), u64::from(std::process::id()))
}

/// Starts a new run of the channel after each run that ends.
struct Supervisor {
    options: ChannelOptions,
    log: LogHandle,
    source_time: SourceTime,
    status: watch::Sender<ChannelStatus>,
    commands: mpsc::Receiver<(SupervisorCommand, CommandReply)>,
    /// Whether the channel should apply now.
    should_run: bool,
    single_step_until: Option<LogPosition>,
    /// The GTID of the last transaction that the target rejected.
    refused_gtid: Option<Gtid>,
    backoff: Backoff,
}

impl Drop for Supervisor {
    /// If the supervisor panics, the status must not show a running channel.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "the channel's supervisor has panicked".to_owned();
            let error = ApplyError::InternalFault { channel: self.options.name.clone(), what };
            self.set_fault(ChannelState::Failed, &error);
        }
    }
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            let command = if self.should_run { self.run_once().await } else { self.commands.recv().await };
            match command {
                Some((command, answer)) => {
                    let result = self.execute(command).await;
                    // The caller may no longer wait for the answer.
                    let _ = answer.send(result);
                }
                None if self.commands.is_closed() => return,
                None => {}
            }
        }
    }

    /// Runs the channel until the run ends or a command arrives. Returns the command, if there is one.
    async fn run_once(&mut self) -> Option<(SupervisorCommand, CommandReply)> {
        let stop = CancellationToken::new();
        // The error of the last run stays in the status until the channel runs again.
        self.status.send_modify(|status| {
            (status.state, status.lag_seconds, status.stop_reason) = (ChannelState::Connecting, None, None);
        });
        let setup = RunSetup {
            options: self.options.clone(),
            log: self.log.clone(),
            source_time: self.source_time.clone(),
            stop: stop.clone(),
            single_step_until: self.single_step_until,
            status: self.status.clone(),
        };
        let commits_before = self.status.borrow().commits_total;
        let run = channel_coordinator::run(setup);
        tokio::pin!(run);
        let mut command = None;
        let end = tokio::select! {
            end = &mut run => end,
            received = self.commands.recv() => {
                command = received;
                stop.cancel();
                run.await
            }
        };
        // The workers have ended.
        self.status
            .send_modify(|status| (status.waiting_transactions, status.worker_states) = (0, Vec::new()));
        if self.status.borrow().commits_total > commits_before {
            // The run applied transactions, so the next failure starts a new backoff.
            self.backoff.reset();
        }
        let wait = match end {
            Ok(RunEnd::StopRequested) => None,
            Ok(RunEnd::ToleranceDone) => {
                info!(
                    channel = self.options.name,
                    "the channel no longer tolerates differences: rows of the target that differ from the source stop it again"
                );
                self.options.tolerate_until = None;
                None
            }
            Ok(RunEnd::SingleStepDone) => {
                self.single_step_until = None;
                None
            }
            Ok(end @ (RunEnd::UntilReached | RunEnd::LogClosed)) => {
                let reason = match end {
                    RunEnd::LogClosed => "the log of the channel was closed",
                    _ => "the channel has reached its until condition",
                };
                info!(channel = self.options.name, "the channel has stopped: {reason}");
                self.should_run = false;
                self.set_stopped(reason.to_owned());
                None
            }
            Err(failure) => self.handle_failure(failure).await,
        };
        if command.is_some() {
            return command;
        }
        if let Some(wait) = wait {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                received = self.commands.recv() => return received,
            }
        }
        None
    }

    /// Classifies a failure. Returns how long the channel must wait before a retry. Returns `None` if it
    /// retries at once or does not retry.
    async fn handle_failure(
        &mut self,
        mut failure: Box<channel_coordinator::RunFailure>,
    ) -> Option<Duration> {
        let name = self.options.name.clone();
        if failure.error.server_error().is_some_and(progress_store::is_taken_over) {
            failure.error = ApplyError::TakenOver { channel: name.clone() };
        }
        match failure.error.retry() {
            ApplyRetry::Later => {
                let wait = self.backoff.next_delay();
                warn!(
                    channel = name,
                    code = failure.error.code(),
                    "the channel tries again in {wait:?}: {}",
                    failure.error
                );
                self.set_fault(ChannelState::Connecting, &failure.error);
                return Some(wait);
            }
            ApplyRetry::AfterChange => {}
        }
        let error = match failure.batch.filter(|_| failure.error.is_rejection()) {
            // The target rejected one transaction of several. To find that transaction, apply the
            // transactions of the batch one by one.
            Some(span) if failure.transactions > 1 && self.single_step_until.is_none() => {
                warn!(
                    channel = name,
                    "the target rejected one of {} transactions; the channel applies these transactions one by one",
                    failure.transactions
                );
                self.single_step_until = Some(span.end);
                return None;
            }
            _ => match failure.transaction {
                Some(transaction) if failure.error.is_rejection() => {
                    self.refused_gtid.clone_from(&transaction.gtid);
                    rejected_row_search::diagnose(&self.options, &transaction, failure.error).await
                }
                _ => failure.error,
            },
        };
        self.single_step_until = None;
        self.should_run = false;
        error!(channel = name, code = error.code(), "the channel has stopped: {error}");
        self.set_fault(ChannelState::Failed, &error);
        None
    }

    /// Waits until the log has synced the newest transactions, because an operator may name the GTID of one
    /// of these transactions. Waits at most [`DURABLE_WAIT_MAX`], so that the operator gets an answer in
    /// time.
    async fn wait_for_durable_log(&self) -> Result<(), ApplyError> {
        match tokio::time::timeout(DURABLE_WAIT_MAX, self.log.wait_until_written_is_durable()).await {
            Ok(settled) => settled.map(drop).map_err(ApplyError::from),
            Err(_) => Ok(()),
        }
    }

    async fn execute(&mut self, command: SupervisorCommand) -> Result<(), ApplyError> {
        match command {
            SupervisorCommand::Start(until) => {
                self.options.until = until;
                self.should_run = true;
                // A caller that reads the status next must not see the previous state.
                self.set_state(ChannelState::Connecting);
                self.backoff = backoff();
            }
            SupervisorCommand::Tolerate(until) => {
                let failed = self.status.borrow().state == ChannelState::Failed;
                let refused = self.refused_gtid.clone().filter(|_| failed);
                let until = until.or(refused).ok_or_else(|| ApplyError::Start {
                    reason: "the channel has not failed at a transaction, so a GTID must be given".to_owned(),
                })?;
                self.wait_for_durable_log().await?;
                blocking(|| target_gtid_queries::position_of(&self.log, &until))?;
                warn!(
                    channel = self.options.name,
                    %until,
                    "the channel tolerates rows of the target that differ from the source, up to this transaction"
                );
                self.options.tolerate_until = Some(until);
                self.should_run = true;
                self.backoff = backoff();
                self.set_state(ChannelState::Connecting);
            }
            SupervisorCommand::Stop(reason) => {
                self.should_run = false;
                self.set_stopped(reason);
            }
            SupervisorCommand::Skip(gtid) => {
                self.store().await?.0.skip(&gtid.to_string()).await?;
                self.status.send_modify(|status| status.is_complete = false);
                info!(channel = self.options.name, %gtid, "an operator skipped this transaction");
                // A channel that an operator has stopped stays stopped.
                if self.status.borrow().state == ChannelState::Failed {
                    self.should_run = true;
                    self.set_state(ChannelState::Connecting);
                }
            }
            SupervisorCommand::Seek(gtids) => self.seek(&gtids).await?,
            SupervisorCommand::Filter { filters, from } => self.set_filters(filters, from).await?,
            SupervisorCommand::Set(edit) => {
                let options = &mut self.options;
                options.workers = edit.workers.unwrap_or(options.workers);
                options.batch_transactions_max =
                    edit.batch_transactions_max.unwrap_or(options.batch_transactions_max);
                options.batch_bytes_max = edit.batch_bytes_max.unwrap_or(options.batch_bytes_max);
                options.commit_order = edit.commit_order.unwrap_or(options.commit_order);
                options.gtid = edit.gtid.unwrap_or(options.gtid);
                options.ddl_exec_mode = edit.ddl_exec_mode.unwrap_or(options.ddl_exec_mode);
                options.delay = edit.delay_seconds.map_or(options.delay, Duration::from_secs);
                let (workers, gtid, delay) = (options.workers, options.gtid, options.delay.as_secs());
                self.status.send_modify(|status| {
                    (status.workers, status.gtid, status.delay_seconds) = (workers, gtid, delay);
                });
            }
        }
        Ok(())
    }

    async fn store(
        &self,
    ) -> Result<(ChannelStore, progress_store::Claim, progress_store::ChannelRecord), ApplyError> {
        let unlogged = ChannelOptions { gtid: GtidMode::Log, ..self.options.clone() };
        let connection = row_writer::connect(&unlogged).await?;
        ChannelStore::take_over(connection, &self.options.name, self.options.gtid).await
    }

    async fn seek(&mut self, gtids: &GtidSet) -> Result<(), ApplyError> {
        self.wait_for_durable_log().await?;
        let position = blocking(|| target_gtid_queries::start_after(&self.log, gtids))?;
        let (mut store, claim, record) = self.store().await?;
        let text = target_gtid_queries::text(gtids);
        let applied = crate::applied_transactions::AppliedSet::new(position);
        let target = target_gtid_queries::read_target_gtids(store.connection()).await?;
        store.delete_intents().await?;
        store.save_start(&claim, &applied, &record.source, &text, &target.has).await?;
        info!(
            channel = self.options.name,
            gtids = text,
            "an operator moved the channel; it resumes after these GTIDs"
        );
        Ok(())
    }

    async fn set_filters(&mut self, filters: FilterSet, from: Option<Gtid>) -> Result<(), ApplyError> {
        let (mut store, _, record) = self.store().await?;
        let mut versions = start_position::filters(&self.options, &record)?;
        // Transactions before the log's oldest entry can never be applied again, not even after a seek. So
        // the filters for them are no longer needed.
        versions.forget_below(start_position::oldest(&self.log));
        let position = match &from {
            Some(gtid) => {
                self.wait_for_durable_log().await?;
                blocking(|| target_gtid_queries::position_of(&self.log, gtid))?
            }
            // All batches have committed, so the new filters start at the highest applied position.
            None => record
                .applied
                .as_ref()
                .map_or(LogPosition::ZERO, crate::applied_transactions::AppliedSet::high),
        };
        let version = versions.edit(position, from.as_ref().map(ToString::to_string), filters.clone())?;
        let json = serde_json::to_string(&versions).map_err(|error| ApplyError::ProgressRecord {
            channel: self.options.name.clone(),
            reason: error.to_string(),
        })?;
        store.save_filters(&json).await?;
        info!(channel = self.options.name, version, %position, "the new filters take effect from this position on");
        self.status.send_modify(|status| {
            (status.filter_version, status.is_complete, status.filters) = (version, false, Some(filters));
        });
        Ok(())
    }

    fn set_state(&self, state: ChannelState) {
        self.status.send_modify(|status| {
            (status.state, status.fault) = (state, None);
            (status.lag_seconds, status.stop_reason) = (None, None);
        });
    }

    fn set_stopped(&self, reason: String) {
        self.set_state(ChannelState::Stopped);
        self.status.send_modify(|status| status.stop_reason = Some(reason));
    }

    fn set_fault(&self, state: ChannelState, error: &ApplyError) {
        let fault = ChannelFault::of(error);
        self.status.send_modify(|status| {
            (status.state, status.fault) = (state, Some(fault));
            (status.lag_seconds, status.stop_reason) = (None, None);
        });
    }
}
