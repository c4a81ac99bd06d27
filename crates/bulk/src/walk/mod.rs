//! Walks a table in chunks of a key, each row once.
//!
//! The core decides and does no I/O:
//! - [`range`]: what a chunk covers; [`condition`]: the same as SQL.
//! - [`key`]: which key a table is walked by, and how its values are asked for and compared.
//! - [`plan`]: [`Walk`], which chunk comes next, and what must be asked for that.
//! - [`coverage`]: whether chunks that were cut cover the table, derived from their ranges alone.
//! - [`estimate`]: how far to go where keys are sparse; [`servo`]: how many rows a chunk gets.
//!
//! The driver: [`shape`] reads what a table is like, [`asking`] puts the core's questions to the server.

pub mod asking;
pub mod condition;
pub mod coverage;
mod estimate;
pub mod key;
pub mod plan;
pub mod range;
pub mod servo;
pub mod shape;

pub use key::{KeyColumn, KeyKind, WalkKey};
pub use plan::{Answer, Question, Step, Walk, WalkPlan};
pub use range::{ChunkRange, KeyRange};
pub use servo::{Servo, ServoLimits};
pub use shape::TableShape;
