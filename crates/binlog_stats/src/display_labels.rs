//! Names, times and shares in the form in which the text report and the page show them.

use tailwater_wire::printable;

use crate::number_format::{bytes, count, share};
use crate::{BinlogReport, LocalTime, TransactionSummary};

/// A time. The date is left out if all commits are of the same day.
pub fn commit_time(us: u64, report: &BinlogReport) -> String {
    let (first, last) = (LocalTime(report.span.first_commit_us), LocalTime(report.span.last_commit_us));
    if first.same_day(last) { LocalTime(us).time() } else { LocalTime(us).date_and_time() }
}

/// The names of the first tables that a transaction changed, and how many more there are.
pub fn tables_of(transaction: &TransactionSummary) -> String {
    let mut names: Vec<String> =
        transaction.tables.iter().take(3).map(|table| table_name(&table.schema, &table.table)).collect();
    let left = transaction.tables_count.saturating_sub(names.len() as u64);
    if left > 0 {
        names.push(format!("and {left} more"));
    }
    names.join(", ")
}

/// The bytes of the events of all tables together.
pub fn all_table_bytes(report: &BinlogReport) -> u64 {
    report.tables.by_bytes.iter().map(|table| table.bytes).sum::<u64>() + report.tables.others_bytes
}

/// The compressed size and the compression ratio as text; `None` if nothing was compressed.
pub fn compression(report: &BinlogReport) -> Option<(String, String)> {
    let it = &report.compression;
    let (packed, unpacked) =
        (it.payload_bytes + it.event_bytes, it.payload_unpacked_bytes + it.event_unpacked_bytes);
    let what = match (it.payloads, it.events) {
        (0, 0) => return None,
        (payloads, 0) => format!("{} transactions", count(payloads)),
        (_, events) => format!("{} events", count(events)),
    };
    Some((bytes(packed), format!("{what}, {} of {} decompressed", share(packed, unpacked), bytes(unpacked))))
}

/// The name of a table for output, with control characters escaped.
pub fn table_name(schema: &str, table: &str) -> String {
    printable(&format!("{schema}.{table}")).into_owned()
}
