//! Makes a row of the target equal to that of the source, even if clients write to both at the same time.
//!
//! It reads the row's version on the source, and waits until the target has everything that the source had at
//! that time. Then it locks the target's row, or the gap where the row is missing. If the source still has
//! the same version, the row is written. If the row changes later on the source, replication waits for the
//! lock on the target, and applies the change afterwards.

use tailwater_session::{Connection, OkInfo, ServerError, SessionError, TextRow};
use tailwater_wire::Flavour;
use tailwater_wire::sql_redaction::public_text;

use super::RepairAction;
use super::sql_literals::value_literal;
use crate::table_check::chunk_comparer::Comparer;
use crate::table_check::table_pair::{PairSide, TablePair};
use tailwater_tables::chunker::key_range::KeyLiteral;
use tailwater_tables::error::BulkError;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

/// The outcome of one attempt to repair a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RepairAttempt {
    /// The row was repaired by this action. In a dry run, a repair would have this outcome.
    Done(RepairAction),
    /// There is nothing to change.
    Same,
    /// The repair is not possible now and must be tried again, for this reason.
    Again(String),
    /// The repair is not possible, for this reason.
    Impossible(String),
}

const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const DUPLICATE_KEY: u16 = 1062;
/// MySQL's warnings about old character set names such as `utf8mb3`. The literal of a key may contain such a
/// name.
const OF_OLD_NAMES: [u64; 3] = [1287, 3719, 3778];
const READ_ONLY: [u16; 2] = [1290, 1836];
const DENIED: [u16; 3] = [1142, 1143, 1227];

/// The values of a row as literals for the target; `None` if the row does not exist.
type RowLiterals = Option<Vec<String>>;

/// Repairs rows of one table.
pub(super) struct RowRepairer<'a> {
    pub(super) pair: &'a TablePair,
    pub(super) comparing: &'a mut Comparer,
    /// Whether to write nothing and lock nothing.
    pub(super) dry_run: bool,
}

