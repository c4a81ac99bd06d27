//! Checks that the tests named in the documentation exist.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The pages that name tests of this crate and of the daemon.
const PAGES: [&str; 1] = ["docs/how-to/apply.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Appends the text of all Rust files below a folder.
fn sources(folder: &Path, text: &mut String) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[test]
fn documented_tests_exist() -> Result<()> {
    let mut text = String::new();
    for folder in ["crates/apply/src", "crates/apply/tests", "crates/tailwater/tests"] {
        sources(&root().join(folder), &mut text)?;
    }
    let is_name = |word: &&str| {
        word.contains("::")
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c))
    };
    let mut named = 0;
    for page in PAGES {
        let page = std::fs::read_to_string(root().join(page))?;
        for test in page.split('`').skip(1).step_by(2).filter(is_name) {
            let name = test.rsplit("::").next().unwrap_or_default();
            ensure!(
                text.contains(&format!("fn {name}(")),
                "the documentation names the test {test}, which does not exist"
            );
            named += 1;
        }
    }
    ensure!(named > 10, "the documentation names only {named} tests");
    Ok(())
}
