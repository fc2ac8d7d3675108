//! Chromium without a window, for tests of pages: opens a page, runs scripts in it, takes pictures, and collects what it
//! complains of.
//!
//! It speaks the protocol of the developer tools over a pipe, with a profile of its own, and ends with the test.

#![expect(
    clippy::indexing_slicing,
    reason = "indexing JSON returns null for missing keys"
)]

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::shared::skipped;

/// Environment variable that, set to `1`, makes tests fail instead of being skipped without Chromium.
pub const REQUIRE_VARIABLE: &str = "REQUIRE_CHROMIUM";

/// Names of the program, and of its packages.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Longest time that the browser takes for one command.
const ANSWER_WITHIN: Duration = Duration::from_mins(4);
/// Passes standard input and output on as the pipe of the protocol, which are the descriptors 3 and 4.
const PIPED: &str = r#"exec 3<&0 4>&1 </dev/null >/dev/null; exec "$@""#;

/// The browser cannot be used, or a script failed.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// It cannot be started, or has ended.
    #[error("cannot talk to Chromium")]
    Io(#[from] io::Error),
    /// It does not answer.
    #[error("Chromium does not answer {0} in time")]
    Silent(String),
    /// It refuses a command.
    #[error("Chromium refuses {method}: {answer}")]
    Refused {
        /// The command.
        method: String,
        /// The answer.
        answer: Value,
    },
    /// A script of a test throws.
    #[error("the script fails: {0}")]
    Script(Value),
}

/// A running browser with one page.
pub struct Browser {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

/// The screen of a page.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Whether the person prefers a dark page.
    pub dark: bool,
}

impl Browser {
    /// Starts Chromium with an empty page, or returns `None` if it is not on the `PATH`; then a line on standard error
    /// says which test is skipped and why.
    ///
    /// # Errors
    /// If it cannot be started, or is missing although [`REQUIRE_VARIABLE`] is set.
    pub async fn start_or_skip(screen: Screen) -> Result<Option<Self>, BrowserError> {
        let Some(program) = find() else {
            let why = "there is no chromium on the PATH; install the package chromium";
            if env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1") {
                return Err(io::Error::new(io::ErrorKind::NotFound, why).into());
            }
            skipped(1, &why);
            return Ok(None);
        };
        let profile = tempfile::tempdir()?;
        let mut child = Command::new("sh")
            .args(["-c", PIPED, "sh"])
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--no-first-run",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut browser = Self {
            input: child.stdin.take().ok_or_else(closed)?,
            output: BufReader::new(child.stdout.take().ok_or_else(closed)?),
            _child: child,
            session: None,
            sent: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        browser.attach().await?;
        browser.set_screen(screen).await?;
        Ok(Some(browser))
    }

    async fn attach(&mut self) -> Result<(), BrowserError> {
        let page = json!({"url": "about:blank"});
        let page = self.send("Target.createTarget", page).await?;
        let target = json!({"targetId": page["targetId"], "flatten": true});
        let attached = self.send("Target.attachToTarget", target).await?;
        self.session = attached["sessionId"].as_str().map(ToOwned::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            self.send(&format!("{domain}.enable"), json!({})).await?;
        }
        Ok(())
    }

    /// Sets size and colour scheme of the screen.
    ///
    /// # Errors
    /// If the browser does not answer.
    pub async fn set_screen(&mut self, screen: Screen) -> Result<(), BrowserError> {
        let Screen {
            width,
            height,
            dark,
        } = screen;
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", metrics)
            .await?;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.send("Emulation.setEmulatedMedia", media).await?;
        Ok(())
    }

    /// Runs a script in each page that is opened from now on, before its own.
    ///
    /// # Errors
    /// If the browser does not answer.
    pub async fn before_pages(&mut self, script: &str) -> Result<(), BrowserError> {
        let script = json!({"source": script});
        self.send("Page.addScriptToEvaluateOnNewDocument", script)
            .await?;
        Ok(())
    }

    /// Opens an address.
    ///
    /// # Errors
    /// If the browser does not answer.
    pub async fn open(&mut self, url: &str) -> Result<(), BrowserError> {
        self.send("Page.navigate", json!({"url": url})).await?;
        Ok(())
    }

    /// Returns the value of an expression in the page. A promise is waited for.
    ///
    /// # Errors
    /// If it throws.
    pub async fn evaluate(&mut self, expression: &str) -> Result<Value, BrowserError> {
        let call = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.send("Runtime.evaluate", call).await?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(BrowserError::Script(thrown.clone())),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until an expression is true in the page, as its elements change. Returns when it was, in milliseconds
    /// since the page was opened.
    ///
    /// # Errors
    /// If it throws, or does not become true.
    pub async fn wait_for(&mut self, condition: &str) -> Result<Value, BrowserError> {
        let script = format!(
            "new Promise((resolve) => {{
                const check = () => {{ if ({condition}) {{ watching.disconnect(); resolve(Math.round(performance.now())); }} }};
                const watching = new MutationObserver(check);
                watching.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
                check();
            }})"
        );
        self.evaluate(&script).await
    }

    /// Returns a picture of what the screen shows, as PNG.
    ///
    /// # Errors
    /// If the browser does not answer.
    pub async fn picture(&mut self) -> Result<Vec<u8>, BrowserError> {
        let answer = self
            .send("Page.captureScreenshot", json!({"format": "png"}))
            .await?;
        let data = answer["data"].as_str().unwrap_or_default();
        let decoded = BASE64.decode(data.as_bytes());
        Ok(decoded.map_err(io::Error::other)?)
    }

    /// Sends a command of the protocol, and returns its result.
    ///
    /// # Errors
    /// If the browser refuses it, or does not answer.
    pub async fn send(&mut self, method: &str, parameters: Value) -> Result<Value, BrowserError> {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input
            .write_all(format!("{message}\0").as_bytes())
            .await?;
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.answer(self.sent)).await;
        let answer = answer.map_err(|_| BrowserError::Silent(method.to_owned()))??;
        match answer.get("error") {
            Some(_) => Err(BrowserError::Refused {
                method: method.to_owned(),
                answer,
            }),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Reads until the answer to a command. Complaints that come before it are kept.
    async fn answer(&mut self, id: u64) -> Result<Value, BrowserError> {
        loop {
            let mut message = Vec::new();
            if self.output.read_until(0, &mut message).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            message.pop();
            let message: Value = serde_json::from_slice(&message).map_err(io::Error::from)?;
            if message["id"] == id {
                return Ok(message);
            }
            self.complaints.extend(complaint(&message));
        }
    }

    /// Takes the errors and warnings of the page so far, and its dialogs.
    pub fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }
}

/// Returns what a message says that a page should not do.
fn complaint(message: &Value) -> Option<String> {
    let parameters = &message["params"];
    let is_bad = |level: &Value| level == "error" || level == "warning" || level == "assert";
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" => Some(message.to_string()),
        "Runtime.consoleAPICalled" if is_bad(&parameters["type"]) => {
            Some(parameters["args"].to_string())
        }
        "Log.entryAdded" if is_bad(&parameters["entry"]["level"]) => {
            Some(parameters["entry"].to_string())
        }
        _ => None,
    }
}

fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut folders = env::split_paths(&path);
    folders.find_map(|folder| {
        let mut programs = PROGRAMS.iter().map(|name| folder.join(name));
        programs.find(|program| program.is_file())
    })
}
