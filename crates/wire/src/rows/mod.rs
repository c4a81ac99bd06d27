//! Row events decoded: what a table looked like when its rows were logged, and the typed value of every column.
//!
//! The way through: a [`TableMap`] is parsed from the event of that type and kept until the statement ends; a rows
//! event that names the same table id is walked with [`RowChangeIter`], which yields before and after [`Image`]s; an image
//! yields [`ImageCell`]s, each a raw slice of the event that [`ImageCell::value`] turns into a [`BinlogValue`]. Nothing is copied and
//! nothing is decoded before it is asked for, so that conflict detection can hash raw slices.

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
