//! The text of events that are not row events: headers, statements, GTIDs and other bodies.

use super::UNPACKED_BYTES_MAX;
use super::row_text::put;
use crate::binlog_event::{
    BinlogEvent, EventBody, EventHeader, EventType, FormatDescription, GtidEvent, IntVar, MariadbGtidEvent,
    PayloadCompression, QueryEvent, RowsEvent, RowsKind, TransactionPayload, UserVarValue,
};
use crate::row_event::TableMap;
use crate::row_event::temporal_value::Timestamp;
use crate::sql_quote::put_identifier;
use crate::{Flavour, WireError};

/// A flag in the header of a query event: the statement does not depend on the default database.
const FLAG_SUPPRESS_USE: u16 = 0x0008;

/// A flag in a row event of MySQL 9: the server, and not the storage engine, checks foreign keys.
const FLAG_USE_SQL_FOREIGN_KEY: u16 = 0x0010;

/// Appends a time such as `261121 19:43:05` in UTC. The hour has no leading zero, as in the output of the
/// servers' tools.
pub(super) fn put_time(out: &mut Vec<u8>, seconds: u32) {
    // In a column, 0 would mean the zero TIMESTAMP. In an event header, 0 means the beginning of 1970.
    let utc = match seconds {
        0 => Timestamp { seconds: 86_400, micros: 0 }.to_utc(),
        seconds => Timestamp { seconds, micros: 0 }.to_utc(),
    };
    let day = if seconds == 0 { 1 } else { utc.date.day };
    put(
        out,
        format_args!(
            "{:02}{:02}{day:02} {:2}:{:02}:{:02}",
            utc.date.year % 100,
            utc.date.month,
            utc.hour,
            utc.minute,
            utc.second
        ),
    );
}

pub(super) fn put_table_map(out: &mut Vec<u8>, table: &TableMap) {
    out.extend_from_slice(b"\tTable_map: ");
    put_identifier(out, table.schema.as_bytes());
    out.push(b'.');
    put_identifier(out, table.table.as_bytes());
    put(out, format_args!(" mapped to number {}\n", table.table_id));
    if table.flavour == Flavour::MySql {
        let invisible = u8::from(table.has_generated_invisible_primary_key());
        put(out, format_args!("# has_generated_invisible_primary_key={invisible}\n"));
    }
}

pub(super) fn put_rows_head(out: &mut Vec<u8>, event: &RowsEvent<'_>, flavour: Flavour) {
    let action = match event.kind {
        RowsKind::Write => "Write",
        RowsKind::Update | RowsKind::PartialUpdate => "Update",
        RowsKind::Delete => "Delete",
    };
    let compressed = if event.compressed { "_compressed" } else { "" };
    let partial = if event.kind == RowsKind::PartialUpdate { "_partial" } else { "" };
    put(out, format_args!("\t{action}{compressed}_rows{partial}: table id {}", event.table_id));
    let common = [
        (RowsEvent::FLAG_STATEMENT_END, "STMT_END_F"),
        (RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS, "NO_FOREIGN_KEY_CHECKS_F"),
        (RowsEvent::FLAG_RELAXED_UNIQUE_CHECKS, "RELAXED_UNIQUE_CHECKS_F"),
        (RowsEvent::FLAG_COMPLETE_ROWS, "COMPLETE_ROWS_F"),
    ];
    let own = match flavour {
        Flavour::MySql => (FLAG_USE_SQL_FOREIGN_KEY, "USE_SQL_FOREIGN_KEY_F"),
        Flavour::MariaDb => (RowsEvent::FLAG_NO_CHECK_CONSTRAINT_CHECKS, "NO_CHECK_CONSTRAINT_CHECKS_F"),
    };
    let flags = common.into_iter().chain([own]);
    let set: Vec<&str> = flags.filter(|(flag, _)| event.flags & flag != 0).map(|(_, name)| name).collect();
    if !set.is_empty() {
        put(out, format_args!(" flags: {}", set.join(" ")));
    }
    out.push(b'\n');
}

/// Appends the partitions of a row event of MySQL 8. The extra data of the event contains them.
pub(super) fn put_partition(out: &mut Vec<u8>, event: &RowsEvent<'_>) {
    const PARTITION: u8 = 1;
    match (event.extra_data, event.kind) {
        ([PARTITION, a, b, c, d], RowsKind::Update | RowsKind::PartialUpdate) => {
            let (target, source) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
            put(
                out,
                format_args!(
                    "### Extra row info for partitioning: source_partition: {source} target_partition: {target}\n"
                ),
            );
        }
        ([PARTITION, a, b], _) => {
            let partition = u16::from_le_bytes([*a, *b]);
            put(out, format_args!("### Extra row info for partitioning: partition: {partition}\n"));
        }
        _ => {}
    }
}

