//! The keys that a transaction reads or writes. Two transactions that share a key must keep their order;
//! other transactions may run in any order.
//!
//! A key is a hash of a row's values in one index. Two values may have the same hash, and two values that
//! differ in a server's collation may count as equal here. In both cases, the only effect is that a
//! transaction waits unnecessarily. Code that treats two rows as *the same* must compare their bytes.

/// The number of a unique index, or of a table if it has no unique index. The table definition cache assigns
/// this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexId(pub u32);

/// The key of a row in one index, as a hash of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WritesetKey {
    /// The index to which the key belongs.
    pub index: IndexId,
    /// Hash of the values as the index compares them; [`WritesetKey::ANY`] if it cannot be computed.
    pub hash: u64,
}

impl WritesetKey {
    /// The hash that conflicts with every key of its index. No value has this hash.
    pub const ANY: u64 = 0;

    /// Returns whether the key is [`WritesetKey::ANY`], which conflicts with all keys of its index.
    pub fn is_any(self) -> bool {
        self.hash == Self::ANY
    }
}

/// An access of a transaction to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// The key that is accessed.
    pub key: WritesetKey,
    /// Whether the access is shared, for example a child row's access to its parent's key. Shared accesses do
    /// not conflict with each other.
    pub shared: bool,
}

impl Access {
    /// Returns whether the two accesses must keep their order.
    pub fn conflicts(self, other: Self) -> bool {
        !(self.shared && other.shared)
            && self.key.index == other.key.index
            && (self.key.hash == other.key.hash || self.key.is_any() || other.key.is_any())
    }
}

/// All keys that a transaction accesses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writeset {
    /// The accesses to the keys, one entry for each key. An entry is exclusive if any access to its key is
    /// exclusive.
    pub accesses: Vec<Access>,
    /// Whether the transaction must run alone: after all earlier transactions and before all later ones. This
    /// is the case for statements, streamed transactions, and rows of nontransactional tables.
    pub barrier: bool,
}

impl Writeset {
    /// Returns whether two transactions with these writesets must keep their order.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.barrier
            || other.barrier
            || self.accesses.iter().any(|access| other.accesses.iter().any(|other| access.conflicts(*other)))
    }
}
