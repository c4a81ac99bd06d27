//! Arguments of `bench`, `demo`, `sandbox` and `trial`; the doc comments are the help texts.

#![allow(
    missing_docs,
    reason = "doc comments are help texts here, and those of groups would displace their parents'"
)]

mod bench;
mod sandbox;
mod trial;

use clap::ValueEnum;

pub use bench::{
    ApplyBench, ApplyWorkload, BenchCommand, DelayBench, DelaySource, FailoverBench, Side, SwitchoverBench,
    TablesBench, TablesData,
};
pub use sandbox::{DemoArgs, SandboxCommand};
pub use trial::{SuitesArgs, TrialCommand};

/// Server family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServerFamily {
    /// MariaDB.
    Mariadb,
    /// MySQL.
    Mysql,
}
