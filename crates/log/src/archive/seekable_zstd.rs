//! The seekable format of zstd: independent frames and a table of their offsets. A reader can decompress a
//! part of the file without the rest, and `zstd -d` can decompress the whole file. Format:
//! contrib/seekable_format/zstd_seekable_compression_format.md of zstd, and docs/reference/log-format.md.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, compress_bound};

use super::object_store::{RangedRead, read_exactly_at};

/// The number of content bytes per frame. Even a small read must decompress one whole frame.
pub const FRAME_BYTES: usize = 1 << 20;

/// The maximum number of content bytes per frame that a reader accepts. Other programs may write frames of
/// other sizes.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// The maximum number of frames that a reader accepts. A table with more frames would take more than 64 MiB
/// of memory.
pub const FRAMES_MAX: usize = 4 << 20;

/// The number of decompressed frames that a reader caches.
const FRAMES_CACHED_MAX: usize = 4;

/// The first bytes of the frame that holds the seek table. Decompressors skip frames with this magic number.
const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
const SKIPPABLE_HEADER_BYTES: usize = 8;
const SEEKABLE_MAGIC: u32 = 0x8f92_eab1;
const FOOTER_BYTES: usize = 9;
/// A bit of the seek table's descriptor. If it is set, each table entry has a checksum after its two lengths.
const HAS_CHECKSUMS: u8 = 0x80;
/// The bits of the descriptor that must be zero.
const RESERVED: u8 = 0x7c;

/// Damage: the bytes are not valid in the seekable format, or have changed since they were written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SeekableDamage {
    /// The offset in the compressed bytes.
    pub offset: u64,
    /// What is wrong at that offset.
    pub reason: String,
}

impl SeekableDamage {
    fn error(offset: u64, reason: impl Into<String>) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, Self { offset, reason: reason.into() })
    }
}

/// Compresses the bytes of `input` frame by frame, in bounded memory. It implements [`Read`], which returns
/// the compressed bytes.
pub struct SeekableEncoder<R> {
    input: R,
    compressor: Compressor<'static>,
    content: Vec<u8>,
    output: Vec<u8>,
    given: usize,
    /// The entries of the table so far.
    table: Vec<u8>,
    frames: usize,
    finished: bool,
}

impl<R: Read> SeekableEncoder<R> {
    /// Creates an encoder with the compression level of zstd, 1 to 19.
    ///
    /// # Errors
    /// If zstd does not accept the level, or cannot allocate memory.
    pub fn new(input: R, level: i32) -> io::Result<Self> {
        let mut compressor = Compressor::new(level)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self {
            input,
            compressor,
            content: Vec::new(),
            output: Vec::new(),
            given: 0,
            table: Vec::new(),
            frames: 0,
            finished: false,
        })
    }

    /// Returns the input of the encoder.
    pub fn into_input(self) -> R {
        self.input
    }

    /// Fills `output` with the next compressed frame or, after the last frame, with the seek table.
    fn refill(&mut self) -> io::Result<()> {
        self.content.clear();
        io::Read::by_ref(&mut self.input).take(FRAME_BYTES as u64).read_to_end(&mut self.content)?;
        self.given = 0;
        if self.content.is_empty() {
            self.output = encode_table(&self.table, self.frames);
            self.finished = true;
            return Ok(());
        }
        if self.frames == FRAMES_MAX {
            return Err(io::Error::new(
                ErrorKind::FileTooLarge,
                format!("the segment needs more than {FRAMES_MAX} frames"),
            ));
        }
        self.output.clear();
        self.output.reserve(compress_bound(self.content.len()));
        let compressed_bytes = self.compressor.compress_to_buffer(&self.content, &mut self.output)?;
        // Both lengths of a frame are at most a little larger than FRAME_BYTES, so they fit in 32 bits.
        self.table.extend_from_slice(&(compressed_bytes as u32).to_le_bytes());
        self.table.extend_from_slice(&(self.content.len() as u32).to_le_bytes());
        self.frames += 1;
        Ok(())
    }
}

impl<R: Read> Read for SeekableEncoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.output.len() {
            if self.finished {
                return Ok(0);
            }
            self.refill()?;
        }
        let count = buffer.len().min(self.output.len() - self.given);
        buffer[..count].copy_from_slice(&self.output[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

impl<R> fmt::Debug for SeekableEncoder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeekableEncoder").field("frames", &self.frames).finish_non_exhaustive()
    }
}

