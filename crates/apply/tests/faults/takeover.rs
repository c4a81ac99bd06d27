//! Two who apply the same channel to the same target.

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelFault, ChannelState};
use tailwater_sandbox::ServerKind;

use super::{TALLY, Tally, in_time, is_long, kinds, seeded};
use crate::support::Rig;

/// Waits until the channel has stopped for good; its fault.
async fn failed(channel: &Channel) -> Result<ChannelFault> {
    let mut status = channel.status();
    let status = status.wait_for(|status| status.state == ChannelState::Failed).await?;
    status.fault.clone().context("a failed channel says why")
}

async fn one_of_two_stops(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let mut random = seeded(&format!("takeover, {kind}"));
    Tally::prepare(&rig.source).await?;
    let load = Tally::start(&rig.source, 4, rand::Rng::random(&mut random));
    let mut holder = rig.channel(rig.options("shared"));
    for _ in 0..if is_long() { 20 } else { 3 } {
        let other = rig.channel(rig.options("shared"));
        let stopped = async {
            tokio::select! {
                fault = failed(&holder) => Ok((true, fault?)),
                fault = failed(&other) => Ok((false, fault?)),
            }
        };
        let (first_stopped, fault) = in_time("one of two stops", stopped).await?;
        ensure!(fault.code == "TW-APP-0007", "{fault:?}");
        let (goes_on, gone) = if first_stopped { (other, holder) } else { (holder, other) };
        gone.end().await;
        holder = goes_on;
    }
    let transactions = load.stop().await?;
    rig.wait_applied(&holder).await?;
    holder.pause().await?;
    rig.ensure_equal(TALLY).await?;
    Tally::ensure_counted(&rig.target, transactions).await?;
    holder.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_has_one_holder() -> Result<()> {
    for kind in kinds() {
        one_of_two_stops(*kind).await?;
    }
    Ok(())
}
