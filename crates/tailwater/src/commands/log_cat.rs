//! `tailwater log cat`: prints the events of logs and binlog files, all of them or those of selected
//! transactions.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use tailwater_daemon::jobs::job_text::counted;
use tailwater_log::{LogDir, LogEntry, LogPosition, LogReader};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventType, FormatDescription};
use tailwater_wire::event_printer::{
    EventLocation, EventPrinter, PrintError, SkippedEvent, TableFilter, TableScan, json_lines_output,
    mysqlbinlog_output, sql_output,
};
use tailwater_wire::gtid::{Gtid, MariadbGtid, MysqlGtidSet};
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};

use super::binlog_file_reader::{BinlogFile, NextEvent};
use super::log::binlog_file;
use super::log_location::logs_of;
use crate::arguments::{CatArgs, Output};
use crate::exit_codes::Exit;

/// Prints the events that the arguments select.
///
/// # Errors
/// If the input cannot be read or decoded, the output cannot be written, or a transaction given by GTID does
/// not exist.
pub(super) fn cat(arguments: &CatArgs, output: Output) -> anyhow::Result<Exit> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let result = match binlog_file(&arguments.source) {
        Some(path) if arguments.raw => raw_file(path, &mut out),
        Some(path) => LogPrinter::new(arguments, output, &mut out)?.file(path),
        None => {
            let logs = logs_of(&arguments.source)?;
            logs.iter().try_fold(Exit::Done, |exit, (_, log)| {
                let of_log = match arguments.raw {
                    true => raw_log(log, &mut out)?,
                    false => LogPrinter::new(arguments, output, &mut out)?.log(log)?,
                };
                Ok(if exit == Exit::Done { of_log } else { exit })
            })
        }
    };
    // The text that was printed before an error is complete and valid, so it is not discarded.
    out.flush()?;
    result
}

/// The GTIDs whose transactions are printed.
enum GtidSelection {
    All,
    MySql(MysqlGtidSet),
    MariaDb(Vec<MariadbGtid>),
}

impl GtidSelection {
    fn parse(text: Option<&str>, flavour: Flavour) -> anyhow::Result<Self> {
        let Some(text) = text else { return Ok(Self::All) };
        let message = || format!("--gtid {text}");
        Ok(match flavour {
            Flavour::MySql => Self::MySql(MysqlGtidSet::parse(text).with_context(message)?),
            Flavour::MariaDb => {
                let gtids = text.split(',').map(|gtid| MariadbGtid::parse(gtid.trim()));
                Self::MariaDb(gtids.collect::<Result<_, _>>().with_context(message)?)
            }
        })
    }

    fn has(&self, gtid: Option<&Gtid>) -> bool {
        match (self, gtid) {
            (Self::All, _) => true,
            (Self::MySql(set), Some(Gtid::MySql(gtid))) => set.contains_gtid(gtid),
            (Self::MariaDb(list), Some(Gtid::MariaDb(gtid))) => list.contains(gtid),
            _ => false,
        }
    }

