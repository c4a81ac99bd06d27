//! Numbers as short text with units. Each text has at most nine characters.

use std::time::Duration;

/// What is shown for a value that is not known.
pub const UNKNOWN: &str = "-";

/// Returns a number of bytes: `512 B`, `1.2 MiB`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

/// Returns a count or a rate: `9999`, `12.3k`, `4.5M`. Small fractions are shown: `0.3`.
pub fn count(count: f64) -> String {
    match count {
        count if count > 0.0 && count < 9.95 && count.fract() > 0.05 => format!("{count:.1}"),
        count if count < 9_999.5 => format!("{count:.0}"),
        count => scaled(count, 1000.0, &["", "k", "M", "G", "T", "P"]),
    }
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, 0);
    // 1023.95 would be rounded to 1024.0.
    while value >= base - 0.05 && unit + 1 < units.len() {
        (value, unit) = (value / base, unit + 1);
    }
    let decimals = usize::from(unit > 0 && value < 999.95);
    format!("{value:.decimals$}{}", units[unit])
}

/// Returns a time: `0.4 s`, `59 s`, `3m 20s`, `2h 5m`, `3d 4h`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3_600 => format!("{}m {}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h {}m", whole / 3_600, whole % 3_600 / 60),
        86_400..8_640_000 => format!("{}d {}h", whole / 86_400, whole % 86_400 / 3_600),
        _ => format!("{}d", whole / 86_400),
    }
}

/// Returns a time like [`seconds`].
pub fn duration(duration: Duration) -> String {
    seconds(duration.as_secs_f64())
}

/// Returns the text of a value, or [`UNKNOWN`].
pub fn or_unknown<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        let shown = |values: &[f64], text: fn(f64) -> String| values.iter().map(|one| text(*one)).collect();
        let all: [(Vec<String>, &[&str]); 3] = [
            (
                shown(&[0.0, 512.0, 1023.99, 1536.0, 1.07e9, 1e30], bytes),
                &["0 B", "512 B", "1.0 KiB", "1.5 KiB", "1020 MiB", "888178419700125 PiB"],
            ),
            (
                shown(&[0.0, 0.3, 7.0, 12.4, 9_999.0, 9_999.6, 123_456.0, 4.5e6], count),
                &["0", "0.3", "7", "12", "9999", "10.0k", "123.5k", "4.5M"],
            ),
            (
                shown(&[0.0, 0.44, 9.94, 59.9, 61.0, 7_500.0, 100_000.0, 1e9], seconds),
                &["0.0 s", "0.4 s", "9.9 s", "59 s", "1m 1s", "2h 5m", "1d 3h", "11574d"],
            ),
        ];
        for (texts, expected) in all {
            assert_eq!(texts, expected);
        }
        assert_eq!(or_unknown(None, count), "-");
    }
}
