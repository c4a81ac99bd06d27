//! Converts rows of a data file to INSERT statements, for servers without `LOAD DATA LOCAL`.

use crate::data_file_field_conversion::stored;
use crate::schema::TableName;
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

/// Builds INSERT statements from the bytes of a data file as they arrive.
#[derive(Debug)]
pub struct InsertBuilder {
    head: Vec<u8>,
    /// For each column, the SQL text before and after the literal of its value.
    around: Vec<(Vec<u8>, Vec<u8>)>,
    statement_bytes_max: usize,
    /// The bytes of an unfinished row.
    rest: Vec<u8>,
    /// The position in `rest` at which the search for the end of the row continues.
    searched: usize,
    statement: Vec<u8>,
    rows: u64,
}

impl InsertBuilder {
    /// Creates a builder for the columns of a table and their types on the server. A statement has at most
    /// `statement_bytes_max` bytes, unless a single row is longer.
    pub fn new(
        table: &TableName,
        columns: &[(String, String)],
        flavour: Flavour,
        statement_bytes_max: usize,
    ) -> Self {
        let names: Vec<_> = columns.iter().map(|(name, _)| quote_identifier(name)).collect();
        let head = format!(
            "INSERT INTO {} ({}) VALUES ",
            qualified_name(&table.schema, &table.name),
            names.join(",")
        );
        let around = |(_, data_type): &(String, String)| {
            let expression = stored("\0", flavour, data_type).unwrap_or_else(|| "\0".into());
            let (before, after) = expression.split_once('\0').unwrap_or_default();
            (before.as_bytes().to_vec(), after.as_bytes().to_vec())
        };
        Self {
            head: head.into_bytes(),
            around: columns.iter().map(around).collect(),
            statement_bytes_max,
            rest: Vec::new(),
            searched: 0,
            statement: Vec::new(),
            rows: 0,
        }
    }

    /// Takes the next bytes of the file, and returns the statements that became full.
    ///
    /// # Errors
    /// What is wrong with a row, and the number of the row.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.rest.extend_from_slice(bytes);
        let mut full = Vec::new();
        let rest = std::mem::take(&mut self.rest);
        let (mut begin, mut at) = (0, self.searched);
        while let Some(&byte) = rest.get(at) {
            match byte {
                b'\\' => at += 2,
                b'\n' => {
                    full.extend(self.row(&rest[begin..at])?);
                    at += 1;
                    begin = at;
                }
                _ => at += 1,
            }
        }
        // An incomplete row at the start of the buffer is not moved. A long row may arrive in many pieces,
        // and would be copied for each piece.
        self.rest = if begin == 0 { rest } else { rest[begin..].to_vec() };
        // If the buffer ends with a backslash, the byte that it escapes has not arrived yet. So the next
        // search starts at the backslash again.
        self.searched = (at - begin).min(self.rest.len());
        if at - begin > self.rest.len() {
            self.searched -= 1;
        }
        Ok(full)
    }

    /// Returns the last statement, if there is one.
    ///
    /// # Errors
    /// If the last row is incomplete.
    pub fn finish(&mut self) -> Result<Option<Vec<u8>>, String> {
        if !self.rest.is_empty() {
            return Err(format!("row {} has no end", self.rows + 1));
        }
        let statement = std::mem::take(&mut self.statement);
        Ok((!statement.is_empty()).then_some(statement))
    }

    /// Appends a row to the current INSERT statement. If the row does not fit, returns the statement without
    /// the row, and starts the next statement with it.
    fn row(&mut self, row: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let mut values = Vec::with_capacity(row.len() + row.len() / 8 + 16);
        values.push(b'(');
        let mut found = 0;
        for (index, field) in TsvFields(Some(row)).enumerate() {
            found = index + 1;
            let Some((before, after)) = self.around.get(index) else { continue };
            if index > 0 {
                values.push(b',');
            }
            if field == b"\\N" {
                values.extend_from_slice(b"NULL");
            } else {
                values.extend_from_slice(before);
                put_literal(field, &mut values);
                values.extend_from_slice(after);
            }
        }
        values.push(b')');
        self.rows += 1;
        if found != self.around.len() {
            return Err(format!("row {} has {found} fields instead of {}", self.rows, self.around.len()));
        }
        let mut full = None;
        if !self.statement.is_empty() && self.statement.len() + values.len() + 1 > self.statement_bytes_max {
            full = Some(std::mem::take(&mut self.statement));
        }
        match self.statement.is_empty() {
            true => self.statement.extend_from_slice(&self.head),
            false => self.statement.push(b','),
        }
        self.statement.extend_from_slice(&values);
        Ok(full)
    }
}

