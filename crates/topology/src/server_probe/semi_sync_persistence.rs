//! Determines whether semi-sync is still enabled after a restart of a server. A restart loses values that
//! were set at run time, unless MySQL persisted them (`SET PERSIST`); MariaDB persists nothing. After the
//! restart, the defaults, the option files and the command line determine the values again.
//!
//! This module assumes that the option files and the command line are the same at the next start. It also
//! assumes that the command line does not override persisted variables. No query to the server can verify
//! these two assumptions.

use std::collections::BTreeMap;

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::named_result_values::NamedValues;
use super::probe_queries::ask_if_allowed;
use crate::error::TopologyError;
use crate::server_state::{OptionalQuery, SEMI_SYNC_TIMEOUT_MS_MIN, UnansweredQuery};

/// Name suffixes of a semi-sync source variable: first the name in MySQL, then the older name, which MariaDB
/// uses too.
type NameSuffixes = &'static [&'static str];

const ENABLED: NameSuffixes = &["enabled"];
const TIMEOUT: NameSuffixes = &["timeout"];
const WAIT_POINT: NameSuffixes = &["wait_point"];
const WAIT_NOBODY: NameSuffixes = &["wait_no_replica", "wait_no_slave"];
const WAIT_COUNT: NameSuffixes = &["wait_for_replica_count", "wait_for_slave_count"];

/// The values that the variables may have after a restart, in lower case, by lower-case name suffix.
#[derive(Debug, Default)]
struct ValuesAfterRestart(BTreeMap<String, Vec<String>>);

impl ValuesAfterRestart {
    fn of(variables: impl Iterator<Item = VariableOrigin>) -> Self {
        let known = variables.filter_map(|variable| {
            let name = variable.name.to_ascii_lowercase();
            let end = ["rpl_semi_sync_source_", "rpl_semi_sync_master_"]
                .into_iter()
                .find_map(|prefix| name.strip_prefix(prefix))?;
            // A persisted value overrides the option files, and the command line overrides the persisted
            // value. So the value after a restart is either the present value or the persisted value.
            let comes_again = (!variable.set_at_runtime).then_some(variable.now);
            let values = variable.persisted.into_iter().chain(comes_again);
            Some((end.to_owned(), values.map(|value| value.to_ascii_lowercase()).collect()))
        });
        Self(known.collect())
    }

    /// Whether the variable is known, and `fits` accepts all values that it may have after a restart.
    fn fits(&self, ends: NameSuffixes, fits: impl Fn(&str) -> bool) -> bool {
        let values = ends.iter().find_map(|end| self.0.get(*end));
        values.is_some_and(|values| !values.is_empty() && values.iter().all(|value| fits(value)))
    }

    /// Whether the server will wait for ACKs by the lossless rules, for at least as many ACKs as now.
    fn waits(&self, acks_needed: u32) -> bool {
        let on = |value: &str| matches!(value, "on" | "1");
        let at_least = |value: &str, least: u64| value.parse().is_ok_and(|number: u64| number >= least);
        // MariaDB has no such variable: it always waits for one ACK.
        let has_count = WAIT_COUNT.iter().any(|end| self.0.contains_key(*end));
        self.fits(ENABLED, on)
            && self.fits(TIMEOUT, |value| at_least(value, SEMI_SYNC_TIMEOUT_MS_MIN))
            && self.fits(WAIT_POINT, |value| value == "after_sync")
            && self.fits(WAIT_NOBODY, on)
            && match has_count {
                true => self.fits(WAIT_COUNT, |value| at_least(value, acks_needed.into())),
                false => acks_needed <= 1,
            }
    }
}

/// A variable, with the facts that determine its value after a restart.
#[derive(Debug)]
struct VariableOrigin {
    name: String,
    now: String,
    /// Whether the present value was set by a statement.
    set_at_runtime: bool,
    /// The value that is persisted for the next start.
    persisted: Option<String>,
}

