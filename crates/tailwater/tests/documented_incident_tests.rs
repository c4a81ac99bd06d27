//! Checks that each incident in docs/reference/failover-incidents.md names existing tests.

use std::path::Path;

use anyhow::{Context, Result, ensure};

#[test]
fn each_incident_has_existing_tests() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/failover-incidents.md"))?;
    let cases: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    ensure!(cases.len() == 12, "the page has {} incidents, expected 12", cases.len());
    for case in cases {
        let held_by =
            case.trim_end_matches(" |").rsplit(" | ").next().context("the line has no table cells")?;
        let named: Vec<_> = held_by.split('`').skip(1).step_by(2).collect();
        ensure!(!named.is_empty(), "this case names no test: {case}");
        for test in named {
            let (file, name) = test.split_once("::").unwrap_or((test, ""));
            let path = root.join(file);
            ensure!(path.exists(), "the test file {file} does not exist");
            if !name.is_empty() {
                let text = std::fs::read_to_string(&path)?;
                // `name` is a test function, a fault of the random-fault test, or a test that a macro
                // generates.
                let is_there = ["fn {}(", "    {}("].map(|form| text.contains(&form.replace("{}", name)));
                let is_listed = text.contains(&format!("{name},\n")) || text.contains(&format!("({name}"));
                ensure!(is_there.contains(&true) || is_listed, "{file} has no test {name}");
            }
        }
    }
    Ok(())
}
