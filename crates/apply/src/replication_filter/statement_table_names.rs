//! Finds the tables that a statement changes. It reads only the first words of the statement, without a full
//! parse.

use super::statement_filter_decision::StatementTable;

/// The maximum number of tokens that are read from a statement.
const TOKENS_MAX: usize = 100_000;

/// An object that a statement changes, with the names that the statement uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedObject {
    /// The database, if the statement names it.
    pub schema: Option<String>,
    /// The table; `None` for the database itself, and for objects of the database that are not tables.
    pub table: Option<String>,
}

impl NamedObject {
    /// Returns the same object with borrowed names.
    pub fn as_table(&self) -> StatementTable<'_> {
        StatementTable { schema: self.schema.as_deref(), table: self.table.as_deref() }
    }
}

/// Returns the objects that a DDL statement (`CREATE`, `ALTER`, `DROP`, `RENAME`, `TRUNCATE` and similar)
/// changes. Empty for objects outside databases, such as accounts. `None` if the objects cannot be
/// determined.
pub fn changed_by(text: &[u8]) -> Option<Vec<NamedObject>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = TokenReader { tokens: tokens(text)?, at: 0 };
    let verb = words.word()?;
    match verb.as_str() {
        "CREATE" | "ALTER" | "DROP" => words.object(&verb),
        "TRUNCATE" => {
            words.accept(&["TABLE"]);
            Some(vec![words.table()?])
        }
        "RENAME" => match words.word()?.as_str() {
            "TABLE" | "TABLES" => words.renamed(),
            "USER" => Some(Vec::new()),
            _ => None,
        },
        "ANALYZE" | "OPTIMIZE" | "REPAIR" => {
            words.accept(&["LOCAL", "NO_WRITE_TO_BINLOG"]);
            matches!(words.word()?.as_str(), "TABLE" | "TABLES").then_some(())?;
            words.tables()
        }
        "GRANT" | "REVOKE" | "SET" | "FLUSH" | "INSTALL" | "UNINSTALL" => Some(Vec::new()),
        _ => None,
    }
}

/// Returns the words of a statement outside quotes and parentheses, in upper case. `None` if the text is
/// malformed.
pub fn outline(text: &[u8]) -> Option<Vec<String>> {
    let mut depth = 0_u32;
    let mut words = Vec::new();
    for token in tokens(std::str::from_utf8(text).ok()?)? {
        match token {
            StatementToken::Mark('(') => depth += 1,
            StatementToken::Mark(')') => depth = depth.saturating_sub(1),
            StatementToken::Word(word) if depth == 0 => words.push(word.to_ascii_uppercase()),
            // Quoted text and punctuation marks are not keywords. They separate the words before and after
            // them.
            StatementToken::Quoted(_) | StatementToken::Mark(_) if depth == 0 => words.push(String::new()),
            _ => {}
        }
    }
    Some(words)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum StatementToken {
    /// An unquoted word: a keyword or a name.
    Word(String),
    /// A quoted name or a string. Where a name is expected, it counts as a name.
    Quoted(String),
    Mark(char),
}

/// Splits a statement into tokens. Returns `None` if the text ends inside a string or a comment.
fn tokens(text: &str) -> Option<Vec<StatementToken>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if tokens.len() >= TOKENS_MAX {
            return None;
        }
        let line_comment = rest.starts_with('#') || rest.starts_with("-- ") || rest.starts_with("--\t");
        if rest.starts_with("/*!") || rest.starts_with("/*M!") {
            // The server executes the content of a comment that starts with `/*!` or `/*M!`.
            let inner = rest.trim_start_matches(['/', '*', 'M', '!']);
            rest = inner.trim_start_matches(|c: char| c.is_ascii_digit());
        } else if rest.starts_with("*/") {
            rest = &rest[2..];
        } else if rest.starts_with("/*") {
            rest = &rest[rest.find("*/")? + 2..];
        } else if line_comment {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if matches!(first, '`' | '\'' | '"') {
            let (name, after) = quoted(rest, first)?;
            tokens.push(StatementToken::Quoted(name));
            rest = after;
        } else if is_part(first) {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            tokens.push(StatementToken::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            tokens.push(StatementToken::Mark(first));
            rest = &rest[first.len_utf8()..];
        }
        rest = rest.trim_start();
    }
    Some(tokens)
}

/// Returns the quoted text at the start of `text`, and the rest.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && quote != '`' {
            name.extend(letters.next().map(|(_, letter)| letter));
        } else if letter != quote {
            name.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            name.push(quote);
        } else {
            return Some((name, &text[at + quote.len_utf8()..]));
        }
    }
    None
}

