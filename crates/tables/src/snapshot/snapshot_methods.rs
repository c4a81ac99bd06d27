//! Plans how many connections get the same consistent snapshot: the methods that a server allows an account,
//! the best method first.

use std::fmt;

use tailwater_wire::Flavour;

use crate::schema::TableName;
use tailwater_wire::sql_quote::qualified_name;

/// How the connections come to see the same snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMethod {
    /// Uses a single connection, which needs no coordination.
    Single,
    /// Opens snapshots without a lock, until all are at the same binlog position (MariaDB).
    Compare,
    /// Uses `BACKUP STAGE BLOCK_COMMIT` (MariaDB).
    BackupStage,
    /// Uses `FLUSH TABLES WITH READ LOCK`.
    ReadLock,
    /// Uses `LOCK TABLES ... READ` on the selected tables.
    TableLocks,
}

impl SnapshotMethod {
    /// Returns the name of the method, for reports.
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

/// An action of a snapshot plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotAction {
    /// Runs a statement on the control connection.
    Control(String),
    /// Waits until no statement has run for long. If a FLUSH times out while it waits for a long statement on
    /// a table, the server must still reopen the table. Then all other sessions that need the table wait for
    /// that statement, too.
    WaitForQuiet,
    /// Lists all objects again while none can change, and reads all definitions except those of tables.
    List(LockWait),
    /// Lists all objects again and compares the list with the earlier one. Plans use this action if no lock
    /// kept definitions unchanged.
    VerifyList,
    /// Opens a snapshot on every connection, all at once.
    Open,
    /// Opens snapshots repeatedly, until all are at the same binlog position.
    OpenUntilEqual,
    /// Reads the binlog position and the GTIDs.
    Position,
    /// Takes a metadata lock on every table, on every connection, so that no definition changes before its
    /// table is read.
    LockTables(LockWait),
}

/// Whether to wait for a metadata lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Wait up to the lock wait timeout.
    Timeout,
    /// Do not wait. On MariaDB, a session that alters a table may hold the lock while its last step waits for
    /// the end of the backup stage. If the snapshot waited for that lock, neither session could continue.
    Never,
}

/// How a step of a snapshot plan affects sessions that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterEffect {
    /// Nothing changes.
    None,
    /// Writers wait from this step on.
    Blocked,
    /// Writers continue after this step.
    Released,
}

/// A step of a snapshot plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanStep {
    /// The action of the step.
    pub action: SnapshotAction,
    /// How the step affects sessions that write.
    pub writers: WriterEffect,
    /// The reason for the step, which `--dry-run` prints.
    pub why: &'static str,
}

/// The steps of one snapshot method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// The snapshot method.
    pub method: SnapshotMethod,
    /// The steps in their order.
    pub steps: Vec<PlanStep>,
}

/// Properties of the server and the account on which the choice of a snapshot method depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// MySQL or MariaDB.
    pub flavour: Flavour,
    /// Whether the server writes a binlog.
    pub binlog: bool,
    /// Whether the account has RELOAD.
    pub reload: bool,
    /// Whether the account has BACKUP_ADMIN (MySQL).
    pub backup_admin: bool,
    /// Whether sessions commit without writing the binlog, as channels of Tailwater with `gtid = log` do.
    pub unlogged: bool,
    /// Whether the server's own replication commits without writing the binlog (MariaDB with
    /// `log_slave_updates = OFF`, or without a binlog). Then the GTIDs of the server are exact only while no
    /// session commits.
    pub replicated_unlogged: bool,
}

impl SnapshotPlan {
    /// Returns whether the plan fails at once if a table is being altered. Another attempt with such a plan
    /// may soon succeed.
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

/// Returns the methods that the server allows, the best method first.
pub fn plans(
    capabilities: ServerCapabilities,
    connections: usize,
    tables: &[TableName],
) -> Vec<SnapshotPlan> {
    let ServerCapabilities { flavour, reload, unlogged, replicated_unlogged, .. } = capabilities;
    // If transactions commit without the binlog, snapshots at the same binlog position may have different
    // data.
    let binlog = capabilities.binlog && !unlogged && !replicated_unlogged;
    let mut plans = Vec::new();
    // A single connection can read the binlog position of its own snapshot on MariaDB, but not on MySQL.
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
                // BACKUP STAGE BLOCK_DDL waits for running definition changes, which may take hours. This
                // plan does not use that stage, so it does not wait for them.
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
const POSITION: &str = "the position at which replication of this data continues";
const LIST: &str = "no object can change now, so the list has everything that is in the snapshot";
const LIST_AGAIN: &str =
    "if an object was created or dropped since the first list, the plan starts from scratch";
const SAME: &str = "no transaction commits between the snapshots, so all connections see the same data";

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
            "without a lock; repeated until binlog_snapshot_file and _position are equal on all connections",
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
            "for accounts without RELOAD; no transaction commits in these tables",
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
    fn the_method_with_the_shortest_lock_comes_first() {
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
                    assert_eq!(
                        count(WriterEffect::Blocked),
                        count(WriterEffect::Released),
                        "writers are not released as often as they are blocked: {plan}"
                    );
                    let place = |action| plan.steps.iter().position(|step| step.action == action);
                    let opened = place(SnapshotAction::Open)
                        .or(place(SnapshotAction::OpenUntilEqual))
                        .expect("the plan opens snapshots");
                    let holds = plan
                        .steps
                        .iter()
                        .position(|step| matches!(step.action, SnapshotAction::LockTables(_)));
                    assert!(holds.expect("the plan locks tables") > opened);
                    // The list must contain every object that is in the snapshot.
                    let blocks = ["BACKUP STAGE BLOCK_DDL", "LOCK INSTANCE FOR BACKUP"]
                        .into_iter()
                        .find_map(|sql| place(SnapshotAction::Control(sql.into())));
                    let list =
                        plan.steps.iter().position(|step| matches!(step.action, SnapshotAction::List(_)));
                    match (blocks, list, place(SnapshotAction::VerifyList)) {
                        (Some(blocks), Some(list), None) => assert!(
                            blocks < list && list < opened,
                            "the plan lists the objects at the wrong step: {plan}"
                        ),
                        (None, None, Some(again)) => {
                            assert!(again > opened, "the plan lists the objects too early: {plan}")
                        }
                        _ => panic!("the plan does not list the objects exactly once: {plan}"),
                    }
                    // A session that alters a table may lock the table and then wait for the end of the
                    // backup stage. So a plan that locks tables within the stage must not wait for locks.
                    let stage = place(SnapshotAction::Control("BACKUP STAGE END".into()));
                    assert_eq!(
                        stage > holds,
                        plan.gives_up_at_once(),
                        "the plan ends the backup stage at the wrong step: {plan}"
                    );
                    assert!(place(SnapshotAction::Position).expect("the plan reads the position") > opened);
                }
            }
        }
        let text = table_locks(&[TableName::new("a`b", "t")]).to_string();
        assert!(
            text.contains("LOCK TABLES `a``b`.`t` READ  [writers wait from here]\n"),
            "the text of the plan is wrong: {text}"
        );
    }
}
