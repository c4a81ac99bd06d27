//! The text of a document, byte for byte as `CAST(document AS CHAR)` returns it.

use std::fmt::Write as _;

use super::base64;
use super::{DEPTH_MAX, JsonBinary, JsonNode, JsonValue, WHAT};
use crate::WireError;
use crate::row_event::table_map_column::type_code;

impl JsonBinary<'_> {
    /// Appends the document's text to `out`.
    ///
    /// If `quoted` is true, a document that is a string is printed in double quotes, as the server prints it.
    /// `mysqlbinlog` prints it without quotes.
    ///
    /// # Errors
    /// [`WireError`] if the document is malformed, is nested deeper than [`DEPTH_MAX`], or has members that
    /// share their values. After an error, `out` is incomplete.
    pub fn write_text(&self, out: &mut Vec<u8>, quoted: bool) -> Result<(), WireError> {
        let mut writer = JsonTextWriter { out, budget: self.bytes.len() };
        writer.value(self.root, quoted, 0)
    }

    /// Returns the text of the document as `CAST(document AS CHAR)` returns it.
    ///
    /// # Errors
    /// As [`JsonBinary::write_text`].
    pub fn to_text(&self) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::new();
        self.write_text(&mut out, true)?;
        Ok(out)
    }
}

struct JsonTextWriter<'o> {
    out: &'o mut Vec<u8>,
    /// The number of bytes of the document that the printer may still visit.
    budget: usize,
}

impl JsonTextWriter<'_> {
    fn charge(&mut self, bytes: usize) -> Result<(), WireError> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(WireError::malformed(WHAT, "the document has members that share their values")),
        }
    }

    fn value(&mut self, value: JsonValue<'_>, quoted: bool, depth: usize) -> Result<(), WireError> {
        match value.decode()? {
            JsonNode::Null => self.out.extend_from_slice(b"null"),
            JsonNode::Bool(true) => self.out.extend_from_slice(b"true"),
            JsonNode::Bool(false) => self.out.extend_from_slice(b"false"),
            JsonNode::Int(int) => self.display(&int),
            JsonNode::UInt(int) => self.display(&int),
            JsonNode::Double(double) => self.out.extend_from_slice(double_text(double).as_bytes()),
            JsonNode::Decimal(decimal) => self.display(&decimal),
            JsonNode::Date(date) => self.quoted(&date, quoted),
            JsonNode::Time(time) => self.quoted(&time, quoted),
            JsonNode::DateTime(value) | JsonNode::Timestamp(value) => self.quoted(&value, quoted),
            JsonNode::String(text) | JsonNode::Opaque { field_type: type_code::VAR_STRING, bytes: text } => {
                self.charge(text.len())?;
                self.string(text, quoted);
            }
            JsonNode::Opaque { field_type, bytes } => {
                self.charge(bytes.len())?;
                let mut text = format!("base64:type{field_type}:");
                base64::encode_in_lines(bytes, &mut text);
                self.string(text.as_bytes(), quoted);
            }
            JsonNode::Array(array) => {
                self.enter(depth)?;
                self.out.push(b'[');
                for index in 0..array.len() {
                    self.separate(index);
                    self.charge(array.0.entry_bytes())?;
                    self.value(array.get(index)?, true, depth + 1)?;
                }
                self.out.push(b']');
            }
            JsonNode::Object(object) => {
                self.enter(depth)?;
                self.out.push(b'{');
                for index in 0..object.len() {
                    self.separate(index);
                    let (key, value) = object.member(index)?;
                    self.charge(object.0.entry_bytes() + key.len())?;
                    self.string(key, true);
                    self.out.extend_from_slice(b": ");
                    self.value(value, true, depth + 1)?;
                }
                self.out.push(b'}');
            }
        }
        Ok(())
    }

    fn enter(&self, depth: usize) -> Result<(), WireError> {
        if depth >= DEPTH_MAX {
            return Err(WireError::malformed(
                WHAT,
                format!("the document is nested deeper than {DEPTH_MAX}"),
            ));
        }
        Ok(())
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.extend_from_slice(b", ");
        }
    }

    fn display(&mut self, value: &dyn std::fmt::Display) {
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    fn quoted(&mut self, value: &dyn std::fmt::Display, quoted: bool) {
        let text = value.to_string();
        self.string(text.as_bytes(), quoted);
    }

    fn string(&mut self, text: &[u8], quoted: bool) {
        if !quoted {
            self.out.extend_from_slice(text);
            return;
        }
        self.out.push(b'"');
        for byte in text {
            let escape = match byte {
                b'"' | b'\\' => *byte,
                0x08 => b'b',
                0x09 => b't',
                0x0a => b'n',
                0x0c => b'f',
                0x0d => b'r',
                0x00..=0x1f => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.out.push(*byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', escape]);
        }
        self.out.push(b'"');
    }
}

/// Returns the shortest digits that parse to the same double. Chooses between plain and exponent form as the
/// servers do.
fn double_text(double: f64) -> String {
    if !double.is_finite() {
        // No server writes an infinite number or NaN into a document. If a document had one, the server would
        // print it as 0.0.
        return "0.0".to_owned();
    }
    let shortest = format!("{double:e}");
    let Some((mantissa, exponent)) = shortest.split_once('e') else { return shortest };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    // The number of digits before the decimal point in the plain form.
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let count = digits.len() as i32;
    if point < -14 || (point > 15 && count <= point) {
        return shortest;
    }
    let mut text = sign.to_owned();
    if point <= 0 {
        let _ = write!(text, "0.{}{digits}", "0".repeat(-point as usize));
    } else if count > point {
        let (integer, fraction) = digits.split_at(point as usize);
        let _ = write!(text, "{integer}.{fraction}");
    } else {
        let _ = write!(text, "{digits}{}.0", "0".repeat((point - count) as usize));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::double_text;

    #[test]
    fn doubles_as_the_server_prints_them() {
        // The expected texts are results of `SELECT CAST(CAST('<number>' AS JSON) AS CHAR)` on MySQL 9.7.
        for (double, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (100000.0, "100000.0"),
            (1e14, "100000000000000.0"),
            (123456789012345.0, "123456789012345.0"),
            (1e15, "1e15"),
            (1e16, "1e16"),
            (1234567890123456.7, "1234567890123456.8"),
            (12345678901234567.0, "1.2345678901234568e16"),
            (1e-5, "0.00001"),
            (1e-14, "0.00000000000001"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (1.7976931348623157e308, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
            (1e300, "1e300"),
            (2.5e-300, "2.5e-300"),
        ] {
            assert_eq!(double_text(double), text);
        }
    }
}
