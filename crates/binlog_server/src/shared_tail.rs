//! The newest transactions of the log as packets, which are built once for all streams that follow the log.
//!
//! Without it, each of fifty streams would read, parse and copy every event of every commit, and would take
//! the processor time that the source's commits need. So one [`TailEncoder`] reads the log for all of them
//! and fills the [`SharedTail`], a bounded queue of [`PacketBlock`]s. A stream that has reached the tail
//! takes whole blocks. A stream that is too slow for the tail, or that gets other events than the block has,
//! reads the log by itself, and takes blocks again when it has caught up.
//!
//! The encoder is a reader of durable entries like any other. So the tail has only durable bytes of whole
//! transactions, which the log never changes.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tailwater_log::{LogEntry, LogError, LogHandle, LogPosition, LogReader, ReaderPlace};
use tailwater_session::server::SharedPackets;
use tailwater_wire::binlog_event::{EventHeader, EventType};
use tailwater_wire::gtid::{Gtid, MysqlGtidSet};
use tracing::debug;

use super::stream_filter::TransactionsSummary;

/// A block is complete when its transactions have this many bytes. Bigger transactions are in no block.
const BLOCK_BYTES: u64 = 128 << 10;

/// With fewer streams that follow the log, each stream reads the log by itself.
const STREAMS_MIN: usize = 2;

/// Consecutive transactions of one segment, as packets.
#[derive(Debug)]
pub(crate) struct PacketBlock {
    transactions: Vec<BlockTransaction>,
    packets: SharedPackets,
    summary: TransactionsSummary,
    end: ReaderPlace,
}

#[derive(Debug, Clone, Copy)]
struct BlockTransaction {
    position: LogPosition,
    /// The number of its first packet in the block.
    first_packet: usize,
}

impl PacketBlock {
    /// The transactions as packets.
    pub(crate) fn packets(&self) -> &SharedPackets {
        &self.packets
    }

    /// What a stream needs to know about the transactions.
    pub(crate) fn summary(&self) -> &TransactionsSummary {
        &self.summary
    }

    /// The place in the log after the last transaction.
    pub(crate) fn end(&self) -> ReaderPlace {
        self.end
    }

    fn memory_bytes(&self) -> usize {
        self.packets.memory_bytes() + self.transactions.capacity() * size_of::<BlockTransaction>()
    }
}

/// What a stream at some position does next.
#[derive(Debug)]
pub(crate) enum TailStep {
    /// It sends this block, from the packet with this number on.
    Take(Arc<PacketBlock>, usize),
    /// It has sent everything that the tail has, and waits until it is woken.
    Wait,
    /// It reads the log by itself.
    ReadLog,
}

/// The blocks that all streams share.
#[derive(Debug)]
pub(crate) struct SharedTail {
    bytes_max: usize,
    blocks: Mutex<TailBlocks>,
}

#[derive(Debug, Default)]
struct TailBlocks {
    /// The blocks in the order of the log, perhaps with gaps between them.
    blocks: VecDeque<Arc<PacketBlock>>,
    bytes: usize,
    /// How far the encoder has read. `None` while no encoder fills the tail.
    end: Option<LogPosition>,
}

