//! Turns statements of the binlog into SELECT statements that read the same rows.
//!
//! Only statements that certainly have no effect are sent: one SELECT, with operators and a few built-in
//! functions, without variables and locks. All others are skipped.

use sqlparser::ast::{Delete, Expr, FromTable, Insert, SetExpr, Statement, TableFactor, TableWithJoins};
use sqlparser::dialect::MySqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserOptions};
use sqlparser::tokenizer::{Token, Tokenizer};

/// Why a statement is not read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatementSkip {
    /// It changes definitions, or is of another kind without rows to read.
    Kind,
    /// It inserts values that it contains.
    InsertValues,
    /// It cannot be parsed, or has characters outside ASCII or a backslash, whose meaning depends on the
    /// session.
    Syntax,
    /// It calls a function, or reads a variable, that may have another value or an effect on the replica.
    Function,
    /// It reads a whole table: it has no WHERE clause.
    WholeTable,
    /// Its SELECT sorts, groups or joins results before the first row is known. A LIMIT does not bound the
    /// temporary table for that, which may fill the replica's disk.
    TemporaryTable,
}

impl StatementSkip {
    /// The reason as a word, for figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kind => "statement_kind",
            Self::InsertValues => "insert_values",
            Self::Syntax => "statement_syntax",
            Self::Function => "statement_function",
            Self::WholeTable => "whole_table",
            Self::TemporaryTable => "temporary_table",
        }
    }
}

/// Functions that depend only on their arguments and have no effect.
const PURE_FUNCTIONS: [&str; 34] = [
    "ABS",
    "AVG",
    "CEIL",
    "CEILING",
    "CHAR_LENGTH",
    "COALESCE",
    "CONCAT",
    "COUNT",
    "CRC32",
    "DATE",
    "DATE_ADD",
    "DATE_SUB",
    "DAY",
    "FLOOR",
    "GREATEST",
    "HOUR",
    "IF",
    "IFNULL",
    "LEAST",
    "LEFT",
    "LENGTH",
    "LOWER",
    "MAX",
    "MIN",
    "MOD",
    "MONTH",
    "NULLIF",
    "RIGHT",
    "ROUND",
    "SUBSTRING",
    "SUM",
    "TRIM",
    "UPPER",
    "YEAR",
];

/// Words that may stand before a parenthesis without a function call.
const WORDS_BEFORE_PARENTHESIS: [&str; 27] = [
    "AND", "OR", "XOR", "NOT", "IN", "EXISTS", "WHERE", "ON", "USING", "SELECT", "FROM", "JOIN", "BY",
    "HAVING", "LIKE", "BETWEEN", "WHEN", "THEN", "ELSE", "CASE", "AS", "UNION", "ALL", "ANY", "DISTINCT",
    "INTERVAL", "INDEX",
];

/// The `sql_mode` flags under which the text has another meaning: PIPES_AS_CONCAT, ANSI_QUOTES,
/// IGNORE_SPACE, NO_BACKSLASH_ESCAPES, HIGH_NOT_PRECEDENCE.
const OTHER_SYNTAX_MODES: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 20 | 1 << 29;

/// Whether the statement changes definitions, so that cached definitions may be out of date.
pub fn may_change_definitions(text: Option<&str>) -> bool {
    const DATA: [&str; 5] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"];
    let word =
        text.unwrap_or_default().trim_start().split(|letter: char| !letter.is_ascii_alphabetic()).next();
    word.is_none_or(|word| !DATA.iter().any(|data| word.eq_ignore_ascii_case(data)))
}

/// Returns the statement without its literals, to recognise similar statements.
pub fn shape_of(select: &str) -> String {
    let tokens = Tokenizer::new(&MySqlDialect {}, select).with_unescape(false).tokenize().unwrap_or_default();
    let shown = |token: Token| match token {
        Token::Number(..) | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => "?".to_owned(),
        Token::HexStringLiteral(_) => "?".to_owned(),
        token => token.to_string(),
    };
    tokens.into_iter().map(shown).collect()
}

/// Returns the SELECT statement that reads the rows of a statement, at most `rows_max` of them.
///
/// # Errors
/// [`StatementSkip`]: why there is none.
pub fn select_for(text: &str, sql_mode: u64, rows_max: u64) -> Result<String, StatementSkip> {
    // Servers put no comments with hints into the binlog, but clients do. `/*!` has statements of its own.
    if !text.is_ascii()
        || text.contains(['\\', '\0'])
        || text.contains("/*")
        || sql_mode & OTHER_SYNTAX_MODES != 0
    {
        return Err(StatementSkip::Syntax);
    }
    let dialect = MySqlDialect {};
    let options = ParserOptions::new().with_unescape(false).with_trailing_commas(false);
    let parsed = Parser::new(&dialect)
        .with_options(options)
        .with_recursion_limit(50)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_statements());
    let mut statements = parsed.map_err(|_| match may_change_definitions(Some(text)) {
        true => StatementSkip::Kind,
        false => StatementSkip::Syntax,
    })?;
    let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
        return Err(StatementSkip::Syntax);
    };
    let select = match &statement {
        Statement::Update { table, from: None, selection, .. } => {
            rows_of(std::slice::from_ref(table), selection.as_ref())?
        }
        Statement::Delete(delete) => rows_of_delete(delete)?,
        Statement::Insert(insert) => rows_of_insert(insert)?,
        _ => return Err(StatementSkip::Kind),
    };
    check_effects(&select)?;
    if needs_temporary_table(&select) {
        return Err(StatementSkip::TemporaryTable);
    }
    // A limit of the statement itself stays: it changes which rows are read.
    match has_word(&select, Keyword::LIMIT) {
        true => Ok(select),
        false => Ok(format!("{select} LIMIT {rows_max}")),
    }
}

