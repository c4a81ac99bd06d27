//! The compressed parts of MariaDB's events (types 165 to 171): one byte, a length, and a zlib stream.
//!
//! The byte is `0x80 | algorithm << 4 | number of length bytes`. Zlib, algorithm 0, is the only algorithm.
//! The length is big-endian and is the length of the decompressed data.

use flate2::{Decompress, FlushDecompress, Status};

use super::event_header::EventType;
use super::format_description::FormatDescription;
use super::query_event::QueryEvent;
use crate::WireError;
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "compressed event";

/// Decompresses `part` and appends it to `out`.
///
/// # Errors
/// [`WireError::TooLarge`] if the stated length exceeds `bytes_max`; [`WireError::Malformed`] if the actual
/// length differs from the stated length; [`WireError::Unsupported`] if the algorithm is not zlib.
pub fn decompress(part: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    let (stated, stream) = read_head(part)?;
    if stated > bytes_max as u64 {
        return Err(WireError::TooLarge { what: WHAT, size: stated, size_max: bytes_max as u64 });
    }
    let stated = stated as usize;
    // Decompressed data is at most 1032 times as long as the zlib stream. Because of this check, a short
    // stream with a false length cannot cause a large allocation.
    if stated > stream.len().saturating_mul(1032).saturating_add(1032) {
        let reason =
            format!("a stream of {} bytes cannot have the stated content of {stated} bytes", stream.len());
        return Err(WireError::malformed(WHAT, reason));
    }
    let before = out.len();
    // Reserve one byte more than the stated length, so that a stream that is too long is detected.
    out.resize(before + stated + 1, 0);
    let mut inflate = Decompress::new(true);
    let status = inflate.decompress(stream, &mut out[before..], FlushDecompress::Finish);
    let made = inflate.total_out();
    out.truncate(before + stated);
    match status {
        Ok(Status::StreamEnd) if made == stated as u64 => Ok(()),
        Ok(_) => Err(WireError::malformed(
            WHAT,
            format!("the decompressed part has {made} bytes or more, but its stated length is {stated}"),
        )),
        Err(error) => Err(WireError::malformed(WHAT, format!("the part is not a zlib stream: {error}"))),
    }
}

/// Decompresses the start of `part`, which may be incomplete. Returns at most the first `N` decompressed
/// bytes, and their number.
pub(crate) fn decompress_front<const N: usize>(part: &[u8]) -> Result<([u8; N], usize), WireError> {
    let (_, stream) = read_head(part)?;
    let mut front = [0; N];
    let mut inflate = Decompress::new(true);
    if let Err(error) = inflate.decompress(stream, &mut front, FlushDecompress::Sync) {
        return Err(WireError::malformed(WHAT, format!("the part is not a zlib stream: {error}")));
    }
    Ok((front, inflate.total_out() as usize))
}

/// Decompresses a part that arrives in pieces of any size. It does not buffer the part.
pub struct PartDecoder {
    inflate: Decompress,
    /// The first byte and the bytes of the length, buffered until both are complete.
    head: Vec<u8>,
    stated: Option<u64>,
    finished: bool,
    out: Vec<u8>,
}

impl std::fmt::Debug for PartDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartDecoder").field("stated", &self.stated).finish_non_exhaustive()
    }
}

impl Default for PartDecoder {
    fn default() -> Self {
        Self {
            inflate: Decompress::new(true),
            head: Vec::new(),
            stated: None,
            finished: false,
            out: vec![0; Self::OUT_BYTES],
        }
    }
}

impl PartDecoder {
    /// The maximum number of bytes that are decompressed at once. It bounds the memory.
    const OUT_BYTES: usize = 64 * 1024;
    /// The maximum size of the head in bytes: the first byte and a length of four bytes.
    const HEAD_BYTES_MAX: usize = 5;

