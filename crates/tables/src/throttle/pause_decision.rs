//! Decides when bulk work pauses and when it resumes.

use std::sync::Arc;

/// After a limit was exceeded, work resumes only below this percentage of the limit. Otherwise it could stop
/// and resume with every measurement.
const RESUME_BELOW_PERCENT: f64 = 80.0;

/// The decision of a throttle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThrottleDecision {
    /// Work may proceed.
    Proceed,
    /// Work must wait, with the reason.
    Wait(Arc<str>),
}

/// A limit on a value that is measured repeatedly.
#[derive(Debug, Clone, PartialEq)]
pub struct ThrottleLimit {
    /// The name of the measured value and the server, for messages.
    pub what: String,
    /// The highest value at which work proceeds.
    pub max: f64,
    /// The unit of the value, for messages; may be empty.
    pub unit: &'static str,
}

/// One limit, and whether its last measurement pauses the work.
#[derive(Debug, Clone)]
struct ThrottleGauge {
    limit: ThrottleLimit,
    /// Why work must wait because of this limit; `None` if it need not wait.
    held: Option<String>,
}

/// All limits of a throttle.
#[derive(Debug, Clone)]
pub struct ThrottleGauges(Vec<ThrottleGauge>);

impl ThrottleGauges {
    /// Creates limits without measurements. Work must wait until each limit has a measurement.
    pub fn new(limits: Vec<ThrottleLimit>) -> Self {
        let unknown = |limit: ThrottleLimit| ThrottleGauge {
            held: Some(format!("{} is not known yet", limit.what)),
            limit,
        };
        Self(limits.into_iter().map(unknown).collect())
    }

    /// Records a measurement for the limit with this number: a value, or the reason why there is none.
    pub fn record(&mut self, number: usize, answer: Result<f64, String>) {
        let Some(ThrottleGauge { limit: ThrottleLimit { what, max, unit }, held }) = self.0.get_mut(number)
        else {
            return;
        };
        let resume_at = if held.is_some() { *max * RESUME_BELOW_PERCENT / 100.0 } else { *max };
        // NaN is neither above nor below the limit, so work must wait.
        *held = match answer {
            Ok(value) if value <= resume_at => None,
            Ok(value) if value <= *max => {
                Some(format!("{what} is {value}{unit}, and was more than {max}{unit}"))
            }
            Ok(value) => Some(format!("{what} is {value}{unit}, more than {max}{unit}")),
            Err(reason) => Some(format!("{what} cannot be read: {reason}")),
        };
    }

    /// Returns whether work may proceed, which requires that no limit is exceeded.
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
    fn work_resumes_well_below_an_exceeded_limit() {
        let mut gauges = gauges(&[10.0]);
        assert_eq!(reason(&gauges).unwrap(), "load is not known yet");
        gauges.record(0, Ok(8.0));
        assert_eq!(reason(&gauges), None);
        gauges.record(0, Ok(10.0));
        assert_eq!(reason(&gauges), None, "a value equal to the limit is allowed");
        gauges.record(0, Ok(11.0));
        assert_eq!(reason(&gauges).unwrap(), "load is 11 s, more than 10 s");
        gauges.record(0, Ok(9.0));
        assert_eq!(reason(&gauges).unwrap(), "load is 9 s, and was more than 10 s");
        gauges.record(0, Ok(8.0));
        assert_eq!(reason(&gauges), None);
    }

    #[test]
    fn unknown_values_pause_work() {
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
        fn work_proceeds_only_if_the_last_value_of_every_limit_is_within_it(
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
                // With all values well below their limits, work must proceed.
                let well_within = last.iter().zip(&limits).all(|(last, max)| last.is_some_and(|last| last <= max * 0.79));
                prop_assert!(gauges.decision() == ThrottleDecision::Proceed || !well_within);
            }
        }
    }
}
