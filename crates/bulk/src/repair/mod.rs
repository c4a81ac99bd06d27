//! Writes what differs on the target as it is on the source, row by row, while both are written to; then compares those rows
//! again.
//!
//! - [`row_repairer`]: one row; [`literals`]: its values as they are written.

mod literals;
mod row_repairer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_session::{Connection, Granted, SessionError};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::check::comparer::Comparer;
use crate::check::pair::{PairSide, TablePair};
use crate::check::{self, CheckOptions, DifferenceKind, RowDifference, TableFinding};
use crate::error::BulkError;
use crate::load;
use crate::progress::BulkProgress;
use crate::schema::TableName;
use crate::sql::literal;
use crate::throttle::Throttle;
use row_repairer::{RepairAttempt, RowRepairer};

/// How often rows are tried whose repair may need that of others, after the last time that this helped one.
const PASSES: usize = 4;

/// How to repair.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// What to compare, and how. With a state that holds a finished or interrupted check, and
    /// [`RepairOptions::from_state`], its differences are repaired and nothing is compared first.
    pub check: CheckOptions,
    /// Take the differences out of the state, of the tables that are selected.
    pub from_state: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Have the target log what is written, for servers that replicate from it.
    pub log_to_binlog: bool,
    /// Repair tables with triggers too, and let these act.
    pub fire_triggers: bool,
    /// How long to wait for a row's lock on the target, in whole seconds.
    pub lock_wait_max: Duration,
}

impl RepairOptions {
    /// Options with defaults: what is written is in no binlog, no trigger acts, and locks are waited for 5 s.
    pub fn new(check: CheckOptions) -> Self {
        Self {
            check,
            from_state: false,
            dry_run: false,
            log_to_binlog: false,
            fire_triggers: false,
            lock_wait_max: Duration::from_secs(5),
        }
    }
}

/// What is done to a row of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairAction {
    /// It is not there and comes.
    Insert,
    /// It gets the source's values.
    Update,
    /// The source does not have it, and it goes.
    Delete,
}

