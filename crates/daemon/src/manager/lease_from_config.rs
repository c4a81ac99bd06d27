//! Creates the lease that the configuration describes.

use std::path::Path;

use tailwater_manager::lease::{
    EtcdLease, EtcdOptions, EtcdUser, EtcdValue, FileLease, LeaseTask, LeaseTimes,
};

use crate::options_from_config;
use tailwater_config::{LeaseConfig, ManagerConfig};

/// Starts to acquire the lease for one source's cluster. A lease in a file is in `folder`.
///
/// # Errors
/// If the times or the endpoints of the lease are invalid, or a file cannot be read.
pub fn start(config: &ManagerConfig, holder: &str, folder: &Path, source: &str) -> anyhow::Result<LeaseTask> {
    let terms = LeaseTimes::of(config.lease_ttl_ms)?;
    Ok(match config.lease {
        LeaseConfig::File => {
            let path = folder.join(format!("{source}.lease"));
            LeaseTask::start(FileLease::new(path, holder, terms.ttl_ms), terms)
        }
        LeaseConfig::Etcd => {
            let key = format!("{}{source}", config.etcd_prefix);
            LeaseTask::start(EtcdLease::new(etcd_options(config, holder, key, terms)?)?, terms)
        }
    })
}

/// Reads the files that the lease needs, without acquiring the lease.
///
/// # Errors
/// The errors of [`start`].
pub fn check(config: &ManagerConfig) -> anyhow::Result<()> {
    let terms = LeaseTimes::of(config.lease_ttl_ms)?;
    if config.lease == LeaseConfig::Etcd {
        EtcdLease::new(etcd_options(config, "", config.etcd_prefix.clone(), terms)?)?;
    }
    Ok(())
}

/// Returns access to a value in etcd, under a key next to the key of the lease. Returns `None` if the lease
/// is in a file, because then only one manager exists.
///
/// # Errors
/// The errors of [`start`].
pub fn etcd_value(
    config: &ManagerConfig,
    holder: &str,
    source: &str,
    name: &str,
) -> anyhow::Result<Option<EtcdValue>> {
    if config.lease == LeaseConfig::File {
        return Ok(None);
    }
    let key = format!("{}{source}/{name}", config.etcd_prefix);
    let terms = LeaseTimes::of(config.lease_ttl_ms)?;
    Ok(Some(EtcdValue::new(etcd_options(config, holder, key, terms)?)?))
}

fn etcd_options(
    config: &ManagerConfig,
    holder: &str,
    key: String,
    terms: LeaseTimes,
) -> anyhow::Result<EtcdOptions> {
    let user = match (&config.etcd_user, &config.etcd_password_file) {
        (Some(name), Some(file)) => {
            Some(EtcdUser { name: name.clone(), password: options_from_config::first_line(file)? })
        }
        _ => None,
    };
    Ok(EtcdOptions {
        endpoints: config.etcd_endpoints.iter().map(|url| url.expose().to_owned()).collect(),
        key,
        holder: holder.to_owned(),
        ttl_ms: terms.ttl_ms,
        request_ms_max: terms.request_ms_max,
        user,
        ca_file: config.etcd_ca_file.clone(),
    })
}
