//! Parses and formats times in the local time zone.

use std::str::FromStr;

use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, TimeZone};

/// A time in microseconds since 1970 that is parsed and printed as local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalTime(pub u64);

impl FromStr for LocalTime {
    type Err = String;

    /// Parses a local time (`2026-11-21`, `2026-11-21 12:03:10`, optionally with a fraction), RFC 3339
    /// (`2026-11-21T12:03:10+02:00`), or seconds since 1970 (`@1795262590`).
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a time: use \"YYYY-MM-DD\", \"YYYY-MM-DD HH:MM:SS\", RFC 3339, or @SECONDS"
            )
        };
        if let Some(seconds) = text.strip_prefix('@') {
            let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
            let digits = fraction.get(..fraction.len().min(6)).unwrap_or_default();
            let whole: u64 = whole.parse().map_err(|_| wrong())?;
            let fraction: u64 = format!("{digits:0<6}").parse().map_err(|_| wrong())?;
            return whole
                .checked_mul(1_000_000)
                .and_then(|us| us.checked_add(fraction))
                .map(Self)
                .ok_or_else(wrong);
        }
        if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
            return since_1970(moment.timestamp_micros()).ok_or_else(wrong);
        }
        let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().and_then(|day| day.and_hms_opt(0, 0, 0));
        let local = day
            .or_else(|| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").ok())
            .or_else(|| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").ok())
            .ok_or_else(wrong)?;
        // When clocks are set back, a local time occurs twice; use the first. When clocks are set forward,
        // some local times do not exist.
        let moment = Local.from_local_datetime(&local).earliest().ok_or_else(|| {
            format!(
                "{text:?} does not exist in local time, because the clock is set forward; give the time with an \
                 offset from UTC"
            )
        })?;
        since_1970(moment.timestamp_micros()).ok_or_else(wrong)
    }
}

fn since_1970(microseconds: i64) -> Option<LocalTime> {
    u64::try_from(microseconds).ok().map(LocalTime)
}

impl LocalTime {
    fn local(self) -> Option<DateTime<Local>> {
        Local.timestamp_micros(i64::try_from(self.0).ok()?).single()
    }

    fn formatted(self, format: &str) -> String {
        self.local()
            .map_or_else(|| format!("@{}", self.0 / 1_000_000), |local| local.format(format).to_string())
    }

    /// The date and time, such as `2026-11-21 12:03:10`.
    pub fn date_and_time(self) -> String {
        self.formatted("%Y-%m-%d %H:%M:%S")
    }

    /// The time of day, such as `12:03:10`.
    pub fn time(self) -> String {
        self.formatted("%H:%M:%S")
    }

    /// The offset of local time from UTC at this time, such as `+02:00`.
    pub fn offset(self) -> String {
        self.formatted("%:z")
    }

    /// Whether this time and `other` are on the same local day.
    pub fn same_day(self, other: Self) -> bool {
        self.local().map(|local| local.date_naive()) == other.local().map(|local| local.date_naive())
    }
}

#[cfg(test)]
mod tests {
    use super::LocalTime;

    #[test]
    fn times_are_parsed_in_every_form() {
        let parse = |text: &str| text.parse::<LocalTime>();
        assert_eq!(parse("@1795262590"), Ok(LocalTime(1_795_262_590_000_000)));
        assert_eq!(parse("@1.25"), Ok(LocalTime(1_250_000)));
        assert_eq!(parse("1970-01-02T00:00:00Z"), Ok(LocalTime(86_400_000_000)));
        assert_eq!(parse("1970-01-02T02:00:00.5+02:00"), Ok(LocalTime(86_400_500_000)));
        for text in ["2026-06-21 12:03:10", "2026-11-21 00:00:00"] {
            assert_eq!(parse(text).unwrap().date_and_time(), text);
        }
        assert_eq!(parse("2026-11-21"), parse("2026-11-21 00:00"));
        for text in
            ["", "yesterday", "@", "@x", "2026-13-01", "1960-01-01T00:00:00Z", "@99999999999999999999"]
        {
            assert!(parse(text).is_err(), "{text} was accepted as a time");
        }
    }
}
