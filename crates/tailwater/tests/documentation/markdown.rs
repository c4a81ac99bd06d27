//! Code blocks and links of a page of the documentation.

use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A fenced code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeBlock {
    /// The number of the line with the opening fence.
    pub line: usize,
    /// The first word after the fence, such as `sh`.
    pub language: String,
    /// The other words after the fence.
    pub labels: Vec<String>,
    pub text: String,
}

/// Returns the fenced code blocks of a page, in order.
pub fn code_blocks(page: &str) -> Vec<CodeBlock> {
    let mut blocks: Vec<CodeBlock> = Vec::new();
    let mut is_open = false;
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), is_open) {
            (Some(words), false) => {
                let mut words = words.split_whitespace().map(str::to_owned);
                let language = words.next().unwrap_or_default();
                blocks.push(CodeBlock {
                    line: number + 1,
                    language,
                    labels: words.collect(),
                    text: String::new(),
                });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                if let Some(block) = blocks.last_mut() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            }
            (None, false) => {}
        }
    }
    blocks
}

/// Returns the lines of a page outside fenced code blocks, with code spans removed.
pub fn prose(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join("``"));
        }
    }
    lines
}

/// Returns the targets of the links and images of a page: `[text](target)`.
pub fn link_targets(page: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(page) {
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                targets.push(target.to_owned());
            }
        }
    }
    targets
}

/// Returns the anchors of the headings of a page, as GitHub and mdBook build them.
pub fn anchors(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found: Vec<String> = Vec::new();
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let anchor: String = text
            .chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        found.push(anchor);
    }
    found
}

#[test]
fn blocks_links_and_anchors_are_found() {
    let page = "# A page: `x`\nsee [b](b.md#part-one), `[no](link)`, ![c](c.svg)\n```sh mysql\n# no heading\nls\n```\n## Part one\n";
    let block = CodeBlock {
        line: 3,
        language: "sh".into(),
        labels: vec!["mysql".into()],
        text: "# no heading\nls\n".into(),
    };
    assert_eq!(code_blocks(page), [block]);
    assert_eq!(link_targets(page), ["b.md#part-one", "c.svg"]);
    assert_eq!(anchors(page), ["a-page-x", "part-one"]);
}
