//! Parses the supported statements.

use sqlparser::tokenizer::{Token, Word};

use super::like_and_where_filter::ShowFilter;
use super::sql_date_time;
use super::sql_expression::{self, Expression};
use super::statement_result::PurgeBefore;
use super::statement_tokens::{ParseResult, Tokens, WHAT_THIS_IS};
use crate::client_error::{ClientError, quoted};

/// The maximum number of columns of a `SELECT`, and of assignments of a `SET`.
const ITEMS_MAX: usize = 256;

/// The maximum length of a generated column name in a `SELECT`, in characters. Longer names are cut off, as
/// the servers do for columns without an alias.
pub const COLUMN_NAME_CHARACTERS_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClientStatement {
    Select {
        items: Vec<SelectItem>,
        limit: Option<u64>,
    },
    Set(Vec<Assignment>),
    Show(Show),
    Kill {
        connection_id: u32,
        query_only: bool,
    },
    Purge(PurgeBefore),
    Use(String),
    /// A statement that starts or ends a transaction. This server has no transactions, so the statement has
    /// no effect.
    Nothing,
    /// A statement that would change something, such as `CREATE`. It is refused.
    Change(String),
}

/// A column of a `SELECT`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SelectItem {
    pub expression: Expression,
    pub name: String,
}

/// One assignment of a `SET`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Assignment {
    User(String, Expression),
    /// Sets a system variable of the connection.
    Session(String, Expression),
    /// Sets a global system variable of the server.
    Global(String),
    /// `NAMES`, `CHARACTER SET` and `TRANSACTION`, which have no effect here.
    Ignored,
}

/// What a `SHOW` statement lists.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Show {
    BinaryLogs,
    BinaryLogStatus,
    /// `SHOW REPLICAS`, or its old name `SHOW SLAVE HOSTS`. With the old name, the columns have their old
    /// names too.
    Replicas {
        old_names: bool,
    },
    /// `SHOW REPLICA STATUS`. MariaDB's `SHOW ALL SLAVES STATUS` lists the same single connection with more
    /// columns.
    ReplicaStatus {
        old_names: bool,
        all: bool,
    },
    Variables(ShowFilter),
    Status(ShowFilter),
    Warnings,
    Processlist {
        full: bool,
    },
    Databases(ShowFilter),
    Grants,
}

/// The first words of statements that change something.
const CHANGES: &[&str] = &[
    "ALTER",
    "ANALYZE",
    "CALL",
    "CHANGE",
    "CREATE",
    "DELETE",
    "DO",
    "DROP",
    "FLUSH",
    "GRANT",
    "INSERT",
    "INSTALL",
    "LOAD",
    "LOCK",
    "OPTIMIZE",
    "RENAME",
    "REPAIR",
    "REPLACE",
    "RESET",
    "REVOKE",
    "SHUTDOWN",
    "START",
    "STOP",
    "TRUNCATE",
    "UNINSTALL",
    "UPDATE",
    "XA",
];

/// Words that can follow an expression and are therefore not read as its alias.
const RESERVED: &[&str] = &[
    "AND",
    "BETWEEN",
    "COLLATE",
    "DIV",
    "EXCEPT",
    "FOR",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "INTERSECT",
    "INTO",
    "IS",
    "LIKE",
    "LIMIT",
    "MOD",
    "NOT",
    "OR",
    "ORDER",
    "PROCEDURE",
    "REGEXP",
    "RLIKE",
    "UNION",
    "WHERE",
    "XOR",
];

pub(super) fn parse(sql: &[u8]) -> ParseResult<ClientStatement> {
    let mut tokens = Tokens::new(sql)?;
    let statement = statement(&mut tokens)?;
    if !matches!(statement, ClientStatement::Change(_)) {
        tokens.expect_end()?;
    }
    Ok(statement)
}

