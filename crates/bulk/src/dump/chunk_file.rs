//! One chunk's file while it is written.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use flate2::write::GzEncoder;
use tailwater_session::RawRow;

use super::encoding::{Encoder, TableRows};
use crate::error::BulkError;
use crate::folder::files::failed;
use crate::folder::{Compression, DumpFiles, NewFile, WrittenChunk};

/// How many bytes are gathered before they are compressed and written.
const GATHERED_BYTES: usize = 256 << 10;

/// A file that gets rows. It is there when it is finished; dropped before, it is not kept.
pub struct ChunkFile {
    /// For messages.
    path: PathBuf,
    sink: Sink,
    encoder: Encoder,
    gathered: Vec<u8>,
    checksum: crc32fast::Hasher,
    rows: u64,
    bytes: u64,
}

enum Sink {
    Plain(Box<dyn NewFile>),
    Zstd(zstd::Encoder<'static, Box<dyn NewFile>>),
    Gzip(GzEncoder<Box<dyn NewFile>>),
}

impl ChunkFile {
    /// Begins a file.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn create(
        files: &dyn DumpFiles,
        name: &str,
        rows: &Arc<TableRows>,
        compression: Compression,
        level: i32,
    ) -> Result<Self, BulkError> {
        let path = files.path(name);
        let created = files.create(name).and_then(|file| {
            Ok(match compression {
                Compression::None => Sink::Plain(file),
                Compression::Zstd => {
                    let mut encoder = zstd::Encoder::new(file, level)?;
                    // Ours covers the bytes before; this one is for those who use the file without a manifest.
                    encoder.include_checksum(true)?;
                    Sink::Zstd(encoder)
                }
                Compression::Gzip => {
                    Sink::Gzip(GzEncoder::new(file, flate2::Compression::new(level.unsigned_abs())))
                }
            })
        });
        let sink = created.map_err(failed("create", &path))?;
        let mut gathered = Vec::with_capacity(GATHERED_BYTES + GATHERED_BYTES / 4);
        gathered.extend_from_slice(rows.head());
        let bytes = gathered.len() as u64;
        let encoder = Encoder::new(Arc::clone(rows));
        Ok(Self { path, sink, encoder, gathered, checksum: crc32fast::Hasher::new(), rows: 0, bytes })
    }

    /// Appends a row; how many bytes it takes.
    ///
    /// # Errors
    /// [`BulkError::File`]; [`BulkError::Session`] if the row's bytes make no sense.
    pub fn put(&mut self, row: &RawRow<'_>) -> Result<u64, BulkError> {
        let before = self.gathered.len();
        self.encoder.put(row, &mut self.gathered)?;
        let bytes = (self.gathered.len() - before) as u64;
        self.rows += 1;
        self.bytes += bytes;
        if self.gathered.len() >= GATHERED_BYTES && self.encoder.is_between() {
            self.flush()?;
        }
        Ok(bytes)
    }

    fn flush(&mut self) -> Result<(), BulkError> {
        self.checksum.update(&self.gathered);
        let written = match &mut self.sink {
            Sink::Plain(file) => file.write_all(&self.gathered),
            Sink::Zstd(encoder) => encoder.write_all(&self.gathered),
            Sink::Gzip(encoder) => encoder.write_all(&self.gathered),
        };
        self.gathered.clear();
        // One giant row must not pin its memory until the chunk ends.
        self.gathered.shrink_to(2 * GATHERED_BYTES);
        written.map_err(failed("write", &self.path))
    }

    /// Writes the rest, has it kept, and gives the file its name.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn finish(mut self, snapshot: usize) -> Result<WrittenChunk, BulkError> {
        let before = self.gathered.len();
        self.encoder.end(&mut self.gathered);
        self.bytes += (self.gathered.len() - before) as u64;
        self.flush()?;
        let Self { path, sink, checksum, rows, bytes, .. } = self;
        let file = match sink {
            Sink::Plain(file) => Ok(file),
            Sink::Zstd(encoder) => encoder.finish(),
            Sink::Gzip(encoder) => encoder.finish(),
        };
        // What a power cut leaves of a file without rows is found by its length, and costs nothing to read again. Databases
        // may have thousands of empty tables.
        let finished = file.and_then(|file| file.finish(rows > 0));
        let file_bytes = finished.map_err(failed("finish", &path))?;
        Ok(WrittenChunk { rows, bytes, crc32: checksum.finalize(), file_bytes, snapshot })
    }
}
