//! Builds the page of binlog statistics from a report.

use tailwater_binlog_stats::chart_scale::Scale;
use tailwater_binlog_stats::display_labels::{
    all_table_bytes, commit_time, compression, table_name, tables_of,
};
use tailwater_binlog_stats::number_format::{bytes, count, duration, grouped, rows, share};
use tailwater_binlog_stats::{
    BinlogReport, Bucket, FindingSeverity, LocalTime, SizeClass, StatsFinding, StatsResult, TableShare,
    TimelineColumns, TransactionSummary,
};

use crate::stats_page_template::{
    Band, Bar, ColumnHeader, FindingView, RateChart, StatsPage, StatsTable, Tick, Tile,
};

/// The maximum number of columns of the chart.
const COLUMNS_MAX: usize = 240;

/// The page with the statistics of one log, as HTML.
pub fn stats_page(result: &StatsResult) -> String {
    let report = &result.report;
    let finding = |finding: &StatsFinding| FindingView {
        alarm: finding.weight == FindingSeverity::Alarm,
        text: finding.text.clone(),
    };
    crate::stats_page_template::render(&StatsPage {
        title: result.title.clone(),
        subtitle: subtitle(report),
        findings: result.findings.iter().map(finding).collect(),
        tiles: tiles(report),
        rate: rate(report),
        sizes: sizes(report),
        tables: tables(report),
        listings: listings(report),
    })
}

fn subtitle(report: &BinlogReport) -> Vec<String> {
    let span = &report.span;
    let mut lines = vec![format!(
        "{}:{} to {}:{}, {} {}",
        span.first_file,
        span.first_offset,
        span.last_file,
        span.end_offset,
        report.flavour,
        report.server_version
    )];
    if span.first_commit_us > 0 {
        let (first, last) = (LocalTime(span.first_commit_us), LocalTime(span.last_commit_us));
        lines.push(format!(
            "{} to {}, local time ({}): {}",
            first.date_and_time(),
            last.date_and_time(),
            last.offset(),
            duration((last.0 - first.0) as f64 / 1e6)
        ));
    }
    lines
}

fn tiles(report: &BinlogReport) -> Vec<Tile> {
    let seconds = (report.span.last_commit_us - report.span.first_commit_us) as f64 / 1e6;
    let rate = |number: u64| if seconds >= 1.0 { number as f64 / seconds } else { 0.0 };
    let tile = |label: &str, value: String, note: String| Tile { label: label.to_owned(), value, note };
    let mut tiles = vec![
        tile(
            "Transactions",
            count(report.transactions),
            format!("{:.1} per second", rate(report.transactions)),
        ),
        tile("Bytes", bytes(report.bytes), format!("{} per second", bytes(rate(report.bytes) as u64))),
        tile("Rows", count(report.rows.total()), rows(&report.rows)),
        tile(
            "Longest without a commit",
            report.gaps.first().map_or_else(|| "-".to_owned(), |gap| duration(gap.seconds)),
            report
                .gaps
                .first()
                .map_or_else(String::new, |gap| format!("from {}", commit_time(gap.start_us, report))),
        ),
        tile(
            "Biggest transaction",
            report.biggest.first().map_or_else(|| "-".to_owned(), |one| bytes(one.bytes)),
            report.biggest.first().map_or_else(String::new, |one| rows(&one.rows)),
        ),
    ];
    tiles.retain(|tile| tile.value != "-");
    if let Some((packed, note)) = compression(report) {
        tiles.push(tile("Compressed", packed, note));
    }
    tiles
}

