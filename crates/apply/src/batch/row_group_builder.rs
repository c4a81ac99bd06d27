//! Assigns rows to groups, in log order.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{RowsEvent, RowsKind};

use super::batch_plan::{BatchPlan, NullBits, PlanOptions, PlannedRow, RowGroup, RowImage};
use super::batch_tables::BatchTables;
use super::chained_updates::WrittenRows;
use super::minimal_after_image::{self, changed};
use super::primary_key_sort::Rank;
use super::primary_key_values::is_full;
use super::row_change_coalescer::{CombinedChange, PendingChange, PendingChanges, combine};
use super::row_grouping_criteria::{RowClass, SlotAddress};
use super::row_reorder_limits::ConflictLevels;
use crate::source_transaction::RowChanges;
use crate::writeset::Access;

/// Event flags that do not apply to a whole group: the end of a statement, and flags that follow from the
/// column bitmaps.
const EVENT_FLAGS: u16 = RowsEvent::FLAG_STATEMENT_END | RowsEvent::FLAG_COMPLETE_ROWS;

/// A row class that the plan uses.
#[derive(Debug)]
struct KnownClass<'a> {
    class: RowClass<'a>,
    /// Whether the rows are updates whose after images have all columns.
    full: bool,
}

/// Rows of one class and level, while the plan is built.
#[derive(Debug)]
struct GroupBuilder<'a> {
    class: u32,
    level: u32,
    timestamp: u32,
    /// The rows. `None` for a row that was merged into a later row.
    rows: Vec<Option<RowSlot<'a>>>,
}

/// A row of a group, with the data for later merges.
#[derive(Debug, Clone, Copy)]
struct RowSlot<'a> {
    row: PlannedRow<'a>,
    /// The full before image, if it is known and the after image may be cut; otherwise empty.
    old: &'a [u8],
    /// The row's sort key within the group; `None` if the group must keep its order.
    rank: Option<Rank>,
}

/// The classes of an event's rows; a class states which row groups a row can join. `whole` is the class of
/// the uncut rows. `cut` is their class if their before images are cut to the key. `cut` also contains the
/// NULL bits of the cut images.
#[derive(Debug, Clone, Copy)]
struct EventClasses {
    whole: u32,
    cut: Option<(u32, NullBits)>,
    /// Whether before images may be compared with after images to find the changed columns.
    compares: bool,
}

/// A rows event whose rows are being assigned.
#[derive(Debug, Clone, Copy)]
struct RowsEventRef<'a> {
    changes: &'a RowChanges,
    table: u32,
    classes: EventClasses,
}

/// A row with its primary key values before and after the change; these are equal for inserts and deletes.
struct ResolvedRow<'a> {
    class: u32,
    slot: RowSlot<'a>,
    before: Option<Cow<'a, [u8]>>,
    after: Option<Cow<'a, [u8]>>,
}

/// The result of merging two changes of a row.
struct MergedChange<'a> {
    outcome: CombinedChange<'a>,
    /// The row's full image before both of the merged changes: see [`RowSlot`].
    old: &'a [u8],
    rank: Option<Rank>,
    /// The key accesses of the earlier change, without those that the later change has too.
    touched: Vec<Access>,
}

/// The maximum number of rows for which memory is reserved in advance.
const ROWS_EXPECTED_MAX: usize = 1 << 14;

/// Builds the plan of a batch.
#[derive(Debug, Default)]
pub(super) struct Planner<'a> {
    options: PlanOptions,
    tables: BatchTables<'a>,
    classes: Vec<KnownClass<'a>>,
    class_numbers: FxHashMap<RowClass<'a>, u32>,
    /// The row classes of the newest event with this table, kind, flags and `server_id`.
    event_classes: FxHashMap<(u32, RowsKind, u16, u32), EventClasses>,
    /// The row classes for rows whose after images are cut, by the class of the uncut rows and by the first
    /// and last column of the cut images.
    narrow_classes: FxHashMap<(u32, u16, u16), u32>,
    groups: Vec<GroupBuilder<'a>>,
    group_numbers: FxHashMap<(u32, u32), u32>,
    order: ConflictLevels,
    net: PendingChanges<'a>,
    events: u32,
    rows: u32,
}