struct TokenReader {
    tokens: Vec<StatementToken>,
    at: usize,
}

impl TokenReader {
    fn next(&mut self) -> Option<&StatementToken> {
        self.at += 1;
        self.tokens.get(self.at - 1)
    }

    /// Returns the next word in upper case.
    fn word(&mut self) -> Option<String> {
        match self.next()? {
            StatementToken::Word(word) => Some(word.to_ascii_uppercase()),
            _ => None,
        }
    }

    fn is_at(&self, at: usize, word: &str) -> bool {
        matches!(self.tokens.get(at), Some(StatementToken::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    /// Skips the next words, as long as they are in `words`.
    fn accept(&mut self, words: &[&str]) {
        while words.iter().any(|word| self.is_at(self.at, word)) {
            self.at += 1;
        }
    }

    fn accept_mark(&mut self, mark: char) -> bool {
        let found = self.tokens.get(self.at) == Some(&StatementToken::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn name(&mut self) -> Option<String> {
        match self.next()? {
            StatementToken::Word(name) | StatementToken::Quoted(name) => Some(name.clone()),
            StatementToken::Mark(_) => None,
        }
    }

    /// Reads `TABLE` or `SCHEMA.TABLE`, after an optional `IF EXISTS`.
    fn table(&mut self) -> Option<NamedObject> {
        self.accept(&["IF", "NOT", "EXISTS"]);
        let first = self.name()?;
        if !self.accept_mark('.') {
            return Some(NamedObject { schema: None, table: Some(first) });
        }
        Some(NamedObject { schema: Some(first), table: Some(self.name()?) })
    }

    fn tables(&mut self) -> Option<Vec<NamedObject>> {
        let mut tables = vec![self.table()?];
        while self.accept_mark(',') {
            tables.push(self.table()?);
        }
        Some(tables)
    }

    /// Reads the names in `a TO b, c TO d`.
    fn renamed(&mut self) -> Option<Vec<NamedObject>> {
        let mut tables = Vec::new();
        loop {
            tables.push(self.table()?);
            if self.is_at(self.at, "WAIT") || self.is_at(self.at, "NOWAIT") {
                while !self.is_at(self.at, "TO") {
                    self.next()?;
                }
            }
            (self.word()? == "TO").then_some(())?;
            tables.push(self.table()?);
            if !self.accept_mark(',') {
                return Some(tables);
            }
        }
    }

    /// Reads the object after `CREATE`, `ALTER` or `DROP`.
    fn object(&mut self, verb: &str) -> Option<Vec<NamedObject>> {
        loop {
            let word = match self.next()? {
                StatementToken::Word(word) => word.to_ascii_uppercase(),
                // Skips the account in `DEFINER = name@host`.
                StatementToken::Mark('=' | '@') => {
                    self.next()?;
                    continue;
                }
                StatementToken::Quoted(_) | StatementToken::Mark(_) => continue,
            };
            let schema_of = |named: NamedObject| NamedObject { table: None, ..named };
            return match word.as_str() {
                "TABLE" | "TABLES" if verb == "DROP" => self.tables(),
                "TABLE" if verb == "ALTER" => self.altered(),
                "VIEW" | "SEQUENCE" if verb == "DROP" => self.tables(),
                "TABLE" | "VIEW" | "SEQUENCE" => Some(vec![self.table()?]),
                "DATABASE" | "SCHEMA" => {
                    self.accept(&["IF", "NOT", "EXISTS"]);
                    let is_option =
                        ["CHARACTER", "CHARSET", "DEFAULT", "COLLATE", "COMMENT", "ENCRYPTION", "READ"];
                    // An ALTER DATABASE without a name changes the default database.
                    if verb == "ALTER" && is_option.iter().any(|word| self.is_at(self.at, word)) {
                        return Some(vec![NamedObject { schema: None, table: None }]);
                    }
                    Some(vec![NamedObject { schema: Some(self.name()?), table: None }])
                }
                "INDEX" => self.behind_on(),
                "TRIGGER" if verb == "CREATE" => self.behind_on(),
                "TRIGGER" | "PROCEDURE" | "FUNCTION" | "EVENT" | "PACKAGE" => {
                    self.accept(&["BODY"]);
                    Some(vec![schema_of(self.table()?)])
                }
                "USER" | "ROLE" | "SERVER" | "TABLESPACE" | "LOGFILE" | "RESOURCE" | "INSTANCE" => {
                    Some(Vec::new())
                }
                _ => continue,
            };
        }
    }

    fn behind_on(&mut self) -> Option<Vec<NamedObject>> {
        while !self.is_at(self.at, "ON") {
            self.next()?;
        }
        self.at += 1;
        Some(vec![self.table()?])
    }

    /// Reads the table after `ALTER TABLE`, its new name, and a table with which it is exchanged.
    fn altered(&mut self) -> Option<Vec<NamedObject>> {
        let mut tables = vec![self.table()?];
        let mut depth = 0;
        while let Some(token) = self.next() {
            match token {
                StatementToken::Mark('(') => depth += 1,
                StatementToken::Mark(')') => depth -= 1,
                StatementToken::Word(word) if depth == 0 && word.eq_ignore_ascii_case("RENAME") => {
                    if ["COLUMN", "INDEX", "KEY", "CONSTRAINT"].iter().any(|what| self.is_at(self.at, what)) {
                        continue;
                    }
                    self.accept(&["TO", "AS"]);
                    self.accept_mark('=');
                    tables.push(self.table()?);
                }
                StatementToken::Word(word) if depth == 0 && word.eq_ignore_ascii_case("WITH") => {
                    let exchanged = self.is_at(self.at, "TABLE");
                    self.at += usize::from(exchanged);
                    tables.extend(if exchanged { Some(self.table()?) } else { None });
                }
                _ => {}
            }
        }
        Some(tables)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the changed objects as `schema.table`. A name that the statement does not contain is empty.
    fn changed(text: &str) -> Option<String> {
        let show = |named: &NamedObject| {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{}.{}", part(&named.schema), part(&named.table))
        };
        changed_by(text.as_bytes()).map(|named| named.iter().map(show).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn ddl_names_the_changed_objects() {
        for (text, expected) in [
            ("CREATE TABLE t (id INT)", ".t"),
            ("create or replace temporary table if not exists `a b`.`c``d` like x.y", "a b.c`d"),
            ("CREATE TABLE `shop` . t AS SELECT 1", "shop.t"),
            ("/* hint */ CREATE /*!40000 TABLE */ t (id INT)", ".t"),
            ("-- note\nDROP TABLE IF EXISTS a, b.c /* generated by server */", ".a b.c"),
            ("ALTER TABLE \"s\".\"t\" ADD COLUMN rename_to INT, RENAME COLUMN a TO b", "s.t"),
            ("ALTER TABLE t ADD c VARCHAR(9) DEFAULT 'RENAME x', RENAME TO u.v", ".t u.v"),
            ("ALTER ONLINE TABLE t EXCHANGE PARTITION p WITH TABLE u", ".t .u"),
            ("RENAME TABLE a TO b, c.d TO e.f", ".a .b c.d e.f"),
            ("TRUNCATE t", ".t"),
            ("TRUNCATE TABLE s.t", "s.t"),
            ("CREATE DATABASE IF NOT EXISTS `shop`", "shop."),
            ("ALTER DATABASE CHARACTER SET utf8mb4", "."),
            ("DROP SCHEMA shop", "shop."),
            ("CREATE UNIQUE INDEX i USING BTREE ON s.t (a)", "s.t"),
            ("DROP INDEX i ON t", ".t"),
            ("CREATE DEFINER=`table`@`%` SQL SECURITY DEFINER VIEW v AS SELECT * FROM w", ".v"),
            ("CREATE DEFINER=root@localhost TRIGGER g BEFORE INSERT ON s.t FOR EACH ROW SET @a=1", "s.t"),
            ("DROP TRIGGER s.g", "s."),
            ("CREATE PROCEDURE p() DROP TABLE t", "."),
            ("OPTIMIZE LOCAL TABLE a, b", ".a .b"),
            ("GRANT SELECT ON a.* TO b", ""),
            ("CREATE USER a", ""),
        ] {
            assert_eq!(changed(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn unclear_statements_return_no_objects() {
        for text in
            ["INSERT INTO t VALUES (1)", "CREATE SOMETHING", "DROP TABLE 'a", "CREATE TABLE", "", "CALL p()"]
        {
            assert_eq!(changed(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(
            text in "(CREATE|ALTER|DROP|RENAME)? ?(TABLE|INDEX|VIEW)?[ `'\"./*!#a-zé=@(),-]{0,30}",
            bytes: Vec<u8>,
        ) {
            changed_by(text.as_bytes());
            changed_by(&bytes);
        }
    }
}
