//! Loads, copies and checks that `tailwater job cancel` ends: what they leave is said, and the same command
//! with `--resume` finishes the work. What a check and a repair have found is in the list.

use std::process::{Child, Command};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

use super::jobs::{ROWS, SlowServer, id_of};

/// What the table must have after the work.
const CONTENT: &str = "SELECT COUNT(*), SUM(CRC32(CONCAT(id, t))) FROM shop.t";

/// Cancels a job with the command, and returns the job after its end. The command of the job must have ended
/// as after Ctrl-C, with this text in its message.
fn cancelled(setup: &SlowServer, (child, job): (Child, Value), left: &str) -> Result<Value> {
    let id = id_of(&job)?;
    let shell = &setup.daemon.shell;
    let said = shell.run(&format!("job cancel {id} -c tailwater.toml"))?.exits(0);
    said.says(&["ends within a few seconds", &format!("tailwater job show {id}"), "--resume"]);
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && errors.contains("cancelled by user 0") && errors.contains(left),
        "the cancelled command must end with exit code 1 and tell how to continue: {errors}"
    );
    let job = setup.until(|job| job["id"] == id && job["state"] != "running")?;
    let message = job["message"].as_str().unwrap_or_default();
    ensure!(job["state"] == "cancelled" && message.contains(left) && job["found"].is_null(), "{job}");
    shell.run(&format!("job show {id} -c tailwater.toml"))?.exits(0).says(&["cancelled", "by user 0", left]);
    Ok(job)
}

fn succeeds(mut command: Command, code: i32) -> Result<()> {
    let output = command.output()?;
    ensure!(output.status.code() == Some(code), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_load_is_resumed() -> Result<()> {
    let Some(setup) = SlowServer::start(ServerKind::Mysql97).await? else { return Ok(()) };
    let before = setup.server.sql(CONTENT).await?;
    succeeds(setup.command(setup.server.port(), "dump dump --chunk-rows-max 500"), 0)?;
    setup.server.sql("DROP DATABASE shop").await?;
    let load = "load dump --workers 1";
    let running = setup.start_slowly(setup.command(setup.link.port(), load))?;
    ensure!(running.1["kind"] == "load" && running.1["progress"]["phase"] == "loading", "{}", running.1);
    cancelled(&setup, running, "--resume")?;
    setup.link.set_bandwidth(None);
    // A load that would repeat rows is refused, and says what to do.
    let refused = setup.command(setup.server.port(), load).output()?;
    let errors = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(4) && errors.contains("--resume"), "{errors}");
    succeeds(setup.command(setup.server.port(), &format!("{load} --resume")), 0)?;
    ensure!(setup.server.sql(CONTENT).await? == before, "the resumed load lacks or repeats rows");
    let job = setup.until(|job| job["kind"] == "load" && job["state"] == "finished")?;
    ensure!(job["message"] == "loaded 20,000 rows of 1 table", "{job}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_copy_and_a_cancelled_check_are_resumed() -> Result<()> {
    let kind = ServerKind::Mariadb118;
    if require(kind).is_none() {
        return Ok(());
    }
    let target = Server::start(ServerSpec::new(kind).name("target")).await?;
    let Some(setup) = SlowServer::start(kind).await? else { return Ok(()) };
    let command = |words: &str| setup.command_between(setup.link.port(), &target, words);

    // With the size of rows in the statistics, the copy has many chunks.
    setup.server.sql("ANALYZE TABLE shop.t").await?;
    let copy = "copy --database shop --workers 1 --chunk-bytes-max 150000";
    let running = setup.start_slowly(command(copy))?;
    ensure!(running.1["kind"] == "copy", "{}", running.1);
    cancelled(&setup, running, "--resume")?;
    setup.link.set_bandwidth(None);
    succeeds(command(copy), 4)?;
    succeeds(command(&format!("{copy} --resume")), 0)?;
    ensure!(
        target.sql(CONTENT).await? == setup.server.sql(CONTENT).await?,
        "the resumed copy is not complete"
    );

    let drift = "UPDATE shop.t SET t = 'drift' WHERE id IN (1, 19000); DELETE FROM shop.t WHERE id = 7";
    target.sql(drift).await?;
    let check = "check --wait none --digests client --workers 1 --chunk-rows-max 500 --state state";
    let running = setup.start_slowly(command(check))?;
    let part = cancelled(&setup, running, "--resume")?;
    ensure!(part["progress"]["rows"].as_u64().is_some_and(|rows| rows < ROWS as u64), "{part}");
    setup.link.set_bandwidth(None);
    succeeds(command(&format!("{check} --resume")), 3)?;
    let job = setup.until(|job| job["kind"] == "check" && job["state"] == "finished")?;
    ensure!(
        job["found"] == json!({"tables": 1, "rows": 3, "repaired": 0, "remains": true})
            && job["message"].as_str().is_some_and(|text| text.contains("3 rows in 1 table differ")),
        "{job}"
    );
    succeeds(command("repair --wait none --dry-run"), 3)?;
    succeeds(command("repair --wait none"), 0)?;
    let job = setup.until(|job| job["kind"] == "repair" && job["found"]["repaired"] == 3)?;
    ensure!(job["state"] == "finished" && job["found"]["remains"] == false, "{job}");
    setup.daemon.shell.run("job list -c tailwater.toml")?.exits(0).says(&[
        "RESULT",
        "3 rows in 1 table differ",
        "3 rows repaired",
        "by user 0",
    ]);
    let once = setup.daemon.shell.run("top -c tailwater.toml --once --screen jobs")?.exits(0);
    once.says(&["JOBS: 7, 0 running", "3 rows in 1 table differ", "3 rows repaired"]);
    Ok(())
}
