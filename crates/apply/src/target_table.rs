//! Definitions of the target's tables: columns, indexes, foreign keys.

use tailwater_wire::Flavour;

use crate::writeset::IndexId;

/// A column of a target table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetColumn {
    /// Column name.
    pub name: String,
    /// The type from `information_schema.columns.column_type`, in lower case.
    pub column_type: String,
    /// The collation. `None` for columns that are not strings; `binary` for binary strings.
    pub collation: Option<String>,
    /// Whether the column may be NULL.
    pub nullable: bool,
    /// Whether the column is `GENERATED ALWAYS AS (...)`, `VIRTUAL` or `STORED`. A statement cannot set its
    /// value.
    pub generated: bool,
    /// Whether the column is generated and `STORED`.
    pub stored: bool,
    /// In a system-versioned table (MariaDB): which bound of the row's period the column holds.
    pub period: Option<PeriodBound>,
    /// Whether the column is `AUTO_INCREMENT`.
    pub auto_increment: bool,
}

/// A bound of the period in which a version of a row is valid (system-versioned tables).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodBound {
    /// The column holds the start of the period: `GENERATED ALWAYS AS ROW START`.
    Start,
    /// The column holds the end of the period: `GENERATED ALWAYS AS ROW END`.
    End,
}

/// A column in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPart {
    /// Index of the column in the table, from 0.
    pub column: usize,
    /// Prefix length in characters (bytes for binary columns); `None` for the whole column.
    pub prefix: Option<u32>,
}

/// A unique index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueIndex {
    /// The ID of the index in writesets.
    pub id: IndexId,
    /// Index name; `PRIMARY` for the primary key.
    pub name: String,
    /// The columns of the index, in order.
    pub parts: Vec<IndexPart>,
    /// Whether a part of the index is an expression, so that its values cannot be computed from a row image.
    /// Every row then conflicts with every other row.
    pub opaque: bool,
}

/// A foreign key of a child table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// The writeset ID of the referenced columns in the parent table. If these columns form a unique index,
    /// it is the ID of that index.
    pub parent_index: IndexId,
    /// The referenced columns of the parent, counted from 0, in key order. Set only in the parent's list
    /// [`TargetTable::children`]; empty in the child's list.
    pub parent_columns: Vec<usize>,
    /// The columns of the child that reference the parent's columns, counted from 0, in key order. Set only
    /// in the child's list [`TargetTable::parents`]; empty in the parent's list.
    pub child_columns: Vec<usize>,
    /// The writeset ID that represents all rows of the child table. A transaction that changes or deletes a
    /// referenced parent key conflicts with this ID.
    pub child_rows: IndexId,
}

/// A table of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetTable {
    /// The flavour of the target.
    pub flavour: Flavour,
    /// Database name.
    pub schema: String,
    /// Table name.
    pub table: String,
    /// Whether the engine is transactional. Only with a transactional engine, the rows and the channel's
    /// progress commit together.
    pub transactional: bool,
    /// Storage engine in upper case; for a partitioned table, the engine of its partitions.
    pub engine: String,
    /// Whether the table is partitioned.
    pub partitioned: bool,
    /// The columns in order, without those that MySQL hides and never logs.
    pub columns: Vec<TargetColumn>,
    /// The writeset ID that represents all rows of the table. A transaction takes exclusive access to this ID
    /// if it changes a row without a usable unique index, or rows that [are written in
    /// order](Self::is_written_in_order). If it changes only other rows, it takes shared access to the ID,
    /// and only if the table has foreign keys to parent tables.
    pub rows: IndexId,
    /// The unique indexes. The primary key comes first, if there is one.
    pub unique: Vec<UniqueIndex>,
    /// Whether the first unique index is a primary key.
    pub has_primary_key: bool,
    /// Foreign keys of this table.
    pub parents: Vec<ForeignKey>,
    /// Foreign keys of other tables that reference this one.
    pub children: Vec<ForeignKey>,
    /// The writeset IDs of all tables, including indirect children, whose rows may change by a cascade from
    /// this table. A cascade happens when a row is deleted or a referenced column changes. The binlog does
    /// not contain the changes of a cascade.
    pub cascades: Vec<IndexId>,
}

impl TargetTable {
    /// Returns whether the server opens other tables together with this table, as for a MERGE table. Such a
    /// table must be alone in a statement, because otherwise the server loses rows. In both flavours,
    /// `Rows_log_event::do_apply_event` counts the tables below a MERGE table as mapped tables of the
    /// statement. The server therefore skips the rows of the statement's last mapped tables.
    pub fn opens_others(&self) -> bool {
        self.engine.starts_with("MRG_")
    }

    /// Returns whether this table must be alone in a statement. This is true for a table that [opens
    /// others](Self::opens_others). It is also true for a system table, because a server locks it for writing
    /// only without other tables (error 1428).
    pub fn must_be_alone(&self) -> bool {
        self.opens_others() || self.schema == "mysql"
    }

    /// Returns the minimum number that `Handler_write`, `Handler_update` and `Handler_delete` count for one
    /// row. MariaDB counts a row of a partitioned table twice: in the table and in the partition. In MySQL
    /// the storage engine counts the rows, and BLACKHOLE counts none.
    pub fn counted_per_row(&self) -> u64 {
        const COUNTING: [&str; 6] = ["INNODB", "MYISAM", "MRG_MYISAM", "MEMORY", "CSV", "ARCHIVE"];
        match self.flavour {
            Flavour::MariaDb if self.partitioned => 2,
            Flavour::MariaDb => 1,
            Flavour::MySql => u64::from(COUNTING.contains(&self.engine.as_str())),
        }
    }

    /// Returns whether rows must be inserted and updated in the source's order even if they share no key.
    /// This is true if the table has a column `FTS_DOC_ID`, the document identifier of InnoDB's full-text
    /// index. InnoDB rejects an identifier that is not above the largest in the table, or is 65,535 or more
    /// above it (error 182; `row_insert_for_mysql` and `row_upd_step` in `row0mysql.cc`).
    pub fn is_written_in_order(&self) -> bool {
        // InnoDB recognizes the column `FTS_DOC_ID` only if its name is in upper case.
        self.engine == "INNODB" && self.columns.iter().any(|column| column.name == "FTS_DOC_ID")
    }

    /// Returns the primary key, if the table has one.
    pub fn primary_key(&self) -> Option<&UniqueIndex> {
        self.unique.first().filter(|_| self.has_primary_key)
    }
}