impl<'a> Planner<'a> {
    /// Returns a planner with capacity for `rows` rows.
    pub fn new(options: PlanOptions, rows: usize) -> Self {
        let rows = rows.min(ROWS_EXPECTED_MAX);
        let net = if options.net_change { PendingChanges::of_rows(rows) } else { PendingChanges::default() };
        Self { options, net, order: ConflictLevels::of_rows(rows), ..Self::default() }
    }

    /// Adds the rows of an event.
    pub fn add(&mut self, changes: &'a RowChanges) -> Result<(), WireError> {
        self.events += 1;
        let mut event = self.event(changes);
        let mut written = WrittenRows::default();
        let may_chain = changes.rows.len() > 1 && self.is_looked_up_at_once(event.table, changes);
        let nets = self.tables.get(event.table).is_some_and(|table| table.net_change);
        for index in 0..changes.rows.len() {
            let Some((image, after)) = changes.images_of(index) else {
                return Err(WireError::malformed(
                    "row changes",
                    format!("the position of row {index} is outside the row images"),
                ));
            };
            if may_chain && written.add(changes, index) {
                self.events += 1;
                event.classes = self.classes_of(changes, event.table);
            }
            let keyed = self.keyed(event, image, after);
            // A row without key accesses has unknown keys, so it is not merged.
            if nets && !changes.accesses_of(index).is_empty() {
                self.add_to_net(event, index, keyed);
            } else {
                self.place(keyed.class, changes.timestamp, keyed.slot, changes.accesses_of(index), &[]);
            }
        }
        Ok(())
    }

