//! The views of jobs, and the button that cancels one.

use std::process::Command;

use anyhow::{Result, ensure};
use fantoccini::key::Key;
use serde_json::json;
use tailwater_sandbox::ServerKind;

use super::daemon_with_page::{OPERATOR, PageDaemon, READER};
use crate::shell_session::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cancels_a_dump_from_the_page() -> Result<()> {
    let Some(daemon) = PageDaemon::start(ServerKind::Mysql97).await? else { return Ok(()) };
    let browser = daemon.visit(OPERATOR).await?;
    browser.click("nav a[href='/jobs']").await?;
    browser.until_text("#live", "Nothing runs now").await?;
    let dump = daemon.start_slow_dump(12 << 10).await?;
    // The view updates without being loaded again.
    browser.until_text("tbody", "dump 1").await?;
    browser.find("progress[aria-label='Progress of dump 1']").await?;
    browser.until_text("tbody", " %)").await?;
    browser.go("/").await?;
    browser.until_text(".tiles", "Jobs running\n1").await?;
    browser.go("/jobs").await?;
    browser.click("tbody a[href='/jobs/1']").await?;
    browser.until_text("#job-state", "running").await?;
    browser.until_text("#live", "process").await?;

    let reader = daemon.visit(READER).await?;
    reader.go("/jobs/1").await?;
    reader.until_text("#job-state", "running").await?;
    ensure!(reader.text(".actions").await?.is_empty(), "a reader has the button");
    let script = "const done = arguments[arguments.length - 1]; \
        const headers = JSON.parse(document.body.getAttribute('hx-headers:inherited')); \
        fetch('/jobs/1/cancel', { method: 'POST', headers }).then((response) => done(response.status))";
    let status = reader.client.execute_async(script, Vec::new()).await?;
    ensure!(status == 403, "a reader's cancellation got {status}");
    reader.stop().await?;

    // With the keyboard: the dialog says what remains, and Escape changes nothing.
    browser.tab_to("#action-cancel").await?;
    browser.press(Key::Enter).await?;
    browser.until_text("dialog[open]", "the same command with --resume continues").await?;
    browser.press(Key::Escape).await?;
    browser.open_dialog("cancel").await?;
    browser.until_text("dialog[open] [data-close]", "Let it run").await?;
    browser.click("dialog[open] [data-close]").await?;
    ensure!(daemon.job(1)?["cancellation"].is_null(), "a closed dialog has cancelled the job");
    browser.open_dialog("cancel").await?;
    browser.submit().await?;
    browser.until_done("The dump 1 ends within a few seconds").await?;
    browser.until_text("#job-state", "cancelled").await?;
    let end = browser.until_text("#job-end", "continue with --resume").await?;
    ensure!(end.contains("cancelled by anna"), "{end}");
    let buttons = browser.client.find_all(fantoccini::Locator::Css("#action-cancel")).await?;
    ensure!(buttons.is_empty(), "an ended job has the button");
    let output = dump.child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && errors.contains("cancelled by anna"), "{errors}");

    dump.link.set_bandwidth(None);
    let resumed = Command::new(PROGRAM).args(&dump.arguments).arg("--resume").output()?;
    ensure!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    browser.go("/jobs").await?;
    let list = browser.until_text("#live", "dump 2").await?;
    ensure!(list.contains("finished") && list.contains("by anna"), "{list}");

    // What a check has found is in the list and in its view.
    let id = daemon.end_job(
        "check",
        &json!({
            "outcome": "finished", "message": "compared 9 rows of 1 table: 2 rows in 1 table differ",
            "found": {"tables": 1, "rows": 2, "repaired": 0, "remains": true}, "log": ["<b>a line</b>"],
        }),
    )?;
    browser.until_text("tbody", "2 rows in 1 table differ").await?;
    browser.click(&format!("tbody a[href='/jobs/{id}']")).await?;
    browser.until_text("#job-end", "compared 9 rows of 1 table").await?;
    browser.until_text("#live", "<b>a line</b>").await?;
    for path in ["/jobs/77", "/jobs/none"] {
        browser.go(path).await?;
        browser.until_text("main", "here is no job").await?;
    }
    let late = daemon.ask("POST /jobs/1/cancel", "", "")?.0;
    ensure!(late == 401 || late == 403, "a request without a session got {late}");
    browser.stop().await?;
    daemon.stop().await
}
