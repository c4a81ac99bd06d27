use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::screen_layout::{Picture, page_lines};
use super::terminal_style::TerminalStyle;
use super::*;
use tailwater_daemon::api::captures::LogArchiveSnapshot;

use crate::daemon_answer::DaemonAnswer;
use crate::model::AnswerState;
use crate::test_daemon_states::{at, crowded, healthy, job};

const PLAIN: TerminalStyle = TerminalStyle { colours: false, ascii: true };

fn model_of(states: Vec<DaemonAnswer>) -> AnswerHistory {
    let mut model = AnswerHistory::new(at(0), Duration::from_secs(1));
    for (number, state) in states.into_iter().enumerate() {
        model.accept(at(1_000 * (number as u64 + 1)), state);
    }
    model
}

fn well() -> AnswerHistory {
    model_of(vec![healthy(100, 1_000), healthy(101, 2_200)])
}

struct Shown {
    view: TopView,
    model: AnswerHistory,
    answer_state: AnswerState,
    style: TerminalStyle,
}

impl Shown {
    fn new(screen: Screen, model: AnswerHistory) -> Self {
        Self { view: TopView::new(screen), model, answer_state: AnswerState::Answering, style: PLAIN }
    }

    fn picture(&self) -> Picture<'_> {
        let Self { view, model, answer_state, style } = self;
        let now = at(4_000);
        Picture { view, model, shown_at: now, answer_state, now, machine: "relay1", style: *style }
    }

    fn buffer(&self, width: u16, height: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| self.picture().draw(frame.area(), frame.buffer_mut())).expect("a picture");
        terminal.backend().buffer().clone()
    }

    fn lines(&self, width: u16, height: u16) -> Vec<String> {
        let buffer = self.buffer(width, height);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn small(&self) -> String {
        self.lines(80, 24).join("\n")
    }

    fn press(&mut self, code: KeyCode) -> KeyEffect {
        let effect = self.view.press(KeyEvent::from(code), &self.model, page_lines(24));
        let lines_max = self.picture().scroll_max(ratatui::layout::Rect::new(0, 0, 80, 24));
        self.view.limit_scroll(lines_max);
        effect
    }

    fn type_keys(&mut self, keys: &str) {
        for key in keys.chars() {
            self.press(KeyCode::Char(key));
        }
    }
}

#[test]
fn the_overview_shows_sources_and_readers() {
    let lines = Shown::new(Screen::Overview, well()).lines(80, 24);
    assert_eq!(
        lines[..12],
        [
            "Tailwater 0.1.0 on relay1, up 1m 41s                         2026-03-04 05:06:11",
            "[1 Overview] 2 Channels  3 Clusters  4 Trends  5 Jobs                all is well",
            "SOURCE  SERVER  CAPTURE    DURABLE TO   WRITTEN/S  TRX/S  HEARD AGO  SEMI-SYNC",
            "orders  db1     streaming  12:48213344    1.2 MiB   1200      0.1 s  in force",
            "",
            "READER  LOG OF  ADDRESS         SENT TO                  UNREAD    LAG",
            "db2     orders  10.0.0.2:50312  binlog.000012:48213344  2.0 KiB  0.2 s",
            "",
            "LOG DISK  log 2.0 GiB, 64.0 GiB of 128.0 GiB free, full in 3h 20m; in",
            "          /var/lib/tailwater/log",
            "",
            "",
        ]
    );
    assert_eq!(lines[23], "q quit  1-5 screen  Enter all problems  p pause  ? help");
    let wide = Shown::new(Screen::Overview, well()).lines(200, 50).join("\n");
    for more in ["SERVER", "BEHIND TRX", "ACKERS", "2 of 1"] {
        assert!(wide.contains(more), "the wide screen lacks {more}: {wide}");
    }
}