/// Iterates over the fields of a row, as they are in the file.
struct TsvFields<'a>(Option<&'a [u8]>);

impl<'a> Iterator for TsvFields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let mut at = 0;
        while let Some(&byte) = rest.get(at) {
            match byte {
                b'\\' => at += 2,
                b'\t' => {
                    self.0 = Some(&rest[at + 1..]);
                    return Some(&rest[..at]);
                }
                _ => at += 1,
            }
        }
        self.0 = None;
        Some(rest)
    }
}

/// Appends the value of a field as a binary literal.
fn put_literal(field: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"_binary'");
    unescape(field, |value| match value {
        0 => out.extend_from_slice(b"\\0"),
        b'\'' | b'\\' => out.extend_from_slice(&[b'\\', value]),
        other => out.push(other),
    });
    out.push(b'\'');
}

/// Passes the bytes of a field's value to `put`, after removing escapes in the same way as servers.
pub fn unescape(field: &[u8], mut put: impl FnMut(u8)) {
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        let value = match byte {
            b'\\' => match bytes.next() {
                Some(b'0') => 0,
                Some(b'b') => 8,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'Z') => 26,
                Some(&other) => other,
                None => b'\\',
            },
            other => other,
        };
        put(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inserts(bytes_max: usize) -> InsertBuilder {
        let columns = [("a".to_owned(), "int".to_owned()), ("j".to_owned(), "json".to_owned())];
        InsertBuilder::new(&TableName::new("s", "t"), &columns, Flavour::MySql, bytes_max)
    }

    fn all(bytes_max: usize, pieces: &[&[u8]]) -> Result<(Vec<String>, u64), String> {
        let mut inserts = inserts(bytes_max);
        let mut statements = Vec::new();
        for piece in pieces {
            statements.extend(inserts.push(piece)?);
        }
        statements.extend(inserts.finish()?);
        let rows = inserts.rows;
        Ok((statements.into_iter().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect(), rows))
    }

    #[test]
    fn rows_are_converted_to_values_of_an_insert() {
        let (statements, rows) =
            all(1 << 20, &[b"1\t\\N\n2\tit's \\\\ \\t\\0\\Z\\x\n"]).expect("the rows are valid");
        let want = "INSERT INTO `s`.`t` (`a`,`j`) VALUES (_binary'1',NULL),\
                    (_binary'2',CONVERT(_binary'it\\'s \\\\ \t\\0\x1ax' USING utf8mb4))";
        assert_eq!((statements, rows), (vec![want.to_owned()], 2));
        assert_eq!(all(1, &[]).expect("an empty file is valid"), (vec![], 0));
    }

    #[test]
    fn invalid_rows_are_refused() {
        assert!(all(99, &[b"1\n"]).is_err_and(|reason| reason.contains("1 fields instead of 2")));
        assert!(all(99, &[b"1\t2\t3\n"]).is_err_and(|reason| reason.contains("3 fields instead of 2")));
        assert!(all(99, &[b"1\t2"]).is_err_and(|reason| reason.contains("no end")));
        assert!(all(99, &[b"1\t2\\\n"]).is_err_and(|reason| reason.contains("no end")));
    }

    proptest! {
        #[test]
        fn statements_do_not_depend_on_where_the_input_is_split(
            rows in prop::collection::vec("[a\\\\\\\\]{0,5}", 1..9), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            bytes_max in 1usize..200,
        ) {
            // In this input, backslashes escape each kind of byte, among them a letter, a tab and a line
            // feed.
            let whole: String = rows.iter().map(|row| format!("{}\t{}x\n", row.replace('\\', "\\\n"), row.replace('\\', "\\\t"))).collect();
            let whole = whole.as_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
            let (statements, count) = all(bytes_max, &pieces).expect("the rows are valid");
            prop_assert_eq!(count, rows.len() as u64);
            prop_assert_eq!(&statements, &all(bytes_max, &[whole]).expect("the rows are valid").0);
            let values: usize = statements.iter().map(|statement| statement.matches("CONVERT").count()).sum();
            prop_assert_eq!(values, rows.len());
            let one = |statement: &String| statement.matches("CONVERT").count() == 1;
            prop_assert!(statements.iter().all(|statement| statement.len() <= bytes_max || one(statement)));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = all(64, &[&bytes]);
        }
    }
}
