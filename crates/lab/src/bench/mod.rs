//! `tailwater bench`: benchmarks of Tailwater and of other tools, on the same machine in the same run.
//!
//! The map: [`capture`], [`serve`], [`apply`], [`failover`], [`switchover`] and [`tables`] (dump, load,
//! check) are the benchmarks. [`capture_setup`]: a primary that Tailwater, a native replica or nothing
//! captures. [`commit_load`]: clients that commit. [`binlog_readers`]: clients that read.
//! [`existing_binlog`]: a primary with a binlog. [`writers`]: clients that follow the primary. [`report`]:
//! the output.

mod apply;
mod binlog_readers;
mod capture;
mod capture_setup;
mod commit_load;
mod existing_binlog;
mod failover;
mod report;
mod serve;
mod switchover;
mod tables;
mod writers;

use crate::args::BenchCommand;

/// Runs `tailwater bench ...` and prints the report, `as_json` or as text.
///
/// # Errors
/// If a server, a peer or the relay cannot be started, or a measurement cannot be taken.
pub async fn bench(command: &BenchCommand, as_json: bool) -> anyhow::Result<()> {
    let report = match command {
        BenchCommand::Capture { server, quick } => capture::capture(*server, *quick).await?,
        BenchCommand::Serve { server, quick } => serve::serve(*server, *quick).await?,
        BenchCommand::Apply(options) => apply::apply(options).await?,
        BenchCommand::Delay(options) => apply::delay(options).await?,
        BenchCommand::Failover(options) => failover::failover(options).await?,
        BenchCommand::Switchover(options) => switchover::switchover(options).await?,
        BenchCommand::Dump(options) => tables::dump(options).await?,
        BenchCommand::Check(options) => tables::check(options).await?,
        BenchCommand::Load(options) => tables::load(options).await?,
    };
    match as_json {
        false => print!("{}", report.to_text()),
        true => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(())
}
