//! Converts SQL dates and times. All times here are UTC.

/// Formats seconds since 1970 as `YYYY-MM-DD hh:mm:ss`.
pub(super) fn date_time(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let time = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60)
}

/// Formats seconds since 1970 as `YYMMDD hh:mm:ss`, as replicas do in their error timestamps.
pub(super) fn short_date_time(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let time = seconds % 86_400;
    format!("{:02}{month:02}{day:02} {:02}:{:02}:{:02}", year % 100, time / 3600, time / 60 % 60, time % 60)
}

/// Parses `YYYY-MM-DD[ hh:mm[:ss[.ffffff]]]`; a `T` may replace the space. Returns `None` for any other text,
/// and for dates before 1970.
pub(super) fn parse_date_time(text: &str) -> Option<u64> {
    let text = text.trim();
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (date, time.trim()),
        None => (text, ""),
    };
    let mut parts = date.split('-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let valid = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !valid || parts.next().is_some() {
        return None;
    }
    let mut seconds = days(year, month, day) * 86_400;
    // Refuse a day that does not exist in its month, such as 31 April. The seconds of such a day are those of
    // another date.
    if civil(seconds / 86_400) != (year, month, day) {
        return None;
    }
    let whole = time.split_once('.').map_or(time, |(whole, _)| whole);
    if !whole.is_empty() {
        let mut parts = whole.split(':').map(number);
        let (hour, minute) = (parts.next()??, parts.next()??);
        let second = parts.next().unwrap_or(Some(0))?;
        if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        seconds += hour * 3600 + minute * 60 + second;
    }
    Some(seconds)
}

fn number(digits: &str) -> Option<u64> {
    let sound = (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    sound.then(|| digits.parse().ok()).flatten()
}

/// Converts days since 1970 to year, month and day. The calculation uses periods of 400 years that start in
/// March, so that a leap day is the last day of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let year_of_era = year % 400;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    year / 400 * 146_097 + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_dates_are_converted() {
        let check = |text: &str, seconds| {
            assert_eq!(parse_date_time(text), Some(seconds), "{text} was converted to a wrong time");
            assert_eq!(date_time(seconds), text);
        };
        check("1970-01-01 00:00:00", 0);
        check("2000-02-29 23:59:59", 951_868_799);
        check("2024-02-29 12:00:00", 1_709_208_000);
        check("2026-01-01 00:00:00", 1_767_225_600);
        check("2100-03-01 00:00:00", 4_107_542_400);
        assert_eq!(short_date_time(1_709_208_000), "240229 12:00:00");
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in [
            "",
            "2023-02-29",
            "2024-13-01",
            "1969-12-31",
            "2024-01-01 24:00:00",
            "2024-01",
            "x",
            "2024-01-01 1",
        ] {
            assert_eq!(parse_date_time(text), None, "the invalid date {text:?} was accepted");
        }
        assert_eq!(parse_date_time("2024-2-29"), parse_date_time("2024-02-29 00:00:00"));
        assert_eq!(parse_date_time("2024-02-29T12:00"), Some(1_709_208_000));
        assert_eq!(parse_date_time("2024-02-29 12:00:00.75"), Some(1_709_208_000));
    }

    proptest! {
        #[test]
        fn dates_survive_formatting_and_parsing(seconds in 0u64..253_402_300_800) {
            prop_assert_eq!(parse_date_time(&date_time(seconds)), Some(seconds));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,30}") {
            let _ = parse_date_time(&text);
        }
    }
}
