//! What must hold for any bytes whatever that are read as an archived segment: the fuzz target under `fuzz/` calls this,
//! and `tests/fuzzed.rs` replays kept inputs, and changed ones, with a plain `cargo test`.

use std::sync::Arc;

use crate::archive::RangedRead;
use crate::archive::seekable::{FRAME_BYTES_MAX, SeekableReader};

/// Content beyond this is not read: it may be long, as long as reading it needs no more memory.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Reads `data` as an archived segment.
///
/// # Panics
/// If it is read as something else than plain zstd reads, or takes more memory than it may.
pub fn check(data: &[u8]) {
    let Ok(reader) = SeekableReader::open(Arc::new(data.to_vec())) else { return };
    let mut content = Vec::new();
    let mut buffer = vec![0; 100_000];
    while (content.len() as u64) < reader.content_bytes().min(READ_BYTES_MAX) {
        match reader.read_at(&mut buffer, content.len() as u64) {
            Ok(0) => panic!("it ends at {} and not at {}", content.len(), reader.content_bytes()),
            Ok(count) => content.extend_from_slice(&buffer[..count]),
            Err(_) => return,
        }
    }
    if content.len() as u64 != reader.content_bytes() {
        return;
    }
    // Its window may be larger than the decoder of streams allows; then there is nothing to compare with.
    if let Ok(plain) = zstd::stream::decode_all(data) {
        assert!(plain == content, "plain zstd reads {} other bytes", plain.len());
    }
    assert!(reader.read_at(&mut buffer, content.len() as u64).is_ok_and(|count| count == 0));
    assert!(content.len() <= data.len().saturating_mul(FRAME_BYTES_MAX));
}
