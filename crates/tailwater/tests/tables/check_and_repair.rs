//! Exit codes and output of `tailwater check` and `tailwater repair`, and checks that are killed and resumed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell_session::{Shell, earlier_program};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_killed_check_resumes_and_its_differences_are_repaired_mysql() -> Result<()> {
    killed_check_resumes_and_its_state_is_repaired(ServerKind::Mysql97).await
}

#[tokio::test]
async fn a_killed_check_resumes_and_its_differences_are_repaired_mariadb() -> Result<()> {
    killed_check_resumes_and_its_state_is_repaired(ServerKind::Mariadb1011).await
}

const SCRIPT: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE digits (d INT PRIMARY KEY);
    INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
    CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(200), secret VARCHAR(20));
    INSERT INTO orders SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, REPEAT(CHAR(65 + a.d), 100), 'hush'
        FROM digits a, digits b, digits c, digits e;
";

/// Statements that change rows on the target without writing the changes to its binlog.
const PLANTED: &str = "SET sql_log_bin = 0; UPDATE shop.orders SET secret = 'hushed' WHERE id IN (5, 7000); \
     DELETE FROM shop.orders WHERE id = 4000; INSERT INTO shop.orders VALUES (-1, 'x', NULL)";

async fn killed_check_resumes_and_its_state_is_repaired(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) =
        tokio::try_join!(Server::start(ServerSpec::new(kind)), Server::start(ServerSpec::new(kind)))?;
    target.replicate_from(&source).await?;
    source.sql(SCRIPT).await?;
    let shell = Shell::new()?;
    let server = |side: &str, server: &Server| {
        format!("--{side}-host 127.0.0.1 --{side}-port {} --{side}-user root", server.port())
    };
    let both = format!("{} {} --database shop", server("source", &source), server("target", &target));
    shell.run(&format!("check {both}"))?.exits(0).says(&["compared 10,010 rows of 2 tables", "all the same"]);
    target.sql(PLANTED).await?;

    // The check compares one chunk at a time, so that there is time to kill it.
    let check = format!("check {both} --state state --workers 1 --chunk-rows-max 20");
    let mut child = Command::new(earlier_program())
        .args(check.split_whitespace())
        .current_dir(shell.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let started = Instant::now();
    loop {
        ensure!(started.elapsed() < PATIENCE, "the check has compared no rows");
        ensure!(child.try_wait()?.is_none(), "the check ended before it was killed");
        let state = std::fs::read_to_string(shell.path().join("state")).unwrap_or_default();
        if state.matches("\"compared\"").count() >= 30 {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    shell.run(&check)?.exits(4).stderr_has(&["TW-BULK-0043", "--resume"]);
    let repair = format!("repair {both} --state state --from-state");
    shell.run(&format!("{repair} --dry-run"))?.exits(3).says(&["the check did not finish"]);
    let before = std::fs::read_to_string(shell.path().join("state"))?;
    let ran = shell.run(&format!("{check} --resume --output json"))?.exits(3);
    let lines = ran.json()?;
    let done = lines.last().context("the check printed nothing")?;
    ensure!(
        done["event"] == "done" && done["equal"] == false && done["rows"] == 10_010,
        "the last line of the resumed check is unexpected: {done}"
    );
    let found: Vec<_> = lines.iter().filter(|line| line["event"] == "difference").collect();
    let whats: Vec<_> = found.iter().map(|line| (&line["key"][0], &line["what"])).collect();
    ensure!(
        format!("{whats:?}").matches("changed").count() == 2 && found.len() == 4,
        "the check does not report the expected four differences: {whats:?}"
    );
    let after = std::fs::read_to_string(shell.path().join("state"))?;
    ensure!(
        after.starts_with(&before[..before.rfind('\n').context("the state file has no complete line")?]),
        "the resumed check has started from scratch"
    );
    ensure!(
        !after.contains("hush") && !format!("{lines:?}").contains("hush"),
        "the output contains row values"
    );
    let shown = shell.run(&format!("check {both} --show-values"))?.exits(3);
    let shown = shown.says(&["secret: hush on the source, hushed on the target", "4 differences"]);
    drop(shown);

    let others = format!("{repair} --exclude-table shop.orders");
    shell.run(&others)?.exits(0).says(&["0 rows repaired, 0 already the same, 0 remaining"]);
    shell
        .run(&format!("{repair} --dry-run"))?
        .exits(3)
        .says(&["would insert shop.orders (4000)", "would delete"]);
    shell.run(&repair)?.exits(0).says(&["4 rows repaired", "0 remaining"]);
    shell.run(&repair)?.exits(0).says(&["0 rows repaired, 4 already the same"]);
    shell.run(&format!("check {both}"))?.exits(0).says(&["all the same"]);

    source.sql("CREATE TABLE shop.keyless (a INT)").await?;
    let gtids = match kind {
        ServerKind::Mysql97 => "SELECT @@GLOBAL.gtid_executed",
        _ => "SELECT @@GLOBAL.gtid_binlog_pos",
    };
    let gtids = source.sql(gtids).await?.concat().replace("\\n", "");
    ensure!(target.wait_for_gtids(&gtids, PATIENCE).await?);
    target.sql("SET sql_log_bin = 0; INSERT INTO shop.keyless VALUES (1)").await?;
    shell
        .run(&format!("repair {both}"))?
        .exits(3)
        .says(&["the table has no unique key that identifies the row", "1 remaining"]);
    let same = format!("{} {}", server("source", &source), server("target", &source));
    shell.run(&format!("check {same}"))?.exits(4).stderr_has(&["TW-BULK-0045"]);

    target.sql("CREATE USER reader@'127.0.0.1'; GRANT SELECT ON *.* TO reader@'127.0.0.1'").await?;
    let reader =
        both.replace(&server("target", &target), &server("target", &target).replace("root", "reader"));
    shell.run(&format!("repair {reader} --wait none"))?.exits(1).stderr_has(&[
        "TW-BULK-0046",
        "grant it",
        "--log-to-binlog",
    ]);
    Ok(())
}

/// Control characters in names cannot add false lines to the output, and messages are readable. By default,
/// the check does not wait for a target that is not a replica.
#[tokio::test]
async fn output_of_check_escapes_control_characters() -> Result<()> {
    for kind in [ServerKind::Mysql97, ServerKind::Mariadb1011] {
        if require(kind).is_none() {
            continue;
        }
        let spec = || match kind.flavour() {
            Flavour::MySql => {
                ServerSpec::new(kind).options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"])
            }
            Flavour::MariaDb => ServerSpec::new(kind),
        };
        let (source, target) = tokio::try_join!(Server::start(spec()), Server::start(spec()))?;
        let forged = "CREATE DATABASE shop; CREATE TABLE shop.`a\ncompared 1 row: all the same\u{202e}b` (id INT PRIMARY KEY)";
        source.sql(forged).await?;
        target.sql("CREATE DATABASE shop").await?;
        let shell = Shell::new()?;
        let check = format!(
            "check --source-host 127.0.0.1 --source-port {} --source-user root --target-host 127.0.0.1 --target-port {} \
             --target-user root --database shop",
            source.port(),
            target.port()
        );
        let started = Instant::now();
        if kind.flavour() == Flavour::MariaDb {
            // With this value, the target looks as if it had been a replica before.
            target.sql("SET GLOBAL gtid_slave_pos = '7-7-7'").await?;
        }
        shell.run(&check)?.exits(4).stderr_has(&["TW-BULK-0041", "is not a replica", "--wait none"]);
        ensure!(
            started.elapsed() < Duration::from_secs(60),
            "the check waited although the target is not a replica"
        );
        if kind.flavour() == Flavour::MySql {
            // With `--wait gtid`, the check waits until its time limit, and its message names the GTIDs that
            // it waits for.
            shell.run(&format!("{check} --wait gtid --wait-max-s 11"))?.exits(1).stderr_has(&[
                "checking: preparing, waiting: ",
                "has not reached the source's position yet",
                "TW-BULK-0040",
            ]);
        }
        let ran = shell.run(&format!("{check} --wait none"))?.exits(3);
        ensure!(
            ran.text().contains("shop.a\\ncompared 1 row: all the same\\u{202e}b: the target"),
            "the control characters in the name are not escaped: {}",
            ran.text()
        );
        ensure!(
            !ran.text().contains('\u{202e}') && ran.text().lines().count() == 2,
            "the output has a control character of a name, or more than two lines: {}",
            ran.text()
        );
        ensure!(
            !ran.errors().contains('{'),
            "the error contains the debug form of a Rust value: {}",
            ran.errors()
        );
    }
    Ok(())
}
