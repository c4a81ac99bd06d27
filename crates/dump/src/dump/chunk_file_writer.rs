//! Writes the data file of a chunk.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use tailwater_session::RawRow;

use super::parquet::{ParquetFile, WrittenParquet};
use super::row_encoder::{RowEncoder, TableRows};
use crate::dump_folder::{DumpCompression, NulledValues, WrittenChunk};
use tailwater_files::file_store::{FileStore, NewFile};
use tailwater_tables::error::{BulkError, file_error};

/// Number of bytes that are buffered before they are compressed and written.
const GATHERED_BYTES: usize = 256 << 10;

/// The data file of a chunk, to which rows are written. It gets its name when it is finished; a file that is
/// dropped earlier is discarded.
pub struct ChunkFile {
    /// The path of the file, for error messages.
    path: PathBuf,
    content: ChunkContent,
    rows: u64,
    bytes: u64,
}

enum ChunkContent {
    Text(Box<TextFile>),
    Parquet(Box<ParquetFile>),
}

struct TextFile {
    sink: ChunkSink,
    encoder: RowEncoder,
    gathered: Vec<u8>,
    checksum: crc32fast::Hasher,
}

enum ChunkSink {
    Plain(Box<dyn NewFile>),
    Zstd(zstd::Encoder<'static, Box<dyn NewFile>>),
    Gzip(GzEncoder<Box<dyn NewFile>>),
}

impl ChunkFile {
    /// Creates the file.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn create(
        files: &dyn FileStore,
        name: &str,
        rows: &TableRows,
        compression: DumpCompression,
        level: i32,
    ) -> Result<Self, BulkError> {
        let path = files.path(name);
        let file = files.create(name).map_err(file_error("create", &path))?;
        let (content, bytes) = match rows {
            TableRows::Text(text) => {
                let sink = ChunkSink::new(file, compression, level).map_err(file_error("create", &path))?;
                let mut gathered = Vec::with_capacity(GATHERED_BYTES + GATHERED_BYTES / 4);
                gathered.extend_from_slice(text.head());
                let bytes = gathered.len() as u64;
                let (encoder, checksum) = (RowEncoder::new(text.clone()), crc32fast::Hasher::new());
                (ChunkContent::Text(Box::new(TextFile { sink, encoder, gathered, checksum })), bytes)
            }
            TableRows::Parquet(table) => {
                let file = ParquetFile::new(file, &path, table, compression, level)?;
                (ChunkContent::Parquet(Box::new(file)), 0)
            }
        };
        Ok(Self { path, content, rows: 0, bytes })
    }

    /// Appends a row. Returns its size in bytes.
    ///
    /// # Errors
    /// [`BulkError::File`]; [`BulkError::Session`] if the row's bytes are malformed;
    /// [`BulkError::UnexpectedAnswer`] if a value does not fit its type.
    pub fn put(&mut self, row: &RawRow<'_>) -> Result<u64, BulkError> {
        let bytes = match &mut self.content {
            ChunkContent::Text(text) => text.put(row, &self.path)?,
            ChunkContent::Parquet(file) => file.put(row)?,
        } as u64;
        self.rows += 1;
        self.bytes += bytes;
        Ok(bytes)
    }

    /// Returns whether enough rows are buffered for [`ChunkFile::write_group`]. That call takes as long as
    /// the compression of the rows.
    pub fn is_group(&self) -> bool {
        matches!(&self.content, ChunkContent::Parquet(file) if file.is_group())
    }

    /// Compresses and writes the buffered rows.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn write_group(&mut self) -> Result<(), BulkError> {
        match &mut self.content {
            ChunkContent::Text(_) => Ok(()),
            ChunkContent::Parquet(file) => file.write_group(),
        }
    }

    /// Writes the remaining rows, makes the file durable and gives it its name. Also returns the numbers of
    /// values that the format cannot represent.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn finish(self, snapshot: usize) -> Result<(WrittenChunk, Vec<NulledValues>), BulkError> {
        let Self { path, content, rows, mut bytes } = self;
        let (file, crc32, nulled) = match content {
            ChunkContent::Text(text) => {
                let (file, crc32, end_bytes) = text.end(&path)?;
                bytes += end_bytes;
                (file, crc32, Vec::new())
            }
            ChunkContent::Parquet(file) => {
                let WrittenParquet { file, crc32, nulled } = file.end()?;
                (file, crc32, nulled)
            }
        };
        // Files without rows are not synced, because databases may have thousands of empty tables. If a power
        // failure truncates such a file, a resumed dump finds a wrong length and dumps the chunk again. That
        // takes no time, because the chunk has no rows.
        let file_bytes = file.finish(rows > 0).map_err(file_error("finish", &path))?;
        Ok((WrittenChunk { rows, bytes, crc32, file_bytes, snapshot }, nulled))
    }
}

impl TextFile {
    fn put(&mut self, row: &RawRow<'_>, path: &Path) -> Result<usize, BulkError> {
        let before = self.gathered.len();
        self.encoder.put(row, &mut self.gathered)?;
        let bytes = self.gathered.len() - before;
        if self.gathered.len() >= GATHERED_BYTES && self.encoder.is_between() {
            self.flush(path)?;
        }
        Ok(bytes)
    }

    fn flush(&mut self, path: &Path) -> Result<(), BulkError> {
        self.checksum.update(&self.gathered);
        let written = match &mut self.sink {
            ChunkSink::Plain(file) => file.write_all(&self.gathered),
            ChunkSink::Zstd(encoder) => encoder.write_all(&self.gathered),
            ChunkSink::Gzip(encoder) => encoder.write_all(&self.gathered),
        };
        self.gathered.clear();
        // After a huge row, the buffer shrinks at once. Otherwise it would take that much memory until the
        // end of the chunk.
        self.gathered.shrink_to(2 * GATHERED_BYTES);
        written.map_err(file_error("write", path))
    }

    /// Writes the remaining rows. Returns the file, the CRC32 of its uncompressed bytes, and the number of
    /// bytes that were added to end the last statement.
    fn end(mut self, path: &Path) -> Result<(Box<dyn NewFile>, u32, u64), BulkError> {
        let before = self.gathered.len();
        self.encoder.end(&mut self.gathered);
        let end_bytes = (self.gathered.len() - before) as u64;
        self.flush(path)?;
        let file = match self.sink {
            ChunkSink::Plain(file) => Ok(file),
            ChunkSink::Zstd(encoder) => encoder.finish(),
            ChunkSink::Gzip(encoder) => encoder.finish(),
        };
        Ok((file.map_err(file_error("finish", path))?, self.checksum.finalize(), end_bytes))
    }
}

impl ChunkSink {
    fn new(file: Box<dyn NewFile>, compression: DumpCompression, level: i32) -> std::io::Result<Self> {
        Ok(match compression {
            DumpCompression::None => Self::Plain(file),
            DumpCompression::Zstd => {
                let mut encoder = zstd::Encoder::new(file, level)?;
                // The manifest has its own checksum of the uncompressed bytes. The checksum in the file is
                // for programs that read the file without the manifest.
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            DumpCompression::Gzip => {
                Self::Gzip(GzEncoder::new(file, flate2::Compression::new(level.unsigned_abs())))
            }
        })
    }
}
