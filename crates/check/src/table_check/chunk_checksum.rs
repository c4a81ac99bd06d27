//! A checksum of the rows in a chunk that the server computes itself, if that takes the server less time than
//! sending the rows.
//!
//! Each row is reduced to a number of 32 bits. The integers of the row, each multiplied by its own factor,
//! form the initial state of a CRC. The CRC then continues with one text of the row after the other. Every
//! step maps different states to different states. So a change in a single 32-bit integer, or within four
//! bytes of one text, always changes the number of the row. Any other change leaves the number unchanged only
//! once in four billion cases.
//!
//! CRCs are linear. If many rows have the same change, such as a flag that was set, their numbers all change
//! by the same bits. In an XOR of the numbers, these changes would cancel each other in pairs. So each number
//! is finally multiplied by a large odd factor, whose carries depend on the whole row. The multiplication of
//! each integer before the CRC spreads a changed bit over the higher bits. The final multiplication alone
//! would leave a change of the highest bit in the highest bit.
//!
//! The factors that are derived from the seed differ in each check, and so does the polynomial for each text.
//! Texts that collide in one check may differ in the next check.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::comparable_sql_expressions::{ReadAs, RenderedColumn};

/// The greatest number of text values of a row in a checksum expression. The CRC calls for them are nested,
/// and the server's stack limits the nesting.
const TEXTS_MAX: usize = 100;

/// A mask for the lower 32 bits.
const LOW: u64 = u32::MAX as u64;

/// Generates unpredictable factors from the seed.
struct SeededFactors {
    seed: u64,
    count: u64,
}

impl SeededFactors {
    fn next(&mut self) -> u64 {
        self.count += 1;
        xxh3_64_with_seed(&self.count.to_le_bytes(), self.seed)
    }

    /// Returns an odd number of 31 bits. Its product with a 32-bit integer fits into 64 bits, signed or
    /// unsigned.
    fn factor(&mut self) -> u64 {
        (self.next() & (LOW >> 1)) | 1 | (1 << 30)
    }

    fn polynomial(&mut self) -> &'static str {
        if self.next() & 1 == 0 { "CRC32" } else { "CRC32C" }
    }
}

/// Returns the SQL expression that reduces a row to a 32-bit number; `None` if the server cannot compute the
/// number, so that the row must be transferred. `seed` must be the same on both sides.
pub fn row_sum<'a>(
    columns: impl Iterator<Item = (&'a RenderedColumn, Option<ReadAs>)>,
    seed: u64,
) -> Option<String> {
    let mut drawn = SeededFactors { seed, count: 0 };
    let mut integers = vec![(drawn.next() & LOW).to_string()];
    let (mut reals, mut texts) = (Vec::new(), Vec::new());
    for (column, read) in columns {
        match read? {
            ReadAs::Narrow => integers.push(narrow(column, &column.expression, &mut drawn)),
            ReadAs::Seconds => {
                let seconds = format!("UNIX_TIMESTAMP({})", column.column);
                integers.push(narrow(column, &seconds, &mut drawn));
            }
            ReadAs::Wide => integers.push(wide(column, &mut drawn)),
            ReadAs::Real => reals.push(real(column, &mut drawn)),
            ReadAs::Bytes => texts.push(text(column, &mut drawn)),
        }
    }
    texts.extend(reals.chunks(2).map(bytes_of_reals));
    if texts.len() > TEXTS_MAX {
        return None;
    }
    let mut state = xor(&integers);
    for text in texts {
        state = format!("{}({state}, {text}) * {}", drawn.polynomial(), drawn.factor());
    }
    Some(format!("CRC32({state}, '{:08x}') * {}", drawn.next() & LOW, drawn.factor()))
}

/// Combines the terms with XOR in a balanced tree. There may be a thousand terms, and servers limit the
/// nesting of expressions.
fn xor(terms: &[String]) -> String {
    match terms {
        [] => "0".to_owned(),
        [term] => term.clone(),
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            format!("({} ^ {})", xor(left), xor(right))
        }
    }
}

/// Returns the term for an integer column of at most 32 bits. The product is in parentheses, because in SQL
/// `^` binds tighter than `*`.
fn narrow(column: &RenderedColumn, value: &str, drawn: &mut SeededFactors) -> String {
    or_null_of_integers(column, format!("({value} * {})", drawn.factor()), drawn)
}

fn wide(column: &RenderedColumn, drawn: &mut SeededFactors) -> String {
    let value = &column.expression;
    let product =
        format!("((({value} & {LOW}) * {}) ^ (({value} >> 32) * {}))", drawn.factor(), drawn.factor());
    or_null_of_integers(column, product, drawn)
}

fn or_null_of_integers(column: &RenderedColumn, product: String, drawn: &mut SeededFactors) -> String {
    match column.nullable {
        // Replaces NULL by an unsigned 64-bit number, which is also the result type of `^`.
        true => format!("IFNULL(0 ^ {product}, {})", drawn.next() | (1 << 63)),
        false => product,
    }
}