pub(super) fn put_payload_head(out: &mut Vec<u8>, payload: &TransactionPayload<'_>) {
    let compression = match payload.compression {
        PayloadCompression::Zstd => "ZSTD",
        PayloadCompression::None => "NONE",
    };
    put(
        out,
        format_args!(
            "\tTransaction_Payload\t\tpayload_size={}\tcompression_type={compression}\tuncompressed_size={}\n",
            payload.payload_bytes,
            payload.uncompressed_bytes.unwrap_or(0)
        ),
    );
}

/// Returns whether the statement depends on its default database, so that a `use` must come before it.
pub(super) fn needs_use_statement(header: &EventHeader, query: &QueryEvent<'_>) -> bool {
    !header.has(FLAG_SUPPRESS_USE) && !query.database.is_empty()
}

/// Appends a `use` statement in the format of the servers' tools.
pub(super) fn put_use(out: &mut Vec<u8>, database: &[u8]) {
    out.extend_from_slice(b"use ");
    put_identifier(out, String::from_utf8_lossy(database).as_bytes());
    out.extend_from_slice(b"/*!*/;\n");
}

/// Appends the text of an event body that can be printed without other events. Before a statement, also
/// appends its `use`.
pub(super) fn put_body(
    out: &mut Vec<u8>,
    event: &BinlogEvent<'_>,
    use_line: &[u8],
    flavour: Flavour,
) -> Result<(), WireError> {
    let line = |out: &mut Vec<u8>, text: std::fmt::Arguments<'_>| {
        out.push(b'\t');
        put(out, text);
        out.push(b'\n');
    };
    match &event.body {
        EventBody::FormatDescription(format) => put_format(out, format, &event.header),
        EventBody::Rotate(rotate) => {
            let file = String::from_utf8_lossy(rotate.file_name);
            line(out, format_args!("Rotate to {file}  pos: {}", rotate.position));
        }
        EventBody::Stop => line(out, format_args!("Stop")),
        EventBody::Query(query) => put_query(out, &event.header, query, use_line)?,
        EventBody::Xid(xid) => line(out, format_args!("Xid = {xid}\nCOMMIT/*!*/;")),
        EventBody::IntVar(IntVar::InsertId(value)) => {
            line(out, format_args!("Intvar\nSET INSERT_ID={value}/*!*/;"))
        }
        EventBody::IntVar(IntVar::LastInsertId(value)) => {
            line(out, format_args!("Intvar\nSET LAST_INSERT_ID={value}/*!*/;"));
        }
        EventBody::Rand(seeds) => {
            line(out, format_args!("Rand\nSET @@RAND_SEED1={}, @@RAND_SEED2={}/*!*/;", seeds.0, seeds.1))
        }
        EventBody::UserVar(variable) => {
            out.extend_from_slice(b"\tUser_var\nSET @");
            put_identifier(out, String::from_utf8_lossy(variable.name).as_bytes());
            out.extend_from_slice(b":=");
            put_user_value(out, &variable.value);
            out.extend_from_slice(b"/*!*/;\n");
        }
        EventBody::BeginLoadQuery(block) => {
            line(
                out,
                format_args!("Begin_load_query: file_id: {}  block_len: {}", block.file_id, block.data.len()),
            );
        }
        EventBody::AppendBlock(block) => {
            line(
                out,
                format_args!("Append_block: file_id: {}  block_len: {}", block.file_id, block.data.len()),
            );
        }
        EventBody::DeleteFile(file_id) => line(out, format_args!("Delete_file: file_id={file_id}")),
        EventBody::ExecuteLoadQuery(load) => {
            put_query(out, &event.header, &load.query, use_line)?;
            put(out, format_args!("# file_id: {}\n", load.file_id));
        }
        EventBody::Incident(incident) => {
            let message = String::from_utf8_lossy(incident.message);
            line(out, format_args!("Incident: #{} {message}", incident.kind));
        }
        EventBody::Heartbeat(heartbeat) => {
            let file = String::from_utf8_lossy(heartbeat.file_name);
            line(out, format_args!("Heartbeat {file} pos: {}", heartbeat.position));
        }
        EventBody::RowsQuery(statement) => {
            out.extend_from_slice(b"\tRows_query\n");
            put_commented(out, "# ", statement);
        }
        EventBody::AnnotateRows(statement) => {
            out.extend_from_slice(b"\tAnnotate_rows:\n");
            put_commented(out, "#Q> ", statement);
        }
        EventBody::Gtid(gtid) => put_mysql_gtid(out, gtid),
        EventBody::PreviousGtids(set) => line(
            out,
            format_args!(
                "Previous-GTIDs\n# {}",
                if set.is_empty() { "[empty]".to_owned() } else { set.to_string() }
            ),
        ),
        EventBody::XaPrepare(prepare) => {
            out.extend_from_slice(b"\tXA PREPARE ");
            put_xid(out, prepare.xid.gtrid, prepare.xid.bqual, prepare.xid.format_id);
            put(out, format_args!("{}/*!*/;\n", if prepare.one_phase { " ONE PHASE" } else { "" }));
        }
        EventBody::TransactionContext(body) => {
            line(out, format_args!("Transaction_context ({} bytes)", body.len()))
        }
        EventBody::ViewChange(body) => line(out, format_args!("View_change ({} bytes)", body.len())),
        EventBody::PartialRowData(part) => line(
            out,
            format_args!(
                "Partial_row_data: fragment {} of {} ({} bytes)",
                part.fragment,
                part.fragments,
                part.data.len()
            ),
        ),
        EventBody::MariadbGtid(gtid) => put_mariadb_gtid(out, gtid),
        EventBody::MariadbGtidList(list) => line(out, format_args!("Gtid list [{list}]")),
        EventBody::BinlogCheckpoint(file) => {
            line(out, format_args!("Binlog checkpoint {}", String::from_utf8_lossy(file)));
        }
        EventBody::StartEncryption(encryption) => {
            line(
                out,
                format_args!(
                    "Encryption scheme: {}, key_version: {}",
                    encryption.scheme, encryption.key_version
                ),
            );
        }
        EventBody::Ignorable(body) => {
            line(
                out,
                format_args!(
                    "Ignorable event type {} ({flavour}, {} bytes)",
                    event.header.event_type.0,
                    body.len()
                ),
            );
        }
        _ => line(out, format_args!("{}", event.header.event_type)),
    }
    Ok(())
}

