//! Repairs of real servers to which no other client writes. Repaired rows equal the source's rows, and rows
//! that cannot be repaired stay unchanged.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tailwater_check::row_repair::{RepairAction, RepairOptions, RepairOutcome, RepairReport, repair};
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_check::table_check::{CheckOptions, RowDifference, TableFinding};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_tables::schema::{Selection, TableName};
use tailwater_tables::{BulkError, BulkProgress, Throttle};
use tokio_util::sync::CancellationToken;

use crate::stock_client::run_script;
use crate::table_check::run;

on_each_server!(
    texts_of_old_character_sets_are_repaired,
    tables_without_transactions_are_not_changed,
    moved_unique_values_are_repaired,
    keys_that_are_equal_on_one_side_only_are_distinguished,
    a_partial_state_is_repaired,
);

/// A source and a target without replication, to which no other client writes.
struct UnreplicatedPair {
    source: Server,
    target: Server,
}

impl UnreplicatedPair {
    /// Starts two servers, each with a database `apart`.
    async fn start(kind: ServerKind, on_source: &str, on_target: &str) -> Result<Self> {
        let (source, target) =
            tokio::try_join!(Server::start(ServerSpec::new(kind)), Server::start(ServerSpec::new(kind)))?;
        for (server, script) in [(&source, on_source), (&target, on_target)] {
            let script = format!(
                "CREATE DATABASE apart CHARACTER SET utf8mb4; USE apart; SET NAMES utf8mb4; {script}"
            );
            run_script(server, script.as_bytes())?;
        }
        Ok(Self { source, target })
    }

    fn options(&self) -> CheckOptions {
        CheckOptions {
            selection: Selection { schemas: vec!["apart".into()], ..Selection::default() },
            sync_method: Some(SyncMethod::None),
            ..CheckOptions::new(self.source.connect_options(), self.target.connect_options())
        }
    }

    async fn repair(&self) -> Result<RepairReport, BulkError> {
        run_repair(&RepairOptions::new(self.options())).await
    }
}

async fn run_repair(options: &RepairOptions) -> Result<RepairReport, BulkError> {
    repair(options, Throttle::open(), Arc::new(BulkProgress::default()), CancellationToken::new()).await
}

/// Returns the reasons why rows of the table still differ after the repair.
fn reasons(report: &RepairReport, table: &str) -> Vec<String> {
    let of_table = report.rows.iter().filter(|(difference, _)| difference.table == table);
    let reason = |outcome: &RepairOutcome| match outcome {
        RepairOutcome::Remains(reason) => Some(reason.clone()),
        RepairOutcome::Done(_) | RepairOutcome::Same => None,
    };
    of_table.filter_map(|(_, outcome)| reason(outcome)).collect()
}

fn key_and_what(difference: &RowDifference) -> String {
    let key: Vec<_> = difference.key.iter().map(|literal| literal.0.as_str()).collect();
    format!("{} {}", key.join(","), difference.what.name())
}

/// MySQL warns about each literal with the old name of a character set. A row with such a warning is
/// repaired. If the target would really change a value, the row is not repaired.
async fn texts_of_old_character_sets_are_repaired(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let script = |rows: &str, length: u32| {
        format!(
            "CREATE TABLE texts (id INT PRIMARY KEY, a VARCHAR(20) CHARACTER SET utf8mb3, b VARCHAR(20) CHARACTER SET ascii); \
             CREATE TABLE named (id VARCHAR(20) CHARACTER SET utf8mb3 PRIMARY KEY, n INT, t CHAR(9) CHARACTER SET ascii); \
             CREATE TABLE plain (id VARCHAR(20) CHARACTER SET ascii PRIMARY KEY, n INT); \
             CREATE TABLE cut (id INT PRIMARY KEY, a VARCHAR({length}) CHARACTER SET utf8mb3); {rows}"
        )
    };
    let on_source = script(
        "INSERT INTO texts VALUES (1, 'ä', 'x'), (2, '€', ''), (4, NULL, NULL); INSERT INTO named VALUES ('ä', 1, 'x'), ('b', 2, 'y'); \
         INSERT INTO plain VALUES ('a', 1), ('b', 2); INSERT INTO cut VALUES (1, 'abcdef')",
        20,
    );
    let on_target = script(
        "INSERT INTO texts VALUES (1, 'o', 'x'), (3, '', ''), (4, 'x', 'y'); INSERT INTO named VALUES ('ä', 5, 'x'), ('c', 7, NULL); \
         INSERT INTO plain VALUES ('a', 9), ('c', 7); INSERT INTO cut VALUES (1, 'abc')",
        3,
    );
    let servers = UnreplicatedPair::start(kind, &on_source, &on_target).await?;
    servers.target.sql("SET GLOBAL max_error_count = 0").await?;
    let hidden = reasons(&servers.repair().await?, "cut");
    ensure!(
        hidden.len() == 1 && hidden[0].contains("max_error_count"),
        "the repair does not report that warnings are hidden: {hidden:?}"
    );
    servers.target.sql("SET GLOBAL max_error_count = 64").await?;
    let report = servers.repair().await?;
    for table in ["texts", "named", "plain"] {
        ensure!(
            reasons(&report, table).is_empty(),
            "some rows of table {table} were not repaired: {report:#?}"
        );
    }
    let cut = reasons(&report, "cut");
    ensure!(
        cut.len() == 1 && cut[0].contains("would store something else"),
        "the row that the target would change was not refused: {cut:?}"
    );
    let report = run(&servers.options()).await?;
    ensure!(
        report.differences.len() == 1 && report.differences[0].table == "cut",
        "after the repair, only the row of table `cut` may differ: {report:#?}"
    );
    Ok(())
}

