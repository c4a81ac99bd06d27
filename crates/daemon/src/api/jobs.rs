//! Jobs: long work that the daemon or a command line runs.

use serde::{Deserialize, Serialize};

/// The kind of work of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// `tailwater dump`
    Dump,
    /// `tailwater load`
    Load,
    /// `tailwater copy`, or the copy of `tailwater channel add`
    Copy,
    /// `tailwater check`
    Check,
    /// `tailwater repair`
    Repair,
    /// `tailwater rejoin`, or an automatic rejoin of the daemon
    Rejoin,
}

impl JobKind {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dump => "dump",
            Self::Load => "load",
            Self::Copy => "copy",
            Self::Check => "check",
            Self::Repair => "repair",
            Self::Rejoin => "rejoin",
        }
    }

    /// Returns what remains of a job of this kind that was cancelled or lost, and how to continue.
    pub fn after_interruption(self) -> &'static str {
        match self {
            Self::Dump => "finished files are kept: the same command with --resume continues",
            Self::Load => "loaded rows stay on the server: the same command with --resume continues",
            Self::Copy => {
                "copied tables stay on the target: the same command with --resume continues, or says what it needs"
            }
            Self::Check => {
                "no row was changed: with --state, the same command with --resume continues; otherwise check again"
            }
            Self::Repair => "repaired rows stay repaired: the next repair finds the rest",
            Self::Rejoin => {
                "the server stays read-only, and is not rejoined before `tailwater rejoin` continues"
            }
        }
    }
}

/// What runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobOrigin {
    /// The daemon itself.
    Daemon,
    /// A command line that registered the job and reports its progress.
    CommandLine,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job runs.
    Running,
    /// The job did its work. [`Job::found`] has the differences that it found.
    Finished,
    /// The job has ended with an error.
    Failed,
    /// The job was ended by an operator: over the API or by a signal.
    Cancelled,
    /// The job has not reported its end, and its process is gone or silent.
    Lost,
}

impl JobState {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

/// How far a job is. A figure that the job does not know is 0 or absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobProgress {
    /// What the job does now, such as `preparing` or `dumping`.
    pub phase: String,
    /// Number of finished tables.
    pub tables: u64,
    /// Number of selected tables.
    pub tables_total: u64,
    /// Number of processed rows.
    pub rows: u64,
    /// Estimated number of rows of all selected tables.
    pub rows_total: u64,
    /// Size of the processed rows before compression, in bytes.
    pub bytes: u64,
    /// Estimated number of bytes that the job must process; 0 if the job measures its progress in rows.
    pub bytes_total: u64,
    /// Rows for each second since the first rows.
    pub rows_per_second: Option<u64>,
    /// Bytes for each second since the first rows.
    pub bytes_per_second: Option<u64>,
    /// Estimated remaining time, in milliseconds.
    pub eta_ms: Option<u64>,
    /// Why the work is paused, such as the lag of a replica; absent while it proceeds.
    pub waiting: Option<String>,
}

/// What a job that compares two servers has found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFindings {
    /// Number of tables that differ: in rows or columns, or because only one server has them or can read
    /// them.
    pub tables: u64,
    /// Number of rows that differ. A table with too many of them is not compared to its end.
    pub rows: u64,
    /// Number of these rows that the job has repaired.
    pub repaired: u64,
    /// Whether a difference remains, or some rows were not compared.
    pub remains: bool,
}

/// A request to cancel a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobCancellation {
    /// Who has requested the cancellation: the name of a token, or the user of the control socket.
    pub by: String,
    /// When the cancellation was requested, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A local process. The start time distinguishes it from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobProcess {
    /// The process id.
    pub pid: u32,
    /// When the process started, in clock ticks since the machine started; absent if that is not known.
    pub start_ticks: Option<u64>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Job {
    /// The number of the job.
    pub id: u64,
    /// The kind of work.
    pub kind: JobKind,
    /// What the job works on: servers, folders, buckets. Has no secrets.
    pub subject: String,
    /// What runs the job.
    pub origin: JobOrigin,
    /// Who started the job: the name of a token, the user of the control socket, or `daemon` for a job of
    /// the daemon itself.
    pub user: String,
    /// The process of the job, if it runs on this machine.
    pub process: Option<JobProcess>,
    /// Whether the job can be cancelled.
    pub can_cancel: bool,
    /// The state.
    pub state: JobState,
    /// How far the job is, according to its last report.
    pub progress: JobProgress,
    /// The request to cancel the job, if there was one.
    pub cancellation: Option<JobCancellation>,
    /// The stable code of the error that ended the job.
    pub code: Option<String>,
    /// How the job has ended: what it did, or the error.
    pub message: Option<String>,
    /// What a check, repair or rejoin has found; absent for other jobs, and before the end.
    #[serde(default)]
    pub found: Option<JobFindings>,
    /// When the job started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When the job last reported, in milliseconds since 1970.
    pub reported_ms: u64,
    /// When the job ended, in milliseconds since 1970.
    pub ended_ms: Option<u64>,
}

