//! SQL expressions: literals, variables, and the few functions that clients of a source call.

use sqlparser::tokenizer::{Token, Word};
use tailwater_wire::gtid::MysqlGtidSet;

use super::queryable_server_state::ServerView;
use super::session_variables::{SqlValue, StatementSession};
use super::sql_date_time;
use super::statement_tokens::{ParseResult, Tokens, WHAT_THIS_IS};
use super::system_variables::{self, VariableScope};
use crate::client_error::{ClientError, quoted};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Literal(SqlValue),
    /// A user variable: `@name`.
    User(String),
    /// A system variable: `@@name`, `@@global.name`.
    System(VariableScope, String),
    /// A function call. The function's name is in upper case.
    Call(String, Vec<Expression>),
    Negative(Box<Expression>),
    /// A word without quotes. In `SET` the word is the value of a setting. Elsewhere it is an unknown column.
    Word(String),
}

/// The maximum number of arguments of a function call. No supported function takes more. The limit saves
/// memory, because each argument may be a long GTID set.
const ARGUMENTS_MAX: usize = 2;

/// The functions that may be called without parentheses.
const BARE_FUNCTIONS: &[&str] =
    &["CURRENT_USER", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "UTC_TIMESTAMP"];

pub(super) fn parse(tokens: &mut Tokens) -> ParseResult<Expression> {
    tokens.deeper(parse_one)
}

fn parse_one(tokens: &mut Tokens) -> ParseResult<Expression> {
    if let Some(text) = tokens.string() {
        return Ok(Expression::Literal(SqlValue::Text(text)));
    }
    if tokens.accept(&Token::LParen) {
        let inner = parse(tokens)?;
        tokens.expect(&Token::RParen)?;
        return Ok(inner);
    }
    if tokens.accept(&Token::Minus) {
        return parse(tokens).map(|inner| Expression::Negative(Box::new(inner)));
    }
    if tokens.accept(&Token::Plus) {
        return parse(tokens);
    }
    match tokens.peek() {
        Some(Token::Number(digits, _)) => {
            let value = match digits.parse() {
                Ok(number) => SqlValue::Integer(number),
                Err(_) => SqlValue::Text(digits.clone()),
            };
            tokens.skip();
            Ok(Expression::Literal(value))
        }
        // The tokenizer returns the `@` as a separate token if a quoted name or string follows.
        Some(Token::AtSign) => {
            tokens.skip();
            user_variable(tokens, "").map(Expression::User)
        }
        Some(Token::Word(word)) => {
            let word = word.clone();
            tokens.skip();
            word_expression(tokens, word)
        }
        _ => Err(tokens.unexpected()),
    }
}

fn word_expression(tokens: &mut Tokens, word: Word) -> ParseResult<Expression> {
    if word.quote_style.is_some() {
        return Ok(Expression::Word(word.value));
    }
    if let Some(name) = word.value.strip_prefix("@@") {
        return system_variable(tokens, name);
    }
    if let Some(name) = word.value.strip_prefix('@') {
        return user_variable(tokens, name).map(Expression::User);
    }
    let upper = word.value.to_uppercase();
    match upper.as_str() {
        "NULL" => return Ok(Expression::Literal(SqlValue::Null)),
        "TRUE" => return Ok(Expression::Literal(SqlValue::Integer(1))),
        "FALSE" => return Ok(Expression::Literal(SqlValue::Integer(0))),
        _ => {}
    }
    if tokens.accept(&Token::LParen) {
        tokens.count_call()?;
        let mut arguments = Vec::new();
        while !tokens.accept(&Token::RParen) {
            if !arguments.is_empty() {
                tokens.expect(&Token::Comma)?;
            }
            if arguments.len() == ARGUMENTS_MAX {
                return Err(tokens.unexpected());
            }
            arguments.push(parse(tokens)?);
        }
        return Ok(Expression::Call(upper, arguments));
    }
    if BARE_FUNCTIONS.contains(&upper.as_str()) {
        return Ok(Expression::Call(upper, Vec::new()));
    }
    Ok(Expression::Word(word.value))
}

