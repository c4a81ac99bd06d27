//! Decodes row events: the table as it was when the rows were logged, and the typed value of every column.
//!
//! The caller parses a [`TableMap`] from its event and keeps it until the statement ends. [`RowChangeIter`]
//! reads a rows event with the same table id, and returns before and after [`Image`]s. An image returns
//! [`ImageCell`]s. Each of them is a slice of the event, which [`ImageCell::value`] decodes to a
//! [`BinlogValue`]. Nothing is copied, and values are decoded only on request. So conflict detection can hash
//! the bytes without decoding them.

pub mod column;
pub mod compressed;
pub mod counter;
pub mod decimal;
pub mod image;
pub mod json;
pub mod optional_metadata;
pub mod table_map;
pub mod temporal;
pub mod value;

pub use column::{BinlogColumn, ColumnType};
pub use counter::{RowCounter, RowLayout};
pub use image::{Image, ImageCell, RowChange, RowChangeIter};
pub use json::{JsonBinary, JsonDiffs};
pub use table_map::TableMap;
pub use value::BinlogValue;