fn rate(report: &BinlogReport) -> Option<RateChart> {
    let columns = report.timeline.columns(COLUMNS_MAX).filter(|columns| columns.columns.len() > 1)?;
    let seconds = columns.seconds as f64;
    let of = |pick: fn(&Bucket) -> u64| -> Vec<f64> {
        columns.columns.iter().map(|column| pick(column) as f64 / seconds).collect()
    };
    let (byte_rates, row_rates) = (of(|column| column.bytes), of(|column| column.rows));
    let byte_scale = Scale::of(&byte_rates, 1024.0);
    let row_scale = Scale::of(&row_rates, 10.0);
    let tip = |(index, column): (usize, &Bucket)| {
        format!(
            "{}: {}/s, {} rows/s, {} transactions",
            commit_time(column.start_us, report),
            bytes(byte_rates[index] as u64),
            count(row_rates[index] as u64),
            count(column.transactions)
        )
    };
    let span_us = columns.columns.len() as f64 * seconds * 1e6;
    let at = |us: u64| us.saturating_sub(columns.start_us) as f64 / span_us;
    // Leave out shorter gaps: in the chart they would be narrower than a column.
    let wide = report.gaps.iter().filter(|gap| gap.seconds >= seconds);
    let gaps = wide.map(|gap| Band {
        from: at(gap.start_us),
        to: at(gap.end_us),
        label: format!(
            "nothing was committed for {} from {} on",
            duration(gap.seconds),
            commit_time(gap.start_us, report)
        ),
    });
    let gaps: Vec<Band> = gaps.collect();
    let hatched = if gaps.is_empty() { "" } else { " Hatched: nothing was committed." };
    Some(RateChart {
        note: format!("Each column is {}.{hatched}", duration(seconds)),
        bytes_label: format!("Bytes per second{}", byte_scale.note()),
        bytes: byte_rates.iter().map(|rate| byte_scale.part(*rate)).collect(),
        bytes_ticks: ticks(&byte_scale, |rate| format!("{}/s", bytes(rate as u64))),
        rows_label: format!("Rows per second{}", row_scale.note()),
        rows: row_rates.iter().map(|rate| row_scale.part(*rate)).collect(),
        rows_ticks: ticks(&row_scale, |rate| format!("{}/s", count(rate as u64))),
        tips: columns.columns.iter().enumerate().map(tip).collect(),
        ticks: moments(&columns, report),
        gaps,
    })
}

/// The labels of the time axis: five times at equal distances.
fn moments(columns: &TimelineColumns, report: &BinlogReport) -> Vec<Tick> {
    let span_us = columns.columns.len() as u64 * columns.seconds * 1_000_000;
    let tick = |quarter: u64| Tick {
        at: quarter as f64 / 4.0,
        label: commit_time(columns.start_us + span_us * quarter / 4, report),
    };
    (0..=4).map(tick).collect()
}

fn ticks(scale: &Scale, label: impl Fn(f64) -> String) -> Vec<Tick> {
    scale.marks().into_iter().map(|(at, rate)| Tick { at, label: label(rate) }).collect()
}

fn sizes(report: &BinlogReport) -> Vec<Bar> {
    let most = report.sizes.iter().map(|size| size.transactions).max().unwrap_or(1);
    let bar = |size: &SizeClass| Bar {
        label: format!("from {}", bytes(size.bytes_from)),
        part: size.transactions as f64 / most as f64,
        value: format!("{} ({})", count(size.transactions), bytes(size.bytes)),
    };
    report.sizes.iter().map(bar).collect()
}

fn tables(report: &BinlogReport) -> Vec<Bar> {
    let most = report.tables.by_bytes.first().map_or(1, |table| table.bytes.max(1));
    let all = all_table_bytes(report);
    let bar = |table: &TableShare| Bar {
        label: table_name(&table.schema, &table.table),
        part: table.bytes as f64 / most as f64,
        value: format!("{} ({})", bytes(table.bytes), share(table.bytes, all)),
    };
    report.tables.by_bytes.iter().take(12).map(bar).collect()
}

fn heads<const N: usize>(labels: [(&str, bool); N]) -> Vec<ColumnHeader> {
    labels
        .iter()
        .map(|(label, figures)| ColumnHeader { label: (*label).to_owned(), figures: *figures })
        .collect()
}

