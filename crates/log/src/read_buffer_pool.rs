//! Buffers for reading a segment. A reader returns slices of a buffer without copying. The memory of a buffer
//! is used again after all its slices are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

/// Size of one read from a segment, in bytes.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Number of unused buffers that are kept for later reads.
const FREE_BUFFERS_MAX: usize = 8;

/// The buffers of one reader. A buffer returns to the pool when its last slice is dropped.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
    /// Memory in bytes of all buffers that have slices in use.
    bytes_in_use: AtomicUsize,
}

impl BufferPool {
    /// Returns an empty buffer for `length` bytes, at most [`BUFFER_BYTES`].
    pub(crate) fn acquire(self: &Arc<Self>, length: usize) -> PooledBuffer {
        let whole = length > BUFFER_BYTES / 2;
        let free = whole.then(|| self.free().pop()).flatten();
        let mut bytes = free.unwrap_or_else(|| Vec::with_capacity(if whole { BUFFER_BYTES } else { length }));
        bytes.resize(length, 0);
        self.bytes_in_use.fetch_add(bytes.capacity(), Ordering::Relaxed);
        PooledBuffer { bytes, pool: Arc::clone(self) }
    }

    /// Returns the memory in bytes of all buffers that have slices in use.
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.bytes_in_use.load(Ordering::Relaxed)
    }

    fn free(&self) -> parking_lot::MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock()
    }
}

/// A buffer that a read is to fill.
#[derive(Debug)]
pub(crate) struct PooledBuffer {
    bytes: Vec<u8>,
    pool: Arc<BufferPool>,
}

impl PooledBuffer {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns the first `length` bytes of the buffer. A read of the file has filled them.
    pub(crate) fn filled(mut self, length: usize) -> Bytes {
        self.bytes.truncate(length);
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.pool.bytes_in_use.fetch_sub(bytes.capacity(), Ordering::Relaxed);
        if bytes.capacity() >= BUFFER_BYTES {
            let mut free = self.pool.free();
            if free.len() < FREE_BUFFERS_MAX {
                free.push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_after_its_last_slice_is_dropped() {
        let pool = Arc::new(BufferPool::default());
        let mut window = pool.acquire(BUFFER_BYTES);
        window.bytes_mut()[..3].copy_from_slice(b"abc");
        let place = window.bytes.as_ptr();
        let whole = window.filled(3);
        let piece = whole.slice(1..);
        drop(whole);
        assert_eq!((&piece[..], pool.bytes_in_use()), (&b"bc"[..], BUFFER_BYTES));
        drop(piece);
        assert_eq!((pool.bytes_in_use(), pool.free().len()), (0, 1));
        assert_eq!(pool.acquire(BUFFER_BYTES - 1).bytes.as_ptr(), place);
        // A reader at the end of the log uses small buffers. A small buffer takes only the memory that it
        // needs.
        let small = pool.acquire(100).filled(100);
        assert_eq!(pool.bytes_in_use(), 100);
        drop(small);
        assert_eq!(pool.free().len(), 1);
        let many: Vec<_> = (0..2 * FREE_BUFFERS_MAX).map(|_| pool.acquire(BUFFER_BYTES)).collect();
        drop(many);
        assert_eq!((pool.bytes_in_use(), pool.free().len()), (0, FREE_BUFFERS_MAX));
    }
}
