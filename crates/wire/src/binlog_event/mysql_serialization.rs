//! MySQL's self-describing message format (`mysql::serialization`). Tagged GTID events use it.
//!
//! A message consists of a format version, its size, the id of the last field that a reader must know, and
//! the fields. Each field is an id and a value; the ids ascend. Integers have 1..=9 bytes. The number of
//! trailing one bits in the first byte is the number of bytes that follow. Signed integers have the sign in
//! the lowest bit.

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// Reads the fields of a message, in ascending order of their ids.
#[derive(Debug)]
pub(crate) struct SerializedMessage<'a> {
    cursor: ByteCursor<'a>,
    what: &'static str,
    next_id_min: u64,
}

impl<'a> SerializedMessage<'a> {
    /// Reads the head of a message. The caller knows the fields 0..`known_fields`.
    pub(crate) fn parse(what: &'static str, bytes: &'a [u8], known_fields: u64) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(what, bytes);
        let version = uint(&mut cursor)?;
        if version != 1 {
            return Err(WireError::unsupported(
                what,
                format!("the serialization version {version} is unknown"),
            ));
        }
        // The stated size covers the whole message, from the version on.
        let size = uint(&mut cursor)?;
        if size != bytes.len() as u64 {
            return Err(WireError::malformed(
                what,
                format!("the message states a size of {size} bytes, but has {}", bytes.len()),
            ));
        }
        let last_required = uint(&mut cursor)?;
        if last_required > known_fields {
            let detail = format!("the message requires the field {}, which is unknown", last_required - 1);
            return Err(WireError::unsupported(what, detail));
        }
        Ok(Self { cursor, what, next_id_min: 0 })
    }

    /// Returns the id of the next field. The caller must read the field's value before the next call. After
    /// an unknown id the caller must stop, because the length of the value is unknown.
    pub(crate) fn next_field(&mut self) -> Result<Option<u64>, WireError> {
        if self.cursor.is_empty() {
            return Ok(None);
        }
        let id = uint(&mut self.cursor)?;
        if id < self.next_id_min {
            return Err(WireError::malformed(self.what, format!("field {id} is out of order")));
        }
        self.next_id_min = id.saturating_add(1);
        Ok(Some(id))
    }

    pub(crate) fn uint(&mut self) -> Result<u64, WireError> {
        uint(&mut self.cursor)
    }

    pub(crate) fn uint32(&mut self) -> Result<u32, WireError> {
        let value = self.uint()?;
        u32::try_from(value)
            .map_err(|_| WireError::malformed(self.what, format!("{value} does not fit in 32 bits")))
    }

    pub(crate) fn int(&mut self) -> Result<i64, WireError> {
        let coded = self.uint()?;
        let magnitude = (coded >> 1).cast_signed();
        Ok(if coded & 1 == 0 { magnitude } else { !magnitude })
    }

    /// Reads an array of bytes, each encoded as an integer.
    pub(crate) fn byte_array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        for byte in &mut array {
            let value = self.uint()?;
            *byte = u8::try_from(value)
                .map_err(|_| WireError::malformed(self.what, format!("{value} does not fit in a byte")))?;
        }
        Ok(array)
    }

    pub(crate) fn string(&mut self, bytes_max: usize) -> Result<&'a [u8], WireError> {
        let length = self.uint()?;
        match usize::try_from(length) {
            Ok(length) if length <= bytes_max => self.cursor.bytes(length),
            _ => {
                Err(WireError::malformed(self.what, format!("the message states a string of {length} bytes")))
            }
        }
    }
}

fn uint(cursor: &mut ByteCursor<'_>) -> Result<u64, WireError> {
    let first = cursor.u8()?;
    let following = first.trailing_ones() as usize;
    let high = cursor.uint(following)?;
    // In an integer of nine bytes, the first byte does not hold bits of the value. In a shorter integer, the
    // bits of the first byte above the length bits are the lowest bits of the value.
    Ok(match following {
        8 => high,
        _ => u64::from(first) >> (following + 1) | high << (7 - following),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> u64 {
        let mut cursor = ByteCursor::new("test", bytes);
        let value = uint(&mut cursor).unwrap();
        assert!(cursor.is_empty());
        value
    }

    /// The examples in MySQL's description of the format, and the smallest and largest values of each length.
    #[test]
    fn integers_of_every_length() {
        assert_eq!(decode(&[0]), 0);
        assert_eq!(decode(&[0xfe]), 127);
        assert_eq!(decode(&[0x01, 0x02]), 128);
        assert_eq!(decode(&[0xfb, 0xff, 0x07]), 65535);
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), u64::MAX);
        assert_eq!(decode(&[0x7f, 1, 0, 0, 0, 0, 0, 0]), 1);
    }

    #[test]
    fn signed_integers() {
        let int = |bytes: &[u8]| {
            SerializedMessage { cursor: ByteCursor::new("test", bytes), what: "test", next_id_min: 0 }
                .int()
                .unwrap()
        };
        assert_eq!(int(&[0xf3, 0xff, 0x0f]), 65535);
        assert_eq!(int(&[0xeb, 0xff, 0x0f]), -65535);
        assert_eq!(int(&[0xfb, 0xff, 0x0f]), -65536);
    }
}
