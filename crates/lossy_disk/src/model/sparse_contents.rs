//! The contents of a file: pages that hold a byte other than zero, shared between versions of the file.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of a page in bytes. Sectors of a [`crate::PowerCut`] are not larger.
pub(crate) const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The length of a file and its pages. Missing pages, and bytes after the length, are zero.
#[derive(Debug, Clone, Default)]
pub(crate) struct SparseContents {
    length: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// Splits `length` bytes at `offset` into parts that do not cross a boundary of `unit` bytes. Each part is
/// its unit's number, its offset, and its length.
pub(crate) fn parts(offset: u64, length: u64, unit: u64) -> impl Iterator<Item = (u64, u64, usize)> {
    let end = offset.saturating_add(length);
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let number = at / unit;
            let part = (number, at, (end.min((number + 1).saturating_mul(unit)) - at) as usize);
            at += part.2 as u64;
            part
        })
    })
}

impl SparseContents {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of stored bytes.
    pub(crate) fn stored_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// Returns up to `length` bytes at `offset`; fewer at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let length = (length as u64).min(self.length.saturating_sub(offset));
        let mut bytes = vec![0; length as usize];
        for (number, at, count) in parts(offset, length, PAGE_BYTES as u64) {
            if let Some(page) = self.pages.get(&number) {
                let (from, to) = ((at % PAGE_BYTES as u64) as usize, (at - offset) as usize);
                bytes[to..to + count].copy_from_slice(&page[from..from + count]);
            }
        }
        bytes
    }

    /// Writes `bytes` at `offset`. The file grows if necessary.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, at, count) in parts(offset, bytes.len() as u64, PAGE_BYTES as u64) {
            let from = (at - offset) as usize;
            self.write_in_page(number, (at % PAGE_BYTES as u64) as usize, &bytes[from..from + count]);
        }
        self.length = self.length.max(offset + bytes.len() as u64);
    }

    fn write_in_page(&mut self, number: u64, at: usize, bytes: &[u8]) {
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        match self.pages.get_mut(&number) {
            Some(_) if is_zero && bytes.len() == PAGE_BYTES => {
                self.pages.remove(&number);
            }
            Some(page) => Arc::make_mut(page)[at..at + bytes.len()].copy_from_slice(bytes),
            None if is_zero => {}
            None => {
                let mut page = [0; PAGE_BYTES];
                page[at..at + bytes.len()].copy_from_slice(bytes);
                self.pages.insert(number, Arc::new(page));
            }
        }
    }

    /// Replaces stored bytes of a range by zeros. The length does not change.
    pub(crate) fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        for number in self.stored_pages(offset, end) {
            let start = number * PAGE_BYTES as u64;
            let from = offset.saturating_sub(start).min(PAGE_BYTES as u64) as usize;
            let to = (end - start).min(PAGE_BYTES as u64) as usize;
            match (from, to) {
                (0, PAGE_BYTES) => {
                    self.pages.remove(&number);
                }
                _ => self.write_in_page(number, from, &[0; PAGE_BYTES][from..to]),
            }
        }
    }

    /// Returns the numbers of the stored pages that hold bytes of `offset..end`.
    pub(crate) fn stored_pages(&self, offset: u64, end: u64) -> Vec<u64> {
        let first = offset / PAGE_BYTES as u64;
        let after = end.div_ceil(PAGE_BYTES as u64);
        self.pages.range(first..after.max(first)).map(|(number, _)| *number).collect()
    }

    /// Cuts the file, or extends it by zeros.
    pub(crate) fn resize(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, u64::MAX - length);
        }
        self.length = length;
    }

    /// Makes the pages of a range equal to those of `other`, without a copy.
    pub(crate) fn share_pages(&mut self, other: &Self, offset: u64, length: u64) {
        for (number, _, _) in parts(offset, length, PAGE_BYTES as u64) {
            match other.pages.get(&number) {
                Some(page) => self.pages.insert(number, Arc::clone(page)),
                None => self.pages.remove(&number),
            };
        }
    }
}
