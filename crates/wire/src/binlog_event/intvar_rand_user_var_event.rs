//! Events that set session state for the next statement: `INTVAR_EVENT`, `RAND_EVENT` and `USER_VAR_EVENT`.

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// `INTVAR_EVENT`: an integer that the next statement depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntVar {
    /// The value that `LAST_INSERT_ID()` returns.
    LastInsertId(u64),
    /// The first `AUTO_INCREMENT` value that the statement generates.
    InsertId(u64),
}

impl IntVar {
    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Unsupported`] for an unknown kind of number.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "intvar event";
        let mut cursor = ByteCursor::new(WHAT, body);
        match (cursor.u8()?, cursor.u64()?) {
            (1, value) => Ok(Self::LastInsertId(value)),
            (2, value) => Ok(Self::InsertId(value)),
            (kind, _) => {
                Err(WireError::unsupported(WHAT, format!("the kind {kind} of the variable is unknown")))
            }
        }
    }
}

/// `RAND_EVENT`: the seeds of `RAND()` in the next statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandSeeds(pub u64, pub u64);

impl RandSeeds {
    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 16 bytes.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("rand event", body);
        Ok(Self(cursor.u64()?, cursor.u64()?))
    }
}

/// `USER_VAR_EVENT`: a user variable that the next statement reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UserVar<'a> {
    /// The name without the `@`.
    pub name: &'a [u8],
    /// The value of the variable.
    pub value: UserVarValue<'a>,
    /// MariaDB's extra bytes after the value. In versions with more data types than `value` can distinguish,
    /// these bytes name the data type.
    pub extra: &'a [u8],
}

/// The value of a user variable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UserVarValue<'a> {
    /// `NULL`.
    Null,
    /// A string, in the character set of a collation.
    String {
        /// The bytes of the value.
        bytes: &'a [u8],
        /// The number of the collation.
        collation: u32,
    },
    /// A double.
    Real(f64),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A decimal number in the binary form of row images.
    Decimal {
        /// The number of digits.
        precision: u8,
        /// The number of digits after the decimal point.
        scale: u8,
        /// The bytes of the value.
        bytes: &'a [u8],
    },
}

impl<'a> UserVar<'a> {
    const FLAG_UNSIGNED: u8 = 1;

    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] if the length of the value does not fit its type;
    /// [`WireError::Unsupported`] for an unknown type.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "user variable event";
        let mut cursor = ByteCursor::new(WHAT, body);
        let name_length = cursor.u32()? as usize;
        let name = cursor.bytes(name_length)?;
        if cursor.u8()? != 0 {
            return Ok(Self { name, value: UserVarValue::Null, extra: cursor.rest() });
        }
        let value_type = cursor.u8()?;
        let collation = cursor.u32()?;
        let length = cursor.u32()? as usize;
        let bytes = cursor.bytes(length)?;
        // Servers before 5.6 do not write the flags.
        let flags = if cursor.is_empty() { 0 } else { cursor.u8()? };
        let fixed = || {
            <[u8; 8]>::try_from(bytes)
                .map_err(|_| WireError::malformed(WHAT, format!("a number has {length} bytes")))
        };
        let value = match value_type {
            0 => UserVarValue::String { bytes, collation },
            1 => UserVarValue::Real(f64::from_le_bytes(fixed()?)),
            2 if flags & Self::FLAG_UNSIGNED != 0 => UserVarValue::Uint(u64::from_le_bytes(fixed()?)),
            2 => UserVarValue::Int(i64::from_le_bytes(fixed()?)),
            4 => {
                let mut decimal = ByteCursor::new(WHAT, bytes);
                let (precision, scale) = (decimal.u8()?, decimal.u8()?);
                UserVarValue::Decimal { precision, scale, bytes: decimal.rest() }
            }
            other => {
                return Err(WireError::unsupported(
                    WHAT,
                    format!("the type {other} of the variable's value is unknown"),
                ));
            }
        };
        Ok(Self { name, value, extra: cursor.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(value_type: u8, collation: u32, value: &[u8], extra: &[u8]) -> Vec<u8> {
        let mut body = b"\x02\0\0\0ab\0".to_vec();
        body.push(value_type);
        body.extend_from_slice(&collation.to_le_bytes());
        body.extend_from_slice(&(value.len() as u32).to_le_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(extra);
        body
    }

    #[test]
    fn user_variables_of_every_type_are_parsed() {
        let check = |body: Vec<u8>, expected: UserVarValue<'_>| {
            let var = UserVar::parse(&body).unwrap();
            assert_eq!((var.name, var.value), (&b"ab"[..], expected));
        };
        check(b"\x02\0\0\0ab\x01".to_vec(), UserVarValue::Null);
        check(body(0, 45, b"text", &[0]), UserVarValue::String { bytes: b"text", collation: 45 });
        check(body(1, 63, &1.5f64.to_le_bytes(), &[0]), UserVarValue::Real(1.5));
        check(body(2, 63, &(-7i64).to_le_bytes(), &[0]), UserVarValue::Int(-7));
        check(body(2, 63, &u64::MAX.to_le_bytes(), &[1]), UserVarValue::Uint(u64::MAX));
        check(body(2, 63, &7u64.to_le_bytes(), &[]), UserVarValue::Int(7));
        let decimal = UserVarValue::Decimal { precision: 3, scale: 2, bytes: b"\x81\x17" };
        check(body(4, 63, b"\x03\x02\x81\x17", &[0]), decimal);
        assert!(matches!(UserVar::parse(&body(2, 63, b"abc", &[0])), Err(WireError::Malformed { .. })));
        assert!(matches!(UserVar::parse(&body(3, 63, b"", &[0])), Err(WireError::Unsupported { .. })));
        assert!(matches!(UserVar::parse(b"\xff\xff\xff\xffx"), Err(WireError::Truncated { .. })));
    }

    #[test]
    fn intvar_and_rand_events_are_parsed() {
        assert_eq!(IntVar::parse(b"\x02\x05\0\0\0\0\0\0\0"), Ok(IntVar::InsertId(5)));
        assert_eq!(IntVar::parse(b"\x01\x05\0\0\0\0\0\0\0"), Ok(IntVar::LastInsertId(5)));
        assert!(matches!(IntVar::parse(&[3; 9]), Err(WireError::Unsupported { .. })));
        assert!(matches!(RandSeeds::parse(&[3; 15]), Err(WireError::Truncated { .. })));
    }
}
