//! Captures what a source commits into the log, and acknowledges it only when it is there to stay.
//!
//! The way of an event: [`tailwater_session::DumpStream`] hands over its bytes, [`stream_position::StreamTracker`] decides where
//! in the source's binlog they stand and whether the log has them already, [`tailwater_log::LogWriter`] appends them,
//! and only after its fdatasync the source gets the semi-sync ACK that lets its client go on, if it waits for one.
//!
//! The map:
//! - [`capture`]: captures as the outside has them, on a thread of their own or among the tasks of those who read the log.
//!   `driver`: everything that one does, reconnecting until told to stop; `opening`: asking for the stream; `watching`: what is looked after at intervals.
//!   `failure_log`, pure: which failures were reported already.
//! - [`persisted_orders`]: pure: what a capture was ordered, over restarts. `orders`: giving orders to a running capture.
//! - `reading`: one open stream: append, sync, acknowledge; `pace`, pure: when to sync what nobody asked an ACK for.
//! - [`stream_position`]: pure: what to do with each event of the stream (append, compare, drop, begin a segment).
//! - [`resume`]: pure: from where to go on after a restart of either side, or why not to.
//! - [`semi_sync_monitor`]: pure: does the source still wait for us before it acknowledges commits?
//! - [`source_clock`]: pure: what time it is by the source's clock.
//! - [`source`]: what is asked of a source over an ordinary connection to feed the four above.
//! - [`serve`]: the binlog server: replicas connect to the log as if it were the source.
//! - [`status`]: what the outside may know about a running capture.

mod background_checks;
pub mod capture;
mod capture_acker;
mod driver;
mod error;
mod failure_log;
#[doc(hidden)]
pub mod fuzzing;
pub mod persisted_orders;
pub mod resume;
pub mod semi_sync_monitor;
pub mod serve;
pub mod source;
pub mod source_clock;
pub mod status;
mod stream_ingest;
pub mod stream_position;
mod stream_request;
mod sync_pacer;

pub use capture::{Capture, CaptureOptions, OpenCapture};
pub use capture_acker::CaptureAcker;
pub use error::{CaptureRetry, RelayError, ServerIdHolder};
pub use status::{CaptureState, CaptureStatus};