/// A line of a job's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobLogLine {
    /// When the daemon received the log line, in milliseconds since 1970.
    pub at_ms: u64,
    /// The line.
    pub text: String,
}

/// A job with the last lines of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobDetails {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// The last lines of the job's log, the newest one last.
    pub log: Vec<JobLogLine>,
}

/// Registers the job of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRegistration {
    /// The kind of work.
    pub kind: JobKind,
    /// What the job works on: servers, folders, buckets. Must have no secrets.
    pub subject: String,
    /// Whether the command ends when the response to one of its reports says that the job was cancelled.
    #[serde(default = "yes")]
    pub can_cancel: bool,
}

fn yes() -> bool {
    true
}

/// A job that was registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RegisteredJob {
    /// The number of the job.
    pub id: u64,
}

/// A report of the progress of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobReport {
    /// How far the job is.
    pub progress: JobProgress,
    /// New lines of the job's log.
    #[serde(default)]
    pub log: Vec<String>,
}

/// The response to a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobReportResponse {
    /// Present if the job must end.
    pub cancellation: Option<JobCancellation>,
}

/// How a job has ended, according to its own report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    /// The job did its work.
    Finished,
    /// An error ended the job.
    Failed,
    /// A signal or a request to the API ended the job.
    Cancelled,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobEnd {
    /// How the job ended.
    pub outcome: JobOutcome,
    /// The stable code of the error.
    #[serde(default)]
    pub code: Option<String>,
    /// The error, or the result.
    #[serde(default)]
    pub message: Option<String>,
    /// What a check, repair or rejoin has found.
    #[serde(default)]
    pub found: Option<JobFindings>,
    /// The last progress of the job. If absent, the progress of its last report is kept.
    #[serde(default)]
    pub progress: Option<JobProgress>,
    /// The last lines of the job's log.
    #[serde(default)]
    pub log: Vec<String>,
}

/// A request about jobs.
#[derive(Debug, Clone)]
pub enum JobRequest {
    /// List the running jobs and the last ended ones.
    List,
    /// Return a job with its log.
    Show {
        /// The number of the job.
        id: u64,
    },
    /// Register the job of a command line.
    Register {
        /// The job.
        registration: JobRegistration,
        /// Who registers the job.
        caller: JobCaller,
    },
    /// Report the progress of a job.
    Report {
        /// The number of the job.
        id: u64,
        /// The progress.
        report: Box<JobReport>,
    },
    /// Report the end of a job.
    End {
        /// The number of the job.
        id: u64,
        /// How the job ended.
        end: Box<JobEnd>,
    },
    /// Cancel a job.
    Cancel {
        /// The number of the job.
        id: u64,
        /// Who cancels the job. The daemon takes this from the connection, not from the request.
        by: String,
    },
}

/// Who sends a request about jobs.
#[derive(Debug, Clone, Default)]
pub struct JobCaller {
    /// The name of the token, or the user of the control socket.
    pub user: String,
    /// The process id of the sender, if the sender is a process of this machine.
    pub pid: Option<u32>,
}

/// The answer to a [`JobRequest`].
#[derive(Debug, Clone)]
pub enum JobAnswer {
    /// The running jobs and the jobs that ended last, the newest first.
    List(Vec<Job>),
    /// A job.
    Details(Box<JobDetails>),
    /// A registered job.
    Registered(RegisteredJob),
    /// A report was accepted.
    Reported(JobReportResponse),
}
