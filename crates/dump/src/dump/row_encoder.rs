//! Encodes rows for text files: tab-separated, comma-separated, or as INSERT statements.

use std::sync::Arc;

use tailwater_session::{RawRow, SessionError};

use super::parquet::ParquetTable;
use crate::dump_folder::RowFormat;
use tailwater_tables::chunker::table_info::ColumnInfo;
use tailwater_tables::data_file_field_conversion::selected;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::TableName;
use tailwater_tables::tab_separated_rows;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

/// Approximate maximum size of an INSERT statement in bytes; a longer row makes a longer statement.
const STATEMENT_BYTES: usize = 512 << 10;

/// The first statements of each SQL file. These session settings make the server store the rows unchanged.
pub const SQL_HEAD: &str = "SET NAMES utf8mb4;\n\
    SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', \
    foreign_key_checks = 0, unique_checks = 1/*M!100201 , check_constraint_checks = 0*/;\n";

/// How the rows of a table are encoded.
#[derive(Debug, Clone)]
pub enum TableRows {
    /// Rows as text.
    Text(Arc<TextRows>),
    /// Rows as Parquet columns, which are collected in memory before they are written.
    Parquet(Arc<ParquetTable>),
}

impl TableRows {
    /// Creates the encoding for a table with these columns.
    ///
    /// # Errors
    /// [`BulkError::UnexpectedAnswer`] if the format does not support such columns.
    pub fn new(format: RowFormat, table: &TableName, columns: &[ColumnInfo]) -> Result<Self, BulkError> {
        let text = |format| Self::Text(Arc::new(TextRows::new(format, table, columns)));
        Ok(match format {
            RowFormat::Tsv => text(TextFormat::Tsv),
            RowFormat::Sql => text(TextFormat::Sql),
            RowFormat::Csv => text(TextFormat::Csv),
            RowFormat::Parquet => Self::Parquet(Arc::new(ParquetTable::new(table, columns)?)),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextFormat {
    Tsv,
    Sql,
    Csv,
}

/// How the rows of a table are encoded as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRows {
    format: TextFormat,
    forms: Vec<TextForm>,
    /// The text at the start of each file.
    head: Vec<u8>,
    /// The text at the start of each INSERT statement.
    insert: Vec<u8>,
}

/// How the values of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextForm {
    /// A number, as the server prints it or with more digits.
    Number,
    /// Text in utf8mb4, which can always be written in quotes.
    Plain,
    /// Text in the column's own character set.
    Text,
    /// Binary values.
    Bytes,
}

impl TextForm {
    fn of(data_type: &str) -> Self {
        match data_type {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "float" | "double"
            | "year" => Self::Number,
            "date" | "time" | "datetime" | "timestamp" | "uuid" | "inet4" | "inet6" | "json" => Self::Plain,
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set"
            | "xmltype" => Self::Text,
            _ => Self::Bytes,
        }
    }
}

/// Returns the expression that a dump selects for a column. CSV and Parquet files, which other programs read,
/// have all text in UTF-8. CSV files have binary values as hexadecimal digits.
pub fn expression(format: RowFormat, column: &ColumnInfo) -> String {
    match (format, TextForm::of(&column.data_type)) {
        (RowFormat::Csv | RowFormat::Parquet, TextForm::Text) => {
            format!("CONVERT({} USING utf8mb4)", quote_identifier(&column.name))
        }
        (RowFormat::Csv, TextForm::Bytes) => format!("HEX({})", quote_identifier(&column.name)),
        _ => selected(column),
    }
}

impl TextRows {
    /// Creates the text encoding for a table with these columns.
    fn new(format: TextFormat, table: &TableName, columns: &[ColumnInfo]) -> Self {
        let names: Vec<_> = columns.iter().map(|column| quote_identifier(&column.name)).collect();
        let target = qualified_name(&table.schema, &table.name);
        let insert = format!("INSERT INTO {target} ({}) VALUES\n", names.join(",")).into_bytes();
        let head = match format {
            TextFormat::Tsv => Vec::new(),
            TextFormat::Sql => SQL_HEAD.as_bytes().to_vec(),
            TextFormat::Csv => {
                let mut line = Vec::new();
                for (index, column) in columns.iter().enumerate() {
                    if index > 0 {
                        line.push(b',');
                    }
                    put_csv(&mut line, column.name.as_bytes());
                }
                line.extend_from_slice(b"\r\n");
                line
            }
        };
        let forms = columns.iter().map(|column| TextForm::of(&column.data_type)).collect();
        Self { format, forms, head, insert }
    }

    /// Returns the text at the start of each file.
    pub fn head(&self) -> &[u8] {
        &self.head
    }
}

/// Encodes the rows of one file as bytes.
#[derive(Debug)]
pub struct RowEncoder {
    table: Arc<TextRows>,
    /// Size of the unfinished INSERT statement in bytes.
    statement_bytes: usize,
}

impl RowEncoder {
    /// Creates the encoder for one file of a table's rows.
    pub fn new(table: Arc<TextRows>) -> Self {
        Self { table, statement_bytes: 0 }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// If the row's bytes are malformed.
    pub fn put(&mut self, row: &RawRow<'_>, out: &mut Vec<u8>) -> Result<(), SessionError> {
        match self.table.format {
            TextFormat::Tsv => tab_separated_rows::put_row(out, row)?,
            TextFormat::Csv => {
                let numbers = self.table.forms.iter().map(|form| *form == TextForm::Number);
                for (index, (value, is_number)) in row.values().zip(numbers).enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    match value? {
                        // In CSV, NULL is an empty field without quotes, and an empty text is a pair of
                        // quotes.
                        None => {}
                        Some(value) if is_number => out.extend_from_slice(value),
                        Some(value) => put_csv(out, value),
                    }
                }
                out.extend_from_slice(b"\r\n");
            }
            TextFormat::Sql => self.put_sql(row, out)?,
        }
        Ok(())
    }

    fn put_sql(&mut self, row: &RawRow<'_>, out: &mut Vec<u8>) -> Result<(), SessionError> {
        let before = out.len();
        match self.statement_bytes {
            0 => out.extend_from_slice(&self.table.insert),
            _ => out.extend_from_slice(b",\n"),
        }
        out.push(b'(');
        // For a table with only generated columns, the dump selects a constant. The loop ignores it, because
        // `forms` has no entry for the constant.
        for (index, (value, form)) in row.values().zip(&self.table.forms).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            put_literal(out, value?, *form);
        }
        out.push(b')');
        self.statement_bytes += out.len() - before;
        if self.statement_bytes >= STATEMENT_BYTES {
            self.end(out);
        }
        Ok(())
    }

    /// Ends the unfinished INSERT statement, if there is one.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.statement_bytes > 0 {
            out.extend_from_slice(b";\n");
            self.statement_bytes = 0;
        }
    }

    /// Returns whether the last INSERT statement is complete, so that other statements may follow.
    pub fn is_between(&self) -> bool {
        self.statement_bytes == 0
    }
}

