//! How to get the same consistent snapshot on many connections: the methods that a server allows an account,
//! the best first.

use std::fmt;

use tailwater_wire::Flavour;

use crate::schema::TableName;
use tailwater_wire::sql_quote::qualified_name;

/// How connections come to see the same snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMethod {
    /// A single connection, which needs no coordination.
    Single,
    /// Opens snapshots without a lock until all are at the same binlog position (MariaDB).
    Compare,
    /// `BACKUP STAGE BLOCK_COMMIT` (MariaDB).
    BackupStage,
    /// `FLUSH TABLES WITH READ LOCK`.
    ReadLock,
    /// `LOCK TABLES ... READ` on the selected tables.
    TableLocks,
}

impl SnapshotMethod {
    /// The method's name, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single connection",
            Self::Compare => "lock-free comparison",
            Self::BackupStage => "backup stage",
            Self::ReadLock => "read lock",
            Self::TableLocks => "table locks",
        }
    }
}

/// One action of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotAction {
    /// A statement on the control connection.
    Control(String),
    /// Waits until no statement runs for long. A FLUSH that times out after a long statement leaves the table
    /// to be reopened, and all other sessions that need the table wait for that statement.
    WaitForQuiet,
    /// Lists all objects again, and reads all definitions except those of tables, while none can change.
    List(LockWait),
    /// Lists all objects once more and compares the list with the earlier one, because no lock kept
    /// definitions unchanged.
    VerifyList,
    /// Opens a snapshot on every connection, all at once.
    Open,
    /// Opens snapshots again and again, until all are at the same binlog position.
    OpenUntilEqual,
    /// Reads the binlog position and the GTIDs.
    Position,
    /// Takes a metadata lock on every table, on every connection, so that definitions do not change before
    /// the table is read.
    LockTables(LockWait),
}

/// Whether to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Up to the lock wait timeout.
    Timeout,
    /// Not at all. On MariaDB, a session that alters a table may hold its lock, and wait in its last step for
    /// the backup stage to end. That stage would wait for the session.
    Never,
}

/// What a step means for writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterEffect {
    /// No change.
    None,
    /// Writers wait from here on.
    Blocked,
    /// Writers continue.
    Released,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanStep {
    /// What to do.
    pub action: SnapshotAction,
    /// What it means for writers.
    pub writers: WriterEffect,
    /// The reason, for `--dry-run`.
    pub why: &'static str,
}

/// One method, step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// The method.
    pub method: SnapshotMethod,
    /// The steps, in order.
    pub steps: Vec<PlanStep>,
}

/// What the choice of a method depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// MySQL or MariaDB.
    pub flavour: Flavour,
    /// Whether the server writes a binlog.
    pub binlog: bool,
    /// Whether the user has RELOAD.
    pub reload: bool,
    /// Whether the user has BACKUP_ADMIN (MySQL).
    pub backup_admin: bool,
    /// Whether sessions commit past the binlog, as channels of Tailwater with `gtid = log` do.
    pub unlogged: bool,
    /// Whether the server's own replication commits past the binlog (MariaDB with `log_slave_updates = OFF`,
    /// or without a binlog). Then its GTIDs are exact only while no session commits.
    pub replicated_unlogged: bool,
}

impl SnapshotPlan {
    /// Whether it gives up at once if a table is being altered. Such a plan is worth another try soon.
    pub fn gives_up_at_once(&self) -> bool {
        self.steps.iter().any(|step| step.action == SnapshotAction::LockTables(LockWait::Never))
    }
}

