//! Ids of failovers, switchovers and recoveries. An id begins with the time at which the run began.

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};

const TIME_FORMAT: &str = "%Y%m%dT%H%M%S%3fZ";

/// Returns the id of a run that begins now. It is greater than all earlier ids, also if the clock was stepped
/// back or if another manager's clock is ahead: the order of the ids is the order of the runs.
pub fn new_run_id(now: DateTime<Utc>, earlier: &[String], source: &str, kind: &str) -> String {
    let newest = earlier.iter().filter_map(|id| run_time(id)).max();
    let time = newest.map_or(now, |newest| now.max(newest + TimeDelta::milliseconds(1)));
    format!("{}-{source}-{kind}", time.format(TIME_FORMAT))
}

/// Returns the time in the id of a run; `None` if the id does not begin with a time.
pub fn run_time(id: &str) -> Option<DateTime<Utc>> {
    let time = id.split('-').next().unwrap_or_default();
    NaiveDateTime::parse_from_str(time, TIME_FORMAT).ok().map(|time| time.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_the_order_of_runs_when_the_clock_is_stepped_back() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let mut ids = Vec::new();
        for now in ["2026-11-22T11:15:00.123Z", "2026-11-22T11:01:00Z", "2026-11-22T11:01:00Z"] {
            ids.push(new_run_id(at(now), &ids, "shop-eu", "failover"));
        }
        ids.push("by-hand".to_owned());
        ids.push(new_run_id(at("2026-11-22T11:16:00Z"), &ids, "shop-eu", "recovery"));
        let expected = [
            "20261122T111500123Z-shop-eu-failover",
            "20261122T111500124Z-shop-eu-failover",
            "20261122T111500125Z-shop-eu-failover",
            "by-hand",
            "20261122T111600000Z-shop-eu-recovery",
        ];
        assert_eq!(ids, expected);
        assert_eq!(run_time(&ids[0]), Some(at("2026-11-22T11:15:00.123Z")));
        assert_eq!(run_time("by-hand"), None);
    }
}
