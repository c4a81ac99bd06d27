//! Asks the daemon once per interval, and waits for signals, in a thread of its own. So neither a daemon that
//! hangs nor a signal handler delays the keyboard.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::Local;
use tokio::signal::unix::{SignalKind, signal};

use crate::daemon_answer::DaemonAnswer;
use crate::model::Moment;

/// How long the thread that reads keys may take to end.
const END_MAX: Duration = Duration::from_secs(1);

/// How often the thread checks that the terminal is still there.
const TERMINAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the thread reports.
pub(crate) enum PollerMessage {
    /// An answer of the daemon, or why there is none.
    Answer(Moment, Box<anyhow::Result<DaemonAnswer>>),
    /// A signal that ends the program.
    End,
}

/// The clocks of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    started: Instant,
}

impl Clocks {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(crate) fn now(self) -> Moment {
        Moment { elapsed: self.started.elapsed(), wall: Local::now().fixed_offset() }
    }
}

/// Starts the thread. It ends with the process, or after the receiver is dropped.
///
/// # Errors
/// If the thread cannot be started, or signals cannot be handled.
pub(crate) fn start(
    socket: PathBuf,
    interval: Duration,
    clocks: Clocks,
) -> anyhow::Result<Receiver<PollerMessage>> {
    let (sender, receiver) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    {
        let _inside = runtime.enter();
        for kind in
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()]
        {
            let mut signals = signal(kind).context("signals cannot be handled")?;
            let sender = sender.clone();
            runtime.spawn(async move {
                signals.recv().await;
                end(&sender).await;
            });
        }
        runtime.spawn(end_with_terminal(sender.clone()));
    }
    let poll = move || runtime.block_on(poll(socket, interval, clocks, sender));
    std::thread::Builder::new().name("poller".to_owned()).spawn(poll)?;
    Ok(receiver)
}

/// Ends the program after its terminal has gone, also if no signal says so.
async fn end_with_terminal(sender: Sender<PollerMessage>) {
    while stdout().is_terminal() {
        tokio::time::sleep(TERMINAL_CHECK_INTERVAL).await;
    }
    end(&sender).await;
}

/// Ends the program. After the terminal has gone, crossterm reads the end of its input again and again and
/// does not return, so this thread does not rely on the thread that reads keys.
async fn end(sender: &Sender<PollerMessage>) {
    // If there is no receiver, the program is about to end.
    let _ = sender.send(PollerMessage::End);
    tokio::time::sleep(END_MAX).await;
    ratatui::restore();
    std::process::exit(0);
}

async fn poll(socket: PathBuf, interval: Duration, clocks: Clocks, sender: Sender<PollerMessage>) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = DaemonAnswer::read(&socket).await;
        if sender.send(PollerMessage::Answer(clocks.now(), Box::new(answer))).is_err() {
            return;
        }
    }
}
