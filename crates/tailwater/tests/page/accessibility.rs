//! Tests every view and dialog in light and dark colours, on a wide screen and on a phone: axe-core finds no
//! problem, nothing is cut off, and the first page is small.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tailwater_sandbox::ServerKind;

use super::browser::Browser;
use super::daemon_with_page::{OPERATOR, PageDaemon};

/// Maximum size of everything that a browser loads with the first page, in bytes.
const PAGE_BYTES_MAX: u64 = 200 << 10;

const VIEWS: [(&str, &str); 11] = [
    ("overview", "/"),
    ("logs", "/logs"),
    ("log", "/logs/primary"),
    ("channels", "/channels"),
    ("channel", "/channels/reports"),
    ("failovers", "/failovers/primary"),
    ("jobs", "/jobs"),
    ("job", "/jobs/4"),
    ("job-of-check", "/jobs/2"),
    ("binlog-servers", "/binlog-servers"),
    ("settings", "/settings"),
];

#[tokio::test]
async fn every_view_is_accessible_in_light_dark_and_on_a_phone() -> Result<()> {
    let Some(daemon) = PageDaemon::start(ServerKind::Mysql97).await? else { return Ok(()) };
    let browser = Browser::start(&daemon.tools, &daemon.base()).await?;
    browser.go("/").await?;
    browser.find("#token").await?;
    accessible(&browser, "login").await?;
    browser.picture("login").await?;
    browser.log_in(OPERATOR).await?;
    browser.until_well().await?;
    let bytes = browser.client.execute(
        "return performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource')) \
         .filter((entry) => !entry.name.includes('/api/')).reduce((sum, entry) => sum + entry.transferSize, 0)",
        Vec::new(),
    );
    let bytes = bytes.await?.as_f64().context("a number")? as u64;
    ensure!(bytes > 0 && bytes < PAGE_BYTES_MAX, "the first page takes {bytes} bytes");
    let loaded = "const [page] = performance.getEntriesByType('navigation'); return page.loadEventEnd - page.startTime";
    let loaded = browser.client.execute(loaded, Vec::new()).await?;
    println!("the first page: {bytes} bytes, loaded within {loaded} ms");

    // The test causes problems, so that the pages have every kind of content.
    daemon.trial.primary.sql("INSERT INTO shop.orders VALUES (1, 'one')").await?;
    browser
        .until("the target has the row", async || {
            let rows = daemon.target.sql("SELECT id FROM shop.orders").await.unwrap_or_default();
            Ok((rows == ["1"]).then_some(()))
        })
        .await?;
    daemon.target.sql("DROP TABLE shop.orders").await?;
    daemon.trial.primary.sql("INSERT INTO shop.orders VALUES (2, 'two')").await?;
    daemon.followers[1].sql("STOP REPLICA SQL_THREAD").await?;
    browser.until_text("#verdict", "problem").await?;
    browser.until_text(".problems", "channel reports").await?;
    browser.until_text(".problems", "db3").await?;
    browser.go("/failovers/primary").await?;
    browser.open_dialog("dry-run").await?;
    browser.submit().await?;
    browser.until_text("#live", "would be primary").await?;
    let run = browser.client.current_url().await?.path().to_owned();

    // Jobs of each kind of end, and one that runs until the end of the test.
    daemon.end_job(
        "load",
        &json!({
            "outcome": "failed", "code": "TW-BULK-0028",
            "message": "the server rejected rows of shop.orders: Duplicate entry '7' for key 'PRIMARY'",
            "progress": {"phase": "loading", "rows": 812_000, "rows_total": 2_400_000},
        }),
    )?;
    daemon.end_job("check", &json!({
        "outcome": "finished", "message": "compared 2,412,000 rows of 14 tables: 2 rows in 1 table differ",
        "found": {"tables": 1, "rows": 2, "repaired": 0, "remains": true},
        "progress": {"phase": "checking", "rows": 2_412_000, "rows_total": 2_400_000, "rows_per_second": 410_000},
        "log": ["INFO the target has everything that the source had", "WARN shop.orders: 2 rows differ"],
    }))?;
    daemon.end_job(
        "repair",
        &json!({
            "outcome": "finished", "message": "2 rows repaired",
            "found": {"tables": 1, "rows": 2, "repaired": 2, "remains": false},
            "progress": {"phase": "repairing", "rows": 2_412_000, "rows_total": 2_400_000},
        }),
    )?;
    let mut dump = daemon.start_slow_dump(12 << 10).await?;
    browser.go("/jobs").await?;
    browser.find("progress[aria-label='Progress of dump 4']").await?;

    let views: Vec<(&str, &str)> = VIEWS.into_iter().chain([("run", run.as_str())]).collect();
    for mode in ["", "-dark", "-phone"] {
        match mode {
            "-dark" => browser.prefer_dark().await?,
            "-phone" => browser.be_phone().await?,
            _ => {}
        }
        for (name, path) in &views {
            browser.go(path).await?;
            browser.find("#live").await?;
            if *name == "log" {
                browser.click("#analyse").await?;
                browser.until_text("#transactions-result", "Biggest transactions").await?;
            }
            browser.until("the charts are drawn", async || {
                let left = browser.client.execute(
                    "return [...document.querySelectorAll('figure.chart')].filter((one) => !one.querySelector('canvas')).length",
                    Vec::new(),
                );
                Ok((left.await? == 0).then_some(()))
            }).await?;
            accessible(&browser, &format!("{name}{mode}")).await?;
            fits(&browser, &format!("{name}{mode}")).await?;
            browser.picture(&format!("{name}{mode}")).await?;
        }
    }
    for (path, dialog) in [
        ("/channels/reports", "skip"),
        ("/channels/reports", "filter"),
        ("/channels/reports", "set"),
        ("/failovers/primary", "switchover"),
        ("/failovers/primary", "downtime"),
        ("/jobs/4", "cancel"),
    ] {
        browser.go(path).await?;
        browser.open_dialog(dialog).await?;
        accessible(&browser, dialog).await?;
        fits(&browser, dialog).await?;
        browser.picture(&format!("dialog-{dialog}-phone")).await?;
    }
    dump.child.kill()?;
    dump.child.wait()?;
    browser.stop().await?;
    daemon.stop().await
}

async fn accessible(browser: &Browser, what: &str) -> Result<()> {
    let problems = browser.accessibility_problems().await?;
    ensure!(problems.is_empty(), "{what} has problems: {problems:#?}");
    Ok(())
}

/// The page is not wider than the window: only tables and graphs may scroll sideways.
async fn fits(browser: &Browser, what: &str) -> Result<()> {
    let script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    let excess = browser.client.execute(script, Vec::new()).await?;
    ensure!(excess.as_i64().is_some_and(|excess| excess <= 0), "{what} is {excess} px wider than the window");
    Ok(())
}
