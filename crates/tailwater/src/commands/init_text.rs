//! Formats the plan of `tailwater init`.

use tailwater_preflight::cluster_setup::cluster_discovery::DiscoveredCluster;
use tailwater_preflight::cluster_setup::setup_plan::{FileChange, SetupPlan, describe};
use tailwater_wire::printable;

/// The plan for people: what was found, the statements, and the files without secrets.
pub(super) fn plan_text(cluster: &DiscoveredCluster, plan: &SetupPlan) -> String {
    let mut text = String::new();
    for line in describe(cluster) {
        text.push_str(&format!("{}\n", printable(&line)));
    }
    for note in &plan.notes {
        text.push_str(&format!("note: {}\n", printable(note)));
    }
    if !plan.statements.is_empty() {
        text.push_str("\n-- statements on the primary\n");
        plan.statements.iter().for_each(|statement| text.push_str(&format!("{};\n", statement.shown)));
    }
    for file in &plan.files {
        let change = change_text(file.change);
        let path = file.path.display();
        match (file.is_secret, file.change) {
            (_, FileChange::Keep) => text.push_str(&format!("\n-- {path}: {change}\n")),
            (true, _) => text.push_str(&format!("\n-- {path}: {change}; mode 0600, a generated password\n")),
            (false, _) => text.push_str(&format!("\n-- {path}: {change}\n{}", file.content)),
        }
    }
    text.push('\n');
    if plan.is_done() {
        text.push_str("nothing to do: the primary and the files are already set up\n");
    }
    text
}

/// The plan as one JSON object, without secrets.
pub(super) fn plan_json(cluster: &DiscoveredCluster, plan: &SetupPlan) -> serde_json::Value {
    let statements = |of: &[tailwater_preflight::cluster_setup::setup_plan::SetupStatement]| {
        of.iter().map(|statement| statement.shown.clone()).collect::<Vec<_>>()
    };
    let files = plan.files.iter().map(|file| {
        serde_json::json!({
            "path": file.path,
            "change": match file.change {
                FileChange::Create => "create",
                FileChange::Keep => "keep",
                FileChange::Replace => "replace",
            },
            "content": (!file.is_secret).then_some(&file.content),
        })
    });
    serde_json::json!({
        "servers": describe(cluster),
        "not_asked": cluster.not_asked,
        "refusals": plan.refusals,
        "notes": plan.notes,
        "statements": statements(&plan.statements),
        "files": files.collect::<Vec<_>>(),
        "statements_after_start": statements(&plan.after_start),
        "option_file_lines": plan.option_file_lines,
        "is_done": plan.is_done(),
    })
}

fn change_text(change: FileChange) -> &'static str {
    match change {
        FileChange::Create => "new",
        FileChange::Keep => "stays as it is",
        FileChange::Replace => "replaced; the present one is kept with the ending .before-init",
    }
}
