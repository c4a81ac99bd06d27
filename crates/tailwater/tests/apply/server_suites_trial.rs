//! `tailwater trial suites`, which runs the servers' test suites, must find a difference between source and
//! target.

use anyhow::{Result, ensure};
use tailwater_sandbox::{ServerKind, require};

use crate::shell_session::Shell;

const SCRIPT: &str = "--disable_warnings
create table t1 (id int primary key, body varchar(20));
insert into t1 values (1,'one'),(2,'two');
create user u1@localhost identified by 'x';
grant select on test.t1 to u1@localhost;
delimiter |;
create procedure p1() begin insert into t1 values (3,'three'); end|
delimiter ;|
call p1();
create view v1 as select id from t1;
drop view v1;
drop table t1;
";

/// Equal servers are reported as equal. If another client deletes a row on the target, the missing row is
/// reported.
#[test]
fn a_row_that_is_missing_on_the_target_is_reported() -> Result<()> {
    if require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    shell.write("mine.test", SCRIPT)?;
    let lines = shell.run("trial suites --script mine.test --output json")?.exits(0).json()?;
    let [report] = lines.as_slice() else {
        anyhow::bail!("the trial did not print exactly one line: {lines:?}")
    };
    // The trial compares the servers before the view is dropped, and at the end. It makes no third comparison
    // before the table is dropped, because the script drops the table too soon after the view.
    ensure!(
        report["differences"].as_array().is_some_and(Vec::is_empty),
        "the trial reports a difference between equal servers: {report}"
    );
    ensure!(
        report["statements"] == 9 && report["checkpoints"].as_u64() >= Some(2),
        "the number of statements or of checkpoints is wrong: {report}"
    );

    let found = shell.run("trial suites --script mine.test --plant --report r.jsonl")?.exits(3);
    found.says(&["DIFFERENT", "rows of `test`.`t1`", "\"one\""]);
    let statements = std::fs::read_dir(shell.path().join("r.statements"))?.count();
    ensure!(statements == 1 && std::fs::read_to_string(shell.path().join("r.jsonl"))?.contains("rows of"));
    Ok(())
}
