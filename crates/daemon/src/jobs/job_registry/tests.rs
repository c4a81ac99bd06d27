use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> JobTime {
    JobTime { wall_ms: 1_790_000_000_000 + seconds * 1000, uptime: Duration::from_secs(seconds) }
}

fn dump(pid: Option<u32>) -> NewJob {
    NewJob {
        kind: JobKind::Dump,
        subject: "db1:3306 to /backup".to_owned(),
        origin: JobOrigin::CommandLine,
        user: "anna".to_owned(),
        process: pid.map(|pid| JobProcess { pid, start_ticks: Some(7) }),
        can_cancel: true,
    }
}

fn rows(rows: u64) -> JobReport {
    let progress =
        JobProgress { phase: "dumping".to_owned(), rows, rows_total: 100, ..JobProgress::default() };
    JobReport { progress, log: vec![format!("row {rows}")] }
}

fn finished() -> JobEnd {
    JobEnd {
        outcome: JobOutcome::Finished,
        code: None,
        message: None,
        found: None,
        progress: None,
        log: Vec::new(),
    }
}

#[test]
fn a_job_reports_is_cancelled_and_ends() -> Result<(), JobError> {
    let mut jobs = JobRegistry::default();
    let id = jobs.start(dump(Some(42)), at(0))?;
    assert_eq!(jobs.report(id, rows(10), at(1))?.cancellation, None);
    jobs.cancel(id, "bert".to_owned(), at(2))?;
    // The job keeps the name of the operator who cancelled it first.
    jobs.cancel(id, "carla".to_owned(), at(3))?;
    let cancellation = jobs.report(id, rows(20), at(4))?.cancellation;
    assert_eq!(cancellation.map(|cancel| cancel.by).as_deref(), Some("bert"));
    let end = JobEnd { outcome: JobOutcome::Cancelled, message: Some("kept".to_owned()), ..finished() };
    let JobDetails { job, log } = jobs.end(id, end, at(5))?;
    assert_eq!((job.state, job.progress.rows, job.ended_ms), (JobState::Cancelled, 20, Some(at(5).wall_ms)));
    let lines: Vec<_> = log.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(lines, ["row 10", "cancel requested by bert", "row 20"]);
    let ended = JobError::Ended { id, state: JobState::Cancelled };
    assert_eq!(jobs.report(id, rows(30), at(6)), Err(ended.clone()));
    assert_eq!(jobs.end(id, finished(), at(6)), Err(ended.clone()));
    assert_eq!(jobs.cancel(id, "carla".to_owned(), at(6)), Err(ended));
    assert_eq!(jobs.report(9, rows(1), at(6)), Err(JobError::Unknown { id: 9 }));
    Ok(())
}

#[test]
fn a_job_without_a_safe_point_is_not_cancelled() -> Result<(), JobError> {
    let mut jobs = JobRegistry::default();
    let id = jobs.start(NewJob { can_cancel: false, ..dump(None) }, at(0))?;
    let refused = JobError::NotCancellable { id, kind: JobKind::Dump };
    assert_eq!(jobs.cancel(id, "bert".to_owned(), at(1)), Err(refused));
    assert_eq!(jobs.get(id)?.job.cancellation, None);
    Ok(())
}

#[test]
fn a_silent_job_is_lost_and_its_next_report_finds_it_again() -> Result<(), JobError> {
    let mut jobs = JobRegistry::default();
    let (gone, stopped) = (jobs.start(dump(Some(1)), at(0))?, jobs.start(dump(Some(2)), at(0))?);
    let (remote, own) = (jobs.start(dump(None), at(0))?, NewJob { origin: JobOrigin::Daemon, ..dump(None) });
    let own = jobs.start(own, at(0))?;
    let exists = |process: JobProcess| process.pid == 2;
    assert_eq!(jobs.find_lost(at(9), exists), [] as [u64; 0]);
    assert_eq!(jobs.find_lost(at(10), exists), [gone]);
    assert_eq!(jobs.find_lost(at(59), exists), [] as [u64; 0]);
    assert_eq!(jobs.find_lost(at(60), exists), [stopped, remote]);
    let lost = &jobs.get(gone)?.job;
    assert_eq!(lost.state, JobState::Lost);
    let message = lost.message.as_deref().unwrap_or_default();
    assert!(message.starts_with("process 1 has ended without reporting a result; "), "{message}");
    assert!(message.contains("--resume"), "the message does not say how to continue: {message}");
    assert_eq!(jobs.get(own)?.job.state, JobState::Running);
    // A process that was stopped by a signal continues.
    jobs.report(stopped, rows(5), at(80))?;
    let job = &jobs.get(stopped)?.job;
    assert_eq!((job.state, job.message.as_deref(), job.ended_ms), (JobState::Running, None, None));
    assert_eq!(jobs.find_lost(at(81), exists), [] as [u64; 0]);
    assert_eq!(jobs.end(remote, finished(), at(82))?.job.state, JobState::Finished);
    Ok(())
}