fn listings(report: &BinlogReport) -> Vec<StatsTable> {
    let mut listings = vec![gap_listing(report)];
    let took = match report.span.exact_clock {
        true => "Time from the first statement to the commit.",
        false => {
            "Time from the first statement to the commit, at least: commit times in this binlog have no fractions of a second."
        }
    };
    listings.push(transaction_listing("Biggest transactions", "", &report.biggest, report));
    listings.push(transaction_listing("Most rows", "", &report.most_rows, report));
    listings.push(transaction_listing("Longest transactions", took, &report.longest, report));
    listings.push(table_listing(report));
    let ddl = report.ddl.iter().map(|ddl| {
        vec![
            commit_time(ddl.commit_us, report),
            ddl.schema.clone(),
            ddl.statement.clone(),
            format!("{}:{}", ddl.file, ddl.offset),
        ]
    });
    listings.push(StatsTable {
        title: format!("Latest of {} DDL statements", grouped(report.ddl_statements)),
        note: String::new(),
        heads: heads([("Committed", false), ("Database", false), ("Statement", false), ("At", false)]),
        rows: ddl.collect(),
    });
    let types = report
        .event_types
        .iter()
        .map(|counted| vec![counted.event_type.clone(), grouped(counted.events), bytes(counted.bytes)]);
    listings.push(StatsTable {
        title: "Events by type".to_owned(),
        note: String::new(),
        heads: heads([("Type", false), ("Events", true), ("Bytes", true)]),
        rows: types.collect(),
    });
    let servers = report
        .servers
        .iter()
        .map(|server| vec![server.server_id.to_string(), grouped(server.transactions), bytes(server.bytes)]);
    listings.push(StatsTable {
        title: "Transactions by the server that first executed them".to_owned(),
        note: String::new(),
        heads: heads([("server_id", false), ("Transactions", true), ("Bytes", true)]),
        rows: servers.collect(),
    });
    listings.retain(|listing| !listing.rows.is_empty());
    listings
}

fn gap_listing(report: &BinlogReport) -> StatsTable {
    let rows = report.gaps.iter().map(|gap| {
        vec![
            duration(gap.seconds),
            commit_time(gap.start_us, report),
            commit_time(gap.end_us, report),
            bytes(gap.during.bytes),
            gap.during.gtid.clone().unwrap_or_else(|| format!("{}:{}", gap.during.file, gap.during.offset)),
            if gap.restart { "the server was started".to_owned() } else { tables_of(&gap.during) },
        ]
    });
    StatsTable {
        title: "Longest without a commit".to_owned(),
        note: "Written then: the biggest transaction that was being written to the binlog when the period began."
            .to_owned(),
        heads: heads([
            ("Lasted", true),
            ("From", false),
            ("To", false),
            ("Written then", true),
            ("By", false),
            ("Tables", false),
        ]),
        rows: rows.collect(),
    }
}

fn transaction_listing(
    title: &str,
    note: &str,
    transactions: &[TransactionSummary],
    report: &BinlogReport,
) -> StatsTable {
    let rows = transactions.iter().map(|one| {
        vec![
            bytes(one.bytes),
            rows(&one.rows),
            duration(one.seconds),
            commit_time(one.commit_us, report),
            one.gtid.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{}:{}", one.file, one.offset),
            tables_of(one),
        ]
    });
    StatsTable {
        title: title.to_owned(),
        note: note.to_owned(),
        heads: heads([
            ("Bytes", true),
            ("Rows", false),
            ("Took", true),
            ("Committed", false),
            ("GTID", false),
            ("At", false),
            ("Tables", false),
        ]),
        rows: rows.collect(),
    }
}

fn table_listing(report: &BinlogReport) -> StatsTable {
    let all = all_table_bytes(report);
    let rows = report.tables.by_rows.iter().map(|table| {
        let key = match table.primary_key {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not logged",
        };
        vec![
            table_name(&table.schema, &table.table),
            grouped(table.rows.inserted),
            grouped(table.rows.updated),
            grouped(table.rows.deleted),
            bytes(table.bytes),
            share(table.bytes, all),
            grouped(table.transactions),
            key.to_owned(),
        ]
    });
    StatsTable {
        title: format!("Most rows, of {} tables", grouped(report.tables.count)),
        note: "Bytes are those of row events and table maps, decompressed.".to_owned(),
        heads: heads([
            ("Table", false),
            ("Inserted", true),
            ("Updated", true),
            ("Deleted", true),
            ("Bytes", true),
            ("Share", true),
            ("Transactions", true),
            ("Primary key", false),
        ]),
        rows: rows.collect(),
    }
}
