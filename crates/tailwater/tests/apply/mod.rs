//! Channels that apply the log to a target.

mod channel_commands;
mod kill_recovery;
mod large_transactions;
mod secret_redaction;
mod source_catalogue;
mod suites_trial;
