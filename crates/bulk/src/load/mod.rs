//! Loads a dump into a server.
//!
//! The order is: databases, sequences, tables, rows on several connections, and then views, routines, triggers and events. A
//! file of rows and the note that it is there are one transaction of the target, so a load that ended anyhow goes on behind
//! what it has, and loads no row twice.
//!
//! - [`contents`]: what there is to load, whoever wrote it; [`folder_kind`] finds out who; [`own_folder`] reads a folder
//!   of ours, [`mydumper`] and [`mysql_shell`] those of these tools.
//! - [`run`]: the load from beginning to end.
//! - `record`: what a load notes on the target. `target`: sessions there. `definitions`: makes what has a definition.
//! - `rows`: loads a file; `feed` reads it; `bulk` and `bulk_rows` make values of it for a prepared statement where the server
//!   takes many at a time, `inserts` statements where there is no `LOAD DATA LOCAL`, `statements` takes those that it holds.
//! - `order`: whose rows come next. [`indexes`]: those that are made when all rows of their table are there.
//! - [`accounts`]: users and roles. `carried`: what a server of another family or version does not have.
//! - `events`: those that come disabled.
//! - `gtid`: tells the target which transactions it now has.

pub mod accounts;
mod bulk;
mod bulk_rows;
mod carried;
pub mod contents;
mod definitions;
mod events;
pub mod feed;
pub mod folder_kind;
mod gtid;
pub mod indexes;
pub mod inserts;
pub mod mydumper;
pub mod mysql_shell;
pub(crate) mod order;
pub mod own_folder;
pub(crate) mod record;
pub(crate) mod rows;
pub mod run;
pub mod statements;
pub(crate) mod target;

pub use contents::Contents;
pub use indexes::DeferIndexes;
pub use run::{LoadOptions, LoadReport, load};
