//! Capture of a source into the log, and the commands that read the log.

mod binlog_archive;
mod capture_stop_and_follow_orders;
mod captured_log_contents;
mod log_cat;
mod log_cat_sql_replay;
mod log_stats;
mod random_faults;
mod resume_in_mid_file;
mod source_clock_difference;