fn statement(tokens: &mut Tokens) -> ParseResult<ClientStatement> {
    if tokens.accept_words(&["SELECT"]) {
        return select(tokens);
    }
    if tokens.accept_words(&["SET"]) {
        return set(tokens);
    }
    if tokens.accept_words(&["SHOW"]) {
        return show(tokens).map(ClientStatement::Show);
    }
    if tokens.accept_words(&["KILL"]) {
        let query_only = tokens.accept_words(&["QUERY"]);
        let _ = !query_only && tokens.accept_words(&["CONNECTION"]);
        let id = tokens.integer().and_then(|id| u32::try_from(id).ok());
        let connection_id = id.ok_or_else(|| tokens.unexpected())?;
        return Ok(ClientStatement::Kill { connection_id, query_only });
    }
    if tokens.accept_words(&["PURGE"]) {
        return purge(tokens);
    }
    if tokens.accept_words(&["USE"]) {
        return tokens.name().map(ClientStatement::Use);
    }
    if transaction(tokens) {
        return Ok(ClientStatement::Nothing);
    }
    if let Some(Token::Word(Word { value, quote_style: None, .. })) = tokens.peek()
        && CHANGES.iter().any(|word| value.eq_ignore_ascii_case(word))
    {
        return Ok(ClientStatement::Change(value.to_uppercase()));
    }
    Err(tokens.unexpected())
}

fn transaction(tokens: &mut Tokens) -> bool {
    if tokens.accept_words(&["START", "TRANSACTION"]) {
        // Skip the options of START TRANSACTION. They have no effect, because this server has no
        // transactions.
        while tokens.accept_any(&["WITH", "CONSISTENT", "SNAPSHOT", "READ", "ONLY", "WRITE"])
            || tokens.accept(&Token::Comma)
        {}
        return true;
    }
    let found = tokens.accept_any(&["BEGIN", "COMMIT", "ROLLBACK"]);
    found && {
        tokens.accept_words(&["WORK"]);
        true
    }
}

fn select(tokens: &mut Tokens) -> ParseResult<ClientStatement> {
    tokens.accept_any(&["SQL_NO_CACHE", "ALL", "DISTINCT"]);
    let mut items = Vec::new();
    loop {
        if items.len() == ITEMS_MAX {
            return Err(tokens.unexpected());
        }
        let mark = tokens.mark();
        let expression = sql_expression::parse(tokens)?;
        let mut name = match &expression {
            Expression::Literal(super::SqlValue::Text(text)) => text.clone(),
            _ => tokens.text_since(mark),
        };
        if tokens.accept_words(&["AS"]) {
            name = alias(tokens)?;
        } else {
            name = bare_alias(tokens).unwrap_or(name);
        }
        if let Some((end, _)) = name.char_indices().nth(COLUMN_NAME_CHARACTERS_MAX) {
            name.truncate(end);
        }
        items.push(SelectItem { expression, name });
        if !tokens.accept(&Token::Comma) {
            break;
        }
    }
    if tokens.accept_words(&["FROM"]) && !tokens.accept_words(&["DUAL"]) {
        let message = format!("This server has no tables. {WHAT_THIS_IS}");
        return Err(ClientError::new(ClientError::NOT_SUPPORTED_YET, message));
    }
    let mut limit = None;
    if tokens.accept_words(&["LIMIT"]) {
        limit = Some(tokens.integer().ok_or_else(|| tokens.unexpected())?);
    }
    Ok(ClientStatement::Select { items, limit })
}

/// The alias after an expression, if there is one. The word `AS` may be left out.
fn bare_alias(tokens: &mut Tokens) -> Option<String> {
    let reserved = RESERVED.iter().any(|word| tokens.peek_words(&[word]));
    if reserved { None } else { alias(tokens).ok() }
}

fn alias(tokens: &mut Tokens) -> ParseResult<String> {
    match tokens.string() {
        Some(name) => Ok(name),
        None => tokens.name(),
    }
}

