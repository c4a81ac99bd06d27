//! Finds numbers in JSON text that MySQL's JSON type would round. This type stores integers of up to 64 bits
//! exactly, and other numbers as doubles.

/// Returns the first number in a JSON document that MySQL would round. The server itself rejects text that is
/// not JSON.
pub(super) fn rounded(text: &[u8]) -> Option<String> {
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        match first {
            b'"' => rest = after_string(after),
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E') || byte.is_ascii_digit();
                let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                let (number, after) = rest.split_at(end);
                let number = String::from_utf8_lossy(number);
                if !is_exact(&number) {
                    return Some(number.into_owned());
                }
                rest = after;
            }
            _ => rest = after,
        }
    }
    None
}

/// Returns the text after a string whose opening quote was already read.
fn after_string(text: &[u8]) -> &[u8] {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', _, after @ ..] => after,
            [b'"', after @ ..] => return after,
            [_, after @ ..] => after,
            [] => return rest,
        };
    }
}

fn is_exact(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    match number.parse::<f64>() {
        Ok(double) if double.is_finite() => digits(number) == digits(&format!("{double:e}")),
        Ok(_) => false,
        // The text is not a number, so it is not rounded.
        Err(_) => true,
    }
}

/// Returns the digits of a number without leading and trailing zeros, and the power of ten of the last digit.
/// Returns `None` for 0.
fn digits(number: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(i64::MAX / 2);
    let mantissa = mantissa.trim_start_matches(['-', '+']);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let without_end = all.trim_end_matches('0');
    let power = exponent - fraction.len() as i64 + (all.len() - without_end.len()) as i64;
    let digits = without_end.trim_start_matches('0');
    (!digits.is_empty()).then(|| (digits.to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_double_would_round_are_found() {
        for exact in [
            "1",
            "[-9223372036854775808, 18446744073709551615, 1.50, 0.1, 1e22, -0.0, 0e5, 1E+2]",
            r#"{"12345678901234567890123": "12345678901234567890123 \" 1.00000000000000000001"}"#,
            "100000000000000000000000",
            "true",
            "[-, 1.2.3]",
        ] {
            assert_eq!(rounded(exact.as_bytes()), None, "{exact}");
        }
        for (text, number) in [
            ("12345678901234567890123", "12345678901234567890123"),
            (r#"{"a\"b": [1, 0.12345678901234567890]}"#, "0.12345678901234567890"),
            ("[-18446744073709551617]", "-18446744073709551617"),
            ("1e400", "1e400"),
            ("1e-400", "1e-400"),
        ] {
            assert_eq!(rounded(text.as_bytes()).as_deref(), Some(number), "{text}");
        }
    }
}
