//! Writes a Parquet file. Rows are collected in memory, column by column, until they fill a row group.

use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::basic::{Compression as Codec, GzipLevel, Repetition, Type as Physical, ZstdLevel};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::{ByteArray, FixedLenByteArray};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type, TypePtr};
use bytes::Bytes;
use tailwater_session::RawRow;

use super::parquet_column_types::ParquetKind;
use super::parquet_value_conversion;
use crate::dump_folder::{DumpCompression, NulledValues};
use tailwater_files::file_store::NewFile;
use tailwater_tables::chunker::table_info::ColumnInfo;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::TableName;

/// Approximate size of a row group in bytes. Each connection needs this much memory.
const GROUP_BYTES: usize = 16 << 20;

/// Maximum number of rows in a row group. Programs that read the file distribute row groups over their
/// threads, so a group must not be too large.
const GROUP_ROWS_MAX: usize = 1 << 20;

/// Number of values that are passed to the Parquet writer at once, for a column whose values are byte arrays.
const BATCH_ROWS: usize = 1024;

/// The Parquet schema that all files of a table share.
#[derive(Debug)]
pub struct ParquetTable {
    name: TableName,
    columns: Vec<ParquetColumn>,
    schema: TypePtr,
}

#[derive(Debug)]
struct ParquetColumn {
    name: String,
    kind: ParquetKind,
    /// Whether a value of the column may be NULL in the file.
    optional: bool,
}

impl ParquetTable {
    /// Creates the schema for a table with these columns. A table without columns to dump gets a column for
    /// the selected constant 1.
    ///
    /// # Errors
    /// [`BulkError::UnexpectedAnswer`] if Parquet does not support such columns.
    pub fn new(name: &TableName, columns: &[ColumnInfo]) -> Result<Self, BulkError> {
        let column = |column: &ColumnInfo| {
            let kind = ParquetKind::of(&column.data_type, &column.column_type);
            ParquetColumn {
                name: column.name.clone(),
                kind,
                optional: column.nullable || kind.may_be_impossible(),
            }
        };
        let mut columns: Vec<_> = columns.iter().map(column).collect();
        if columns.is_empty() {
            let kind = ParquetKind::Integer { bits: 32, signed: true };
            columns.push(ParquetColumn { name: "1".to_owned(), kind, optional: false });
        }
        let fields =
            columns.iter().map(|column| column.kind.field(&column.name, column.optional).map(Arc::new));
        let schema = fields.collect::<Result<_, _>>().and_then(|fields| {
            let schema = Type::group_type_builder("schema").with_repetition(Repetition::REQUIRED);
            schema.with_fields(fields).build()
        });
        let no_columns = |error| BulkError::UnexpectedAnswer {
            table: name.to_string(),
            reason: format!("Parquet does not support its columns: {error}"),
        };
        Ok(Self { name: name.clone(), columns, schema: Arc::new(schema.map_err(no_columns)?) })
    }
}

/// A Parquet file to which rows are written.
pub struct ParquetFile {
    /// The path of the file, for error messages.
    path: PathBuf,
    table: Arc<ParquetTable>,
    writer: SerializedFileWriter<ChecksumWriter>,
    columns: Vec<ColumnBuffer>,
    rows_held: usize,
    bytes_held: usize,
}

