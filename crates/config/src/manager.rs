//! `[manager]`: how this daemon watches and manages the clusters of its sources.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tailwater_manager::actions::hook_command::HookArguments;
use tailwater_manager::cluster_watch::ProbeIntervals;
use tailwater_manager::lossless_rules::PRIMARY_STATE_MAX_AGE_MS;
use tailwater_topology::failure_analysis::AnalysisSettings;
use tailwater_wire::url_credentials::without_login;

/// The smallest `unanimous_detect_after_ms`, in milliseconds. A manager cannot notice a shorter stall of its
/// own process.
const UNANIMOUS_DETECT_AFTER_MS_MIN: u64 = 500;

/// `[manager]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagerConfig {
    /// The name of this manager in the lease and in messages; the host name if absent.
    pub name: Option<String>,
    /// Whether the manager replaces a dead primary automatically.
    #[serde(default)]
    pub automatic: bool,
    /// Whether the manager automatically turns a former primary into a replica when it answers again, as
    /// `tailwater rejoin` does.
    #[serde(default)]
    pub rejoin: bool,
    /// The number of ACKs that a commit on a new primary waits for.
    #[serde(default = "default_semi_sync_acks")]
    pub semi_sync_acks: u32,
    /// Whether the manager may automatically promote a server of another region than the old primary's.
    #[serde(default)]
    pub across_regions: bool,
    /// A server that needs longer than this to execute its relay log, in milliseconds, is promoted only if
    /// there is no other candidate.
    #[serde(default = "default_catch_up_ms_max")]
    pub catch_up_ms_max: u64,
    /// The greatest age of the last known state of the primary, in milliseconds, counted back from the
    /// primary's last sign of life. The old spelling is `unverified_ms_max`.
    #[serde(default = "default_primary_state_max_age_ms", alias = "unverified_ms_max")]
    pub primary_state_max_age_ms: u64,
    /// The account with which replicas that the manager repoints connect to the log. If absent, the first
    /// `[[serve.user]]` with a known password.
    pub replica_user: Option<String>,
    /// A file whose first line is the password of `replica_user`.
    pub replica_password_file: Option<PathBuf>,
    /// The host name at which replicas reach the log. If absent, the address of `[[serve]]`.
    pub replica_host: Option<String>,
    /// Where the lease is stored.
    #[serde(default)]
    pub lease: LeaseConfig,
    /// How long the lease is valid without a renewal, in milliseconds.
    #[serde(default = "default_lease_ttl_ms")]
    pub lease_ttl_ms: u64,
    /// The URL of each etcd member: `https://host:2379`. It may contain a login.
    #[serde(default)]
    pub etcd_endpoints: Vec<ServiceUrl>,
    /// The user name for etcd, if etcd requires a login.
    pub etcd_user: Option<String>,
    /// A file whose first line is the password of `etcd_user`.
    pub etcd_password_file: Option<PathBuf>,
    /// PEM file of the certificate authorities for etcd's certificates. If absent, the certificate
    /// authorities of the operating system are used.
    pub etcd_ca_file: Option<PathBuf>,
    /// The prefix of all keys that the managers store in etcd.
    #[serde(default = "default_etcd_prefix")]
    pub etcd_prefix: String,
    /// The times of the failure detection.
    #[serde(default)]
    pub analysis: AnalysisSettings,
    /// The intervals of the probes.
    #[serde(default)]
    pub pace: ProbeIntervals,
    /// Commands that fence an old primary. They run in this order.
    #[serde(default, rename = "fence_hook")]
    pub fence_hooks: Vec<HookConfig>,
    /// Commands that route clients to a new primary. They run in this order.
    #[serde(default, rename = "route_hook")]
    pub route_hooks: Vec<HookConfig>,
}

/// A URL that may contain a login. It is printed without the login.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ServiceUrl(String);

impl ServiceUrl {
    /// The URL with its login.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", without_login(&self.0))
    }
}