fn real(column: &RenderedColumn, drawn: &mut SeededFactors) -> String {
    match column.nullable {
        // Replaces NULL by a number that hardly occurs in data.
        true => format!("IFNULL({}, {}e0)", column.column, drawn.next() >> 11),
        false => column.column.clone(),
    }
}

/// Returns the bytes of two floating-point numbers. A POINT contains the bytes of its numbers, and takes the
/// server almost no time.
fn bytes_of_reals(reals: &[String]) -> String {
    let second = reals.get(1).map_or("0e0", String::as_str);
    format!("POINT({}, {second})", reals[0])
}

fn text(column: &RenderedColumn, drawn: &mut SeededFactors) -> String {
    match column.nullable {
        // Replaces NULL by a text that hardly occurs in data.
        true => format!("IFNULL({}, '{:016x}')", column.alone, drawn.next()),
        false => column.alone.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, nullable: bool) -> RenderedColumn {
        RenderedColumn {
            column: name.to_uppercase(),
            expression: format!("bytes of {name}"),
            alone: name.into(),
            length: String::new(),
            ends_itself: false,
            is_plain: false,
            nullable,
            is_long: false,
        }
    }

    fn sum(columns: &[(RenderedColumn, Option<ReadAs>)]) -> Option<String> {
        row_sum(columns.iter().map(|(column, read)| (column, *read)), 7)
    }

    /// Replaces each factor that depends on the seed by `N`.
    fn shape(sql: &str) -> String {
        let mut shape = String::new();
        for word in sql.split_inclusive(|letter: char| !letter.is_alphanumeric()) {
            let (number, rest) = word.split_at(word.trim_end_matches(|l: char| !l.is_alphanumeric()).len());
            let is_drawn =
                number.len() > 4 && number != "4294967295" && number.bytes().all(|b| b.is_ascii_hexdigit());
            shape.push_str(if is_drawn { "N" } else { number });
            shape.push_str(rest);
        }
        shape
    }

    #[test]
    fn integers_come_first_and_texts_follow_one_another() {
        let columns = [
            (column("a", false), Some(ReadAs::Bytes)),
            (column("i", false), Some(ReadAs::Narrow)),
            (column("b", true), Some(ReadAs::Bytes)),
            (column("w", true), Some(ReadAs::Wide)),
        ];
        let sql = sum(&columns).unwrap();
        assert_eq!(
            shape(&sql).replace("CRC32C", "CRC32"),
            "CRC32(CRC32(CRC32((N ^ ((bytes of i * N) ^ \
             IFNULL(0 ^ (((bytes of w & 4294967295) * N) ^ ((bytes of w >> 32) * N)), N))), a) * N, IFNULL(b, 'N')) * N, 'N') * N"
        );
        assert_eq!(Some(sql), sum(&columns), "the expression is the same on both sides");
        assert_eq!(
            shape(&sum(&[(column("i", false), Some(ReadAs::Narrow))]).unwrap()),
            "CRC32((N ^ (bytes of i * N)), 'N') * N"
        );
        assert_eq!(sum(&[(column("a", false), Some(ReadAs::Bytes)), (column("f", false), None)]), None);
        let reals = ["x", "y", "z"].map(|name| (column(name, name == "y"), Some(ReadAs::Real)));
        assert_eq!(
            shape(&sum(&reals).unwrap()).replace("CRC32C", "CRC32"),
            "CRC32(CRC32(CRC32(N, POINT(X, IFNULL(Y, N))) * N, POINT(Z, 0e0)) * N, 'N') * N"
        );
        assert_eq!(
            shape(&sum(&[(column("t", false), Some(ReadAs::Seconds))]).unwrap()),
            "CRC32((N ^ (UNIX_TIMESTAMP(T) * N)), 'N') * N"
        );
    }

    #[test]
    fn many_columns_do_not_nest_deeply() {
        let depth = |sql: &str| {
            let steps = sql.chars().map(|letter| i32::from(letter == '(') - i32::from(letter == ')'));
            steps
                .scan(0, |depth, step| {
                    *depth += step;
                    Some(*depth)
                })
                .max()
        };
        let many =
            |count: usize, read| -> Vec<_> { (0..count).map(|_| (column("c", true), Some(read))).collect() };
        assert!(depth(&sum(&many(1000, ReadAs::Wide)).unwrap()) < Some(20));
        assert!(depth(&sum(&many(TEXTS_MAX, ReadAs::Bytes)).unwrap()) < Some(110));
        assert_eq!(sum(&many(TEXTS_MAX + 1, ReadAs::Bytes)), None);
    }

    #[test]
    fn products_fit_into_64_bits() {
        let mut drawn = SeededFactors { seed: 1, count: 0 };
        for _ in 0..10_000 {
            let factor = drawn.factor();
            assert!(factor % 2 == 1 && (1 << 30..1 << 31).contains(&factor));
            assert!(i64::from(i32::MIN).checked_mul(factor as i64).is_some());
            assert!(u64::from(u32::MAX).checked_mul(factor).is_some());
        }
    }
}
