//! Checks that nothing was lost: compares the clients' ledger with the log, and the log with the primary's
//! own files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use tailwater_log::{LogDir, SegmentSummary};
use tailwater_sandbox::ledger::{BinlogCheck, Ledger, LedgerReport};
use tailwater_wire::Flavour;
use tailwater_wire::event::header::BINLOG_MAGIC;
use tailwater_wire::event::{EVENT_HEADER_BYTES, EventHeader};

/// Result of the check.
#[derive(Debug)]
pub struct Proof {
    /// The ledger against the log: transactions missing, incomplete, altered, duplicated.
    pub ledger: LedgerReport,
    /// Segments of the log, without those that came from another server after a failover.
    pub segments: u64,
    /// Segments whose every byte is that of the primary's own binlog file.
    pub segments_identical: u64,
    /// Size of these segments, in bytes.
    pub log_bytes: u64,
}

impl Proof {
    /// Whether every acknowledged transaction is in the log, whole, and every segment is the primary's file.
    pub fn is_ok(&self) -> bool {
        self.ledger.is_ok() && self.segments > 0 && self.segments == self.segments_identical
    }
}

/// Reads the whole log, and compares every transaction with the ledger and every byte with the primary's
/// files in `data`.
///
/// # Errors
/// If log or files cannot be read. Differences are not errors; they are in the [`Proof`].
pub fn prove(log: &Path, ledger: &Ledger, flavour: Flavour, data: &Path) -> anyhow::Result<Proof> {
    let mut check = BinlogCheck::new(ledger, flavour);
    let mut proof =
        Proof { ledger: LedgerReport::default(), segments: 0, segments_identical: 0, log_bytes: 0 };
    let segments = LogDir::open_read_only(log)?.segments()?;
    let first_epoch = segments.first().map(|segment| segment.epoch);
    for segment in segments {
        check.file(&segment.path)?;
        if Some(segment.epoch) != first_epoch {
            continue;
        }
        proof.segments += 1;
        proof.log_bytes += segment.bytes;
        proof.segments_identical += u64::from(compare_with_source(&segment, data)?.is_none());
    }
    proof.ledger = check.finish();
    Ok(proof)
}

/// The offset of the first byte in which a segment differs from the source's own file in the folder `data`;
/// `None` if all are the same.
///
/// One bit may differ: the source marks its newest file as in use, on its disk but not in its stream.
///
/// # Errors
/// If either cannot be read, or the segment starts in the middle of a file.
pub fn compare_with_source(segment: &SegmentSummary, data: &Path) -> anyhow::Result<Option<u64>> {
    ensure!(segment.source_offset == 4, "{} starts in the middle of a file", segment.path.display());
    let original_path = data.join(&segment.source_file);
    let open = |path: &Path| File::open(path).with_context(|| format!("open {}", path.display()));
    let (mut ours, mut original) = (open(&segment.path)?, open(&original_path)?);
    let mut buffers = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut offset = 0;
    while offset < segment.bytes {
        let count = (segment.bytes - offset).min(1 << 20) as usize;
        ours.read_exact(&mut buffers.0[..count])?;
        if let Err(error) = original.read_exact(&mut buffers.1[..count]) {
            bail!("{} is shorter than the log's copy of it: {error}", original_path.display());
        }
        if offset == 0 {
            clear_in_use(&mut buffers.0[..count]);
            clear_in_use(&mut buffers.1[..count]);
        }
        if let Some(index) = (0..count).find(|&index| buffers.0[index] != buffers.1[index]) {
            return Ok(Some(offset + index as u64));
        }
        offset += count as u64;
    }
    Ok(None)
}

/// Clears the flag in the format description event, which follows the magic number of the file.
fn clear_in_use(head: &mut [u8]) {
    let flags = BINLOG_MAGIC.len() + EVENT_HEADER_BYTES - 2;
    if let Some(byte) = head.get_mut(flags) {
        *byte &= !(EventHeader::FLAG_BINLOG_IN_USE as u8);
    }
}
