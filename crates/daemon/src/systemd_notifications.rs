//! Reports to the service manager that started the process: systemd with `Type=notify`, or anything else that
//! sets `NOTIFY_SOCKET` (protocol: sd_notify(3)). Without that variable nothing is sent.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;
use sd_notify::NotifyState;
use tailwater_apply::channel::ChannelState;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::warn;

use crate::api::captures::CaptureSnapshot;
use crate::api::channels::ChannelSnapshot;
use crate::control_api::Control;

/// Interval between two checks whether the status line has changed.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The greatest length of a status line, in characters. `systemctl status` prints the status on one line.
const STATUS_CHARACTERS_MAX: usize = 400;

/// Sends the daemon's reports to the service manager.
#[derive(Debug)]
pub struct ServiceManager {
    /// Half of the time after which the service manager kills a process that does not report. `None` without
    /// a watchdog.
    watchdog_interval: Option<Duration>,
    reported: Mutex<Reported>,
}

#[derive(Debug, Default)]
struct Reported {
    status: String,
    is_stopping: bool,
    has_failed: bool,
}

impl ServiceManager {
    /// Returns the service manager that the environment names.
    pub fn from_environment() -> Self {
        let watchdog_interval = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        Self { watchdog_interval, reported: Mutex::default() }
    }

    /// Reports what the daemon does before it is ready.
    pub fn starting(&self, status: &str) {
        self.report(status, None);
    }

    /// Reports that all parts of the daemon are started.
    pub fn ready(&self, control: &Control) {
        self.report(&status_of(control), Some(NotifyState::Ready));
    }

    /// Reports that the daemon reads its configuration again (`Type=notify-reload`). After the reload, call
    /// [`Self::ready`].
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => {
                self.send(&[NotifyState::Reloading, now, NotifyState::Status("reloading the configuration")])
            }
            Err(error) => warn!("the clock for the service manager cannot be read: {error}"),
        }
    }

    /// Reports that the daemon is stopping, and why. Later reports do not change the status line.
    pub fn stopping(&self, status: &str) {
        if self.reported.lock().is_stopping {
            return;
        }
        self.report(status, Some(NotifyState::Stopping));
        self.reported.lock().is_stopping = true;
    }

    /// Sends reports to the watchdog, and each change of the status line, until the future is dropped. The
    /// task that supervises the daemon polls this future. If that task, or the runtime of the front ends, is
    /// blocked, the watchdog gets no reports.
    pub async fn keep_informed(&self, control: &Control) -> Infallible {
        let status = async {
            let mut ticks = ticks(STATUS_INTERVAL);
            loop {
                ticks.tick().await;
                self.report(&status_of(control), None);
            }
        };
        let watchdog = async {
            match self.watchdog_interval {
                Some(interval) => feed_watchdog(interval, || self.send(&[NotifyState::Watchdog])).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = status => never,
            never = watchdog => never,
        }
    }

    fn report(&self, status: &str, state: Option<NotifyState<'_>>) {
        let status = one_line(status);
        {
            let mut reported = self.reported.lock();
            if reported.is_stopping || (state.is_none() && reported.status == status) {
                return;
            }
            reported.status.clone_from(&status);
        }
        let status = NotifyState::Status(&status);
        match state {
            Some(state) => self.send(&[state, status]),
            None => self.send(&[status]),
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let Err(error) = sd_notify::notify(states) else { return };
        let is_first = !std::mem::replace(&mut self.reported.lock().has_failed, true);
        if is_first {
            warn!("cannot send a message to the service manager's socket (NOTIFY_SOCKET): {error}");
        }
    }
}

/// Calls `report` once in each `interval`, if the present runtime has a free thread.
async fn feed_watchdog(interval: Duration, report: impl Fn()) -> Infallible {
    let mut ticks = ticks(interval);
    loop {
        ticks.tick().await;
        // The task needs one of the runtime's threads. If no thread is free, the control socket and the
        // manager do not answer either, so nothing is reported.
        if tokio::spawn(std::future::ready(())).await.is_ok() {
            report();
        }
    }
}

fn ticks(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn status_of(control: &Control) -> String {
    status_line(&control.state().captures(), &control.state().channels())
}

/// Returns the status line: how many sources are captured and channels run, then what is wrong.
fn status_line(captures: &[CaptureSnapshot], channels: &[ChannelSnapshot]) -> String {
    let capture_problems = captures.iter().filter(|capture| !capture.report.is_streaming);
    let capture_problems =
        capture_problems.map(|capture| format!("source {}: {}", capture.report.source, capture.report.doing));
    let channel_problems = channels.iter().filter_map(|channel| {
        let status = &channel.status;
        let fault = status.fault.as_ref().map(|fault| format!(": {}", fault.code)).unwrap_or_default();
        let state = match status.state {
            ChannelState::Running => return None,
            ChannelState::Connecting => "connecting",
            ChannelState::Stopped => "stopped",
            ChannelState::Failed => "failed",
        };
        Some(format!("channel {}: {state}{fault}", status.name))
    });
    let streaming = captures.iter().filter(|capture| capture.report.is_streaming).count();
    let running = channels.iter().filter(|channel| channel.status.state == ChannelState::Running).count();
    let mut parts = vec![format!("{streaming} of {} sources captured", captures.len())];
    if !channels.is_empty() {
        parts.push(format!("{running} of {} channels running", channels.len()));
    }
    parts.extend(capture_problems.chain(channel_problems));
    parts.join("; ")
}

/// Returns the text on one line, cut at the maximum length. A line break would end the message to the service
/// manager.
fn one_line(text: &str) -> String {
    let characters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    characters.take(STATUS_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_runtime_without_a_free_thread_does_not_report_to_the_watchdog() {
        let interval = Duration::from_millis(5);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("build the runtime");
        let (release, released) = mpsc::channel::<()>();
        let (block, blocked) = mpsc::channel();
        let (report, reports) = mpsc::channel();
        runtime.spawn(async move {
            block.send(()).expect("the test waits for this message");
            released.recv().expect("the test releases the thread");
        });
        blocked.recv().expect("the runtime's only thread is blocked");
        let test = std::thread::spawn(move || {
            let early = reports.recv_timeout(interval * 20);
            release.send(()).expect("the blocked thread waits for this message");
            let late = reports.recv_timeout(Duration::from_secs(60));
            (early, late)
        });
        let feed = feed_watchdog(interval, || {
            // An error means that the test has ended and reads no more reports.
            let _ = report.send(());
        });
        let (early, late) = runtime.block_on(async {
            tokio::select! {
                never = feed => match never {},
                ended = tokio::task::spawn_blocking(|| test.join()) => ended.expect("no panic").expect("no panic"),
            }
        });
        assert!(early.is_err(), "the watchdog got a report while the runtime's only thread was blocked");
        assert!(late.is_ok(), "the watchdog got no report after the thread was free again");
    }

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(one_line("cannot connect\nREADY=1"), "cannot connect READY=1");
        assert_eq!(one_line(&"é".repeat(1000)).chars().count(), STATUS_CHARACTERS_MAX);
    }
}
