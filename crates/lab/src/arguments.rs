//! Arguments of `bench`, `demo` and `sandbox`. The doc comments are the help texts.

#![allow(
    missing_docs,
    reason = "doc comments are help texts here, and the doc comment of a group would replace the help text of its parent"
)]

mod bench;
mod sandbox;

use clap::ValueEnum;

pub use bench::{
    ApplyBench, ApplyWorkload, BenchCommand, DaemonBench, DelayBench, DelaySource, FailoverBench, Side,
    SwitchoverBench, TablesBench, TablesData,
};
pub use sandbox::{DemoArgs, SandboxCommand};

/// Server family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServerFamily {
    /// MariaDB.
    Mariadb,
    /// MySQL.
    Mysql,
}
