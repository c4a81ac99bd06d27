//! Repairs rows of the target that differ from the source, one by one and while clients write to both
//! servers, and then compares these rows again.
//!
//! - [`row_repairer`]: repairs one row; [`sql_literals`]: writes its values as literals.

mod row_repairer;
mod sql_literals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_session::{Connection, SessionError, UserPrivileges};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::table_check::chunk_comparer::Comparer;
use crate::table_check::table_pair::{PairSide, TablePair};
use crate::table_check::{self, CheckOptions, DifferenceKind, RowDifference, TableFinding};
use row_repairer::{RepairAttempt, RowRepairer};
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::TableName;
use tailwater_tables::session_settings::allow_violations;
use tailwater_tables::throttle::Throttle;
use tailwater_wire::sql_quote::string_literal;

/// Maximum number of passes without a repaired row. Each pass tries again to repair the rows that depend on
/// other rows.
const PASSES: usize = 4;

/// The options of a repair.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// What to compare, and how. With [`RepairOptions::from_state`], the differences in the state file of a
    /// finished or interrupted check are repaired without a new comparison.
    pub check: CheckOptions,
    /// Whether to take the differences from the state file of an earlier check, instead of comparing the
    /// tables.
    pub from_state: bool,
    /// Whether to only report what would be done.
    pub dry_run: bool,
    /// Whether the target logs the repair in its binlog, for its own replicas.
    pub log_to_binlog: bool,
    /// Whether to repair tables with triggers. Their triggers then fire.
    pub fire_triggers: bool,
    /// The longest time to wait for a row lock on the target, in whole seconds.
    pub lock_wait_max: Duration,
}

impl RepairOptions {
    /// The default options: no binlog, no triggers, and a wait of 5 s for locks.
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

/// A change of a row on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairAction {
    /// The target lacks the row: insert it.
    Insert,
    /// The values differ: set those of the source.
    Update,
    /// The source lacks the row: delete it.
    Delete,
}

impl RepairAction {
    /// Returns the name of the action, for output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The outcome of the repair of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairOutcome {
    /// The row was repaired by this action and is equal now. In a dry run, a repair would have this outcome.
    Done(RepairAction),
    /// The row was already equal.
    Same,
    /// The row still differs, for this reason.
    Remains(String),
}

/// The result of a repair.
#[derive(Debug, Clone, Default)]
pub struct RepairReport {
    /// Each difference and its outcome.
    pub rows: Vec<(RowDifference, RepairOutcome)>,
    /// Findings about whole tables, which are not repaired.
    pub findings: Vec<TableFinding>,
    /// Whether the differences come from a check that did not finish, so that some rows were not compared.
    pub unfinished: bool,
    /// How long the repair took.
    pub elapsed: Duration,
}

impl RepairReport {
    /// Whether no known difference remains.
    pub fn is_equal(&self) -> bool {
        self.findings.is_empty()
            && !self.unfinished
            && !self.rows.iter().any(|(_, outcome)| matches!(outcome, RepairOutcome::Remains(_)))
    }
}

/// Repairs the target. Each row has its own transaction. So if the repair fails, is cancelled or is killed,
/// the rows that were already repaired stay repaired.
///
/// # Errors
/// The errors of [`check::check`]; [`BulkError::RepairDenied`] if the target does not let the account write.
pub async fn repair(
    options: &RepairOptions,
    throttle: Throttle,
    progress: Arc<BulkProgress>,
    cancel: CancellationToken,
) -> Result<RepairReport, BulkError> {
    let started = Instant::now();
    let throttle = Arc::new(throttle);
    let (differences, findings, unfinished) = if options.from_state {
        let found = table_check::earlier_findings(&options.check)?;
        (found.differences, found.findings, !found.is_finished)
    } else {
        let report =
            table_check::check(&options.check, Arc::clone(&throttle), Arc::clone(&progress), cancel.clone())
                .await?;
        (report.differences, report.findings, false)
    };
    let marks = table_check::marks();
    let work = async {
        let mut comparing = table_check::connect(&options.check, &marks, 0, &progress).await?;
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
        table_check::delete_marks(&options.check, &marks).await;
    }
    Ok(RepairReport { rows: rows?, findings, unfinished, elapsed: started.elapsed() })
}

