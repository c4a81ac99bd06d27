//! Checks the direction of the dependencies between groups of crates, which ARCHITECTURE.md calls rooms:
//! `wire <- session, log <- engines <- daemon <- lab <- server_suites, tailwater`.

use std::collections::BTreeMap;
use std::process::Command;

/// The rooms (groups of crates) and the rooms that each may depend on, as ARCHITECTURE.md lists them.
const ROOMS: &[(&str, &[&str])] = &[
    ("tailwater-wire", &[]),
    ("tailwater-files", &[]),
    ("tailwater-chart-history", &["tailwater-files"]),
    ("tailwater-session", &["tailwater-files", "tailwater-wire"]),
    ("tailwater-log", &["tailwater-files", "tailwater-wire"]),
    ("tailwater-object-storage", &["tailwater-files", "tailwater-log"]),
    ("tailwater-capture", &["tailwater-wire", "tailwater-session", "tailwater-log"]),
    ("tailwater-binlog-server", &["tailwater-wire", "tailwater-session", "tailwater-log"]),
    ("tailwater-apply", &["tailwater-files", "tailwater-wire", "tailwater-session", "tailwater-log"]),
    ("tailwater-prefetch", &["tailwater-wire", "tailwater-session", "tailwater-log"]),
    (
        "tailwater-rejoin",
        &["tailwater-files", "tailwater-wire", "tailwater-session", "tailwater-log", "tailwater-apply"],
    ),
    ("tailwater-sandbox", &["tailwater-wire", "tailwater-session"]),
    ("tailwater-lossy-disk", &[]),
    ("tailwater-tables", &["tailwater-files", "tailwater-wire", "tailwater-session"]),
    ("tailwater-dump", &["tailwater-files", "tailwater-wire", "tailwater-session", "tailwater-tables"]),
    ("tailwater-check", &["tailwater-files", "tailwater-wire", "tailwater-session", "tailwater-tables"]),
    (
        "tailwater-admin",
        &[
            "tailwater-binlog-stats",
            "tailwater-chart-history",
            "tailwater-config",
            "tailwater-topology",
            "tailwater-manager",
            "tailwater-daemon",
            "tailwater-http-api",
        ],
    ),
    ("tailwater-binlog-stats", &["tailwater-wire", "tailwater-session", "tailwater-log"]),
    ("tailwater-topology", &["tailwater-wire", "tailwater-session"]),
    ("tailwater-manager", &["tailwater-files", "tailwater-wire", "tailwater-session", "tailwater-topology"]),
    (
        "tailwater-config",
        &[
            "tailwater-files",
            "tailwater-session",
            "tailwater-wire",
            "tailwater-object-storage",
            "tailwater-apply",
            "tailwater-topology",
            "tailwater-manager",
        ],
    ),
    (
        "tailwater-daemon",
        &[
            "tailwater-chart-history",
            "tailwater-config",
            "tailwater-files",
            "tailwater-wire",
            "tailwater-session",
            "tailwater-log",
            "tailwater-capture",
            "tailwater-binlog-server",
            "tailwater-binlog-stats",
            "tailwater-apply",
            "tailwater-prefetch",
            "tailwater-rejoin",
            "tailwater-tables",
            "tailwater-dump",
            "tailwater-check",
            "tailwater-topology",
            "tailwater-manager",
            "tailwater-object-storage",
        ],
    ),
    (
        "tailwater-preflight",
        &[
            "tailwater-config",
            "tailwater-wire",
            "tailwater-session",
            "tailwater-capture",
            "tailwater-apply",
            "tailwater-topology",
            "tailwater-daemon",
        ],
    ),
    (
        "tailwater-http-api",
        &[
            "tailwater-config",
            "tailwater-files",
            "tailwater-session",
            "tailwater-apply",
            "tailwater-manager",
            "tailwater-topology",
            "tailwater-daemon",
        ],
    ),
    ("tailwater-top", &["tailwater-wire", "tailwater-daemon"]),
    (
        "tailwater-lab",
        &[
            "tailwater-config",
            "tailwater-wire",
            "tailwater-session",
            "tailwater-log",
            "tailwater-apply",
            "tailwater-sandbox",
            "tailwater-topology",
            "tailwater-manager",
            "tailwater-daemon",
        ],
    ),
    (
        "tailwater-server-suites",
        &[
            "tailwater-wire",
            "tailwater-session",
            "tailwater-log",
            "tailwater-apply",
            "tailwater-sandbox",
            "tailwater-daemon",
            "tailwater-lab",
        ],
    ),
    (
        "tailwater",
        &[
            "tailwater-config",
            "tailwater-files",
            "tailwater-wire",
            "tailwater-session",
            "tailwater-log",
            "tailwater-capture",
            "tailwater-binlog-server",
            "tailwater-apply",
            "tailwater-prefetch",
            "tailwater-rejoin",
            "tailwater-sandbox",
            "tailwater-admin",
            "tailwater-tables",
            "tailwater-dump",
            "tailwater-check",
            "tailwater-binlog-stats",
            "tailwater-topology",
            "tailwater-manager",
            "tailwater-object-storage",
            "tailwater-daemon",
            "tailwater-preflight",
            "tailwater-http-api",
            "tailwater-top",
            "tailwater-lab",
            "tailwater-server-suites",
        ],
    ),
];

/// Crates that a room must never depend on directly. Dependencies for tests only are allowed.
const FORBIDDEN: &[(&str, &[&str])] =
    &[("tailwater-wire", &["tokio", "rustls", "rustix"]), ("tailwater-log", &["tokio-rustls", "rustls"])];

#[test]
fn dependencies_follow_the_architecture() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    assert!(
        output.status.success(),
        "cargo metadata has failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");

    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("the metadata has packages") {
        let name = package["name"].as_str().expect("each package has a name").to_owned();
        let dependencies: Vec<String> = package["dependencies"]
            .as_array()
            .expect("each package has dependencies")
            .iter()
            // Only dependencies of the shipped code are checked, because tests may depend on crates that
            // start servers.
            .filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| dependency["name"].as_str().expect("each package has a name").to_owned())
            .collect();
        found.insert(name, dependencies);
    }

    let known: Vec<_> = ROOMS.iter().map(|(name, _)| *name).collect();
    for (name, dependencies) in &found {
        let (_, may_touch) = ROOMS
            .iter()
            .find(|(room, _)| room == name)
            .unwrap_or_else(|| panic!("{name} is not a room of ARCHITECTURE.md; rooms are {known:?}"));
        for dependency in dependencies.iter().filter(|dependency| dependency.starts_with("tailwater")) {
            assert!(may_touch.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
        for (_, forbidden) in FORBIDDEN.iter().filter(|(room, _)| room == name) {
            for dependency in dependencies {
                assert!(!forbidden.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
            }
        }
    }
    assert_eq!(found.len(), ROOMS.len(), "a room of ARCHITECTURE.md is missing: {:?}", found.keys());
}
