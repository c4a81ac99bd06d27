//! MySQL's binary JSON. Reads values without decoding the whole document, prints a document as the server
//! does, and applies the diffs of partial updates.
//!
//! A document is a type byte and a value. A container holds a count, its own size, and entries of fixed size.
//! A key entry (only in objects) holds the offset and length of a key. A value entry holds the type and the
//! offset of a value. For a small scalar, the entry holds the value itself instead of the offset. Offsets
//! count from the start of the container. The "small" form stores offsets in two bytes, the "large" form in
//! four. Keys are sorted by length, then by bytes.
//!
//! In a hostile document, many entries can share one value on every level. The text of such a document is
//! exponentially larger than the document. So code that visits a whole document counts the bytes that it
//! visits. In a valid document, it never visits more bytes than the document has.

pub(crate) mod base64;
mod document_edit;
mod json_path;
mod json_text;
mod partial_update_diff;

pub use json_path::{JsonPath, PathLeg};
pub use partial_update_diff::{JsonDiff, JsonDiffOperation, JsonDiffs};

use super::decimal_value::Decimal;
use super::table_map_column::type_code;
use super::temporal_value::{Date, DateTime, Time};
use crate::WireError;
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "binary JSON";

/// The maximum nesting depth of arrays and objects, which is the limit of the servers.
pub const DEPTH_MAX: usize = 100;

/// The type bytes of the format.
mod tag {
    pub const SMALL_OBJECT: u8 = 0x00;
    pub const LARGE_OBJECT: u8 = 0x01;
    pub const SMALL_ARRAY: u8 = 0x02;
    pub const LARGE_ARRAY: u8 = 0x03;
    pub const LITERAL: u8 = 0x04;
    pub const INT16: u8 = 0x05;
    pub const UINT16: u8 = 0x06;
    pub const INT32: u8 = 0x07;
    pub const UINT32: u8 = 0x08;
    pub const INT64: u8 = 0x09;
    pub const UINT64: u8 = 0x0a;
    pub const DOUBLE: u8 = 0x0b;
    pub const STRING: u8 = 0x0c;
    pub const OPAQUE: u8 = 0x0f;
}

/// A JSON document in MySQL's binary form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JsonBinary<'a> {
    bytes: &'a [u8],
    root: JsonValue<'a>,
}

impl<'a> JsonBinary<'a> {
    /// Wraps `bytes`, the value of a JSON column without its length. Checks only the type byte.
    ///
    /// Empty bytes mean `null`. A statement with IGNORE stores empty bytes in a column that gets no value.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the type byte is unknown.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let root = match bytes.split_first() {
            None => JsonValue { tag: tag::LITERAL, data: &[0] },
            Some((tag, data)) => JsonValue::new(*tag, data)?,
        };
        Ok(Self { bytes, root })
    }

    /// Returns the stored bytes of the document.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the outermost value.
    pub fn root(&self) -> JsonValue<'a> {
        self.root
    }
}

/// A value of a document that is not decoded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JsonValue<'a> {
    tag: u8,
    /// The bytes from the start of the value to the end of its container.
    data: &'a [u8],
}