/// Prepares the session on the target: rows must be written exactly as on the source, without defaults,
/// cascades and constraint checks.
async fn set_up(target: &mut Connection, options: &RepairOptions) -> Result<(), BulkError> {
    if options.dry_run {
        return Ok(());
    }
    let lock_wait_seconds = options.lock_wait_max.as_secs().max(1);
    // foreign_key_checks is 0, because rows that refer to each other by a foreign key are compared and
    // repaired one by one.
    let sql = format!(
        "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', foreign_key_checks = 0, \
         innodb_lock_wait_timeout = {lock_wait_seconds}"
    );
    // The connection has set REPEATABLE READ, in which transactions lock gaps. So no other client can insert
    // a missing row in the meantime.
    target.execute(&sql).await?;
    allow_violations(target).await?;
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

/// Groups the differences by table. In each table deletes come first, because they free unique keys, then
/// updates, then inserts.
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
    let Some(pair) =
        table_check::table_selection::pair(&mut comparing.source, &mut comparing.target, name).await?
    else {
        return remain("the table no longer exists");
    };
    if !pair.mismatch.is_empty() {
        return remain("the table has different columns on the two sides");
    }
    if !pair.info(PairSide::Target).is_transactional() {
        // Without transactions, the row cannot be locked while the source is read again, and a change cannot
        // be rolled back.
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
        let mut retries = Vec::new();
        for index in open {
            throttle.pass(&rows.comparing.progress).await;
            let (Some(difference), Some(slot)) = (differences.get(index), attempts.get_mut(index)) else {
                continue;
            };
            let attempt = match difference.key.is_empty() {
                true => {
                    RepairAttempt::Impossible("the table has no unique key that identifies the row".into())
                }
                false => rows.try_row(&difference.key).await?,
            };
            match attempt {
                RepairAttempt::Again(_) => retries.push(index),
                RepairAttempt::Done(_) => passes_left = PASSES,
                RepairAttempt::Same | RepairAttempt::Impossible(_) => {}
            }
            *slot = Some(attempt);
        }
        // If each row needs a unique value that the next row still has, the last row must be written first.
        // So the next pass tries the rows in reverse order.
        retries.reverse();
        open = retries;
    }
    let still = recheck(&pair, comparing, &differences).await?;
    let outcome = |difference: &RowDifference, attempt: Option<RepairAttempt>| {
        let differs = still.iter().any(|other| other.key == difference.key);
        match attempt {
            Some(RepairAttempt::Impossible(reason) | RepairAttempt::Again(reason)) => {
                RepairOutcome::Remains(reason)
            }
            Some(RepairAttempt::Done(action)) if differs == options.dry_run => RepairOutcome::Done(action),
            _ if differs => RepairOutcome::Remains("the row still differs".into()),
            _ => RepairOutcome::Same,
        }
    };
    let outcomes: Vec<_> =
        differences.iter().zip(attempts).map(|(difference, attempt)| outcome(difference, attempt)).collect();
    Ok(differences.into_iter().zip(outcomes).collect())
}

/// Returns the rows that still differ.
async fn recheck(
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

/// Returns why triggers of a table may fire; `None` if the table has no triggers. An account without the
/// TRIGGER privilege gets an empty list of triggers.
async fn may_fire(connection: &mut Connection, name: &TableName) -> Result<Option<&'static str>, BulkError> {
    if !UserPrivileges::read(connection).await?.has_on_table("TRIGGER", &name.schema, &name.name) {
        return Ok(Some(
            "the account lacks TRIGGER, so it cannot see whether the table has triggers that would fire on the target: grant it, \
             or see --fire-triggers",
        ));
    }
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = {} AND event_object_table = {}",
        string_literal(&name.schema),
        string_literal(&name.name)
    );
    let has_none = connection.query(&sql).await?.scalar() == Some("0");
    Ok((!has_none).then_some("the table has triggers that would fire on the target: see --fire-triggers"))
}
