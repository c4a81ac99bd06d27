//! Finds which row of a transaction the target rejects. Applies each row separately, in order, and rolls
//! back.

use smallvec::smallvec;
use tailwater_session::{ServerError, SessionError};
use tailwater_wire::binlog_event::{RowsEvent, RowsKind};
use tailwater_wire::row_event::{BinlogValue, RowChangeIter};

use super::channel_options::ChannelOptions;
use super::multi_statement_packets::Packets;
use super::row_writer::RowWriter;
use crate::error::ApplyError;
use crate::source_transaction::{RowChanges, RowPlace, Transaction, TransactionContent};

/// The error `ER_NO_SUCH_TABLE`.
const NO_SUCH_TABLE: u16 = 1146;

/// The maximum length of a key in a message, in characters.
const KEY_CHARACTERS_MAX: usize = 200;

/// Applies the rows again to find the rejected row. If this row is found, returns the error with its table
/// and key. Otherwise returns an error that names only the transaction.
pub(super) async fn diagnose(
    options: &ChannelOptions,
    transaction: &Transaction,
    error: ApplyError,
) -> ApplyError {
    let server = match error {
        ApplyError::Session(SessionError::Server { error, .. }) => error,
        // Convert the error: if a row event makes the same change, the server reports that the row does not
        // exist, or already exists.
        ApplyError::RowsMissing { found, wanted, statement } => ServerError {
            number: 1032,
            sql_state: "HY000".to_owned(),
            message: format!("{statement}: found {found} of {wanted} rows").into(),
        },
        other => return other.of_transaction(&transaction.gtid_text()),
    };
    let found = match &transaction.content {
        // Rows of nontransactional tables could not be rolled back, so the search needs transactional tables.
        TransactionContent::Rows(changes)
            if changes.iter().all(|changes| changes.table.target.transactional) =>
        {
            try_each(options, changes).await.unwrap_or(None)
        }
        _ => None,
    };
    let (table, key, server) = found.unwrap_or((String::new(), String::new(), server));
    if server.number == NO_SUCH_TABLE && !table.is_empty() {
        let table = table.rsplit(' ').next().unwrap_or_default().to_owned();
        return ApplyError::MissingTable { gtid: transaction.gtid_text(), table };
    }
    let (subject, values) = (table, key.trim_start().into());
    ApplyError::Rejected { gtid: transaction.gtid_text(), subject, values, error: Box::new(server) }
}

type RefusedRow = (String, String, ServerError);

async fn try_each(
    options: &ChannelOptions,
    changes: &[RowChanges],
) -> Result<Option<RefusedRow>, ApplyError> {
    let mut writer = RowWriter::open(options).await?;
    writer.connection.execute("START TRANSACTION").await?;
    for changes in changes {
        for index in 0..changes.rows.len() {
            let Some(one) = single(changes, index) else { continue };
            let mut packets = Packets::default();
            writer.push_rows(std::iter::once(&one), &mut packets)?;
            match packets.run(&mut writer.connection).await {
                Ok(()) => {}
                Err(
                    error @ (ApplyError::Session(SessionError::Server { .. })
                    | ApplyError::RowsMissing { .. }),
                ) => {
                    let error = match error {
                        ApplyError::Session(SessionError::Server { error, .. }) => error,
                        _ => ServerError {
                            number: 1032,
                            sql_state: "HY000".to_owned(),
                            message: "the row does not exist".into(),
                        },
                    };
                    let table = &changes.table.target;
                    let doing = match changes.kind {
                        RowsKind::Write => "insert into",
                        RowsKind::Update | RowsKind::PartialUpdate => "update of",
                        RowsKind::Delete => "delete from",
                    };
                    let table = format!("{doing} {}.{}", table.schema, table.table);
                    writer.connection.execute("ROLLBACK").await?;
                    return Ok(Some((table, key_text(changes, index), error)));
                }
                Err(error) => return Err(error),
            }
        }
    }
    writer.connection.execute("ROLLBACK").await?;
    Ok(None)
}

/// Returns the change of row `index` only.
fn single(changes: &RowChanges, index: usize) -> Option<RowChanges> {
    let row = changes.rows.get(index)?;
    let images = changes.images.slice(row.start as usize..row.end as usize);
    Some(RowChanges {
        table: changes.table.clone(),
        kind: changes.kind,
        flags: changes.flags,
        timestamp: changes.timestamp,
        server_id: changes.server_id,
        columns_present: changes.columns_present.clone(),
        columns_present_after: changes.columns_present_after.clone(),
        images,
        rows: smallvec![RowPlace {
            start: 0,
            middle: row.middle - row.start,
            end: row.end - row.start,
            accesses_start: 0,
        }],
        accesses: changes.accesses_of(index).into(),
    })
}

/// Returns the text of a key value that is neither an integer nor text. Types that cannot be in a key are not
/// shown.
fn value_text(value: &BinlogValue<'_>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match value {
        BinlogValue::Null => return "NULL".to_owned(),
        BinlogValue::Float(float) => return float.to_string(),
        BinlogValue::Double(double) => return double.to_string(),
        BinlogValue::Decimal(decimal) => return decimal.to_string(),
        BinlogValue::Bit { value, .. } | BinlogValue::Set(value) => return value.to_string(),
        BinlogValue::Enum(number) => return number.to_string(),
        BinlogValue::Year(year) => return year.to_string(),
        BinlogValue::Date(date) => return date.to_string(),
        BinlogValue::Time(time) => time.write(&mut text, 6),
        BinlogValue::DateTime(time) => time.write(&mut text, 6),
        BinlogValue::Timestamp(time) => time.to_utc().write(&mut text, 6),
        BinlogValue::FixedBytes { stored, .. } => return format!("{:?}", String::from_utf8_lossy(stored)),
        _ => return "?".to_owned(),
    };
    text
}

/// Returns the row's primary key, such as ` (id=7)`. Empty if the table has no primary key or the key cannot
/// be read.
fn key_text(changes: &RowChanges, index: usize) -> String {
    let read = || -> Option<String> {
        let one = single(changes, index)?;
        let event = RowsEvent {
            kind: one.kind,
            version: 2,
            table_id: 0,
            flags: one.flags,
            extra_data: &[],
            column_count: one.table.map.columns.len(),
            columns_present: &one.columns_present,
            columns_present_after: &one.columns_present_after,
            rows: &one.images,
            compressed: false,
        };
        let table = &one.table;
        let row = RowChangeIter::new(&table.map, &event, &one.images).ok()?.next()?.ok()?;
        let image = row.before.or(row.after)?;
        let mut parts = Vec::new();
        for part in &table.target.primary_key()?.parts {
            let name = &table.target.columns.get(part.column)?.name;
            let value = image.cell(part.column).ok()??.value(&table.map.columns).ok()?;
            let value = match value {
                BinlogValue::Int(number) => number.to_string(),
                BinlogValue::UInt(number) => number.to_string(),
                BinlogValue::Bytes(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
                other => value_text(&other),
            };
            parts.push(format!("{name}={value}"));
        }
        let text: String = parts.join(", ").chars().take(KEY_CHARACTERS_MAX).collect();
        Some(format!(" ({text})"))
    };
    read().unwrap_or_default()
}
