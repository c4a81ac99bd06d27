//! S3, and stores with its API, through the `object_store` crate.
//!
//! - [`segment_archive`]: the archive of a log, in S3 or in a directory. Only this module knows addresses,
//!   credentials and time-outs.
//! - [`dump_files`]: the files of a dump in S3.

pub mod dump_files;
pub mod segment_archive;
