//! Only what shares keys keeps its order: by groups, or by runs of the log while that is quicker.

use std::collections::BTreeSet;

use super::groups::KeyedBatches;
use super::runs::{AcceptedRun, LogRuns, StartedRun};
use super::sizing::BatchLimits;
use super::{BatchId, BatchTotals, Scheduled, TransactionBatch};

/// So often it is looked whether those that wait have given way, before nobody waits for those who have not: they still execute what
/// is long, or are held up themselves.
const LOOKS_MAX: u32 = 6;
/// With smaller batches than this each commit counts, and runs commit one behind the other.
const RUN_TRANSACTIONS_MIN: usize = 64;

/// See the module.
///
/// Groups wait for nothing that they need not wait for, but they are small. While there is more to do than the workers
/// have hands for, who waits for whom matters to nobody: then the log is applied in [runs](super::runs), which are several times as large, since
/// what conflicts with the run before is put off to the end of a run.
///
/// A run that is held up holds up all behind it. Then their workers commit what need not wait, and give back the rest; that, what runs, and
/// what was not handed out yet go over to groups.
#[derive(Debug)]
pub(super) struct IndependentOrder<T> {
    mode: Mode,
    groups: KeyedBatches<T>,
    /// Empty while there are groups only. Of its runs none is handed out before the last group is done.
    runs: LogRuns<T>,
    /// Runs that are handed out and neither done nor given back, wherever they are kept.
    in_turn: BTreeSet<BatchId>,
    /// Those that wait for their turn are to commit what they can and to give back the rest.
    can_yield: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// What comes is grouped.
    KeyedBatches,
    /// What comes is a run of the log.
    LogRuns,
    /// As [`Mode::LogRuns`]; none is handed out until the others have given back what they hold. So often it was looked.
    GiveWay { looks: u32 },
}

impl<T: Scheduled> IndependentOrder<T> {
    /// One whose first batch has the name 1.
    pub fn new() -> Self {
        Self {
            mode: Mode::KeyedBatches,
            groups: KeyedBatches::new(),
            runs: LogRuns::new(),
            in_turn: BTreeSet::new(),
            can_yield: false,
        }
    }

    /// Whether it works by groups.
    pub fn is_grouped(&self) -> bool {
        self.mode == Mode::KeyedBatches
    }

    /// Whether batches that wait for their turn are to commit what they can, and to give back the rest.
    pub fn can_yield(&self) -> bool {
        self.can_yield
    }

    pub fn offer(&mut self, limits: BatchLimits, payload: T) {
        match self.mode {
            Mode::KeyedBatches => self.groups.offer(limits, payload),
            Mode::LogRuns | Mode::GiveWay { .. } => self.runs.offer(limits, payload),
        }
    }

    /// Whether workers have their next batches already.
    pub fn has_enough(&self, limits: BatchLimits) -> bool {
        self.mode == Mode::KeyedBatches && self.groups.has_enough(limits)
    }

    /// Says whether what runs takes much longer than usual.
    pub fn set_held_up(&mut self, limits: BatchLimits, held_up: bool) {
        match self.mode {
            Mode::LogRuns if held_up && !self.runs.runs_alone() => {
                self.mode = Mode::GiveWay { looks: 0 };
                self.can_yield = !self.in_turn.is_empty();
            }
            Mode::GiveWay { looks } if looks < LOOKS_MAX => self.mode = Mode::GiveWay { looks: looks + 1 },
            Mode::GiveWay { .. } => self.group(limits),
            Mode::KeyedBatches => self.can_yield |= held_up && !self.in_turn.is_empty(),
            Mode::LogRuns => {}
        }
    }

    /// Goes over to groups, or to runs of the log, where that is called for.
    pub fn settle(&mut self, limits: BatchLimits, held_up: bool) {
        match self.mode {
            Mode::KeyedBatches if held_up || self.groups.has_adopted() => {}
            Mode::KeyedBatches => {
                if limits.transactions_max >= RUN_TRANSACTIONS_MIN && self.groups.has_enough(limits) {
                    self.mode = Mode::LogRuns;
                }
            }
            Mode::LogRuns => {
                if self.groups.is_idle() && self.runs.has_no_backlog(&limits) && !self.runs.runs_alone() {
                    self.group(limits);
                }
            }
            Mode::GiveWay { .. } if self.in_turn.len() <= 1 => self.group(limits),
            Mode::GiveWay { .. } => {}
        }
    }

    /// Goes over to groups with all that there is.
    fn group(&mut self, limits: BatchLimits) {
        self.mode = Mode::KeyedBatches;
        let AcceptedRun { begun, waiting } = self.runs.take();
        for StartedRun { id, ended, touched, rest } in begun {
            self.groups.adopt(id, ended, &touched);
            if let Some(rest) = rest {
                self.groups.give_back(id, rest);
            }
        }
        for payload in waiting {
            self.groups.offer(limits, payload);
        }
    }

    pub fn next(&mut self, limits: BatchLimits, held_up: bool) -> Option<TransactionBatch<T>> {
        if self.mode == Mode::KeyedBatches || !self.groups.is_idle() {
            return self.groups.next(limits, held_up);
        }
        if matches!(self.mode, Mode::GiveWay { .. }) {
            return None;
        }
        self.runs.begin_ids_with(self.groups.next_id());
        let batch = self.runs.next(limits)?;
        self.groups.skip_ids(batch.id.0 + 1);
        self.in_turn.insert(batch.id);
        Some(batch)
    }

    pub fn done(&mut self, id: BatchId) -> Option<BatchTotals> {
        let ended = self.groups.done(id).or_else(|| self.runs.done(id))?;
        self.is_out_of_turn(id);
        Some(ended)
    }

    /// Takes back what of a batch was not done. Returns what was.
    pub fn give_back(&mut self, id: BatchId, rest: Vec<T>) -> Option<BatchTotals> {
        if !self.in_turn.contains(&id) {
            return None;
        }
        // Whoever comes behind it would wait for good: its turn is not announced. It may have been told to before the others were handed
        // out, and long be told no more.
        self.can_yield = true;
        if self.mode == Mode::LogRuns {
            self.mode = Mode::GiveWay { looks: 0 };
        }
        if rest.is_empty() {
            return self.done(id);
        }
        self.is_out_of_turn(id);
        match self.mode {
            Mode::KeyedBatches => self.groups.give_back(id, rest),
            Mode::LogRuns | Mode::GiveWay { .. } => self.runs.give_back(id, rest),
        }
    }

    fn is_out_of_turn(&mut self, id: BatchId) {
        self.in_turn.remove(&id);
        self.can_yield &= !self.in_turn.is_empty();
    }

    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        self.groups.is_clean() && self.runs.is_clean() && self.in_turn.is_empty() && !self.can_yield
    }
}