impl fmt::Display for SnapshotPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.method.name())?;
        for step in &self.steps {
            let writers = match step.writers {
                WriterEffect::None => "",
                WriterEffect::Blocked => "  [writers wait from here]",
                WriterEffect::Released => "  [writers continue]",
            };
            match &step.action {
                SnapshotAction::Control(sql) => write!(f, "  {sql}")?,
                SnapshotAction::WaitForQuiet => {
                    write!(f, "  wait until no statement runs for longer than one second")?
                }
                SnapshotAction::List(_) => {
                    write!(
                        f,
                        "  list databases, tables and other objects; read all definitions except those of tables"
                    )?;
                }
                SnapshotAction::VerifyList => {
                    write!(
                        f,
                        "  list databases, tables and other objects again; read all definitions except those of tables"
                    )?;
                }
                SnapshotAction::Open | SnapshotAction::OpenUntilEqual => {
                    write!(f, "  START TRANSACTION WITH CONSISTENT SNAPSHOT on each connection")?;
                }
                SnapshotAction::Position => write!(f, "  read binlog position and GTIDs")?,
                SnapshotAction::LockTables(LockWait::Timeout) => {
                    write!(f, "  take a metadata lock on each table, on each connection")?;
                }
                SnapshotAction::LockTables(LockWait::Never) => {
                    write!(f, "  take a metadata lock on each table, on each connection, without waiting")?;
                }
            }
            writeln!(f, "{writers}\n    {}", step.why)?;
        }
        Ok(())
    }
}

/// The methods that the server allows, the best first.
pub fn plans(
    capabilities: ServerCapabilities,
    connections: usize,
    tables: &[TableName],
) -> Vec<SnapshotPlan> {
    let ServerCapabilities { flavour, reload, unlogged, replicated_unlogged, .. } = capabilities;
    // In this case the same binlog position does not prove the same data.
    let binlog = capabilities.binlog && !unlogged && !replicated_unlogged;
    let mut plans = Vec::new();
    // MariaDB reports the binlog position of a single snapshot; MySQL does not.
    let single = connections == 1 && !replicated_unlogged;
    if single && flavour == Flavour::MariaDb {
        plans.push(lock_free(SnapshotMethod::Single, reload));
    }
    match flavour {
        Flavour::MariaDb => {
            if binlog && connections > 1 {
                plans.push(lock_free(SnapshotMethod::Compare, reload));
            }
            if reload {
                plans.push(backup_stage());
                // A definition change that takes hours must not keep BACKUP STAGE BLOCK_DDL waiting.
                if binlog || single {
                    plans.push(lock_free(
                        if single { SnapshotMethod::Single } else { SnapshotMethod::Compare },
                        false,
                    ));
                }
            }
        }
        Flavour::MySql if reload => plans.push(read_lock(capabilities.backup_admin)),
        Flavour::MySql => {}
    }
    if !tables.is_empty() {
        plans.push(table_locks(tables));
    }
    plans
}

fn step(action: SnapshotAction, why: &'static str) -> PlanStep {
    PlanStep { action, writers: WriterEffect::None, why }
}

fn control(sql: &str, why: &'static str) -> PlanStep {
    step(SnapshotAction::Control(sql.to_owned()), why)
}

impl PlanStep {
    fn then_writers(self, writers: WriterEffect) -> Self {
        Self { writers, ..self }
    }
}

const LOCK_TABLES: &str =
    "the definition cannot change until the table is finished; then its lock is released";
const POSITION: &str = "where replication continues after this data";
const LIST: &str = "no object can change now, so the list has everything that is in the snapshot";
const LIST_AGAIN: &str = "if an object was created or dropped meanwhile, the plan starts from scratch";
const SAME: &str = "no transaction commits between them, so all see the same data";

fn lock_free(method: SnapshotMethod, reload: bool) -> SnapshotPlan {
    let mut steps = Vec::new();
    if reload {
        steps.push(control("BACKUP STAGE START", "the first backup stage; blocks no session"));
        steps.push(control("BACKUP STAGE BLOCK_DDL", "no definition changes until all tables are locked"));
        steps.push(step(SnapshotAction::List(LockWait::Never), LIST));
    }
    steps.push(match method {
        SnapshotMethod::Single => step(SnapshotAction::Open, "a single connection sees one point in time"),
        _ => step(
            SnapshotAction::OpenUntilEqual,
            "without a lock, repeated until binlog_snapshot_file and _position are equal on all",
        ),
    });
    steps.push(step(SnapshotAction::Position, POSITION));
    if !reload {
        steps.push(step(SnapshotAction::VerifyList, LIST_AGAIN));
    }
    steps.push(step(
        SnapshotAction::LockTables(if reload { LockWait::Never } else { LockWait::Timeout }),
        LOCK_TABLES,
    ));
    if reload {
        steps.push(control("BACKUP STAGE END", "definitions of other tables may change again"));
    }
    SnapshotPlan { method, steps }
}

