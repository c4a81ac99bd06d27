//! Decides whether the prefetch pays, by turning it off for short turns.
//!
//! If there are few reads of the buffer pool from disk for each applied row, the pages are cached anyway.
//! This holds in both kinds of turns: with prefetch, the reads are those of the applier and of the prefetch.
//! Many reads show that pages are not cached, but not that the prefetch helps. What counts then is how many
//! rows the replica applies in a second. The two rates can be compared only if the replica lags in both
//! turns; otherwise the source determines them.

/// How the gain is measured, and when the prefetch stops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FeedbackLimits {
    /// How long a turn with prefetch takes, in seconds. It takes [`off_seconds`](Self::off_seconds) until a
    /// turn has shown that pages are read from disk.
    pub on_seconds: u64,
    /// How long a turn without prefetch takes, in seconds.
    pub off_seconds: u64,
    /// Fewer reads than this per applied row: the prefetch does not pay.
    pub reads_per_row_min: f64,
    /// The prefetch does not pay if rows are not applied at least by this factor faster with it.
    pub gain_min: f64,
    /// How many turns in a row must show that it does not pay.
    pub turns: u32,
    /// How long the prefetch stays off before it is tried again without a change, in seconds.
    pub retry_seconds: u64,
    /// Turns with fewer applied rows show nothing.
    pub rows_min: u64,
}

impl Default for FeedbackLimits {
    fn default() -> Self {
        Self {
            on_seconds: 30,
            off_seconds: 5,
            reads_per_row_min: 0.02,
            gain_min: 1.03,
            turns: 3,
            retry_seconds: 600,
            rows_min: 200,
        }
    }
}

/// What was measured in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TurnSample {
    /// The number of rows that the replica has applied.
    pub rows: u64,
    /// The number of pages that the server has read from disk.
    pub pool_reads: u64,
    /// The length of the turn in seconds.
    pub seconds: f64,
    /// Whether transactions waited to be applied during the whole turn.
    pub is_lagging: bool,
}

impl TurnSample {
    fn rate(&self) -> f64 {
        self.rows as f64 / self.seconds.max(0.001)
    }

    /// Reads of the buffer pool from disk for each applied row.
    pub fn reads_per_row(&self) -> f64 {
        self.pool_reads as f64 / self.rows.max(1) as f64
    }
}

/// Why the prefetch has stopped itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StopReason {
    /// The pages are in the buffer pool without it.
    Cached,
    /// Rows are not applied faster with it.
    NoGain,
}

impl StopReason {
    /// The reason as a sentence without a full stop.
    pub fn text(self) -> &'static str {
        match self {
            Self::Cached => "the replica has the pages in its buffer pool without prefetch",
            Self::NoGain => "the replica does not apply faster with prefetch",
        }
    }
}

/// A change of the state at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeedbackChange {
    /// The prefetch has stopped itself.
    Stopped(StopReason),
    /// It begins again, because reads per row have changed from the first to the second value.
    WorkingSetChanged(f64, f64),
    /// It begins again for a trial, because it has been off for long.
    Retry,
}

/// The state of the feedback.
#[derive(Debug)]
pub struct GainFeedback {
    limits: FeedbackLimits,
    is_on_turn: bool,
    turn_began: f64,
    last_off: Option<TurnSample>,
    /// The rate with prefetch divided by the rate without, of the last two turns that can be compared.
    gain: Option<f64>,
    /// Whether the last turn with enough rows had reads from disk.
    has_reads: bool,
    cached_turns: u32,
    gainless_turns: u32,
    stopped: Option<StoppedState>,
}

#[derive(Debug, Clone, Copy)]
struct StoppedState {
    reason: StopReason,
    since: f64,
    reads_per_row: f64,
}

impl GainFeedback {
    /// Returns the state at the start: the first turn is one with prefetch.
    pub fn new(limits: FeedbackLimits, now: f64) -> Self {
        Self {
            limits,
            is_on_turn: true,
            turn_began: now,
            last_off: None,
            gain: None,
            has_reads: false,
            cached_turns: 0,
            gainless_turns: 0,
            stopped: None,
        }
    }

