//! One chunk's file while it is written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tailwater_session::{RawRow, SessionError};

use super::tsv::put_field;
use crate::error::BulkError;
use crate::folder::store::{failed, partial};
use crate::folder::{Compression, WrittenChunk};

/// How many bytes are gathered before they are compressed and written.
const GATHERED_BYTES: usize = 256 << 10;

/// A file that gets rows. It has another name until it is finished; dropped before, it is removed.
#[derive(Debug)]
pub struct ChunkFile {
    path: PathBuf,
    temporary: Temporary,
    sink: Sink,
    gathered: Vec<u8>,
    checksum: crc32fast::Hasher,
    rows: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // It is written anew whether or not it is there.
            let _ = fs::remove_file(&self.path);
        }
    }
}

enum Sink {
    Plain(File),
    Zstd(zstd::Encoder<'static, File>),
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl ChunkFile {
    /// Begins a file.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn create(path: &Path, compression: Compression, level: i32) -> Result<Self, BulkError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary = Temporary { path: path.with_file_name(partial(&name)), renamed: false };
        let created = File::create(&temporary.path).and_then(|file| {
            Ok(match compression {
                Compression::None => Sink::Plain(file),
                Compression::Zstd => {
                    let mut encoder = zstd::Encoder::new(file, level)?;
                    // Ours covers the bytes before; this one is for those who use the file without a manifest.
                    encoder.include_checksum(true)?;
                    Sink::Zstd(encoder)
                }
            })
        });
        let sink = created.map_err(failed("create", &temporary.path))?;
        let gathered = Vec::with_capacity(GATHERED_BYTES + GATHERED_BYTES / 4);
        let checksum = crc32fast::Hasher::new();
        Ok(Self { path: path.to_owned(), temporary, sink, gathered, checksum, rows: 0, bytes: 0 })
    }

    /// Appends a row; how many bytes it takes.
    ///
    /// # Errors
    /// [`BulkError::File`]; [`BulkError::Session`] if the row's bytes make no sense.
    pub fn put(&mut self, row: &RawRow) -> Result<u64, BulkError> {
        let before = self.gathered.len();
        self.line(row)?;
        let bytes = (self.gathered.len() - before) as u64;
        self.rows += 1;
        self.bytes += bytes;
        if self.gathered.len() >= GATHERED_BYTES {
            self.flush()?;
        }
        Ok(bytes)
    }

    fn line(&mut self, row: &RawRow) -> Result<(), SessionError> {
        for (index, value) in row.values().enumerate() {
            if index > 0 {
                self.gathered.push(b'\t');
            }
            put_field(&mut self.gathered, value?);
        }
        self.gathered.push(b'\n');
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BulkError> {
        self.checksum.update(&self.gathered);
        let written = match &mut self.sink {
            Sink::Plain(file) => file.write_all(&self.gathered),
            Sink::Zstd(encoder) => encoder.write_all(&self.gathered),
        };
        self.gathered.clear();
        // One giant row must not pin its memory until the chunk ends.
        self.gathered.shrink_to(2 * GATHERED_BYTES);
        written.map_err(failed("write", &self.temporary.path))
    }

    /// Writes the rest, has the disk keep it, and gives the file its name.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn finish(mut self, snapshot: usize) -> Result<WrittenChunk, BulkError> {
        self.flush()?;
        let Self { path, mut temporary, sink, checksum, rows, bytes, .. } = self;
        let finished = finish_sink(sink).and_then(|file_bytes| {
            fs::rename(&temporary.path, &path)?;
            Ok(file_bytes)
        });
        let file_bytes = finished.map_err(failed("finish", &temporary.path))?;
        temporary.renamed = true;
        Ok(WrittenChunk { rows, bytes, crc32: checksum.finalize(), file_bytes, snapshot })
    }
}

fn finish_sink(sink: Sink) -> io::Result<u64> {
    let file = match sink {
        Sink::Plain(file) => file,
        Sink::Zstd(encoder) => encoder.finish()?,
    };
    file.sync_data()?;
    Ok(file.metadata()?.len())
}
