//! Plans the next transaction of a worker: its statements, and the row changes that they must cause.

use std::collections::VecDeque;
use std::fmt::Write;

use super::seeded_random::SeededRandom;
use super::workload_tables::{
    ACCOUNTS, ChangeKind, DELETED, RowStamp, StampField, WorkloadTable, change_digest, payload_digest,
};

/// Approximate number of orders and documents that a worker keeps. It deletes the oldest ones beyond this
/// number, so the tables stay small.
const ROWS_KEPT: usize = 200;
const ITEMS_MAX: u64 = 5;
/// Number of bits of an id that a worker can use. The higher bits hold the worker's number.
const ID_BITS: u32 = 40;

/// A statement, and the number of rows that it must change if the worker's rows are unchanged since its last
/// transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlannedStatement {
    pub(crate) sql: String,
    pub(crate) rows: u64,
}

/// A transaction to run.
#[derive(Debug)]
pub(crate) struct TransactionPlan {
    pub(crate) statements: Vec<PlannedStatement>,
    /// Number of row changes, without the ledger row.
    pub(crate) changes: u32,
    /// Digest of the row changes; see [`change_digest`].
    pub(crate) digest: i64,
    effect: PlannedEffect,
}

/// How the commit changes the planner's list of the worker's rows.
#[derive(Debug)]
enum PlannedEffect {
    None,
    OrderAdded(OrderRow),
    OrderRemoved { index: usize },
    DocumentAdded { id: i64 },
    DocumentRemoved { index: usize },
}

#[derive(Debug, Clone, Copy)]
struct OrderRow {
    id: i64,
    /// Number of items of the order. Their line numbers count from 1.
    items: u64,
}

/// Plans the transactions of one worker. No other worker changes its orders, items and documents, so the
/// planner knows which rows exist.
#[derive(Debug)]
pub(crate) struct TransactionPlanner {
    worker: u32,
    random: SeededRandom,
    body_bytes_max: usize,
    next_id: i64,
    orders: VecDeque<OrderRow>,
    /// Ids of the worker's documents.
    documents: VecDeque<i64>,
}

impl TransactionPlanner {
    pub(crate) fn new(seed: u64, worker: u32, body_bytes_max: usize) -> Self {
        Self {
            worker,
            random: SeededRandom::new(seed, worker),
            body_bytes_max,
            next_id: i64::from(worker) << ID_BITS,
            orders: VecDeque::new(),
            documents: VecDeque::new(),
        }
    }

    /// Makes the planner forget the worker's rows. After a lost connection it is unknown which of these rows
    /// exist. They stay in the tables.
    pub(crate) fn forget(&mut self) {
        self.orders.clear();
        self.documents.clear();
    }

    /// Plans a transaction that changes several tables.
    pub(crate) fn mixed(&mut self, sequence: u64) -> TransactionPlan {
        let choice = self.random.below(100);
        let mut plan = match choice {
            _ if self.orders.len() > ROWS_KEPT => self.remove_order(0),
            _ if self.documents.len() > ROWS_KEPT => self.remove_document(0),
            0..35 => self.add_order(),
            35..55 if !self.orders.is_empty() => self.change_order(),
            55..63 if !self.orders.is_empty() => {
                let index = self.random.below(self.orders.len() as u64) as usize;
                self.remove_order(index)
            }
            63..83 => self.transfer(),
            83..90 if !self.documents.is_empty() => self.change_document(),
            90..93 if !self.documents.is_empty() => {
                let index = self.random.below(self.documents.len() as u64) as usize;
                self.remove_document(index)
            }
            _ => self.add_document(),
        };
        let sql = self.ledger_row(sequence, plan.changes, plan.digest, "");
        plan.statements.push(PlannedStatement { sql, rows: 1 });
        plan
    }

