//! The actions of a channel: their dialogs, and what they do.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Form, Router};
use tailwater_binlog_stats::LocalTime;
use tailwater_daemon::api::channels::{ChannelEdit, ChannelSnapshot};
use tailwater_daemon::api::daemon_requests::ControlCommand;

use super::PageState;
use super::action_dialog::{Dialog, DialogField, DialogInput, done};
use super::action_dialog_input::{Entered, chosen, confirmed, failure_text, parsed, refilled, text};
use super::channel_view::filters_text;
use super::display_format::path_segment;
use super::page_error::PageError;

pub(super) fn routes() -> Router<PageState> {
    Router::new().route("/channels/{name}/{action}", get(dialog).post(act))
}

async fn dialog(
    State(state): State<PageState>,
    Path((name, action)): Path<(String, String)>,
) -> Result<Response, PageError> {
    channel_dialog(&state, &name, &action)?.show()
}

async fn act(
    State(state): State<PageState>,
    Path((name, action)): Path<(String, String)>,
    Form(entered): Form<Entered>,
) -> Result<Response, PageError> {
    let dialog = channel_dialog(&state, &name, &action)?;
    let executed = match command(&name, &action, &entered) {
        Ok(command) => state.control.execute(command).await.map_err(|error| failure_text(&error)),
        Err(reason) => Err(reason),
    };
    match executed {
        Ok(_) => Ok(done(&format!("Channel {name}: {}", done_text(&action)))),
        Err(failure) => refilled(dialog, &entered, failure).show(),
    }
}

fn done_text(action: &str) -> &'static str {
    match action {
        "start" | "tolerate" => "started",
        "stop" => "stopped",
        "skip" => "the transaction is skipped",
        "seek" => "the applied position is set",
        "filter" => "the filters are replaced",
        _ => "the settings are changed",
    }
}

fn command(name: &str, action: &str, entered: &Entered) -> Result<ControlCommand, String> {
    let channel = name.to_owned();
    let required = |field: &str, what: &str| {
        text(entered, field).ok_or_else(|| format!("Nothing was changed: enter {what}."))
    };
    Ok(match action {
        "start" => ControlCommand::Start {
            channel,
            until_gtid: text(entered, "until_gtid"),
            until_time_us: parsed::<LocalTime>(entered, "until_time", "a time such as 2026-11-26 14:30:00")?
                .map(|time| time.0),
        },
        "tolerate" => ControlCommand::Tolerate { channel, until_gtid: text(entered, "until_gtid") },
        "stop" => ControlCommand::Stop { channel },
        "skip" => ControlCommand::Skip { channel, gtid: required("gtid", "the GTID of the transaction")? },
        "seek" => {
            confirmed(entered, name)?;
            ControlCommand::Seek { channel, gtids: text(entered, "gtids").unwrap_or_default() }
        }
        "filter" => {
            confirmed(entered, name)?;
            let filters = entered.get("filters").map(String::as_str).unwrap_or_default();
            let filters = tailwater_config::parse_toml(filters)?;
            ControlCommand::Filter { channel, filters, from_gtid: text(entered, "from_gtid") }
        }
        _ => {
            let edit = ChannelEdit {
                workers: parsed(entered, "workers", "a number")?,
                batch_transactions_max: parsed(entered, "batch_transactions_max", "a number")?,
                batch_bytes_max: parsed(entered, "batch_bytes_max", "a number of bytes")?,
                commit_order: chosen(entered, "commit_order")?,
                gtid: chosen(entered, "gtid")?,
                ddl_exec_mode: chosen(entered, "ddl_exec_mode")?,
                delay_seconds: parsed(entered, "delay_seconds", "a number of seconds")?,
            };
            if edit == ChannelEdit::default() {
                return Err("Nothing was changed: all fields are blank.".to_owned());
            }
            ControlCommand::Set { channel, edit }
        }
    })
}

