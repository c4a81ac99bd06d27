//! A bounds-checked reader of a byte slice. All parsers of this crate use this reader.

use crate::WireError;

/// Reads integers and strings from a slice, from start to end. No method panics on any input.
#[derive(Debug, Clone)]
pub struct ByteCursor<'a> {
    bytes: &'a [u8],
    position: usize,
    what: &'static str,
}

macro_rules! little_endian {
    ($($(#[$doc:meta])* $name:ident -> $int:ty, $bytes:expr;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(&mut self) -> Result<$int, WireError> {
            let mut wide = [0u8; size_of::<$int>()];
            wide[..$bytes].copy_from_slice(self.bytes($bytes)?);
            Ok(<$int>::from_le_bytes(wide))
        }
    )*};
}

impl<'a> ByteCursor<'a> {
    /// Creates a cursor at the start of `bytes`. `what` names the structure in error messages.
    #[inline]
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, what }
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of unread bytes.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Returns whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Returns the unread bytes without advancing the cursor.
    #[inline]
    pub fn peek_rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Returns the next byte without advancing the cursor.
    pub fn peek_u8(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    /// Reads the next `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        match self.peek_rest().get(..count) {
            Some(bytes) => {
                self.position += count;
                Ok(bytes)
            }
            None => Err(WireError::Truncated {
                what: self.what,
                offset: self.position,
                needed: count - self.remaining(),
            }),
        }
    }

    /// Reads the next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// Skips `count` bytes.
    #[inline]
    pub fn skip(&mut self, count: usize) -> Result<(), WireError> {
        self.bytes(count).map(drop)
    }

    /// Reads all remaining bytes.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.peek_rest();
        self.position = self.bytes.len();
        rest
    }

    little_endian! {
        /// Reads one byte.
        u8 -> u8, 1;
        /// Reads an unsigned little-endian integer of two bytes.
        u16 -> u16, 2;
        /// Reads an unsigned little-endian integer of three bytes.
        u24 -> u32, 3;
        /// Reads an unsigned little-endian integer of four bytes.
        u32 -> u32, 4;
        /// Reads an unsigned little-endian integer of six bytes.
        u48 -> u64, 6;
        /// Reads an unsigned little-endian integer of seven bytes.
        u56 -> u64, 7;
        /// Reads an unsigned little-endian integer of eight bytes.
        u64 -> u64, 8;
    }

    /// Reads an unsigned little-endian integer of `size` bytes, 1..=8.
    #[inline]
    pub fn uint(&mut self, size: usize) -> Result<u64, WireError> {
        if size > 8 {
            return Err(WireError::malformed(
                self.what,
                format!("the bytes state an integer of {size} bytes"),
            ));
        }
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(self.bytes(size)?);
        Ok(u64::from_le_bytes(wide))
    }

    /// Reads an unsigned big-endian integer of `size` bytes, 0..=8. DECIMAL and temporal values of row images
    /// use this form.
    pub fn uint_be(&mut self, size: usize) -> Result<u64, WireError> {
        if size > 8 {
            return Err(WireError::malformed(
                self.what,
                format!("the bytes state an integer of {size} bytes"),
            ));
        }
        Ok(self.bytes(size)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Reads a length-encoded integer. Returns an error if its first byte is `0xfb` (NULL in a text result
    /// row) or `0xff`.
    pub fn lenenc_int(&mut self) -> Result<u64, WireError> {
        match self.u8()? {
            small @ 0..=0xfa => Ok(u64::from(small)),
            0xfc => self.u16().map(u64::from),
            0xfd => self.u24().map(u64::from),
            0xfe => self.u64(),
            other => Err(WireError::malformed(
                self.what,
                format!("{other:#04x} is not the first byte of a length"),
            )),
        }
    }

    /// Reads a length-encoded integer and then that many bytes.
    pub fn lenenc_bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.lenenc_int()?;
        match usize::try_from(length) {
            Ok(length) => self.bytes(length),
            Err(_) => {
                Err(WireError::Truncated { what: self.what, offset: self.position, needed: usize::MAX })
            }
        }
    }

    /// Reads up to and including the next zero byte, and returns the bytes before it.
    pub fn until_nul(&mut self) -> Result<&'a [u8], WireError> {
        match self.peek_rest().iter().position(|byte| *byte == 0) {
            Some(length) => {
                let bytes = self.bytes(length)?;
                self.skip(1)?;
                Ok(bytes)
            }
            None => Err(WireError::Truncated { what: self.what, offset: self.bytes.len(), needed: 1 }),
        }
    }
}

/// Appends a length-encoded integer.
pub fn put_lenenc_int(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0xfa => out.push(value as u8),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(value as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&(value as u32).to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Appends the length of `bytes` as a length-encoded integer, then the bytes.
pub fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc_int(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
