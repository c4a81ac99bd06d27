//! The actions of a cluster: their dialogs, and what they do.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Form, Router};
use tailwater_daemon::api::clusters::ClusterSnapshot;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::manager_requests::{
    FailoverOptions, ManagerAnswer, ManagerRequest, SwitchoverOptions,
};
use tailwater_topology::NodeRole;

use super::PageState;
use super::action_dialog::{Dialog, DialogField, DialogInput, done, go_to};
use super::action_dialog_input::{Entered, confirmed, failure_text, parsed, refilled, text};
use super::display_format::path_segment;
use super::failover_view::run_path;
use super::page_error::PageError;

pub(super) fn routes() -> Router<PageState> {
    Router::new().route("/failovers/{source}/{action}", get(dialog).post(act))
}

async fn dialog(
    State(state): State<PageState>,
    Path((source, action)): Path<(String, String)>,
) -> Result<Response, PageError> {
    cluster_dialog(&state, &source, &action)?.show()
}

async fn act(
    State(state): State<PageState>,
    Path((source, action)): Path<(String, String)>,
    Form(entered): Form<Entered>,
) -> Result<Response, PageError> {
    let dialog = cluster_dialog(&state, &source, &action)?;
    let executed = match request(&source, &action, &entered) {
        Ok(request) => {
            let executed = state.control.execute(ControlCommand::Manager(request)).await;
            executed.map_err(|error| failure_text(&error))
        }
        Err(reason) => Err(reason),
    };
    match executed {
        Ok(ControlAnswer::Manager(ManagerAnswer::Begun { id })) => Ok(go_to(&run_path(&source, &id))),
        Ok(_) => Ok(done(&format!("Cluster {source}: {}", done_text(&action, &entered)))),
        Err(failure) => refilled(dialog, &entered, failure).show(),
    }
}

fn done_text(action: &str, entered: &Entered) -> &'static str {
    match action {
        "pause" => "automatic failover is paused",
        "resume" => "automatic failover is resumed",
        "acknowledge" => "the failover is acknowledged",
        "downtime" if is_checked(entered, "end") => "the downtime has ended",
        _ => "the downtime has begun",
    }
}

fn is_checked(entered: &Entered, name: &str) -> bool {
    entered.get(name).is_some_and(|value| !value.is_empty())
}

fn request(source: &str, action: &str, entered: &Entered) -> Result<ManagerRequest, String> {
    let (source, cluster) = (source.to_owned(), Some(source.to_owned()));
    let (to, across_regions) = (text(entered, "to"), is_checked(entered, "across_regions"));
    Ok(match action {
        "dry-run" if text(entered, "kind").as_deref() == Some("failover") => ManagerRequest::FailOver {
            source,
            options: FailoverOptions { to, dry_run: true, across_regions, ..FailoverOptions::default() },
        },
        "dry-run" => ManagerRequest::SwitchOver {
            source,
            options: SwitchoverOptions { to, dry_run: true, across_regions, ..SwitchoverOptions::default() },
        },
        "switchover" => {
            confirmed(entered, &source)?;
            let pause = parsed(entered, "write_pause_ms_max", "a number of milliseconds")?;
            let write_pause_ms_max = pause.unwrap_or(SwitchoverOptions::default().write_pause_ms_max);
            let options = SwitchoverOptions { to, dry_run: false, across_regions, write_pause_ms_max };
            ManagerRequest::SwitchOver { source, options }
        }
        "failover" => {
            confirmed(entered, &source)?;
            let allow_data_loss = is_checked(entered, "allow_data_loss");
            let options =
                FailoverOptions { to, dry_run: false, allow_data_loss, across_regions, is_automatic: false };
            ManagerRequest::FailOver { source, options }
        }
        "pause" => ManagerRequest::Pause { source: cluster },
        "resume" => ManagerRequest::Resume { source: cluster },
        "acknowledge" => ManagerRequest::Acknowledge { source: cluster },
        _ => {
            let server = text(entered, "server");
            let reason = text(entered, "reason").unwrap_or_default();
            ManagerRequest::Downtime { source, server, for_ms: downtime_ms(entered)?, reason }
        }
    })
}

