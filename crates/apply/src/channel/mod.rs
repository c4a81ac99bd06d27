//! A channel: takes one log to one target, and goes on by itself for as long as it can.
//!
//! The map:
//! - [`options`], [`status`]: what an operator chooses and sees. This file: start, stop, edits, trying again.
//! - `run`: one run of it; `begin` says from where. `reader`: log to transactions. `crew`: all workers; `worker`: a batch to
//!   the target, with `writer`, `packets` and `row_count` (whether all of it was changed). `statements`, `statement_filter`, `fingerprint`, `noted`,
//!   `predecessor`: what is no rows.
//! - `store`: progress on the target. `gtids`, `gtid_session`: identity there; `gtid_progress`: what is applied, which
//!   `publish` tells it. `retention`: what is kept for one that loses commits. `rate`: how fast; [`source_time`]: how late. `diagnose`: which row.

mod account_effects;
mod applied_scan;
mod changed_tables;
mod channel_lock;
mod ddl_exec_mode;
mod durability_wait;
mod event_status;
mod fingerprint;
mod grant_text;
mod gtid_progress;
mod gtid_publisher;
mod gtid_session;
mod intent_retention;
mod invoker;
mod log_retention;
mod nontransactional_rows;
pub mod options;
pub(crate) mod packets;
mod progress_row;
mod reader;
mod refused_row;
mod row_count;
pub(crate) mod row_writer;
mod run;
mod source_session;
pub mod source_time;
pub(crate) mod sql_literal;
mod sql_tokenizer;
mod start_position;
pub(crate) mod statement_filter;
mod statement_rerun;
mod statement_runner;
mod statement_text;
pub mod status;
mod store;
mod target_gtids;
mod temporary_role_admin;
mod transaction_rate;
mod worker;
mod worker_pool;

use std::time::Duration;

use tailwater_log::{LogHandle, LogPosition, blocking};
use tailwater_session::{Backoff, Endpoint};
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use ddl_exec_mode::DdlExecMode;
pub use options::{ChannelOptions, ChannelStart, GtidMode, OldTemporalPrecision, UntilCondition};
pub use source_time::SourceTime;
pub use status::{ChannelFault, ChannelState, ChannelStatus};

use crate::error::{ApplyError, ApplyRetry};
use crate::filter::FilterSet;
use run::{RunEnd, RunSetup};
use store::ChannelStore;

/// Commands that wait for the channel.
const COMMANDS_MAX: usize = 16;
/// So long is waited for the log's disk before what an operator names is looked up.
const DURABLE_WAIT_MAX: Duration = Duration::from_secs(5);

/// What can be changed on a running channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelEdit {
    /// Connections that apply side by side.
    pub workers: Option<usize>,
    /// The most source transactions in one target transaction.
    pub batch_transactions_max: Option<usize>,
    /// The most bytes of row images in one target transaction.
    pub batch_bytes_max: Option<usize>,
    /// The order of commits.
    pub commit_order: Option<crate::scheduler::CommitOrder>,
    /// Under which identity transactions stand on the target.
    pub gtid: Option<GtidMode>,
    /// What becomes of definitions where the target's tables are not the source's.
    pub ddl_exec_mode: Option<DdlExecMode>,
    /// Transactions are applied this many seconds after they committed on the source.
    pub delay_seconds: Option<u64>,
}

enum SupervisorCommand {
    Start(Option<UntilCondition>),
    /// With why.
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

/// A channel of this process.
#[derive(Debug)]
pub struct Channel {
    name: String,
    target: Endpoint,
    commands: mpsc::Sender<(SupervisorCommand, CommandReply)>,
    status: watch::Receiver<ChannelStatus>,
    task: JoinHandle<()>,
}

/// The name under which a log remembers a channel.
pub fn log_reader_name(channel: &str) -> String {
    format!("channel {channel}")
}

impl Channel {
    /// Starts a channel, on the tokio runtime that this is called in. It begins to apply at once, unless `stopped`. How late it is
    /// goes by `source_time`.
    pub fn start(options: ChannelOptions, log: LogHandle, source_time: SourceTime, stopped: bool) -> Self {
        let reason = stopped.then(|| "its configuration has stopped = true".to_owned());
        Self::start_unless_stopped(options, log, source_time, reason)
    }

    /// The same; it stays stopped if there is a reason for it, which its status reports.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its target is.
    pub fn target(&self) -> &Endpoint {
        &self.target
    }

    /// What it says about itself, to be looked at or waited on.
    pub fn status(&self) -> watch::Receiver<ChannelStatus> {
        self.status.clone()
    }