fn put_format(out: &mut Vec<u8>, format: &FormatDescription, header: &EventHeader) {
    put(
        out,
        format_args!(
            "\tStart: binlog v {}, server v {} created ",
            format.binlog_version, format.server_version
        ),
    );
    put_time(out, header.timestamp);
    if format.created != 0 {
        out.extend_from_slice(b" at startup");
    }
    out.push(b'\n');
    if header.has(EventHeader::FLAG_BINLOG_IN_USE) {
        out.extend_from_slice(b"# Warning: this binlog is either in use or was not closed properly.\n");
    }
}

fn put_query(
    out: &mut Vec<u8>,
    header: &EventHeader,
    query: &QueryEvent<'_>,
    use_line: &[u8],
) -> Result<(), WireError> {
    let status = query.status_vars()?;
    let name = match header.event_type {
        EventType::EXECUTE_LOAD_QUERY => "Execute_load_query",
        EventType::MARIADB_QUERY_COMPRESSED => "Query_compressed",
        _ => "Query",
    };
    put(
        out,
        format_args!(
            "\t{name}\tthread_id={}\texec_time={}\terror_code={}",
            query.thread_id, query.execution_seconds, query.error_code
        ),
    );
    if let Some(xid) = status.ddl_xid {
        put(out, format_args!("\tXid = {xid}"));
    }
    if let Some(xid) = status.xid {
        put(out, format_args!("\txid={xid}"));
    }
    out.push(b'\n');
    out.extend_from_slice(use_line);
    put(out, format_args!("SET TIMESTAMP={}", header.timestamp));
    if let Some(micros) = status.microseconds.or(status.hrnow).filter(|micros| *micros != 0) {
        put(out, format_args!(".{micros:06}"));
    }
    out.extend_from_slice(b"/*!*/;\n");
    out.extend_from_slice(&query.statement(UNPACKED_BYTES_MAX)?);
    out.extend_from_slice(b"\n/*!*/;\n");
    Ok(())
}

fn put_user_value(out: &mut Vec<u8>, value: &UserVarValue<'_>) {
    match value {
        UserVarValue::Null => out.extend_from_slice(b"NULL"),
        UserVarValue::Real(real) => put(out, format_args!("{real:e}")),
        UserVarValue::Int(int) => put(out, format_args!("{int}")),
        UserVarValue::Uint(int) => put(out, format_args!("{int}")),
        UserVarValue::Decimal { precision, scale, bytes } => {
            match crate::row_event::decimal_value::Decimal::parse(bytes, *precision, *scale) {
                Ok(decimal) => put(out, format_args!("{decimal}")),
                Err(error) => put(out, format_args!("NULL /* {error} */")),
            }
        }
        UserVarValue::String { bytes, collation } => {
            out.extend_from_slice(b"X'");
            bytes.iter().for_each(|byte| put(out, format_args!("{byte:02X}")));
            put(out, format_args!("' /* collation {collation} */"));
        }
    }
}

