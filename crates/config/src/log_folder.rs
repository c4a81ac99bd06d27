//! `[log]`: the folder of the log, its archive, and how long the log is kept.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tailwater_wire::url_credentials::has_login;

use crate::SourceConfig;

/// `[log]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// The folder with one subfolder per source; relative to the configuration file.
    pub directory: PathBuf,
    /// When a commit is acknowledged and channels may apply it. [`LogConfig::ack_of`] gives the default,
    /// which depends on the source.
    pub ack: Option<AckConfig>,
    /// Sealed segments older than this are removed; unlimited if absent.
    pub retention_hours_max: Option<u64>,
    /// The oldest sealed segments are removed while a source's log is larger than this; unlimited if absent.
    pub retention_bytes_max: Option<u64>,
    /// The archive of sealed segments: `s3://BUCKET/PREFIX`, or a folder, relative to the configuration file;
    /// none if absent.
    pub archive: Option<String>,
    /// The endpoint of an S3 store other than Amazon's.
    pub archive_endpoint: Option<String>,
    /// The bucket's region.
    pub archive_region: Option<String>,
    /// Whether the bucket name is in the path of the URL (the default) instead of in the host name.
    pub archive_path_style: Option<bool>,
    /// Whether the endpoint may be reached without TLS. If absent, the environment variable `AWS_ALLOW_HTTP`
    /// decides.
    pub archive_allow_http: Option<bool>,
    /// Interval between two rounds of archiving, in milliseconds.
    #[serde(default = "default_archive_interval_ms")]
    pub archive_interval_ms: u64,
    /// Archived segments older than this are removed, unless the log directory still has them. Unlimited if
    /// absent.
    pub archive_retention_hours_max: Option<u64>,
    /// The log reserves disk space for a segment in steps of this size, in bytes.
    #[serde(default = "default_preallocate_bytes")]
    pub preallocate_bytes: u64,
}

/// `log.ack`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AckConfig {
    /// After fdatasync: survives a crash of the machine.
    Durable,
    /// After write(2): survives a crash of Tailwater, but not of its machine.
    Received,
}

impl LogConfig {
    /// Returns when the log of a source acknowledges commits, from the configuration or the default. With
    /// semi-sync the default is `durable`, because clients wait for the ACK and rely on it. Without semi-sync
    /// the log is like a relay log, so channels do not wait for the disk either
    /// (docs/adr/029-asynchronous-source-log.md).
    pub fn ack_of(&self, source: &SourceConfig) -> AckConfig {
        self.ack.unwrap_or(if source.semi_sync { AckConfig::Durable } else { AckConfig::Received })
    }
}

impl LogConfig {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.archive_interval_ms < 100 {
            return Err("log.archive_interval_ms must be at least 100".into());
        }
        let details = [
            ("archive_endpoint", self.archive_endpoint.is_some()),
            ("archive_region", self.archive_region.is_some()),
            ("archive_path_style", self.archive_path_style.is_some()),
            ("archive_allow_http", self.archive_allow_http.is_some()),
            ("archive_retention_hours_max", self.archive_retention_hours_max.is_some()),
        ];
        if let Some((key, _)) = details.iter().find(|(_, given)| *given && self.archive.is_none()) {
            return Err(format!("log.{key} is given without log.archive"));
        }
        for (key, url) in [("archive", &self.archive), ("archive_endpoint", &self.archive_endpoint)] {
            if url.as_ref().is_some_and(|url| has_login(url)) {
                return Err(format!(
                    "log.{key} must not contain a login; give it in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                ));
            }
        }
        if self.preallocate_bytes < 64 << 10 {
            return Err("log.preallocate_bytes must be at least 65536".into());
        }
        Ok(())
    }
}

fn default_preallocate_bytes() -> u64 {
    16 << 20
}

fn default_archive_interval_ms() -> u64 {
    10_000
}
