//! The lease as configured.

use std::path::Path;

use tailwater_manager::lease::{EtcdLease, EtcdOptions, EtcdUser, FileLease, LeaseTask, Terms};

use crate::config::{LeaseConfig, ManagerConfig};
use crate::wiring;

/// Begins to ask for the lease of one source's cluster. A file of it lies in `folder`.
///
/// # Errors
/// If its times, or the endpoints, make no sense, or a file of it cannot be read.
pub fn start(config: &ManagerConfig, holder: &str, folder: &Path, source: &str) -> anyhow::Result<LeaseTask> {
    let terms = Terms::of(config.lease_ttl_ms)?;
    Ok(match config.lease {
        LeaseConfig::File => {
            let path = folder.join(format!("{source}.lease"));
            LeaseTask::start(FileLease::new(path, holder, terms.ttl_ms), terms)
        }
        LeaseConfig::Etcd => {
            let user = match (&config.etcd_user, &config.etcd_password_file) {
                (Some(name), Some(file)) => {
                    Some(EtcdUser { name: name.clone(), password: wiring::first_line(file)? })
                }
                _ => None,
            };
            let options = EtcdOptions {
                endpoints: config.etcd_endpoints.clone(),
                key: format!("{}{source}", config.etcd_prefix),
                holder: holder.to_owned(),
                ttl_ms: terms.ttl_ms,
                request_ms_max: terms.request_ms_max,
                user,
                ca_file: config.etcd_ca_file.clone(),
            };
            LeaseTask::start(EtcdLease::new(options)?, terms)
        }
    })
}
