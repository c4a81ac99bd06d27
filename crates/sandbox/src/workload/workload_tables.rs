//! The tables of the workload, and the digests by which their rows are recognised in a log.

use tailwater_session::{ConnectOptions, Connection, SessionError};

/// The database of the workload.
pub const SCHEMA: &str = "tw_load";

/// Number of accounts. All workers share them.
pub(crate) const ACCOUNTS: i64 = 1000;
/// Initial balance of each account. Transfers do not change the sum of all balances.
pub(crate) const FIRST_BALANCE: i64 = 1_000_000;

/// A table of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkloadTable {
    /// One row for each transaction: worker, sequence number, number of row changes and their digest.
    Ledger,
    /// Rows with columns of many types. Each row is written by one worker only.
    Orders,
    /// A few rows for each order, with a primary key of two columns.
    Items,
    /// A few rows that all workers update, so that they conflict.
    Accounts,
    /// Rows with long texts.
    Documents,
}

impl WorkloadTable {
    /// All tables.
    pub const ALL: [Self; 5] = [Self::Ledger, Self::Orders, Self::Items, Self::Accounts, Self::Documents];

    /// Returns the name of the table in [`SCHEMA`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Ledger => "tw_ledger",
            Self::Orders => "orders",
            Self::Items => "items",
            Self::Accounts => "accounts",
            Self::Documents => "documents",
        }
    }

    /// Returns the table with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the number of columns, how many of the first columns are the primary key, and which column is
    /// the stamp (a digest of the row).
    pub(crate) fn shape(self) -> WorkloadTableShape {
        let shape = |columns, key_columns| WorkloadTableShape { columns, key_columns, stamp: columns - 1 };
        match self {
            Self::Ledger => WorkloadTableShape { columns: 5, key_columns: 2, stamp: 3 },
            Self::Orders => shape(6, 1),
            Self::Items => shape(7, 2),
            Self::Accounts => shape(3, 1),
            Self::Documents => shape(4, 1),
        }
    }

    /// Whether the stamp is the digest of the row's other columns. For accounts it is not, because the server
    /// computes the balance.
    pub(crate) fn stamp_covers_row(self) -> bool {
        matches!(self, Self::Orders | Self::Items | Self::Documents)
    }
}

/// The result of [`WorkloadTable::shape`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkloadTableShape {
    pub(crate) columns: usize,
    pub(crate) key_columns: usize,
    pub(crate) stamp: usize,
}

// All integers are signed, because MariaDB's binlog does not record whether a column is unsigned.
const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS tw_load.tw_ledger (
        worker INT NOT NULL, sequence BIGINT NOT NULL, changes INT NOT NULL, digest BIGINT NOT NULL,
        payload VARCHAR(1024) NOT NULL, PRIMARY KEY (worker, sequence)) ENGINE=InnoDB CHARACTER SET utf8mb4",
    "CREATE TABLE IF NOT EXISTS tw_load.orders (
        id BIGINT NOT NULL PRIMARY KEY, customer VARCHAR(80) NOT NULL, amount DECIMAL(12,2) NOT NULL,
        placed DATETIME(6) NOT NULL, note TEXT NULL, stamp BIGINT NOT NULL, KEY (customer))
        ENGINE=InnoDB CHARACTER SET utf8mb4",
    "CREATE TABLE IF NOT EXISTS tw_load.items (
        order_id BIGINT NOT NULL, line INT NOT NULL, sku VARCHAR(32) NOT NULL, quantity SMALLINT NOT NULL,
        weight DOUBLE NOT NULL, label VARBINARY(200) NULL, stamp BIGINT NOT NULL,
        PRIMARY KEY (order_id, line), KEY (sku)) ENGINE=InnoDB CHARACTER SET utf8mb4",
    "CREATE TABLE IF NOT EXISTS tw_load.accounts (
        id INT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, stamp BIGINT NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS tw_load.documents (
        id BIGINT NOT NULL PRIMARY KEY, body MEDIUMTEXT NOT NULL,
        state ENUM('draft','final','void') NOT NULL, stamp BIGINT NOT NULL) ENGINE=InnoDB CHARACTER SET utf8mb4",
];

