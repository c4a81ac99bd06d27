//! How to have the same point in time on many connections: which ways there are on a server for a user, the best first.

use std::fmt;

use tailwater_wire::Flavour;

use crate::schema::TableName;
use crate::sql::qualified;

/// How connections come to see the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMethod {
    /// One connection alone needs nothing.
    Single,
    /// Snapshots are opened without a lock until all are at the same place of the binlog (MariaDB).
    Compare,
    /// `BACKUP STAGE BLOCK_COMMIT` (MariaDB).
    BackupStage,
    /// `FLUSH TABLES WITH READ LOCK`.
    ReadLock,
    /// `LOCK TABLES ... READ` on the tables that are wanted.
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

/// What a plan does at one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotAction {
    /// A statement on the controlling connection.
    Control(String),
    /// Waiting until no statement runs for long. A flush that gives up behind one leaves the table to be reopened, and everybody
    /// else who wants it waits for that statement.
    Quiet,
    /// What there is is listed anew, with definitions of all but tables, while none can change.
    List(LockWait),
    /// What there is is listed once more, and must be what was listed before: nothing kept definitions from changing.
    ListAgain,
    /// A snapshot on each connection, all at once.
    Open,
    /// The same again and again, until all are at the same place of the binlog.
    OpenAlike,
    /// Where it is: binlog position and GTIDs.
    Position,
    /// Metadata locks on all tables for each connection, so that nobody changes their definitions before they are read.
    Hold(LockWait),
}

/// Whether a lock is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// As long as for any lock.
    ForIt,
    /// Not at all: on MariaDB who changes a definition may have the table's lock, and waits in the last step for the stage of the
    /// backup to end, which would wait for him.
    Never,
}

/// Whether others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterEffect {
    /// Nothing changes for them.
    None,
    /// From here on they wait.
    Blocked,
    /// They go on.
    Released,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanStep {
    /// What is done.
    pub action: SnapshotAction,
    /// What it means for writers.
    pub writers: WriterEffect,
    /// Why.
    pub why: &'static str,
}

/// One way, step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// Which way.
    pub method: SnapshotMethod,
    /// What is done.
    pub steps: Vec<PlanStep>,
}

/// What the choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// The server's family.
    pub flavour: Flavour,
    /// Whether the server writes a binlog.
    pub binlog: bool,
    /// Whether the user has RELOAD.
    pub reload: bool,
    /// Whether the user has BACKUP_ADMIN (MySQL).
    pub backup_admin: bool,
    /// Whether somebody commits past the binlog, as channels of Tailwater do that the server does not log.
    pub unlogged: bool,
    /// Whether the server's own replication does (MariaDB with `log_slave_updates = OFF`, or without a binlog): then its GTIDs are
    /// to be had exactly while nobody commits.
    pub replicated_unlogged: bool,
}

impl SnapshotPlan {
    /// Whether it gives up at once where a table is being changed: then it is soon worth another try.
    pub fn is_hasty(&self) -> bool {
        self.steps.iter().any(|step| step.action == SnapshotAction::Hold(LockWait::Never))
    }
}

impl fmt::Display for SnapshotPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.method.name())?;
        for step in &self.steps {
            let writers = match step.writers {
                WriterEffect::None => "",
                WriterEffect::Blocked => "  [writers wait from here]",
                WriterEffect::Released => "  [writers go on]",
            };
            match &step.action {
                SnapshotAction::Control(sql) => write!(f, "  {sql}")?,
                SnapshotAction::Quiet => {
                    write!(f, "  wait until no statement runs for longer than a second")?
                }
                SnapshotAction::List(_) => {
                    write!(f, "  list databases, tables and all else; read definitions but of tables")?;
                }
                SnapshotAction::ListAgain => {
                    write!(
                        f,
                        "  list databases, tables and all else once more; read definitions but of tables"
                    )?;
                }
                SnapshotAction::Open | SnapshotAction::OpenAlike => {
                    write!(f, "  START TRANSACTION WITH CONSISTENT SNAPSHOT on each connection")?;
                }
                SnapshotAction::Position => write!(f, "  read binlog position and GTIDs")?,
                SnapshotAction::Hold(LockWait::ForIt) => {
                    write!(f, "  take a metadata lock on each table, on each connection")?;
                }
                SnapshotAction::Hold(LockWait::Never) => {
                    write!(
                        f,
                        "  take a metadata lock on each table, on each connection, at once or not at all"
                    )?;
                }
            }
            writeln!(f, "{writers}\n    {}", step.why)?;
        }
        Ok(())
    }
}