    /// Goes on, behind what is applied; to `until`, if that is given.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`].
    pub async fn resume(&self, until: Option<UntilCondition>) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Start(until)).await
    }

    /// Stops when what is under way has committed, and tells the target what was applied.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`].
    pub async fn pause(&self) -> Result<(), ApplyError> {
        self.pause_with_reason("it was told to stop (`tailwater channel stop`)").await
    }

    /// The same, for a reason which its status tells.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`].
    pub async fn pause_with_reason(&self, reason: &str) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Stop(reason.to_owned())).await
    }

    /// Leaves a transaction out, for good; recorded on the target. A channel that failed goes on.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Session`] if the target cannot be told.
    pub async fn skip(&self, gtid: Gtid) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Skip(gtid)).await
    }

    /// Goes on as if exactly `gtids` were applied.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Start`] if the log does not hold what comes behind them.
    pub async fn seek(&self, gtids: GtidSet) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Seek(gtids)).await
    }

    /// Has other filters count from a transaction on, or from the next one that is not under way yet.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Filter`] for filters that make no sense; [`ApplyError::Start`] if the
    /// transaction is not in the log.
    pub async fn set_filters(&self, filters: FilterSet, from: Option<Gtid>) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Filter { filters, from }).await
    }

    /// Goes on, and up to `until`, or the transaction that it failed at, tolerates what the target has; see
    /// [`ChannelOptions::tolerate_until`].
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`]; [`ApplyError::Start`] if the log does not hold the transaction, or none is meant.
    pub async fn tolerate(&self, until: Option<Gtid>) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Tolerate(until)).await
    }

    /// Changes how it works.
    ///
    /// # Errors
    /// [`ApplyError::ChannelClosed`].
    pub async fn edit(&self, edit: ChannelEdit) -> Result<(), ApplyError> {
        self.send(SupervisorCommand::Set(edit)).await
    }

    /// Stops, and ends the channel.
    pub async fn shut_down(self) {
        // One that has ended by itself needs no telling.
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

/// Runs a channel again and again.
struct Supervisor {
    options: ChannelOptions,
    log: LogHandle,
    source_time: SourceTime,
    status: watch::Sender<ChannelStatus>,
    commands: mpsc::Receiver<(SupervisorCommand, CommandReply)>,
    /// Whether it is to apply.
    should_run: bool,
    single_step_until: Option<LogPosition>,
    /// The transaction that the target refused last.
    refused_gtid: Option<Gtid>,
    backoff: Backoff,
}

impl Drop for Supervisor {
    /// Who looks at a channel that has died must not take it for one that runs.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "its supervisor has died".to_owned();
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
                    // Whoever asked may have gone.
                    let _ = answer.send(result);
                }
                None if self.commands.is_closed() => return,
                None => {}
            }
        }
    }

    /// One run; ends with it, or with a command, which is given back.
    async fn run_once(&mut self) -> Option<(SupervisorCommand, CommandReply)> {
        let stop = CancellationToken::new();
        // What was wrong last stays until it has begun.
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
        let run = run::run(setup);
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
        if self.status.borrow().commits_total > commits_before {
            // It got on: the next failure is a new one.
            self.backoff.reset();
        }
        let wait = match end {
            Ok(RunEnd::StopRequested) => None,
            Ok(RunEnd::ToleranceDone) => {
                info!(channel = self.options.name, "from here on nothing is tolerated any more");
                self.options.tolerate_until = None;
                None
            }
            Ok(RunEnd::SingleStepDone) => {
                self.single_step_until = None;
                None
            }
            Ok(end @ (RunEnd::UntilReached | RunEnd::LogClosed)) => {
                let reason = match end {
                    RunEnd::LogClosed => "its log was closed",
                    _ => "it has reached where it was to stop",
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

    /// Judges a failure: `Some` to try again after a while, otherwise at once, or not at all.
    async fn handle_failure(&mut self, mut failure: Box<run::RunFailure>) -> Option<Duration> {
        let name = self.options.name.clone();
        if failure.error.server_error().is_some_and(store::is_taken_over) {
            failure.error = ApplyError::TakenOver { channel: name.clone() };
        }
        match failure.error.retry() {
            ApplyRetry::Later => {
                let wait = self.backoff.next_delay();
                warn!(
                    channel = name,
                    code = failure.error.code(),
                    "trying again in {wait:?}: {}",
                    failure.error
                );
                self.set_fault(ChannelState::Connecting, &failure.error);
                return Some(wait);
            }
            ApplyRetry::AfterChange => {}
        }
        let error = match failure.batch.filter(|_| failure.error.is_rejection()) {
            // One of many: which one, and are the others good?
            Some(span) if failure.transactions > 1 && self.single_step_until.is_none() => {
                warn!(
                    channel = name,
                    "one of {} transactions is refused; each by itself", failure.transactions
                );
                self.single_step_until = Some(span.end);
                return None;
            }
            _ => match failure.transaction {
                Some(transaction) if failure.error.is_rejection() => {
                    self.refused_gtid.clone_from(&transaction.gtid);
                    refused_row::diagnose(&self.options, &transaction, failure.error).await
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

    /// Lets the log have durably what an operator may name, as it came a moment ago. No longer than anyone would wait for an answer.
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
                // Who asked, and looks, must not see how it was before.
                self.set_state(ChannelState::Connecting);
                self.backoff = backoff();
            }
            SupervisorCommand::Tolerate(until) => {
                let failed = self.status.borrow().state == ChannelState::Failed;
                let refused = self.refused_gtid.clone().filter(|_| failed);
                let until = until.or(refused).ok_or_else(|| ApplyError::Start {
                    reason: "it has not failed at a transaction: name one".to_owned(),
                })?;
                self.wait_for_durable_log().await?;
                blocking(|| target_gtids::position_of(&self.log, &until))?;
                warn!(channel = self.options.name, %until, "tolerates what the target has, up to this transaction");
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
                info!(channel = self.options.name, %gtid, "left out, by an operator");
                // One that was told to stop stays so.
                if self.status.borrow().state == ChannelState::Failed {
                    self.should_run = true;
                    self.set_state(ChannelState::Connecting);
                }
            }
            SupervisorCommand::Seek(gtids) => self.seek(&gtids).await?,
            SupervisorCommand::Filter { filters, from } => self.set_filters(filters, from).await?,
            SupervisorCommand::Set(edit) => {
                let options = &mut self.options;
                options.workers = edit.workers.unwrap_or(options.workers).max(1);
                options.batch_transactions_max =
                    edit.batch_transactions_max.unwrap_or(options.batch_transactions_max).max(1);
                options.batch_bytes_max = edit.batch_bytes_max.unwrap_or(options.batch_bytes_max).max(1);
                options.commit_order = edit.commit_order.unwrap_or(options.commit_order);
                options.gtid = edit.gtid.unwrap_or(options.gtid);
                options.ddl_exec_mode = edit.ddl_exec_mode.unwrap_or(options.ddl_exec_mode);
                options.delay = edit.delay_seconds.map_or(options.delay, Duration::from_secs);
                let (workers, gtid) = (options.workers, options.gtid);
                self.status.send_modify(|status| (status.workers, status.gtid) = (workers, gtid));
            }
        }
        Ok(())
    }

    async fn store(&self) -> Result<(ChannelStore, store::Claim, store::ChannelRecord), ApplyError> {
        let unlogged = ChannelOptions { gtid: GtidMode::Log, ..self.options.clone() };
        let connection = row_writer::connect(&unlogged).await?;
        ChannelStore::take_over(connection, &self.options.name, self.options.gtid).await
    }

    async fn seek(&mut self, gtids: &GtidSet) -> Result<(), ApplyError> {
        self.wait_for_durable_log().await?;
        let position = blocking(|| target_gtids::start_after(&self.log, gtids))?;
        let (mut store, claim, kept) = self.store().await?;
        let text = target_gtids::text(gtids);
        let applied = crate::progress::AppliedSet::new(position);
        let target = target_gtids::read_target_gtids(store.connection()).await?;
        store.delete_intents().await?;
        store.save_start(&claim, &applied, &kept.source, &text, &target.has).await?;
        info!(channel = self.options.name, gtids = text, "goes on behind these, by an operator");
        Ok(())
    }

    async fn set_filters(&mut self, filters: FilterSet, from: Option<Gtid>) -> Result<(), ApplyError> {
        let (mut store, _, kept) = self.store().await?;
        let mut versions = start_position::filters(&self.options, &kept)?;
        // Nothing that is before the log can come again, not even by a seek.
        versions.forget_below(start_position::oldest(&self.log));
        let position = match &from {
            Some(gtid) => {
                self.wait_for_durable_log().await?;
                blocking(|| target_gtids::position_of(&self.log, gtid))?
            }
            // Everything under way has committed: what is not applied yet meets the new filters, up to the last of it.
            None => kept.applied.as_ref().map_or(LogPosition::ZERO, crate::progress::AppliedSet::high),
        };
        let version = versions.edit(position, from.as_ref().map(ToString::to_string), filters)?;
        let json = serde_json::to_string(&versions).map_err(|error| ApplyError::ProgressRecord {
            channel: self.options.name.clone(),
            reason: error.to_string(),
        })?;
        store.save_filters(&json).await?;
        info!(channel = self.options.name, version, %position, "other filters count from here on");
        self.status.send_modify(|status| (status.filter_version, status.is_complete) = (version, false));
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
