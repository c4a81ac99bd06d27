//! Reports the state of a capture to the binlog server that serves the log of the capture.

use std::collections::BTreeMap;
use std::sync::Arc;

use tailwater_binlog_server::{LogReceiver, ReceiverFailure, ReceiverState, ReceiverStatus};
use tailwater_capture::{CaptureState, CaptureStatus};
use tailwater_session::ConnectOptions;
use tokio::sync::watch;

/// A capture as the receiver that fills the log of a binlog server.
#[derive(Debug)]
pub struct CaptureReceiver(pub Arc<CaptureStatus>);

impl LogReceiver for CaptureReceiver {
    fn status(&self) -> ReceiverStatus {
        let snapshot = self.0.snapshot();
        ReceiverStatus {
            state: match snapshot.state {
                CaptureState::Connecting => ReceiverState::Connecting,
                CaptureState::Streaming => ReceiverState::Streaming,
                CaptureState::Waiting(reason) => ReceiverState::Waiting(reason),
                CaptureState::Refused(reason) => ReceiverState::Refused(reason),
                CaptureState::StoppedByOrder(_) => ReceiverState::StoppedByOrder,
                CaptureState::Stopped => ReceiverState::Stopped,
            },
            last_failure: snapshot
                .last_failure
                .map(|failure| ReceiverFailure { message: failure.message, at: failure.at }),
        }
    }

    fn source_variables(&self) -> BTreeMap<String, String> {
        self.0.source_variables()
    }

    fn source_now_us(&self) -> u64 {
        self.0.source_now_us()
    }

    fn clock_steps(&self) -> watch::Receiver<u64> {
        self.0.clock_steps()
    }

    fn appended_ago_ms(&self) -> Option<u64> {
        self.0.appended_ago_ms()
    }

    fn followed_server(&self) -> Option<ConnectOptions> {
        self.0.followed_server()
    }
}
