//! Channels that apply the log to a target.

mod channel_commands;
mod kill_recovery;
mod large_transactions;
mod secret_redaction;
mod server_suites_trial;
mod source_table_columns;
