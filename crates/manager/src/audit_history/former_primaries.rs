//! Which servers were primary and were replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::failover_effect::RunEffect;
use crate::model::Audit;

/// The servers whose newest audit record says that another server replaced them, each with the id of that
/// record. A server that became the primary again after that is not among them.
pub fn former_primaries(newest_first: impl IntoIterator<Item = Audit>) -> BTreeMap<String, String> {
    let (mut seen, mut former) = (BTreeSet::new(), BTreeMap::new());
    for audit in newest_first {
        let RunEffect::Promoted { server } = RunEffect::of(&audit) else { continue };
        seen.insert(server);
        if seen.insert(audit.primary.clone()) {
            former.insert(audit.primary, audit.id);
        }
    }
    former
}