/// A decoded value. The members of a container are decoded on request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JsonNode<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer stored as signed.
    Int(i64),
    /// An integer stored as unsigned.
    UInt(u64),
    /// A floating-point number. In a server's document it is never infinite.
    Double(f64),
    /// Text in utf8mb4.
    String(&'a [u8]),
    /// A DECIMAL.
    Decimal(Decimal<'a>),
    /// A DATE.
    Date(Date),
    /// A TIME.
    Time(Time),
    /// A DATETIME.
    DateTime(DateTime),
    /// A TIMESTAMP, as the local time of the session that stored it.
    Timestamp(DateTime),
    /// A value of any other SQL type.
    Opaque {
        /// The SQL type of the value: see [`type_code`].
        field_type: u8,
        /// The bytes of the value.
        bytes: &'a [u8],
    },
    /// An array, `[...]`.
    Array(JsonArray<'a>),
    /// An object, `{...}`.
    Object(JsonObject<'a>),
}

impl<'a> JsonValue<'a> {
    fn new(tag: u8, data: &'a [u8]) -> Result<Self, WireError> {
        match tag {
            tag::SMALL_OBJECT..=tag::STRING | tag::OPAQUE => Ok(Self { tag, data }),
            other => Err(WireError::malformed(WHAT, format!("{other:#04x} is not a value type"))),
        }
    }

    /// Decodes the value. For a container, checks that the entries are inside the container.
    ///
    /// # Errors
    /// [`WireError`] if the bytes end early or are not a value of their type.
    pub fn decode(&self) -> Result<JsonNode<'a>, WireError> {
        let mut cursor = ByteCursor::new(WHAT, self.data);
        Ok(match self.tag {
            tag::SMALL_OBJECT | tag::LARGE_OBJECT => JsonNode::Object(JsonObject(Container::parse(
                self.data,
                true,
                self.tag == tag::LARGE_OBJECT,
            )?)),
            tag::SMALL_ARRAY | tag::LARGE_ARRAY => {
                JsonNode::Array(JsonArray(Container::parse(self.data, false, self.tag == tag::LARGE_ARRAY)?))
            }
            tag::LITERAL => match cursor.u8()? {
                0 => JsonNode::Null,
                1 => JsonNode::Bool(true),
                2 => JsonNode::Bool(false),
                other => {
                    return Err(WireError::malformed(
                        WHAT,
                        format!("{other} is not the number of a literal"),
                    ));
                }
            },
            tag::INT16 => JsonNode::Int(i64::from(cursor.u16()? as i16)),
            tag::UINT16 => JsonNode::UInt(u64::from(cursor.u16()?)),
            tag::INT32 => JsonNode::Int(i64::from(cursor.u32()? as i32)),
            tag::UINT32 => JsonNode::UInt(u64::from(cursor.u32()?)),
            tag::INT64 => JsonNode::Int(cursor.u64()? as i64),
            tag::UINT64 => JsonNode::UInt(cursor.u64()?),
            tag::DOUBLE => JsonNode::Double(f64::from_le_bytes(cursor.array()?)),
            tag::STRING => JsonNode::String(variable_bytes(&mut cursor)?),
            _ => {
                let field_type = cursor.u8()?;
                opaque(field_type, variable_bytes(&mut cursor)?)?
            }
        })
    }

    /// Returns the bytes of the value, without its type byte and without the bytes after the value.
    fn encoded(&self) -> Result<&'a [u8], WireError> {
        let length = match self.tag {
            tag::SMALL_OBJECT | tag::LARGE_OBJECT | tag::SMALL_ARRAY | tag::LARGE_ARRAY => {
                match self.decode()? {
                    JsonNode::Object(JsonObject(container)) | JsonNode::Array(JsonArray(container)) => {
                        container.bytes.len()
                    }
                    _ => 0,
                }
            }
            tag::LITERAL => 1,
            tag::INT16 | tag::UINT16 => 2,
            tag::INT32 | tag::UINT32 => 4,
            tag::INT64 | tag::UINT64 | tag::DOUBLE => 8,
            _ => {
                let mut cursor = ByteCursor::new(WHAT, self.data);
                if self.tag == tag::OPAQUE {
                    cursor.skip(1)?;
                }
                variable_bytes(&mut cursor)?;
                cursor.position()
            }
        };
        ByteCursor::new(WHAT, self.data).bytes(length)
    }
}

/// Reads bytes whose length precedes them. The length is in groups of seven bits, the lowest first. The high
/// bit of each byte shows whether another group follows.
fn variable_bytes<'a>(cursor: &mut ByteCursor<'a>) -> Result<&'a [u8], WireError> {
    let mut length = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = cursor.u8()?;
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return match usize::try_from(length) {
                Ok(length) if length <= u32::MAX as usize => cursor.bytes(length),
                _ => {
                    Err(WireError::malformed(WHAT, format!("the document states a length of {length} bytes")))
                }
            };
        }
    }
    Err(WireError::malformed(WHAT, "a length has more than five bytes"))
}

fn opaque(field_type: u8, bytes: &[u8]) -> Result<JsonNode<'_>, WireError> {
    let packed = || ByteCursor::new(WHAT, bytes).u64().map(|packed| packed as i64);
    Ok(match field_type {
        type_code::NEWDECIMAL => {
            let mut cursor = ByteCursor::new(WHAT, bytes);
            let (precision, scale) = (cursor.u8()?, cursor.u8()?);
            JsonNode::Decimal(Decimal::parse(cursor.rest(), precision, scale)?)
        }
        type_code::DATE => JsonNode::Date(DateTime::from_packed_i64(packed()?)?.date),
        type_code::TIME => JsonNode::Time(Time::from_packed_i64(packed()?)?),
        type_code::DATETIME => JsonNode::DateTime(DateTime::from_packed_i64(packed()?)?),
        type_code::TIMESTAMP => JsonNode::Timestamp(DateTime::from_packed_i64(packed()?)?),
        _ => JsonNode::Opaque { field_type, bytes },
    })
}

