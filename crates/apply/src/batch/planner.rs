//! Puts rows into groups as they come.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use tailwater_wire::WireError;
use tailwater_wire::event::{RowsEvent, RowsKind};

use super::net::{Living, Net, Outcome, combine};
use super::order::Order;
use super::tables::Tables;
use super::{Group, Plan, PlanOptions, Row, RowImage};
use crate::transaction::RowChanges;
use crate::writeset::Access;

/// What says of an event something that holds for it alone: where a statement ends, and what the bitmaps say anyway.
const EVENT_FLAGS: u16 = RowsEvent::FLAG_STATEMENT_END | RowsEvent::FLAG_COMPLETE_ROWS;

/// What rows of one group have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Class<'a> {
    pub table: u32,
    pub kind: RowsKind,
    pub flags: u16,
    pub server_id: u32,
    pub columns_present: Cow<'a, [u8]>,
    pub columns_present_after: Cow<'a, [u8]>,
    /// Keeps events apart whose rows must not be put together; otherwise 0.
    pub event: u32,
}

/// Rows of one class and level.
#[derive(Debug)]
struct Gathered<'a> {
    class: u32,
    level: u32,
    timestamp: u32,
    /// `None` where a row has become part of a later one.
    rows: Vec<Option<Row<'a>>>,
}

/// Where a row was put.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    /// The row's number, from 1.
    pub number: u32,
    group: u32,
    index: u32,
}

/// The rows of an event on their way into groups.
#[derive(Debug, Clone, Copy)]
struct Event<'a> {
    changes: &'a RowChanges,
    table: u32,
    /// The class of its rows, and of its rows if their before images are cut to this many bytes of NULL bits and the key.
    class: u32,
    cut: Option<(u32, u8)>,
}

/// A row, and the values of its primary key before and after; for inserts and deletes both are the same.
struct Keyed<'a> {
    class: u32,
    row: Row<'a>,
    before: Option<Cow<'a, [u8]>>,
    after: Option<Cow<'a, [u8]>>,
}

/// Makes a plan.
#[derive(Debug, Default)]
pub(super) struct Planner<'a> {
    options: PlanOptions,
    tables: Tables<'a>,
    classes: Vec<Class<'a>>,
    class_numbers: FxHashMap<Class<'a>, u32>,
    groups: Vec<Gathered<'a>>,
    group_numbers: FxHashMap<(u32, u32), u32>,
    order: Order,
    net: Net<'a>,
    events: u32,
    rows: u32,
}

impl<'a> Planner<'a> {
    pub fn new(options: PlanOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Adds the rows of an event.
    pub fn add(&mut self, changes: &'a RowChanges) -> Result<(), WireError> {
        self.events += 1;
        let event = self.event(changes);
        let nets = self.tables.get(event.table).is_some_and(|table| table.net_change);
        for index in 0..changes.rows.len() {
            let Some((image, after)) = changes.images_of(index) else {
                return Err(WireError::malformed("row changes", format!("row {index} is not in them")));
            };
            let keyed = self.keyed(event, image, after);
            // Of a row without accesses nobody knows what it touches.
            if nets && !changes.accesses_of(index).is_empty() {
                self.add_to_net(event, index, keyed);
            } else {
                self.place(keyed.class, changes.timestamp, keyed.row, changes.accesses_of(index), &[]);
            }
        }
        Ok(())
    }

    /// The groups in their order.
    pub fn finish(mut self) -> Plan<'a> {
        // Groups of one level may stand in any order: those with equal flags share a statement.
        self.groups
            .sort_by_key(|group| (group.level, self.classes.get(group.class as usize).map(|it| it.flags)));
        let groups = self.groups.into_iter().filter_map(|gathered| {
            let class = self.classes.get(gathered.class as usize)?;
            let table = self.tables.get(class.table)?.mapped;
            let rows: Vec<_> = gathered.rows.into_iter().flatten().collect();
            (!rows.is_empty()).then(|| Group {
                table,
                kind: class.kind,
                flags: class.flags,
                server_id: class.server_id,
                timestamp: gathered.timestamp,
                columns_present: class.columns_present.clone(),
                columns_present_after: class.columns_present_after.clone(),
                rows,
            })
        });
        Plan { groups: groups.collect() }
    }

