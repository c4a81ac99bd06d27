//! How a former primary was replaced, by the audit records of runs. Pure.
//!
//! Transactions that only such a server has were never acknowledged, if the failover that replaced it proved
//! so. This counts only for its last replacement: if the records do not lead from there to the present
//! primary, one may be missing.

use tailwater_manager::failover::{Audit, RunOutcome};

/// What the records prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// No acknowledged commit exists only on it.
    Proven,
    /// An operator accepted in this run that acknowledged commits may be missing: only this server may have
    /// them.
    Accepted(String),
    /// The records prove nothing; the reason.
    Unknown(String),
}

/// How `server` was replaced last. `leader` is the present primary; the records are in order from the newest.
pub fn past(server: &str, leader: &str, newest_first: impl Iterator<Item = Audit>) -> Past {
    let mut led = leader.to_owned();
    let mut last_run = None;
    for audit in newest_first {
        let Some(RunOutcome::Promoted { server: new, .. }) = &audit.outcome else { continue };
        // A recovery records the same change as the run that it finished.
        let run = audit.resumes.clone().unwrap_or_else(|| audit.id.clone());
        if last_run.as_ref() == Some(&run) {
            continue;
        }
        if *new != led {
            return Past::Unknown(format!(
                "no record tells how {led} became the primary behind {}",
                audit.id
            ));
        }
        if audit.primary == server {
            return match audit.possible_loss {
                Some(_) => Past::Accepted(audit.id),
                None => Past::Proven,
            };
        }
        last_run = Some(run);
        led = audit.primary;
    }
    Past::Unknown(format!("no record tells how {led} became the primary"))
}

#[cfg(test)]
mod tests {
    use tailwater_manager::SafetyRefusal;
    use tailwater_manager::failover::RunKind;
    use tailwater_manager::lossless::PossibleLoss;

    use super::*;

    fn change(id: &str, from: &str, to: &str) -> Audit {
        let outcome = Some(RunOutcome::Promoted { server: to.to_owned(), left: Vec::new() });
        Audit { outcome, ..Audit::new(id, RunKind::Failover, from) }
    }

    fn lossy(change: Audit) -> Audit {
        let missing = PossibleLoss { after: None, known: None, held_by: Vec::new(), grows: true };
        Audit { possible_loss: Some(missing), ..change }
    }

    fn refused(id: &str) -> Audit {
        let refusal = SafetyRefusal::NoLease { reason: "as the test says".to_owned() };
        Audit { outcome: Some(RunOutcome::Unchanged { refusal }), ..Audit::new(id, RunKind::Failover, "db1") }
    }

    fn of(server: &str, leader: &str, newest_first: &[Audit]) -> Past {
        past(server, leader, newest_first.iter().cloned())
    }

    #[test]
    fn the_run_that_replaced_it_last_tells() {
        let accepted = |id: &str| Past::Accepted(id.to_owned());
        let first = lossy(change("1", "db1", "db2"));
        assert_eq!(of("db1", "db2", std::slice::from_ref(&first)), accepted("1"));
        // A run that replaced no server proves nothing.
        assert_eq!(of("db1", "db2", &[refused("2"), first.clone()]), accepted("1"));
        let back = change("3", "db2", "db1");
        assert_eq!(of("db2", "db1", &[back.clone(), first.clone()]), Past::Proven);
        let again = change("4", "db1", "db2");
        assert_eq!(of("db1", "db2", &[again, back, first.clone()]), Past::Proven);
        let on = change("3", "db2", "db3");
        assert_eq!(of("db1", "db3", &[on.clone(), first.clone()]), accepted("1"));
        assert_eq!(of("db2", "db3", &[on, first]), Past::Proven);
    }

    #[test]
    fn what_a_recovery_finished_is_one_change() {
        let run = change("1", "db2", "db3");
        let recovery = Audit { resumes: Some("1".to_owned()), ..change("2", "db2", "db3") };
        let first = change("0", "db1", "db2");
        assert_eq!(of("db1", "db3", &[recovery, run, first]), Past::Proven);
    }

    #[test]
    fn records_that_do_not_lead_to_who_leads_now_prove_nothing() {
        let is_unknown = |past| matches!(past, Past::Unknown(_));
        assert!(is_unknown(of("db1", "db2", &[])));
        assert!(is_unknown(of("db1", "db2", &[refused("1")])));
        let first = change("1", "db1", "db2");
        assert!(is_unknown(of("db3", "db2", std::slice::from_ref(&first))), "nobody tells that it ever led");
        // An unknown run has replaced db2, and perhaps db1 again.
        assert!(is_unknown(of("db1", "db3", std::slice::from_ref(&first))));
        let third = change("3", "db1", "db2");
        assert!(is_unknown(of("db3", "db2", &[third, first])));
    }
}