/// The ways that are open, the best first.
pub fn plans(
    capabilities: ServerCapabilities,
    connections: usize,
    tables: &[TableName],
) -> Vec<SnapshotPlan> {
    let ServerCapabilities { flavour, reload, unlogged, replicated_unlogged, .. } = capabilities;
    // The same place of the binlog is no proof of the same data then.
    let binlog = capabilities.binlog && !unlogged && !replicated_unlogged;
    let mut plans = Vec::new();
    // Alone, MariaDB tells where its snapshot is; MySQL tells nobody.
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
                // A definition that takes hours to change lets nobody block changes meanwhile.
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

const HOLD: &str = "definitions stay as they are until the table is finished; then its lock is let go";
const POSITION: &str = "where replication goes on behind this data";
const LIST: &str = "what there is cannot change now: nothing that is in the snapshot is missed";
const LIST_AGAIN: &str = "if something came or went meanwhile, all begins anew";
const SAME: &str = "nothing commits between them: all see the same";

fn lock_free(method: SnapshotMethod, reload: bool) -> SnapshotPlan {
    let mut steps = Vec::new();
    if reload {
        steps.push(control("BACKUP STAGE START", "the first of the stages of a backup; blocks nobody"));
        steps.push(control("BACKUP STAGE BLOCK_DDL", "no definition changes until all tables are held"));
        steps.push(step(SnapshotAction::List(LockWait::Never), LIST));
    }
    steps.push(match method {
        SnapshotMethod::Single => step(SnapshotAction::Open, "one connection sees one point in time"),
        _ => step(
            SnapshotAction::OpenAlike,
            "without a lock, again until binlog_snapshot_file and _position are the same on all",
        ),
    });
    steps.push(step(SnapshotAction::Position, POSITION));
    if !reload {
        steps.push(step(SnapshotAction::ListAgain, LIST_AGAIN));
    }
    steps.push(step(SnapshotAction::Hold(if reload { LockWait::Never } else { LockWait::ForIt }), HOLD));
    if reload {
        steps.push(control("BACKUP STAGE END", "definitions of other tables may change again"));
    }
    SnapshotPlan { method, steps }
}

fn backup_stage() -> SnapshotPlan {
    let steps = vec![
        control("BACKUP STAGE START", "the first of the stages of a backup; blocks nobody"),
        control("BACKUP STAGE BLOCK_DDL", "waits for definitions that are being changed"),
        step(SnapshotAction::List(LockWait::ForIt), LIST),
        control("BACKUP STAGE BLOCK_COMMIT", "commits wait").then_writers(WriterEffect::Blocked),
        step(SnapshotAction::Open, SAME),
        step(SnapshotAction::Position, POSITION),
        control("BACKUP STAGE END", "commits go on").then_writers(WriterEffect::Released),
        step(SnapshotAction::Hold(LockWait::ForIt), HOLD),
    ];
    SnapshotPlan { method: SnapshotMethod::BackupStage, steps }
}

fn read_lock(backup_admin: bool) -> SnapshotPlan {
    let mut steps =
        vec![step(SnapshotAction::Quiet, "a lock that waits behind a long statement makes everybody wait")];
    if backup_admin {
        let why = "no definition changes until all tables are held; writers go on";
        steps.push(control("LOCK INSTANCE FOR BACKUP", why));
        steps.push(step(SnapshotAction::List(LockWait::ForIt), LIST));
    }
    steps.extend([
        control("FLUSH NO_WRITE_TO_BINLOG TABLES", "waits for statements before anybody is locked out"),
        control("FLUSH TABLES WITH READ LOCK", "nothing commits").then_writers(WriterEffect::Blocked),
        step(SnapshotAction::Open, SAME),
        step(SnapshotAction::Position, POSITION),
        control("UNLOCK TABLES", "commits go on").then_writers(WriterEffect::Released),
    ]);
    if !backup_admin {
        steps.push(step(SnapshotAction::ListAgain, LIST_AGAIN));
    }
    steps.push(step(SnapshotAction::Hold(LockWait::ForIt), HOLD));
    if backup_admin {
        steps.push(control("UNLOCK INSTANCE", "definitions of other tables may change again"));
    }
    SnapshotPlan { method: SnapshotMethod::ReadLock, steps }
}

fn table_locks(tables: &[TableName]) -> SnapshotPlan {
    let locks: Vec<_> =
        tables.iter().map(|table| format!("{} READ", qualified(&table.schema, &table.name))).collect();
    let steps = vec![
        control(
            &format!("LOCK TABLES {}", locks.join(", ")),
            "without RELOAD: nothing commits in these tables",
        )
        .then_writers(WriterEffect::Blocked),
        step(SnapshotAction::Open, SAME),
        step(SnapshotAction::Position, POSITION),
        step(SnapshotAction::Hold(LockWait::ForIt), HOLD),
        control("UNLOCK TABLES", "commits go on").then_writers(WriterEffect::Released),
        step(SnapshotAction::ListAgain, LIST_AGAIN),
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
    fn every_plan_lets_writers_go_on_and_holds_all_tables_behind_the_snapshots() {
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
                        .or(place(SnapshotAction::OpenAlike))
                        .expect("it opens snapshots");
                    let holds =
                        plan.steps.iter().position(|step| matches!(step.action, SnapshotAction::Hold(_)));
                    assert!(holds.expect("it holds tables") > opened);
                    // Nothing that is in the snapshot may be missed.
                    let blocks = ["BACKUP STAGE BLOCK_DDL", "LOCK INSTANCE FOR BACKUP"]
                        .into_iter()
                        .find_map(|sql| place(SnapshotAction::Control(sql.into())));
                    let list =
                        plan.steps.iter().position(|step| matches!(step.action, SnapshotAction::List(_)));
                    match (blocks, list, place(SnapshotAction::ListAgain)) {
                        (Some(blocks), Some(list), None) => assert!(blocks < list && list < opened, "{plan}"),
                        (None, None, Some(again)) => assert!(again > opened, "{plan}"),
                        _ => panic!("{plan}"),
                    }
                    // Who changes a table may wait for the stage to end, with the table in his hands.
                    let stage = place(SnapshotAction::Control("BACKUP STAGE END".into()));
                    assert_eq!(stage > holds, plan.is_hasty(), "{plan}");
                    assert!(place(SnapshotAction::Position).expect("it reads the position") > opened);
                }
            }
        }
        let text = table_locks(&[TableName::new("a`b", "t")]).to_string();
        assert!(text.contains("LOCK TABLES `a``b`.`t` READ  [writers wait from here]\n"), "{text}");
    }
}