/// Writes a CSV field in quotes, as in RFC 4180.
fn put_csv(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    for piece in value.split_inclusive(|&byte| byte == b'"') {
        out.extend_from_slice(piece);
        if piece.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}

/// Writes an SQL literal. It contains no byte that the `mysql` or `mariadb` client changes or stops at,
/// whatever its options are.
fn put_literal(out: &mut Vec<u8>, value: Option<&[u8]>, form: TextForm) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let Some(value) = value else {
        out.extend_from_slice(b"NULL");
        return;
    };
    match form {
        // The server would read `-0` as an integer and lose the sign, which floating-point zeros have.
        TextForm::Number if value == b"-0" => out.extend_from_slice(b"-0e0"),
        TextForm::Number => out.extend_from_slice(value),
        TextForm::Bytes if value.is_empty() => out.extend_from_slice(b"''"),
        TextForm::Bytes => {
            out.extend_from_slice(b"0x");
            for byte in value {
                out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
        }
        TextForm::Plain | TextForm::Text => {
            if form == TextForm::Text {
                out.extend_from_slice(b"_binary");
            }
            out.push(b'\'');
            for &byte in value {
                match byte {
                    0 => out.extend_from_slice(b"\\0"),
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    26 => out.extend_from_slice(b"\\Z"),
                    b'\'' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                    other => out.push(other),
                }
            }
            out.push(b'\'');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(value: &[u8], form: TextForm) -> String {
        let mut out = Vec::new();
        put_literal(&mut out, Some(value), form);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn sql_literals_keep_the_exact_value() {
        assert_eq!(literal(b"-1.5", TextForm::of("decimal")), "-1.5");
        assert_eq!(literal(b"-0", TextForm::of("double")), "-0e0");
        assert_eq!(literal(b"a'b\\\0\r\n\x1a", TextForm::of("text")), "_binary'a\\'b\\\\\\0\\r\\n\\Z'");
        assert_eq!(literal(b"{}", TextForm::of("json")), "'{}'");
        assert_eq!(literal(b"\x00\xff", TextForm::of("bit")), "0x00FF");
        assert_eq!(literal(b"", TextForm::of("blob")), "''");
        let mut out = Vec::new();
        put_literal(&mut out, None, TextForm::Bytes);
        assert_eq!(out, b"NULL");
    }

    #[test]
    fn csv_fields_are_quoted() {
        let mut out = Vec::new();
        put_csv(&mut out, b"a\"b\",\r\n");
        assert_eq!(out, b"\"a\"\"b\"\",\r\n\"");
        let column = |name: &str, data_type: &str| ColumnInfo {
            name: name.to_owned(),
            data_type: data_type.to_owned(),
            column_type: data_type.to_owned(),
            charset: None,
            collation: None,
            nullable: true,
        };
        let columns = [column("a", "int"), column("b\"", "text")];
        let table = TextRows::new(TextFormat::Csv, &TableName::new("s", "t"), &columns);
        assert_eq!(table.head(), b"\"a\",\"b\"\"\"\r\n");
    }

    #[test]
    fn csv_and_parquet_files_have_text_in_utf8() {
        let of = |format, data_type: &str| {
            let column = ColumnInfo {
                name: "b".into(),
                data_type: data_type.into(),
                column_type: data_type.into(),
                charset: None,
                collation: None,
                nullable: true,
            };
            expression(format, &column)
        };
        assert_eq!(of(RowFormat::Csv, "text"), "CONVERT(`b` USING utf8mb4)");
        assert_eq!(of(RowFormat::Parquet, "enum"), "CONVERT(`b` USING utf8mb4)");
        assert_eq!(of(RowFormat::Csv, "point"), "HEX(`b`)");
        assert_eq!(of(RowFormat::Parquet, "point"), "`b`");
        assert_eq!(of(RowFormat::Parquet, "float"), "`b` * 1.0e0");
        assert_eq!(of(RowFormat::Tsv, "text"), "`b`");
    }
}
