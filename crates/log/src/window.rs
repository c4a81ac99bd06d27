//! Pieces of a segment that are read at once, and that those who read may keep without copying them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// How much of a segment is read at once.
pub(crate) const WINDOW_BYTES: usize = 256 << 10;
/// Memory of so many windows is kept for the next ones.
const KEPT_MAX: usize = 8;

/// Where windows of one reader come from, and where their memory goes when nobody has anything of them any more.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    kept: Mutex<Vec<Vec<u8>>>,
    /// The memory of all windows that somebody has something of.
    lent_bytes: AtomicUsize,
}

impl Windows {
    /// A window of `length` bytes, at most [`WINDOW_BYTES`], to be filled.
    pub(crate) fn lend(self: &Arc<Self>, length: usize) -> Window {
        let whole = length > WINDOW_BYTES / 2;
        let kept = whole.then(|| self.kept().pop()).flatten();
        let mut bytes = kept.unwrap_or_else(|| Vec::with_capacity(if whole { WINDOW_BYTES } else { length }));
        bytes.resize(length, 0);
        self.lent_bytes.fetch_add(bytes.capacity(), Ordering::Relaxed);
        Window { bytes, windows: Arc::clone(self) }
    }

    /// How much memory all windows hold that somebody has something of.
    pub(crate) fn lent_bytes(&self) -> usize {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        // Whoever died with it in hand has left a whole list.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A window that is to be filled.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    windows: Arc<Windows>,
}

impl Window {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Its first `length` bytes, for all who want some.
    pub(crate) fn filled(mut self, length: usize) -> Bytes {
        self.bytes.truncate(length);
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.windows.lent_bytes.fetch_sub(bytes.capacity(), Ordering::Relaxed);
        if bytes.capacity() >= WINDOW_BYTES {
            let mut kept = self.windows.kept();
            if kept.len() < KEPT_MAX {
                kept.push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_lent_until_the_last_piece_goes_and_then_lent_again() {
        let windows = Arc::new(Windows::default());
        let mut window = windows.lend(WINDOW_BYTES);
        window.bytes_mut()[..3].copy_from_slice(b"abc");
        let place = window.bytes.as_ptr();
        let whole = window.filled(3);
        let piece = whole.slice(1..);
        drop(whole);
        assert_eq!((&piece[..], windows.lent_bytes()), (&b"bc"[..], WINDOW_BYTES));
        drop(piece);
        assert_eq!((windows.lent_bytes(), windows.kept().len()), (0, 1));
        assert_eq!(windows.lend(WINDOW_BYTES - 1).bytes.as_ptr(), place);
        // Who follows a log at its end has small ones, which take no more than they need.
        let small = windows.lend(100).filled(100);
        assert_eq!(windows.lent_bytes(), 100);
        drop(small);
        assert_eq!(windows.kept().len(), 1);
        let many: Vec<_> = (0..2 * KEPT_MAX).map(|_| windows.lend(WINDOW_BYTES)).collect();
        drop(many);
        assert_eq!((windows.lent_bytes(), windows.kept().len()), (0, KEPT_MAX));
    }
}