fn encode_table(entries: &[u8], frames: usize) -> Vec<u8> {
    let mut table = SKIPPABLE_MAGIC.to_le_bytes().to_vec();
    table.extend_from_slice(&((entries.len() + FOOTER_BYTES) as u32).to_le_bytes());
    table.extend_from_slice(entries);
    table.extend_from_slice(&(frames as u32).to_le_bytes());
    table.push(0);
    table.extend_from_slice(&SEEKABLE_MAGIC.to_le_bytes());
    table
}

/// The offsets of the frames, in the compressed bytes and in the decompressed content.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeekTable {
    /// The ends of the frames, in the compressed bytes and in the content. Both increase from frame to frame.
    ends: Vec<FrameEnd>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FrameEnd {
    compressed: u64,
    content: u64,
}

impl SeekTable {
    /// Reads the table at the end of `source`.
    fn read(source: &dyn RangedRead) -> io::Result<Self> {
        let length = source.length()?;
        let footer_at = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| {
            SeekableDamage::error(
                0,
                format!("the object has {length} bytes, which are too few for a seek table"),
            )
        })?;
        let mut footer = [0; FOOTER_BYTES];
        read_exactly_at(source, &mut footer, footer_at)?;
        let (frames, entry_bytes) =
            parse_footer(&footer).map_err(|reason| SeekableDamage::error(footer_at, reason))?;
        let bytes = SKIPPABLE_HEADER_BYTES + frames * entry_bytes + FOOTER_BYTES;
        let table_at = length.checked_sub(bytes as u64).ok_or_else(|| {
            SeekableDamage::error(
                footer_at,
                format!("the object states a seek table of {bytes} bytes, but has only {length} bytes"),
            )
        })?;
        let mut table = vec![0; bytes];
        read_exactly_at(source, &mut table, table_at)?;
        Self::parse(&table, entry_bytes, table_at)
            .map_err(|reason| SeekableDamage::error(table_at, format!("the seek table is invalid: {reason}")))
    }

    /// Parses the frame that holds the table and begins at offset `table_at`.
    fn parse(table: &[u8], entry_bytes: usize, table_at: u64) -> Result<Self, String> {
        let stated = u32_at(table, 4) as usize;
        if u32_at(table, 0) != SKIPPABLE_MAGIC || stated != table.len() - SKIPPABLE_HEADER_BYTES {
            return Err("the seek table is not the only content of its skippable frame".into());
        }
        let entries = &table[SKIPPABLE_HEADER_BYTES..table.len() - FOOTER_BYTES];
        let mut end = FrameEnd::default();
        let mut ends = Vec::with_capacity(entries.len() / entry_bytes);
        for entry in entries.chunks_exact(entry_bytes) {
            let (compressed, content) = (u32_at(entry, 0), u32_at(entry, 4));
            if content as usize > FRAME_BYTES_MAX || compressed as usize > compress_bound(FRAME_BYTES_MAX) {
                return Err(format!(
                    "the seek table has a frame of {content} bytes, but at most {FRAME_BYTES_MAX} bytes are supported"
                ));
            }
            if content == 0 && compressed > 0 {
                // Refuse a frame without content. No read would ever decompress it, so its bytes would never
                // be checked.
                return Err("the seek table has a frame without content".into());
            }
            end.compressed += u64::from(compressed);
            end.content += u64::from(content);
            ends.push(end);
        }
        if end.compressed != table_at {
            return Err(format!(
                "the seek table states {} bytes for all frames, but {table_at} bytes precede the table",
                end.compressed
            ));
        }
        Ok(Self { ends })
    }

    fn content_bytes(&self) -> u64 {
        self.ends.last().map_or(0, |end| end.content)
    }

    /// Returns the frame that holds a byte of the content, or `None` after the end of the content.
    fn frame_at(&self, offset: u64) -> Option<usize> {
        let frame = self.ends.partition_point(|end| end.content <= offset);
        (frame < self.ends.len()).then_some(frame)
    }

    fn start(&self, frame: usize) -> FrameEnd {
        frame.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default()
    }
}