/// Creates the schema and the accounts if they do not exist. Call it once before the workload. Under
/// semi-sync it needs a replica that acknowledges.
///
/// # Errors
/// The errors of [`Connection::execute`].
pub async fn prepare(options: &ConnectOptions) -> Result<(), SessionError> {
    let mut connection = Connection::connect(options).await?;
    connection.execute("CREATE DATABASE IF NOT EXISTS tw_load CHARACTER SET utf8mb4").await?;
    for table in TABLES {
        connection.execute(table).await?;
    }
    let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id},{FIRST_BALANCE},0)")).collect();
    connection.execute(&format!("INSERT IGNORE INTO tw_load.accounts VALUES {}", rows.join(","))).await?;
    connection.close().await;
    Ok(())
}

/// How a row changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// A new row.
    Insert,
    /// A new version of a row.
    Update,
    /// A deleted row.
    Delete,
}

/// Replaces the stamp of a deleted row, because a minimal row image contains only its key.
pub(crate) const DELETED: i64 = 0;

/// Returns the digest of one row change: of the row's key and of the stamp of its new version ([`DELETED`] if
/// there is none). The digest of a transaction is the wrapping sum of these digests, so the order of the
/// changes does not matter.
pub(crate) fn change_digest(table: WorkloadTable, kind: ChangeKind, key: [i64; 2], stamp: i64) -> i64 {
    let salt = (table as u64) << 8 | kind as u64;
    [key[0], key[1], stamp].iter().fold(mix(salt), |hash, value| mix(hash ^ *value as u64)) as i64
}

/// A column's value, as it is included in the stamp of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StampField<'a> {
    Null,
    Integer(i64),
    Double(f64),
    /// Character data unchanged; decimals and times as the server prints them.
    Bytes(&'a [u8]),
}

/// The digest of a row's columns in order, without the stamp column itself.
#[derive(Debug, Clone)]
pub(crate) struct RowStamp(u64);

impl RowStamp {
    pub(crate) fn new() -> Self {
        Self(0x7457_4c44)
    }

    pub(crate) fn field(mut self, field: StampField<'_>) -> Self {
        let (tag, value) = match field {
            StampField::Null => (0, 0),
            StampField::Integer(value) => (1, value as u64),
            StampField::Double(value) => (2, value.to_bits()),
            StampField::Bytes(bytes) => (3, hash_bytes(bytes)),
        };
        self.0 = mix(mix(self.0 ^ tag) ^ value);
        self
    }

    pub(crate) fn finish(self) -> i64 {
        self.0 as i64
    }
}

/// Returns the digest of the payload of a ledger row. Transactions that change other tables have an empty
/// payload, which adds nothing.
pub(crate) fn payload_digest(payload: &[u8]) -> i64 {
    if payload.is_empty() { 0 } else { hash_bytes(payload) as i64 }
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = mix(bytes.len() as u64);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut array = [0; 8];
        array.copy_from_slice(word);
        hash = mix(hash ^ u64::from_le_bytes(array));
    }
    let rest = words.remainder().iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
    mix(hash ^ rest)
}

/// The finaliser of SplitMix64: each bit of the input changes about half of the output's bits.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_differ_by_table_kind_key_and_version() {
        let base = change_digest(WorkloadTable::Orders, ChangeKind::Insert, [1, 0], 9);
        for other in [
            change_digest(WorkloadTable::Items, ChangeKind::Insert, [1, 0], 9),
            change_digest(WorkloadTable::Orders, ChangeKind::Update, [1, 0], 9),
            change_digest(WorkloadTable::Orders, ChangeKind::Insert, [0, 1], 9),
            change_digest(WorkloadTable::Orders, ChangeKind::Insert, [1, 0], 10),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn stamps_differ_by_value_and_column() {
        let stamp = |fields: &[StampField<'_>]| {
            fields.iter().fold(RowStamp::new(), |stamp, field| stamp.field(*field)).finish()
        };
        let base = stamp(&[StampField::Bytes(b"ab"), StampField::Bytes(b"c")]);
        assert_ne!(base, stamp(&[StampField::Bytes(b"a"), StampField::Bytes(b"bc")]));
        assert_ne!(stamp(&[StampField::Null]), stamp(&[StampField::Bytes(b"")]));
        assert_ne!(stamp(&[StampField::Integer(0)]), stamp(&[StampField::Double(0.0)]));
        assert_ne!(hash_bytes(b"abcdefgh"), hash_bytes(b"abcdefgh\0"));
    }
}
