//! Decodes row events: the table's definition at the time when the rows were logged, and the typed value of
//! every column.
//!
//! The caller parses a [`TableMap`] from its event and keeps it until the statement ends. [`RowChangeIter`]
//! reads a rows event with the same table id, and returns before and after [`Image`]s. An image returns
//! [`ImageCell`]s. Each cell is a slice of the event, and [`ImageCell::value`] decodes it to a
//! [`BinlogValue`]. No bytes are copied, and values are decoded only on request. So conflict detection can
//! hash the bytes without decoding them.

pub mod binary_json;
pub mod column_value;
pub mod compressed_column;
pub mod decimal_value;
pub mod optional_metadata;
pub mod row_counter;
pub mod row_image;
pub mod table_map;
pub mod table_map_column;
pub mod temporal_value;

pub use binary_json::{JsonBinary, JsonDiffs};
pub use column_value::BinlogValue;
pub use row_counter::{RowCounter, RowLayout};
pub use row_image::{Image, ImageCell, RowChange, RowChangeIter};
pub use table_map::TableMap;
pub use table_map_column::{BinlogColumn, ColumnType};