    /// Returns the selected GTID if exactly one GTID is selected.
    fn only(&self) -> Option<Gtid> {
        match self {
            Self::MySql(set) if set.count() == 1 => {
                let (uuid, tag, interval) = set.iter_intervals().next()?;
                let gtid = tailwater_wire::gtid::MysqlGtid {
                    uuid: *uuid,
                    tag: tag.to_owned(),
                    number: interval.first,
                };
                Some(Gtid::MySql(gtid))
            }
            Self::MariaDb(list) => match list.as_slice() {
                [only] => Some(Gtid::MariaDb(*only)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Prints the selected events of one log or file.
struct LogPrinter<'a> {
    arguments: &'a CatArgs,
    printer: Box<dyn EventPrinter>,
    out: &'a mut dyn Write,
    /// State for `--table`. Whether a transaction changes the table is known only at the end of the
    /// transaction.
    scan: Option<TableScan>,
    wanted: GtidSelection,
    /// Whether the transaction given by GTID was found.
    found: bool,
    /// Number of events that could not be decoded and printed.
    left_out: u64,
    event: Vec<u8>,
}

impl<'a> LogPrinter<'a> {
    fn new(arguments: &'a CatArgs, output: Output, out: &'a mut dyn Write) -> anyhow::Result<Self> {
        let mut filter = TableFilter::default();
        if let Some(table) = &arguments.table {
            let (schema, table) = table.split_once('.').context("--table takes SCHEMA.TABLE")?;
            filter.tables.push((schema.to_owned(), Some(table.to_owned())));
        }
        let scan = filter.is_active().then(|| TableScan::new(filter.clone()));
        let printer: Box<dyn EventPrinter> = match (arguments.sql, output, arguments.rows) {
            (true, ..) => Box::new(sql_output::SqlPrinter::with_filter(filter)),
            (_, Output::Text, false) => Box::new(mysqlbinlog_output::TextPrinter::with_filter(filter)),
            (_, Output::Text, true) => {
                Box::new(mysqlbinlog_output::TextPrinter::with_filter(filter).rows_only())
            }
            (_, Output::Json, false) => Box::new(json_lines_output::JsonPrinter::with_filter(filter)),
            (_, Output::Json, true) => {
                Box::new(json_lines_output::JsonPrinter::with_filter(filter).rows_only())
            }
        };
        Ok(Self {
            arguments,
            printer,
            out,
            scan,
            wanted: GtidSelection::All,
            found: false,
            left_out: 0,
            event: Vec::new(),
        })
    }

    /// Whether only some transactions are printed. If so, events between transactions are not printed, except
    /// format descriptions, which every output format needs.
    fn is_selective(&self) -> bool {
        let time = &self.arguments.time;
        self.scan.is_some() || time.since.is_some() || time.until.is_some() || self.arguments.gtid.is_some()
    }

    /// Whether the GTID and the commit time of a transaction are selected.
    fn selects(&mut self, gtid: Option<&Gtid>, commit_time_us: u64) -> bool {
        let time = &self.arguments.time;
        let named = self.wanted.has(gtid);
        self.found |= named;
        named
            && time.since.is_none_or(|since| commit_time_us >= since.0)
            && time.until.is_none_or(|until| commit_time_us < until.0)
    }

    fn print(&mut self, file: &str, offset: u64) -> anyhow::Result<()> {
        let place = EventLocation { file, offset };
        match self.printer.event(place, &self.event, self.out) {
            Ok(()) => Ok(()),
            Err(error @ PrintError::Output(_)) => Err(error.into()),
            Err(error) if self.arguments.strict => {
                Err(anyhow::Error::new(error).context(format!("event at {file}:{offset}")))
            }
            Err(error) => {
                self.left_out += 1;
                let left_out = SkippedEvent { place, event: &self.event, error: &error };
                Ok(self.printer.print_skipped(&left_out, self.out)?)
            }
        }
    }

    fn finish(mut self) -> anyhow::Result<Exit> {
        self.printer.end(self.out)?;
        match (&self.arguments.gtid, self.left_out) {
            (Some(gtid), _) if !self.found => bail!("transaction {gtid} was not found"),
            (_, 0) => Ok(Exit::Done),
            (_, left_out) => {
                self.out.flush()?;
                let events = counted(left_out, "event");
                eprintln!("{events} could not be printed; the output names each event and the reason");
                Ok(Exit::ProblemsFound)
            }
        }
    }

    fn log(mut self, log: &LogDir) -> anyhow::Result<Exit> {
        let flavour = log.segments()?.first().map(|segment| segment.source.flavour);
        if let Some(flavour) = flavour {
            self.wanted = GtidSelection::parse(self.arguments.gtid.as_deref(), flavour)?;
        }
        if let Some(only) = self.wanted.only() {
            // The index finds the transaction without reading earlier entries. The first event of a segment
            // is its format description. The format description is needed to decode the rest of the segment.
            if let Some(entry) = log.find(&only)? {
                let head = LogPosition { segment: entry.position.segment, offset: BINLOG_MAGIC.len() as u64 };
                self.entries(log, head, 1)?;
                self.entries(log, entry.position, 1)?;
            }
            return self.finish();
        }
        self.entries(log, LogPosition::ZERO, u64::MAX)?;
        self.finish()
    }

    /// Prints the selected transactions among the next `count` index entries. The index alone shows which
    /// transactions the GTID or the time excludes, so their events are not read.
    fn entries(&mut self, log: &LogDir, from: LogPosition, count: u64) -> anyhow::Result<()> {
        let selective = self.is_selective();
        let mut reader = log.reader(from)?;
        // With `--table`, reads one entry ahead.
        let mut lookahead = match self.scan {
            Some(_) => Some(log.reader(from)?),
            None => None,
        };
        for _ in 0..count {
            let Some(entry) = reader.try_next()? else { return Ok(()) };
            if let Some(lookahead) = &mut lookahead {
                lookahead.try_next()?;
            }
            let selected = match entry.is_transaction() {
                true => self.selects(entry.gtid.as_ref(), entry.commit_time_us),
                false => true,
            };
            if selected && self.is_about_tables(lookahead.as_mut(), &entry)? {
                self.entry(&mut reader, selective && !entry.is_transaction())?;
            }
        }
        Ok(())
    }

    fn is_about_tables(
        &mut self,
        lookahead: Option<&mut LogReader>,
        entry: &LogEntry,
    ) -> anyhow::Result<bool> {
        let (Some(scan), Some(lookahead)) = (&mut self.scan, lookahead) else { return Ok(true) };
        let mut is_unknown = false;
        while lookahead.next_event()?.is_some() {
            let offset = lookahead.event_position().offset;
            lookahead.read_event(&mut self.event)?;
            if let Err(error) = scan.event(&self.event) {
                if self.arguments.strict {
                    return Err(error).with_context(|| {
                        format!("cannot read the event at {}:{offset}", source_file(lookahead))
                    });
                }
                // The event cannot be decoded, so the transaction may change the table and is printed. The
                // printer reports what is wrong with the event.
                is_unknown = true;
            }
        }
        Ok(scan.finish() || is_unknown || !entry.is_transaction())
    }

    fn entry(&mut self, reader: &mut LogReader, only_format: bool) -> anyhow::Result<()> {
        let file = source_file(reader);
        while let Some(header) = reader.next_event()? {
            if only_format && header.event_type != EventType::FORMAT_DESCRIPTION {
                continue;
            }
            let offset = reader.event_position().offset;
            reader.read_event(&mut self.event)?;
            self.print(&file, offset)?;
        }
        Ok(())
    }

    /// Prints a binlog file outside a log: a binlog file of a server, or a segment given by its path.
    fn file(mut self, path: &Path) -> anyhow::Result<Exit> {
        let mut file = BinlogFile::open(path)?;
        let short = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if self.is_selective() {
            self.selected_of_file(path, &mut file, &short)?;
            return self.finish();
        }
        loop {
            match file.next(&mut self.event)? {
                NextEvent::Event { offset, .. } => self.print(&short, offset)?,
                NextEvent::End => return self.finish(),
                NextEvent::Broken { offset, reason } => {
                    bail!("cannot read the event at {}:{offset}: {reason}", file.name())
                }
            }
        }
    }

    /// Prints the selected transactions of a file. The file has no index, so the time and tables of a
    /// transaction are known only at its end. Selected transactions are therefore read a second time.
    fn selected_of_file(&mut self, path: &Path, file: &mut BinlogFile, short: &str) -> anyhow::Result<()> {
        let mut again = BinlogFile::open(path)?;
        let mut stream: Option<(FormatDescription, TransactionTracker)> = None;
        let mut open: Option<OpenTransaction> = None;
        // Whether an event of the transaction could not be decoded. Such a transaction may change the table.
        let mut is_unknown = false;
        loop {
            let (offset, header) = match file.next(&mut self.event)? {
                NextEvent::Event { offset, header } => (offset, header),
                NextEvent::End => return Ok(()),
                NextEvent::Broken { offset, reason } => {
                    bail!("cannot read the event at {}:{offset}: {reason}", file.name())
                }
            };
            let place = || format!("event at {short}:{offset}");
            let body = self.event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
            if header.event_type == EventType::FORMAT_DESCRIPTION {
                let format = FormatDescription::parse(body).with_context(place)?;
                self.wanted = GtidSelection::parse(self.arguments.gtid.as_deref(), format.flavour())?;
                let tracker = stream.take().map(|(_, tracker)| tracker);
                let tracker = tracker.unwrap_or_else(|| TransactionTracker::new(format.flavour()));
                stream = Some((format, tracker));
                self.print(short, offset)?;
            }
            let Some((format, tracker)) = &mut stream else {
                bail!("{}: the file does not start with a format description event", place())
            };
            let body = self.event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
            let step = tracker.observe(&header, body, format).with_context(place)?;
            if let Some(scan) = &mut self.scan
                && let Err(error) = scan.event(&self.event)
            {
                if self.arguments.strict {
                    return Err(error).with_context(place);
                }
                is_unknown = true;
            }
            match step {
                TransactionStep::Begin(start) => {
                    let commit_time_us = start.commit_time_us.unwrap_or(0);
                    open = Some(OpenTransaction { offset, gtid: start.gtid, commit_time_us });
                }
                TransactionStep::Abandoned => open = None,
                TransactionStep::End => {
                    let Some(transaction) = open.take() else { continue };
                    let about_tables = self.scan.as_mut().is_none_or(TableScan::finish);
                    let about_tables = about_tables || std::mem::take(&mut is_unknown);
                    let commit_time_us = match transaction.commit_time_us {
                        0 => u64::from(header.timestamp) * 1_000_000,
                        stated => stated,
                    };
                    if self.selects(transaction.gtid.as_ref(), commit_time_us) && about_tables {
                        self.print_range(&mut again, short, transaction.offset, offset)?;
                    }
                }
                TransactionStep::Outside | TransactionStep::Inside => {}
            }
        }
    }

    /// Prints the events of a file from offset `first` to offset `last`, inclusive.
    fn print_range(
        &mut self,
        file: &mut BinlogFile,
        short: &str,
        first: u64,
        last: u64,
    ) -> anyhow::Result<()> {
        file.seek(first)?;
        loop {
            match file.next(&mut self.event)? {
                NextEvent::Event { offset, .. } => {
                    self.print(short, offset)?;
                    if offset >= last {
                        return Ok(());
                    }
                }
                NextEvent::End | NextEvent::Broken { .. } => {
                    bail!("{} was changed while it was read", file.name())
                }
            }
        }
    }
}

/// A transaction whose end has not been read yet.
struct OpenTransaction {
    offset: u64,
    gtid: Option<Gtid>,
    /// Commit time in microseconds; 0 if the first event of the transaction has none.
    commit_time_us: u64,
}

fn source_file(reader: &LogReader) -> String {
    reader.source().map(|(_, file)| file.to_owned()).unwrap_or_default()
}

fn raw_file(path: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let file = BinlogFile::open(path)?;
    out.write_all(&BINLOG_MAGIC)?;
    io::copy(&mut file.into_rest(), out)?;
    Ok(Exit::Done)
}

fn raw_log(log: &LogDir, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut segment = None;
    let mut reader = log.reader(LogPosition::ZERO)?;
    while let Some(entry) = reader.try_next()? {
        if segment != Some(entry.position.segment) {
            segment = Some(entry.position.segment);
            out.write_all(&BINLOG_MAGIC)?;
        }
        loop {
            let chunk = reader.read_chunk(1 << 20)?;
            if chunk.is_empty() {
                break;
            }
            out.write_all(chunk)?;
        }
    }
    Ok(Exit::Done)
}