#[test]
fn the_overview_tells_what_the_archive_lacks() {
    let archive = |value: serde_json::Value| {
        let mut state = healthy(100, 0);
        let none = LogArchiveSnapshot::default();
        let mut whole = serde_json::to_value(none).expect("JSON");
        for (name, value) in value.as_object().into_iter().flatten() {
            whole[name] = value.clone();
        }
        state.counters.captures[0].log.archive = serde_json::from_value(whole).expect("an archive");
        Shown::new(Screen::Overview, model_of(vec![state])).small()
    };
    let waiting = serde_json::json!({ "segments": 2, "bytes": 3 << 20 });
    let current = serde_json::json!({ "segment": 14, "is_read_back": false, "bytes": 4, "bytes_total": 10 });
    let busy = archive(serde_json::json!({ "waiting": waiting, "current": current }));
    assert!(
        busy.contains("ARCHIVE   orders: uploads segment 14 (40 %); 3.0 MiB of segments wait (2)"),
        "{busy}"
    );
    let problem = serde_json::json!({ "code": "TW-LOG-0014", "text": "denied", "since_ms": 0 });
    let failing = archive(serde_json::json!({ "waiting": waiting, "problem": problem }));
    assert!(failing.contains("ARCHIVE   orders: FAILS with TW-LOG-0014; 3.0 MiB"), "{failing}");
    let none = serde_json::json!({ "waiting": { "segments": 0, "bytes": 0 } });
    assert!(archive(none).contains("ARCHIVE   orders: complete"));
}

#[test]
fn problems_come_first_with_what_to_do() {
    let mut shown = Shown::new(Screen::Overview, model_of(vec![crowded()]));
    let lines = shown.lines(80, 24);
    assert!(lines[1].ends_with("60 PROBLEMS"), "the header lacks the number of problems: {lines:#?}");
    assert!(
        lines[2].starts_with("! channel 0-nnn") && lines[4].starts_with("  what to do: fix the"),
        "the first problem is not shown with its remedy: {lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.contains("58 more: press Enter")),
        "the number of further problems is not shown: {lines:#?}"
    );
    assert!(lines.iter().any(|line| line.starts_with("SOURCE ")), "the screen shows no sources: {lines:#?}");
    assert!(
        lines[23].contains("Up/Down: lines 1-21 of "),
        "the footer does not say which lines are shown: {lines:#?}"
    );
    shown.press(KeyCode::End);
    assert!(shown.small().contains("LOG DISK"), "the End key does not scroll to the end: {}", shown.small());
    shown.press(KeyCode::Enter);
    let all = shown.small();
    assert!(
        all.contains("PROBLEMS: 60") && all.contains("ggggg"),
        "not all problems are shown in full: {all}"
    );
    shown.press(KeyCode::Esc);
    assert!(shown.small().contains("58 more"), "Esc does not return to the overview: {}", shown.small());
}

#[test]
fn channels_are_selected_and_sorted() {
    let mut behind = healthy(100, 0).status.channels.remove(0);
    (behind.name, behind.lag_seconds) = ("archive".into(), Some(500.0));
    let add = |mut state: DaemonAnswer| {
        state.status.channels.insert(0, behind.clone());
        state
    };
    let mut shown =
        Shown::new(Screen::Channels, model_of(vec![add(healthy(100, 0)), add(healthy(101, 2_000))]));
    let lines = shown.lines(80, 24);
    assert_eq!(
        lines[2..8],
        [
            "CHANNELS: 2, sorted by name",
            "  CHANNEL  STATE       LAG  TRX/S  ROWS/S  BUSY    WAITING  BUFFERED  ERROR",
            "> archive  running  8m 20s      0       0  1 of 4       25   1.0 MiB",
            "  reports  running   0.4 s   2000    8000  1 of 4       25   1.0 MiB",
            "",
            "archive: newest applied GTID 0-1-4711",
        ]
    );
    shown.press(KeyCode::Down);
    shown.press(KeyCode::Down);
    assert!(shown.small().contains("> reports"), "the second channel is not selected: {}", shown.small());
    shown.type_keys("s");
    let by_lag = shown.lines(80, 24);
    assert!(
        by_lag[2].ends_with("sorted by lag") && by_lag[4].contains("  archive"),
        "the channels are not sorted by lag: {by_lag:#?}"
    );
    assert!(by_lag[5].starts_with("> reports"), "the selection has moved: {by_lag:#?}");
    shown.type_keys("s");
    assert!(
        shown.lines(80, 24)[4].starts_with("> reports"),
        "the selected channel is not the first line: {}",
        shown.small()
    );
    shown.press(KeyCode::Enter);
    let detail = shown.small();
    for part in
        ["CHANNEL reports", "2000 transactions/s, 8000 rows/s", "waits for an earlier batch", "20 %", "idle"]
    {
        assert!(detail.contains(part), "the details lack {part:?}: {detail}");
    }
}