/// Appends the lines of a statement, each after `prefix`.
fn put_commented(out: &mut Vec<u8>, prefix: &str, statement: &[u8]) {
    for line in statement.split(|byte| *byte == b'\n') {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

fn put_mysql_gtid(out: &mut Vec<u8>, event: &GtidEvent) {
    out.extend_from_slice(if event.gtid.is_some() { b"\tGTID" } else { b"\tAnonymous_GTID" });
    if let Some(clock) = event.logical_clock {
        put(
            out,
            format_args!(
                "\tlast_committed={}\tsequence_number={}",
                clock.last_committed, clock.sequence_number
            ),
        );
    }
    let rows_only = event.flags & GtidEvent::FLAG_MAY_HAVE_STATEMENTS == 0;
    put(out, format_args!("\trbr_only={}", if rows_only { "yes" } else { "no" }));
    if let Some(time) = event.original_commit_time_us {
        put(out, format_args!("\toriginal_committed_timestamp={time}"));
    }
    if let Some(time) = event.immediate_commit_time_us {
        put(out, format_args!("\timmediate_commit_timestamp={time}"));
    }
    if let Some(bytes) = event.transaction_bytes {
        put(out, format_args!("\ttransaction_length={bytes}"));
    }
    out.push(b'\n');
    for (name, time) in [
        ("original_commit_timestamp", event.original_commit_time_us),
        ("immediate_commit_timestamp", event.immediate_commit_time_us),
    ] {
        let Some(time) = time else { continue };
        let Ok(seconds) = u32::try_from(time / 1_000_000) else { continue };
        let utc = Timestamp { seconds, micros: (time % 1_000_000) as u32 }.to_utc();
        put(out, format_args!("# {name}={time} ({utc} UTC)\n"));
    }
    match &event.gtid {
        Some(gtid) => put(out, format_args!("SET @@SESSION.GTID_NEXT= '{gtid}'/*!*/;\n")),
        None => out.extend_from_slice(b"SET @@SESSION.GTID_NEXT= 'ANONYMOUS'/*!*/;\n"),
    }
}

fn put_mariadb_gtid(out: &mut Vec<u8>, event: &MariadbGtidEvent<'_>) {
    put(out, format_args!("\tGTID {}", event.gtid));
    if let Some(commit_id) = event.commit_id {
        put(out, format_args!(" cid={commit_id}"));
    }
    for (flag, name) in [
        (MariadbGtidEvent::FLAG_DDL, " ddl"),
        (MariadbGtidEvent::FLAG_TRANSACTIONAL, " trans"),
        (MariadbGtidEvent::FLAG_WAITED, " waited"),
    ] {
        if event.has(flag) {
            out.extend_from_slice(name.as_bytes());
        }
    }
    if let Some(thread_id) = event.thread_id {
        put(out, format_args!(" thread_id={thread_id}"));
    }
    if event.flags_extra & MariadbGtidEvent::EXTRA_START_ALTER != 0 {
        out.extend_from_slice(b" START ALTER");
    }
    if let Some(sequence) = event.start_alter_sequence {
        let outcome = match event.flags_extra & MariadbGtidEvent::EXTRA_COMMIT_ALTER {
            0 => "ROLLBACK",
            _ => "COMMIT",
        };
        put(out, format_args!(" {outcome} ALTER id={sequence}"));
    }
    out.push(b'\n');
    match &event.xid {
        Some(xid) if event.has(MariadbGtidEvent::FLAG_PREPARED_XA) => {
            out.extend_from_slice(b"XA START ");
            put_xid(out, xid.gtrid, xid.bqual, xid.format_id);
            out.extend_from_slice(b"/*!*/;\n");
        }
        _ if !event.has(MariadbGtidEvent::FLAG_STANDALONE) => {
            out.extend_from_slice(b"START TRANSACTION\n/*!*/;\n")
        }
        _ => {}
    }
}

/// Appends an XA identifier in the syntax of `XA` statements.
fn put_xid(out: &mut Vec<u8>, gtrid: &[u8], bqual: &[u8], format_id: u32) {
    for part in [gtrid, bqual] {
        out.extend_from_slice(b"X'");
        part.iter().for_each(|byte| put(out, format_args!("{byte:02x}")));
        out.extend_from_slice(b"',");
    }
    put(out, format_args!("{}", format_id.cast_signed()));
}
