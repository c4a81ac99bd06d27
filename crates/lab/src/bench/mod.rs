//! `tailwater bench`: benchmarks of Tailwater and of other tools, on the same machine in the same run.
//!
//! - [`capture`], [`binlog_server`], [`apply`], [`failover`], [`switchover`], [`daemon`] and
//!   [`dump_load_check`] (dump, load, check) are the benchmarks.
//! - [`capture_servers`]: a primary with Tailwater, with a native replica, or with neither of them attached.
//!   [`existing_binlog_capture`]: a primary with a large binlog.
//! - [`commit_load`]: clients that commit on one server. [`cluster_writers`]: clients that write to whichever
//!   server is the primary. [`binlog_stream_readers`]: clients that read a binlog stream.
//! - [`benchmark_report`]: the output.

mod apply;
mod benchmark_report;
mod binlog_server;
mod binlog_stream_readers;
mod capture;
mod capture_servers;
mod cluster_writers;
mod commit_load;
mod daemon;
mod dump_load_check;
mod existing_binlog_capture;
mod failover;
mod switchover;

use crate::arguments::BenchCommand;

/// Runs `tailwater bench ...` and prints the report, as JSON if `as_json` is true, otherwise as text.
///
/// # Errors
/// If a server, another tool or the relay cannot be started, or a measurement fails.
pub async fn bench(command: &BenchCommand, as_json: bool) -> anyhow::Result<()> {
    let report = match command {
        BenchCommand::Capture { server, quick } => capture::capture(*server, *quick).await?,
        BenchCommand::Serve { server, quick } => binlog_server::serve(*server, *quick).await?,
        BenchCommand::Apply(options) => apply::apply(options).await?,
        BenchCommand::Delay(options) => apply::delay(options).await?,
        BenchCommand::Failover(options) => failover::failover(options).await?,
        BenchCommand::Switchover(options) => switchover::switchover(options).await?,
        BenchCommand::Daemon(options) => daemon::daemon(options).await?,
        BenchCommand::Dump(options) => dump_load_check::dump(options).await?,
        BenchCommand::Check(options) => dump_load_check::check(options).await?,
        BenchCommand::Load(options) => dump_load_check::load(options).await?,
    };
    match as_json {
        false => print!("{}", report.to_text()),
        true => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(())
}
