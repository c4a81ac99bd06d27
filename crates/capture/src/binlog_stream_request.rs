//! Requests the stream that continues at the end of the log, and handles a refusal by the source.

use std::time::Duration;

use tailwater_session::{Connection, DumpRequest, DumpStart, DumpStream, ServerError, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tracing::{info, warn};

use crate::CaptureError;
use crate::binlog_stream_position::{LogTail, Overlap, StreamKind};
use crate::capture_loop::CaptureDriver;
use crate::resume_position::{self, LogCoverage, ResumePoint, SourceState, StartPolicy};
use crate::source_queries;
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// How long a stream may be silent before it counts as broken: three heartbeat periods. Short periods get
/// more time: eight periods, but at most 2 s. In this time TCP can retransmit a packet that was lost twice,
/// and a source that stalls for a second can resume.
fn silence_max(heartbeat: Duration) -> Duration {
    heartbeat.saturating_mul(3).max(heartbeat.saturating_mul(8).min(Duration::from_secs(2)))
}

impl CaptureDriver {
    /// For a MariaDB source: the newest binlog file, if the log ends in an older one. `None` otherwise. Up to
    /// the newest file, the stream must be requested without semi-sync.
    ///
    /// The older file may end in the middle of an event, and the stream ends there. If a semi-sync stream
    /// ends right after its start, MariaDB's dump thread may wait for its ACK receiver forever. Every later
    /// stream with the same `server_id` then waits for this dump thread.
    pub(crate) async fn catch_up_target(
        &self,
        control: &mut Connection,
        log: &LogCoverage,
        source: &SourceState,
    ) -> Result<Option<String>, CaptureError> {
        match &log.tail {
            Some((tail, identity))
                if self.options.semi_sync
                    && source.identity.flavour == Flavour::MariaDb
                    // The file numbers of another server cannot be compared. A stream from another server is
                    // requested by GTIDs.
                    && identity.same_server(&source.identity)
                    && !log.torn =>
            {
                let current =
                    source_queries::query_current_binlog(control, &self.connect, self.options.server_id)
                        .await?;
                Ok(current
                    .filter(|current| resume_position::number(current) > resume_position::number(&tail.file)))
            }
            _ => Ok(None),
        }
    }

    /// Frees a dump thread of MariaDB that hangs as described at [`CaptureDriver::catch_up_target`]. Any new
    /// semi-sync stream frees it. The stream that this function opens uses server id 0, as `mariadb-binlog`
    /// does, so that the stream does not itself wait for other dump threads. It acknowledges nothing.
    pub(crate) async fn free_hung_dump_thread(
        &self,
        resume: &ResumePoint,
        log: &LogCoverage,
    ) -> Option<DumpStream> {
        let (start, _) = dump_start(resume, log);
        let request = DumpRequest {
            semi_sync: true,
            heartbeat: self.options.heartbeat,
            silence_max: Some(silence_max(self.options.heartbeat)),
            ..DumpRequest::new(0, start)
        };
        let opened = match Connection::connect(&self.connect).await {
            Ok(connection) => connection.dump(request).await,
            Err(error) => Err(error),
        };
        // A failure to free the dump thread is only logged. The next stream request may then time out again.
        opened
            .inspect_err(|error| {
                warn!(code = error.code(), "cannot free a hung dump thread of the source: {error}")
            })
            .ok()
    }

    pub(crate) async fn open_stream(
        &self,
        resume: &ResumePoint,
        log: &LogCoverage,
        synchronous: bool,
    ) -> Result<(DumpStream, StreamKind), CaptureError> {
        let (start, kind) = dump_start(resume, log);
        let connection = Connection::connect(&self.connect).await?;
        info!(version = %connection.server().version_text, from = %describe(resume, log), "capturing");
        let request = DumpRequest {
            semi_sync: self.options.semi_sync && synchronous,
            heartbeat: self.options.heartbeat,
            silence_max: Some(silence_max(self.options.heartbeat)),
            ..DumpRequest::new(self.options.server_id, start)
        };
        Ok((connection.dump(request).await?, kind))
    }

    /// Queries the source's binlog files. If the source has locked the list, returns `None` and replaces
    /// `control` by a new connection.
    async fn query_binlogs(
        &self,
        control: &mut Connection,
    ) -> Result<Option<Vec<(String, u64)>>, CaptureError> {
        match source_queries::query_binlogs(control).await {
            Err(error @ CaptureError::Answer { .. }) => {
                warn!(code = error.code(), "{error}");
                *control = Connection::connect(&self.connect).await?;
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Finds out why the source refused the stream. Returns `Ok` if the capture can continue by GTIDs,
    /// otherwise an error that explains the refusal.
    pub(crate) async fn classify_refusal(
        &self,
        control: &mut Connection,
        log: &LogCoverage,
        source: &mut SourceState,
        resume: &ResumePoint,
        refusal: SessionError,
    ) -> Result<(), CaptureError> {
        let Some((tail, _)) = &log.tail else {
            return Err(match &self.options.start {
                StartPolicy::Position { file, position } => CaptureError::StartRefused {
                    start: format!("{file}:{position}"),
                    reason: refusal.to_string(),
                },
                StartPolicy::Current | StartPolicy::Oldest => refusal.into(),
            });
        };
        if log.torn {
            return Err(CaptureError::TornTail { file: tail.file.clone() });
        }
        let ResumePoint::FilePosition { file, position } = resume else {
            return Err(resume_position::refused_by_gtid(log, &refusal.to_string()));
        };
        source.binlogs = match self.query_binlogs(control).await? {
            // The source has locked its list of binlog files. But the text of the refusal shows whether the
            // list lacks the requested file, or the file is shorter than the requested position.
            None if message_contains(&refusal, "Could not find first log file") => Some(Vec::new()),
            None if message_contains(&refusal, "position") => Some(vec![(file.clone(), 0)]),
            None => return Err(refusal.into()),
            list => list,
        };
        match resume_position::decide(log, source, &self.options.start)? {
            ResumePoint::Gtid => Ok(()),
            ResumePoint::FilePosition { .. } => Err(CaptureError::Diverged {
                file: file.clone(),
                position: *position,
                detail: format!("the source cannot read an event at this position ({refusal})"),
            }),
        }
    }

    pub(crate) fn log_coverage(&mut self, flavour: Flavour) -> Result<LogCoverage, CaptureError> {
        let mut head = None;
        let tail = match self.log.source_tail() {
            None => None,
            Some(tail) => {
                let mut overlap = tail
                    .last_transaction
                    .map(|last| Overlap { start: last.source_start, end: last.source_end });
                let segment = self.log.handle().newest_segment();
                if let Some(segment) = segment
                    && overlap.is_none()
                    && segment.source_offset == FIRST_EVENT_OFFSET
                    && tail.end > FIRST_EVENT_OFFSET
                {
                    // The capture compares the overlap with the segment's file. So write all buffered bytes
                    // to the file first.
                    self.log.flush()?;
                    overlap = Some(Overlap { start: FIRST_EVENT_OFFSET, end: tail.end });
                    head = Some(segment.path);
                }
                Some((LogTail { file: tail.file, end: tail.end, overlap }, tail.source))
            }
        };
        let gtids = self.log.gtid_set().cloned().unwrap_or_else(|| GtidSet::empty(flavour));
        let torn = tail.as_ref().is_some_and(|(tail, _)| self.torn_file.as_ref() == Some(&tail.file));
        Ok(LogCoverage { tail, head, gtids, torn })
    }
}

fn dump_start(resume: &ResumePoint, log: &LogCoverage) -> (DumpStart, StreamKind) {
    match (resume, &log.gtids) {
        (ResumePoint::FilePosition { file, position }, _) => {
            (DumpStart::FilePosition { file: file.clone(), position: *position }, StreamKind::FilePosition)
        }
        (ResumePoint::Gtid, GtidSet::MySql(set)) => {
            (DumpStart::MysqlGtid { set_block: set.encode() }, StreamKind::Gtid)
        }
        (ResumePoint::Gtid, GtidSet::MariaDb(state)) => {
            (DumpStart::MariadbGtid { connect_state: state.position().to_string() }, StreamKind::Gtid)
        }
    }
}

/// Whether the error means that the source refused the requested stream.
pub(crate) fn is_refusal(error: &SessionError) -> bool {
    let number = error.server_error().map(|server| server.number);
    number == Some(ServerError::SOURCE_FATAL_ERROR_READING_BINLOG) && !message_contains(error, "same server")
}

fn message_contains(error: &SessionError, text: &str) -> bool {
    error.server_error().is_some_and(|server| server.message.expose().contains(text))
}

fn describe(resume: &ResumePoint, log: &LogCoverage) -> String {
    match resume {
        ResumePoint::FilePosition { file, .. } if file.is_empty() => "the oldest binlog file".into(),
        ResumePoint::FilePosition { file, position } => format!("{file}:{position}"),
        ResumePoint::Gtid => format!("GTIDs after {}", log.gtids),
    }
}
