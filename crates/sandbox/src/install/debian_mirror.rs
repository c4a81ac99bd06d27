//! Finds the Debian mirror in this machine's apt sources.

use std::fs;
use std::path::Path;

/// Names of Debian suites. An apt entry must name one of them; each mirror has all of them.
const SUITES: [&str; 14] = [
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "experimental",
    "rc-buggy",
];

/// Returns the first mirror of Debian's main archive in the apt sources under `etc_apt` (`/etc/apt`).
/// Searches `sources.list`, `sources.list.d/*.list` and `sources.list.d/*.sources`, in this order.
pub(super) fn debian_mirror(etc_apt: &Path) -> Option<String> {
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(etc_apt.join("sources.list.d")) {
        let mut more: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    files.iter().find_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        match path.extension()?.to_str()? {
            "list" => text.lines().find_map(one_line),
            "sources" => stanzas(&text).iter().find_map(|stanza| deb822(stanza)),
            // Files with other names are ignored, as apt does.
            _ => None,
        }
    })
}

/// Parses `deb [options] URI SUITE COMPONENT...` and returns the URI.
fn one_line(line: &str) -> Option<String> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    // A space or tab must follow `deb`, so that `deb-src` does not match.
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    let mut words = rest.split_ascii_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    is_debian(uri, [suite].into_iter(), words).then(|| uri.to_owned())
}

/// Returns the fields of each stanza. Names are in lower case; continuation lines are joined.
fn stanzas(text: &str) -> Vec<Vec<(String, String)>> {
    let mut stanzas = vec![Vec::new()];
    for line in text.lines() {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            stanzas.push(Vec::new());
            continue;
        }
        let Some(stanza) = stanzas.last_mut() else { continue };
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = stanza.last_mut() {
                let value: &mut String = value;
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    stanzas
}

fn deb822(stanza: &[(String, String)]) -> Option<String> {
    let field = |name: &str| stanza.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value.as_str());
    if !field("types").split_ascii_whitespace().any(|kind| kind == "deb") {
        return None;
    }
    if matches!(
        field("enabled").to_ascii_lowercase().as_str(),
        "no" | "false" | "without" | "off" | "disable"
    ) {
        return None;
    }
    let words = |name| field(name).split_ascii_whitespace();
    words("uris").find(|uri| is_debian(uri, words("suites"), words("components"))).map(str::to_owned)
}

/// Whether an entry is Debian's main archive, not its security archive and not an archive of a third party.
fn is_debian<'a>(
    uri: &str,
    mut suites: impl Iterator<Item = &'a str>,
    mut components: impl Iterator<Item = &'a str>,
) -> bool {
    // A third party may use the names of Debian's suites, but the path of its archive does not end with a
    // name that contains "debian".
    let own = uri.trim_end_matches('/').rsplit('/').next().is_some_and(|name| name.contains("debian"));
    own && !uri.contains("security")
        && uri.contains(':')
        && suites.any(|suite| {
            let name = suite.strip_suffix("-updates").unwrap_or(suite);
            SUITES.contains(&name)
        })
        && components.any(|component| component == "main")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(files: &[(&str, &str)]) -> Option<String> {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(folder.path().join("sources.list.d")).expect("folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("file");
        }
        debian_mirror(folder.path())
    }

    #[test]
    fn the_mirror_is_found_in_both_formats() {
        let check = |files: &[(&str, &str)], want: Option<&str>| assert_eq!(mirror(files).as_deref(), want);
        let deb822 = "Types: deb deb-src\n# URIs: http://old/debian\nURIs: http://m.example/debian\nSuites: bookworm\n \
                      bookworm-updates\nComponents: main contrib\nSigned-By: /usr/share/k.gpg\n\nTypes: deb\nURIs: \
                      http://m.example/debian-security\nSuites: bookworm-security\nComponents: main\n";
        check(&[("sources.list.d/debian.sources", deb822)], Some("http://m.example/debian"));
        check(
            &[(
                "sources.list",
                "# deb http://no/debian sid main\ndeb  [ arch=amd64 signed-by=/x ]  https://l.example/debian/ trixie main\n",
            )],
            Some("https://l.example/debian/"),
        );
        check(
            &[(
                "sources.list.d/a.list",
                "deb-src http://a/debian sid main\ndeb mirror+file:/etc/apt/mirrors/debian.list sid main",
            )],
            Some("mirror+file:/etc/apt/mirrors/debian.list"),
        );
        check(&[("sources.list", "deb http://s.example/debian-security bookworm-security main")], None);
        check(&[("sources.list", "deb http://u.example/ubuntu noble main")], None);
        check(&[("sources.list", "deb https://other.example/node_20.x nodistro main")], None);
        check(&[("sources.list.d/x.sources.disabled", deb822)], None);
        let disabled = deb822.replace("Types: deb deb-src", "Enabled: no\nTypes: deb");
        check(&[("sources.list.d/debian.sources", &disabled)], None);
        check(&[], None);
    }
}