impl RepairAction {
    /// Its name, for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// What became of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairOutcome {
    /// This was done, and the row is the same now; or would be done, in a dry run.
    Done(RepairAction),
    /// The row was the same already when it came to it.
    Same,
    /// It differs still, and why.
    Remains(String),
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct RepairReport {
    /// Each difference and what became of it.
    pub rows: Vec<(RowDifference, RepairOutcome)>,
    /// What there is about whole tables, which is not repaired.
    pub findings: Vec<TableFinding>,
    /// The check whose state it took the differences from did not finish: what it had not compared is not known.
    pub unfinished: bool,
    /// How long all of it took.
    pub elapsed: Duration,
}

impl RepairReport {
    /// Whether nothing is left that differs, as far as it was known.
    pub fn is_equal(&self) -> bool {
        self.findings.is_empty()
            && !self.unfinished
            && !self.rows.iter().any(|(_, outcome)| matches!(outcome, RepairOutcome::Remains(_)))
    }
}

/// Repairs. What it has done when it fails, is cancelled or is killed, is done: each row is written in a transaction of its
/// own.
///
/// # Errors
/// As [`check::check`]; [`BulkError::RepairDenied`] if the target does not let this user write.
pub async fn repair(
    options: &RepairOptions,
    throttle: Throttle,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<RepairReport, BulkError> {
    let begun = Instant::now();
    let throttle = Arc::new(throttle);
    let (differences, findings, unfinished) = if options.from_state {
        let found = check::found_before(&options.check)?;
        (found.differences, found.findings, !found.is_finished)
    } else {
        let report =
            check::check(&options.check, Arc::clone(&throttle), Arc::clone(&progress), cancel.clone())
                .await?;
        (report.differences, report.findings, false)
    };
    let marks = check::marks();
    let work = async {
        let mut comparing = check::connect(&options.check, &marks, 0, &progress).await?;
        set_up(&mut comparing.target, options).await?;
        let mut rows = Vec::with_capacity(differences.len());
        for (name, differences) in by_table(differences) {
            rows.extend(table(options, &mut comparing, &throttle, &name, differences).await?);
        }
        let Comparer { mut source, target, waiting, .. } = comparing;
        waiting.finish(&mut source).await?;
        source.close().await;
        target.close().await;
        Ok::<_, BulkError>(rows)
    };
    let rows = tokio::select! {
        rows = work => rows,
        () = cancel.cancelled() => Err(BulkError::InterruptedWithoutState),
    };
    if rows.is_err() {
        check::take_marks_away(&options.check, &marks).await;
    }
    Ok(RepairReport { rows: rows?, findings, unfinished, elapsed: begun.elapsed() })
}

/// Rows that are written must be the source's own: no default, no cascade and no check comes between.
async fn set_up(target: &mut Connection, options: &RepairOptions) -> Result<(), BulkError> {
    if options.dry_run {
        return Ok(());
    }
    let lock_wait_seconds = options.lock_wait_max.as_secs().max(1);
    // Rows of other tables that a key refers to are compared and repaired by themselves.
    let sql = format!(
        "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', foreign_key_checks = 0, \
         innodb_lock_wait_timeout = {lock_wait_seconds}"
    );
    // Transactions are REPEATABLE READ, as the connection was made: gaps are locked, so that a row that is not there cannot come
    // meanwhile.
    target.execute(&sql).await?;
    load::target_session::carry_violations(target).await?;
    if options.log_to_binlog {
        return Ok(());
    }
    match target.execute("SET SESSION sql_log_bin = 0").await {
        Ok(_) => Ok(()),
        Err(SessionError::Server { error, .. }) => Err(BulkError::RepairDenied {
            server: target.endpoint().into(),
            advice: match target.server().flavour {
                Flavour::MySql => "grant it SESSION_VARIABLES_ADMIN, or repair with --log-to-binlog",
                Flavour::MariaDb => "grant it BINLOG ADMIN, or repair with --log-to-binlog",
            },
            error: Box::new(error),
        }),
        Err(error) => Err(error.into()),
    }
}

/// In each table first what must go, so that unique keys are free, then what changes, then what comes.
fn by_table(differences: Vec<RowDifference>) -> BTreeMap<TableName, Vec<RowDifference>> {
    let mut tables: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for difference in differences {
        tables.entry(difference.table_name()).or_default().push(difference);
    }
    for differences in tables.values_mut() {
        differences.sort_by_key(|difference| match difference.what {
            DifferenceKind::Extra => 0,
            DifferenceKind::Changed { .. } | DifferenceKind::Undecided => 1,
            DifferenceKind::Missing | DifferenceKind::Count { .. } => 2,
        });
    }
    tables
}

async fn table(
    options: &RepairOptions,
    comparing: &mut Comparer,
    throttle: &Throttle,
    name: &TableName,
    differences: Vec<RowDifference>,
) -> Result<Vec<(RowDifference, RepairOutcome)>, BulkError> {
    let remain = |reason: &str| {
        Ok(differences.iter().cloned().map(|row| (row, RepairOutcome::Remains(reason.into()))).collect())
    };
    let Some(pair) = check::tables::pair(&mut comparing.source, &mut comparing.target, name).await? else {
        return remain("the table is gone");
    };
    if !pair.mismatch.is_empty() {
        return remain("the columns of the table are not the same on both sides");
    }
    if !pair.shape(PairSide::Target).is_transactional() {
        // Nothing could be locked while the source is asked again, nor taken back.
        return remain("the table's engine on the target has no transactions");
    }
    if !options.fire_triggers
        && let Some(reason) = may_fire(&mut comparing.target, name).await?
    {
        return remain(reason);
    }
    let mut attempts: Vec<Option<RepairAttempt>> = vec![None; differences.len()];
    let mut open: Vec<_> = (0..differences.len()).collect();
    let mut passes_left = PASSES;
    while passes_left > 0 && !open.is_empty() {
        passes_left -= 1;
        let mut rows = RowRepairer { pair: &pair, comparing, dry_run: options.dry_run };
        let mut again = Vec::new();
        for index in open {
            throttle.pass(&rows.comparing.progress).await;
            let (Some(difference), Some(slot)) = (differences.get(index), attempts.get_mut(index)) else {
                continue;
            };
            let attempt = match difference.key.is_empty() {
                true => RepairAttempt::Impossible("no key tells the row from others".into()),
                false => rows.try_row(&difference.key).await?,
            };
            match attempt {
                RepairAttempt::Again(_) => again.push(index),
                RepairAttempt::Done(_) => passes_left = PASSES,
                RepairAttempt::Same | RepairAttempt::Impossible(_) => {}
            }
            *slot = Some(attempt);
        }
        // Where each row waits for the unique value of the next one, only the last can be written first.
        again.reverse();
        open = again;
    }
    let still = look_again(&pair, comparing, &differences).await?;
    let outcome = |difference: &RowDifference, attempt: Option<RepairAttempt>| {
        let differs = still.iter().any(|other| other.key == difference.key);
        match attempt {
            Some(RepairAttempt::Impossible(reason) | RepairAttempt::Again(reason)) => {
                RepairOutcome::Remains(reason)
            }
            Some(RepairAttempt::Done(action)) if differs == options.dry_run => RepairOutcome::Done(action),
            _ if differs => RepairOutcome::Remains("it differs again, or still".into()),
            _ => RepairOutcome::Same,
        }
    };
    let outcomes: Vec<_> =
        differences.iter().zip(attempts).map(|(difference, attempt)| outcome(difference, attempt)).collect();
    Ok(differences.into_iter().zip(outcomes).collect())
}

/// What still differs.
async fn look_again(
    pair: &TablePair,
    comparing: &mut Comparer,
    differences: &[RowDifference],
) -> Result<Vec<RowDifference>, BulkError> {
    let keys: Vec<_> =
        differences.iter().map(|difference| difference.key.clone()).filter(|key| !key.is_empty()).collect();
    let mut still = Vec::new();
    for keys in keys.chunks(pair.rows_at_once()) {
        still.extend(comparing.decide_batch(pair, keys).await?);
    }
    Ok(still)
}

/// Why triggers of a table may act, unless it has none. Who may not see them is shown an empty list.
async fn may_fire(connection: &mut Connection, name: &TableName) -> Result<Option<&'static str>, BulkError> {
    if !Granted::read(connection).await?.on_table("TRIGGER", &name.schema, &name.name) {
        return Ok(Some(
            "whether the table has triggers on the target, which would act, is not shown to a user without TRIGGER: grant it, \
             or see --fire-triggers",
        ));
    }
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = {} AND event_object_table = {}",
        literal(&name.schema),
        literal(&name.name)
    );
    let has_none = connection.query(&sql).await?.scalar() == Some("0");
    Ok((!has_none).then_some("the table has triggers on the target, which would act: see --fire-triggers"))
}
