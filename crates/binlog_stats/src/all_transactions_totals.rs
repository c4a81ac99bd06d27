//! Totals over all transactions.

use std::collections::{BTreeMap, VecDeque};

use tailwater_wire::binlog_event::{EventHeader, EventType};
use tailwater_wire::event_printer::EventLocation;

use crate::commit_timeline::{Buckets, CommitClock};
use crate::single_transaction_stats::TransactionStats;
use crate::stats_report::{
    BinlogReport, DdlStatement, EventTypeCount, Gap, ServerShare, SizeClass, TransactionKinds,
    TransactionSummary,
};
use crate::table_stats::TableRegistry;
use crate::top_n_list::TopList;

/// The maximum number of servers that are counted separately. The transactions of further servers are added
/// up.
const SERVERS_MAX: usize = 64;

/// Totals and lists over all selected transactions.
#[derive(Debug)]
pub(crate) struct StatsTotals {
    /// The totals.
    pub(crate) sums: BinlogReport,
    clock: CommitClock,
    buckets: Buckets,
    /// The biggest transaction that was being written at the last commit. If a gap follows, the gap is
    /// reported with this transaction.
    during: Option<TransactionStats>,
    /// Whether the server restarted since the last commit.
    restarted: bool,
    biggest: TopList<TransactionSummary>,
    most_rows: TopList<TransactionSummary>,
    longest: TopList<TransactionSummary>,
    gaps: TopList<Gap>,
    ddl: VecDeque<DdlStatement>,
    ddl_max: usize,
    /// The size classes, by the binary logarithm of the size.
    sizes: BTreeMap<u32, SizeClass>,
    servers: BTreeMap<u32, ServerShare>,
    event_types: BTreeMap<u8, (u64, u64)>,
}

impl StatsTotals {
    pub(crate) fn new(top: usize) -> Self {
        Self {
            sums: BinlogReport::default(),
            clock: CommitClock::default(),
            buckets: Buckets::default(),
            during: None,
            restarted: false,
            biggest: TopList::new(top),
            most_rows: TopList::new(top),
            longest: TopList::new(top),
            gaps: TopList::new(top),
            ddl: VecDeque::new(),
            ddl_max: top,
            sizes: BTreeMap::new(),
            servers: BTreeMap::new(),
            event_types: BTreeMap::new(),
        }
    }

    /// Extends the reported range of the binlog to this event, whether or not the event's transaction is
    /// selected.
    pub(crate) fn passed(&mut self, place: EventLocation<'_>, header: &EventHeader) {
        let span = &mut self.sums.span;
        if span.files == 0 {
            span.first_file = place.file.to_owned();
            span.first_offset = place.offset;
        }
        if span.last_file != place.file {
            span.files += 1;
            span.last_file = place.file.to_owned();
        }
        span.end_offset = place.offset + u64::from(header.event_length);
    }

    /// Counts an event between two transactions.
    pub(crate) fn between(&mut self, header: &EventHeader) {
        let bytes = u64::from(header.event_length);
        self.sums.other_bytes += bytes;
        add_event_type(&mut self.event_types, header.event_type.0, (1, bytes));
    }

    /// Records that the server restarted.
    pub(crate) fn restarted(&mut self) {
        self.restarted = true;
    }

    /// Adds a transaction that has ended and is in the selected time. `counted` is false if the transaction
    /// changes none of the selected tables. It is then not counted, but it ends a gap.
    pub(crate) fn commit(
        &mut self,
        mut transaction: TransactionStats,
        counted: bool,
        tables: &mut TableRegistry,
    ) {
        let (commit_us, gap_us) = self.clock.commit(transaction.clock_us());
        transaction.commit_us = commit_us;
        // If commit times are in whole seconds, any transaction of a second may have been the last one in
        // that second. So commit times that differ by one second are not a gap.
        let window_us = if transaction.immediate_us != 0 { 0 } else { 1_000_000 };
        if let Some(during) = &self.during
            && gap_us > window_us
        {
            let start_us = commit_us - gap_us;
            self.gaps.offer(gap_us, || Gap {
                start_us,
                end_us: commit_us,
                seconds: gap_us as f64 / 1e6,
                during: during.summary(tables),
                next: transaction.summary(tables),
                restart: self.restarted,
            });
        }
        self.restarted = false;
        if counted {
            self.count(&mut transaction, tables);
        }
        let outdone = |during: &TransactionStats| {
            transaction.bytes >= during.bytes || commit_us - during.commit_us > window_us
        };
        if self.during.as_ref().is_none_or(outdone) {
            self.during = Some(transaction);
        }
    }

