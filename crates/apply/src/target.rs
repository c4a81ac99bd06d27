//! Definitions of the target's tables: columns, unique indexes, foreign keys.

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
    /// Whether it may be NULL.
    pub nullable: bool,
    /// `GENERATED ALWAYS AS (...) VIRTUAL` or `STORED`. Statements cannot set its value.
    pub generated: bool,
    /// Generated and `STORED`.
    pub stored: bool,
    /// The bound of a row's period that it holds, in a system-versioned table (MariaDB).
    pub period: Option<PeriodBound>,
    /// `AUTO_INCREMENT`.
    pub auto_increment: bool,
}

/// A bound of the period of a system-versioned row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodBound {
    /// `GENERATED ALWAYS AS ROW START`.
    Start,
    /// `GENERATED ALWAYS AS ROW END`.
    End,
}

/// A column in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPart {
    /// Column index, from 0.
    pub column: usize,
    /// Prefix length in characters (bytes for binary columns); `None` for the whole column.
    pub prefix: Option<u32>,
}

/// A unique index, or the column list of a foreign key on either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueIndex {
    /// ID in writesets.
    pub id: IndexId,
    /// Index name; `PRIMARY` for the primary key.
    pub name: String,
    /// Its columns, in order.
    pub parts: Vec<IndexPart>,
    /// A part of the index is an expression, so its values cannot be computed from a row image. Every row
    /// conflicts with every other row.
    pub opaque: bool,
}

/// A foreign key of a child table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Writeset ID of the referenced columns in the parent. If they form a unique index, the ID of that
    /// index.
    pub parent_index: IndexId,
    /// Referenced columns of the parent, from 0, in key order. Set only in the parent's
    /// [`TargetTable::children`]; empty in the child's list.
    pub parent_columns: Vec<usize>,
    /// Columns of the child, from 0, in the same order. Set only in the child's [`TargetTable::parents`];
    /// empty in the parent's list.
    pub child_columns: Vec<usize>,
    /// Writeset ID of all rows of the child. A change or delete of a referenced parent key conflicts with it.
    pub child_rows: IndexId,
}

/// A table of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetTable {
    /// The flavour of the server.
    pub flavour: Flavour,
    /// Database name.
    pub schema: String,
    /// Table name.
    pub table: String,
    /// Whether the engine is transactional. Only then do rows and progress commit together.
    pub transactional: bool,
    /// Storage engine in upper case; for a partitioned table, the engine of its partitions.
    pub engine: String,
    /// Whether the table is partitioned.
    pub partitioned: bool,
    /// Columns in order, without those that MySQL hides and never logs.
    pub columns: Vec<TargetColumn>,
    /// Writeset ID of all rows of the table. Exclusive for a row without a usable unique index and for rows
    /// that [are written in order](Self::is_written_in_order); shared for every other row of a table that has
    /// parents.
    pub rows: IndexId,
    /// Unique indexes; the primary key is first, if there is one.
    pub unique: Vec<UniqueIndex>,
    /// Whether the first unique index is a primary key.
    pub has_primary_key: bool,
    /// Foreign keys of this table.
    pub parents: Vec<ForeignKey>,
    /// Foreign keys of other tables that reference this one.
    pub children: Vec<ForeignKey>,
    /// Writeset IDs of all tables whose rows may change by a cascade when a row of this table is deleted or a
    /// referenced column changes. Cascades are not in the binlog. Includes indirect children.
    pub cascades: Vec<IndexId>,
}

impl TargetTable {
    /// Whether the server opens other tables together with this one (MERGE). Such a table must be alone in a
    /// statement, or the server loses rows: `Rows_log_event::do_apply_event` of both flavours counts the
    /// tables below a MERGE table as mapped tables, and skips rows whose table it has not counted to.
    pub fn opens_others(&self) -> bool {
        self.engine.starts_with("MRG_")
    }

    /// Whether this table must be alone in a statement: a table that [opens others](Self::opens_others), or a
    /// system table, which servers lock for writing only without other tables (error 1428).
    pub fn must_be_alone(&self) -> bool {
        self.opens_others() || self.schema == "mysql"
    }

    /// How often `Handler_write`, `Handler_update` and `Handler_delete` count one row, at least. MariaDB
    /// counts a row of a partitioned table twice, in the table and in the partition. In MySQL the engine
    /// counts, and BLACKHOLE does not count.
    pub fn counted_per_row(&self) -> u64 {
        const COUNTING: [&str; 6] = ["INNODB", "MYISAM", "MRG_MYISAM", "MEMORY", "CSV", "ARCHIVE"];
        match self.flavour {
            Flavour::MariaDb if self.partitioned => 2,
            Flavour::MariaDb => 1,
            Flavour::MySql => u64::from(COUNTING.contains(&self.engine.as_str())),
        }
    }

    /// Whether rows must be inserted and updated in the source's order even if they share no key. That is so
    /// if the table has its own document identifiers for InnoDB's full-text index. InnoDB rejects an
    /// identifier that is not above the largest in the table, or is 65,535 or more above it (error 182;
    /// `row_insert_for_mysql` and `row_upd_step` in `row0mysql.cc`).
    pub fn is_written_in_order(&self) -> bool {
        // InnoDB knows the column by this name in upper case only.
        self.engine == "INNODB" && self.columns.iter().any(|column| column.name == "FTS_DOC_ID")
    }

    /// The primary key, if it has one.
    pub fn primary_key(&self) -> Option<&UniqueIndex> {
        self.unique.first().filter(|_| self.has_primary_key)
    }
}