fn backup_stage() -> SnapshotPlan {
    let steps = vec![
        control("BACKUP STAGE START", "the first backup stage; blocks no session"),
        control("BACKUP STAGE BLOCK_DDL", "waits for running definition changes"),
        step(SnapshotAction::List(LockWait::Timeout), LIST),
        control("BACKUP STAGE BLOCK_COMMIT", "commits wait").then_writers(WriterEffect::Blocked),
        step(SnapshotAction::Open, SAME),
        step(SnapshotAction::Position, POSITION),
        control("BACKUP STAGE END", "commits continue").then_writers(WriterEffect::Released),
        step(SnapshotAction::LockTables(LockWait::Timeout), LOCK_TABLES),
    ];
    SnapshotPlan { method: SnapshotMethod::BackupStage, steps }
}

fn read_lock(backup_admin: bool) -> SnapshotPlan {
    let mut steps = vec![step(
        SnapshotAction::WaitForQuiet,
        "a lock that waits for a long statement makes all other sessions wait",
    )];
    if backup_admin {
        let why = "no definition changes until all tables are locked; writers continue";
        steps.push(control("LOCK INSTANCE FOR BACKUP", why));
        steps.push(step(SnapshotAction::List(LockWait::Timeout), LIST));
    }
    steps.extend([
        control(
            "FLUSH NO_WRITE_TO_BINLOG TABLES",
            "waits for running statements before any session is blocked",
        ),
        control("FLUSH TABLES WITH READ LOCK", "nothing commits").then_writers(WriterEffect::Blocked),
        step(SnapshotAction::Open, SAME),
        step(SnapshotAction::Position, POSITION),
        control("UNLOCK TABLES", "commits continue").then_writers(WriterEffect::Released),
    ]);
    if !backup_admin {
        steps.push(step(SnapshotAction::VerifyList, LIST_AGAIN));
    }
    steps.push(step(SnapshotAction::LockTables(LockWait::Timeout), LOCK_TABLES));
    if backup_admin {
        steps.push(control("UNLOCK INSTANCE", "definitions of other tables may change again"));
    }
    SnapshotPlan { method: SnapshotMethod::ReadLock, steps }
}

