//! Everything that a user can name is documented: metrics, configuration keys, error codes, paths of the HTTP
//! interface. The crates compare their own parts more exactly.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tailwater_config::DEFAULT_CONFIG;
use tailwater_http_api::metrics::metric_families::METRIC_GROUPS;

use super::markdown::workspace;

fn page(name: &str) -> Result<String> {
    fs::read_to_string(workspace().join("docs/reference").join(name)).with_context(|| name.to_owned())
}

/// The files below a folder whose names have that extension.
fn files_below(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

#[test]
fn everything_that_a_user_can_name_is_documented() -> Result<()> {
    let missing = [
        ("metrics", missing_metrics()?),
        ("configuration keys", missing_keys()?),
        ("error codes", missing_codes()?),
        ("HTTP paths", missing_paths()?),
    ];
    for (what, missing) in missing {
        ensure!(missing.is_empty(), "these {what} are not documented: {missing:#?}");
    }
    Ok(())
}

/// Returns the metrics that do not have exactly one row in the page of metrics.
fn missing_metrics() -> Result<Vec<String>> {
    let page = page("metrics.md")?;
    let families = METRIC_GROUPS.iter().flat_map(|group| group.families);
    let names: Vec<_> = families.map(|family| family.sample_name()).collect();
    ensure!(names.len() > 50, "only these metrics were found: {names:?}");
    Ok(names.into_iter().filter(|name| page.matches(&format!("| `{name}` |")).count() != 1).collect())
}

/// Returns the configuration keys and sections that the page of the configuration does not contain. The
/// default configuration has all keys.
fn missing_keys() -> Result<Vec<String>> {
    let page = page("config.md")?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: BTreeSet<_> = page.split(|c: char| !is_word(c)).collect();
    let code = DEFAULT_CONFIG.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    let code = code.filter(|line| !line.starts_with(' '));
    let (mut found, mut missing) = (0, Vec::new());
    for line in code {
        if let Some((key, _)) = line.split_once(" = ") {
            found += 1;
            if !words.contains(key) {
                missing.push(key.to_owned());
            }
        } else if line.starts_with('[') && !page.contains(line) {
            missing.push(line.to_owned());
        }
    }
    ensure!(found > 100, "only {found} keys were found");
    Ok(missing)
}

/// Returns the error codes in the sources of the program that no table of the reference contains.
fn missing_codes() -> Result<Vec<String>> {
    let mut pages = String::new();
    for path in files_below(&workspace().join("docs/reference"), "md")? {
        pages += &fs::read_to_string(path)?;
    }
    let mut codes = BTreeSet::new();
    for folder in fs::read_dir(workspace().join("crates"))? {
        for path in files_below(&folder?.path().join("src"), "rs")? {
            let source = fs::read_to_string(&path)?;
            codes.extend(source.split('"').filter(|text| is_code(text)).map(str::to_owned));
        }
    }
    ensure!(codes.len() > 150, "only {} codes were found", codes.len());
    Ok(codes
        .into_iter()
        .filter(|code| !pages.contains(&format!("| {code} |")) && !pages.contains(&format!("| `{code}` |")))
        .collect())
}

/// Whether a text is a code such as `TW-LOG-0003`.
fn is_code(text: &str) -> bool {
    let mut parts = text.split('-');
    let (Some("TW"), Some(area), Some(number), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let is_area = !area.is_empty() && area.chars().all(|c| c.is_ascii_uppercase());
    is_area && number.len() == 4 && number.chars().all(|c| c.is_ascii_digit())
}

/// Returns what the documentation lacks: requests (method and path) of the OpenAPI document that api.md does
/// not list, and parts of the other paths that http.md does not contain.
fn missing_paths() -> Result<Vec<String>> {
    let document = serde_json::to_value(tailwater_http_api::openapi::document())?;
    let paths = document["paths"].as_object().context("the OpenAPI document has no paths")?;
    let documented = documented_requests(&page("api.md")?);
    let mut requests = Vec::new();
    for (path, methods) in paths {
        let path = path.strip_prefix("/api/v1").unwrap_or(path);
        let methods = methods.as_object().context("a path of the OpenAPI document has no methods")?;
        requests.extend(methods.keys().map(|method| format!("{} {path}", method.to_uppercase())));
    }
    ensure!(requests.len() > 20, "the OpenAPI document has only {} requests", requests.len());
    let mut missing: Vec<_> =
        requests.into_iter().filter(|request| !documented.contains(request.as_str())).collect();

    let source = fs::read_to_string(workspace().join("crates/http_api/src/request_routes.rs"))?;
    let (source, _) = source.split_once("#[cfg(test)]").context("the routes have no tests")?;
    let page = page("http.md")?;
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let words: BTreeSet<_> = page.split(|c: char| !is_word(c)).collect();
    // A route is a list of the parts of its path.
    let routes =
        source.lines().map(str::trim).filter(|line| line.starts_with("[\"") && line.contains("] =>"));
    let parts: BTreeSet<_> = routes.flat_map(|route| route.split('"').skip(1).step_by(2)).collect();
    ensure!(parts.len() > 6, "only these parts of paths were found: {parts:?}");
    missing.extend(parts.into_iter().filter(|part| !words.contains(*part)).map(|part| format!("/{part}")));
    Ok(missing)
}

/// Returns the requests in the first column of the page's table. A parameter of a path is in capital letters
/// in the page, and in braces in the result. If a row has more than one word, each further word replaces the
/// end of the path.
fn documented_requests(page: &str) -> BTreeSet<String> {
    let mut requests = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let column = row.split('|').nth(1).unwrap_or_default();
        let mut words = column.split('`').skip(1).step_by(2);
        let Some((method, path)) = words.next().and_then(|first| first.split_once(" /")) else { continue };
        let is_parameter = |part: &str| part.chars().all(|c| c.is_ascii_uppercase());
        let mut parts: Vec<String> = path
            .split('/')
            .map(|part| if is_parameter(part) { format!("{{{}}}", part.to_lowercase()) } else { part.into() })
            .collect();
        requests.insert(format!("{method} /{}", parts.join("/")));
        for word in words {
            parts.pop();
            parts.push(word.to_owned());
            requests.insert(format!("{method} /{}", parts.join("/")));
        }
    }
    requests
}
