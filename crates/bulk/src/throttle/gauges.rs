//! When work is held back, and when it goes on again.

use std::sync::Arc;

/// Behind a limit that was passed, work goes on only when it is this far below: in parts of 100. Otherwise it would go on and
/// stop with every answer.
const GO_ON_BELOW_PERCENT: f64 = 80.0;

/// What a throttle says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThrottleDecision {
    /// Work may go on.
    Proceed,
    /// It may not, and why.
    Wait(Arc<str>),
}

/// Something that is asked again and again, and how much it may be.
#[derive(Debug, Clone, PartialEq)]
pub struct ThrottleLimit {
    /// What it is, where: for messages.
    pub what: String,
    /// The most it may be.
    pub max: f64,
    /// The unit, for messages; may be empty.
    pub unit: &'static str,
}

/// One limit and what was last heard of it.
#[derive(Debug, Clone)]
struct ThrottleGauge {
    limit: ThrottleLimit,
    /// Why it holds.
    held: Option<String>,
}

/// All limits together.
#[derive(Debug, Clone)]
pub struct ThrottleGauges(Vec<ThrottleGauge>);

impl ThrottleGauges {
    /// Limits of which nothing is known yet, so that all of them hold.
    pub fn new(limits: Vec<ThrottleLimit>) -> Self {
        let unknown = |limit: ThrottleLimit| ThrottleGauge {
            held: Some(format!("{} is not known yet", limit.what)),
            limit,
        };
        Self(limits.into_iter().map(unknown).collect())
    }

    /// Takes in what was heard of the limit with this number: a value, or why there is none.
    pub fn record(&mut self, number: usize, answer: Result<f64, String>) {
        let Some(ThrottleGauge { limit: ThrottleLimit { what, max, unit }, held }) = self.0.get_mut(number)
        else {
            return;
        };
        let go_on = if held.is_some() { *max * GO_ON_BELOW_PERCENT / 100.0 } else { *max };
        // No number is above or below any other: it must hold.
        *held = match answer {
            Ok(value) if value <= go_on => None,
            Ok(value) if value <= *max => {
                Some(format!("{what} is {value}{unit}, and was more than {max}{unit}"))
            }
            Ok(value) => Some(format!("{what} is {value}{unit}, more than {max}{unit}")),
            Err(reason) => Some(format!("{what} cannot be read: {reason}")),
        };
    }

    /// Whether work may go on: no limit holds it.
    pub fn decision(&self) -> ThrottleDecision {
        let reasons: Vec<_> = self.0.iter().filter_map(|gauge| gauge.held.as_deref()).collect();
        if reasons.is_empty() {
            ThrottleDecision::Proceed
        } else {
            ThrottleDecision::Wait(reasons.join("; ").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gauges(max: &[f64]) -> ThrottleGauges {
        let limit = |max: &f64| ThrottleLimit { what: "load".into(), max: *max, unit: " s" };
        ThrottleGauges::new(max.iter().map(limit).collect())
    }

    fn reason(gauges: &ThrottleGauges) -> Option<String> {
        match gauges.decision() {
            ThrottleDecision::Proceed => None,
            ThrottleDecision::Wait(reason) => Some(reason.to_string()),
        }
    }

    #[test]
    fn what_was_above_its_limit_must_come_well_below() {
        let mut gauges = gauges(&[10.0]);
        assert_eq!(reason(&gauges).unwrap(), "load is not known yet");
        gauges.record(0, Ok(8.0));
        assert_eq!(reason(&gauges), None);
        gauges.record(0, Ok(10.0));
        assert_eq!(reason(&gauges), None, "the limit itself is allowed");
        gauges.record(0, Ok(11.0));
        assert_eq!(reason(&gauges).unwrap(), "load is 11 s, more than 10 s");
        gauges.record(0, Ok(9.0));
        assert_eq!(reason(&gauges).unwrap(), "load is 9 s, and was more than 10 s");
        gauges.record(0, Ok(8.0));
        assert_eq!(reason(&gauges), None);
    }

    #[test]
    fn what_is_not_known_holds() {
        let mut gauges = gauges(&[0.0, 5.0]);
        gauges.record(0, Ok(0.0));
        assert_eq!(reason(&gauges).unwrap(), "load is not known yet");
        gauges.record(1, Err("connection refused".into()));
        assert_eq!(reason(&gauges).unwrap(), "load cannot be read: connection refused");
        gauges.record(1, Ok(f64::NAN));
        assert!(reason(&gauges).is_some());
        gauges.record(1, Ok(1.0));
        assert_eq!(reason(&gauges), None);
        gauges.record(0, Ok(1.0));
        assert_eq!(reason(&gauges).unwrap(), "load is 1 s, more than 0 s");
    }

    proptest! {
        #[test]
        fn it_goes_on_only_if_every_last_answer_is_within_its_limit(
            answers in prop::collection::vec((0..3usize, prop::option::of(-1e9..1e9f64)), 0..60),
            limits in prop::collection::vec(0.0..1e9f64, 3),
        ) {
            let mut gauges = gauges(&limits);
            let mut last = [None; 3];
            for (number, answer) in answers {
                gauges.record(number, answer.ok_or_else(|| "gone".to_owned()));
                last[number] = answer;
                let within = last.iter().zip(&limits).all(|(last, max)| last.is_some_and(|last| last <= *max));
                prop_assert!(gauges.decision() != ThrottleDecision::Proceed || within);
                // And without hysteresis in the way it does go on.
                let well_within = last.iter().zip(&limits).all(|(last, max)| last.is_some_and(|last| last <= max * 0.79));
                prop_assert!(gauges.decision() == ThrottleDecision::Proceed || !well_within);
            }
        }
    }
}