/// Parses the footer of a seek table. Returns the number of frames, and the number of bytes per table entry.
fn parse_footer(footer: &[u8; FOOTER_BYTES]) -> Result<(usize, usize), String> {
    let (frames, descriptor) = (u32_at(footer, 0) as usize, footer[4]);
    if u32_at(footer, 5) != SEEKABLE_MAGIC {
        return Err("the object does not end with a seek table".into());
    }
    if descriptor & RESERVED != 0 {
        return Err(format!("the seek table has an unknown descriptor, {descriptor:#04x}"));
    }
    if frames > FRAMES_MAX {
        return Err(format!("the seek table has {frames} frames, but at most {FRAMES_MAX} are supported"));
    }
    Ok((frames, if descriptor & HAS_CHECKSUMS == 0 { 8 } else { 12 }))
}

/// Reads the content of `source` at any offset. It keeps the table and a few decompressed frames in memory.
pub struct SeekableReader {
    source: Arc<dyn RangedRead>,
    table: SeekTable,
    cache: Mutex<FrameCache>,
}

struct FrameCache {
    decompressor: Decompressor<'static>,
    /// The cached frames with their numbers. The most recently used frame is the last.
    frames: VecDeque<(usize, Vec<u8>)>,
    compressed: Vec<u8>,
}

impl SeekableReader {
    /// Opens `source` and reads its table.
    ///
    /// # Errors
    /// `InvalidData` around a [`SeekableDamage`] if there is no valid table; the errors of `source`.
    pub fn open(source: Arc<dyn RangedRead>) -> io::Result<Self> {
        let table = SeekTable::read(source.as_ref())?;
        let cache = FrameCache {
            decompressor: Decompressor::new()?,
            frames: VecDeque::new(),
            compressed: Vec::new(),
        };
        Ok(Self { source, table, cache: Mutex::new(cache) })
    }

    /// Returns the length of the content in bytes.
    pub fn content_bytes(&self) -> u64 {
        self.table.content_bytes()
    }
}

impl RangedRead for SeekableReader {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(frame) = self.table.frame_at(offset) else { return Ok(0) };
        // Even if a thread panicked while it held this lock, the cache does not contain an incomplete frame.
        let mut cache = self.cache.lock();
        let content = cache.frame(self.source.as_ref(), &self.table, frame)?;
        let rest = content.get((offset - self.table.start(frame).content) as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.content_bytes())
    }
}

impl FrameCache {
    fn frame(&mut self, source: &dyn RangedRead, table: &SeekTable, number: usize) -> io::Result<&[u8]> {
        let held = self.frames.iter().position(|(held, _)| *held == number);
        let entry = match held.and_then(|position| self.frames.remove(position)) {
            Some(entry) => entry,
            None => {
                let reused = match self.frames.len() < FRAMES_CACHED_MAX {
                    true => Vec::new(),
                    false => self.frames.pop_front().map(|(_, content)| content).unwrap_or_default(),
                };
                (number, self.decompress(source, table, number, reused)?)
            }
        };
        self.frames.push_back(entry);
        Ok(self.frames.back().map(|(_, content)| content.as_slice()).unwrap_or_default())
    }

    fn decompress(
        &mut self,
        source: &dyn RangedRead,
        table: &SeekTable,
        number: usize,
        mut content: Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        let (start, end) = (table.start(number), table.ends[number]);
        // Both lengths of the frame were checked when the seek table was read.
        self.compressed.resize((end.compressed - start.compressed) as usize, 0);
        read_exactly_at(source, &mut self.compressed, start.compressed)?;
        let expected = (end.content - start.content) as usize;
        content.clear();
        content.reserve_exact(expected);
        let damage = |reason: String| {
            SeekableDamage::error(start.compressed, format!("frame {number} is damaged: {reason}"))
        };
        let count = self
            .decompressor
            .decompress_to_buffer(&self.compressed, &mut content)
            .map_err(|error| damage(error.to_string()))?;
        if count != expected {
            return Err(damage(format!(
                "the frame has {count} bytes of content, but the seek table states {expected}"
            )));
        }
        Ok(content)
    }
}

