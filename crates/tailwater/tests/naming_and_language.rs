//! Checks the names and the language of the sources: a type name has one meaning, file names are distinct
//! nouns, and comments and documentation use plain English.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that are not used in comments, documentation and function names, because readers find them hard to
/// read.
const AVOIDED: &[&str] = &["anew", "somebody", "whoever", "amid"];

/// Two file names in one folder must differ by more than one of these endings (not `watch` and `watching`).
const ENDINGS: &[&str] = &["ing", "ed", "er", "s"];

/// Module names that end like a gerund or a participle, but are established nouns or adjectives.
const NOUNS: &[&str] = &["failure_finding", "fuzzing", "login_fuzzing", "server_ping"];

/// Maximum width of a comment line in columns: the same as for code (rustfmt.toml).
const COMMENT_COLUMNS_MAX: usize = 110;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace folder exists")
}

/// Returns all files below `folder` that have one of `extensions`, sorted. Build output and hidden folders
/// are skipped.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the entry can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|own| extensions.iter().any(|one| own == *one)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the path relative to the workspace, for messages.
fn shown(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

/// Returns the source files of all crates, except the files of their tests.
fn sources() -> Vec<PathBuf> {
    let all = files(&workspace().join("crates"), &["rs"]);
    let is_part = |path: &Path, name: &str| path.components().any(|part| part.as_os_str() == name);
    all.into_iter()
        .filter(|path| is_part(path, "src") && !is_part(path, "tests") && !is_part(path, "tests.rs"))
        .collect()
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).expect("file names are UTF-8")
}

/// Returns the name of the type that the line defines, if it does so at the top level of a module.
fn defined_type(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None if line.starts_with(char::is_whitespace) => return None,
        None => line,
    };
    let (keyword, rest) = line.trim_start().split_once(' ')?;
    matches!(keyword, "struct" | "enum" | "trait" | "type" | "union").then_some(())?;
    rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .next()
        .filter(|name| !name.is_empty())
}

/// Returns the English words of a line. In a source file, these are the words of a comment or of a function's
/// name. In a documentation page, they are the text outside code spans.
fn english_words(line: &str, is_source: bool) -> Vec<&str> {
    let (name, text) = match (is_source, line.find("//")) {
        (false, _) => ("", line),
        (true, comment) => {
            let code = &line[..comment.unwrap_or(line.len())];
            let name = code.split_once("fn ").map_or("", |(_, rest)| rest);
            let name = name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
            (name.unwrap_or_default(), comment.map_or("", |at| &line[at..]))
        }
    };
    let prose =
        text.split('`').step_by(2).flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric()));
    name.split('_').chain(prose).filter(|word| !word.is_empty()).collect()
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a source can be read");
        for name in text.lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().push(shown(&path));
        }
    }
    assert!(places.len() > 500, "only {} types were found", places.len());
    let repeated: Vec<String> = places
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(
        repeated.is_empty(),
        "{} type names are defined more than once:\n{}",
        repeated.len(),
        repeated.join("\n")
    );
}

#[test]
fn file_names_of_a_folder_differ_by_more_than_an_ending() {
    let mut folders: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for path in sources() {
        let folder = path.parent().expect("a file has a folder");
        folders.entry(folder.to_owned()).or_default().push(stem(&path).to_owned());
    }
    let mut alike = Vec::new();
    for (folder, stems) in folders {
        for stem in &stems {
            for other in
                ENDINGS.iter().map(|ending| format!("{stem}{ending}")).filter(|other| stems.contains(other))
            {
                alike.push(format!("{}: {stem} and {other} differ only by an ending", shown(&folder)));
            }
        }
    }
    assert!(alike.is_empty(), "file names that are easily confused:\n{}", alike.join("\n"));
}

#[test]
fn file_names_are_nouns() {
    let is_noun = |path: &Path| {
        let stem = stem(path);
        NOUNS.contains(&stem) || !(stem.ends_with("ing") || stem.ends_with("ed"))
    };
    let verbs: Vec<String> = sources().iter().filter(|path| !is_noun(path)).map(|path| shown(path)).collect();
    assert!(
        verbs.is_empty(),
        "files that are not named by a noun (add exceptions to NOUNS):\n{}",
        verbs.join("\n")
    );
}

#[test]
fn comments_and_documentation_are_plain_english() {
    let mut found = Vec::new();
    for path in files(&workspace(), &["rs", "md"])
        .iter()
        .filter(|path| !path.ends_with("tests/naming_and_language.rs"))
    {
        let text = fs::read_to_string(path).expect("a source can be read");
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        for (number, line) in text.lines().enumerate() {
            for word in english_words(line, is_source) {
                if AVOIDED.iter().any(|avoided| word.eq_ignore_ascii_case(avoided)) {
                    found.push(format!("{}:{}: {word}", shown(path), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} uses of words to avoid:\n{}", found.len(), found.join("\n"));
}

#[test]
fn comments_are_not_wider_than_code() {
    let mut wide = Vec::new();
    for path in files(&workspace().join("crates"), &["rs"]) {
        let text = fs::read_to_string(&path).expect("a source can be read");
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            // Rows of a Markdown table cannot be wrapped.
            let is_text =
                comment.starts_with("//") && !comment.contains("// |") && !comment.contains("//! |");
            if is_text && line.chars().count() > COMMENT_COLUMNS_MAX {
                wide.push(format!("{}:{}", shown(&path), number + 1));
            }
        }
    }
    assert!(
        wide.is_empty(),
        "{} comments are wider than {COMMENT_COLUMNS_MAX} columns:\n{}",
        wide.len(),
        wide.join("\n")
    );
}