fn channel_dialog(state: &PageState, name: &str, action: &str) -> Result<Dialog, PageError> {
    let snapshot = state.control.snapshot();
    let channel = snapshot.channels.iter().find(|channel| channel.status.name == name);
    let channel = channel.ok_or_else(|| PageError::unknown("channel", name))?;
    let dialog = match action {
        "start" => start_dialog(channel),
        "tolerate" => tolerate_dialog(channel),
        "stop" => Dialog {
            title: format!("Stop channel {name}"),
            intro: vec![
                "Running transactions commit first. The target then falls behind until the channel starts again."
                    .to_owned(),
            ],
            submit: "Stop".to_owned(),
            ..Dialog::default()
        },
        "skip" => skip_dialog(channel),
        "seek" => seek_dialog(channel),
        "filter" => filter_dialog(channel),
        "set" => set_dialog(channel),
        _ => return Err(PageError::unknown("action", action)),
    };
    Ok(Dialog { action: format!("/channels/{}/{action}", path_segment(name)), ..dialog })
}

fn start_dialog(channel: &ChannelSnapshot) -> Dialog {
    Dialog {
        title: format!("Start channel {}", channel.status.name),
        intro: vec!["The channel continues after the last transaction that it applied.".to_owned()],
        fields: vec![
            DialogField::new("until_gtid", "Stop after this GTID", DialogInput::Text)
                .hint("Blank: no limit."),
            DialogField::new("until_time", "Stop before this time", DialogInput::Text)
                .hint("Local time, such as 2026-11-26 14:30:00. Blank: no limit."),
        ],
        submit: "Start".to_owned(),
        ..Dialog::default()
    }
}

fn tolerate_dialog(channel: &ChannelSnapshot) -> Dialog {
    Dialog {
        title: format!("Start channel {}, tolerating differences", channel.status.name),
        intro: vec![
            "Inserts replace existing rows; updates and deletes ignore missing rows.".to_owned(),
            "Use this start if the target already has a part of the transaction. Check the tables afterwards."
                .to_owned(),
        ],
        fields: vec![
            DialogField::new("until_gtid", "Up to and including this GTID", DialogInput::Text)
                .hint("Blank: only the transaction at which the channel failed."),
        ],
        submit: "Start, tolerating".to_owned(),
        is_dangerous: true,
        ..Dialog::default()
    }
}

fn skip_dialog(channel: &ChannelSnapshot) -> Dialog {
    let status = &channel.status;
    let failed_at = status.fault.as_ref().and_then(|fault| gtid_in(&fault.message)).unwrap_or_default();
    Dialog {
        title: format!("Skip a transaction on channel {}", status.name),
        intro: vec![
            "The channel never applies this transaction, and records that on the target.".to_owned(),
            "The target then differs from the source. A failed channel starts again.".to_owned(),
        ],
        fields: vec![DialogField::new("gtid", "GTID", DialogInput::Text).value(failed_at).required()],
        submit: "Skip".to_owned(),
        is_dangerous: true,
        ..Dialog::default()
    }
}

/// Returns the GTID that follows the word `transaction` in an error message.
fn gtid_in(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("transaction ")?;
    let word = rest.split_whitespace().next()?.trim_end_matches([':', ',', ';', '.']);
    (word.contains(['-', ':']) && word.ends_with(|last: char| last.is_ascii_digit())).then(|| word.to_owned())
}

fn seek_dialog(channel: &ChannelSnapshot) -> Dialog {
    let name = &channel.status.name;
    Dialog {
        title: format!("Set the applied position of channel {name}"),
        intro: vec![
            "The channel treats exactly these transactions of the source as applied.".to_owned(),
            "With a wrong position, the channel applies transactions twice, or never.".to_owned(),
        ],
        fields: vec![
            DialogField::new("gtids", "Applied GTIDs", DialogInput::Lines)
                .hint("GTID set of MySQL, or GTID position of MariaDB. Blank: none.")
                .value(channel.status.gtids.clone()),
            DialogField::confirmation(name),
        ],
        submit: "Set the position".to_owned(),
        is_dangerous: true,
        ..Dialog::default()
    }
}

