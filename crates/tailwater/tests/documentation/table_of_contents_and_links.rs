//! The book: its table of contents lists every page, and every link leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::markdown::{anchors, link_targets, workspace};

/// Returns the pages below a folder, sorted.
fn pages_below(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut pages_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Returns a path without `.` and `..`, so that two spellings of it are equal.
fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                parts.pop();
            }
            std::path::Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

#[test]
fn the_table_of_contents_lists_every_page_once() -> Result<()> {
    let docs = normalized(&workspace()).join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md"))?;
    let mut listed = BTreeSet::new();
    for target in link_targets(&summary) {
        ensure!(!target.contains('#'), "docs/SUMMARY.md lists {target}, which is a part of a page");
        ensure!(listed.insert(normalized(&docs.join(&target))), "{target} is listed twice");
    }
    let mut pages = pages_below(&docs)?;
    pages.remove(&docs.join("SUMMARY.md"));
    let missing: Vec<_> = pages.difference(&listed).collect();
    ensure!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:?}");
    let unknown: Vec<_> = listed.difference(&pages).collect();
    ensure!(unknown.is_empty(), "docs/SUMMARY.md lists pages that do not exist: {unknown:?}");
    Ok(())
}

#[test]
fn every_link_of_the_documentation_resolves() -> Result<()> {
    let root = normalized(&workspace());
    let mut pages = pages_below(&root.join("docs"))?;
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)),
    );
    let mut texts = BTreeMap::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        texts.insert(page, text);
    }
    let mut broken = Vec::new();
    let mut count = 0;
    for (page, text) in &texts {
        for target in link_targets(text).iter().filter(|target| !target.contains("://")) {
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => page.clone(),
                file => normalized(&page.parent().context("a page has a folder")?.join(file)),
            };
            let has_anchor = || {
                anchor.is_empty()
                    || texts.get(&path).is_some_and(|text| anchors(text).iter().any(|own| own == anchor))
            };
            if !path.exists() || !has_anchor() {
                broken.push(format!("{}: {target}", page.strip_prefix(&root).unwrap_or(page).display()));
            }
        }
    }
    ensure!(count > 200, "only {count} links were found");
    ensure!(broken.is_empty(), "{} links lead nowhere:\n{}", broken.len(), broken.join("\n"));
    Ok(())
}
