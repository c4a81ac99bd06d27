//! What clients ask in SQL.

mod session;

pub use session::{Session, Value};