fn set(tokens: &mut Tokens) -> ParseResult<ClientStatement> {
    let mut assignments = Vec::new();
    loop {
        if assignments.len() == ITEMS_MAX {
            return Err(tokens.unexpected());
        }
        assignments.push(assignment(tokens)?);
        if !tokens.accept(&Token::Comma) {
            return Ok(ClientStatement::Set(assignments));
        }
    }
}

fn assignment(tokens: &mut Tokens) -> ParseResult<Assignment> {
    if tokens.accept_words(&["NAMES"])
        || tokens.accept_words(&["CHARSET"])
        || tokens.accept_words(&["CHARACTER", "SET"])
    {
        alias(tokens)?;
        if tokens.accept_words(&["COLLATE"]) {
            alias(tokens)?;
        }
        return Ok(Assignment::Ignored);
    }
    let global = tokens.accept_any(&["GLOBAL", "PERSIST", "PERSIST_ONLY"]);
    let session = !global && tokens.accept_any(&["SESSION", "LOCAL"]);
    if tokens.accept_words(&["TRANSACTION"]) {
        while tokens.accept_any(&["ISOLATION", "LEVEL", "READ", "ONLY", "WRITE", "COMMITTED", "UNCOMMITTED"])
            || tokens.accept_any(&["REPEATABLE", "SERIALIZABLE"])
            || tokens.accept(&Token::Comma)
        {}
        return Ok(if global { Assignment::Global("transaction".into()) } else { Assignment::Ignored });
    }
    if !global && !session && tokens.accept(&Token::AtSign) {
        let name = sql_expression::user_variable(tokens, "")?;
        return Ok(Assignment::User(name, value(tokens)?));
    }
    let name = tokens.name()?;
    let target = match name.strip_prefix('@') {
        Some(name) if !name.starts_with('@') && !global && !session => {
            let name = sql_expression::user_variable(tokens, name)?;
            return Ok(Assignment::User(name, value(tokens)?));
        }
        Some(name) => name.trim_start_matches('@').to_owned(),
        None => name,
    };
    let (scope, name) = match tokens.accept(&Token::Period) {
        true => (target.to_lowercase(), tokens.name()?),
        false => (String::new(), target),
    };
    let value = value(tokens)?;
    match scope.as_str() {
        "" if !global => Ok(Assignment::Session(name, value)),
        "session" | "local" if !global => Ok(Assignment::Session(name, value)),
        _ => Ok(Assignment::Global(name)),
    }
}

fn value(tokens: &mut Tokens) -> ParseResult<Expression> {
    if !tokens.accept(&Token::Eq) {
        tokens.expect(&Token::Assignment)?;
    }
    sql_expression::parse(tokens)
}

fn purge(tokens: &mut Tokens) -> ParseResult<ClientStatement> {
    if !tokens.accept_any(&["BINARY", "MASTER"]) {
        return Err(tokens.unexpected());
    }
    if !tokens.accept_words(&["LOGS"]) {
        return Err(tokens.unexpected());
    }
    if tokens.accept_words(&["TO"]) {
        return tokens.expect_string().map(|file| ClientStatement::Purge(PurgeBefore::File(file)));
    }
    if !tokens.accept_words(&["BEFORE"]) {
        return Err(tokens.unexpected());
    }
    let text = tokens.expect_string()?;
    match sql_date_time::parse_date_time(&text) {
        Some(seconds) => Ok(ClientStatement::Purge(PurgeBefore::Time(seconds))),
        None => {
            let message = format!(
                "PURGE BINARY LOGS BEFORE takes 'YYYY-MM-DD hh:mm:ss' in UTC, not '{}'",
                quoted(&text)
            );
            Err(ClientError::new(ClientError::WRONG_ARGUMENTS, message))
        }
    }
}

