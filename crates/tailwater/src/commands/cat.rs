//! `tailwater log cat`: events of logs and of binlog files, of all transactions or of chosen ones.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use tailwater_log::{LogDir, LogEntry, LogPosition, LogReader};
use tailwater_wire::Flavour;
use tailwater_wire::event::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventType, FormatDescription};
use tailwater_wire::gtid::{Gtid, MariadbGtid, MysqlGtidSet};
use tailwater_wire::print::{
    EventLocation, EventPrinter, PrintError, SkippedEvent, TableFilter, TableScan, json, sql, text,
};
use tailwater_wire::transaction::{TransactionStep, TransactionTracker};

use super::binlog_file::{BinlogFile, Next};
use super::log::binlog_file;
use super::log_source::logs_of;
use crate::cli::{CatArgs, Output};
use crate::exit::Exit;

/// Prints events as the arguments ask for.
///
/// # Errors
/// If something cannot be read or understood, or cannot be written as asked for; if a transaction that was named is not
/// there.
pub(super) fn cat(arguments: &CatArgs, output: Output) -> anyhow::Result<Exit> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let result = match binlog_file(&arguments.source) {
        Some(path) if arguments.raw => raw_file(path, &mut out),
        Some(path) => Cat::new(arguments, output, &mut out)?.file(path),
        None => {
            let logs = logs_of(&arguments.source)?;
            logs.iter().try_fold(Exit::Done, |exit, (_, log)| {
                let of_log = match arguments.raw {
                    true => raw_log(log, &mut out)?,
                    false => Cat::new(arguments, output, &mut out)?.log(log)?,
                };
                Ok(if exit == Exit::Done { of_log } else { exit })
            })
        }
    };
    // What came before an error is whole and good.
    out.flush()?;
    result
}

/// The GTIDs that are wanted.
enum Wanted {
    All,
    MySql(MysqlGtidSet),
    MariaDb(Vec<MariadbGtid>),
}