/// In tables without transactions, rows can neither be locked nor rolled back.
async fn tables_without_transactions_are_not_changed(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let rows = "CREATE TABLE t (id INT PRIMARY KEY, a INT)";
    let servers = UnreplicatedPair::start(
        kind,
        &format!("{rows}; INSERT INTO t VALUES (1, 2), (2, 3)"),
        &format!("{rows} ENGINE=MyISAM; INSERT INTO t VALUES (1, 5)"),
    )
    .await?;
    let report = servers.repair().await?;
    let reasons = reasons(&report, "t");
    ensure!(
        reasons.len() == 2 && reasons.iter().all(|reason| reason.contains("no transactions")),
        "the rows were not refused because of missing transactions: {reasons:?}"
    );
    ensure!(servers.target.sql("SELECT GROUP_CONCAT(id, a) FROM apart.t").await? == ["15"]);
    Ok(())
}

/// In a chain of many rows, each row waits for the unique value of the next row. The repair repairs all of
/// them. It cannot repair two rows that wait for each other.
async fn moved_unique_values_are_repaired(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let script = |offset: i64, swapped: &str| {
        let rows: Vec<_> = (1..=20).map(|id| format!("({id}, {})", id + offset)).collect();
        format!(
            "CREATE TABLE chain (id INT PRIMARY KEY, u INT UNIQUE); INSERT INTO chain VALUES {}; \
             CREATE TABLE swapped (id INT PRIMARY KEY, u INT UNIQUE); INSERT INTO swapped VALUES {swapped}",
            rows.join(", ")
        )
    };
    let servers =
        UnreplicatedPair::start(kind, &script(1, "(1, 1), (2, 2)"), &script(0, "(1, 2), (2, 1)")).await?;
    let report = servers.repair().await?;
    ensure!(reasons(&report, "chain").is_empty(), "the chain of rows was not repaired: {report:#?}");
    let swapped = reasons(&report, "swapped");
    ensure!(
        swapped.len() == 2 && swapped.iter().all(|reason| reason.contains("unique key")),
        "the two rows were not refused because of their unique key: {swapped:?}"
    );
    ensure!(run(&servers.options()).await?.differences.len() == 2);
    Ok(())
}

/// The target declares the ENUM members in another order. The collation of one side considers texts equal
/// that the collation of the other side distinguishes.
async fn keys_that_are_equal_on_one_side_only_are_distinguished(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let script = |members: &str, collations: [&str; 2], rows: &str| {
        let [one, other] =
            collations.map(|collation| format!("CHARACTER SET utf8mb4 COLLATE utf8mb4_{collation}"));
        format!(
            "CREATE TABLE states (state ENUM({members}) PRIMARY KEY, n INT); INSERT INTO states VALUES ('new', 1), ('paid', 2); \
             CREATE TABLE two_keys (state ENUM({members}) PRIMARY KEY, id INT NOT NULL UNIQUE); \
             CREATE TABLE lax (id VARCHAR(9) {one} PRIMARY KEY, n INT); CREATE TABLE strict (id VARCHAR(9) {other} PRIMARY KEY, n INT); {rows}"
        )
    };
    let on_source = script(
        "'new','paid'",
        ["general_ci", "bin"],
        "INSERT INTO two_keys VALUES ('new', 1), ('paid', 2); INSERT INTO lax VALUES ('a', 1), ('b', 2), ('D', 4); \
         INSERT INTO strict VALUES ('a', 1), ('A', 2), ('c', 3)",
    );
    let on_target = script(
        "'new','hold','paid'",
        ["bin", "general_ci"],
        "INSERT INTO two_keys VALUES ('new', 1), ('hold', 2); INSERT INTO lax VALUES ('a', 1), ('A', 9), ('b', 5), ('B', 2), ('d', 4); \
         INSERT INTO strict VALUES ('a', 1), ('C', 3)",
    );
    let servers = UnreplicatedPair::start(kind, &on_source, &on_target).await?;
    let report = run(&servers.options()).await?;
    let found = |table: &str| {
        let of_table = report.differences.iter().filter(|difference| difference.table == table);
        let mut found: Vec<_> = of_table.map(key_and_what).collect();
        found.sort();
        found
    };
    ensure!(
        found("states").is_empty(),
        "rows with the same ENUM text count as different: {:?}",
        found("states")
    );
    ensure!(
        found("two_keys") == ["2 changed"],
        "the check finds wrong differences in the table `two_keys`: {:?}",
        found("two_keys")
    );
    let text = |letter: char, what: &str| format!("_utf8mb4 X'{:02X}' {what}", u32::from(letter));
    let lax = [('A', "extra"), ('B', "extra"), ('D', "missing"), ('b', "changed"), ('d', "extra")];
    ensure!(
        found("lax") == lax.map(|(letter, what)| text(letter, what)),
        "the check finds wrong differences in the table `lax`: {:?}",
        found("lax")
    );
    let strict = [('A', "missing"), ('C', "extra"), ('c', "missing")];
    ensure!(
        found("strict") == strict.map(|(letter, what)| text(letter, what)),
        "the check finds wrong differences in the table `strict`: {:?}",
        found("strict")
    );

    let report = servers.repair().await?;
    let strict = reasons(&report, "strict");
    ensure!(
        strict.len() == 1 && strict[0].contains("unique key"),
        "the row in `strict` was not refused because of its unique key: {strict:?}"
    );
    let left = report.rows.iter().filter(|(_, outcome)| matches!(outcome, RepairOutcome::Remains(_)));
    ensure!(left.count() == 1, "the repair must leave exactly one row unrepaired: {report:#?}");
    let still = run(&servers.options()).await?;
    let still: Vec<_> = still.differences.iter().map(key_and_what).collect();
    ensure!(still == [text('A', "missing")], "the check finds wrong differences after the repair: {still:?}");
    Ok(())
}

