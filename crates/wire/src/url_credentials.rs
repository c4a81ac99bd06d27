//! Logins in URLs: `https://user:password@host:2379/path`. Messages must not show them.

use std::borrow::Cow;

/// What is shown instead of a login.
const MASK: &str = "***";

/// Returns the URL with `***` in the place of its login. Text that is not a URL with a login is unchanged.
pub fn without_login(url: &str) -> Cow<'_, str> {
    match login_range(url) {
        Some(range) => Cow::Owned(format!("{}{MASK}{}", &url[..range.start], &url[range.end..])),
        None => Cow::Borrowed(url),
    }
}

/// Whether a URL contains a login.
pub fn has_login(url: &str) -> bool {
    login_range(url).is_some()
}

/// The login is what precedes the last `@` between `://` and the path. A query or a fragment may start
/// without a path. The URL standard treats `\` like `/`.
fn login_range(url: &str) -> Option<std::ops::Range<usize>> {
    let start = url.find("://")? + 3;
    let authority = &url[start..];
    let authority = &authority[..authority.find(['/', '\\', '?', '#']).unwrap_or(authority.len())];
    Some(start..start + authority.rfind('@')?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_login_is_masked() {
        for (url, shown) in [
            ("https://root:p4711@etcd1:2379/x", "https://***@etcd1:2379/x"),
            ("http://root@etcd1", "http://***@etcd1"),
            ("http://root:p@4711@etcd1", "http://***@etcd1"),
            ("http://root:4711@etcd1?a=b@c", "http://***@etcd1?a=b@c"),
            ("https://etcd1:2379/a@b", "https://etcd1:2379/a@b"),
            ("root:p4711@etcd1", "root:p4711@etcd1"),
            ("://@", "://***@"),
        ] {
            assert_eq!(without_login(url), shown);
            assert_eq!(has_login(url), url != shown, "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_password_remains(user in "[a-z]{0,5}", password in "[A-Z:@]{1,9}", path in "(/[a-z@]{0,9})?") {
            let url = format!("http://{user}:{password}@host{path}");
            prop_assert_eq!(without_login(&url), format!("http://***@host{path}"));
        }

        #[test]
        fn no_text_causes_a_panic(text in ".{0,40}") {
            let _ = without_login(&text);
        }
    }
}
