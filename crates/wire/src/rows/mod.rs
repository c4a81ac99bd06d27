//! Row events decoded: what a table looked like when its rows were logged, and the typed value of every column.
//!
//! The way through: a [`TableMap`] is parsed from the event of that type and kept until the statement ends; a rows
//! event that names the same table id is walked with [`Rows`], which yields before and after [`Image`]s; an image
//! yields [`Cell`]s, each a raw slice of the event that [`Cell::value`] turns into a [`Value`]. Nothing is copied and
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

pub use column::{Column, ColumnType};
pub use counter::{RowCounter, TableShape};
pub use image::{Cell, Image, RowChange, Rows};
pub use json::{JsonBinary, JsonDiffs};
pub use table_map::TableMap;
pub use value::Value;
