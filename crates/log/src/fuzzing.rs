//! Properties that must hold for any bytes that a reader takes as an archived segment. The fuzz target in
//! `fuzz/` calls this check, and `tests/fuzz_corpus_replay.rs` replays stored and mutated inputs with a plain
//! `cargo test`.

use std::sync::Arc;

use crate::archive::RangedRead;
use crate::archive::seekable_zstd::{FRAME_BYTES_MAX, SeekableReader};

/// The check reads at most this many bytes of content. Longer content must not take more memory.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Reads `data` as an archived segment.
///
/// # Panics
/// If the content differs from what plain zstd decompresses, or if reading takes more memory than allowed.
pub fn check(data: &[u8]) {
    let Ok(reader) = SeekableReader::open(Arc::new(data.to_vec())) else { return };
    let mut content = Vec::new();
    let mut buffer = vec![0; 100_000];
    while (content.len() as u64) < reader.content_bytes().min(READ_BYTES_MAX) {
        match reader.read_at(&mut buffer, content.len() as u64) {
            Ok(0) => {
                panic!(
                    "the segment's content ends at {}, but its stated length is {}",
                    content.len(),
                    reader.content_bytes()
                )
            }
            Ok(count) => content.extend_from_slice(&buffer[..count]),
            Err(_) => return,
        }
    }
    if content.len() as u64 != reader.content_bytes() {
        return;
    }
    // The window of a frame may exceed the limit of zstd's stream decoder. In that case plain zstd returns no
    // content to compare with.
    if let Ok(plain) = zstd::stream::decode_all(data) {
        assert!(
            plain == content,
            "plain zstd decompresses the segment to other content, of {} bytes",
            plain.len()
        );
    }
    assert!(reader.read_at(&mut buffer, content.len() as u64).is_ok_and(|count| count == 0));
    assert!(content.len() <= data.len().saturating_mul(FRAME_BYTES_MAX));
}
