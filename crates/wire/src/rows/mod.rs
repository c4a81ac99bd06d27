//! Decodes row events: the table at the time of logging, and the typed value of every column.
//!
//! A [`TableMap`] is parsed from its event and kept until the statement ends. A rows event with the same
//! table id is read by [`RowChangeIter`], which returns before and after [`Image`]s. An image returns
//! [`ImageCell`]s, each a raw slice of the event that [`ImageCell::value`] decodes to a [`BinlogValue`].
//! Nothing is copied, and decoding happens on demand, so that conflict detection can hash raw slices.

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
