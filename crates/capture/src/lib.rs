//! Captures what a source commits into the log, and acknowledges it once it is durable.
//!
//! The path of an event: [`tailwater_session::DumpStream`] delivers its bytes.
//! [`stream_position::StreamTracker`] finds its offset in the source's binlog and whether the log already has
//! it. [`tailwater_log::LogWriter`] appends it. Only after the fdatasync the source gets the semi-sync ACK
//! for which its client may be waiting.
//!
//! The modules:
//! - [`capture`]: the public side: options, starting, stopping.
//! - `driver`: runs one capture: connects, reconnects, executes orders. `stream_request`: requests the
//!   stream, and handles refusals. `background_checks`: periodic checks. `failure_log`, pure: which failures
//!   to report.
//! - [`persisted_orders`]: pure: the orders of a capture, across restarts. `capture_acker`: sends orders to a
//!   running capture.
//! - `stream_ingest`: one open stream: append, sync, acknowledge. `sync_pacer`, pure: when to sync bytes
//!   without an ACK request.
//! - [`stream_position`]: pure: what to do with each event of the stream (append, compare, drop, start a
//!   segment).
//! - [`resume`]: pure: where to continue after a restart of either side, or why not to.
//! - [`semi_sync_monitor`]: pure: whether the source still waits for an ACK before it acknowledges commits.
//! - [`source_clock`]: pure: the time on the source's clock.
//! - [`source`]: queries a source over an ordinary connection.
//! - [`status`]: the public state of a running capture.

mod background_checks;
pub mod capture;
mod capture_acker;
mod driver;
mod error;
mod failure_log;
pub mod persisted_orders;
pub mod resume;
pub mod semi_sync_monitor;
pub mod source;
pub mod source_clock;
pub mod status;
mod stream_ingest;
pub mod stream_position;
mod stream_request;
mod sync_pacer;

pub use capture::{Capture, CaptureOptions, OpenCapture};
pub use capture_acker::CaptureAcker;
pub use error::{CaptureError, CaptureRetry, ServerIdHolder};
pub use status::{CaptureState, CaptureStatus};