    /// Adds the next bytes of the part, and passes the decompressed bytes to `take` in pieces.
    ///
    /// # Errors
    /// As [`decompress`], and any error that `take` returns.
    pub fn update(
        &mut self,
        mut input: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if self.stated.is_none() {
            let head_bytes = match self.head.first().or(input.first()) {
                Some(first) => (1 + usize::from(first & 0x0f)).min(Self::HEAD_BYTES_MAX),
                None => return Ok(()),
            };
            let count = (head_bytes - self.head.len()).min(input.len());
            self.head.extend_from_slice(&input[..count]);
            input = &input[count..];
            if self.head.len() < head_bytes {
                return Ok(());
            }
            self.stated = Some(read_head(&self.head)?.0);
        }
        while !self.finished {
            let (read_before, made_before) = (self.inflate.total_in(), self.inflate.total_out());
            let status =
                self.inflate.decompress(input, &mut self.out, FlushDecompress::None).map_err(|error| {
                    WireError::malformed(WHAT, format!("the part is not a zlib stream: {error}"))
                })?;
            let read = (self.inflate.total_in() - read_before) as usize;
            let made = (self.inflate.total_out() - made_before) as usize;
            input = &input[read..];
            take(&self.out[..made])?;
            self.finished = status == Status::StreamEnd;
            if read == 0 && made == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Checks that the part is complete, and returns its decompressed length.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the decompressed length differs from the stated length.
    pub fn finish(&self) -> Result<u64, WireError> {
        let made = self.inflate.total_out();
        match self.stated {
            Some(stated) if self.finished && stated == made => Ok(made),
            stated => Err(WireError::malformed(
                WHAT,
                format!(
                    "the decompressed part has {made} bytes, but its stated length is {}",
                    stated.unwrap_or(0)
                ),
            )),
        }
    }
}

fn read_head(part: &[u8]) -> Result<(u64, &[u8]), WireError> {
    let mut cursor = ByteCursor::new(WHAT, part);
    let head = cursor.u8()?;
    if head & 0x80 == 0 {
        return Err(WireError::malformed(WHAT, format!("{head:#04x} is not a valid first byte")));
    }
    let algorithm = (head & 0x70) >> 4;
    if algorithm != 0 {
        return Err(WireError::unsupported(
            WHAT,
            format!("the compression algorithm {algorithm} is unknown"),
        ));
    }
    let length_bytes = usize::from(head & 0x0f);
    if !(1..=4).contains(&length_bytes) {
        return Err(WireError::malformed(
            WHAT,
            format!("the length field of the part has {length_bytes} bytes"),
        ));
    }
    Ok((cursor.uint_be(length_bytes)?, cursor.rest()))
}

/// Returns the uncompressed type of a compressed event type, or `None` if the type is not compressed.
pub fn plain_type(event_type: EventType) -> Option<EventType> {
    Some(match event_type {
        EventType::MARIADB_QUERY_COMPRESSED => EventType::QUERY,
        EventType::MARIADB_WRITE_ROWS_COMPRESSED_V1 => EventType::WRITE_ROWS_V1,
        EventType::MARIADB_UPDATE_ROWS_COMPRESSED_V1 => EventType::UPDATE_ROWS_V1,
        EventType::MARIADB_DELETE_ROWS_COMPRESSED_V1 => EventType::DELETE_ROWS_V1,
        EventType::MARIADB_WRITE_ROWS_COMPRESSED => EventType::WRITE_ROWS_V2,
        EventType::MARIADB_UPDATE_ROWS_COMPRESSED => EventType::UPDATE_ROWS_V2,
        EventType::MARIADB_DELETE_ROWS_COMPRESSED => EventType::DELETE_ROWS_V2,
        _ => return None,
    })
}

/// Decompresses the body (without checksum) of a compressed event, appends it to `out`, and returns the
/// uncompressed event type.
///
/// # Errors
/// [`WireError::Unsupported`] if the event type is not compressed. Otherwise the errors of [`decompress`].
/// `bytes_max` limits the decompressed part.
pub fn decompress_body(
    event_type: EventType,
    body: &[u8],
    format: &FormatDescription,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<EventType, WireError> {
    let Some(plain) = plain_type(event_type) else {
        return Err(WireError::unsupported(WHAT, event_type.to_string()));
    };
    let part = match event_type {
        EventType::MARIADB_QUERY_COMPRESSED => QueryEvent::parse(event_type, body, format)?.query,
        _ => super::RowsEvent::parse(event_type, body, format)?.rows,
    };
    out.extend_from_slice(&body[..body.len() - part.len()]);
    decompress(part, bytes_max, out)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compress(text: &[u8], stated: usize) -> Vec<u8> {
        let mut part = vec![0x84];
        part.extend_from_slice(&(stated as u32).to_be_bytes());
        let mut encoder = flate2::write::ZlibEncoder::new(part, flate2::Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn decompressing_in_pieces_equals_decompressing_at_once() {
        let text: Vec<u8> = (0..300_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let part = compress(&text, text.len());
        for piece in [1, 7, 1000, part.len()] {
            let (mut decoder, mut out) = (PartDecoder::default(), Vec::new());
            for chunk in part.chunks(piece) {
                decoder
                    .update(chunk, |bytes| {
                        out.extend_from_slice(bytes);
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(
                (decoder.finish(), out == text),
                (Ok(text.len() as u64), true),
                "wrong result for a part that arrives in pieces of {piece} bytes"
            );
        }
        let wrong = compress(&text, text.len() - 1);
        let mut decoder = PartDecoder::default();
        decoder.update(&wrong, |_| Ok(())).unwrap();
        assert!(decoder.finish().is_err());
        let mut decoder = PartDecoder::default();
        decoder.update(&part[..part.len() - 9], |_| Ok(())).unwrap();
        assert!(decoder.finish().is_err());
        assert!(PartDecoder::default().update(b"\x01\x01", |_| Ok(())).is_err());
    }

    #[test]
    fn decompressed_length_must_equal_the_stated_one() {
        let text = b"insert into t values (1)".repeat(50);
        let mut out = b"kept".to_vec();
        decompress(&compress(&text, text.len()), 1 << 20, &mut out).unwrap();
        assert_eq!(out, [&b"kept"[..], &text[..]].concat());
        for stated in [0, text.len() - 1, text.len() + 1] {
            let result = decompress(&compress(&text, stated), 1 << 20, &mut Vec::new());
            assert!(
                matches!(result, Err(WireError::Malformed { .. })),
                "the wrong stated length {stated} must be refused: {result:?}"
            );
        }
    }

    #[test]
    fn a_decompression_bomb_is_refused_before_allocation() {
        let bomb = compress(&vec![0; 10 << 20], 10 << 20);
        let mut out = Vec::new();
        let result = decompress(&bomb, 1 << 20, &mut out);
        assert!(
            matches!(result, Err(WireError::TooLarge { size_max: 0x10_0000, .. })),
            "the stated length exceeds the limit, but the result is {result:?}"
        );
        // The stated length is impossible for a zlib stream of that size.
        let result = decompress(&compress(b"x", 1 << 30), usize::MAX, &mut out);
        assert!(
            matches!(result, Err(WireError::Malformed { .. })),
            "the impossible length must be refused: {result:?}"
        );
        // The stream is much longer than stated.
        let result = decompress(&compress(&vec![0; 10 << 20], 100), 1 << 20, &mut out);
        assert!(
            matches!(result, Err(WireError::Malformed { .. })),
            "the stream that is too long must be refused: {result:?}"
        );
        assert_eq!(out.capacity().min(4096), out.capacity());
    }

    #[test]
    fn the_first_bytes_of_a_truncated_part_can_be_decompressed() {
        let text = b"XA COMMIT X'616263',X'',1 and so on".to_vec();
        let part = compress(&text, text.len());
        let (front, length) = decompress_front::<9>(&part).unwrap();
        assert_eq!((&front[..], length), (&b"XA COMMIT"[..], 9));
        let (front, length) = decompress_front::<64>(&part).unwrap();
        assert_eq!(&front[..length], &text[..]);
    }
}