    /// Plans a transaction that only inserts its ledger row, with `payload_bytes` of text.
    pub(crate) fn single(&mut self, sequence: u64, payload_bytes: usize) -> TransactionPlan {
        let mut payload = String::with_capacity(payload_bytes);
        self.random.ascii(&mut payload, payload_bytes);
        let digest = payload_digest(payload.as_bytes());
        let sql = self.ledger_row(sequence, 0, digest, &payload);
        TransactionPlan {
            statements: vec![PlannedStatement { sql, rows: 1 }],
            changes: 0,
            digest,
            effect: PlannedEffect::None,
        }
    }

    fn ledger_row(&self, sequence: u64, changes: u32, digest: i64, payload: &str) -> String {
        let worker = self.worker;
        format!("INSERT INTO tw_load.tw_ledger VALUES ({worker},{sequence},{changes},{digest},'{payload}')")
    }

    /// Records that the transaction is committed.
    pub(crate) fn committed(&mut self, plan: TransactionPlan) {
        match plan.effect {
            PlannedEffect::None => {}
            PlannedEffect::OrderAdded(order) => self.orders.push_back(order),
            PlannedEffect::OrderRemoved { index } => {
                self.orders.remove(index);
            }
            PlannedEffect::DocumentAdded { id } => self.documents.push_back(id),
            PlannedEffect::DocumentRemoved { index } => {
                self.documents.remove(index);
            }
        }
    }

    fn new_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    fn add_order(&mut self) -> TransactionPlan {
        let id = self.new_id();
        let (columns, stamp) = self.order_columns(id);
        let mut changes = ChangeDigest::default();
        changes.add(WorkloadTable::Orders, ChangeKind::Insert, [id, 0], stamp);
        let head = format!("INSERT INTO tw_load.orders VALUES ({id},{},{stamp})", columns.join(","));

        let count = 1 + self.random.below(ITEMS_MAX);
        let mut sql = String::from("INSERT INTO tw_load.items VALUES ");
        for line in 1..=count as i64 {
            let stamp = self.item_row(&mut sql, id, line);
            changes.add(WorkloadTable::Items, ChangeKind::Insert, [id, line], stamp);
        }
        let statements = vec![PlannedStatement { sql: head, rows: 1 }, PlannedStatement { sql, rows: count }];
        changes.plan(statements, PlannedEffect::OrderAdded(OrderRow { id, items: count }))
    }

    /// Returns the values of an order's columns between the key and the stamp, as SQL. Also returns the
    /// stamp: the digest of all other columns.
    fn order_columns(&mut self, id: i64) -> ([String; 4], i64) {
        let mut customer = String::new();
        let length = 3 + self.random.below(30) as usize;
        self.random.text(&mut customer, length);
        let cents = self.random.below(2_000_000_000) as i64 - 1_000_000_000;
        let amount =
            format!("{}{}.{:02}", if cents < 0 { "-" } else { "" }, cents.abs() / 100, cents.abs() % 100);
        let placed = format!(
            "20{:02}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}",
            self.random.below(100),
            1 + self.random.below(12),
            1 + self.random.below(28),
            self.random.below(24),
            self.random.below(60),
            self.random.below(60),
            self.random.below(1_000_000)
        );
        let mut note = String::new();
        let null = self.random.below(4) == 0;
        if !null {
            let length = self.random.below(120) as usize;
            self.random.text(&mut note, length);
        }
        let note_field = if null { StampField::Null } else { StampField::Bytes(note.as_bytes()) };
        let stamp = RowStamp::new()
            .field(StampField::Integer(id))
            .field(StampField::Bytes(customer.as_bytes()))
            .field(StampField::Bytes(amount.as_bytes()))
            .field(StampField::Bytes(placed.as_bytes()))
            .field(note_field)
            .finish();
        let note = if null { "NULL".to_owned() } else { format!("'{note}'") };
        ([format!("'{customer}'"), amount, format!("'{placed}'"), note], stamp)
    }