impl SharedTail {
    /// A tail whose blocks take at most about `bytes_max` bytes of memory. Blocks that a stream is sending
    /// come on top.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, blocks: Mutex::default() }
    }

    /// Before this position, [`Self::step`] always returns [`TailStep::ReadLog`]. It only moves forward.
    /// `None` while no encoder fills the tail.
    pub(crate) fn begin(&self) -> Option<LogPosition> {
        let tail = self.blocks.lock();
        let first = tail.blocks.front().and_then(|block| block.transactions.first());
        first.map(|transaction| transaction.position).or(tail.end)
    }

    /// What a stream does next whose next entry begins at `position`.
    pub(crate) fn step(&self, position: LogPosition) -> TailStep {
        let tail = self.blocks.lock();
        let Some(end) = tail.end else { return TailStep::ReadLog };
        if position == end {
            return TailStep::Wait;
        }
        let at = tail.blocks.partition_point(|block| block.end.position <= position);
        let Some(block) = tail.blocks.get(at) else { return TailStep::ReadLog };
        let found = block.transactions.binary_search_by_key(&position, |transaction| transaction.position);
        match found.ok().and_then(|found| block.transactions.get(found)) {
            Some(transaction) => TailStep::Take(Arc::clone(block), transaction.first_packet),
            None => TailStep::ReadLog,
        }
    }

    /// The memory that the blocks take, in bytes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        self.blocks.lock().bytes
    }

    /// Adds a block, if there is one, and removes the oldest blocks beyond the limit. From now on, the tail
    /// has everything that a stream at `end` needs next.
    fn publish(&self, block: Option<PacketBlock>, end: LogPosition) {
        let mut tail = self.blocks.lock();
        tail.end = Some(end);
        let Some(block) = block else { return };
        tail.bytes += block.memory_bytes();
        tail.blocks.push_back(Arc::new(block));
        while tail.bytes > self.bytes_max
            && let Some(oldest) = tail.blocks.pop_front()
        {
            tail.bytes -= oldest.memory_bytes();
        }
    }

    /// Removes all blocks, so that each stream reads the log by itself.
    fn clear(&self) {
        *self.blocks.lock() = TailBlocks::default();
    }
}

/// A block that is being built.
#[derive(Debug)]
struct BlockBuilder {
    transactions: Vec<BlockTransaction>,
    packets: SharedPackets,
    summary: TransactionsSummary,
    bytes: u64,
    end: Option<ReaderPlace>,
}

impl BlockBuilder {
    fn new() -> Self {
        Self {
            transactions: Vec::new(),
            packets: SharedPackets::default(),
            summary: TransactionsSummary {
                mysql_gtids: Some(MysqlGtidSet::new()),
                has_annotations: false,
                has_marked_events: false,
                source_end: 0,
            },
            bytes: 0,
            end: None,
        }
    }

    /// Adds the transaction that the reader has just returned. Returns false if a block cannot have it.
    fn add(&mut self, entry: &LogEntry, reader: &mut LogReader) -> Result<bool, LogError> {
        if !entry.is_transaction() || entry.length > BLOCK_BYTES {
            return Ok(false);
        }
        let bytes = reader.read_entry(usize::MAX)?;
        let first_packet = self.packets.count();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let event = EventHeader::parse(rest).ok().and_then(|header| {
                let length = usize::try_from(header.event_length).ok().filter(|length| *length > 0)?;
                Some((header, rest.split_at_checked(length)?))
            });
            // The streams that read the log by themselves report an event that cannot be parsed.
            let Some((header, (event, after))) = event else {
                self.packets.truncate(first_packet);
                return Ok(false);
            };
            if !self.packets.push_event(event) {
                self.packets.truncate(first_packet);
                return Ok(false);
            }
            self.summary.has_annotations |= header.event_type == EventType::MARIADB_ANNOTATE_ROWS;
            self.summary.has_marked_events |= header.has(EventHeader::FLAG_SKIP_REPLICATION);
            rest = after;
        }
        self.summary.mysql_gtids = match (self.summary.mysql_gtids.take(), &entry.gtid) {
            (Some(mut gtids), Some(Gtid::MySql(gtid))) => gtids.insert(gtid).is_ok().then_some(gtids),
            _ => None,
        };
        self.summary.source_end = entry.source_end;
        self.transactions.push(BlockTransaction { position: entry.position, first_packet });
        self.bytes += entry.length;
        self.end = reader.place();
        Ok(true)
    }

    fn finish(mut self) -> Option<PacketBlock> {
        let end = self.end?;
        self.packets.shrink_to_fit();
        self.transactions.shrink_to_fit();
        Some(PacketBlock {
            transactions: self.transactions,
            packets: self.packets,
            summary: self.summary,
            end,
        })
    }
}

/// Reads the log and fills the shared tail.
#[derive(Debug)]
pub(crate) struct TailEncoder {
    log: LogHandle,
    tail: Arc<SharedTail>,
    reader: Option<LogReader>,
}

