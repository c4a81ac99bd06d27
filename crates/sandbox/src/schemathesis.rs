//! Schemathesis, which sends valid and invalid requests to an HTTP API, as the API's OpenAPI document
//! describes them, and checks the responses.

use std::path::PathBuf;

use crate::tool_lookup::Tool;

const SCHEMATHESIS: Tool =
    Tool { name: "schemathesis", path: "bin/schemathesis", package: "schemathesis of PyPI" };

/// Returns the path of Schemathesis, which `./dev setup` installs. If Schemathesis is missing, prints a line
/// on standard error and returns `None`. The test must then end.
///
/// # Panics
/// If Schemathesis is missing while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too.
pub fn require() -> Option<PathBuf> {
    SCHEMATHESIS.require()
}