/// The repair repairs only the selected rows of the state file. Its report has the state file's findings
/// about whole tables. Rows that the check did not compare do not count as equal.
async fn a_partial_state_is_repaired(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let tables = "CREATE TABLE one (id INT PRIMARY KEY); CREATE TABLE two (id INT PRIMARY KEY); CREATE TABLE many (id INT PRIMARY KEY)";
    let on_source = format!(
        "{tables}; CREATE TABLE lone (id INT); INSERT INTO one VALUES (1); INSERT INTO two VALUES (1); \
         INSERT INTO many VALUES (1), (2), (3)"
    );
    let servers = UnreplicatedPair::start(kind, &on_source, tables).await?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    let options = CheckOptions { state: Some(state.clone()), differences_max: 2, ..servers.options() };
    let found = run(&options).await?;
    let has_values = |difference: &RowDifference| difference.values.is_some();
    ensure!(
        found.differences.len() >= 4 && !found.differences.iter().any(has_values),
        "the check does not find the differences, or reports values: {found:#?}"
    );
    let shown = run(&CheckOptions { state: None, show_values: true, ..options.clone() }).await?;
    ensure!(
        shown.differences.iter().all(has_values),
        "the check does not report the values of the differing rows: {shown:#?}"
    );

    let of = |tables: &[&str], except: &[&str], check: &CheckOptions| {
        let names = |names: &[&str]| names.iter().map(|name| TableName::new("apart", *name)).collect();
        let selection = Selection { tables: names(tables), except: names(except), ..check.selection.clone() };
        RepairOptions { from_state: true, ..RepairOptions::new(CheckOptions { selection, ..check.clone() }) }
    };
    let tables_of = |report: &RepairReport| {
        let mut tables: Vec<_> = report.rows.iter().map(|(difference, _)| difference.table.clone()).collect();
        tables.dedup();
        tables
    };
    let report = run_repair(&of(&["one"], &[], &options)).await?;
    ensure!(
        tables_of(&report) == ["one"] && report.is_equal(),
        "the repair must repair the table `one` and no other table: {report:#?}"
    );
    ensure!(report.rows[0].1 == RepairOutcome::Done(RepairAction::Insert));
    let report = run_repair(&of(&[], &["one", "many", "lone"], &options)).await?;
    ensure!(
        tables_of(&report) == ["two"] && report.is_equal(),
        "the repair must repair the table `two` and no other table: {report:#?}"
    );
    let report = run_repair(&of(&[], &[], &options)).await?;
    let findings = [
        TableFinding::TooMany(TableName::new("apart", "many")),
        TableFinding::OnlySource(TableName::new("apart", "lone")),
    ];
    ensure!(
        report.findings == findings && !report.is_equal() && !report.unfinished,
        "the repair's report lacks the findings of the check's state file: {report:#?}"
    );
    ensure!(tables_of(&report) == ["many", "one", "two"] && reasons(&report, "many").is_empty());

    // The state is now like that of a check that was killed before it wrote the last line.
    let text = std::fs::read_to_string(&state)?;
    let lines: Vec<_> = text.lines().collect();
    std::fs::write(&state, lines[..lines.len() - 1].join("\n") + "\n")?;
    let report = run_repair(&of(&["one"], &[], &options)).await?;
    ensure!(
        report.unfinished && !report.is_equal() && report.findings.is_empty(),
        "the repair's report does not say that the check is unfinished: {report:#?}"
    );
    Ok(())
}