    fn event(&mut self, changes: &'a RowChanges) -> Event<'a> {
        let table = self.tables.number(&changes.table, self.options);
        let of_table = self.tables.get(table);
        // Without a key servers look for all rows of an event at once: one that was changed just before is not found.
        let keyless = changes.kind != RowsKind::Write && of_table.is_none_or(|table| table.key.is_none());
        // A row without columns takes no bytes: two of them in an event would be one.
        let apart = keyless || changes.columns_present.iter().all(|byte| *byte == 0);
        let whole = Class {
            table,
            kind: changes.kind,
            flags: changes.flags & !EVENT_FLAGS,
            server_id: changes.server_id,
            columns_present: Cow::Borrowed(&changes.columns_present),
            columns_present_after: Cow::Borrowed(match changes.kind {
                RowsKind::Update | RowsKind::PartialUpdate => &changes.columns_present_after,
                RowsKind::Write | RowsKind::Delete => &changes.columns_present,
            }),
            event: if apart { self.events } else { 0 },
        };
        let key = of_table
            .filter(|table| table.cut_images && changes.kind != RowsKind::Write)
            .and_then(|table| table.key.as_ref())
            .filter(|key| key.are_in(&changes.columns_present) && key.bitmap != *changes.columns_present);
        let cut = key.map(|key| {
            let mut cut = Class { columns_present: Cow::Owned(key.bitmap.clone()), ..whole.clone() };
            if changes.kind == RowsKind::Delete {
                cut.columns_present_after = cut.columns_present.clone();
            }
            // An index has at most 32 columns.
            (cut, key.count.div_ceil(8) as u8)
        });
        let class = self.class_number(whole);
        Event { changes, table, class, cut: cut.map(|(cut, zeros)| (self.class_number(cut), zeros)) }
    }

    fn keyed(&self, event: Event<'a>, image: &'a [u8], after: &'a [u8]) -> Keyed<'a> {
        let changes = event.changes;
        let whole = Row { image: RowImage { zeros: 0, values: image }, after };
        let table = self.tables.get(event.table).filter(|table| table.net_change || event.cut.is_some());
        let Some((table, key)) = table.and_then(|table| Some((table, table.key.as_ref()?))) else {
            return Keyed { class: event.class, row: whole, before: None, after: None };
        };
        let columns = &changes.table.map.columns;
        let key_before = key.find(columns, &changes.columns_present, image);
        let key_after = match changes.kind {
            _ if !table.net_change => None,
            RowsKind::Write | RowsKind::Delete => key_before.clone(),
            RowsKind::PartialUpdate => None,
            RowsKind::Update if key.are_out_of(&changes.columns_present_after) => key_before.clone(),
            RowsKind::Update => key.find(columns, &changes.columns_present_after, after),
        };
        let (class, row) = match (event.cut, &key_before) {
            (Some((class, zeros)), Some(Cow::Borrowed(values))) => {
                (class, Row { image: RowImage { zeros, values }, after })
            }
            _ => (event.class, whole),
        };
        Keyed { class, row, before: key_before, after: key_after }
    }

    /// Makes one of the row and of the change that its key saw last, if there is one and nothing stands between; or notes
    /// the row as its key's last.
    fn add_to_net(&mut self, event: Event<'a>, index: usize, keyed: Keyed<'a>) {
        let changes = event.changes;
        let accesses = changes.accesses_of(index);
        let Some(before) = keyed.before else {
            self.place(keyed.class, changes.timestamp, keyed.row, accesses, &[]);
            return;
        };
        let earlier = self.net.take(event.table, &before);
        let folded = earlier.and_then(|earlier| self.fold(&earlier, event, index));
        let (class, row, touched) = match folded {
            Some((Outcome::Nothing, _)) => return,
            Some((Outcome::Row { class, row }, touched)) => (self.class_number(class), row, touched),
            None => (keyed.class, keyed.row, Vec::new()),
        };
        let placed = self.place(class, changes.timestamp, row, accesses, &touched);
        if let Some(key) = keyed.after {
            self.net.put(event.table, key, Living { placed, changes, index, touched });
        }
    }

    /// What an earlier change of a row and this one come to, and what the earlier one touched beyond this one. The earlier
    /// change is then gone.
    fn fold(
        &mut self,
        earlier: &Living<'a>,
        event: Event<'a>,
        index: usize,
    ) -> Option<(Outcome<'a>, Vec<Access>)> {
        let placed = earlier.placed;
        let gathered = self.groups.get_mut(placed.group as usize)?;
        let slot = gathered.rows.get_mut(placed.index as usize)?;
        let of_earlier = self.classes.get(gathered.class as usize)?;
        let of_later = self.classes.get(event.class as usize)?;
        let whole = event.changes.images_of(index)?;
        let columns = event.changes.table.map.columns.len();
        let outcome = combine((of_earlier, slot.as_ref()?), (of_later, whole), columns)?;
        let counts = self.tables.get(event.table).is_some_and(|table| table.counts);
        if counts && matches!(outcome, Outcome::Nothing) {
            return None;
        }
        if !self.order.is_last(placed.number, earlier.accesses()) {
            return None;
        }
        let touched = earlier.touched_beyond(event.changes.accesses_of(index))?;
        *slot = None;
        Some((outcome, touched))
    }

    fn place(
        &mut self,
        class: u32,
        timestamp: u32,
        row: Row<'a>,
        accesses: &[Access],
        more: &[Access],
    ) -> Placed {
        self.rows += 1;
        let level = self.order.place(self.rows, class, accesses.iter().chain(more));
        let groups = &mut self.groups;
        let group = *self.group_numbers.entry((class, level)).or_insert_with(|| {
            groups.push(Gathered { class, level, timestamp, rows: Vec::new() });
            (groups.len() - 1) as u32
        });
        let mut index = 0;
        if let Some(gathered) = groups.get_mut(group as usize) {
            index = gathered.rows.len() as u32;
            gathered.timestamp = gathered.timestamp.max(timestamp);
            gathered.rows.push(Some(row));
        }
        Placed { number: self.rows, group, index }
    }

    fn class_number(&mut self, class: Class<'a>) -> u32 {
        if let Some(number) = self.class_numbers.get(&class) {
            return *number;
        }
        let number = self.classes.len() as u32;
        self.classes.push(class.clone());
        self.class_numbers.insert(class, number);
        number
    }
}
