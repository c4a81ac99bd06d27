//! Loads a dump into a server.
//!
//! The order is: databases, sequences, tables, rows on several connections, and then views, routines,
//! triggers and events. The rows of a data file and the record that the file is loaded are one transaction on
//! the target. So an interrupted load resumes after its last loaded file, and loads no row twice.
//!
//! - [`dump_contents`]: the contents of a dump, in a form that does not depend on the tool that wrote it.
//!   [`dump_format_detection`] detects the tool; [`tailwater_folder`], [`mydumper_folder`] and
//!   [`mysql_shell_folder`] read its folder.
//! - [`load_phases`]: the phases in their order. `load_start_check`: in which phase a load starts;
//!   `object_creation`: objects before and after the rows; `parallel_table_load`: rows over several
//!   connections, with `data_file_queue` and `load_worker`; `retry_policy`: after which errors work is tried
//!   again.
//! - `load_progress_table`: the record of a load on the target. `target_session`: sessions on the target.
//!   `ddl_script_runner`: creates objects.
//! - `data_file_loader`: loads a data file; `data_file_reader` reads it. `bulk_insert_choice` and
//!   `prepared_statement_rows` convert it to values of a prepared statement.
//! - `live_row_source`: the interface to rows that are not in files. `table_load_order`: from which table the
//!   next rows are loaded. [`deferred_indexes`]: indexes that are created after all rows of their table.
//! - [`account_creation`]: users and roles. `target_compatibility`: what a server of another flavour or
//!   version lacks.
//! - `scheduled_events`: creates events disabled.
//! - `target_gtid_state`: sets the GTID state of the target.

pub mod account_creation;
mod bulk_insert_choice;
pub(crate) mod data_file_loader;
mod data_file_queue;
pub mod data_file_reader;
pub(crate) mod ddl_script_runner;
pub mod deferred_indexes;
pub mod dump_contents;
pub mod dump_format_detection;
pub(crate) mod live_row_source;
mod load_options;
pub mod load_phases;
pub(crate) mod load_progress_table;
mod load_start_check;
mod load_worker;
pub mod mydumper_folder;
pub mod mysql_shell_folder;
mod object_creation;
mod parallel_table_load;
mod prepared_statement_rows;
pub(crate) mod retry_policy;
mod scheduled_events;
pub(crate) mod table_load_order;
pub mod tailwater_folder;
mod target_compatibility;
mod target_gtid_state;
pub(crate) mod target_session;

pub use deferred_indexes::DeferIndexes;
pub use dump_contents::DumpContents;
pub use load_options::{LoadOptions, LoadReport};
pub use load_phases::load;
