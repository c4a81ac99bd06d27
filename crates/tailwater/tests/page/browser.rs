//! A headless Chromium that visits the page.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fantoccini::elements::Element;
use fantoccini::key::Key;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tailwater_sandbox::{BrowserTools, ChromeDriver, ReservedPort};
use tempfile::TempDir;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Width and height of the window, in pixels.
const WINDOW: (u32, u32) = (1280, 900);

/// A browser with one window.
pub struct Browser {
    pub client: Client,
    driver: ChromeDriver,
    tools: BrowserTools,
    folder: TempDir,
    base: String,
}

/// A command of the DevTools protocol.
#[derive(Debug)]
struct DevTools {
    command: &'static str,
    parameters: Value,
}

/// The command that returns the messages of the console since its last call.
#[derive(Debug)]
struct ConsoleLog;

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        let body = json!({ "cmd": self.command, "params": self.parameters });
        (http::Method::POST, Some(body.to_string()))
    }
}

impl WebDriverCompatibleCommand for ConsoleLog {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "type": "browser" }).to_string()))
    }
}

impl Browser {
    /// Starts a browser whose relative addresses begin with `base`.
    pub async fn start(tools: &BrowserTools, base: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = ReservedPort::pick()?;
        let driver = ChromeDriver::start(&tools.driver, port.number(), &folder.path().join("driver.log"))?;
        let program = ChromeDriver::browser_program(&tools.chromium, folder.path())?;
        let arguments = ChromeDriver::browser_arguments(&folder.path().join("profile"));
        let options = json!({ "binary": program, "args": arguments });
        let capabilities: Capabilities = [
            ("goog:chromeOptions".to_owned(), options),
            ("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" })),
        ]
        .into_iter()
        .collect();
        let started = Instant::now();
        let client = loop {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            match builder.capabilities(capabilities.clone()).connect(&driver.address()).await {
                Ok(client) => break client,
                Err(error) if started.elapsed() > PATIENCE => {
                    let log = std::fs::read_to_string(folder.path().join("driver.log")).unwrap_or_default();
                    bail!("chromedriver starts no browser: {error}: {log}");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        client.set_window_size(WINDOW.0, WINDOW.1).await?;
        Ok(Self { client, driver, tools: tools.clone(), folder, base: base.to_owned() })
    }

    /// Ends the browser. The console must be empty: a violation of the content security policy or an error of
    /// a script appears there.
    pub async fn stop(self) -> Result<()> {
        let complaints = self.complaints().await?;
        self.client.clone().close().await?;
        self.driver.stop().await?;
        drop(self.folder);
        ensure!(complaints.is_empty(), "the console of the browser has errors or warnings: {complaints:#?}");
        Ok(())
    }

    /// Returns the errors and warnings of the console, except failures of requests that a test expects to
    /// fail.
    async fn complaints(&self) -> Result<Vec<String>> {
        const EXPECTED: [&str; 2] = ["Failed to load resource", "htmx:error: Failed to fetch"];
        let log = self.client.issue_cmd(ConsoleLog).await?;
        let entries = log.as_array().context("the console log is not a list")?;
        let is_complaint = |entry: &&Value| {
            let message = entry["message"].as_str().unwrap_or_default();
            entry["level"] != "INFO" && !EXPECTED.iter().any(|expected| message.contains(expected))
        };
        Ok(entries.iter().filter(is_complaint).map(Value::to_string).collect())
    }

    pub async fn go(&self, path: &str) -> Result<()> {
        Ok(self.client.goto(&format!("{}{path}", self.base)).await?)
    }

    /// Logs in with a token, at the form that the page shows first.
    pub async fn log_in(&self, token: &str) -> Result<()> {
        self.go("/").await?;
        self.find("#token").await?.send_keys(token).await?;
        self.click("button[type=submit]").await
    }

    pub async fn find(&self, selector: &str) -> Result<Element> {
        let found = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await;
        match found {
            Ok(element) => Ok(element),
            Err(error) => bail!("the page has no {selector}: {error}: {}", self.text("body").await?),
        }
    }

    /// Clicks the element that the selector finds. Clicks again if an update of the view has replaced the
    /// element.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let clicked = self.find(selector).await?.click().await;
            match clicked {
                Ok(()) => return Ok(()),
                Err(error) if started.elapsed() > PATIENCE => bail!("{selector} cannot be clicked: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Returns the visible text of the element that the selector finds.
    pub async fn text(&self, selector: &str) -> Result<String> {
        let script = "return document.querySelector(arguments[0])?.innerText ?? ''";
        let text = self.client.execute(script, vec![json!(selector)]).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the visible text of the element contains `expected`.
    pub async fn until_text(&self, selector: &str, expected: &str) -> Result<String> {
        self.until(&format!("{selector} has {expected:?}"), async || {
            let text = self.text(selector).await?;
            Ok(text.contains(expected).then_some(text))
        })
        .await
    }

    /// Waits until the overview shows no problem, except that of a full disk of the machine.
    pub async fn until_well(&self) -> Result<()> {
        self.until("all is well", async || {
            let script =
                "return [...document.querySelectorAll('.problems .what')].map((one) => one.innerText)";
            let problems = self.client.execute(script, Vec::new()).await?;
            let problems = problems.as_array().context("a list")?;
            let is_of_disk = |problem: &Value| problem.as_str().is_some_and(|text| text.contains("log disk"));
            let verdict = self.text("#verdict").await?;
            Ok((!verdict.is_empty() && problems.iter().all(is_of_disk)).then_some(()))
        })
        .await
    }

    /// Waits until `ready` returns something.
    pub async fn until<T: Debug>(&self, what: &str, ready: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
        let started = Instant::now();
        loop {
            if let Some(result) = ready().await? {
                return Ok(result);
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "timed out after {PATIENCE:?} while waiting for this: {what}: {}",
                self.text("body").await?
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Enters a value in the open dialog.
    pub async fn enter(&self, field: &str, value: &str) -> Result<()> {
        let selector = format!("dialog[open] [name={field}]");
        self.until(&format!("{field} takes text"), async || {
            let field = self.find(&selector).await?;
            let entered = async {
                field.clear().await?;
                field.send_keys(value).await
            };
            // A dialog with an error message may just have replaced the dialog, so the value is entered
            // again.
            Ok(entered.await.is_ok().then_some(()))
        })
        .await
    }

    /// Selects a value in the open dialog.
    pub async fn select(&self, field: &str, value: &str) -> Result<()> {
        let selector = format!("dialog[open] [name={field}]");
        self.until(&format!("{field} can be selected"), async || {
            let selected = self.find(&selector).await?.select_by_value(value).await;
            Ok(selected.is_ok().then_some(()))
        })
        .await
    }

    /// Types a text, wherever the focus is.
    pub async fn type_text(&self, text: &str) -> Result<()> {
        self.until("the focus takes text", async || {
            let typed = self.client.active_element().await?.send_keys(text).await;
            Ok(typed.is_ok().then_some(()))
        })
        .await
    }

    /// Opens the dialog of an action.
    pub async fn open_dialog(&self, action: &str) -> Result<()> {
        self.click(&format!("#action-{action}")).await?;
        self.find("dialog[open] form").await.map(drop)
    }

    /// Sends the form of the open dialog.
    pub async fn submit(&self) -> Result<()> {
        self.click("dialog[open] button[type=submit]").await
    }

    /// Waits until the dialog is closed, and the message of success has this text.
    pub async fn until_done(&self, message: &str) -> Result<()> {
        self.until_text("#announcer", message).await?;
        self.until("the dialog is closed", async || {
            let open =
                self.client.execute("return document.getElementById('dialog').open", Vec::new()).await?;
            Ok((open == false).then_some(()))
        })
        .await
    }

    /// Presses a key, wherever the focus is.
    pub async fn press(&self, key: Key) -> Result<()> {
        self.type_text(&char::from(key).to_string()).await
    }

    /// Presses Tab until the focus is on an element that the selector matches.
    pub async fn tab_to(&self, selector: &str) -> Result<()> {
        const TABS_MAX: usize = 120;
        for _ in 0..TABS_MAX {
            let script = "return document.activeElement?.matches(arguments[0]) ?? false";
            if self.client.execute(script, vec![json!(selector)]).await? == true {
                return Ok(());
            }
            self.press(Key::Tab).await?;
        }
        bail!("the keyboard does not reach {selector} with {TABS_MAX} tabs")
    }

    /// Shows the page as a phone does.
    pub async fn be_phone(&self) -> Result<()> {
        let parameters = json!({ "width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": true });
        self.dev_tools("Emulation.setDeviceMetricsOverride", parameters).await.map(drop)
    }

    pub async fn prefer_dark(&self) -> Result<()> {
        let features = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        self.dev_tools("Emulation.setEmulatedMedia", json!({ "features": features })).await.map(drop)
    }

    pub async fn dev_tools(&self, command: &'static str, parameters: Value) -> Result<Value> {
        Ok(self.client.issue_cmd(DevTools { command, parameters }).await?)
    }

    /// Returns the problems that axe-core finds on the present page, one line each.
    pub async fn accessibility_problems(&self) -> Result<Vec<String>> {
        // The script is executed through DevTools, so that the page's content security policy need not allow
        // it.
        let axe = std::fs::read_to_string(&self.tools.axe)?;
        self.dev_tools("Runtime.evaluate", json!({ "expression": axe })).await?;
        let script = "const done = arguments[arguments.length - 1]; \
             axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations.map((one) => \
             `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | ')}`)), \
             (error) => done([String(error)]))";
        let found = self.client.execute_async(script, Vec::new()).await?;
        let lines = found.as_array().context("axe-core did not return a list")?;
        Ok(lines.iter().map(|line| line.as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Stores a picture of the view in the folder that `PAGE_SCREENSHOTS` names, for the documentation.
    pub async fn picture(&self, name: &str) -> Result<()> {
        let Some(folder) = std::env::var_os("PAGE_SCREENSHOTS") else { return Ok(()) };
        // The picture shows the whole view, up to a height that fits on a reader's screen.
        let script = "return [innerWidth, outerHeight - innerHeight, document.documentElement.scrollHeight]";
        let sizes = self.client.execute(script, Vec::new()).await?;
        let size = |index: usize| sizes[index].as_u64().unwrap_or_default();
        let is_wide = size(0) > 700;
        if is_wide {
            let height = (size(2) + size(1)).clamp(WINDOW.1.into(), 1_400);
            self.client.set_window_size(WINDOW.0, u32::try_from(height)?).await?;
        }
        let picture = self.client.screenshot().await?;
        if is_wide {
            self.client.set_window_size(WINDOW.0, WINDOW.1).await?;
        }
        Ok(std::fs::write(std::path::Path::new(&folder).join(format!("page-{name}.png")), picture)?)
    }
}
