//! The transactions that a server must have, parsed from the text of a `GtidDifference`.

use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MysqlGtidSet};

/// Transactions that a server must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredGtids(GtidSet);

impl RequiredGtids {
    /// Parses a MySQL GTID set, or MariaDB ranges such as `0-1-5..9,1-1-3`. Returns `None` for any other
    /// text.
    pub fn read(flavour: Flavour, text: &str) -> Option<Self> {
        match flavour {
            Flavour::MySql => MysqlGtidSet::parse(text).ok().map(|set| Self(GtidSet::MySql(set))),
            Flavour::MariaDb => {
                let lasts = text.split(',').map(last_of_range).collect::<Option<Vec<_>>>()?;
                let state = MariadbBinlogState::parse(&lasts.join(",")).ok()?;
                Some(Self(GtidSet::MariaDb(state)))
            }
        }
    }

    /// Whether `held` contains all required transactions.
    pub fn is_held_by(&self, held: &GtidSet) -> bool {
        self.0.is_subset_of(held)
    }

    /// Returns the transactions in `held` that are not among the required ones, if any.
    pub fn lacks(&self, held: &GtidSet) -> Option<String> {
        match held.is_subset_of(&self.0) {
            true => None,
            false => Some(held.subtract(&self.0).map(|more| more.to_string()).unwrap_or_default()),
        }
    }

    /// Returns the required transactions that `held` lacks, as text for messages.
    pub fn missing_in(&self, held: &GtidSet) -> String {
        self.0.subtract(held).map(|missing| missing.to_string()).unwrap_or_default()
    }
}

/// Returns the last GTID of a range: `0-1-9` for `0-1-5..9`. A server that has the last transaction of a
/// range has the whole range.
fn last_of_range(text: &str) -> Option<String> {
    let text = text.trim();
    let Some((front, last)) = text.split_once("..") else { return Some(text.to_owned()) };
    let (server, _first) = front.rsplit_once('-')?;
    Some(format!("{server}-{last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_gtid_difference_can_be_parsed() {
        let mariadb = |text: &str| GtidSet::parse(Flavour::MariaDb, text).unwrap();
        let all = mariadb("0-1-9,1-2-3");
        let some = mariadb("0-1-4");
        let difference = all.subtract(&some).unwrap().to_string();
        let wanted = RequiredGtids::read(Flavour::MariaDb, &difference).unwrap();
        assert!(
            wanted.is_held_by(&all) && !wanted.is_held_by(&some),
            "the wrong set of required GTIDs was parsed from this text: {difference}"
        );
        assert!(!wanted.is_held_by(&mariadb("0-1-9,1-2-2")));

        let mysql = |text: &str| {
            GtidSet::parse(Flavour::MySql, &text.replace('A', "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"))
                .unwrap()
        };
        let difference = mysql("A:1-9").subtract(&mysql("A:1-4")).unwrap().to_string();
        let wanted = RequiredGtids::read(Flavour::MySql, &difference).unwrap();
        assert!(wanted.is_held_by(&mysql("A:5-9")) && !wanted.is_held_by(&mysql("A:1-8")));
        assert!(wanted.missing_in(&mysql("A:1-8")).ends_with(":9"));
        assert_eq!(RequiredGtids::read(Flavour::MariaDb, "nonsense"), None);
    }
}
