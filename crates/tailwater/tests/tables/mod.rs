//! The commands that process whole tables: dump, load, copy, check and repair.

mod check_and_repair;
mod check_of_channel_target;
mod copy;
mod dump;
mod dump_to_s3;
mod grants;
mod load;
mod memory_use_with_many_rows;
mod physical_server_copy;
mod throttle;
