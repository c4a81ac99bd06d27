//! Captures of real servers, and replicas that read from their logs, with everything that happens to servers, links, disks
//! and logs.

mod capturing;
mod disk;
mod fuzzed;
mod histories;
mod interruptions;
mod ordering;
mod semi_sync;
mod serving;
mod serving_crowds;
mod serving_features;
mod serving_lag;
mod serving_links;
mod serving_moves;
mod serving_refusals;
mod serving_support;
mod serving_tools;
mod statements;
mod streams;
mod support;
mod torn;
