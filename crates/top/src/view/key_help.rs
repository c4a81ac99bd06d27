//! What the keys do, and what the columns mean.

use ratatui::text::Line;

use super::terminal_style::{TerminalStyle, Tone};

const TEXT: &[(&str, &str)] = &[
    ("1 2 3 4 5", "overview, channels, clusters, trends, jobs"),
    ("Tab Left Right", "the next or previous screen"),
    ("Up Down PgUp PgDn", "select a channel or a job; on other screens scroll"),
    ("Home End", "the first or last one"),
    ("Enter", "overview: all problems; channels: details and workers"),
    ("Esc", "back"),
    ("s", "channels: sort by name, lag or trx/s"),
    ("+ -", "trends: more or less time"),
    ("p", "pause: the screen stays; data is still collected"),
    ("Ctrl-L Ctrl-Z", "draw again; suspend"),
    ("q Ctrl-C", "quit"),
    ("", ""),
    ("WRITTEN/S TRX/S", "written to the log, or applied, in the last second"),
    ("DURABLE TO", "segment and offset up to which the log is on disk"),
    ("HEARD AGO", "age of the last message or heartbeat of the server"),
    ("ACKERS", "connected ackers, and how many ACKs a commit needs"),
    ("UNREAD", "durable bytes that the reader has not read or confirmed"),
    ("BUSY", "workers with a batch, of all; or the share of time"),
    ("WAITING", "transactions read that wait for a worker or a conflict"),
    ("PROGRESS", "of the estimated rows or bytes; LEFT is the estimated time"),
    ("CONFLICTS", "batches run again after a deadlock or lock timeout"),
];

pub(super) fn lines(style: TerminalStyle) -> Vec<Line<'static>> {
    let line = |(keys, meaning): &(&'static str, &'static str)| {
        Line::from(vec![style.span(Tone::Title, format!("{keys:20}")), (*meaning).into()])
    };
    TEXT.iter().map(line).collect()
}
