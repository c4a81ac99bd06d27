//! What a transaction touches, as keys: two transactions that share one must keep their order, others need not.
//!
//! A key is a hash of a row's values in one index. Hashes may collide, and collations are coarser here than on any server;
//! both only make transactions wait that need not. Whoever takes two rows for *the same* must compare their bytes.

/// One index of one table (or the table itself, if it has no unique index), by a number given out by the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexId(pub u32);

/// The values of a row in one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WritesetKey {
    /// Which index.
    pub index: IndexId,
    /// Hash of the values, as the index compares them; [`WritesetKey::ANY`] where that cannot be told.
    pub hash: u64,
}

impl WritesetKey {
    /// The hash that conflicts with every key of its index. No values hash to it.
    pub const ANY: u64 = 0;

    /// Whether it stands for all keys of its index.
    pub fn is_any(self) -> bool {
        self.hash == Self::ANY
    }
}

/// How a key is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// What is touched.
    pub key: WritesetKey,
    /// Only relied upon (a child's row needs its parent): does not conflict with others that rely on it.
    pub shared: bool,
}

impl Access {
    /// Whether the two must keep their order.
    pub fn conflicts(self, other: Self) -> bool {
        !(self.shared && other.shared)
            && self.key.index == other.key.index
            && (self.key.hash == other.key.hash || self.key.is_any() || other.key.is_any())
    }
}

/// All that a transaction touches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writeset {
    /// Each key once; exclusively, if it is touched so anywhere.
    pub accesses: Vec<Access>,
    /// Must run alone: after all before it, before all behind it (statements, rows whose keys cannot be told).
    pub barrier: bool,
}

impl Writeset {
    /// Whether the two must keep their order.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.barrier
            || other.barrier
            || self.accesses.iter().any(|access| other.accesses.iter().any(|other| access.conflicts(*other)))
    }
}
