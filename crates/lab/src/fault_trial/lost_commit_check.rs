//! Checks that no commit was lost: compares the clients' ledger with the log, and the log with the primary's
//! own binlog files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use tailwater_log::{LogDir, SegmentSummary};
use tailwater_sandbox::ledger::{BinlogCheck, Ledger, LedgerReport};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::event_header::BINLOG_MAGIC;
use tailwater_wire::binlog_event::{EVENT_HEADER_BYTES, EventHeader};

/// The result of the check.
#[derive(Debug)]
pub struct Proof {
    /// The result of comparing the ledger with the log: transactions that are missing, incomplete, altered or
    /// duplicated.
    pub ledger: LedgerReport,
    /// Number of segments of the log, without those that came from another server after a failover.
    pub segments: u64,
    /// Number of segments that equal the primary's own binlog file in every byte.
    pub segments_identical: u64,
    /// Size of the segments, in bytes.
    pub log_bytes: u64,
}

impl Proof {
    /// Whether every acknowledged transaction is in the log with all its changes, and every segment equals
    /// the primary's binlog file.
    pub fn is_ok(&self) -> bool {
        self.ledger.is_ok() && self.segments > 0 && self.segments == self.segments_identical
    }
}

/// Reads the whole log. Compares every transaction with the ledger, and every byte with the primary's binlog
/// files in `data`.
///
/// # Errors
/// If the log or the files cannot be read. Differences are not errors; they are in the [`Proof`].
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

/// Compares a segment with the source's own binlog file in the folder `data`. Returns the offset of the first
/// byte that differs; `None` if all are the same.
///
/// One bit may differ: the source sets the flag "in use" in its newest file on the disk, but not in the
/// stream that it sends.
///
/// # Errors
/// If the segment or the file cannot be read, or the segment starts in the middle of a file.
pub fn compare_with_source(segment: &SegmentSummary, data: &Path) -> anyhow::Result<Option<u64>> {
    ensure!(
        segment.source_offset == 4,
        "the segment {} starts in the middle of a binlog file",
        segment.path.display()
    );
    let original_path = data.join(&segment.source_file);
    let open = |path: &Path| File::open(path).with_context(|| format!("cannot open {}", path.display()));
    let (mut ours, mut original) = (open(&segment.path)?, open(&original_path)?);
    let mut buffers = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut offset = 0;
    while offset < segment.bytes {
        let count = (segment.bytes - offset).min(1 << 20) as usize;
        ours.read_exact(&mut buffers.0[..count])?;
        if let Err(error) = original.read_exact(&mut buffers.1[..count]) {
            bail!("{} is shorter than its copy in the log: {error}", original_path.display());
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

/// Clears the "in use" flag in the format description event, which follows the magic number at the start of
/// the file.
fn clear_in_use(head: &mut [u8]) {
    let flags = BINLOG_MAGIC.len() + EVENT_HEADER_BYTES - 2;
    if let Some(byte) = head.get_mut(flags) {
        *byte &= !(EventHeader::FLAG_BINLOG_IN_USE as u8);
    }
}
