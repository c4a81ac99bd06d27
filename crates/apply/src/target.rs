//! What the target's tables look like: columns, unique indexes, foreign keys.

use tailwater_wire::Flavour;

use crate::writeset::IndexId;

/// A column of a target's table, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetColumn {
    /// Its name.
    pub name: String,
    /// Its type as `information_schema.columns.column_type` has it, in lower case.
    pub column_type: String,
    /// Its collation; `None` for columns that are no text. `binary` for none.
    pub collation: Option<String>,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// `GENERATED ALWAYS AS (...) VIRTUAL` or `STORED`: its value cannot be set.
    pub generated: bool,
    /// Of those, stored.
    pub stored: bool,
    /// `AUTO_INCREMENT`.
    pub auto_increment: bool,
}

/// A column in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPart {
    /// Index of the column, from 0.
    pub column: usize,
    /// Length of the prefix in characters (bytes for binary columns); `None` for the whole column.
    pub prefix: Option<u32>,
}

/// A unique index, or the columns that a foreign key points from or to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueIndex {
    /// Its number in writesets.
    pub id: IndexId,
    /// Its name; `PRIMARY` for the primary key.
    pub name: String,
    /// Its columns, in order.
    pub parts: Vec<IndexPart>,
    /// Some part of it is an expression, so its values cannot be told from a row: every row conflicts with every other.
    pub opaque: bool,
}

/// A foreign key of a child table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// The parent's index in writesets: of the columns that are pointed to. If those are a unique index, that index'.
    pub parent_index: IndexId,
    /// The columns of the parent that are pointed to, from 0, in the order of the key. Only known in the parent's own
    /// [`TargetTable::children`]; empty in the child's.
    pub parent_columns: Vec<usize>,
    /// The child's columns, from 0, in the same order. Only known in the child's own [`TargetTable::parents`]; empty in
    /// the parent's.
    pub child_columns: Vec<usize>,
    /// The child's own rows as a whole, in writesets: what conflicts with a parent's key that changes or goes.
    pub child_rows: IndexId,
}

/// A table of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetTable {
    /// The server's family.
    pub flavour: Flavour,
    /// The database.
    pub schema: String,
    /// The table.
    pub table: String,
    /// Whether its engine has transactions: what is written to it goes with progress, or not at all.
    pub transactional: bool,
    /// Its storage engine, in upper case; that of its partitions, if it has some.
    pub engine: String,
    /// Whether it has partitions.
    pub partitioned: bool,
    /// Its columns, in order, those that MySQL hides and never logs left out.
    pub columns: Vec<TargetColumn>,
    /// The rows of the table as a whole, in writesets: exclusive for a row that no unique index identifies; shared for
    /// any other row of a table that has parents.
    pub rows: IndexId,
    /// Its unique indexes, the primary key first if there is one.
    pub unique: Vec<UniqueIndex>,
    /// Whether the first of them is a primary key.
    pub has_primary_key: bool,
    /// Its foreign keys.
    pub parents: Vec<ForeignKey>,
    /// Foreign keys of others that point to it.
    pub children: Vec<ForeignKey>,
    /// The rows, as a whole, of all tables that may change unseen when a row of this one goes or a column of it that
    /// foreign keys point to changes: what cascades is in no binlog. With what depends on those in turn.
    pub cascades: Vec<IndexId>,
}

impl TargetTable {
    /// Whether the server opens other tables with it (MERGE). It then loses the rows of tables that a source mapped in front of it
    /// in one statement: `Rows_log_event::do_apply_event` of both flavours counts the tables of a MERGE table among those that
    /// were mapped, and passes over rows whose table it has not counted to.
    pub fn opens_others(&self) -> bool {
        self.engine.starts_with("MRG_")
    }

    /// Whether it must not be in one statement with other tables: one that [opens others](Self::opens_others), and a
    /// system table, which servers lock for writing only without others (error 1428).
    pub fn stands_alone(&self) -> bool {
        self.opens_others() || self.schema == "mysql"
    }

    /// How often the server's `Handler_write`, `Handler_update` and `Handler_delete` count a row at least. MariaDB counts it itself:
    /// the row of a partitioned table twice, in the table and in the partition. In MySQL engines count, and BLACKHOLE does not.
    pub fn counted_per_row(&self) -> u64 {
        const COUNTING: [&str; 6] = ["INNODB", "MYISAM", "MRG_MYISAM", "MEMORY", "CSV", "ARCHIVE"];
        match self.flavour {
            Flavour::MariaDb if self.partitioned => 2,
            Flavour::MariaDb => 1,
            Flavour::MySql => u64::from(COUNTING.contains(&self.engine.as_str())),
        }
    }

    /// The primary key, if it has one.
    pub fn primary_key(&self) -> Option<&UniqueIndex> {
        self.unique.first().filter(|_| self.has_primary_key)
    }
}
