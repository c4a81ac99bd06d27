//! Moves whole tables: dump, load and copy.
//!
//! Modules:
//! - [`dump`]: dumps databases into a folder.
//! - [`dump_folder`]: the format of a dump folder; no other module knows its layout.
//! - [`load`]: loads a dump into a server.
//! - [`server_copy`]: copies databases from one server to another; [`binary_copy`]: copies whole servers as
//!   data files.
//! - [`fuzzing`]: checks that must hold for any bytes that are read as a dump.

pub mod binary_copy;
pub mod dump;
pub mod dump_folder;
pub mod fuzzing;
pub mod load;
pub mod server_copy;

pub use dump::{DumpOptions, DumpReport, dump, dump_stream};
