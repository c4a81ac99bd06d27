//! The views of clusters, and every action of a manager.

use anyhow::{Context, Result, ensure};
use fantoccini::key::Key;
use tailwater_sandbox::ServerKind;

use super::browser::Browser;
use super::daemon_with_page::{OPERATOR, PageDaemon};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_managed_from_the_page_mariadb() -> Result<()> {
    a_cluster_is_managed_from_the_page(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_managed_from_the_page_mysql() -> Result<()> {
    a_cluster_is_managed_from_the_page(ServerKind::Mysql97).await
}

async fn a_cluster_is_managed_from_the_page(kind: ServerKind) -> Result<()> {
    let Some(mut daemon) = PageDaemon::start(kind).await? else { return Ok(()) };
    let browser = daemon.visit(OPERATOR).await?;
    browser.click("nav a[href='/failovers']").await?;
    browser.until_text("tbody", "ready: a failover would promote").await?;
    browser.click("tbody a[href='/failovers/primary']").await?;
    browser.until_text("#live", "held, lease term").await?;

    browser.open_dialog("pause").await?;
    browser.submit().await?;
    browser.until_done("automatic failover is paused").await?;
    browser.open_dialog("resume").await?;
    browser.submit().await?;
    browser.until_done("automatic failover is resumed").await?;
    browser.find("#action-pause").await?;

    browser.open_dialog("downtime").await?;
    browser.enter("for", "long").await?;
    browser.submit().await?;
    browser.until_text("dialog [role=alert]", "is no duration").await?;
    browser.enter("for", "2h").await?;
    browser.enter("reason", "a new disk").await?;
    browser.select("server", "db3").await?;
    browser.submit().await?;
    browser.until_done("the downtime has begun").await?;
    browser.until_text("#live", "Downtime of db3").await?;
    browser.until_text("#live", "a new disk").await?;
    browser.open_dialog("downtime").await?;
    browser.select("server", "db3").await?;
    browser.click("dialog [name=end]").await?;
    browser.submit().await?;
    browser.until_done("the downtime has ended").await?;

    browser.open_dialog("dry-run").await?;
    browser.submit().await?;
    browser.until_text("#live", "would be primary").await?;
    browser.until_text("h1 ~ #live h2", "Dry run of a switchover").await?;
    browser.find("svg.timeline rect").await?;

    a_refused_failover_says_why(&browser).await?;
    the_primary_dies(&browser, &mut daemon).await?;
    switch_over_with_the_keyboard(&browser, &daemon).await?;
    the_daemon_dies(&browser, daemon).await?;
    browser.stop().await
}

async fn switch_over_with_the_keyboard(browser: &Browser, daemon: &PageDaemon) -> Result<()> {
    let primary = daemon.trial.cluster().context("the daemon does not report the cluster")?.primary;
    let other = if primary == "db2" { "db3" } else { "db2" };
    browser.go("/failovers/primary").await?;
    browser
        .until("the other server replicates from the log", async || {
            let row = browser.text(&format!("#server-primary-{other}")).await?;
            Ok((row.contains("tailwater") && row.contains("in step")).then_some(()))
        })
        .await?;
    browser.tab_to("#action-switchover").await?;
    browser.press(Key::Enter).await?;
    browser.find("dialog[open] form").await?;
    // The focus is within the dialog, Escape closes it, and the focus returns to the button.
    browser.tab_to("dialog[open] [name=confirm]").await?;
    browser.press(Key::Escape).await?;
    browser
        .until("the button has the focus again", async || {
            let focused = browser.client.execute("return document.activeElement.id", Vec::new()).await?;
            Ok((focused == "action-switchover").then_some(()))
        })
        .await?;
    browser.press(Key::Enter).await?;
    browser.tab_to("dialog[open] [name=to]").await?;
    browser.type_text(other).await?;
    browser.tab_to("dialog[open] [name=confirm]").await?;
    browser.type_text("primary").await?;
    browser.press(Key::Enter).await?;
    browser.until_text("#run-outcome", "promoted").await?;
    let shown = browser.until_text("#live", &format!("{other} is primary")).await?;
    ensure!(
        shown.contains(&format!("New primary\n{other}")) && shown.contains("No server took writes for"),
        "the switchover does not show the new primary and the write pause: {shown}"
    );
    daemon.trial.wait_for_primary(other).await?;
    browser.go("/failovers/primary").await?;
    let history = browser.until_text("#live", &format!("{primary} → {other}")).await?;
    ensure!(
        history.contains("dry run of a switchover") && history.contains("planned"),
        "the history does not list the dry run: {history}"
    );
    browser.go("/").await?;
    browser.until_text("#live", &format!("primary {other}")).await.map(drop)
}

/// The primary is alive, so a failover is refused, and nothing changes.
async fn a_refused_failover_says_why(browser: &Browser) -> Result<()> {
    browser.go("/failovers/primary").await?;
    browser.open_dialog("failover").await?;
    browser.enter("confirm", "primary").await?;
    browser.submit().await?;
    browser.until_text("#run-outcome", "unchanged").await?;
    browser.until_text("#live", "nothing was changed").await.map(drop)
}

/// The primary dies, the overview reports that, and an operator starts a failover.
async fn the_primary_dies(browser: &Browser, daemon: &mut PageDaemon) -> Result<()> {
    browser.go("/failovers/primary").await?;
    browser.until_text("#readiness", "ready: a failover would promote").await?;
    daemon.trial.primary.kill().await?;
    browser.go("/").await?;
    browser.until_text(".problems", "DeadPrimary").await?;
    browser.go("/failovers/primary").await?;
    browser.until_text(".finding", "DeadPrimary").await?;
    browser.open_dialog("failover").await?;
    browser.enter("confirm", "primary").await?;
    browser.submit().await?;
    browser.until_text("#run-outcome", "promoted").await?;
    browser.go("/failovers/primary").await?;
    browser.until_text("#live", "not acknowledged").await?;
    browser.open_dialog("acknowledge").await?;
    browser.submit().await?;
    browser.until_done("the failover is acknowledged").await?;
    browser
        .until("the failover is acknowledged", async || {
            Ok((!browser.text("#live").await?.contains("not acknowledged")).then_some(()))
        })
        .await?;
    Ok(())
}

/// After the daemon has died, the page still shows its last state, and says that this state is old.
async fn the_daemon_dies(browser: &Browser, daemon: PageDaemon) -> Result<()> {
    browser.go("/failovers/primary").await?;
    browser.until_text("#live", "History").await?;
    daemon.stop().await?;
    browser.until_text("#offline", "does not answer").await?;
    ensure!(browser.text("#live").await?.contains("History"), "the page no longer shows the last state");
    Ok(())
}