fn filter_dialog(channel: &ChannelSnapshot) -> Dialog {
    let name = &channel.status.name;
    let version = channel.status.filter_version;
    let (filters, origin) = match filters_text(&channel.status) {
        Some(text) => (text, format!("The text below is version {version}, which is in force.")),
        None => (
            String::new(),
            "The filters in force are not known yet, because the channel has not reached its target."
                .to_owned(),
        ),
    };
    Dialog {
        title: format!("Replace the filters of channel {name}"),
        intro: vec![
            "The new filters replace all present ones, and are stored on the target.".to_owned(),
            origin,
        ],
        fields: vec![
            DialogField::new("filters", "Filters", DialogInput::Lines)
                .hint("As in [channel.filters]: include = [\"shop.*\"], exclude = [...], rewrite = [{ from = ..., to = ... }]. Blank: no filters.")
                .value(filters),
            DialogField::new("from_gtid", "From this GTID on", DialogInput::Text).hint("Blank: the next transaction."),
            DialogField::confirmation(name),
        ],
        submit: "Replace the filters".to_owned(),
        is_dangerous: true,
        ..Dialog::default()
    }
}

fn set_dialog(channel: &ChannelSnapshot) -> Dialog {
    let status = &channel.status;
    let number = |name, label: &str| DialogField::new(name, label, DialogInput::Number);
    let choice = |name, label: &str, values: &[&str]| {
        let unchanged = (String::new(), "unchanged".to_owned());
        let values = values.iter().map(|value| ((*value).to_owned(), (*value).to_owned()));
        DialogField::new(name, label, DialogInput::Choice(std::iter::once(unchanged).chain(values).collect()))
    };
    Dialog {
        title: format!("Settings of channel {}", status.name),
        intro: vec!["The new values last until the daemon restarts. Blank fields change nothing.".to_owned()],
        fields: vec![
            number("workers", "Workers").hint(format!("Now {}.", status.workers)),
            number("batch_transactions_max", "Transactions in a batch, at most"),
            number("batch_bytes_max", "Bytes of rows in a batch, at most"),
            number("delay_seconds", "Delay in seconds").hint(format!("Now {}.", status.delay_seconds)),
            choice("commit_order", "Commit order", &["source", "independent"]),
            choice("gtid", "GTIDs on the target", &["log", "preserve", "own"]),
            choice("ddl_exec_mode", "DDL", &["strict", "idempotent"]),
        ],
        submit: "Change the settings".to_owned(),
        ..Dialog::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(fields: &[(&str, &str)]) -> Entered {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_failed_transaction_is_offered() {
        let mysql =
            "the target rejected transaction 3e11fa47-71ca-11e1-9e33-c80aa9429562:23 (shop.t): duplicate";
        assert_eq!(gtid_in(mysql).as_deref(), Some("3e11fa47-71ca-11e1-9e33-c80aa9429562:23"));
        assert_eq!(gtid_in("transaction 0-1-1042: no such table").as_deref(), Some("0-1-1042"));
        assert_eq!(gtid_in("the transaction is too large"), None);
    }

    #[test]
    fn dangerous_actions_need_the_name() {
        for action in ["seek", "filter"] {
            let refused = command("reports", action, &entered(&[("confirm", "report")]));
            assert!(
                refused.is_err_and(|reason| reason.contains("type reports")),
                "{action} did not ask for the name of the channel"
            );
        }
        let seek = command("reports", "seek", &entered(&[("confirm", "reports"), ("gtids", " 0-1-5\n")]));
        assert!(matches!(seek, Ok(ControlCommand::Seek { gtids, .. }) if gtids == "0-1-5"));
    }

    #[test]
    fn wrong_values_name_their_field() {
        let failure = |action, fields: &[(&str, &str)]| {
            command("c", action, &entered(fields)).err().unwrap_or_default()
        };
        assert_eq!(failure("set", &[("workers", "many")]), "workers: \"many\" is not a number");
        assert!(failure("set", &[("commit_order", "random")]).starts_with("commit_order: "));
        assert!(failure("set", &[("workers", " ")]).contains("all fields are blank"));
        assert!(failure("skip", &[]).contains("enter the GTID"));
        assert!(failure("start", &[("until_time", "soon")]).contains("is not a time"));
        let filter = [("confirm", "c"), ("filters", "include = 5")];
        assert!(
            failure("filter", &filter).contains("line 1"),
            "the error does not name the wrong line: {}",
            failure("filter", &filter)
        );
    }
}