#[test]
fn the_selected_channel_stays_visible_and_says_what_is_wrong() {
    let mut shown = Shown::new(Screen::Channels, model_of(vec![crowded()]));
    assert!(
        shown.small().contains("CHANNELS 1-") && shown.small().contains("> reports"),
        "the numbers of the channels or the selection are wrong: {}",
        shown.small()
    );
    shown.press(KeyCode::End);
    let last = shown.small();
    assert!(
        last.contains("-61 of 61") && last.contains("> 59-nnn") && last.contains("what to do: fix"),
        "the last channel is not shown with its remedy: {last}"
    );
    assert!(
        last.contains("! TW-APP-0002: transaction 0-1-59"),
        "the error of the last channel is not shown: {last}"
    );
    shown.press(KeyCode::Home);
    assert!(
        shown.small().contains("> reports"),
        "the Home key does not select the first channel: {}",
        shown.small()
    );
    shown.type_keys("s");
    assert!(
        shown.lines(80, 24)[2].contains("sorted by lag"),
        "the channels are not sorted by lag: {}",
        shown.small()
    );
}

#[test]
fn clusters_show_servers_and_the_last_failover() {
    let mut states = vec![healthy(100, 0)];
    let lines = Shown::new(Screen::Clusters, model_of(states.clone())).lines(80, 24);
    assert_eq!(
        lines[2..9],
        [
            "CLUSTER orders: primary db1",
            "automatic failover, lease held, lease term 3",
            lines[4].as_str(),
            "last failover: 20260304-050000: finished: db1 is the primary",
            "SERVER  ROLE     READS FROM    LAG  BEHIND TRX  WRITES     HEALTH  ADDRESS",
            "db1     primary  -           0.2 s           0  writable   ok      db1:3306",
            "db2     replica  tailwater   0.2 s           0  read-only  ok      db2:3306",
        ]
    );
    assert!(
        lines[4].starts_with("failover now: ") && lines[4].contains("db2"),
        "the readiness for a failover is not shown: {lines:#?}"
    );
    let problem =
        serde_json::json!({ "object": "server db2", "code": "SqlStopped", "text": "t", "remedy": "r" });
    states[0].status.problems.push(serde_json::from_value(problem).expect("a problem"));
    let sick = Shown::new(Screen::Clusters, model_of(states)).small();
    assert!(
        sick.contains("! server db2: SqlStopped: t") && sick.contains("1 PROBLEM"),
        "the problem of db2 is not shown: {sick}"
    );
}

#[test]
fn trends_show_bars_and_the_time() {
    let states = (0..60).map(|second| healthy(100 + second, second * second)).collect();
    let mut shown = Shown::new(Screen::Trends, model_of(states));
    shown.type_keys("-");
    let now = at(60_000);
    let Shown { view, model, answer_state, style } = &shown;
    let text =
        |style| Picture { view, model, shown_at: now, answer_state, now, machine: "relay1", style }.text(80);
    let ascii = text(*style);
    for part in [
        "written",
        "orders",
        "117.0 KiB/s",
        "captured trx",
        "applied rows",
        "channel lag",
        "max 0.4 s",
        "-1 min",
    ] {
        assert!(ascii.contains(part), "the trends lack {part:?}: {ascii}");
    }
    assert!(ascii.is_ascii() && ascii.contains('#'), "the bars are not drawn with ASCII characters: {ascii}");
    let blocks = text(TerminalStyle { ascii: false, ..*style });
    assert!(
        blocks.contains('█') && !blocks.contains('#'),
        "the bars are not drawn with block characters: {blocks}"
    );
    shown.type_keys("+++++");
    assert!(
        shown.small().contains("Last 15 minutes"),
        "the trends do not cover 15 minutes: {}",
        shown.small()
    );
}