impl ParquetFile {
    /// Creates the file.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn new(
        file: Box<dyn NewFile>,
        path: &Path,
        table: &Arc<ParquetTable>,
        compression: DumpCompression,
        level: i32,
    ) -> Result<Self, BulkError> {
        let created_by = format!("tailwater version {}", env!("CARGO_PKG_VERSION"));
        let writer = codec(compression, level).and_then(|codec| {
            let properties = WriterProperties::builder().set_compression(codec).set_created_by(created_by);
            let file = ChecksumWriter { file: Some(file), checksum: crc32fast::Hasher::new() };
            SerializedFileWriter::new(file, Arc::clone(&table.schema), Arc::new(properties.build()))
        });
        Ok(Self {
            path: path.to_owned(),
            table: Arc::clone(table),
            writer: writer.map_err(|error| not_written(path, error))?,
            columns: table.columns.iter().map(ColumnBuffer::new).collect(),
            rows_held: 0,
            bytes_held: 0,
        })
    }

    /// Adds a row to the collected rows. Returns the size of its values in bytes. Writes nothing to the file
    /// yet.
    ///
    /// # Errors
    /// [`BulkError::Session`] if the row's bytes are malformed; [`BulkError::UnexpectedAnswer`] if a value
    /// does not fit its type.
    pub fn put(&mut self, row: &RawRow<'_>) -> Result<usize, BulkError> {
        let mut bytes = 0;
        for ((value, held), column) in row.values().zip(&mut self.columns).zip(&self.table.columns) {
            let value = value?;
            let taken = held.put(column, value);
            bytes += taken.ok_or_else(|| BulkError::UnexpectedAnswer {
                table: self.table.name.to_string(),
                reason: format!("{} in column {}", shown(value), column.name),
            })?;
        }
        self.rows_held += 1;
        self.bytes_held += bytes;
        Ok(bytes)
    }

    /// Returns whether the collected rows fill a row group.
    pub fn is_group(&self) -> bool {
        self.bytes_held >= GROUP_BYTES || self.rows_held >= GROUP_ROWS_MAX
    }

    /// Writes the collected rows as a row group.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn write_group(&mut self) -> Result<(), BulkError> {
        if self.rows_held == 0 {
            return Ok(());
        }
        (self.rows_held, self.bytes_held) = (0, 0);
        self.write_columns().map_err(|error| not_written(&self.path, error))
    }

    fn write_columns(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut writer) = group.next_column()? else { break };
            column.write(writer.untyped())?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the remaining rows and the end of the file.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub fn end(mut self) -> Result<WrittenParquet, BulkError> {
        self.write_group()?;
        // The file is taken out of the Parquet writer, because that writer would convert an I/O error to
        // text.
        let finished = self.writer.finish().map(|_| mem::take(self.writer.inner_mut()));
        let ChecksumWriter { file, checksum } = finished.map_err(|error| not_written(&self.path, error))?;
        let file = file.ok_or(BulkError::File {
            action: "finish",
            path: self.path.clone(),
            source: io::ErrorKind::NotConnected.into(),
        })?;
        let nulled = self.table.columns.iter().zip(&self.columns).filter(|(_, held)| held.nulled > 0);
        let nulled =
            nulled.map(|(column, held)| NulledValues { column: column.name.clone(), values: held.nulled });
        Ok(WrittenParquet { file, crc32: checksum.finalize(), nulled: nulled.collect() })
    }
}

/// A file that has all its bytes, but is not durable yet.
pub struct WrittenParquet {
    /// The file, which the caller makes durable.
    pub file: Box<dyn NewFile>,
    /// The CRC32 of the file's bytes.
    pub crc32: u32,
    /// For each column, the number of values that are NULL in the file but not on the server.
    pub nulled: Vec<NulledValues>,
}

fn codec(compression: DumpCompression, level: i32) -> Result<Codec, ParquetError> {
    Ok(match compression {
        DumpCompression::None => Codec::UNCOMPRESSED,
        DumpCompression::Zstd => Codec::ZSTD(ZstdLevel::try_new(level)?),
        DumpCompression::Gzip => Codec::GZIP(GzipLevel::try_new(level.unsigned_abs())?),
    })
}

fn not_written(path: &Path, error: ParquetError) -> BulkError {
    let source = match error {
        ParquetError::External(error) => match error.downcast() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    };
    BulkError::File { action: "write", path: path.to_owned(), source }
}

/// Returns the beginning of a value, for error messages.
fn shown(value: Option<&[u8]>) -> String {
    let beginning =
        |value: &[u8]| format!("the value {:?}", String::from_utf8_lossy(&value[..value.len().min(40)]));
    value.map_or_else(|| "NULL".to_owned(), beginning)
}

/// A file, and the checksum of the bytes written to it.
#[derive(Default)]
struct ChecksumWriter {
    /// The file; `None` after it was taken out.
    file: Option<Box<dyn NewFile>>,
    checksum: crc32fast::Hasher,
}

impl Write for ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.open()?.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open()?.flush()
    }
}

