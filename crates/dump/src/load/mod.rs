//! Loads a dump into a server.
//!
//! The order is: databases, sequences, tables, rows on several connections, and then views, routines,
//! triggers and events. The rows of a data file and the record that the file is loaded are one transaction on
//! the target. So an interrupted load resumes after its last loaded file, and loads no row twice.
//!
//! - [`contents`]: the contents of a dump, in a form that does not depend on the tool that wrote it.
//!   [`folder_format`] detects the tool; [`tailwater_folder`], [`mydumper`] and [`mysql_shell`] read its
//!   folder.
//! - [`run`]: the phases in their order. `load_start`: in which phase a load starts; `object_creation`:
//!   objects before and after the rows; `parallel_load`: rows over several connections, with `file_queue` and
//!   `load_worker`; `retry`: after which errors work is tried again.
//! - `load_record`: the record of a load on the target. `target_session`: sessions on the target.
//!   `definitions`: creates objects.
//! - `table_loader`: loads a data file; `chunk_reader` reads it. `bulk_statement` and `bulk_rows` convert it
//!   to values of a prepared statement.
//! - `load_source`: the interface to rows that are not in files. `table_order`: from which table the next
//!   rows are loaded. [`indexes`]: indexes that are created after all rows of their table.
//! - [`accounts`]: users and roles. `compatibility`: what a server of another flavour or version lacks.
//! - `events`: creates events disabled.
//! - `gtid`: sets the GTID state of the target.

pub mod accounts;
mod bulk_rows;
mod bulk_statement;
pub mod chunk_reader;
mod compatibility;
pub mod contents;
pub(crate) mod definitions;
mod events;
mod file_queue;
pub mod folder_format;
mod gtid;
pub mod indexes;
pub(crate) mod load_record;
pub(crate) mod load_source;
mod load_start;
mod load_worker;
pub mod mydumper;
pub mod mysql_shell;
mod object_creation;
mod options;
mod parallel_load;
pub(crate) mod retry;
pub mod run;
pub(crate) mod table_loader;
pub(crate) mod table_order;
pub mod tailwater_folder;
pub(crate) mod target_session;

pub use contents::DumpContents;
pub use indexes::DeferIndexes;
pub use options::{LoadOptions, LoadReport};
pub use run::load;
