//! DECIMAL values as row images and JSON documents store them: big-endian groups of nine digits, with the
//! first bit inverted.

use std::fmt;

use crate::WireError;

/// The maximum number of digits of a DECIMAL.
pub const DIGITS_MAX: u8 = 65;

/// The number of bytes for 0..=9 leading or trailing digits.
const BYTES_OF_DIGITS: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const POWERS_OF_TEN: [u32; 10] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// Returns an error if the precision or scale is not possible for a DECIMAL.
pub(super) fn check_shape(precision: u8, scale: u8) -> Result<(), WireError> {
    if precision == 0 || precision > DIGITS_MAX || scale > precision {
        return Err(WireError::malformed("decimal", format!("DECIMAL({precision},{scale})")));
    }
    Ok(())
}

/// Returns the length of a value of this precision and scale, in bytes.
pub(super) fn encoded_length(precision: u8, scale: u8) -> usize {
    let side = |digits: u8| usize::from(digits / 9) * 4 + BYTES_OF_DIGITS[usize::from(digits % 9)];
    side(precision.saturating_sub(scale)) + side(scale)
}

/// An exact decimal number. It holds the bytes of the event, which were checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal<'a> {
    precision: u8,
    scale: u8,
    bytes: &'a [u8],
}

impl<'a> Decimal<'a> {
    /// Checks that `bytes` are a DECIMAL(`precision`,`scale`).
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the length is wrong or a digit group is too large.
    pub fn parse(bytes: &'a [u8], precision: u8, scale: u8) -> Result<Self, WireError> {
        check_shape(precision, scale)?;
        if bytes.len() != encoded_length(precision, scale) {
            return Err(WireError::malformed(
                "decimal",
                format!("a value of DECIMAL({precision},{scale}) has {} bytes", bytes.len()),
            ));
        }
        let decimal = Self { precision, scale, bytes };
        if decimal.groups().any(|(digits, value)| value >= POWERS_OF_TEN[digits]) {
            return Err(WireError::malformed("decimal", "a group of digits is too large"));
        }
        Ok(decimal)
    }

    /// Returns the total number of digits.
    pub fn precision(&self) -> u8 {
        self.precision
    }

    /// Returns the number of digits after the decimal point.
    pub fn scale(&self) -> u8 {
        self.scale
    }

    /// Returns whether the number is negative.
    pub fn is_negative(&self) -> bool {
        self.bytes.first().is_some_and(|first| first & 0x80 == 0)
    }

    /// Iterates over the groups of digits from the first: the number of digits, and the value.
    fn groups(&self) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let integer = usize::from(self.precision - self.scale);
        let scale = usize::from(self.scale);
        let lead = (integer % 9 != 0).then_some(integer % 9);
        let tail = (scale % 9 != 0).then_some(scale % 9);
        let flip: u8 = if self.is_negative() { 0xff } else { 0 };
        let bytes = self.bytes;
        let mut offset = 0;
        lead.into_iter().chain(std::iter::repeat_n(9, integer / 9 + scale / 9)).chain(tail).map(
            move |digits| {
                let size = BYTES_OF_DIGITS[digits];
                let mut value = 0u32;
                for (index, byte) in bytes.iter().enumerate().skip(offset).take(size) {
                    let byte = if index == 0 { byte ^ 0x80 } else { *byte };
                    value = value << 8 | u32::from(byte ^ flip);
                }
                offset += size;
                (digits, value)
            },
        )
    }
}

impl fmt::Display for Decimal<'_> {
    /// Prints the number as servers do: with all digits of the scale, and without superfluous leading zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negative() {
            f.write_str("-")?;
        }
        let integer = usize::from(self.precision - self.scale);
        let (mut written, mut seen) = (false, 0);
        for (digits, value) in self.groups() {
            if seen == integer {
                f.write_str(if written { "." } else { "0." })?;
                written = true;
            }
            if seen >= integer || written {
                write!(f, "{value:0digits$}")?;
            } else if value != 0 {
                write!(f, "{value}")?;
                written = true;
            }
            seen += digits;
        }
        if !written {
            f.write_str("0")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Decimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} as DECIMAL({},{})", self.precision, self.scale)
    }
}

