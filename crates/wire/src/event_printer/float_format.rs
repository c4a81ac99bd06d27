//! Formats floating-point numbers like C's `printf`, which the servers' tools use to print FLOAT and DOUBLE.

/// Formats a number like `%.<precision>g`: with that many significant digits, without trailing zeros, in the
/// shorter of plain and exponent form.
pub(super) fn general(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan".to_owned() } else { "nan".to_owned() };
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf".to_owned() } else { "inf".to_owned() };
    }
    let (mantissa, exponent) = rounded(number, precision.max(1) - 1);
    let plain = (-4..precision.max(1) as i32).contains(&exponent);
    if plain {
        let decimals = (precision.max(1) as i32 - 1 - exponent).max(0) as usize;
        return without_trailing_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    exponent_form(without_trailing_zeros(&mantissa), exponent)
}

/// Formats a number like `%.<decimals>e`.
pub(super) fn scientific(number: f64, decimals: usize) -> String {
    if !number.is_finite() {
        return general(number, decimals);
    }
    let (mantissa, exponent) = rounded(number, decimals);
    exponent_form(&mantissa, exponent)
}

/// Returns one digit, a point and `decimals` more digits, and the power of ten to multiply them by.
fn rounded(number: f64, decimals: usize) -> (String, i32) {
    let text = format!("{number:.decimals$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => (mantissa.to_owned(), exponent.parse().unwrap_or(0)),
        None => (text, 0),
    }
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn exponent_form(mantissa: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_like_printf() {
        for (number, precision, text) in [
            (0.0, 6, "0"),
            (-0.0, 6, "-0"),
            (1.5, 6, "1.5"),
            (123456.0, 6, "123456"),
            (1234567.0, 6, "1.23457e+06"),
            (999999.5, 6, "1e+06"),
            (0.0001, 6, "0.0001"),
            (0.00001234567, 6, "1.23457e-05"),
            (0.1f32 as f64, 6, "0.1"),
            (3.4028234663852886e38, 6, "3.40282e+38"),
            (-2.5e300, 20, "-2.5000000000000001313e+300"),
            (0.1, 20, "0.10000000000000000555"),
            (100.0, 20, "100"),
            (5e-324, 20, "4.9406564584124654418e-324"),
            (1e20, 20, "1e+20"),
            (1e19, 20, "10000000000000000000"),
            (f64::INFINITY, 6, "inf"),
        ] {
            assert_eq!(general(number, precision), text);
        }
        assert_eq!(scientific(1.0, 5), "1.00000e+00");
        assert_eq!(scientific(-3.5e-7, 5), "-3.50000e-07");
        assert_eq!(scientific(1e100, 5), "1.00000e+100");
    }
}