impl TailEncoder {
    pub(crate) fn new(log: LogHandle, tail: Arc<SharedTail>) -> Self {
        Self { log, tail, reader: None }
    }

    /// Brings the tail to this durable position of the log at least, for this number of streams. Returns
    /// whether the tail has changed. What becomes durable meanwhile is left to the next call, because the
    /// streams wait for the end of this one, and a busy source always has more.
    pub(crate) async fn follow(&mut self, streams: usize, durable: LogPosition) -> bool {
        if streams < STREAMS_MIN {
            let was_filled = self.reader.is_some();
            self.stop();
            return was_filled;
        }
        let mut changed = false;
        loop {
            match self.encode_block() {
                Ok(true) => {
                    changed = true;
                    if self.reader.as_ref().is_none_or(|reader| reader.position() >= durable) {
                        return true;
                    }
                }
                Ok(false) => return changed,
                Err(error) => {
                    // The streams read the log by themselves, and report the error if they meet it too.
                    debug!(code = error.code(), "the shared end of the log cannot be read: {error}");
                    self.stop();
                    return true;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether the streams share the tail.
    pub(crate) fn is_running(&self) -> bool {
        self.reader.is_some()
    }

    /// Empties the tail. From now on each stream reads the log by itself.
    pub(crate) fn stop(&mut self) {
        self.reader = None;
        self.tail.clear();
    }

    /// Reads up to the end of the next block. Returns false if there is nothing to read.
    fn encode_block(&mut self) -> Result<bool, LogError> {
        let durable = self.log.durable().position;
        if self.reader.as_ref().is_some_and(|reader| self.is_too_far_behind(reader.position(), durable)) {
            self.reader = None;
        }
        if self.reader.is_none() {
            self.reader = self.log.reader_at_durable_end()?;
            let Some(reader) = &self.reader else {
                self.tail.clear();
                return Ok(false);
            };
            self.tail.publish(None, reader.position());
            return Ok(true);
        }
        let Some(reader) = &mut self.reader else { return Ok(false) };
        let before = reader.position();
        let mut block = BlockBuilder::new();
        while block.bytes < BLOCK_BYTES {
            match reader.try_next()? {
                Some(entry) if block.add(&entry, reader)? => {}
                // A block ends before an entry that is in no block.
                Some(_) | None => break,
            }
        }
        let end = reader.position();
        self.tail.publish(block.finish(), end);
        Ok(end != before)
    }

    /// Whether the log has grown by more than the tail can hold.
    fn is_too_far_behind(&self, position: LogPosition, durable: LogPosition) -> bool {
        match durable.segment.saturating_sub(position.segment) {
            0 => durable.offset.saturating_sub(position.offset) > self.tail.bytes_max as u64,
            segments => segments > 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tailwater_log::LogWriter;
    use tailwater_wire::Flavour;

    use super::*;
    use crate::support::binlog_generator::Source;
    use crate::support::synthetic_capture::{begin_file, open, rotate, transact};

    struct Fixture {
        writer: LogWriter,
        source: Source,
        tail: Arc<SharedTail>,
        encoder: TailEncoder,
    }

    impl Fixture {
        fn new(directory: &Path, bytes_max: usize) -> Self {
            let mut source = Source::new(Flavour::MySql);
            let mut writer = open(directory);
            begin_file(&mut writer, &mut source).unwrap();
            writer.sync().unwrap();
            let tail = Arc::new(SharedTail::new(bytes_max));
            let encoder = TailEncoder::new(writer.handle(), Arc::clone(&tail));
            Self { writer, source, tail, encoder }
        }

        fn durable(&self) -> LogPosition {
            self.writer.handle().durable().position
        }

        async fn follow(&mut self, streams: usize) -> bool {
            let durable = self.durable();
            self.encoder.follow(streams, durable).await
        }

        /// Writes transactions of these sizes. Returns where each of them begins, and the end.
        fn write(&mut self, sizes: &[usize]) -> Vec<LogPosition> {
            let mut positions = Vec::new();
            for size in sizes {
                positions.push(self.durable());
                transact(&mut self.writer, &mut self.source, &[*size]).unwrap();
                self.writer.sync().unwrap();
            }
            positions.push(self.durable());
            positions
        }

        /// The number of packets that a stream at `position` takes.
        fn taken(&self, position: LogPosition) -> Option<usize> {
            match self.tail.step(position) {
                TailStep::Take(block, first_packet) => Some(block.packets().count() - first_packet),
                TailStep::Wait | TailStep::ReadLog => None,
            }
        }

        fn waits(&self, position: LogPosition) -> bool {
            matches!(self.tail.step(position), TailStep::Wait)
        }

        fn reads_log(&self, position: LogPosition) -> bool {
            matches!(self.tail.step(position), TailStep::ReadLog)
        }
    }

    #[tokio::test]
    async fn streams_at_the_tail_take_the_rest_of_a_block_and_others_read_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Fixture::new(directory.path(), 1 << 20);
        let start = log.durable();
        assert!(log.reads_log(start), "no encoder has read the log yet");
        assert!(!log.follow(1).await && log.reads_log(start), "one stream reads the log by itself");
        assert!(log.follow(2).await && log.waits(start));

        // Each transaction has four events. A transaction that is not durable is in no block.
        let positions = log.write(&[10, 20, 30]);
        transact(&mut log.writer, &mut log.source, &[40]).unwrap();
        log.writer.flush().unwrap();
        assert!(log.follow(2).await && !log.follow(2).await);
        let taken: Vec<_> = positions.iter().map(|position| log.taken(*position)).collect();
        assert_eq!(taken, [Some(12), Some(8), Some(4), None]);
        assert!(log.waits(positions[3]));
        let inside = LogPosition { offset: positions[1].offset + 1, ..positions[1] };
        assert!(log.reads_log(inside), "a stream cannot start inside a transaction");
        log.writer.rollback_partial().unwrap();
        log.writer.sync().unwrap();

        // A big transaction, and the events around the start of a file, are in no block.
        log.follow(2).await;
        let big = log.write(&[BLOCK_BYTES as usize + 1, 50]);
        rotate(&mut log.writer, &mut log.source).unwrap();
        log.writer.sync().unwrap();
        let next = log.write(&[60]);
        log.follow(2).await;
        assert!(log.reads_log(big[0]) && log.taken(big[1]) == Some(4) && log.reads_log(big[2]));
        assert!(log.taken(next[0]) == Some(4) && log.waits(next[1]));

        log.encoder.stop();
        assert!(log.reads_log(next[0]) && log.reads_log(next[1]));
        assert_eq!(log.tail.memory_bytes(), 0);
    }

    /// A source that commits all the time must not delay the streams that wait for the tail.
    #[tokio::test]
    async fn the_tail_is_brought_to_the_given_position_and_not_to_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Fixture::new(directory.path(), 4 << 20);
        log.follow(2).await;
        let positions = log.write(&[10_000; 40]);
        assert!(log.encoder.follow(2, positions[1]).await);
        assert!(log.taken(positions[0]).is_some(), "the tail does not have the first transaction");
        assert!(log.reads_log(positions[39]), "the tail has more than one block");
        assert!(log.follow(2).await && log.waits(positions[40]));
    }

    #[tokio::test]
    async fn the_memory_of_the_tail_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let bytes_max = 300 << 10;
        let mut log = Fixture::new(directory.path(), bytes_max);
        log.follow(50).await;
        let mut first = None;
        for _ in 0..60 {
            let positions = log.write(&[2_000; 10]);
            log.follow(50).await;
            assert!(log.tail.memory_bytes() <= bytes_max, "{} bytes", log.tail.memory_bytes());
            assert_eq!(log.taken(positions[0]), Some(40), "the newest block was removed");
            first.get_or_insert(positions[0]);
        }
        assert!(log.reads_log(first.unwrap()), "the oldest block is still there");
        // The encoder leaves out what the tail cannot hold.
        let left_out = log.write(&vec![10_000; 40]);
        assert!(log.follow(50).await);
        assert!(log.reads_log(left_out[0]) && log.waits(left_out[40]));
    }
}
