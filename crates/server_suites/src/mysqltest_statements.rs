//! Extracts the statements of a `mysqltest` file, without its control flow, variables and other connections.
//! The trial runs these statements in random mixes, and for files that the suites' client cannot run.

/// First words of lines that are `mysqltest` commands and not SQL statements.
const COMMANDS: &[&str] = &[
    "append_file",
    "assert",
    "cat_file",
    "change_user",
    "character_set",
    "chmod",
    "connect",
    "connection",
    "copy_file",
    "copy_files_wildcard",
    "dec",
    "die",
    "diff_files",
    "dirty_close",
    "disable_abort_on_error",
    "disable_async_client",
    "disable_connect_log",
    "disable_cursor_protocol",
    "disable_info",
    "disable_metadata",
    "disable_parsing",
    "disable_prepare_warnings",
    "disable_ps_protocol",
    "disable_ps2_protocol",
    "disable_query_log",
    "disable_reconnect",
    "disable_result_log",
    "disable_rpl_parse",
    "disable_service_connection",
    "disable_session_track_info",
    "disable_testcase",
    "disable_view_protocol",
    "disable_warnings",
    "disable_non_blocking_api",
    "disconnect",
    "echo",
    "enable_abort_on_error",
    "enable_async_client",
    "enable_connect_log",
    "enable_cursor_protocol",
    "enable_info",
    "enable_metadata",
    "enable_parsing",
    "enable_prepare_warnings",
    "enable_ps_protocol",
    "enable_ps2_protocol",
    "enable_query_log",
    "enable_reconnect",
    "enable_result_log",
    "enable_rpl_parse",
    "enable_service_connection",
    "enable_session_track_info",
    "enable_testcase",
    "enable_view_protocol",
    "enable_warnings",
    "enable_non_blocking_api",
    "end",
    "end_timer",
    "error",
    "evalp",
    "exec",
    "exec_in_background",
    "execw",
    "exit",
    "expr",
    "file_exists",
    "force-cpdir",
    "force-rmdir",
    "horizontal_results",
    "if",
    "inc",
    "let",
    "list_files",
    "list_files_append_file",
    "list_files_write_file",
    "lowercase_result",
    "mkdir",
    "move_file",
    "output",
    "partially_sorted_result",
    "perl",
    "ping",
    "query_attributes",
    "query_get_value",
    "real_sleep",
    "reap",
    "remove_file",
    "remove_files_wildcard",
    "replace_column",
    "replace_numeric_round",
    "replace_regex",
    "replace_result",
    "require",
    "reset_connection",
    "result",
    "result_format",
    "rmdir",
    "save_master_pos",
    "send_eval",
    "send_quit",
    "send_shutdown",
    "shutdown_server",
    "skip",
    "skip_if_hypergraph",
    "sleep",
    "sorted_result",
    "source",
    "start_timer",
    "sync_slave_with_master",
    "sync_with_master",
    "system",
    "vertical_results",
    "wait_for_slave_to_stop",
    "while",
    "write_file",
    "xsend",
];

/// `mysqltest` commands that are followed by a statement on the same line.
const PREFIXES: &[&str] = &["eval", "query", "query_vertical", "query_horizontal", "send"];

/// `mysqltest` commands that are followed by lines of text. The text ends with an end marker on a separate
/// line.
const TEXTS: &[&str] = &["perl", "write_file", "append_file"];

/// Returns the SQL statements of a test file.
pub fn statements(text: &str) -> Vec<String> {
    let mut reader =
        ScriptReader { delimiter: ";".to_owned(), found: Vec::new(), pending: String::new(), quote: None };
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(end) = reader.line(line) {
            // Skips the text of a command up to its end marker.
            for line in lines.by_ref() {
                if line.trim() == end {
                    break;
                }
            }
        }
    }
    reader.found
}

struct ScriptReader {
    delimiter: String,
    found: Vec<String>,
    pending: String,
    /// The quote character that is open, if the position is inside quoted text.
    quote: Option<char>,
}

