//! Jobs: long work that the daemon runs, and that command lines run and register.
//!
//! - `job_registry`: the list of jobs and its rules. Has no side effects and reads no clock.
//! - `job_file`: stores the list in the log's folder.
//! - `job_process_check`: whether the process of a job still runs.
//! - [`job_service`]: joins them, for the front ends. [`daemon_job`]: jobs of the daemon itself.
//! - [`job_results`]: what finished work has done and found. [`job_text`]: jobs as text. Both have no side
//!   effects.

pub mod daemon_job;
mod job_file;
mod job_process_check;
mod job_registry;
pub mod job_results;
pub mod job_service;
pub mod job_text;
mod job_trace_span;

use tailwater_tables::progress_counters::BulkProgress;

use crate::api::jobs::JobProgress;

/// Returns the progress that the counters of bulk work show, without rates.
pub fn progress_of(phase: &str, counters: &BulkProgress) -> JobProgress {
    let figures = counters.figures();
    JobProgress {
        phase: phase.to_owned(),
        tables: figures.tables,
        tables_total: figures.tables_total,
        rows: figures.rows,
        rows_total: figures.rows_total,
        bytes: figures.bytes,
        bytes_total: figures.bytes_total,
        waiting: counters.wait_reason().map(|reason| reason.to_string()),
        ..JobProgress::default()
    }
}
