//! Escapes control and invisible characters in names and texts that servers supply, for display.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes characters that end a line, move the cursor, or change how the text looks: control characters,
/// line separators, direction marks and invisible characters. Every name and text of a server passes through
/// this function before a person sees it. Machine-readable output holds the unchanged text.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            letter if is_escaped(letter) => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => escaped.push(letter),
        }
    }
    Cow::Owned(escaped)
}

fn is_escaped(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Zero-width characters and direction marks.
            | '\u{200b}'..='\u{200f}'
            // Line and paragraph separators, and direction marks.
            | '\u{2028}'..='\u{202e}'
            // Invisible operators, direction marks, and deprecated characters.
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tag characters.
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn ordinary_names_are_not_escaped() {
        for name in ["t", "größe", "表", "a b", "it's \"x\" \\", "מספר", "😀", ""] {
            assert!(
                matches!(printable(name), std::borrow::Cow::Borrowed(same) if same == name),
                "the ordinary name {name} was escaped"
            );
        }
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        assert_eq!(printable("t\nall the same"), "t\\nall the same");
        assert_eq!(printable("\r\t\x1b[2J\x7f\u{9b}"), "\\r\\t\\u{1b}[2J\\u{7f}\\u{9b}");
        assert_eq!(
            printable("a\u{202e}b\u{2066}c\u{200b}d\u{2028}e\u{feff}"),
            "a\\u{202e}b\\u{2066}c\\u{200b}d\\u{2028}e\\u{feff}"
        );
        assert_eq!(printable("x\u{61c}\u{e0041}"), "x\\u{61c}\\u{e0041}");
    }
}
