//! The text of an SQL statement. Long values are inserted only while the statement is sent.

use tailwater_wire::event_printer::sql_literal::put_hex;

/// Values of at least this many bytes are not copied into the text.
const KEPT_BYTES_MIN: usize = 1 << 20;

/// Number of bytes of a long value that one piece of the statement contains.
const PIECE_BYTES: usize = 32 << 10;

/// The text of an SQL statement that is being built.
#[derive(Debug, Default)]
pub(super) struct SqlText<'v> {
    /// The statement's text without its long values.
    pub(super) bytes: Vec<u8>,
    /// The long values, each with the offset in `bytes` at which it belongs.
    kept: Vec<(usize, &'v [u8])>,
    keeps: bool,
}

impl<'v> SqlText<'v> {
    /// Returns an empty text that does not copy long values but refers to them.
    pub(super) fn keeping() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    /// Returns a text that starts with `bytes` and copies every value.
    pub(super) fn after(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    pub(super) fn put(&mut self, text: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(text.as_ref());
    }

    /// Returns whether the text refers to this value, because it is long, instead of copying it.
    pub(super) fn is_kept(&self, value: &[u8]) -> bool {
        self.keeps && value.len() >= KEPT_BYTES_MIN
    }

    /// Appends a value as a hexadecimal literal.
    pub(super) fn put_hex(&mut self, value: &'v [u8]) {
        match self.is_kept(value) {
            true => self.kept.push((self.bytes.len(), value)),
            false => put_hex(&mut self.bytes, value),
        }
    }

    /// Returns the length of the statement in bytes, including its long values.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.kept.iter().map(|(_, value)| literal_bytes(value)).sum::<usize>()
    }

    /// Returns the start of the statement, up to its first long value; the whole statement if it has no long
    /// value.
    pub(super) fn start(&self) -> &[u8] {
        let end = self.kept.first().map_or(self.bytes.len(), |(start, _)| *start);
        self.bytes.get(..end).unwrap_or_default()
    }

    /// Returns the whole statement in pieces. Its long values are split into short pieces.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Vec<u8>> + Send + use<'_, 'v> {
        let ends = self.kept.iter().map(|(end, _)| *end).chain([self.bytes.len()]);
        let starts = std::iter::once(0).chain(ends.clone());
        let values = self.kept.iter().map(|(_, value)| *value).chain([&[][..]]);
        starts.zip(ends).zip(values).flat_map(|((start, end), value)| {
            let copied = self.bytes.get(start..end).unwrap_or_default().to_vec();
            std::iter::once(copied).chain(literal_pieces(value))
        })
    }
}

/// Returns the length of the literal of a value, in bytes.
fn literal_bytes(value: &[u8]) -> usize {
    value.len() * 2 + "X''".len()
}

/// Returns the literal of a value in pieces; none for an empty value.
fn literal_pieces(value: &[u8]) -> impl Iterator<Item = Vec<u8>> + Send + use<'_> {
    let count = value.len().div_ceil(PIECE_BYTES);
    value.chunks(PIECE_BYTES).enumerate().map(move |(index, chunk)| {
        let mut piece = Vec::with_capacity(literal_bytes(chunk));
        put_hex(&mut piece, chunk);
        // Each piece is encoded as a complete literal. The delimiters between two pieces are removed.
        if index + 1 < count {
            piece.pop();
        }
        if index > 0 {
            piece.drain(..2);
        }
        piece
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_join_to_the_whole_text_of_the_statement(
            parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), any::<bool>()), 0..6),
            extra in 0..3 * PIECE_BYTES,
        ) {
            let long: Vec<u8> = (0..KEPT_BYTES_MIN + extra).map(|index| (index % 251) as u8).collect();
            let (mut kept, mut copied) = (SqlText::keeping(), SqlText::default());
            for (part, is_long) in &parts {
                for text in [&mut kept, &mut copied] {
                    text.put(part);
                    text.put_hex(if *is_long { &long } else { part });
                }
            }
            prop_assert!(copied.kept.is_empty());
            prop_assert_eq!(kept.kept.len(), parts.iter().filter(|(_, is_long)| *is_long).count());
            prop_assert_eq!(kept.len(), copied.len());
            prop_assert!(copied.bytes.starts_with(kept.start()));
            prop_assert!(kept.pieces().all(|piece| piece.len() <= 3 * PIECE_BYTES));
            prop_assert!(kept.pieces().collect::<Vec<_>>().concat() == copied.bytes);
        }
    }
}