impl Wanted {
    fn parse(text: Option<&str>, flavour: Flavour) -> anyhow::Result<Self> {
        let Some(text) = text else { return Ok(Self::All) };
        let said = || format!("--gtid {text}");
        Ok(match flavour {
            Flavour::MySql => Self::MySql(MysqlGtidSet::parse(text).with_context(said)?),
            Flavour::MariaDb => {
                let gtids = text.split(',').map(|gtid| MariadbGtid::parse(gtid.trim()));
                Self::MariaDb(gtids.collect::<Result<_, _>>().with_context(said)?)
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

    /// The one that is wanted, if it is one.
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

/// One log or file being printed.
struct Cat<'a> {
    arguments: &'a CatArgs,
    printer: Box<dyn EventPrinter>,
    out: &'a mut dyn Write,
    /// Only where tables are chosen: whether a transaction is about them is known when all of it was seen.
    scan: Option<TableScan>,
    wanted: Wanted,
    /// Whether a transaction that was named was found.
    found: bool,
    /// How many events could not be printed.
    left_out: u64,
    event: Vec<u8>,
}

impl<'a> Cat<'a> {
    fn new(arguments: &'a CatArgs, output: Output, out: &'a mut dyn Write) -> anyhow::Result<Self> {
        let mut filter = TableFilter::default();
        if let Some(table) = &arguments.table {
            let (schema, table) = table.split_once('.').context("--table takes SCHEMA.TABLE")?;
            filter.tables.push((schema.to_owned(), Some(table.to_owned())));
        }
        let scan = filter.is_active().then(|| TableScan::new(filter.clone()));
        let printer: Box<dyn EventPrinter> = match (arguments.sql, output, arguments.rows) {
            (true, ..) => Box::new(sql::SqlPrinter::with_filter(filter)),
            (_, Output::Text, false) => Box::new(text::TextPrinter::with_filter(filter)),
            (_, Output::Text, true) => Box::new(text::TextPrinter::with_filter(filter).rows_only()),
            (_, Output::Json, false) => Box::new(json::JsonPrinter::with_filter(filter)),
            (_, Output::Json, true) => Box::new(json::JsonPrinter::with_filter(filter).rows_only()),
        };
        Ok(Self {
            arguments,
            printer,
            out,
            scan,
            wanted: Wanted::All,
            found: false,
            left_out: 0,
            event: Vec::new(),
        })
    }

    /// Whether only some transactions are printed. Events between transactions then are not, but for format descriptions,
    /// which every printer needs.
    fn is_choosing(&self) -> bool {
        let time = &self.arguments.time;
        self.scan.is_some() || time.since.is_some() || time.until.is_some() || self.arguments.gtid.is_some()
    }

    /// Whether a transaction is wanted by its GTID and its time.
    fn chooses(&mut self, gtid: Option<&Gtid>, commit_time_us: u64) -> bool {
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
            (Some(gtid), _) if !self.found => bail!("there is no transaction {gtid}"),
            (_, 0) => Ok(Exit::Done),
            (_, left_out) => {
                self.out.flush()?;
                eprintln!(
                    "{left_out} events could not be printed and are left out; the output says which and why"
                );
                Ok(Exit::Found)
            }
        }
    }

    fn log(mut self, log: &LogDir) -> anyhow::Result<Exit> {
        let flavour = log.segments()?.first().map(|segment| segment.source.flavour);
        if let Some(flavour) = flavour {
            self.wanted = Wanted::parse(self.arguments.gtid.as_deref(), flavour)?;
        }
        if let Some(only) = self.wanted.only() {
            // By the index, without reading what is before it; the segment's first event is its format description.
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

    /// Prints what is wanted of so many entries. Those that are not wanted by their GTID or their time are passed over by
    /// the index alone.
    fn entries(&mut self, log: &LogDir, from: LogPosition, count: u64) -> anyhow::Result<()> {
        let choosing = self.is_choosing();
        let mut reader = log.reader(from)?;
        // Runs ahead by one entry where tables are chosen.
        let mut scout = match self.scan {
            Some(_) => Some(log.reader(from)?),
            None => None,
        };
        for _ in 0..count {
            let Some(entry) = reader.try_next()? else { return Ok(()) };
            if let Some(scout) = &mut scout {
                scout.try_next()?;
            }
            let chosen = match entry.is_transaction() {
                true => self.chooses(entry.gtid.as_ref(), entry.commit_time_us),
                false => true,
            };
            if chosen && self.is_about_tables(scout.as_mut(), &entry)? {
                self.entry(&mut reader, choosing && !entry.is_transaction())?;
            }
        }
        Ok(())
    }

    fn is_about_tables(&mut self, scout: Option<&mut LogReader>, entry: &LogEntry) -> anyhow::Result<bool> {
        let (Some(scan), Some(scout)) = (&mut self.scan, scout) else { return Ok(true) };
        let mut is_unknown = false;
        while scout.next_event()?.is_some() {
            let offset = scout.event_position().offset;
            scout.read_event(&mut self.event)?;
            if let Err(error) = scan.event(&self.event) {
                if self.arguments.strict {
                    return Err(error).with_context(|| format!("event at {}:{offset}", source_file(scout)));
                }
                // It may be about the table. When it is printed, it is said what is wrong with it.
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

    /// A binlog file that is no part of a log: of a server, or a segment by its own name.
    fn file(mut self, path: &Path) -> anyhow::Result<Exit> {
        let mut file = BinlogFile::open(path)?;
        let short = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if self.is_choosing() {
            self.file_by_choice(path, &mut file, &short)?;
            return self.finish();
        }
        loop {
            match file.next(&mut self.event)? {
                Next::Event { offset, .. } => self.print(&short, offset)?,
                Next::End => return self.finish(),
                Next::Broken { offset, reason } => bail!("event at {}:{offset}: {reason}", file.name()),
            }
        }
    }

    /// Without an index a transaction's time and tables are known at its end only; those that are wanted are read again.
    fn file_by_choice(&mut self, path: &Path, file: &mut BinlogFile, short: &str) -> anyhow::Result<()> {
        let mut again = BinlogFile::open(path)?;
        let mut stream: Option<(FormatDescription, TransactionTracker)> = None;
        let mut open: Option<OpenTransaction> = None;
        // An event of the transaction could not be looked at: it may be about the tables.
        let mut is_unknown = false;
        loop {
            let (offset, header) = match file.next(&mut self.event)? {
                Next::Event { offset, header } => (offset, header),
                Next::End => return Ok(()),
                Next::Broken { offset, reason } => bail!("event at {}:{offset}: {reason}", file.name()),
            };
            let place = || format!("event at {short}:{offset}");
            let body = self.event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
            if header.event_type == EventType::FORMAT_DESCRIPTION {
                let format = FormatDescription::parse(body).with_context(place)?;
                self.wanted = Wanted::parse(self.arguments.gtid.as_deref(), format.flavour())?;
                let tracker = stream.take().map(|(_, tracker)| tracker);
                let tracker = tracker.unwrap_or_else(|| TransactionTracker::new(format.flavour()));
                stream = Some((format, tracker));
                self.print(short, offset)?;
            }
            let Some((format, tracker)) = &mut stream else {
                bail!("{}: no format description stands first", place())
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
                    if self.chooses(transaction.gtid.as_ref(), commit_time_us) && about_tables {
                        self.span(&mut again, short, transaction.offset, offset)?;
                    }
                }
                TransactionStep::Outside | TransactionStep::Inside => {}
            }
        }
    }

    /// Prints the events of a file from the one at `first` to the one at `last`.
    fn span(&mut self, file: &mut BinlogFile, short: &str, first: u64, last: u64) -> anyhow::Result<()> {
        file.seek(first)?;
        loop {
            match file.next(&mut self.event)? {
                Next::Event { offset, .. } => {
                    self.print(short, offset)?;
                    if offset >= last {
                        return Ok(());
                    }
                }
                Next::End | Next::Broken { .. } => bail!("{} was changed while it was read", file.name()),
            }
        }
    }
}

/// A transaction of a file whose end was not seen yet.
struct OpenTransaction {
    offset: u64,
    gtid: Option<Gtid>,
    /// 0 if its opening event does not tell.
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
