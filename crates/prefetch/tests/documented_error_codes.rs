//! Compares the error codes with docs/reference/errors.md, which documents them.

use tailwater_prefetch::PrefetchError;
use tailwater_wire::WireError;

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../../docs/reference/errors.md");
    let text = || "a text".to_owned();
    let wire = || WireError::malformed("an event", "a reason");
    let errors = [
        PrefetchError::Event { file: text(), position: 4, error: wire() },
        PrefetchError::NotAReplica { replica: text(), channels: 2, name: text(), remedy: "name one" },
        PrefetchError::Position { replica: text(), text: text(), error: Box::new(wire()) },
        PrefetchError::StreamEnded { file: text(), position: 4 },
        PrefetchError::ChannelNotStarted,
    ];
    for error in &errors {
        // If a new variant is missing here, this match fails to compile. Add it to the list above, too.
        match error {
            PrefetchError::Session { .. }
            | PrefetchError::Log(_)
            | PrefetchError::Event { .. }
            | PrefetchError::NotAReplica { .. }
            | PrefetchError::Position { .. }
            | PrefetchError::StreamEnded { .. }
            | PrefetchError::ChannelNotStarted => {}
        }
        let row = format!("| {} |", error.code());
        assert!(page.contains(&row), "{} is not documented", error.code());
    }
    let documented = page.lines().filter(|line| line.starts_with("| TW-PRE-")).count();
    assert_eq!(documented, errors.len(), "a documented code does not exist");
}