/// The common part of an array and an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Container<'a> {
    /// The bytes from the count to the end of the container.
    bytes: &'a [u8],
    count: usize,
    object: bool,
    large: bool,
}

impl<'a> Container<'a> {
    fn parse(data: &'a [u8], object: bool, large: bool) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, data);
        let width = if large { 4 } else { 2 };
        let count = cursor.uint(width)? as usize;
        let size = cursor.uint(width)? as usize;
        let bytes = ByteCursor::new(WHAT, data).bytes(size)?;
        let container = Self { bytes, count, object, large };
        // The count and the size are at most 2^32, so the result does not overflow.
        let entries = 2 * width as u64 + count as u64 * container.entry_bytes() as u64;
        if entries > size as u64 {
            return Err(WireError::malformed(
                WHAT,
                format!("a container states {count} entries in {size} bytes"),
            ));
        }
        Ok(container)
    }

    fn width(&self) -> usize {
        if self.large { 4 } else { 2 }
    }

    /// Returns the size of the entries of one member: the entry of its key (in objects) plus the entry of its
    /// value.
    fn entry_bytes(&self) -> usize {
        self.width() + 1 + if self.object { self.width() + 2 } else { 0 }
    }

    fn at(&self, offset: usize) -> Result<ByteCursor<'a>, WireError> {
        let mut cursor = ByteCursor::new(WHAT, self.bytes);
        cursor.skip(offset)?;
        Ok(cursor)
    }

    fn check(&self, index: usize) -> Result<(), WireError> {
        if index >= self.count {
            return Err(WireError::malformed(
                WHAT,
                format!("the container has no member {index}, but only {} members", self.count),
            ));
        }
        Ok(())
    }

    fn key(&self, index: usize) -> Result<&'a [u8], WireError> {
        self.check(index)?;
        let mut entry = self.at(2 * self.width() + index * (self.width() + 2))?;
        let (offset, length) = (entry.uint(self.width())? as usize, usize::from(entry.u16()?));
        self.at(offset)?.bytes(length)
    }

    fn value(&self, index: usize) -> Result<JsonValue<'a>, WireError> {
        self.check(index)?;
        let keys = if self.object { self.count * (self.width() + 2) } else { 0 };
        let mut entry = self.at(2 * self.width() + keys + index * (self.width() + 1))?;
        let tag = entry.u8()?;
        let inlined = entry.bytes(self.width())?;
        if is_inlined(tag, self.large) {
            return JsonValue::new(tag, inlined);
        }
        let offset = ByteCursor::new(WHAT, inlined).uint(self.width())? as usize;
        JsonValue::new(tag, self.at(offset)?.rest())
    }
}

/// Returns whether the entry of a container holds a value of this type itself instead of its offset.
fn is_inlined(tag: u8, large: bool) -> bool {
    match tag {
        tag::LITERAL | tag::INT16 | tag::UINT16 => true,
        tag::INT32 | tag::UINT32 => large,
        _ => false,
    }
}

/// The members of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JsonArray<'a>(Container<'a>);

impl<'a> JsonArray<'a> {
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// Returns the member with this `index`, counted from 0.
    ///
    /// # Errors
    /// [`WireError`] for an index out of range or an invalid entry.
    pub fn get(&self, index: usize) -> Result<JsonValue<'a>, WireError> {
        self.0.value(index)
    }
}

/// The members of an object, in the order of their keys: by length, then by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JsonObject<'a>(Container<'a>);

impl<'a> JsonObject<'a> {
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// Returns key and value of the member with this `index`, counted from 0.
    ///
    /// # Errors
    /// [`WireError`] for an index out of range or invalid entries.
    pub fn member(&self, index: usize) -> Result<(&'a [u8], JsonValue<'a>), WireError> {
        Ok((self.0.key(index)?, self.0.value(index)?))
    }

    /// Returns the value of `key`, or `None` if there is no such member.
    ///
    /// # Errors
    /// [`WireError`] for an invalid entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<JsonValue<'a>>, WireError> {
        let (mut low, mut high) = (0, self.0.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match key_order(self.0.key(middle)?, key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return self.0.value(middle).map(Some),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }
}

/// Compares two keys by the order that the keys of an object have.
fn key_order(one: &[u8], other: &[u8]) -> std::cmp::Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests;