fn has_word(select: &str, keyword: Keyword) -> bool {
    keywords(select).contains(&keyword)
}

/// The keywords of a statement, in their order.
fn keywords(select: &str) -> Vec<Keyword> {
    let tokens = Tokenizer::new(&MySqlDialect {}, select).with_unescape(false).tokenize().unwrap_or_default();
    let keyword = |token| match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    };
    tokens.into_iter().filter_map(keyword).collect()
}

/// Whether the server may have to store results before it returns the first row.
fn needs_temporary_table(select: &str) -> bool {
    const STORED: [Keyword; 8] = [
        Keyword::GROUP,
        Keyword::ORDER,
        Keyword::DISTINCT,
        Keyword::HAVING,
        Keyword::UNION,
        Keyword::EXCEPT,
        Keyword::INTERSECT,
        Keyword::OVER,
    ];
    let words = keywords(select);
    let is_nested = words.iter().filter(|word| **word == Keyword::SELECT).count() > 1;
    is_nested || words.iter().any(|word| STORED.contains(word))
}

fn rows_of(tables: &[TableWithJoins], selection: Option<&Expr>) -> Result<String, StatementSkip> {
    let condition = selection.ok_or(StatementSkip::WholeTable)?;
    if !tables.iter().all(|table| matches!(table.relation, TableFactor::Table { args: None, .. })) {
        return Err(StatementSkip::Syntax);
    }
    let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
    Ok(format!("SELECT * FROM {} WHERE {condition}", tables.join(", ")))
}

fn rows_of_delete(delete: &Delete) -> Result<String, StatementSkip> {
    let tables = match (&delete.using, &delete.from) {
        (Some(using), _) => using,
        (None, FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) => tables,
    };
    rows_of(tables, delete.selection.as_ref())
}

fn rows_of_insert(insert: &Insert) -> Result<String, StatementSkip> {
    let Some(source) = &insert.source else { return Err(StatementSkip::InsertValues) };
    match source.body.as_ref() {
        SetExpr::Values(_) => Err(StatementSkip::InsertValues),
        SetExpr::Select(select) if select.from.is_empty() => Err(StatementSkip::InsertValues),
        SetExpr::Select(select) if select.selection.is_none() => Err(StatementSkip::WholeTable),
        SetExpr::Select(_) if source.locks.is_empty() => Ok(source.to_string()),
        _ => Err(StatementSkip::Syntax),
    }
}

/// Checks that a text is one SELECT statement without effects.
fn check_effects(select: &str) -> Result<(), StatementSkip> {
    let dialect = MySqlDialect {};
    let tokens = Tokenizer::new(&dialect, select)
        .with_unescape(false)
        .tokenize()
        .map_err(|_| StatementSkip::Syntax)?;
    let tokens: Vec<Token> =
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    if !matches!(tokens.first(), Some(Token::Word(word)) if word.keyword == Keyword::SELECT) {
        return Err(StatementSkip::Syntax);
    }
    for (position, token) in tokens.iter().enumerate() {
        let is_call = matches!(tokens.get(position + 1), Some(Token::LParen));
        match token {
            Token::SemiColon => return Err(StatementSkip::Syntax),
            Token::AtSign | Token::AtAt | Token::Assignment | Token::Placeholder(_) => {
                return Err(StatementSkip::Function);
            }
            Token::Word(word) if word.quote_style.is_none() => {
                let text = word.value.to_ascii_uppercase();
                let is = |known: &[&str]| known.contains(&text.as_str());
                if text.starts_with('@')
                    || is(&["INTO", "FOR", "LOCK", "PROCEDURE", "CURRENT_USER", "VALUE", "NEXT"])
                {
                    return Err(StatementSkip::Function);
                }
                if is_call && !is(&PURE_FUNCTIONS) && !is(&WORDS_BEFORE_PARENTHESIS) {
                    return Err(StatementSkip::Function);
                }
            }
            Token::Word(_) if is_call => return Err(StatementSkip::Function),
            _ => {}
        }
    }
    Ok(())
}