impl fmt::Debug for SeekableReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeekableReader").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Reads the little-endian integer of four bytes at `offset`. The caller has checked that the bytes exist.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..offset + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_le_bytes)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compress(content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        SeekableEncoder::new(content, 3).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Returns content that compresses a little and in which no two frames are equal.
    fn content(bytes: usize, seed: u64) -> Vec<u8> {
        let mut random = crate::storage::simulated_disk::SplitMix(seed);
        (0..bytes.div_ceil(8))
            .flat_map(|_| (random.next() & 0x0f0f_3fff_0f0f_0f0f).to_le_bytes())
            .take(bytes)
            .collect()
    }

    fn open(bytes: Vec<u8>) -> io::Result<SeekableReader> {
        SeekableReader::open(Arc::new(bytes))
    }

    fn read_all(reader: &SeekableReader, piece: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = vec![0; piece];
        loop {
            match reader.read_at(&mut buffer, all.len() as u64)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    #[test]
    fn content_round_trips_and_plain_zstd_decompresses_it() {
        for bytes in [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 5 * FRAME_BYTES + 77] {
            let content = content(bytes, 7);
            let compressed = compress(&content);
            assert!(
                zstd::stream::decode_all(compressed.as_slice()).unwrap() == content,
                "plain zstd decompressed other content than the {bytes} bytes that were compressed"
            );
            let reader = open(compressed).unwrap();
            assert_eq!(reader.content_bytes(), bytes as u64);
            assert!(
                read_all(&reader, 100_001).unwrap() == content,
                "the reader returned other content than the {bytes} bytes that were compressed"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_range_can_be_read(
            bytes in 0..4 * FRAME_BYTES,
            seed in any::<u64>(),
            ranges in proptest::collection::vec((any::<prop::sample::Index>(), 0..2 * FRAME_BYTES), 1..20),
        ) {
            let content = content(bytes, seed);
            let reader = open(compress(&content)).unwrap();
            for (start, length) in ranges {
                let start = start.index(bytes + 1);
                let mut buffer = vec![0; length.min(bytes - start)];
                read_exactly_at(&reader, &mut buffer, start as u64).unwrap();
                prop_assert!(buffer == content[start..start + buffer.len()]);
            }
        }

        #[test]
        fn a_flipped_bit_never_gives_wrong_content(
            bytes in 1..3 * FRAME_BYTES,
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let content = content(bytes, 3);
            let mut compressed = compress(&content);
            let at = at.index(compressed.len());
            compressed[at] ^= 1 << bit;
            if let Ok(read) = open(compressed).and_then(|reader| read_all(&reader, FRAME_BYTES)) {
                // Some bits of the seek table's descriptor have no meaning. After a flip of such a bit, the
                // read succeeds and must return the right content.
                prop_assert!(read == content);
            }
        }

        #[test]
        fn truncation_is_detected(bytes in 1..3 * FRAME_BYTES, at in any::<prop::sample::Index>()) {
            let mut compressed = compress(&content(bytes, 5));
            compressed.truncate(at.index(compressed.len()));
            let error = open(compressed).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn tables_with_checksums_are_read_and_oversized_tables_are_refused() {
        let content = content(FRAME_BYTES + 5, 1);
        let compressed = compress(&content);
        let table_at = compressed.len() - SKIPPABLE_HEADER_BYTES - 2 * 8 - FOOTER_BYTES;
        let entries = &compressed[table_at + SKIPPABLE_HEADER_BYTES..compressed.len() - FOOTER_BYTES];
        let mut with_checksums = Vec::new();
        for entry in entries.chunks(8) {
            with_checksums.extend_from_slice(entry);
            with_checksums.extend_from_slice(b"\x01\x02\x03\x04");
        }
        let mut bytes = compressed[..table_at].to_vec();
        bytes.extend_from_slice(&encode_table(&with_checksums, 2));
        let descriptor = bytes.len() - 5;
        bytes[descriptor] = HAS_CHECKSUMS;
        assert!(read_all(&open(bytes.clone()).unwrap(), 1000).unwrap() == content);

        let count = bytes.len() - FOOTER_BYTES;
        bytes[count..count + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(open(bytes).unwrap_err().to_string().contains("at most"));
        let mut huge = compressed;
        huge[table_at + SKIPPABLE_HEADER_BYTES + 4..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(open(huge).unwrap_err().to_string().contains("at most"));
    }
}
