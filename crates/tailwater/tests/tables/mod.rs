//! The commands that process whole tables: dump, load, copy, check and repair.

mod check;
mod check_marks;
mod copy;
mod copy_binary;
mod dump;
mod dump_to_s3;
mod grants;
mod load;
mod many_rows;
mod throttle;
