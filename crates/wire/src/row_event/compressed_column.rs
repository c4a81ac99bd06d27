//! Values of MariaDB columns with the COMPRESSED attribute.
//!
//! An empty value is stored as an empty value. Otherwise the first byte names the method. Method 0 stores the
//! value uncompressed. If the high four bits are 8, the value is compressed with zlib. Then the low three
//! bits are the number of big-endian bytes of the decompressed length, and bit 3 means a deflate stream
//! without the zlib wrapper.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

use crate::WireError;
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "compressed column";
const METHOD_STORED: u8 = 0;
const METHOD_ZLIB: u8 = 8;
const ZLIB_RAW: u8 = 0x08;

/// The maximum expansion of a deflate stream. If the stated length is larger than the length of the stream
/// times this factor, the stated length is wrong.
const EXPANSION_MAX: u64 = 1032;

/// A stored value of a compressed column.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompressedBytes<'a> {
    stored: &'a [u8],
}

impl<'a> CompressedBytes<'a> {
    pub(super) fn new(stored: &'a [u8]) -> Self {
        Self { stored }
    }

    /// Returns the compressed bytes as they are in the event. `mariadb-binlog` prints these bytes.
    pub fn stored(&self) -> &'a [u8] {
        self.stored
    }

    /// Returns the decompressed value.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] before any allocation, if the stated length exceeds `bytes_max`;
    /// [`WireError::Unsupported`] for an unknown method; [`WireError::Malformed`] if the stream is invalid.
    pub fn decompress(&self, bytes_max: usize) -> Result<Vec<u8>, WireError> {
        if self.stored.is_empty() {
            return Ok(Vec::new());
        }
        let mut cursor = ByteCursor::new(WHAT, self.stored);
        let head = cursor.u8()?;
        match head >> 4 {
            METHOD_STORED => Ok(cursor.rest().to_vec()),
            METHOD_ZLIB => {
                let length = cursor.uint_be(usize::from(head & 0x07))?;
                if length > bytes_max as u64 {
                    return Err(WireError::TooLarge { what: WHAT, size: length, size_max: bytes_max as u64 });
                }
                if length > (cursor.remaining() as u64).saturating_mul(EXPANSION_MAX) {
                    return Err(WireError::malformed(
                        WHAT,
                        format!(
                            "the value states {length} bytes, but its stream has only {}",
                            cursor.remaining()
                        ),
                    ));
                }
                inflate(cursor.rest(), head & ZLIB_RAW == 0, length as usize)
            }
            method => {
                Err(WireError::unsupported(WHAT, format!("the compression method {method} is unknown")))
            }
        }
    }
}

/// Decompresses `stream`, which must give exactly `length` bytes.
fn inflate(stream: &[u8], zlib_header: bool, length: usize) -> Result<Vec<u8>, WireError> {
    // Reserve one byte more than the stated length, so that a stream that is too long is detected.
    let mut out = Vec::with_capacity(length.saturating_add(1));
    let mut inflater = Decompress::new(zlib_header);
    let status = inflater
        .decompress_vec(stream, &mut out, FlushDecompress::Finish)
        .map_err(|error| WireError::malformed(WHAT, error.to_string()))?;
    if status != Status::StreamEnd || out.len() != length {
        return Err(WireError::malformed(
            WHAT,
            format!("the stream of the value does not end after {length} bytes"),
        ));
    }
    Ok(out)
}

impl fmt::Debug for CompressedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompressedBytes({} stored)", self.stored.len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn encode(value: &[u8], raw: bool) -> Vec<u8> {
        let mut out = vec![0x80 | 4 | if raw { ZLIB_RAW } else { 0 }];
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        if raw {
            let mut encoder = flate2::write::DeflateEncoder::new(out, flate2::Compression::default());
            encoder.write_all(value).unwrap();
            encoder.finish().unwrap()
        } else {
            let mut encoder = flate2::write::ZlibEncoder::new(out, flate2::Compression::default());
            encoder.write_all(value).unwrap();
            encoder.finish().unwrap()
        }
    }

    #[test]
    fn a_value_stored_by_mariadb_is_decompressed() {
        // The stored form of repeat('b', 1000) in a BLOB COMPRESSED column.
        let stored = [0x8a, 0x03, 0xe8, 0x4b, 0x4a, 0x1a, 0x05, 0xa3, 0x60, 0x14, 0x0c, 0x77, 0x00, 0x00];
        assert_eq!(CompressedBytes::new(&stored).decompress(1000).unwrap(), vec![b'b'; 1000]);
        assert!(matches!(CompressedBytes::new(&stored).decompress(999), Err(WireError::TooLarge { .. })));
        assert_eq!(CompressedBytes::new(b"\0xx").decompress(10).unwrap(), b"xx");
        assert_eq!(CompressedBytes::new(b"").decompress(10).unwrap(), b"");
        assert!(matches!(CompressedBytes::new(b"\x10x").decompress(10), Err(WireError::Unsupported { .. })));
    }

    #[test]
    fn a_wrong_length_is_refused() {
        let mut stored = encode(&[7; 100], true);
        stored[4] = 99;
        assert!(CompressedBytes::new(&stored).decompress(1 << 20).is_err());
        stored[4] = 101;
        assert!(CompressedBytes::new(&stored).decompress(1 << 20).is_err());
        stored[1] = 0x7f;
        assert!(CompressedBytes::new(&stored).decompress(usize::MAX).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(value: Vec<u8>, raw: bool) {
            let stored = encode(&value, raw);
            prop_assert_eq!(CompressedBytes::new(&stored).decompress(value.len()).unwrap(), value);
        }

        #[test]
        fn arbitrary_bytes_never_panic(stored: Vec<u8>) {
            let _ = CompressedBytes::new(&stored).decompress(1 << 16);
        }
    }
}