    /// Returns the plan: its groups are in the order in which the target applies them.
    pub fn finish(mut self) -> BatchPlan<'a> {
        // Groups of one level may be applied in any order. Sorting by flags lets groups with equal flags
        // share a statement.
        self.groups.sort_by_key(|group| {
            (group.level, self.classes.get(group.class as usize).map(|it| it.class.flags))
        });
        let groups = self.groups.into_iter().filter_map(|gathered| {
            let class = &self.classes.get(gathered.class as usize)?.class;
            let table = self.tables.get(class.table)?.mapped;
            let mut slots: Vec<RowSlot<'a>> = gathered.rows.into_iter().flatten().collect();
            if slots.iter().all(|slot| slot.rank.is_some()) {
                slots.sort_by_key(|slot| slot.rank);
            }
            let rows: Vec<_> = slots.into_iter().map(|slot| slot.row).collect();
            (!rows.is_empty()).then(|| RowGroup {
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
        BatchPlan { groups: groups.collect() }
    }

    fn event(&mut self, changes: &'a RowChanges) -> RowsEventRef<'a> {
        let table = self.tables.number(&changes.table, self.options);
        let like = (table, changes.kind, changes.flags & !EVENT_FLAGS, changes.server_id);
        if let Some(classes) = self.event_classes.get(&like)
            && let Some(KnownClass { class: known, .. }) = self.classes.get(classes.whole as usize)
            && known.event == 0
            && *known.columns_present == *changes.columns_present
            && *known.columns_present_after == *columns_after(changes)
        {
            return RowsEventRef { changes, table, classes: *classes };
        }
        let classes = self.classes_of(changes, table);
        self.event_classes.insert(like, classes);
        RowsEventRef { changes, table, classes }
    }

    fn classes_of(&mut self, changes: &'a RowChanges, table: u32) -> EventClasses {
        let of_table = self.tables.get(table);
        let compares = changes.kind != RowsKind::Write
            && of_table.is_some_and(|table| table.cut_images)
            && is_full(&changes.columns_present, changes.table.map.columns.len());
        // A row without columns has no bytes, so two such rows in one event would look like one row.
        let apart = self.is_looked_up_at_once(table, changes)
            || changes.columns_present.iter().all(|byte| *byte == 0);
        let whole = RowClass {
            table,
            kind: changes.kind,
            flags: changes.flags & !EVENT_FLAGS,
            server_id: changes.server_id,
            columns_present: Cow::Borrowed(&changes.columns_present),
            columns_present_after: Cow::Borrowed(columns_after(changes)),
            event: if apart { self.events } else { 0 },
        };
        let key = of_table
            .filter(|table| table.cut_images && changes.kind != RowsKind::Write)
            .and_then(|table| table.key.as_ref())
            .filter(|key| key.are_in(&changes.columns_present) && key.bitmap != *changes.columns_present);
        let cut = key.and_then(|key| {
            let mut cut = RowClass { columns_present: Cow::Owned(key.bitmap.clone()), ..whole.clone() };
            if changes.kind == RowsKind::Delete {
                cut.columns_present_after = cut.columns_present.clone();
            }
            Some((cut, NullBits::gather((0..key.count).map(|_| false))?))
        });
        let whole = self.class_number(whole);
        let cut = cut.map(|(cut, nulls)| (self.class_number(cut), nulls));
        EventClasses { whole, cut, compares }
    }

    /// Returns whether a server may look up all rows of the event at once, because the before images do not
    /// contain a primary key. Such a server may not find a row that the same event has just changed.
    fn is_looked_up_at_once(&self, table: u32, changes: &RowChanges) -> bool {
        let key = self.tables.get(table).and_then(|table| table.key.as_ref());
        changes.kind != RowsKind::Write && key.is_none_or(|key| !key.are_in(&changes.columns_present))
    }

    fn keyed(&self, event: RowsEventRef<'a>, image: &'a [u8], after: &'a [u8]) -> ResolvedRow<'a> {
        let changes = event.changes;
        let whole = PlannedRow { image: RowImage::whole(image), after: RowImage::whole(after) };
        let old = if event.classes.compares { image } else { &[] };
        let table = self
            .tables
            .get(event.table)
            .filter(|table| table.net_change || table.ranking.is_some() || event.classes.cut.is_some());
        let Some((table, key)) = table.and_then(|table| Some((table, table.key.as_ref()?))) else {
            return ResolvedRow {
                class: event.classes.whole,
                slot: RowSlot { row: whole, old, rank: None },
                before: None,
                after: None,
            };
        };
        let columns = &changes.table.map.columns;
        let key_before = key.find(columns, &changes.columns_present, image);
        let key_after = match changes.kind {
            _ if !table.net_change && table.ranking.is_none() => None,
            RowsKind::Write | RowsKind::Delete => key_before.clone(),
            RowsKind::PartialUpdate => None,
            RowsKind::Update if key.are_out_of(&changes.columns_present_after) => key_before.clone(),
            RowsKind::Update => key.find(columns, &changes.columns_present_after, after),
        };
        let (class, row) = match (event.classes.cut, &key_before) {
            (Some((class, nulls)), Some(Cow::Borrowed(values))) => {
                (class, PlannedRow { image: RowImage { nulls, values }, ..whole })
            }
            _ => (event.classes.whole, whole),
        };
        let ranking = table.ranking.as_ref().filter(|_| key_before == key_after);
        let rank = ranking.zip(key_before.as_ref()).and_then(|(ranking, values)| ranking.rank(values));
        ResolvedRow { class, slot: RowSlot { row, old, rank }, before: key_before, after: key_after }
    }

    /// Merges the row with the latest change of the same key, if there is such a change and no row between
    /// them conflicts. Otherwise stores the row as the latest change of its key.
    fn add_to_net(&mut self, event: RowsEventRef<'a>, index: usize, keyed: ResolvedRow<'a>) {
        let changes = event.changes;
        let accesses = changes.accesses_of(index);
        let Some(before) = keyed.before else {
            self.place(keyed.class, changes.timestamp, keyed.slot, accesses, &[]);
            return;
        };
        let moves = keyed.after.as_ref() != Some(&before);
        let earlier = self.net.take(event.table, &before);
        let moved = moves || earlier.as_ref().is_some_and(|earlier| earlier.moved);
        let folded = earlier.and_then(|earlier| self.fold(&earlier, event, index, moved));
        let moved = if folded.is_some() { moved } else { moves };
        let (class, slot, touched) = match folded {
            Some(MergedChange { outcome: CombinedChange::Nothing, .. }) => return,
            Some(MergedChange { outcome: CombinedChange::Row { class, row }, old, rank, touched }) => {
                // Do not sort a row whose primary key changes.
                let rank = rank.filter(|_| rank == keyed.slot.rank);
                (self.class_number(class), RowSlot { row, old, rank }, touched)
            }
            None => (keyed.class, keyed.slot, Vec::new()),
        };
        let placed = self.place(class, changes.timestamp, slot, accesses, &touched);
        if let Some(key) = keyed.after {
            self.net.put(event.table, key, PendingChange { placed, changes, index, moved, touched });
        }
    }

    /// Merges an earlier change of a row with row `index` of an event, and removes the earlier change.
    fn fold(
        &mut self,
        earlier: &PendingChange<'a>,
        event: RowsEventRef<'a>,
        index: usize,
        moved: bool,
    ) -> Option<MergedChange<'a>> {
        let placed = earlier.placed;
        let gathered = self.groups.get_mut(placed.group as usize)?;
        let slot = gathered.rows.get_mut(placed.index as usize)?;
        let of_earlier = &self.classes.get(gathered.class as usize)?.class;
        let of_later = &self.classes.get(event.classes.whole as usize)?.class;
        let of_slot = slot.as_ref()?;
        let whole = event.changes.images_of(index)?;
        let columns = event.changes.table.map.columns.len();
        let outcome = combine((of_earlier, &of_slot.row), (of_later, whole), columns)?;
        let counts = self.tables.get(event.table).is_some_and(|table| table.counts);
        // The target's AUTO_INCREMENT counter must pass every intermediate value, so the two changes are not
        // merged.
        if counts && (moved || matches!(outcome, CombinedChange::Nothing)) {
            return None;
        }
        if !self.order.is_last(placed.number, earlier.accesses()) {
            return None;
        }
        let touched = earlier.touched_beyond(event.changes.accesses_of(index))?;
        let RowSlot { old, rank, .. } = *of_slot;
        *slot = None;
        Some(MergedChange { outcome, old, rank, touched })
    }

    /// Cuts the after image of an update to the changed columns.
    fn narrow(&mut self, class: u32, slot: RowSlot<'a>) -> (u32, RowSlot<'a>) {
        self.narrowed(class, slot).unwrap_or((class, slot))
    }

    fn narrowed(&mut self, class: u32, slot: RowSlot<'a>) -> Option<(u32, RowSlot<'a>)> {
        let known = self.classes.get(class as usize).filter(|known| known.full && !slot.old.is_empty())?;
        let columns = &self.tables.get(known.class.table)?.mapped.map.columns;
        let changed = changed(columns, slot.old, slot.row.after.values)?;
        let slot = RowSlot { row: PlannedRow { after: changed.image, ..slot.row }, ..slot };
        let cut = (class, changed.first, changed.last);
        if let Some(class) = self.narrow_classes.get(&cut) {
            return Some((*class, slot));
        }
        let bitmap = minimal_after_image::bitmap(columns.len(), changed.first, changed.last);
        let class = RowClass { columns_present_after: Cow::Owned(bitmap), ..known.class.clone() };
        let class = self.class_number(class);
        self.narrow_classes.insert(cut, class);
        Some((class, slot))
    }

    fn place(
        &mut self,
        class: u32,
        timestamp: u32,
        slot: RowSlot<'a>,
        accesses: &[Access],
        more: &[Access],
    ) -> SlotAddress {
        let (class, slot) = self.narrow(class, slot);
        self.rows += 1;
        let level = self.order.place(self.rows, class, accesses.iter().chain(more));
        let groups = &mut self.groups;
        let group = *self.group_numbers.entry((class, level)).or_insert_with(|| {
            groups.push(GroupBuilder { class, level, timestamp, rows: Vec::new() });
            (groups.len() - 1) as u32
        });
        let mut index = 0;
        if let Some(gathered) = groups.get_mut(group as usize) {
            index = gathered.rows.len() as u32;
            gathered.timestamp = gathered.timestamp.max(timestamp);
            gathered.rows.push(Some(slot));
        }
        SlotAddress { number: self.rows, group, index }
    }

    fn class_number(&mut self, class: RowClass<'a>) -> u32 {
        if let Some(number) = self.class_numbers.get(&class) {
            return *number;
        }
        let number = self.classes.len() as u32;
        let columns = self.tables.get(class.table).map_or(0, |table| table.mapped.map.columns.len());
        let full = class.kind == RowsKind::Update && is_full(&class.columns_present_after, columns);
        self.classes.push(KnownClass { class: class.clone(), full });
        self.class_numbers.insert(class, number);
        number
    }
}

/// Returns the columns of an event's after images, or of its only images.
fn columns_after(changes: &RowChanges) -> &[u8] {
    match changes.kind {
        RowsKind::Update | RowsKind::PartialUpdate => &changes.columns_present_after,
        RowsKind::Write | RowsKind::Delete => &changes.columns_present,
    }
}