/// Parses the rest of a user variable's name after the `@`. The name may be quoted or contain dots.
pub(super) fn user_variable(tokens: &mut Tokens, name: &str) -> ParseResult<String> {
    let mut name = name.to_owned();
    if name.is_empty() {
        return match tokens.string() {
            Some(quoted) => Ok(quoted),
            None => tokens.name(),
        };
    }
    while tokens.accept(&Token::Period) {
        name = format!("{name}.{}", tokens.name()?);
    }
    Ok(name)
}

fn system_variable(tokens: &mut Tokens, first: &str) -> ParseResult<Expression> {
    let first = if first.is_empty() { tokens.name()? } else { first.to_owned() };
    let scope = match first.to_lowercase().as_str() {
        "global" => VariableScope::Global,
        "session" | "local" => VariableScope::Session,
        _ => return Ok(Expression::System(VariableScope::Either, first)),
    };
    tokens.expect(&Token::Period)?;
    Ok(Expression::System(scope, tokens.name()?))
}

/// Computes the value of an expression.
pub(super) fn evaluate(
    expression: &Expression,
    session: &StatementSession,
    view: &ServerView,
) -> ParseResult<SqlValue> {
    match expression {
        Expression::Literal(value) => Ok(value.clone()),
        Expression::User(name) => Ok(session.variable(name)),
        Expression::System(scope, name) => system_variables::value(*scope, name, session, view),
        Expression::Negative(inner) => Ok(match evaluate(inner, session, view)?.to_integer() {
            Some(number) => SqlValue::Integer(number.checked_neg().unwrap_or(i128::MAX)),
            None => SqlValue::Null,
        }),
        Expression::Call(name, arguments) => {
            let values = arguments.iter().map(|argument| evaluate(argument, session, view));
            call(name, &values.collect::<ParseResult<Vec<_>>>()?, session, view)
        }
        Expression::Word(name) => {
            let message = format!("Unknown column '{}' in 'SELECT'. {WHAT_THIS_IS}", quoted(name));
            Err(ClientError::new(ClientError::UNKNOWN_COLUMN, message))
        }
    }
}

fn call(
    name: &str,
    arguments: &[SqlValue],
    session: &StatementSession,
    view: &ServerView,
) -> ParseResult<SqlValue> {
    let seconds = view.now_us / 1_000_000;
    Ok(match (name, arguments) {
        ("VERSION", []) => view.server_version.as_str().into(),
        ("CONNECTION_ID", []) => view.connection_id.into(),
        ("USER" | "SESSION_USER" | "SYSTEM_USER" | "CURRENT_USER", []) => view.user.as_str().into(),
        ("DATABASE" | "SCHEMA", []) => session.database().map_or(SqlValue::Null, SqlValue::from),
        ("UNIX_TIMESTAMP", []) => seconds.into(),
        (
            "NOW" | "SYSDATE" | "CURRENT_TIMESTAMP" | "LOCALTIME" | "LOCALTIMESTAMP" | "UTC_TIMESTAMP",
            [] | [SqlValue::Integer(0)],
        ) => sql_date_time::date_time(seconds).into(),
        ("GTID_SUBSET", [part, whole]) => match (set(name, part)?, set(name, whole)?) {
            (Some(part), Some(whole)) => u16::from(whole.is_superset_of(&part)).into(),
            _ => SqlValue::Null,
        },
        ("GTID_SUBTRACT", [from, what]) => match (set(name, from)?, set(name, what)?) {
            (Some(from), Some(what)) => format!("{:#}", from.subtract(&what)).into(),
            _ => SqlValue::Null,
        },
        _ => {
            let message = format!(
                "FUNCTION {} with {} arguments does not exist here. {WHAT_THIS_IS}",
                quoted(name),
                arguments.len()
            );
            return Err(ClientError::new(ClientError::NO_SUCH_FUNCTION, message));
        }
    })
}

fn set(function: &str, value: &SqlValue) -> ParseResult<Option<MysqlGtidSet>> {
    let Some(text) = value.clone().into_cell() else { return Ok(None) };
    MysqlGtidSet::parse(&text).map(Some).map_err(|error| {
        let message = format!("Malformed GTID set specification for {function}: {error}");
        ClientError::new(ClientError::MALFORMED_GTID_SET, message)
    })
}