/// The length of a downtime, in milliseconds; 0 ends it.
fn downtime_ms(entered: &Entered) -> Result<u64, String> {
    if is_checked(entered, "end") {
        return Ok(0);
    }
    let length = text(entered, "for").ok_or("Nothing was changed: enter how long the downtime lasts.")?;
    let parsed = humantime::parse_duration(&length);
    let duration: Duration = parsed.map_err(|error| format!("for: {length:?} is no duration: {error}"))?;
    Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1))
}

fn cluster_dialog(state: &PageState, source: &str, action: &str) -> Result<Dialog, PageError> {
    let snapshot = state.control.snapshot();
    let cluster = snapshot.clusters.iter().find(|cluster| cluster.source == source);
    let cluster = cluster.ok_or_else(|| PageError::unknown("source", source))?;
    let plain = |title: String, intro: &str, submit: &str| Dialog {
        title,
        intro: vec![intro.to_owned()],
        submit: submit.to_owned(),
        ..Dialog::default()
    };
    let dialog = match action {
        "dry-run" => dry_run_dialog(cluster),
        "switchover" => switchover_dialog(cluster),
        "failover" => failover_dialog(cluster),
        "pause" => plain(
            format!("Pause automatic failover of {source}"),
            "The manager starts no failover by itself until an operator resumes automatic failover. Operators can still start one.",
            "Pause",
        ),
        "resume" => plain(
            format!("Resume automatic failover of {source}"),
            "The manager replaces a dead primary by itself again.",
            "Resume",
        ),
        "acknowledge" => plain(
            format!("Acknowledge the last failover of {source}"),
            "You confirm that you have examined this failover. The next automatic failover may then start at once.",
            "Acknowledge",
        ),
        "downtime" => downtime_dialog(cluster),
        _ => return Err(PageError::unknown("action", action)),
    };
    Ok(Dialog { action: format!("/failovers/{}/{action}", path_segment(source)), ..dialog })
}

/// The list of the servers that can become primary. Its first item leaves the decision to the manager.
fn candidate_field(cluster: &ClusterSnapshot) -> DialogField {
    let best = (String::new(), "the best candidate".to_owned());
    let nodes = cluster.view.cluster.nodes.iter().flat_map(|root| root.walk());
    let others = nodes
        .filter(|node| matches!(node.role, NodeRole::Replica | NodeRole::Server | NodeRole::Target))
        .map(|node| (node.name.clone(), node.name.clone()));
    DialogField::new("to", "New primary", DialogInput::Choice(std::iter::once(best).chain(others).collect()))
}

fn across_regions_field() -> DialogField {
    DialogField::new("across_regions", "Allow a server of another region", DialogInput::Check)
}

fn dry_run_dialog(cluster: &ClusterSnapshot) -> Dialog {
    let kinds =
        [("switchover", "switchover: the primary is alive"), ("failover", "failover: the primary is dead")];
    let kinds = kinds.map(|(value, label)| (value.to_owned(), label.to_owned())).to_vec();
    Dialog {
        title: format!("Dry run for {}", cluster.source),
        intro: vec!["The dry run shows what would be done, step by step. It changes nothing.".to_owned()],
        fields: vec![
            DialogField::new("kind", "Of a", DialogInput::Choice(kinds)),
            candidate_field(cluster),
            across_regions_field(),
        ],
        submit: "Start the dry run".to_owned(),
        ..Dialog::default()
    }
}

fn switchover_dialog(cluster: &ClusterSnapshot) -> Dialog {
    let pause_ms = SwitchoverOptions::default().write_pause_ms_max;
    Dialog {
        title: format!("Switch {} over", cluster.source),
        intro: vec![
            format!("{} becomes a replica; another server takes the writes.", cluster.followed.server),
            "Clients cannot write for a moment. No commit is lost. If the switchover takes too long, it is undone."
                .to_owned(),
        ],
        fields: vec![
            candidate_field(cluster),
            DialogField::new(
                "write_pause_ms_max",
                "Longest write pause, in milliseconds",
                DialogInput::Number,
            )
            .value(pause_ms.to_string()),
            across_regions_field(),
            DialogField::confirmation(&cluster.source),
        ],
        submit: "Switch over".to_owned(),
        is_dangerous: true,
        ..Dialog::default()
    }
}

