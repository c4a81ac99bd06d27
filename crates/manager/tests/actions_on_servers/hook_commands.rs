//! Tests of hooks: which data they receive, and that no hook can delay a failover or switchover beyond its
//! limit.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_manager::actions::hook_command::{
    Hook, HookArguments, HookContext, HookOutcome, HookPurpose, HookServer, run,
};

fn hook(script: &str, arguments: HookArguments, time_limit: Duration) -> Hook {
    let command = ["/bin/sh", "-c", script, "hook"].map(str::to_owned).to_vec();
    Hook { name: "vip".into(), command, arguments, time_limit }
}

fn situation() -> HookContext {
    let hook_server =
        |name: &str, port| HookServer { name: name.into(), host: format!("{name}.example"), port };
    HookContext {
        purpose: HookPurpose::Route,
        run: "f1".into(),
        term: 7,
        old: hook_server("db1", 3306),
        new: Some(hook_server("db2", 3307)),
        gtids: Some("0-1-9".into()),
    }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_hook_gets_both_servers_in_its_environment() -> Result<()> {
    let script = "env | grep ^TAILWATER_ | sort; echo on stderr >&2; echo \"$@\"";
    let outcome = run(&hook(script, HookArguments::Mha, LONG), &situation()).await;
    let HookOutcome::Done(printed) = outcome else {
        anyhow::bail!("the hook has the wrong outcome: {outcome:?}")
    };
    let want = "TAILWATER_COMMAND=start\nTAILWATER_GTIDS=0-1-9\nTAILWATER_HOOK=vip\nTAILWATER_NEW_HOST=db2.example\n\
                TAILWATER_NEW_NAME=db2\nTAILWATER_NEW_PORT=3307\nTAILWATER_OLD_HOST=db1.example\n\
                TAILWATER_OLD_NAME=db1\nTAILWATER_OLD_PORT=3306\nTAILWATER_RUN=f1\nTAILWATER_TERM=7\n\
                --command=start --orig_master_host=db1.example --orig_master_ip=db1.example --orig_master_port=3306 \
                --new_master_host=db2.example --new_master_ip=db2.example --new_master_port=3307\non stderr";
    ensure!(printed == want, "the hook printed the wrong output: {printed}");
    let page = include_str!("../../../../docs/reference/hooks.md");
    for name in want.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name) {
        ensure!(
            !name.starts_with("TAILWATER_") || page.contains(name),
            "{name} is missing in docs/reference/hooks.md"
        );
    }

    let fence = HookContext { purpose: HookPurpose::Fence, new: None, gtids: None, ..situation() };
    let outcome =
        run(&hook("echo \"$TAILWATER_COMMAND $TAILWATER_NEW_HOST$*\"", HookArguments::AsGiven, LONG), &fence)
            .await;
    ensure!(outcome == HookOutcome::Done("stop".into()), "the hook has the wrong outcome: {outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_hook_that_fails_hangs_or_prints_too_much_does_not_delay_a_failover() -> Result<()> {
    let outcome = run(&hook("echo no; exit 3", HookArguments::AsGiven, LONG), &situation()).await;
    let has_failed = matches!(&outcome, HookOutcome::Failed(text) if text.contains("exit status: 3: no"));
    ensure!(has_failed, "the hook has the wrong outcome: {outcome:?}");
    let absent = Hook { command: vec!["/nonexistent/hook".into()], ..hook("", HookArguments::AsGiven, LONG) };
    ensure!(matches!(run(&absent, &situation()).await, HookOutcome::Failed(_)));
    ensure!(matches!(
        run(&hook("kill -9 $$", HookArguments::AsGiven, LONG), &situation()).await,
        HookOutcome::Unknown(_)
    ));

    // The hook prints more than a pipe can hold, and more than the manager keeps of a hook's output.
    let outcome =
        run(&hook("head -c 1000000 /dev/zero | tr '\\0' x", HookArguments::AsGiven, LONG), &situation())
            .await;
    let HookOutcome::Done(printed) = outcome else {
        anyhow::bail!("the hook has the wrong outcome: {outcome:?}")
    };
    ensure!(
        (1..=8192).contains(&printed.len()),
        "the manager kept a wrong length of the hook's output: {}",
        printed.len()
    );

    // A process that the hook leaves running does not delay the failover or switchover, and is not killed.
    let started = Instant::now();
    let outcome = run(&hook("sleep 60 & echo $!", HookArguments::AsGiven, LONG), &situation()).await;
    let HookOutcome::Done(left) = outcome else {
        anyhow::bail!("the hook has the wrong outcome: {outcome:?}")
    };
    ensure!(
        started.elapsed() < LONG / 2 && lives(&left),
        "the hook was awaited too long, or its process was killed: {left}"
    );
    let end = std::process::Command::new("kill").arg(left.trim()).status()?;
    ensure!(end.success());

    // A hook that hangs is killed, together with the processes that it started.
    let script = "sleep 60 & echo $!; wait";
    let outcome = run(&hook(script, HookArguments::AsGiven, Duration::from_millis(300)), &situation()).await;
    let HookOutcome::Unknown(text) = outcome else {
        anyhow::bail!("the hook has the wrong outcome: {outcome:?}")
    };
    let child = text.rsplit(' ').next().context("the output has no process id")?.to_owned();
    let started = Instant::now();
    while lives(&child) {
        ensure!(started.elapsed() < LONG, "the hook was not killed in time: {text}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Whether a process runs. A zombie process does not count as running.
fn lives(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}