/// `manager.lease`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseConfig {
    /// A lock on a file in the log's folder, for a single manager.
    #[default]
    File,
    /// A key in etcd, for several managers.
    Etcd,
}

/// `[[manager.fence_hook]]`, `[[manager.route_hook]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// The name of the hook in messages.
    pub name: String,
    /// The program and its arguments. No shell is used.
    pub command: Vec<String>,
    /// Arguments that the manager appends to the command.
    #[serde(default)]
    pub arguments: HookArguments,
    /// The command is killed after this time, in milliseconds.
    #[serde(default = "default_hook_timeout_ms")]
    pub timeout_ms: u64,
}

fn default_semi_sync_acks() -> u32 {
    1
}

fn default_catch_up_ms_max() -> u64 {
    60_000
}

fn default_primary_state_max_age_ms() -> u64 {
    PRIMARY_STATE_MAX_AGE_MS
}

fn default_lease_ttl_ms() -> u64 {
    10_000
}

fn default_etcd_prefix() -> String {
    "/tailwater/".to_owned()
}

fn default_hook_timeout_ms() -> u64 {
    10_000
}

impl Default for ManagerConfig {
    /// The settings of a configuration without this section.
    fn default() -> Self {
        Self {
            name: None,
            automatic: false,
            rejoin: false,
            semi_sync_acks: default_semi_sync_acks(),
            across_regions: false,
            catch_up_ms_max: default_catch_up_ms_max(),
            primary_state_max_age_ms: default_primary_state_max_age_ms(),
            replica_user: None,
            replica_password_file: None,
            replica_host: None,
            lease: LeaseConfig::default(),
            lease_ttl_ms: default_lease_ttl_ms(),
            etcd_endpoints: Vec::new(),
            etcd_prefix: default_etcd_prefix(),
            etcd_ca_file: None,
            etcd_password_file: None,
            etcd_user: None,
            analysis: AnalysisSettings::default(),
            pace: ProbeIntervals::default(),
            fence_hooks: Vec::new(),
            route_hooks: Vec::new(),
        }
    }
}

impl ManagerConfig {
    /// Makes paths relative to `base`.
    pub(crate) fn rebase(&mut self, base: &Path) {
        let files = [&mut self.replica_password_file, &mut self.etcd_password_file, &mut self.etcd_ca_file];
        for file in files.into_iter().flatten() {
            *file = base.join(&*file);
        }
        for hook in self.fence_hooks.iter_mut().chain(&mut self.route_hooks) {
            // A program name without a slash is searched in PATH.
            if let Some(program) = hook.command.first_mut().filter(|program| program.contains('/')) {
                *program = base.join(&*program).display().to_string();
            }
        }
    }

