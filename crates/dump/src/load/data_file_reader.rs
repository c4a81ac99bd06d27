//! Reads, decompresses and verifies a data file on its own thread, and passes its rows to a connection in
//! pieces.

use std::io::{self, Read};

use bytes::{Bytes, BytesMut};
use tailwater_session::LoadPiece;
use tokio::sync::mpsc;

use super::dump_contents::{FileCompression, LoadChunk, file_name};
use tailwater_files::file_store::FileStore;
use tailwater_tables::error::BulkError;

/// Size of a piece in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Maximum number of pieces that wait for the connection.
pub const PIECES_MAX: usize = 4;

/// Sends the rows of a file to a connection. The end marker is sent only after the whole file was verified,
/// so that the receiver cannot mistake a partial file for a complete one.
///
/// If the receiver was dropped, returns without an error and does not send the end marker.
///
/// # Errors
/// [`BulkError::File`] if the file cannot be read; [`BulkError::Damaged`] if its contents differ
/// from what the dump has recorded.
pub fn send(files: &dyn FileStore, chunk: &LoadChunk, to: &mpsc::Sender<LoadPiece>) -> Result<(), BulkError> {
    let failed = |source: io::Error| match source.kind() {
        // The decompressor reports damaged data with these error kinds. Errors of the operating system or of
        // an object store have other kinds.
        io::ErrorKind::Other
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
            if source.raw_os_error().is_none() =>
        {
            BulkError::Damaged { path: chunk.path.clone(), reason: source.to_string() }
        }
        _ => BulkError::File { action: "read", path: chunk.path.clone(), source },
    };
    let mut file = open(files, &file_name(&chunk.path), chunk.packing).map_err(failed)?;
    let mut checksum = crc32fast::Hasher::new();
    let mut bytes = 0;
    loop {
        let piece = read_piece(&mut file).map_err(failed)?;
        if piece.is_empty() {
            break;
        }
        bytes += piece.len() as u64;
        // A small compressed file may expand to any size, so the reader stops at the size that the dump has
        // recorded.
        if let Some(wanted) = chunk.bytes.filter(|&wanted| bytes > wanted) {
            let reason = format!("the contents of the file are longer than the expected {wanted} bytes");
            return Err(BulkError::Damaged { path: chunk.path.clone(), reason });
        }
        checksum.update(&piece);
        if to.blocking_send(LoadPiece::Bytes(piece)).is_err() {
            return Ok(());
        }
    }
    let differs = match (chunk.bytes, chunk.crc32) {
        (Some(wanted), _) if wanted != bytes => {
            Some(format!("the file has {bytes} bytes instead of {wanted}"))
        }
        (_, Some(wanted)) if wanted != checksum.clone().finalize() => {
            let found = checksum.finalize();
            Some(format!("the CRC32 of the file is {found:08x} instead of {wanted:08x}"))
        }
        _ => None,
    };
    if let Some(reason) = differs {
        return Err(BulkError::Damaged { path: chunk.path.clone(), reason });
    }
    // If the receiver was dropped, it does not need the end marker, so the error is ignored.
    let _ = to.blocking_send(LoadPiece::End);
    Ok(())
}

/// Opens a file and decompresses it while reading.
pub(super) fn open(files: &dyn FileStore, name: &str, packing: FileCompression) -> io::Result<Box<dyn Read>> {
    let file = files.open(name)?;
    Ok(match packing {
        FileCompression::None => file,
        // The decoder refuses files that need a larger decompression window than its default, so memory is
        // limited.
        FileCompression::Zstd => Box::new(zstd::Decoder::new(file)?),
        FileCompression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
    })
}

/// Reads up to one piece of bytes; returns no bytes at the end of the file.
fn read_piece(file: &mut dyn Read) -> io::Result<Bytes> {
    let mut piece = BytesMut::zeroed(PIECE_BYTES);
    let mut filled = 0;
    while filled < piece.len() {
        match file.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(filled);
    Ok(piece.freeze())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use tailwater_files::file_store::LocalFiles;

    fn chunk(path: PathBuf, packing: FileCompression, of: &[u8]) -> LoadChunk {
        let (bytes, crc32) = (Some(of.len() as u64), Some(crc32fast::hash(of)));
        LoadChunk { number: 0, path, packing, rows: None, bytes, crc32, file_bytes: 0 }
    }

    /// Returns the bytes that were received, whether the end marker was received, and the result of the
    /// sender.
    fn received(chunk: &LoadChunk) -> (Vec<u8>, bool, Result<(), BulkError>) {
        let (sender, mut receiver) = mpsc::channel(1000);
        let files = LocalFiles::new(chunk.path.parent().expect("the path has a folder"));
        let result = send(&files, chunk, &sender);
        drop(sender);
        let (mut bytes, mut complete) = (Vec::new(), false);
        while let Some(piece) = receiver.blocking_recv() {
            match piece {
                LoadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                LoadPiece::End => complete = true,
            }
        }
        (bytes, complete, result)
    }

    #[test]
    fn the_end_marker_is_sent_only_for_whole_files() {
        let folder = tempfile::tempdir().expect("a temporary folder is created");
        let rows: Vec<u8> = (0..100_000u32).flat_map(|row| format!("{row}\trow\n").into_bytes()).collect();
        let path = folder.path().join("rows.tsv.zst");
        let packed = zstd::encode_all(&rows[..], 1).expect("the rows are compressed");
        std::fs::write(&path, &packed).expect("the file is written");
        let good = chunk(path.clone(), FileCompression::Zstd, &rows);
        let (bytes, complete, result) = received(&good);
        assert!(bytes == rows && complete && result.is_ok());

        let other = LoadChunk { crc32: Some(1), ..good.clone() };
        let shorter = LoadChunk { bytes: Some(1), ..good.clone() };
        for wrong in [other, shorter] {
            let (_, complete, result) = received(&wrong);
            assert!(!complete && result.is_err_and(|error| error.code() == "TW-BULK-0002"));
        }
        std::fs::write(&path, &packed[..packed.len() / 2]).expect("the file is written");
        let (_, complete, result) = received(&good);
        assert!(!complete && result.is_err_and(|error| error.code() == "TW-BULK-0002"));
        std::fs::write(&path, &rows).expect("the file is written");
        let (_, complete, result) = received(&good);
        assert!(!complete && result.is_err_and(|error| error.code() == "TW-BULK-0002"));
        // The file has a few compressed kilobytes that expand to a gigabyte. None of these bytes may be sent.
        let bomb = zstd::encode_all(std::io::Read::take(std::io::repeat(b'x'), 1 << 30), 1)
            .expect("the rows are compressed");
        std::fs::write(&path, &bomb).expect("the file is written");
        let (bytes, complete, result) = received(&LoadChunk { bytes: Some(1000), ..good.clone() });
        assert!(
            bytes.is_empty()
                && !complete
                && result.is_err_and(|error| error.to_string().contains("longer than the expected"))
        );
        let missing = chunk(folder.path().join("no.tsv"), FileCompression::None, b"");
        assert!(received(&missing).2.is_err_and(|error| error.code() == "TW-BULK-0001"));
    }
}