#[test]
fn the_list_survives_a_restart() -> Result<(), JobError> {
    let mut jobs = JobRegistry::default();
    let (ended, running) = (jobs.start(dump(Some(1)), at(0))?, jobs.start(dump(Some(2)), at(1))?);
    let own = jobs.start(NewJob { origin: JobOrigin::Daemon, ..dump(None) }, at(2))?;
    jobs.end(ended, finished(), at(3))?;
    let text = serde_json::to_string(&jobs.stored()).unwrap_or_default();
    let mut again = JobRegistry::restore(serde_json::from_str(&text).expect("the file parses"), at(0));
    let states: Vec<_> = again.all().map(|job| (job.id, job.state)).collect();
    let expected = [(running, JobState::Running), (own, JobState::Lost), (ended, JobState::Finished)];
    assert_eq!(states, expected);
    again.report(running, rows(9), at(1))?;
    assert_eq!(again.start(dump(None), at(2))?, own + 1);
    Ok(())
}

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../../../../docs/reference/errors.md");
    let errors = [
        JobError::Unknown { id: 1 },
        JobError::Ended { id: 1, state: JobState::Lost },
        JobError::NotCancellable { id: 1, kind: JobKind::Rejoin },
        JobError::TooMany,
    ];
    for error in &errors {
        assert_eq!(
            page.matches(&format!("\n| {} | ", error.code())).count(),
            1,
            "errors.md does not list the code once: {error}"
        );
    }
    assert_eq!(page.matches("\n| TW-JOB-").count(), errors.len(), "errors.md lists codes that no error has");
}

proptest! {
    #[test]
    fn everything_is_bounded(
        steps in proptest::collection::vec((0u8..5, 0u64..400, 0usize..3000), 0..600),
    ) {
        let mut jobs = JobRegistry::default();
        for (second, (step, id, length)) in steps.into_iter().enumerate() {
            let now = at(second as u64);
            let text = "ä".repeat(length);
            let progress = JobProgress { phase: text.clone(), waiting: Some(text.clone()), ..JobProgress::default() };
            let log = vec![text.clone(); length / 20];
            // Requests about jobs that have ended or never started are refused, so errors are ignored.
            let _ = match step {
                0 | 1 => jobs.start(NewJob { subject: text, ..dump(None) }, now).map(drop),
                2 => jobs.report(id, JobReport { progress, log }, now).map(drop),
                3 => jobs.cancel(id, "bert".to_owned(), now).map(drop),
                _ => jobs.end(id, JobEnd { message: Some(text), ..finished() }, now).map(drop),
            };
            jobs.find_lost(now, |_| true);
        }
        prop_assert!(jobs.running.len() <= RUNNING_MAX && jobs.ended.len() <= ENDED_MAX);
        let texts_max = TEXT_BYTES_MAX + 3;
        for JobDetails { job, log } in &jobs.stored().jobs {
            prop_assert!(log.len() <= LOG_LINES_MAX);
            prop_assert!(log.iter().all(|line| line.text.len() <= texts_max));
            prop_assert!(job.subject.len() <= texts_max && job.progress.phase.len() <= texts_max);
            prop_assert!(job.message.as_ref().is_none_or(|message| message.len() <= texts_max));
            prop_assert!((job.state == JobState::Running) == job.ended_ms.is_none());
        }
    }
}