fn failover_dialog(cluster: &ClusterSnapshot) -> Dialog {
    Dialog {
        title: format!("Fail {} over", cluster.source),
        intro: vec![
            format!(
                "For a primary that is dead. {} is fenced, and another server takes the writes.",
                cluster.followed.server
            ),
            "If the primary is alive, use a switchover.".to_owned(),
        ],
        fields: vec![
            candidate_field(cluster),
            across_regions_field(),
            DialogField::new(
                "allow_data_loss",
                "Continue even if acknowledged commits may be missing",
                DialogInput::Check,
            ),
            DialogField::confirmation(&cluster.source),
        ],
        submit: "Fail over".to_owned(),
        is_dangerous: true,
        ..Dialog::default()
    }
}

fn downtime_dialog(cluster: &ClusterSnapshot) -> Dialog {
    let whole = (String::new(), "the whole cluster".to_owned());
    let nodes = cluster.view.cluster.nodes.iter().flat_map(|root| root.walk());
    let servers = nodes
        .filter(|node| node.role != NodeRole::Unconfigured)
        .map(|node| (node.name.clone(), node.name.clone()));
    let choices = std::iter::once(whole).chain(servers).collect();
    Dialog {
        title: format!("Downtime in {}", cluster.source),
        intro: vec![
            "During the downtime, no automatic failover starts for this server or cluster, and its problems do not count.".to_owned(),
        ],
        fields: vec![
            DialogField::new("server", "Of", DialogInput::Choice(choices)),
            DialogField::new("for", "For", DialogInput::Text).hint("Such as 30min or 2h.").value("1h"),
            DialogField::new("reason", "Reason", DialogInput::Text),
            DialogField::new("end", "End the present downtime instead", DialogInput::Check),
        ],
        submit: "Save".to_owned(),
        ..Dialog::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(fields: &[(&str, &str)]) -> Entered {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_change_of_the_primary_needs_the_name_and_a_dry_run_does_not() {
        for action in ["switchover", "failover"] {
            let refused = request("orders", action, &entered(&[]));
            assert!(
                refused.is_err_and(|reason| reason.contains("type orders")),
                "{action} did not ask for the name of the cluster"
            );
        }
        for kind in ["switchover", "failover"] {
            let dry = request("orders", "dry-run", &entered(&[("kind", kind), ("to", "db2")]));
            let is_dry = match dry {
                Ok(ManagerRequest::FailOver { options, .. }) => options.dry_run && kind == "failover",
                Ok(ManagerRequest::SwitchOver { options, .. }) => options.dry_run && kind == "switchover",
                _ => false,
            };
            assert!(is_dry, "the dry run of a {kind} is another request");
        }
    }

    #[test]
    fn data_loss_is_never_allowed_by_default() {
        let options = |fields: &[(&str, &str)]| match request("orders", "failover", &entered(fields)) {
            Ok(ManagerRequest::FailOver { options, .. }) => options,
            other => panic!("{other:?}"),
        };
        let confirm = ("confirm", "orders");
        assert!(!options(&[confirm]).allow_data_loss);
        assert!(options(&[confirm, ("allow_data_loss", "on")]).allow_data_loss);
        assert!(!options(&[confirm, ("allow_data_loss", "")]).allow_data_loss);
    }

    #[test]
    fn the_length_of_a_downtime_is_a_duration() {
        assert_eq!(downtime_ms(&entered(&[("for", "90s")])), Ok(90_000));
        assert_eq!(downtime_ms(&entered(&[("for", "90s"), ("end", "on")])), Ok(0));
        assert!(
            downtime_ms(&entered(&[("for", "long")])).is_err_and(|reason| reason.contains("no duration"))
        );
        assert!(downtime_ms(&entered(&[])).is_err());
    }
}
