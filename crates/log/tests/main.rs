//! The log on real files.

mod support {
    pub mod capture;
    pub mod events;
    pub mod store;
}

mod archiving;
mod background;
mod error_codes;
mod exclusive;
mod full_disk;
mod fuzzed;
mod reading;
mod real_files;
mod recovering;
mod retaining;
mod verifying;
