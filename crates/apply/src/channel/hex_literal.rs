//! Writes the hexadecimal digits of SQL literals.

/// Appends `bytes` as hexadecimal digits.
pub(super) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * bytes.len());
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_hexadecimal_digits() {
        let mut out = Vec::new();
        hex(&[0, 0xab, 0xff], &mut out);
        assert_eq!(out, b"00abff");
    }
}