    fn count(&mut self, transaction: &mut TransactionStats, tables: &mut TableRegistry) {
        let sums = &mut self.sums;
        if sums.transactions == 0 {
            sums.span.first_commit_us = transaction.commit_us;
        }
        sums.span.last_commit_us = transaction.commit_us;
        sums.span.exact_clock |= transaction.immediate_us != 0;
        sums.transactions += 1;
        sums.bytes += transaction.bytes;
        sums.events += transaction.events;
        sums.rows.add(&transaction.rows);
        sums.row_events += transaction.row_events;
        sums.statements += transaction.statements;
        sums.ddl_statements += transaction.ddl_statements;
        sums.compression.add(&transaction.compression);
        count_kind(&mut sums.kinds, transaction);
        for (number, counts) in &transaction.tables {
            tables.add(*number, counts);
        }
        for (event_type, counts) in &transaction.event_types {
            add_event_type(&mut self.event_types, *event_type, *counts);
        }
        self.buckets.add(transaction.commit_us, transaction.bytes, transaction.rows.total());
        let class = transaction.bytes.checked_ilog2().unwrap_or(0);
        let size = self.sizes.entry(class).or_default();
        *size = SizeClass {
            bytes_from: 1 << class,
            transactions: size.transactions + 1,
            bytes: size.bytes + transaction.bytes,
        };
        self.count_server(transaction);
        self.biggest.offer(transaction.bytes, || transaction.summary(tables));
        self.most_rows.offer(transaction.rows.total(), || transaction.summary(tables));
        // The start of a statement is known only in whole seconds, so a duration below one second says
        // nothing.
        let lasted = transaction.duration_us();
        self.longest.offer(if lasted < 1_000_000 { 0 } else { lasted }, || transaction.summary(tables));
        if let Some(mut ddl) = transaction.ddl.take() {
            ddl.commit_us = transaction.commit_us;
            self.ddl.push_back(ddl);
            if self.ddl.len() > self.ddl_max {
                self.ddl.pop_front();
            }
        }
    }

    fn count_server(&mut self, transaction: &TransactionStats) {
        let server_id = transaction.server_id;
        if self.servers.len() >= SERVERS_MAX && !self.servers.contains_key(&server_id) {
            self.sums.other_servers_transactions += 1;
            return;
        }
        let server = self.servers.entry(server_id).or_default();
        *server = ServerShare {
            server_id,
            transactions: server.transactions + 1,
            bytes: server.bytes + transaction.bytes,
        };
    }

    pub(crate) fn report(&self, tables: &TableRegistry, top: usize) -> BinlogReport {
        let mut report = self.sums.clone();
        report.tables = tables.report(top);
        report.biggest = self.biggest.items().cloned().collect();
        report.most_rows = self.most_rows.items().cloned().collect();
        report.longest = self.longest.items().cloned().collect();
        report.gaps = self.gaps.items().cloned().collect();
        report.timeline = self.buckets.report();
        report.sizes = self.sizes.values().copied().collect();
        report.servers = self.servers.values().copied().collect();
        report.servers.sort_by_key(|server| std::cmp::Reverse(server.bytes));
        report.ddl = self.ddl.iter().rev().cloned().collect();
        let of_type = |(number, (events, bytes)): (&u8, &(u64, u64))| EventTypeCount {
            event_type: EventType(*number).to_string(),
            events: *events,
            bytes: *bytes,
        };
        report.event_types = self.event_types.iter().map(of_type).collect();
        report.event_types.sort_by_key(|counted| std::cmp::Reverse(counted.bytes));
        report
    }
}

fn add_event_type(types: &mut BTreeMap<u8, (u64, u64)>, event_type: u8, (events, bytes): (u64, u64)) {
    let counted = types.entry(event_type).or_default();
    *counted = (counted.0 + events, counted.1 + bytes);
}

fn count_kind(kinds: &mut TransactionKinds, transaction: &TransactionStats) {
    let (rows, statements, ddl) =
        (transaction.row_events > 0, transaction.statements > 0, transaction.ddl_statements > 0);
    let not_counted = transaction.rows_not_counted;
    kinds.with_rows += u64::from(rows || not_counted);
    kinds.with_statements += u64::from(statements);
    kinds.with_ddl += u64::from(ddl);
    kinds.empty += u64::from(!rows && !not_counted && !statements && !ddl && !transaction.xa_prepared);
    kinds.xa_prepared += u64::from(transaction.xa_prepared);
    kinds.non_transactional += u64::from(rows && !ddl && transaction.ended_by_statement);
    kinds.anonymous += u64::from(transaction.gtid.is_none());
    kinds.rows_not_counted += u64::from(not_counted);
}