    fn item_row(&mut self, sql: &mut String, order: i64, line: i64) -> i64 {
        let mut sku = String::new();
        self.random.ascii(&mut sku, 12);
        let quantity = self.random.below(60_000) as i64 - 30_000;
        // The number is a binary fraction, so that each program that parses its digits gets the same number.
        let weight = self.random.below(1 << 30) as f64 / 1024.0;
        let label = match self.random.below(3) {
            0 => None,
            _ => Some((0..self.random.below(40)).map(|_| self.random.next() as u8).collect::<Vec<u8>>()),
        };
        let stamp = RowStamp::new()
            .field(StampField::Integer(order))
            .field(StampField::Integer(line))
            .field(StampField::Bytes(sku.as_bytes()))
            .field(StampField::Integer(quantity))
            .field(StampField::Double(weight))
            .field(label.as_deref().map_or(StampField::Null, StampField::Bytes))
            .finish();
        let comma = if line > 1 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(sql, "{comma}({order},{line},'{sku}',{quantity},{weight},");
        match label {
            None => sql.push_str("NULL"),
            Some(bytes) => {
                sql.push_str("x'");
                for byte in bytes {
                    let _ = write!(sql, "{byte:02x}");
                }
                sql.push('\'');
            }
        }
        let _ = write!(sql, ",{stamp})");
        stamp
    }

    fn change_order(&mut self) -> TransactionPlan {
        let index = self.random.below(self.orders.len() as u64) as usize;
        let id = self.orders[index].id;
        let (columns, stamp) = self.order_columns(id);
        let mut changes = ChangeDigest::default();
        changes.add(WorkloadTable::Orders, ChangeKind::Update, [id, 0], stamp);
        let [customer, amount, placed, note] = columns;
        let sql = format!(
            "UPDATE tw_load.orders SET customer={customer}, amount={amount}, placed={placed}, note={note}, \
             stamp={stamp} WHERE id={id}"
        );
        changes.plan(vec![PlannedStatement { sql, rows: 1 }], PlannedEffect::None)
    }

    fn remove_order(&mut self, index: usize) -> TransactionPlan {
        let OrderRow { id, items } = self.orders[index];
        let mut changes = ChangeDigest::default();
        changes.add(WorkloadTable::Orders, ChangeKind::Delete, [id, 0], DELETED);
        for line in 1..=items as i64 {
            changes.add(WorkloadTable::Items, ChangeKind::Delete, [id, line], DELETED);
        }
        let statements = vec![
            PlannedStatement { sql: format!("DELETE FROM tw_load.items WHERE order_id={id}"), rows: items },
            PlannedStatement { sql: format!("DELETE FROM tw_load.orders WHERE id={id}"), rows: 1 },
        ];
        changes.plan(statements, PlannedEffect::OrderRemoved { index })
    }

    /// Plans a transfer of money between two accounts, which other workers use too.
    fn transfer(&mut self) -> TransactionPlan {
        let from = self.random.below(ACCOUNTS as u64) as i64;
        let to = (from + 1 + self.random.below(ACCOUNTS as u64 - 1) as i64) % ACCOUNTS;
        let amount = 1 + self.random.below(1000) as i64;
        // The accounts are updated in the order of their ids. So two transfers may wait for each other, but
        // never deadlock.
        let mut moves = [(from, -amount), (to, amount)];
        moves.sort_unstable();
        let mut changes = ChangeDigest::default();
        let statements = moves.map(|(id, amount)| {
            let stamp = self.random.next() as i64;
            changes.add(WorkloadTable::Accounts, ChangeKind::Update, [id, 0], stamp);
            let sql = format!(
                "UPDATE tw_load.accounts SET balance=balance+({amount}), stamp={stamp} WHERE id={id}"
            );
            PlannedStatement { sql, rows: 1 }
        });
        changes.plan(statements.into(), PlannedEffect::None)
    }

