//! Loads a dump into a server.
//!
//! The order is: databases, sequences, tables, rows on several connections, and then views, routines, triggers and events. A
//! file of rows and the note that it is there are one transaction of the target, so a load that ended anyhow goes on behind
//! what it has, and loads no row twice.
//!
//! - [`contents`]: what there is to load, whoever wrote it; [`folder_format`] finds out who; [`tailwater_folder`] reads a folder
//!   of ours, [`mydumper`] and [`mysql_shell`] those of these tools.
//! - [`run`]: the load from beginning to end.
//! - `load_record`: what a load notes on the target. `target_session`: sessions there. `definitions`: makes what has a definition.
//! - `table_loader`: loads a file; `chunk_reader` reads it; `bulk_statement` and `bulk_rows` make values of it for a prepared statement where the server
//!   takes many at a time, `insert_builder` statements where there is no `LOAD DATA LOCAL`, `statement_splitter` takes those that it holds.
//! - `table_order`: whose rows come next. [`indexes`]: those that are made when all rows of their table are there.
//! - [`accounts`]: users and roles. `compatibility`: what a server of another family or version does not have.
//! - `events`: those that come disabled.
//! - `gtid`: tells the target which transactions it now has.

pub mod accounts;
mod bulk_rows;
mod bulk_statement;
pub mod chunk_reader;
mod compatibility;
pub mod contents;
mod definitions;
mod events;
pub mod folder_format;
mod gtid;
pub mod indexes;
pub mod insert_builder;
pub(crate) mod load_record;
pub mod mydumper;
pub mod mysql_shell;
pub mod run;
pub mod statement_splitter;
pub(crate) mod table_loader;
pub(crate) mod table_order;
pub mod tailwater_folder;
pub(crate) mod target_session;

pub use contents::DumpContents;
pub use indexes::DeferIndexes;
pub use run::{LoadOptions, LoadReport, load};
