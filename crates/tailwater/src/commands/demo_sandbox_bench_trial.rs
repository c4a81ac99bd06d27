//! `tailwater demo`, `sandbox`, `bench` and `trial`: calls the crates `lab` and `server_suites`, and maps
//! their results to exit codes.

use tailwater_lab::arguments::{BenchCommand, DemoArgs, SandboxCommand};
use tailwater_lab::{bench, demo, sandbox_command};
use tailwater_server_suites::arguments::TrialCommand;
use tailwater_server_suites::suites;

use crate::arguments::Output;
use crate::exit_codes::Exit;

pub(super) async fn bench(command: &BenchCommand, output: Output) -> anyhow::Result<Exit> {
    bench::bench(command, output == Output::Json).await?;
    Ok(Exit::Done)
}

pub(super) async fn demo(arguments: &DemoArgs, output: Output) -> anyhow::Result<Exit> {
    let is_good = demo::demo(arguments, output == Output::Json).await?;
    Ok(if is_good { Exit::Done } else { Exit::ProblemsFound })
}

pub(super) async fn sandbox(command: &SandboxCommand, output: Output) -> anyhow::Result<Exit> {
    sandbox_command::sandbox(command, output == Output::Json).await?;
    Ok(Exit::Done)
}

pub(super) async fn trial(command: &TrialCommand, output: Output) -> anyhow::Result<Exit> {
    let TrialCommand::Suites(arguments) = command;
    let is_same = suites(arguments, output == Output::Json).await?;
    Ok(if is_same { Exit::Done } else { Exit::ProblemsFound })
}