    /// Checks the section for contradictions.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.semi_sync_acks == 0 {
            return Err("manager.semi_sync_acks must be at least 1".into());
        }
        if self.replica_password_file.is_some() && self.replica_user.is_none() {
            return Err("manager.replica_password_file is given without manager.replica_user".into());
        }
        if (self.lease == LeaseConfig::Etcd) == self.etcd_endpoints.is_empty() {
            return Err("manager.lease = \"etcd\" and manager.etcd_endpoints must be given together".into());
        }
        if self.etcd_user.is_some() != self.etcd_password_file.is_some() {
            return Err("manager.etcd_user and manager.etcd_password_file must be given together".into());
        }
        if self.etcd_endpoints.is_empty() && (self.etcd_user.is_some() || self.etcd_ca_file.is_some()) {
            return Err(
                "manager.etcd_user and manager.etcd_ca_file are given without manager.etcd_endpoints".into(),
            );
        }
        if !(2_000..=86_400_000).contains(&self.lease_ttl_ms) {
            return Err("manager.lease_ttl_ms must be 2000 to 86400000".into());
        }
        if self.analysis.unanimous_detect_after_ms < UNANIMOUS_DETECT_AFTER_MS_MIN {
            return Err(format!(
                "manager.analysis.unanimous_detect_after_ms must be at least {UNANIMOUS_DETECT_AFTER_MS_MIN}"
            ));
        }
        let pace = &self.pace;
        let times =
            [pace.ping_ms, pace.ping_timeout_ms, pace.poll_ms, pace.poll_timeout_ms, pace.failure_poll_ms];
        if times.into_iter().chain(pace.write_ms).any(|ms| ms < 10) {
            return Err("the times of [manager.pace] must be at least 10 ms".into());
        }
        let mut names = HashSet::new();
        for hook in self.fence_hooks.iter().chain(&self.route_hooks) {
            if hook.name.is_empty() || !names.insert(&hook.name) {
                return Err(format!("manager: hook {:?}: each hook needs a unique name", hook.name));
            }
            if hook.command.first().is_none_or(String::is_empty) {
                return Err(format!("manager: hook {:?}: its command names no program", hook.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ManagerConfig, String> {
        let config: ManagerConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check().map(|()| config)
    }

    #[test]
    fn a_manager_without_settings_only_watches_the_cluster() {
        let config = read("").unwrap();
        assert!(!config.automatic && !config.across_regions);
        assert_eq!(config.lease, LeaseConfig::File);
        assert_eq!(config.semi_sync_acks, 1);
        assert_eq!(config.analysis, AnalysisSettings::default());
    }

    #[test]
    fn contradictions_are_errors() {
        let check = |text: &str, expected: &str| {
            let complaint = read(text).expect_err(text);
            assert!(complaint.contains(expected), "expected {expected:?} in the error: {complaint}");
        };
        check("semi_sync_acks = 0", "at least 1");
        check("lease = 'etcd'", "together");
        check("etcd_endpoints = ['http://a:2379']", "together");
        check("lease = 'etcd'\netcd_endpoints = ['http://a:2379']\netcd_user = 'u'", "together");
        check("etcd_ca_file = 'ca.pem'", "without manager.etcd_endpoints");
        check("lease_ttl_ms = 100", "2000");
        check("replica_password_file = 'p'", "without");
        check("[analysis]\nunanimous_detect_after_ms = 499", "at least 500");
        check("[pace]\nping_ms = 1", "at least 10");
        check("[pace]\npong_ms = 100", "pong_ms");
        check("[[fence_hook]]\nname = 'off'\ncommand = []", "no program");
        let hook = "[[fence_hook]]\nname = 'off'\ncommand = ['/bin/true']\n";
        check(&format!("{hook}{}", hook.replace("fence", "route")), "a unique name");
    }

    #[test]
    fn old_spellings_of_keys_are_read() {
        let old = "unverified_ms_max = 7\n[analysis]\nagreed_after_ms = 800\n\
                   [pace]\nlook_ms = 11\nlook_timeout_ms = 12\nhurried_look_ms = 13";
        let config = read(old).unwrap();
        assert_eq!(config.primary_state_max_age_ms, 7);
        assert_eq!(config.analysis.unanimous_detect_after_ms, 800);
        let pace = &config.pace;
        assert_eq!((pace.poll_ms, pace.poll_timeout_ms, pace.failure_poll_ms), (11, 12, 13));
    }

    #[test]
    fn paths_are_relative_to_the_configuration_file() {
        let mut config = read(
            "replica_user = 'r'\nreplica_password_file = 'p'\n[[route_hook]]\nname = 'a'\ncommand = ['./a', 'b/c']\n[[route_hook]]\nname \
             = 'b'\ncommand = ['true']",
        )
        .unwrap();
        config.rebase(Path::new("/etc/tailwater"));
        assert_eq!(config.replica_password_file.unwrap(), Path::new("/etc/tailwater/p"));
        assert_eq!(config.route_hooks[0].command, ["/etc/tailwater/./a", "b/c"]);
        assert_eq!(config.route_hooks[1].command, ["true"]);
    }
}
