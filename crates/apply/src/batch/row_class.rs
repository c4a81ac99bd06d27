//! The common properties of the rows in a group, and the location of a planned row.

use std::borrow::Cow;

use tailwater_wire::event::RowsKind;

/// The common properties of the rows in a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RowClass<'a> {
    pub table: u32,
    pub kind: RowsKind,
    pub flags: u16,
    pub server_id: u32,
    pub columns_present: Cow<'a, [u8]>,
    pub columns_present_after: Cow<'a, [u8]>,
    /// Distinct for events whose rows must not be combined; otherwise 0.
    pub event: u32,
}

/// The location of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotAddress {
    /// Row number, from 1.
    pub number: u32,
    /// Index of its group, from 0.
    pub group: u32,
    /// Index in the group, from 0.
    pub index: u32,
}
