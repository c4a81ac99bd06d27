//! Base64 in the form that the servers write.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The number of characters per line.
const LINE_CHARS: usize = 76;

/// Appends `bytes` in base64 with padding, on one line.
pub(crate) fn encode(bytes: &[u8], out: &mut String) {
    bytes.chunks(3).for_each(|group| encode_group(group, out));
}

/// Appends `bytes` in base64 with padding, and a line end after every 76 characters except the last.
pub(super) fn encode_in_lines(bytes: &[u8], out: &mut String) {
    for (index, line) in bytes.chunks(LINE_CHARS / 4 * 3).enumerate() {
        if index > 0 {
            out.push('\n');
        }
        encode(line, out);
    }
}

/// Appends up to three bytes as four characters.
fn encode_group(group: &[u8], out: &mut String) {
    let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for position in 0..4 {
        if position <= group.len() {
            out.push(char::from(ALPHABET[(bits >> (18 - 6 * position) & 63) as usize]));
        } else {
            out.push('=');
        }
    }
}

#[cfg(test)]
mod tests {
    fn encode(bytes: &[u8]) -> String {
        let mut out = String::new();
        super::encode_in_lines(bytes, &mut out);
        out
    }

    #[test]
    fn padding_and_line_ends_equal_those_of_the_server() {
        assert_eq!(encode(b""), "");
        assert_eq!(encode(b"f"), "Zg==");
        assert_eq!(encode(b"fo"), "Zm8=");
        assert_eq!(encode(b"foob"), "Zm9vYg==");
        assert_eq!(encode(&[0; 57]), "A".repeat(76));
        assert_eq!(encode(&[0xff; 58]), format!("{}\n/w==", "/".repeat(76)));
    }
}