/// Determines from the server's variables whether semi-sync is in force by the lossless rules after a
/// restart. Returns false if this cannot be queried.
pub(super) async fn waits_after_restart(
    connection: &mut Connection,
    variables: &NamedValues,
    acks_needed: u32,
    unanswered: &mut Vec<UnansweredQuery>,
) -> Result<bool, TopologyError> {
    let (origins, persisted) = match connection.server().flavour {
        Flavour::MySql => {
            let origins = "SELECT VARIABLE_NAME, VARIABLE_SOURCE FROM performance_schema.variables_info WHERE VARIABLE_NAME \
                           LIKE 'rpl_semi_sync_%'";
            // A server ignores persisted variables if it was started without an option file, or with
            // persisted_globals_load = OFF.
            let persisted = "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.persisted_variables WHERE \
                             VARIABLE_NAME LIKE 'rpl_semi_sync_%' AND @@global.persisted_globals_load = 1";
            (origins, Some(persisted))
        }
        Flavour::MariaDb => {
            let origins = "SELECT VARIABLE_NAME, GLOBAL_VALUE_ORIGIN FROM information_schema.SYSTEM_VARIABLES WHERE \
                           VARIABLE_NAME LIKE 'RPL_SEMI_SYNC_MASTER%'";
            (origins, None)
        }
    };
    let ask = (OptionalQuery::SemiSyncPersistence, "SELECT on performance_schema");
    let Some(origins) = ask_if_allowed(connection, (origins, ask), unanswered).await? else {
        return Ok(false);
    };
    let persisted = match persisted {
        None => NamedValues::default(),
        Some(question) => match ask_if_allowed(connection, (question, ask), unanswered).await? {
            Some(answer) => NamedValues::of(&answer),
            None => return Ok(false),
        },
    };
    let variable = |(name, origin): (&str, &str)| {
        Some(VariableOrigin {
            name: name.to_owned(),
            now: variables.get(&[name])?.to_owned(),
            set_at_runtime: matches!(origin, "DYNAMIC" | "SQL"),
            persisted: persisted.get(&[name]).map(str::to_owned),
        })
    };
    Ok(ValuesAfterRestart::of(NamedValues::of(&origins).iter().filter_map(variable)).waits(acks_needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, now: &str) -> VariableOrigin {
        VariableOrigin { name: name.into(), now: now.into(), set_at_runtime: false, persisted: None }
    }

    fn mysql() -> Vec<VariableOrigin> {
        vec![
            variable("rpl_semi_sync_source_enabled", "ON"),
            variable("rpl_semi_sync_source_timeout", "2000000000"),
            variable("rpl_semi_sync_source_wait_point", "AFTER_SYNC"),
            variable("rpl_semi_sync_source_wait_no_replica", "ON"),
            variable("rpl_semi_sync_source_wait_for_replica_count", "2"),
        ]
    }

    fn waits(variables: Vec<VariableOrigin>, acks: u32) -> bool {
        ValuesAfterRestart::of(variables.into_iter()).waits(acks)
    }

    #[test]
    fn only_values_that_survive_a_restart_count() {
        assert!(waits(mysql(), 2) && waits(mysql(), 1) && !waits(mysql(), 3));
        for (index, weak) in ["OFF", "86399999", "AFTER_COMMIT", "OFF", "1"].into_iter().enumerate() {
            let mut variables = mysql();
            variables[index].now = weak.into();
            assert!(
                !waits(variables, 2),
                "the settings must not count as lossless; the weak variable has index: {index}"
            );
            // Both values that the variable may have after a restart must be lossless.
            let mut variables = mysql();
            variables[index].persisted = Some(weak.into());
            assert!(
                !waits(variables, 2),
                "the settings must not count as lossless; the weak variable has index: {index}"
            );
            let mut variables = mysql();
            variables[index].persisted = Some(variables[index].now.clone());
            assert!(
                waits(variables, 2),
                "the settings must count as lossless; the changed variable has index: {index}"
            );
            let mut variables = mysql();
            variables[index].persisted = Some(variables[index].now.clone());
            variables[index].now = weak.into();
            assert!(
                !waits(variables, 2),
                "the settings must not count as lossless; the weak variable has index: {index}"
            );
            // The restart loses the value that was set at run time. The persisted value applies.
            let mut variables = mysql();
            variables[index].set_at_runtime = true;
            assert!(
                !waits(variables, 2),
                "the settings must not count as lossless; the weak variable has index: {index}"
            );
            let mut variables = mysql();
            variables[index].set_at_runtime = true;
            variables[index].persisted = Some(variables[index].now.clone());
            assert!(
                waits(variables, 2),
                "the settings must count as lossless; the changed variable has index: {index}"
            );
            // If only the variable for the number of ACKs is missing, the server is MariaDB. If any other
            // variable is missing, the settings are not lossless.
            let mut variables = mysql();
            variables.remove(index);
            assert!(
                !waits(variables, 2),
                "the settings must not count as lossless; the weak variable has index: {index}"
            );
        }
    }

    #[test]
    fn mariadb_waits_for_one_ack() {
        let mariadb = || {
            let names = ["enabled", "timeout", "wait_point", "wait_no_slave"];
            let values = ["ON", "86400000", "AFTER_SYNC", "ON"];
            let pairs = names.into_iter().zip(values);
            pairs.map(|(name, value)| variable(&format!("RPL_SEMI_SYNC_MASTER_{name}"), value)).collect()
        };
        assert!(waits(mariadb(), 1) && !waits(mariadb(), 2));
        assert!(!waits(Vec::new(), 1));
    }
}