    /// Whether queries are sent now.
    pub fn is_on(&self) -> bool {
        self.is_on_turn && self.stopped.is_none()
    }

    /// Why the prefetch is stopped; `None` if it is not.
    pub fn stopped(&self) -> Option<StopReason> {
        self.stopped.map(|stopped| stopped.reason)
    }

    /// The rate of applied rows with prefetch divided by the rate without. `None` if it was not measured.
    pub fn gain(&self) -> Option<f64> {
        self.gain
    }

    /// Reads from disk per applied row in the last turn without prefetch.
    pub fn reads_per_row(&self) -> Option<f64> {
        self.last_off.map(|sample| sample.reads_per_row())
    }

    /// Whether the current turn is over at `now`, in seconds.
    pub fn is_turn_over(&self, now: f64) -> bool {
        let length = match self.is_on() && self.has_reads {
            true => self.limits.on_seconds,
            false => self.limits.off_seconds,
        };
        now - self.turn_began >= length as f64
    }

    /// Ends the current turn with what was measured, and begins the next one.
    pub fn end_turn(&mut self, sample: TurnSample, now: f64) -> Option<FeedbackChange> {
        let was_on = self.is_on();
        self.turn_began = now;
        if self.stopped.is_some() {
            return self.check_stopped(sample, now);
        }
        // The next turn is of the other kind, even if this one shows nothing.
        self.is_on_turn = !was_on;
        if sample.rows < self.limits.rows_min {
            return None;
        }
        match was_on {
            true => self.compare(sample),
            false => self.last_off = Some(sample),
        }
        self.has_reads = sample.reads_per_row() >= self.limits.reads_per_row_min;
        self.cached_turns = match self.has_reads {
            true => 0,
            false => self.cached_turns + 1,
        };
        let reason = match (self.cached_turns >= self.limits.turns, self.gainless_turns >= self.limits.turns)
        {
            (true, _) => StopReason::Cached,
            (false, true) => StopReason::NoGain,
            (false, false) => return None,
        };
        self.stopped = Some(StoppedState {
            reason,
            since: now,
            reads_per_row: self.reads_per_row().unwrap_or_default(),
        });
        Some(FeedbackChange::Stopped(reason))
    }

    /// Compares a turn with prefetch with the turn without prefetch before it.
    fn compare(&mut self, on: TurnSample) {
        let Some(off) = self.last_off.filter(|off| off.is_lagging && on.is_lagging) else { return };
        let gain = on.rate() / off.rate().max(0.001);
        self.gain = Some(gain);
        self.gainless_turns = match gain < self.limits.gain_min {
            true => self.gainless_turns + 1,
            false => 0,
        };
    }

    fn check_stopped(&mut self, sample: TurnSample, now: f64) -> Option<FeedbackChange> {
        let stopped = self.stopped?;
        let is_retry = now - stopped.since >= self.limits.retry_seconds as f64;
        let reads = sample.reads_per_row();
        let mut change = is_retry.then_some(FeedbackChange::Retry);
        if sample.rows >= self.limits.rows_min {
            self.last_off = Some(sample);
            let grown = reads >= self.limits.reads_per_row_min
                && reads > 2.0 * stopped.reads_per_row.max(self.limits.reads_per_row_min / 2.0);
            if grown {
                change = Some(FeedbackChange::WorkingSetChanged(stopped.reads_per_row, reads));
            } else if reads < stopped.reads_per_row {
                // The pool has warmed up since. A later rise is a change of the working set.
                self.stopped = Some(StoppedState { reads_per_row: reads, ..stopped });
            }
        }
        if change.is_some() {
            self.stopped = None;
            self.is_on_turn = true;
            self.cached_turns = 0;
            self.gainless_turns = 0;
        }
        change
    }
}
