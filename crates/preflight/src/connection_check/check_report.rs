//! The result of a check.

use serde::Serialize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckLevel {
    /// The check found no problem.
    Ok,
    /// The daemon can work, but with a risk or a limit, which the text of the line describes.
    Warning,
    /// Something that the configuration asks for does not work.
    Problem,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckLine {
    /// How the check ended.
    pub level: CheckLevel,
    /// The object that was checked, such as `source orders`, `channel reports` or `this machine`.
    pub object: String,
    /// The name of the check, such as `connection`, `privileges` or `semi-sync`.
    pub check: &'static str,
    /// What was found.
    pub text: String,
    /// What to do about it; `None` if all is well.
    pub remedy: Option<String>,
}

/// The results of all checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionReport {
    /// Whether there is no problem. Warnings are allowed.
    pub ok: bool,
    /// The number of problems.
    pub problems: usize,
    /// The number of warnings.
    pub warnings: usize,
    /// The results, in the order of the configuration.
    pub checks: Vec<CheckLine>,
}

impl ConnectionReport {
    pub(super) fn of(checks: Vec<CheckLine>) -> Self {
        let count = |level| checks.iter().filter(|line| line.level == level).count();
        let (problems, warnings) = (count(CheckLevel::Problem), count(CheckLevel::Warning));
        Self { ok: problems == 0, problems, warnings, checks }
    }
}

/// Collects the lines about one object.
pub(super) struct CheckLines {
    object: String,
    pub(super) lines: Vec<CheckLine>,
}

impl CheckLines {
    pub(super) fn about(object: impl Into<String>) -> Self {
        Self { object: object.into(), lines: Vec::new() }
    }

    pub(super) fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(CheckLevel::Ok, check, text.into(), None);
    }

    pub(super) fn warning(
        &mut self,
        check: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(CheckLevel::Warning, check, text.into(), Some(remedy.into()));
    }

    pub(super) fn problem(
        &mut self,
        check: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(CheckLevel::Problem, check, text.into(), Some(remedy.into()));
    }

    fn add(&mut self, level: CheckLevel, check: &'static str, text: String, remedy: Option<String>) {
        self.lines.push(CheckLine { level, object: self.object.clone(), check, text, remedy });
    }
}
