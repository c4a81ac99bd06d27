//! Formats numbers for people.

use crate::stats_report::RowCounts;

/// Formats a number of bytes: `812 B`, `14.2 KiB`, `1.3 GiB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB"].iter();
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = "KiB";
    loop {
        value /= 1024.0;
        unit = units.next().unwrap_or(&unit);
        // A value that would be printed as 1024.0 of a unit is printed as 1.0 of the next unit.
        if value < 1023.95 || unit == "PiB" {
            return format!("{value:.1} {unit}");
        }
    }
}

/// Formats a count: `912`, `14,233`, `9.8 million`, `2.1 billion`.
pub fn count(count: u64) -> String {
    match count {
        0..1_000_000 => grouped(count),
        1_000_000..1_000_000_000 => format!("{:.1} million", count as f64 / 1e6),
        _ => format!("{:.1} billion", count as f64 / 1e9),
    }
}

/// Formats a count with all digits, in groups of three.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a duration: `0.041 s`, `12.3 s`, `2 min 14 s`, `3 h 5 min`, `4 d 2 h`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let two = |first: u64, unit: &str, second: u64, second_unit: &str| match second {
        0 => format!("{first} {unit}"),
        _ => format!("{first} {unit} {second} {second_unit}"),
    };
    match whole {
        _ if seconds <= 0.0 => "0 s".to_owned(),
        _ if seconds < 0.9995 => format!("{:.3} s", seconds.max(0.0)),
        _ if seconds < 59.95 => format!("{seconds:.1} s"),
        0..3_600 => two(whole / 60, "min", whole % 60, "s"),
        3_600..86_400 => two(whole / 3_600, "h", whole / 60 % 60, "min"),
        _ => two(whole / 86_400, "d", whole / 3_600 % 24, "h"),
    }
}

/// Formats a share of a whole: `43 %`, `0.2 %`.
pub fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    if percent >= 9.95 || part == 0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// Formats changed rows: `9.8 million rows deleted`, `12 rows inserted, 3 updated`, or `no rows`.
pub fn rows(rows: &RowCounts) -> String {
    let kinds = [(rows.inserted, "inserted"), (rows.updated, "updated"), (rows.deleted, "deleted")];
    let mut parts = Vec::new();
    for (number, verb) in kinds.into_iter().filter(|(number, _)| *number > 0) {
        let what = match (parts.is_empty(), number) {
            (true, 1) => "row ",
            (true, _) => "rows ",
            (false, _) => "",
        };
        parts.push(format!("{} {what}{verb}", count(number)));
    }
    if parts.is_empty() { "no rows".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_395_864_371, "1.3 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (123_456, "123,456"), (9_800_000, "9.8 million")]
        {
            assert_eq!(count(number), text);
        }
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.0414, "0.041 s"),
            (12.34, "12.3 s"),
            (60.0, "1 min"),
            (134.2, "2 min 14 s"),
            (11_100.0, "3 h 5 min"),
            (353_000.0, "4 d 2 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(
            (share(1, 3).as_str(), share(1, 500).as_str(), share(0, 0).as_str()),
            ("33 %", "0.2 %", "0 %")
        );
        assert_eq!(
            rows(&RowCounts { inserted: 1, updated: 0, deleted: 2000 }),
            "1 row inserted, 2,000 deleted"
        );
        assert_eq!(rows(&RowCounts::default()), "no rows");
    }
}
