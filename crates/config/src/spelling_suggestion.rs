//! Suggests a known key or value for an unknown one.

use super::default_config::sections_with;

/// Appends a suggestion to the parser's message about an unknown key or value, for example "unknown field
/// `hots`, expected one of `host`, `port`". Other messages stay as they are.
pub(super) fn with_suggestion(message: &str) -> String {
    let is_key = message.starts_with("unknown field `");
    if !is_key && !message.starts_with("unknown variant `") {
        return message.to_owned();
    }
    let mut names = message.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next() else { return message.to_owned() };
    if let Some(nearest) = nearest(unknown, names) {
        return format!("{message}; did you mean `{nearest}`?");
    }
    match sections_with(unknown).as_slice() {
        sections @ [_, ..] if is_key => format!("{message}; `{unknown}` is a key of {}", sections.join(", ")),
        _ => message.to_owned(),
    }
}

/// Returns the name that differs from `unknown` by the fewest typing errors. Returns `None` if the errors are
/// more than a third of the letters.
pub(super) fn nearest<'a>(unknown: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = unknown.to_lowercase().replace('-', "_");
    let errors = |name: &str| strsim::damerau_levenshtein(&unknown, &name.replace('-', "_"));
    let (name, errors) = names.map(|name| (name, errors(name))).min_by_key(|(_, errors)| *errors)?;
    let errors_max = (unknown.chars().count().max(name.chars().count()) / 3).max(1);
    (errors <= errors_max).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let keys = ["host", "port", "tls_ca", "server_id", "semi_sync", "timeout_ms"];
        for (unknown, expected) in [
            ("hots", Some("host")),
            ("Port", Some("port")),
            ("ssl_ca", Some("tls_ca")),
            ("serverid", Some("server_id")),
            ("semi-sync", Some("semi_sync")),
            ("timeout", Some("timeout_ms")),
            ("retries", None),
            ("x", None),
        ] {
            assert_eq!(nearest(unknown, keys.into_iter()), expected, "wrong suggestion for {unknown}");
        }
    }

    #[test]
    fn a_key_of_another_section_is_named() {
        let message = with_suggestion("unknown field `archive`, expected `name` or `host`");
        assert_eq!(
            message,
            "unknown field `archive`, expected `name` or `host`; `archive` is a key of [log]"
        );
        let value = "unknown variant `archive`, expected `durable` or `received`";
        assert_eq!(with_suggestion(value), value);
        let other = "missing field `archive`";
        assert_eq!(with_suggestion(other), other);
    }
}