impl RowRepairer<'_> {
    /// Tries to repair one row.
    ///
    /// # Errors
    /// [`BulkError::RepairDenied`] if no row can be repaired; [`BulkError::TargetBehind`],
    /// [`BulkError::Session`] if a connection breaks.
    pub(super) async fn try_row(&mut self, key: &[KeyLiteral]) -> Result<RepairAttempt, BulkError> {
        let Some(wanted) = self.on_source(key).await? else {
            return Ok(RepairAttempt::Impossible("a value of the row cannot be written as a literal".into()));
        };
        self.comparing.catch_up().await?;
        if self.dry_run {
            let there = self.is_on_target(key, "").await?;
            return Ok(action(wanted.is_some(), there).map_or(RepairAttempt::Same, RepairAttempt::Done));
        }
        match self.write(key, wanted).await {
            Ok(attempt) => Ok(attempt),
            Err(BulkError::Session(SessionError::Server { error, .. })) => {
                let target = &mut self.comparing.target;
                target.execute("ROLLBACK").await?;
                refused(target, error)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the source's row as literals. `Some(None)` means that the row does not exist. `None` means
    /// that a value has no literal.
    async fn on_source(&mut self, key: &[KeyLiteral]) -> Result<Option<RowLiterals>, BulkError> {
        let columns: Vec<_> =
            self.pair.columns.iter().map(|column| column.source.expression.as_str()).collect();
        let sql = format!("SELECT {} {}", columns.join(", "), self.row(PairSide::Source, key));
        let answer = self.comparing.source.query(&sql).await?;
        let Some(row) = answer.first() else { return Ok(Some(None)) };
        let values = self.pair.columns.iter().enumerate();
        let literals = values.map(|(index, column)| value_literal(&column.literal, row.get(index)));
        Ok(literals.collect::<Option<Vec<_>>>().map(Some))
    }

    /// Returns the target's current row, as [`RowRepairer::on_source`] does for the source. The repair
    /// compares the two rows, because a server may warn about a value although it stores the value unchanged.
    async fn on_target(&mut self, key: &[KeyLiteral]) -> Result<RowLiterals, BulkError> {
        let columns: Vec<_> =
            self.pair.columns.iter().map(|column| column.target.expression.as_str()).collect();
        let sql = format!("SELECT {} {}", columns.join(", "), self.row(PairSide::Target, key));
        let answer = self.comparing.target.query(&sql).await?;
        let Some(row) = answer.first() else { return Ok(None) };
        let values = self.pair.columns.iter().enumerate();
        Ok(values.map(|(index, column)| value_literal(&column.literal, row.get(index))).collect())
    }

    async fn is_on_target(&mut self, key: &[KeyLiteral], lock: &str) -> Result<bool, BulkError> {
        let sql = format!("SELECT 1 {}{lock}", self.row(PairSide::Target, key));
        Ok(!self.comparing.target.query(&sql).await?.rows.is_empty())
    }

    fn row(&self, side: PairSide, key: &[KeyLiteral]) -> String {
        let table = qualified_name(&self.pair.name.schema, &self.pair.name.name);
        match self.pair.key(side) {
            Some(of) => {
                format!(
                    "FROM {table} FORCE INDEX ({}) WHERE {}",
                    quote_identifier(&of.name),
                    self.pair.equals(side, key)
                )
            }
            None => format!("FROM {table} WHERE FALSE"),
        }
    }

    async fn write(&mut self, key: &[KeyLiteral], wanted: RowLiterals) -> Result<RepairAttempt, BulkError> {
        self.comparing.target.execute("START TRANSACTION").await?;
        let there = self.is_on_target(key, " FOR UPDATE").await?;
        if self.on_source(key).await? != Some(wanted.clone()) {
            self.comparing.target.execute("ROLLBACK").await?;
            return Ok(RepairAttempt::Again("the row is changing on the source".into()));
        }
        let Some(action) = action(wanted.is_some(), there) else {
            self.comparing.target.execute("ROLLBACK").await?;
            return Ok(RepairAttempt::Same);
        };
        let sql = self.statement(action, key, wanted.as_deref().unwrap_or_default());
        let target = &mut self.comparing.target;
        let done = target.execute(&sql).await?;
        let warning = warning(target, &done).await?;
        if let Some(warning) = warning
            && self.on_target(key).await? != wanted
        {
            let target = &mut self.comparing.target;
            target.execute("ROLLBACK").await?;
            return Ok(RepairAttempt::Impossible(format!(
                "the target would store something else than the source has: {warning}"
            )));
        }
        self.comparing.target.execute("COMMIT").await?;
        Ok(if done.affected_rows == 0 { RepairAttempt::Same } else { RepairAttempt::Done(action) })
    }

    fn statement(&self, action: RepairAction, key: &[KeyLiteral], values: &[String]) -> String {
        let table = qualified_name(&self.pair.name.schema, &self.pair.name.name);
        let info = self.pair.info(PairSide::Target);
        // The statement uses the column names as the target spells them.
        let names = self.pair.columns.iter().map(|column| {
            let mut own = info.columns.iter();
            let own = own.find(|own| own.name.eq_ignore_ascii_case(&column.name));
            quote_identifier(own.map_or(&column.name, |own| &own.name))
        });
        let equals = self.pair.equals(PairSide::Target, key);
        match action {
            RepairAction::Delete => format!("DELETE FROM {table} WHERE {equals}"),
            RepairAction::Update => {
                let pairs: Vec<_> =
                    names.zip(values).map(|(name, value)| format!("{name} = {value}")).collect();
                format!("UPDATE {table} SET {} WHERE {equals}", pairs.join(", "))
            }
            RepairAction::Insert => {
                let names: Vec<_> = names.collect();
                format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "))
            }
        }
    }
}

fn action(on_source: bool, on_target: bool) -> Option<RepairAction> {
    match (on_source, on_target) {
        (true, true) => Some(RepairAction::Update),
        (true, false) => Some(RepairAction::Insert),
        (false, true) => Some(RepairAction::Delete),
        (false, false) => None,
    }
}

/// Returns the outcome of a statement that the target refused.
fn refused(target: &Connection, error: ServerError) -> Result<RepairAttempt, BulkError> {
    match error.number {
        LOCK_WAIT_TIMEOUT | DEADLOCK => Ok(RepairAttempt::Again("the row is locked on the target".into())),
        // Another row already has the unique key value. That row may have to be repaired first.
        DUPLICATE_KEY => Ok(RepairAttempt::Again(format!(
            "another row of the target has the unique key of this row: {error}"
        ))),
        number if READ_ONLY.contains(&number) || DENIED.contains(&number) => Err(BulkError::RepairDenied {
            server: target.endpoint().into(),
            advice: match (READ_ONLY.contains(&number), target.server().flavour) {
                (false, _) => "grant it SELECT, INSERT, UPDATE and DELETE on the tables",
                (true, Flavour::MySql) => {
                    "grant it CONNECTION_ADMIN, which allows writes under read_only; under super_read_only no account may"
                }
                (true, Flavour::MariaDb) => "grant it READ ONLY ADMIN",
            },
            error: Box::new(error),
        }),
        _ => Ok(RepairAttempt::Impossible(error.to_string())),
    }
}

/// Returns the first warning about a changed value. Notes, and warnings about the statement itself, do not
/// count.
async fn warning(target: &mut Connection, done: &OkInfo) -> Result<Option<String>, BulkError> {
    if done.warnings == 0 {
        return Ok(None);
    }
    let warnings = target.query("SHOW WARNINGS").await?;
    let is_harmless = |row: &&TextRow| {
        row.get_str(0) == Some("Note") || row.get_u64(1).is_some_and(|number| OF_OLD_NAMES.contains(&number))
    };
    if warnings.rows.len() < usize::from(done.warnings) {
        return Ok(Some("the server reports more warnings than it shows (max_error_count)".to_owned()));
    }
    let serious = warnings.rows.iter().find(|row| !is_harmless(row));
    Ok(serious.map(|row| public_text(&row.get(2).map(String::from_utf8_lossy).unwrap_or_default())))
}