impl ScriptReader {
    /// Reads a line. If the lines of a command's text follow, returns their end marker.
    fn line(&mut self, line: &str) -> Option<String> {
        let trimmed = line.trim();
        if self.pending.trim().is_empty() {
            self.quote = None;
            self.pending.clear();
            if trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "}" || trimmed == "{" {
                return None;
            }
            if let Some(command) = trimmed.strip_prefix("--") {
                return self.command(command.trim());
            }
        }
        let mut rest = line;
        while let Some(at) = self.end_of_statement(rest) {
            self.pending.push_str(&rest[..at]);
            rest = &rest[at + self.delimiter.len()..];
            let statement = std::mem::take(&mut self.pending);
            if let Some(end) = self.command(statement.trim()) {
                return Some(end);
            }
        }
        self.pending.push_str(rest);
        self.pending.push('\n');
        // The condition of `if` and `while` is dropped. The statements of the block are kept.
        if self.quote.is_none() && trimmed.ends_with('{') {
            let word = first_word(self.pending.trim());
            if matches!(word.as_str(), "if" | "while") {
                self.pending.clear();
            }
        }
        None
    }

    /// Returns the byte offset of the delimiter that ends the statement. Delimiters inside quotes do not
    /// count.
    fn end_of_statement(&mut self, text: &str) -> Option<usize> {
        let mut escaped = false;
        for (at, c) in text.char_indices() {
            match self.quote {
                Some(quote) => {
                    if !escaped && c == quote {
                        self.quote = None;
                    }
                    escaped = !escaped && c == '\\' && quote != '`';
                }
                None if text[at..].starts_with(&self.delimiter) => return Some(at),
                None if matches!(c, '\'' | '"' | '`') => self.quote = Some(c),
                None => {}
            }
        }
        None
    }

    fn command(&mut self, text: &str) -> Option<String> {
        let word = first_word(text);
        let rest = text[word.len().min(text.len())..].trim();
        if word == "delimiter" {
            if !rest.is_empty() {
                self.delimiter = rest.to_owned();
            }
            return None;
        }
        if TEXTS.contains(&word.as_str()) {
            let end = rest
                .split_whitespace()
                .next_back()
                .filter(|_| rest.split_whitespace().count() > 1 || word == "perl");
            return Some(end.unwrap_or("EOF").trim_end_matches(';').to_owned());
        }
        let statement = if PREFIXES.contains(&word.as_str()) { rest } else { text };
        let word = first_word(statement);
        let is_statement = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '(' || c == '/')
            && !COMMANDS.contains(&word.as_str());
        // A statement with a `mysqltest` variable is omitted, because the value of the variable is unknown.
        if is_statement && !statement.contains('$') {
            self.found.push(statement.to_owned());
        }
        None
    }
}

/// Returns the first word in lower case.
fn first_word(text: &str) -> String {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(text.len());
    match end {
        0 => text.chars().next().map(String::from).unwrap_or_default(),
        _ => text[..end].to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_not_statements() {
        let text = "# comment\n--source include/have_innodb.inc\n--error ER_X\ncreate table t (a int);\nlet $x= 1;\n\
                    insert into t values ('a;b'),\n('c');\nif ($x)\n{\n  select 1; select 2;\n}\neval drop table $x;\n\
                    eval drop table t;\n--eval select 3\n";
        assert_eq!(
            statements(text),
            [
                "create table t (a int)",
                "insert into t values ('a;b'),\n('c')",
                "select 1",
                "select 2",
                "drop table t",
                "select 3"
            ]
        );
    }

    #[test]
    fn delimiters_and_command_texts_are_recognised() {
        let text = "delimiter |;\ncreate procedure p() begin select 1; end|\ndelimiter ;|\nperl;\nprint 'drop table x;';\nEOF\n\
                    --write_file $f END\ndrop table y;\nEND\ncall p();\n";
        assert_eq!(statements(text), ["create procedure p() begin select 1; end", "call p()"]);
    }
}
