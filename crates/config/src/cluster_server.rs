//! `[[server]]`: the other servers of a source's cluster.

use std::collections::HashSet;

use tailwater_topology::Promotion;

server_section! {
    /// `[[server]]`
    pub struct MemberConfig {
        /// The name of the server in messages and in the topology.
        pub name: String,
        /// Name of the source whose cluster the server belongs to.
        pub source: String,
        /// Whether the server may become the primary.
        #[serde(default)]
        pub promotion: Promotion,
        /// The region of the server. All servers without a region count as one region.
        pub region: Option<String>,
    }
}

impl MemberConfig {
    /// Checks the section for contradictions. `sources` has the names of all sources.
    pub(crate) fn check(&self, sources: &HashSet<&String>) -> Result<(), String> {
        let name = &self.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            return Err(format!(
                "server.name = {name:?}: a name has 1 to 64 characters of a-z, A-Z, 0-9, `_`, `-`, `.`"
            ));
        }
        if name == "tailwater" {
            return Err("server.name = \"tailwater\": Tailwater's own relay has this name".into());
        }
        if sources.contains(name) {
            return Err(format!("server.name = {name:?}: a [[source]] has this name"));
        }
        if !sources.contains(&self.source) {
            return Err(format!(
                "server {name:?}: source = {:?}: there is no [[source]] of that name",
                self.source
            ));
        }
        let server = self.server();
        server.check().map_err(|reason| format!("server {name:?}: {reason}"))?;
        if !server.is_given() {
            return Err(format!("server {name:?}: its address is missing; give host and port, or socket"));
        }
        Ok(())
    }
}