/// Encodes `text` (sign, digits, optional point) as a DECIMAL(`precision`,`scale`). Only tests use it.
#[cfg(test)]
pub(crate) fn encode(text: &str, precision: u8, scale: u8) -> Vec<u8> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (integer, fraction) = text.split_once('.').unwrap_or((text, ""));
    let integer = format!("{integer:0>width$}", width = usize::from(precision - scale));
    let integer = &integer[integer.len() - usize::from(precision - scale)..];
    let fraction = format!("{fraction:0<width$}", width = usize::from(scale));
    let (lead, whole) = integer.split_at(integer.len() % 9);
    let (groups, tail) = fraction.split_at(fraction.len() / 9 * 9);
    let mut out = Vec::new();
    let mut put = |digits: &str| {
        if !digits.is_empty() {
            let value: u32 = digits.parse().unwrap();
            out.extend_from_slice(&value.to_be_bytes()[4 - BYTES_OF_DIGITS[digits.len()]..]);
        }
    };
    put(lead);
    whole.as_bytes().chunks(9).for_each(|group| put(std::str::from_utf8(group).unwrap()));
    groups.as_bytes().chunks(9).for_each(|group| put(std::str::from_utf8(group).unwrap()));
    put(tail);
    if negative {
        out.iter_mut().for_each(|byte| *byte = !*byte);
    }
    out[0] ^= 0x80;
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, precision: u8, scale: u8) {
        let bytes = encode(text, precision, scale);
        assert_eq!(Decimal::parse(&bytes, precision, scale).unwrap().to_string(), text);
    }

    #[test]
    fn bytes_of_the_server_are_parsed() {
        // The example in the server's documentation: 1234567890.1234 as DECIMAL(14,4).
        let bytes = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        assert_eq!(Decimal::parse(&bytes, 14, 4).unwrap().to_string(), "1234567890.1234");
        let bytes = [0x7e, 0xf2, 0x04, 0xc7, 0x2d, 0xfb, 0x2d];
        assert_eq!(Decimal::parse(&bytes, 14, 4).unwrap().to_string(), "-1234567890.1234");
    }

    #[test]
    fn extreme_values_are_parsed() {
        check("0", 1, 0);
        check("0.00", 10, 2);
        check("0.000000001", 9, 9);
        check("-0.5", 1, 1);
        check("10.010", 5, 3);
        check(&"9".repeat(65), 65, 0);
        check(&format!("-{}.{}", "9".repeat(35), "9".repeat(30)), 65, 30);
        check("1000000000", 65, 0);
    }

    #[test]
    fn groups_that_are_too_large_are_refused() {
        assert!(Decimal::parse(&[0xff, 0xff, 0xff, 0xff], 9, 0).is_err());
        assert!(Decimal::parse(&[0x8a], 1, 0).is_err());
        assert!(Decimal::parse(&[0x80], 9, 0).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(
            (precision, scale, digits) in (1u8..=65).prop_flat_map(|precision| {
                (Just(precision), 0u8..=precision.min(30), proptest::collection::vec(0u8..10, usize::from(precision)))
            }),
            negative: bool,
        ) {
            let text: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
            let (integer, fraction) = text.split_at(usize::from(precision - scale));
            let integer = integer.trim_start_matches('0');
            let mut text = if integer.is_empty() { "0".to_owned() } else { integer.to_owned() };
            if scale > 0 {
                text = format!("{text}.{fraction}");
            }
            if negative && digits.iter().any(|digit| *digit != 0) {
                text.insert(0, '-');
            }
            let bytes = encode(&text, precision, scale);
            prop_assert_eq!(bytes.len(), encoded_length(precision, scale));
            prop_assert_eq!(Decimal::parse(&bytes, precision, scale).unwrap().to_string(), text);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, precision: u8, scale: u8) {
            if let Ok(decimal) = Decimal::parse(&bytes, precision, scale) {
                prop_assert!(!decimal.to_string().is_empty());
            }
        }
    }
}