fn show(tokens: &mut Tokens) -> ParseResult<Show> {
    let full = tokens.accept_words(&["FULL"]);
    let scoped = !full && tokens.accept_any(&["GLOBAL", "SESSION", "LOCAL"]);
    if full || scoped {
        return match () {
            () if full && tokens.accept_words(&["PROCESSLIST"]) => Ok(Show::Processlist { full }),
            () if scoped && tokens.accept_words(&["VARIABLES"]) => {
                ShowFilter::parse(tokens).map(Show::Variables)
            }
            () if scoped && tokens.accept_words(&["STATUS"]) => ShowFilter::parse(tokens).map(Show::Status),
            () => Err(tokens.unexpected()),
        };
    }
    type Make = fn(&mut Tokens) -> ParseResult<Show>;
    let known: [(&[&str], Make); 20] = [
        (&["BINARY", "LOGS"], |_| Ok(Show::BinaryLogs)),
        (&["MASTER", "LOGS"], |_| Ok(Show::BinaryLogs)),
        (&["BINARY", "LOG", "STATUS"], |_| Ok(Show::BinaryLogStatus)),
        (&["MASTER", "STATUS"], |_| Ok(Show::BinaryLogStatus)),
        (&["BINLOG", "STATUS"], |_| Ok(Show::BinaryLogStatus)),
        (&["REPLICAS"], |_| Ok(Show::Replicas { old_names: false })),
        (&["REPLICA", "HOSTS"], |_| Ok(Show::Replicas { old_names: true })),
        (&["SLAVE", "HOSTS"], |_| Ok(Show::Replicas { old_names: true })),
        (&["REPLICA", "STATUS"], |tokens| channel(tokens, false, false)),
        (&["SLAVE", "STATUS"], |tokens| channel(tokens, true, false)),
        (&["ALL", "REPLICAS", "STATUS"], |tokens| channel(tokens, false, true)),
        (&["ALL", "SLAVES", "STATUS"], |tokens| channel(tokens, true, true)),
        (&["VARIABLES"], |tokens| ShowFilter::parse(tokens).map(Show::Variables)),
        (&["STATUS"], |tokens| ShowFilter::parse(tokens).map(Show::Status)),
        (&["WARNINGS"], warnings),
        (&["ERRORS"], warnings),
        (&["PROCESSLIST"], |_| Ok(Show::Processlist { full: false })),
        (&["DATABASES"], |tokens| ShowFilter::parse(tokens).map(Show::Databases)),
        (&["SCHEMAS"], |tokens| ShowFilter::parse(tokens).map(Show::Databases)),
        (&["GRANTS"], grants),
    ];
    for (words, make) in known {
        if tokens.accept_words(words) {
            return make(tokens);
        }
    }
    Err(ClientError::new(
        ClientError::NOT_SUPPORTED_YET,
        format!("SHOW of something else is not supported. {WHAT_THIS_IS}"),
    ))
}

/// Parses the channel name of a statement. This server has only one channel, and that channel has no name.
fn channel(tokens: &mut Tokens, old_names: bool, all: bool) -> ParseResult<Show> {
    if tokens.accept_words(&["FOR", "CHANNEL"]) {
        tokens.expect_string()?;
    }
    Ok(Show::ReplicaStatus { old_names, all })
}

/// Parses the rest of `SHOW WARNINGS`. The `LIMIT` clause has no effect, because statements on this server
/// never have warnings.
fn warnings(tokens: &mut Tokens) -> ParseResult<Show> {
    if tokens.accept_words(&["LIMIT"]) {
        tokens.integer().ok_or_else(|| tokens.unexpected())?;
        if tokens.accept(&Token::Comma) {
            tokens.integer().ok_or_else(|| tokens.unexpected())?;
        }
    }
    Ok(Show::Warnings)
}

fn grants(tokens: &mut Tokens) -> ParseResult<Show> {
    if tokens.accept_words(&["FOR"]) {
        if !tokens.accept_words(&["CURRENT_USER"]) {
            return Err(tokens.unexpected());
        }
        if tokens.accept(&Token::LParen) {
            tokens.expect(&Token::RParen)?;
        }
    }
    Ok(Show::Grants)
}
