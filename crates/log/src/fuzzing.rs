//! Invariants that hold for any bytes read as an archived segment. The fuzz target under `fuzz/` calls this,
//! and `tests/fuzz_replay.rs` replays stored and mutated inputs with a plain `cargo test`.

use std::sync::Arc;

use crate::archive::RangedRead;
use crate::archive::seekable::{FRAME_BYTES_MAX, SeekableReader};

/// Content beyond this many bytes is not read. It may be long, as long as reading it takes no more memory.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Reads `data` as an archived segment.
///
/// # Panics
/// If the result differs from plain zstd's, or if reading takes more memory than allowed.
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
    // The frame's window may exceed the limit of zstd's stream decoder; then there is nothing to compare
    // with.
    if let Ok(plain) = zstd::stream::decode_all(data) {
        assert!(plain == content, "plain zstd reads {} other bytes", plain.len());
    }
    assert!(reader.read_at(&mut buffer, content.len() as u64).is_ok_and(|count| count == 0));
    assert!(content.len() <= data.len().saturating_mul(FRAME_BYTES_MAX));
}