fn table_locks(tables: &[TableName]) -> SnapshotPlan {
    let locks: Vec<_> =
        tables.iter().map(|table| format!("{} READ", qualified_name(&table.schema, &table.name))).collect();
    let steps = vec![
        control(
            &format!("LOCK TABLES {}", locks.join(", ")),
            "without RELOAD; no transaction commits in these tables",
        )
        .then_writers(WriterEffect::Blocked),
        step(SnapshotAction::Open, SAME),
        step(SnapshotAction::Position, POSITION),
        step(SnapshotAction::LockTables(LockWait::Timeout), LOCK_TABLES),
        control("UNLOCK TABLES", "commits continue").then_writers(WriterEffect::Released),
        step(SnapshotAction::VerifyList, LIST_AGAIN),
    ];
    SnapshotPlan { method: SnapshotMethod::TableLocks, steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(capabilities: ServerCapabilities, connections: usize) -> Vec<SnapshotMethod> {
        let tables = [TableName::new("s", "t")];
        plans(capabilities, connections, &tables).iter().map(|plan| plan.method).collect()
    }

    #[test]
    fn the_shortest_lock_comes_first() {
        let all = ServerCapabilities {
            flavour: Flavour::MariaDb,
            binlog: true,
            reload: true,
            backup_admin: true,
            unlogged: false,
            replicated_unlogged: false,
        };
        let none = ServerCapabilities { reload: false, backup_admin: false, ..all };
        let (compare, stage, locks) =
            (SnapshotMethod::Compare, SnapshotMethod::BackupStage, SnapshotMethod::TableLocks);
        assert_eq!(methods(all, 4), [compare, stage, compare, locks]);
        assert_eq!(
            methods(ServerCapabilities { binlog: false, ..all }, 4),
            [SnapshotMethod::BackupStage, SnapshotMethod::TableLocks]
        );
        assert_eq!(methods(none, 4), [SnapshotMethod::Compare, SnapshotMethod::TableLocks]);
        assert_eq!(methods(none, 1), [SnapshotMethod::Single, SnapshotMethod::TableLocks]);
        assert_eq!(methods(ServerCapabilities { unlogged: true, ..all }, 4), [stage, locks]);
        let replicated_unlogged = ServerCapabilities { replicated_unlogged: true, ..all };
        assert_eq!(methods(replicated_unlogged, 4), [stage, locks]);
        assert_eq!(methods(replicated_unlogged, 1), [stage, locks]);
        assert_eq!(methods(ServerCapabilities { binlog: false, ..replicated_unlogged }, 1), [stage, locks]);
        let mysql = |of: ServerCapabilities| ServerCapabilities { flavour: Flavour::MySql, ..of };
        assert_eq!(methods(mysql(all), 1), [SnapshotMethod::ReadLock, SnapshotMethod::TableLocks]);
        assert_eq!(methods(mysql(none), 4), [SnapshotMethod::TableLocks]);
        assert_eq!(plans(mysql(none), 4, &[]), []);
    }

    #[test]
    fn every_plan_releases_writers_and_locks_all_tables_after_the_snapshots() {
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            for (reload, backup_admin) in [(true, true), (true, false), (false, false)] {
                let capabilities = ServerCapabilities {
                    flavour,
                    binlog: true,
                    reload,
                    backup_admin,
                    unlogged: false,
                    replicated_unlogged: false,
                };
                for plan in plans(capabilities, 2, &[TableName::new("a`b", "t")]) {
                    let waits: Vec<_> = plan.steps.iter().map(|step| step.writers).collect();
                    let count = |writers| waits.iter().filter(|&&step| step == writers).count();
                    assert_eq!(count(WriterEffect::Blocked), count(WriterEffect::Released), "{plan}");
                    let place = |action| plan.steps.iter().position(|step| step.action == action);
                    let opened = place(SnapshotAction::Open)
                        .or(place(SnapshotAction::OpenUntilEqual))
                        .expect("the plan opens snapshots");
                    let holds = plan
                        .steps
                        .iter()
                        .position(|step| matches!(step.action, SnapshotAction::LockTables(_)));
                    assert!(holds.expect("the plan locks tables") > opened);
                    // The list must have everything that is in the snapshot.
                    let blocks = ["BACKUP STAGE BLOCK_DDL", "LOCK INSTANCE FOR BACKUP"]
                        .into_iter()
                        .find_map(|sql| place(SnapshotAction::Control(sql.into())));
                    let list =
                        plan.steps.iter().position(|step| matches!(step.action, SnapshotAction::List(_)));
                    match (blocks, list, place(SnapshotAction::VerifyList)) {
                        (Some(blocks), Some(list), None) => assert!(blocks < list && list < opened, "{plan}"),
                        (None, None, Some(again)) => assert!(again > opened, "{plan}"),
                        _ => panic!("{plan}"),
                    }
                    // A session that alters a table may hold its lock while it waits for the stage to end.
                    let stage = place(SnapshotAction::Control("BACKUP STAGE END".into()));
                    assert_eq!(stage > holds, plan.gives_up_at_once(), "{plan}");
                    assert!(place(SnapshotAction::Position).expect("the plan reads the position") > opened);
                }
            }
        }
        let text = table_locks(&[TableName::new("a`b", "t")]).to_string();
        assert!(text.contains("LOCK TABLES `a``b`.`t` READ  [writers wait from here]\n"), "{text}");
    }
}
