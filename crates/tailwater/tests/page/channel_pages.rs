//! The views of logs, channels and binlog servers, and every action of a channel.

use anyhow::{Result, ensure};
use serde_json::json;
use tailwater_sandbox::ServerKind;

use super::browser::Browser;
use super::daemon_with_page::{OPERATOR, PageDaemon, READER};

#[tokio::test]
async fn an_operator_sees_everything_and_controls_a_channel_mariadb() -> Result<()> {
    an_operator_sees_everything_and_controls_a_channel(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn an_operator_sees_everything_and_controls_a_channel_mysql() -> Result<()> {
    an_operator_sees_everything_and_controls_a_channel(ServerKind::Mysql97).await
}

async fn an_operator_sees_everything_and_controls_a_channel(kind: ServerKind) -> Result<()> {
    let Some(daemon) = PageDaemon::start(kind).await? else { return Ok(()) };
    let browser = daemon.visit(OPERATOR).await?;
    views_show_the_daemon(&browser).await?;
    a_log_is_analysed(&browser, &daemon).await?;
    channel_actions(&browser, &daemon).await?;
    a_failed_channel_is_repaired(&browser, &daemon).await?;
    browser.click("header button[hx-post='/logout']").await?;
    browser.find("#token").await?;
    browser.go("/channels").await?;
    browser.find("#token").await?;
    browser.stop().await?;
    daemon.stop().await
}

async fn views_show_the_daemon(browser: &Browser) -> Result<()> {
    browser.until_well().await?;
    for expected in ["db1", "db2", "db3", "primary", "replica", "channel target", "in force", "reports"] {
        browser.until_text("#live", expected).await?;
    }
    // The graph has a box for each server, and each box leads to its row.
    browser.find("a.node[href='#server-primary-db2']").await?;
    browser.click("a.node[href='#server-primary-db2'] rect.box").await?;
    ensure!(browser.client.current_url().await?.fragment() == Some("server-primary-db2"));

    browser.click("nav a[href='/logs']").await?;
    browser.until_text("tbody", "streaming").await?;
    browser.click("tbody a[href='/logs/primary']").await?;
    for expected in ["Segments", "being written", "Transactions since the start", "in force"] {
        browser.until_text("#live", expected).await?;
    }
    browser.click("nav a[href='/binlog-servers']").await?;
    for expected in ["serves the log of primary", "db2", "db3", "Sent up to"] {
        browser.until_text("#live", expected).await?;
    }
    browser.click("nav a[href='/settings']").await?;
    for expected in ["[log]", "[[channel]]", "default", "file", "10000"] {
        browser.until_text("#live", expected).await?;
    }
    browser.click("nav a[href='/channels']").await?;
    browser.until_text("tbody", "running").await?;
    // A chart has points after the daemon has run for a while. Its label contains its figures as text.
    browser.go("/logs/primary").await?;
    browser
        .until("the chart shows what was written", async || {
            let label =
                browser.find("#chart-bytes .plot").await?.attr("aria-label").await?.unwrap_or_default();
            Ok((label.contains("last hour") && label.contains("max")).then_some(label))
        })
        .await?;
    browser.click("#period input[value=day]").await?;
    browser
        .until("the chart covers a day", async || {
            let label =
                browser.find("#chart-bytes .plot").await?.attr("aria-label").await?.unwrap_or_default();
            Ok(label.contains("last day").then_some(label))
        })
        .await?;
    // The page of an unknown channel is an error that names the channel.
    browser.go("/channels/absent").await?;
    browser.until_text("main", "The configuration has no channel \"absent\".").await.map(drop)
}

/// The view of a log lists big transactions on request. The list remains when the view is updated.
async fn a_log_is_analysed(browser: &Browser, daemon: &PageDaemon) -> Result<()> {
    let big = "CREATE TABLE shop.big (id INT PRIMARY KEY, note LONGTEXT); \
               INSERT INTO shop.big VALUES (1, REPEAT('x', 2000000))";
    daemon.trial.primary.sql(big).await?;
    browser.go("/logs/primary").await?;
    browser.until_text("#live", "1.9 MiB").await?;
    browser.click("#analyse").await?;
    let found = browser.until_text("#transactions-result", "Biggest transactions").await?;
    ensure!(
        found.contains("shop.big") && found.contains("1.9 MiB"),
        "the list of big transactions lacks shop.big or its size: {found}"
    );
    let updated = browser.text("#updated").await?;
    browser
        .until("the view is updated", async || Ok((browser.text("#updated").await? != updated).then_some(())))
        .await?;
    ensure!(
        browser.text("#transactions-result").await? == found,
        "an update of the view has removed the list of big transactions"
    );
    Ok(())
}

async fn channel_actions(browser: &Browser, daemon: &PageDaemon) -> Result<()> {
    browser.go("/channels/reports").await?;
    browser.until_text("#channel-state", "running").await?;
    browser.open_dialog("stop").await?;
    browser.submit().await?;
    browser.until_done("Channel reports: stopped").await?;
    // The view updates without being loaded again.
    browser.until_text("#channel-state", "stopped").await?;
    browser.open_dialog("start").await?;
    browser.enter("until_time", "soon").await?;
    browser.submit().await?;
    browser.until_text("dialog [role=alert]", "until_time").await?;
    browser.enter("until_time", "").await?;
    browser.submit().await?;
    browser.until_done("Channel reports: started").await?;
    browser.until_text("#channel-state", "running").await?;

    browser.open_dialog("set").await?;
    browser.enter("workers", "3").await?;
    browser.submit().await?;
    browser.until_done("the settings are changed").await?;
    browser
        .until("the channel has three workers", async || {
            let facts = browser.text(".facts").await?;
            Ok(facts.contains("Workers\n3").then_some(()))
        })
        .await?;

    browser.open_dialog("filter").await?;
    browser.enter("filters", "exclude = 5").await?;
    browser.enter("confirm", "reports").await?;
    browser.submit().await?;
    browser.until_text("dialog [role=alert]", "line 1").await?;
    browser.enter("filters", "exclude = [\"shop.audit\"]").await?;
    browser.enter("confirm", "reports").await?;
    browser.submit().await?;
    browser.until_done("the filters are replaced").await?;
    browser
        .until("the filters have version 2", async || {
            Ok(browser.text(".facts").await?.contains("Version of the filters\n2").then_some(()))
        })
        .await?;
    // The dialog offers what is in force, and not what the configuration file has.
    browser.open_dialog("filter").await?;
    let offered = browser.find("dialog [name=filters]").await?.prop("value").await?.unwrap_or_default();
    ensure!(offered.trim() == "exclude = [\"shop.audit\"]", "the dialog offers {offered:?}");
    browser.until_text("dialog", "version 2, which is in force").await?;
    browser.click("dialog [data-close]").await?;
    daemon
        .trial
        .primary
        .sql("CREATE TABLE shop.audit (id INT PRIMARY KEY); INSERT INTO shop.orders VALUES (1, 'one')")
        .await?;
    browser
        .until("the target has the row", async || {
            let rows = daemon.target.sql("SELECT id FROM shop.orders").await.unwrap_or_default();
            Ok((rows == ["1"]).then_some(()))
        })
        .await?;
    let audit = daemon.target.sql("SHOW TABLES FROM shop LIKE 'audit'").await?;
    ensure!(audit.is_empty(), "the filter does not exclude shop.audit: {audit:?}");

    browser.open_dialog("stop").await?;
    browser.submit().await?;
    browser.until_text("#channel-state", "stopped").await?;
    browser.open_dialog("seek").await?;
    let offered = browser.find("dialog [name=gtids]").await?.prop("value").await?.unwrap_or_default();
    ensure!(!offered.trim().is_empty(), "the dialog does not offer the present position");
    // The browser refuses to send the form until the right name is entered.
    browser.enter("confirm", "report").await?;
    browser.submit().await?;
    ensure!(browser.text("dialog").await?.contains("Set the applied position"));
    browser.enter("confirm", "reports").await?;
    browser.submit().await?;
    browser.until_done("the applied position is set").await?;
    browser.open_dialog("start").await?;
    browser.submit().await?;
    browser.until_text("#channel-state", "running").await.map(drop)
}

/// The channel fails at a row that the target already has. Tolerating the difference repairs it. Then it
/// fails again, and skipping the transaction repairs it.
async fn a_failed_channel_is_repaired(browser: &Browser, daemon: &PageDaemon) -> Result<()> {
    daemon.target.sql("DELETE FROM shop.orders; DROP TABLE shop.orders").await?;
    daemon.trial.primary.sql("INSERT INTO shop.orders VALUES (2, 'two')").await?;
    browser.until_text("#channel-state", "failed").await?;
    browser.until_text("#live", "TW-APP-").await?;
    browser.go("/").await?;
    browser.until_text("#verdict", "problem").await?;
    let problem = browser.until_text(".problems", "What to do:").await?;
    ensure!(
        problem.contains("channel reports") && problem.contains("tailwater channel skip"),
        "the problem lacks the channel or the command that repairs it: {problem}"
    );
    browser.click(".problems a[href='/channels/reports']").await?;
    browser.until_text("#channel-state", "failed").await?;

    daemon.target.sql("CREATE TABLE shop.orders (id INT PRIMARY KEY, note TEXT); INSERT INTO shop.orders VALUES (2, 'other')").await?;
    browser.open_dialog("start").await?;
    browser.submit().await?;
    browser
        .until("the channel fails at the row", async || {
            let text = browser.text("#live").await?;
            Ok((text.contains("failed") && text.contains("TW-APP-0002")).then_some(()))
        })
        .await?;
    browser.open_dialog("tolerate").await?;
    browser.submit().await?;
    browser.until_done("Channel reports: started").await?;
    browser.until_text("#channel-state", "running").await?;
    browser
        .until("the target's row is replaced", async || {
            let rows = daemon.target.sql("SELECT note FROM shop.orders WHERE id = 2").await?;
            Ok((rows == ["two"]).then_some(()))
        })
        .await?;

    daemon.target.sql("INSERT INTO shop.orders VALUES (3, 'other')").await?;
    daemon.trial.primary.sql("INSERT INTO shop.orders VALUES (3, 'three')").await?;
    browser.until_text("#channel-state", "failed").await?;
    browser.open_dialog("skip").await?;
    let gtid = browser.find("dialog [name=gtid]").await?.prop("value").await?.unwrap_or_default();
    ensure!(!gtid.is_empty(), "the dialog does not offer the failed transaction");
    browser.submit().await?;
    browser.until_done("the transaction is skipped").await?;
    browser.until_text("#channel-state", "running").await?;
    let rows = daemon.target.sql("SELECT note FROM shop.orders WHERE id = 3").await?;
    ensure!(rows == ["other"], "the skipped transaction was applied: {rows:?}");
    Ok(())
}

/// A client with a reader's token sees every view. All its requests for a change are refused.
#[tokio::test]
async fn a_reader_changes_nothing() -> Result<()> {
    let Some(daemon) = PageDaemon::start(ServerKind::Mysql97).await? else { return Ok(()) };
    let browser = Browser::start(&daemon.tools, &daemon.base()).await?;
    browser.log_in("wrong-0123456789abcdef0123456789abcd").await?;
    browser.until_text("[role=alert]", "There is no such token").await?;
    browser.log_in(READER).await?;
    browser.until_text(".visitor", "screen").await?;
    for path in ["/channels/reports", "/failovers/primary"] {
        browser.go(path).await?;
        browser.until_text("#live", "primary").await?;
        let buttons = browser
            .client
            .execute("return document.querySelectorAll('.actions button').length", Vec::new())
            .await?;
        ensure!(buttons == 0, "{path} shows {buttons} action buttons to a user who may only read");
    }
    let script = "const done = arguments[arguments.length - 1]; \
        const headers = JSON.parse(document.body.getAttribute('hx-headers:inherited')); \
        fetch(arguments[0], { method: 'POST', headers }).then((response) => done(response.status))";
    let status = browser.client.execute_async(script, vec![json!("/channels/reports/stop")]).await?;
    ensure!(status == 403, "a reader's request for a change got status {status}, not 403");

    // A request with an operator's cookie but without the header of the page is refused, because another site
    // could have caused it.
    let operator = daemon.visit(OPERATOR).await?;
    let cookie = operator.client.get_named_cookie("tailwater_session").await?;
    ensure!(
        cookie.http_only() == Some(true) && cookie.same_site().is_some_and(|site| site.is_strict()),
        "the cookie of the session is not HttpOnly and SameSite=Strict: {cookie}"
    );
    let headers = format!(
        "Cookie: tailwater_session={}\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        cookie.value()
    );
    let (status, body) = daemon.ask("POST /channels/reports/stop", &headers, "")?;
    ensure!(
        status == 403 && body.contains("x-csrf-token"),
        "the request without the page's header was not refused: {body}"
    );
    let (status, body) = daemon.ask("GET /channels", "Accept: text/html\r\n", "")?;
    ensure!(
        status == 303 && body.to_lowercase().contains("location: /login"),
        "a visitor without a session is not sent to the login page: {body}"
    );
    let (status, head) = daemon.ask("GET /login", "Accept: text/html\r\n", "")?;
    let head = head.to_lowercase();
    ensure!(
        status == 200 && head.contains("content-security-policy: default-src 'none'"),
        "the login page has no strict content security policy: {head}"
    );
    ensure!(!head.contains("unsafe-"), "the content security policy allows unsafe sources: {head}");
    operator.go("/channels/reports").await?;
    operator.until_text("#channel-state", "running").await?;
    operator.stop().await?;
    browser.stop().await?;
    daemon.stop().await
}
