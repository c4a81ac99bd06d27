//! Captures of real servers, with everything that happens to servers, links, disks and logs.

mod capturing;
mod disk;
mod fuzzed;
mod histories;
mod interruptions;
mod semi_sync;
mod statements;
mod streams;
mod support;
mod torn;