#[test]
fn jobs_have_bars_and_results() {
    use serde_json::json;
    let found = json!({ "tables": 1, "rows": 2, "repaired": 0, "remains": true });
    let message = "compared 9 rows of 1 table: 2 rows in 1 table differ";
    let mut state = healthy(100, 0);
    state.jobs = vec![
        job(
            12,
            json!({ "kind": "load", "progress": { "phase": "loading", "rows": 7, "waiting": "lag of db3 is 12 s" } }),
        ),
        job(11, json!({})),
        job(10, json!({ "state": "finished", "found": found, "message": message, "ended_ms": 1 })),
        job(
            9,
            json!({ "kind": "dump", "state": "cancelled", "cancellation": { "by": "bert", "at_ms": 1 },
            "message": "cancelled by bert: continue with --resume", "ended_ms": 1 }),
        ),
    ];
    let overview = Shown::new(Screen::Overview, model_of(vec![state.clone()])).small();
    assert!(overview.contains("JOBS      2 running: load 12, check 11 31 %"), "{overview}");
    let mut shown = Shown::new(Screen::Jobs, model_of(vec![state]));
    let lines = shown.lines(80, 24);
    assert_eq!(
        lines[2..12],
        [
            "JOBS: 4, 2 running",
            "  JOB       STATE      PROGRESS OR RESULT          LEFT    AGE  WORKS ON",
            "> load 12   loading    7 rows                         -  1m 4s  db2:3306 with d~",
            "  check 11  checking   [###-------]  31 %        3m 12s  1m 4s  db2:3306 with d~",
            "  check 10  finished   2 rows in 1 table differ       -  1m 4s  db2:3306 with d~",
            "  dump 9    cancelled  by bert                        -  1m 4s  db2:3306 with d~",
            "",
            "load 12: db2:3306 with db1:3306, started by anna, process 4711",
            "loading: 7 rows",
            "! waits: lag of db3 is 12 s",
        ]
    );
    shown.press(KeyCode::Down);
    let selected = shown.small();
    for part in ["> check 11", "checking: 4,412,000 rows (31 %), 51,000 rows/s", "`tailwater job cancel 11`"]
    {
        assert!(selected.contains(part), "{part}: {selected}");
    }
    shown.press(KeyCode::Down);
    assert!(shown.small().contains(&format!("! {message}")), "{}", shown.small());
    shown.press(KeyCode::End);
    let cancelled = shown.small();
    assert!(cancelled.contains("> dump 9") && cancelled.contains("--resume"), "{cancelled}");
    let none = Shown::new(Screen::Jobs, well()).small();
    assert!(none.contains("No jobs."), "{none}");
}

