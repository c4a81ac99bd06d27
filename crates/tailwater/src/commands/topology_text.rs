//! Formats a cluster as a tree of text lines.

use tailwater_daemon::jobs::job_text::counted;
use tailwater_manager::FailoverReadiness;
use tailwater_topology::failure_analysis::{ClusterFinding, FailureCode};
use tailwater_topology::{Cluster, NodeRole, Promotion, TopologyNode};

use super::text_style::TextStyle;

/// One line of the tree, before its columns are aligned.
struct TreeLine<'a> {
    /// Branch characters of the tree before the server's name.
    before: String,
    /// Branch characters before the server's problems, which follow on the lines below the server's name.
    below: String,
    node: &'a TopologyNode,
}

/// Writes the cluster's name, its failures, and a line for each server. The problems of a server follow on
/// the lines below it.
pub(super) fn write_cluster(
    text: &mut String,
    cluster: &Cluster,
    findings: &[ClusterFinding],
    readiness: Option<&FailoverReadiness>,
    style: TextStyle,
) {
    let mut lines = Vec::new();
    for node in &cluster.nodes {
        add_lines(&mut lines, node, String::new(), String::new());
    }
    let wide = |part: &dyn Fn(&TreeLine<'_>) -> usize| lines.iter().map(part).max().unwrap_or_default();
    let name_wide = wide(&|line| line.before.chars().count() + line.node.name.chars().count());
    let address_wide = wide(&|line| line.node.address.chars().count());
    text.push_str(&format!("{}\n", style.bold(&cluster.name)));
    for finding in findings.iter().filter(|finding| !is_shown_at_node(finding.code)) {
        let message = format!("{}: {}: {}", finding.code, finding.server, finding.evidence.join("; "));
        text.push_str(&format!("! {}\n", style.red(&message)));
    }
    // If a safety rule would refuse a failover, a finding already reports that, so the readiness is not shown
    // again.
    if let Some(readiness) = readiness.filter(|readiness| readiness.rule().is_none()) {
        text.push_str(&format!("failover: {readiness}\n"));
    }
    for line in &lines {
        let TreeLine { before, below, node } = line;
        let name_pad = " ".repeat(name_wide - before.chars().count() - node.name.chars().count());
        let address_pad = " ".repeat(address_wide - node.address.chars().count());
        let name = if node.role == NodeRole::Primary { style.bold(&node.name) } else { node.name.clone() };
        let row = format!(
            "{before}{name}{name_pad}  {:<7}  {}{address_pad}  {}",
            role(node.role),
            node.address,
            facts(node).join(", ")
        );
        text.push_str(row.trim_end());
        text.push('\n');
        for problem in &node.problems {
            let message = format!("! {}: {}", problem.code, tailwater_wire::printable(&problem.text));
            text.push_str(&format!("{below}  {}\n", style.red(&message)));
        }
    }
}

/// Whether the tree shows this finding below the server's own line.
fn is_shown_at_node(code: FailureCode) -> bool {
    matches!(
        code,
        FailureCode::DeadRelay
            | FailureCode::RelayDetached
            | FailureCode::DeadReplica
            | FailureCode::ReplicaStopped
            | FailureCode::ReplicaLagging
    )
}

fn add_lines<'a>(lines: &mut Vec<TreeLine<'a>>, node: &'a TopologyNode, before: String, below: String) {
    let trunk = if node.children.is_empty() { format!("{below} ") } else { format!("{below}│") };
    lines.push(TreeLine { before, below: trunk, node });
    let last = node.children.len().saturating_sub(1);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, under) = if index == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        add_lines(lines, child, format!("{below}{branch}"), format!("{below}{under}"));
    }
}

fn role(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Primary => "primary",
        NodeRole::Replica => "replica",
        NodeRole::Relay => "relay",
        NodeRole::Target => "target",
        NodeRole::Server => "server",
        NodeRole::Unconfigured => "seen",
    }
}