impl ChecksumWriter {
    fn open(&mut self) -> io::Result<&mut Box<dyn NewFile>> {
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// The collected values of a column.
struct ColumnBuffer {
    /// The values that are not NULL.
    values: ColumnValues,
    /// One entry for each row, if the column may be NULL: 1 if the value is present, 0 if it is NULL
    /// (Parquet's definition levels).
    levels: Vec<i16>,
    /// Number of values that are NULL in the file but not on the server.
    nulled: u64,
}

enum ColumnValues {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(ByteValues),
    Fixed(ByteValues),
}

/// Byte values, one after the other in one buffer.
#[derive(Default)]
struct ByteValues {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ColumnBuffer {
    fn new(column: &ParquetColumn) -> Self {
        let values = match column.kind.physical() {
            Physical::INT32 => ColumnValues::Int32(Vec::new()),
            Physical::INT64 => ColumnValues::Int64(Vec::new()),
            Physical::FLOAT => ColumnValues::Float(Vec::new()),
            Physical::DOUBLE => ColumnValues::Double(Vec::new()),
            Physical::FIXED_LEN_BYTE_ARRAY => ColumnValues::Fixed(ByteValues::default()),
            Physical::BYTE_ARRAY | Physical::BOOLEAN | Physical::INT96 => {
                ColumnValues::Bytes(ByteValues::default())
            }
        };
        Self { values, levels: Vec::new(), nulled: 0 }
    }

    /// Adds a value. Returns its size in bytes; `None` if it does not fit the column.
    fn put(&mut self, column: &ParquetColumn, value: Option<&[u8]>) -> Option<usize> {
        let taken = match value {
            Some(value) => self.values.put(column.kind, value)?,
            None => None,
        };
        self.nulled += u64::from(value.is_some() && taken.is_none());
        if !column.optional {
            return taken;
        }
        self.levels.push(taken.is_some().into());
        Some(taken.unwrap_or(0) + size_of::<i16>())
    }

    /// Writes the collected values.
    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = mem::take(&mut self.levels);
        // A column that may not be NULL has no definition levels.
        let levels = (!levels.is_empty()).then_some(&levels[..]);
        match (&mut self.values, writer) {
            (ColumnValues::Int32(values), ColumnWriter::Int32ColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (ColumnValues::Int64(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (ColumnValues::Float(values), ColumnWriter::FloatColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (ColumnValues::Double(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (ColumnValues::Bytes(pieces), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                pieces
                    .write(levels, |values: &[ByteArray], levels| writer.write_batch(values, levels, None))?;
            }
            (ColumnValues::Fixed(pieces), ColumnWriter::FixedLenByteArrayColumnWriter(writer)) => {
                pieces.write(levels, |values: &[FixedLenByteArray], levels| {
                    writer.write_batch(values, levels, None)
                })?;
            }
            _ => return Err(ParquetError::General("the column has another type than its buffer".to_owned())),
        }
        Ok(())
    }
}

impl ColumnValues {
    /// Adds a value. Returns its size in bytes; `Some(None)` if Parquet cannot represent the value; `None` if
    /// the value does not fit the type.
    fn put(&mut self, kind: ParquetKind, value: &[u8]) -> Option<Option<usize>> {
        match self {
            Self::Int32(numbers) => {
                let Some(number) = parquet_value_conversion::whole(kind, value)? else { return Some(None) };
                numbers.push(parquet_value_conversion::narrow(kind, number)?);
                Some(Some(size_of::<i32>()))
            }
            Self::Int64(numbers) => {
                let Some(number) = parquet_value_conversion::whole(kind, value)? else { return Some(None) };
                numbers.push(number);
                Some(Some(size_of::<i64>()))
            }
            // The dump selects a FLOAT column as a DOUBLE, which is exact.
            Self::Float(numbers) => {
                numbers.push(parquet_value_conversion::double(value)? as f32);
                Some(Some(size_of::<f32>()))
            }
            Self::Double(numbers) => {
                numbers.push(parquet_value_conversion::double(value)?);
                Some(Some(size_of::<f64>()))
            }
            Self::Bytes(pieces) => {
                if kind != ParquetKind::Bytes {
                    parquet_value_conversion::text(value)?;
                }
                Some(Some(pieces.put(value)))
            }
            Self::Fixed(pieces) => {
                let ParquetKind::Decimal { scale, .. } = kind else { return None };
                Some(Some(pieces.put(&parquet_value_conversion::unscaled(value, scale)?.to_be_bytes())))
            }
        }
    }
}

impl ByteValues {
    fn put(&mut self, value: &[u8]) -> usize {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
        value.len() + size_of::<usize>()
    }

    /// Writes all values in small batches. Then frees the memory of the values, so that it does not stay
    /// occupied after a huge row.
    fn write<T: From<ByteArray>>(
        &mut self,
        levels: Option<&[i16]>,
        mut write: impl FnMut(&[T], Option<&[i16]>) -> Result<usize, ParquetError>,
    ) -> Result<(), ParquetError> {
        let (bytes, ends) = (Bytes::from(mem::take(&mut self.bytes)), mem::take(&mut self.ends));
        let mut begin = 0;
        let mut values = ends.iter().map(|&end| {
            let value = bytes.slice(mem::replace(&mut begin, end)..end);
            T::from(ByteArray::from(value))
        });
        match levels {
            None => {
                for _ in (0..ends.len()).step_by(BATCH_ROWS) {
                    let values: Vec<_> = values.by_ref().take(BATCH_ROWS).collect();
                    write(&values, None)?;
                }
            }
            Some(levels) => {
                for levels in levels.chunks(BATCH_ROWS) {
                    let present = levels.iter().filter(|&&level| level > 0).count();
                    let values: Vec<_> = values.by_ref().take(present).collect();
                    write(&values, Some(levels))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tailwater_wire::protocol::resultset::encode_text_row;

    use super::*;

    fn table(columns: &[(&str, bool)]) -> Arc<ParquetTable> {
        let column = |(number, (column_type, nullable)): (usize, &(&str, bool))| ColumnInfo {
            name: format!("c{number}"),
            data_type: column_type.split('(').next().unwrap_or_default().to_owned(),
            column_type: (*column_type).to_owned(),
            charset: None,
            collation: None,
            nullable: *nullable,
        };
        let columns: Vec<_> = columns.iter().enumerate().map(column).collect();
        Arc::new(
            ParquetTable::new(&TableName::new("s", "t"), &columns).expect("Parquet supports the columns"),
        )
    }

    fn file(table: &Arc<ParquetTable>, bytes_max: usize) -> ParquetFile {
        let file = Box::new(Disk { bytes: 0, bytes_max });
        ParquetFile::new(file, Path::new("t.parquet"), table, DumpCompression::None, 0)
            .expect("the file is created")
    }

    /// A file that fails like a disk without free space.
    struct Disk {
        bytes: usize,
        bytes_max: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes += bytes.len();
            if self.bytes > self.bytes_max { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl NewFile for Disk {
        fn finish(self: Box<Self>, _durable: bool) -> io::Result<u64> {
            Ok(self.bytes as u64)
        }
    }

    fn put(file: &mut ParquetFile, values: &[Option<&[u8]>]) -> Result<usize, BulkError> {
        let mut payload = Vec::new();
        encode_text_row(values.iter().copied(), &mut payload);
        file.put(&RawRow::new(&payload, values.len()))
    }

    #[test]
    fn values_that_do_not_fit_their_column_are_refused() {
        let table =
            table(&[("int(11)", false), ("varchar(9)", true), ("decimal(20,2)", true), ("float", true)]);
        for (values, reason) in [
            ([None, None, None, None], "NULL in column c0"),
            ([Some(&b"x"[..]), None, None, None], "the value \"x\" in column c0"),
            ([Some(b"2147483648"), None, None, None], "in column c0"),
            ([Some(b"1"), Some(b"\xff"), None, None], "in column c1"),
            ([Some(b"1"), None, Some(b"1.234"), None], "in column c2"),
            ([Some(b"1"), None, None, Some(b"")], "in column c3"),
        ] {
            let refused = put(&mut file(&table, usize::MAX), &values);
            let Err(BulkError::UnexpectedAnswer { table, reason: found }) = refused else {
                panic!("the row was not refused: {refused:?}")
            };
            assert!(
                table == "s.t" && found.contains(reason),
                "the error names another table or reason: {found}"
            );
        }
        assert!(put(&mut file(&table, usize::MAX), &[Some(b"1"), None, None, None]).is_ok());
    }

    #[test]
    fn row_groups_end_at_their_maximum_of_rows_or_bytes() {
        let table = table(&[("tinyint(4)", false), ("longtext", false)]);
        let mut file = file(&table, usize::MAX);
        for _ in 1..GROUP_ROWS_MAX / 4 {
            assert_eq!(put(&mut file, &[Some(b"1"), Some(b"")]).expect("the row is valid"), 12);
        }
        assert!(!file.is_group());
        put(&mut file, &[Some(b"1"), Some(&vec![b'x'; GROUP_BYTES])]).expect("the row is valid");
        assert!(file.is_group());
        file.write_group().expect("the row group is written");
        assert!(!file.is_group() && file.rows_held == 0);
        let WrittenParquet { nulled, .. } = file.end().expect("the file is finished");
        assert_eq!(nulled, []);
    }

    #[test]
    fn a_full_disk_is_reported_at_every_write() {
        let table = table(&[("longtext", false)]);
        let value = vec![b'x'; 100_000];
        let write = |bytes_max| {
            let mut file = file(&table, bytes_max);
            put(&mut file, &[Some(&value)])?;
            file.write_group()?;
            file.end()?
                .file
                .finish(true)
                .map_err(|error| panic!("the disk has space, but the file cannot be finished: {error}"))
        };
        let bytes = usize::try_from(write(usize::MAX).expect("the disk has space"))
            .expect("the size fits into usize");
        for bytes_max in [0, 50_000, bytes - 1] {
            let refused = write(bytes_max);
            let Err(BulkError::File { action: "write", path, source }) = refused else {
                panic!("the full disk was not reported: {refused:?}")
            };
            assert!(
                path == Path::new("t.parquet") && source.kind() == io::ErrorKind::StorageFull,
                "the error is not about a full disk: {source}"
            );
        }
        assert!(write(bytes).is_ok());
    }
}
