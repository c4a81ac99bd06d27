//! Values as text. What is not known is an en dash.

use tailwater_binlog_stats::LocalTime;
use tailwater_binlog_stats::number_format::duration;

/// A value that is not known.
pub(super) const UNKNOWN: &str = "–";

/// A lag in seconds, with one decimal while that matters.
pub(super) fn lag(seconds: Option<f64>) -> String {
    match seconds {
        None => UNKNOWN.to_owned(),
        Some(seconds) if seconds < 100.0 => format!("{seconds:.1} s"),
        Some(seconds) => duration(seconds),
    }
}

/// The time since something, from milliseconds.
pub(super) fn since_ms(ms: Option<u64>) -> String {
    lag(ms.map(|ms| ms as f64 / 1000.0))
}

/// A number of transactions behind.
pub(super) fn behind(transactions: Option<u64>) -> String {
    match transactions {
        None => UNKNOWN.to_owned(),
        Some(0) => "in step".to_owned(),
        Some(behind) => tailwater_binlog_stats::number_format::grouped(behind),
    }
}

/// A time in milliseconds since 1970, as local time.
pub(super) fn local_time(ms: u64) -> String {
    LocalTime(ms.saturating_mul(1000)).date_and_time()
}

/// The time at the start of the name of a failover or switchover (`20261126T020918123Z-...`), as local time.
pub(super) fn run_time(id: &str) -> String {
    let parsed = id
        .split_once('-')
        .and_then(|(time, _)| chrono::NaiveDateTime::parse_from_str(time, "%Y%m%dT%H%M%S%3fZ").ok());
    parsed.map_or_else(
        || UNKNOWN.to_owned(),
        |time| local_time(u64::try_from(time.and_utc().timestamp_millis()).unwrap_or_default()),
    )
}

/// A duration in milliseconds.
pub(super) fn millis(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..100_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => duration(ms as f64 / 1000.0),
    }
}

/// How long the daemon has been running.
pub(super) fn uptime(seconds: u64) -> String {
    duration(seconds as f64)
}

/// Transactions or rows per second.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        rate if rate < 10.0 => format!("{rate:.1}/s"),
        rate => format!("{}/s", tailwater_binlog_stats::number_format::count(rate as u64)),
    }
}

/// At most that many characters of a text, with an ellipsis if some are left out.
pub(super) fn shortened(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let start: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    format!("{}…", start.trim_end())
}

/// A name as part of an address of the page.
pub(super) fn path_segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => segment.push(byte as char),
            b'.' if name != "." && name != ".." => segment.push('.'),
            _ => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}

/// A name as part of an element's id.
pub(super) fn element_id(name: &str) -> String {
    path_segment(name).replace(['%', '~', '.'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short() {
        assert_eq!([lag(None), lag(Some(0.04)), lag(Some(3_725.0))], ["–", "0.0 s", "1 h 2 min"]);
        assert_eq!([behind(Some(0)), behind(Some(12_345)), behind(None)], ["in step", "12,345", "–"]);
        assert_eq!([millis(950), millis(2_310), millis(200_000)], ["950 ms", "2.3 s", "3 min 20 s"]);
        assert_eq!([rate(0.25), rate(15_000.0)], ["0.2/s", "15,000/s"]);
        assert_eq!(shortened("a-long-name-of-a-server", 8), "a-long-…");
        assert_eq!(run_time("nonsense"), "–");
        assert!(run_time("20261126T020918123Z-orders-failover").starts_with("2026-11-2"));
    }

    #[test]
    fn names_cannot_leave_their_place_in_an_address() {
        assert_eq!(path_segment("db 1/../\"é"), "db%201%2F..%2F%22%C3%A9");
        assert_eq!(path_segment(".."), "%2E%2E");
        assert_eq!(element_id("db.1 ü"), "db_1_20_C3_BC");
    }
}
