//! The common properties of the rows in a group, and the location of a planned row.

use std::borrow::Cow;

use tailwater_wire::binlog_event::RowsKind;

/// The properties that all rows of a group share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RowClass<'a> {
    pub table: u32,
    pub kind: RowsKind,
    pub flags: u16,
    pub server_id: u32,
    pub columns_present: Cow<'a, [u8]>,
    pub columns_present_after: Cow<'a, [u8]>,
    /// A different number for each event whose rows must not be combined with rows of other events; otherwise
    /// 0.
    pub event: u32,
}

/// The location of a row in the plan that is being built.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotAddress {
    /// Number of the row in the batch, from 1.
    pub number: u32,
    /// Index of the row's group in the plan, from 0.
    pub group: u32,
    /// Index of the row in the group, from 0.
    pub index: u32,
}
