//! Two processes apply the same channel to the same target.

use anyhow::{Result, ensure};
use tailwater_sandbox::ServerKind;

use super::{TALLY, Tally, is_long, kinds, seeded};
use crate::channel_test_servers::Rig;

async fn one_of_two_stops(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let mut random = seeded(&format!("takeover, {kind}"));
    Tally::prepare(&rig.source).await?;
    let load = Tally::start(&rig.source, 4, rand::Rng::random(&mut random));
    let mut holder = rig.channel(rig.options("shared"));
    for _ in 0..if is_long() { 20 } else { 3 } {
        let other = rig.channel(rig.options("shared"));
        let (first_stopped, fault) = tokio::select! {
            fault = rig.wait_failed(&holder) => (true, fault?),
            fault = rig.wait_failed(&other) => (false, fault?),
        };
        ensure!(fault.code == "TW-APP-0007", "wrong fault of the channel: {fault:?}");
        let (goes_on, gone) = if first_stopped { (other, holder) } else { (holder, other) };
        gone.shut_down().await;
        holder = goes_on;
    }
    let transactions = load.stop().await?;
    rig.wait_applied(&holder).await?;
    holder.pause().await?;
    rig.ensure_equal(TALLY).await?;
    Tally::ensure_counted(&rig.target, transactions).await?;
    holder.shut_down().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_process_holds_a_channel() -> Result<()> {
    for kind in kinds() {
        one_of_two_stops(*kind).await?;
    }
    Ok(())
}