#[test]
fn keys_change_screens_and_quit() {
    let mut shown = Shown::new(Screen::Overview, well());
    for (key, title) in [
        (KeyCode::Tab, "[2 Channels]"),
        (KeyCode::Right, "[3 Clusters]"),
        (KeyCode::Char('4'), "[4 Trends]"),
        (KeyCode::Tab, "[5 Jobs]"),
        (KeyCode::Tab, "[1 Overview]"),
        (KeyCode::Left, "[5 Jobs]"),
        (KeyCode::BackTab, "[4 Trends]"),
        (KeyCode::Char('1'), "[1 Overview]"),
    ] {
        assert_eq!(shown.press(key), KeyEffect::None);
        assert!(shown.small().contains(title), "the key {key:?} does not show {title}: {}", shown.small());
    }
    shown.type_keys("?");
    assert!(shown.small().contains("pause: the screen stays"), "the help is not shown: {}", shown.small());
    shown.press(KeyCode::Esc);
    assert!(shown.small().contains("DURABLE TO"), "Esc does not close the help: {}", shown.small());
    shown.type_keys("p");
    assert!(
        shown.view.is_paused && shown.small().contains("PAUSED"),
        "the screen is not paused: {}",
        shown.small()
    );
    assert_eq!(shown.press(KeyCode::Char('q')), KeyEffect::Quit);
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    for (letter, effect) in [('c', KeyEffect::Quit), ('z', KeyEffect::Suspend), ('l', KeyEffect::Redraw)] {
        assert_eq!(shown.view.press(control(letter), &shown.model, 1), effect);
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_shown() {
    let mut shown = Shown::new(Screen::Overview, well());
    let error = Some("TW-CTL-0001: no daemon listens at /log/control.sock".to_owned());
    shown.answer_state = AnswerState::Silent { since: at(2_000), has_answered: true, error };
    let text = shown.small();
    for part in [
        "NO ANSWER for 2.0 s",
        "since 05:06:09; below is its last state",
        "TW-CTL-0001",
        "what to do",
        "orders",
    ] {
        assert!(text.contains(part), "the screen lacks {part:?}: {text}");
    }
    let mut hangs = Shown::new(Screen::Overview, model_of(Vec::new()));
    hangs.answer_state = AnswerState::Silent { since: at(0), has_answered: false, error: None };
    assert!(
        hangs.small().contains("it may hang"),
        "the screen does not say that the daemon may hang: {}",
        hangs.small()
    );
    hangs.answer_state = AnswerState::Starting;
    assert!(
        hangs.small().contains("Waiting for the first answer"),
        "the screen does not say that it waits for the daemon: {}",
        hangs.small()
    );
}

/// Returns every screen of each model, also with details and help.
fn every_screen() -> Vec<Shown> {
    let mut all = Vec::new();
    for model in [model_of(Vec::new()), well(), model_of(vec![crowded(), crowded()])] {
        for screen in Screen::ALL {
            for key in [KeyCode::Null, KeyCode::Enter, KeyCode::Char('?'), KeyCode::End] {
                let mut shown = Shown::new(screen, model.clone());
                shown.press(key);
                all.push(shown);
            }
        }
    }
    all
}

#[test]
fn every_size_of_the_terminal_has_a_picture() {
    for shown in every_screen() {
        for (width, height) in [(1, 1), (1, 40), (300, 1), (2, 2), (9, 4), (40, 10), (80, 24), (200, 50)] {
            let lines = shown.lines(width, height);
            let controls = lines.iter().flat_map(|line| line.chars()).filter(|letter| letter.is_control());
            assert_eq!(controls.count(), 0, "the screen has control characters: {lines:#?}");
        }
        assert!(!shown.picture().text(1).is_empty());
    }
}

#[test]
fn nothing_is_shown_by_colour_alone() {
    let mut coloured_cells = 0;
    for mut shown in every_screen() {
        let plain = shown.buffer(80, 24);
        shown.style.colours = true;
        let coloured = shown.buffer(80, 24);
        for (one, other) in plain.content().iter().zip(coloured.content()) {
            assert_eq!(one.symbol(), other.symbol());
            assert_eq!((one.fg, one.bg), (Color::Reset, Color::Reset));
            coloured_cells += usize::from(other.fg != Color::Reset);
        }
        // Also without any attribute, the present screen and the selected channel are marked.
        assert!(plain.content().iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
        assert!(shown.small().contains('['));
    }
    assert!(coloured_cells > 0, "no cell has a colour");
}

#[test]
fn all_characters_are_ascii_if_required() {
    for shown in every_screen() {
        let text = shown.small().replace(['日', '本', '語'], "");
        assert!(text.is_ascii(), "the screen has characters that are not ASCII: {text}");
    }
}
