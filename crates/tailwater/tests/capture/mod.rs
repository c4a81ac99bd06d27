//! Capture of a source into the log, and the commands that read the log.

mod acker_orders;
mod archive;
mod captured_log;
mod log_cat;
mod log_sql;
mod log_stats;
mod mid_file_resume;
mod random_faults;
mod source_clock;
