//! Captures the binlog of a source into the log, and acknowledges a transaction to the source once it is
//! durable.
//!
//! An event takes this path: [`tailwater_session::DumpStream`] delivers its bytes.
//! [`binlog_stream_position::StreamTracker`] finds its offset in the source's binlog and whether the log
//! already has it. [`tailwater_log::LogWriter`] appends it. Only after the fdatasync does the capture send
//! the semi-sync ACK, for which a client of the source may be waiting.
//!
//! The modules:
//! - [`capture_start_and_stop`]: the public interface: options, start and stop.
//! - `capture_loop`: runs one capture: connects, reconnects, executes orders. `binlog_stream_request`:
//!   requests the stream, and handles refusals. `periodic_source_checks`: periodic checks.
//!   `failure_report_limiter`: decides which failures to log.
//! - [`persisted_manager_orders`]: the orders of a capture, which survive restarts.
//!   `capture_handle_for_manager`: sends orders to a running capture.
//! - `binlog_stream_ingest`: one open stream: append, sync, acknowledge. `fsync_pacer`: when to sync bytes
//!   for which the source requested no ACK.
//! - [`binlog_stream_position`]: what to do with each event of the stream (append, compare, drop, start a
//!   segment).
//! - [`resume_position`]: where the capture continues after a restart of the source or of the capture, or why
//!   it cannot continue.
//! - [`semi_sync_monitor`]: whether the source still waits for an ACK before it acknowledges commits to
//!   clients.
//! - [`source_clock`]: the time on the source's clock.
//! - [`source_queries`]: queries a source over an ordinary connection.
//! - [`capture_status`]: the public state of a running capture.

mod binlog_stream_ingest;
pub mod binlog_stream_position;
mod binlog_stream_request;
mod capture_handle_for_manager;
mod capture_loop;
pub mod capture_start_and_stop;
pub mod capture_status;
mod error;
mod failure_report_limiter;
mod fsync_pacer;
mod periodic_source_checks;
pub mod persisted_manager_orders;
pub mod resume_position;
pub mod semi_sync_monitor;
pub mod source_clock;
pub mod source_queries;

pub use capture_handle_for_manager::CaptureAcker;
pub use capture_start_and_stop::{Capture, CaptureOptions, OpenCapture};
pub use capture_status::{CaptureState, CaptureStatus, StatusSnapshot};
pub use error::{CaptureError, CaptureRetry, ServerIdHolder};