/// Returns the facts about a server, shortest first.
fn facts(node: &TopologyNode) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(node.version.clone());
    match (node.role, node.writable) {
        (NodeRole::Primary, Some(true)) => facts.push("writable".into()),
        (NodeRole::Replica, Some(false)) => facts.push("read-only".into()),
        _ => {}
    }
    if let Some(lag) = node.lag_seconds {
        facts.push(format!("lag {lag:.0} s"));
    }
    if let Some(state) = &node.gtid_state {
        facts.push(match state.behind {
            0 => "in step".to_owned(),
            count => format!("{} behind", counted(count, "transaction")),
        });
    }
    if let Some(semi_sync) = node.semi_sync.as_ref().filter(|_| node.role == NodeRole::Primary) {
        let (needed, ackers) = (semi_sync.acks_needed, semi_sync.clients);
        facts.push(format!("semi-sync: needs {needed} ACK of {ackers} connected"));
        if semi_sync.waiting_sessions > 0 {
            facts.push(format!("{} waiting", semi_sync.waiting_sessions));
        }
    }
    if node.acknowledges == Some(true) {
        facts.push("acknowledges".into());
    }
    match node.promotion {
        Promotion::Neutral => {}
        Promotion::Prefer => facts.push("preferred".into()),
        Promotion::PreferNot => facts.push("preferred last".into()),
        Promotion::MustNot => facts.push("never primary".into()),
    }
    facts.extend(node.region.as_ref().map(|region| format!("in {region}")));
    facts.extend(node.notes.iter().cloned());
    if let Some(gtids) = node.gtids.as_ref().filter(|_| node.role == NodeRole::Primary) {
        facts.push(shortened(gtids));
    }
    facts
}

/// Maximum number of characters of a GTID set in a line. JSON output has the whole set.
const GTIDS_CHARACTERS_MAX: usize = 60;

fn shortened(gtids: &str) -> String {
    match gtids.char_indices().nth(GTIDS_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &gtids[..end]),
        None => gtids.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tailwater_topology::{ClusterPlan, Member, RelayPlan, RelayReader, RelayState, build_tree};

    use super::*;

    fn cluster() -> Cluster {
        let member = |name: &str, address: &str| Member {
            name: name.into(),
            address: address.into(),
            ..Member::default()
        };
        let reader =
            RelayReader { server_id: 9, uuid: None, peer: "10.0.0.9:5000".into(), sent: "b.000001:4".into() };
        let state = RelayState {
            is_streaming: true,
            doing: "reading".into(),
            heard_ago_ms: None,
            gtids: None,
            durable: "1:4".into(),
            alarms: Vec::new(),
            readers: vec![reader],
        };
        let plan = ClusterPlan {
            name: "orders".into(),
            primary: member("orders", "db1:3306"),
            servers: vec![member("db2", "db2:3306")],
            relay: RelayPlan { server_id: 4201, state: Some(state), ..RelayPlan::default() },
            ..ClusterPlan::default()
        };
        build_tree(&plan, &[])
    }

    #[test]
    fn a_cluster_is_formatted_as_a_tree() {
        let mut text = String::new();
        write_cluster(&mut text, &cluster(), &[], None, TextStyle::Plain);
        let expected = "\
orders
orders             primary  db1:3306
└─ tailwater       relay              durable to 1:4
   └─ server_id 9  seen               from 10.0.0.9:5000, sent to b.000001:4
db2                server   db2:3306
";
        assert_eq!(text, expected);
    }

    #[test]
    fn colours_are_optional() {
        let (mut plain, mut coloured) = (String::new(), String::new());
        write_cluster(&mut plain, &cluster(), &[], None, TextStyle::Plain);
        write_cluster(&mut coloured, &cluster(), &[], None, TextStyle::Colours);
        assert!(!plain.contains('\x1b') && coloured.contains("\x1b[1m"));
    }

    #[test]
    fn long_gtid_sets_are_shortened() {
        assert_eq!(shortened("0-1-1"), "0-1-1");
        assert_eq!(shortened(&"é".repeat(70)).chars().count(), 63);
    }
}
