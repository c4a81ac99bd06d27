//! Formats what `tailwater config check --connect` found, in 80 columns.

use std::collections::BTreeMap;

use tailwater_daemon::jobs::job_text::counted;
use tailwater_preflight::connection_check::{CheckLevel, CheckLine, ConnectionReport};
use tailwater_wire::printable;

use super::text_style::TextStyle;

/// Width of the output, in characters.
const COLUMNS: usize = 80;

/// Returns one block of lines for each object. A block lists the checks of the object, and a remedy below
/// each check that is not ok. The last line has the numbers of problems, warnings and checks.
pub(super) fn config_check_text(report: &ConnectionReport, style: TextStyle) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut by_object: BTreeMap<&str, Vec<&CheckLine>> = BTreeMap::new();
    for line in &report.checks {
        if !order.contains(&line.object.as_str()) {
            order.push(&line.object);
        }
        by_object.entry(&line.object).or_default().push(line);
    }
    let mut text = String::new();
    for object in order {
        text.push_str(&format!("{}\n", style.bold(&printable(object))));
        for line in by_object.get(object).into_iter().flatten() {
            text.push_str(&line_text(line, style));
        }
        text.push('\n');
    }
    text.push_str(&summary(report, style));
    text
}

fn line_text(line: &CheckLine, style: TextStyle) -> String {
    let level = match line.level {
        CheckLevel::Ok => "ok",
        CheckLevel::Warning => "warning",
        CheckLevel::Problem => "problem",
    };
    let first = format!("  {level:<8} ");
    let options = textwrap::Options::new(COLUMNS).initial_indent(&first).subsequent_indent("           ");
    let found = textwrap::fill(&format!("{}: {}", line.check, printable(&line.text)), options);
    let found: Vec<_> = found
        .lines()
        .map(|part| match line.level {
            CheckLevel::Ok => part.to_owned(),
            CheckLevel::Warning => style.bold(part),
            CheckLevel::Problem => style.red(part),
        })
        .collect();
    let mut text = format!("{}\n", found.join("\n"));
    if let Some(remedy) = &line.remedy {
        let options =
            textwrap::Options::new(COLUMNS).initial_indent("           ").subsequent_indent("           ");
        text.push_str(&textwrap::fill(&format!("what to do: {}", printable(remedy)), options));
        text.push('\n');
    }
    text
}

fn summary(report: &ConnectionReport, style: TextStyle) -> String {
    let checks = counted(report.checks.len() as u64, "check");
    let line = match (report.problems, report.warnings) {
        (0, 0) => style.green(&format!("all is well: {checks}")),
        (0, warnings) => format!("no problem, {}, {checks}", counted(warnings as u64, "warning")),
        (problems, warnings) => style.red(&format!(
            "{}, {}, {checks}",
            counted(problems as u64, "problem"),
            counted(warnings as u64, "warning")
        )),
    };
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_remedy_and_fits() {
        let line = |level, object: &str, remedy: Option<&str>| CheckLine {
            level,
            object: object.to_owned(),
            check: "semi-sync",
            text: format!("{}\u{1b}[2J", "word ".repeat(40)),
            remedy: remedy.map(str::to_owned),
        };
        let report = ConnectionReport {
            ok: false,
            problems: 1,
            warnings: 1,
            checks: vec![
                line(CheckLevel::Ok, "source orders", None),
                line(CheckLevel::Warning, "this machine", Some("a remedy")),
                line(CheckLevel::Problem, "source orders", Some(&"another remedy ".repeat(20))),
            ],
        };
        let text = config_check_text(&report, TextStyle::Plain);
        assert_eq!(
            text.matches("source orders\n").count(),
            1,
            "the object is not shown exactly once: {text}"
        );
        assert!(text.contains("what to do: a remedy\n"), "the remedy is not shown: {text}");
        assert!(
            text.ends_with("\n1 problem, 1 warning, 3 checks\n"),
            "the last line has wrong numbers: {text}"
        );
        for line in text.lines() {
            assert!(
                line.chars().count() <= COLUMNS && !line.contains('\u{1b}'),
                "the line is too long, or has an escape code: {line:?}"
            );
        }
    }
}