    fn add_document(&mut self) -> TransactionPlan {
        let id = self.new_id();
        let (columns, stamp) = self.document_columns(id);
        let mut changes = ChangeDigest::default();
        changes.add(WorkloadTable::Documents, ChangeKind::Insert, [id, 0], stamp);
        let sql = format!("INSERT INTO tw_load.documents VALUES ({id},{},{stamp})", columns.join(","));
        changes.plan(vec![PlannedStatement { sql, rows: 1 }], PlannedEffect::DocumentAdded { id })
    }

    fn document_columns(&mut self, id: i64) -> ([String; 2], i64) {
        let mut body = String::new();
        // Most texts are short, because the maximum length is chosen at random too.
        let limit = self.body_bytes_max >> self.random.below(8);
        let length = self.random.below(limit as u64 + 1) as usize;
        self.random.ascii(&mut body, length);
        let state = 1 + self.random.below(3) as i64;
        let stamp = RowStamp::new()
            .field(StampField::Integer(id))
            .field(StampField::Bytes(body.as_bytes()))
            .field(StampField::Integer(state))
            .finish();
        // The state is an ENUM column, written by the number of its member.
        ([format!("'{body}'"), state.to_string()], stamp)
    }

    fn change_document(&mut self) -> TransactionPlan {
        let index = self.random.below(self.documents.len() as u64) as usize;
        let id = self.documents[index];
        let (columns, stamp) = self.document_columns(id);
        let mut changes = ChangeDigest::default();
        changes.add(WorkloadTable::Documents, ChangeKind::Update, [id, 0], stamp);
        let [body, state] = columns;
        let sql =
            format!("UPDATE tw_load.documents SET body={body}, state={state}, stamp={stamp} WHERE id={id}");
        changes.plan(vec![PlannedStatement { sql, rows: 1 }], PlannedEffect::None)
    }

    fn remove_document(&mut self, index: usize) -> TransactionPlan {
        let id = self.documents[index];
        let mut changes = ChangeDigest::default();
        changes.add(WorkloadTable::Documents, ChangeKind::Delete, [id, 0], DELETED);
        let sql = format!("DELETE FROM tw_load.documents WHERE id={id}");
        changes.plan(vec![PlannedStatement { sql, rows: 1 }], PlannedEffect::DocumentRemoved { index })
    }
}

#[derive(Debug, Default)]
struct ChangeDigest {
    count: u32,
    digest: i64,
}

impl ChangeDigest {
    fn add(&mut self, table: WorkloadTable, kind: ChangeKind, key: [i64; 2], stamp: i64) {
        self.count += 1;
        self.digest = self.digest.wrapping_add(change_digest(table, kind, key, stamp));
    }

    fn plan(self, statements: Vec<PlannedStatement>, effect: PlannedEffect) -> TransactionPlan {
        TransactionPlan { statements, changes: self.count, digest: self.digest, effect }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_plans_and_tables_stay_small() {
        let run = |seed| {
            let mut planner = TransactionPlanner::new(seed, 3, 1000);
            let mut statements = Vec::new();
            for sequence in 1..3000 {
                let plan = planner.mixed(sequence);
                assert!(plan.changes > 0 && plan.statements.len() >= 2);
                let last = plan.statements.last().map(|statement| statement.sql.as_str()).unwrap_or_default();
                assert!(
                    last.starts_with("INSERT INTO tw_load.tw_ledger VALUES (3,"),
                    "the last statement does not write the ledger row: {last}"
                );
                statements.extend(plan.statements.iter().map(|statement| statement.sql.clone()));
                planner.committed(plan);
                assert!(planner.orders.len() <= ROWS_KEPT + 1 && planner.documents.len() <= ROWS_KEPT + 1);
            }
            statements
        };
        let first = run(11);
        assert_eq!(first, run(11));
        assert_ne!(first, run(12));
        for table in WorkloadTable::ALL {
            assert!(
                first.iter().any(|sql| sql.contains(table.name())),
                "no planned transaction writes to {table:?}"
            );
        }
        assert!(first.iter().any(|sql| sql.starts_with("DELETE")));
    }
}
