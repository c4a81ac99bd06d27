//! The throttle conditions given on the command line.

use std::time::Duration;

use anyhow::Context;
use tailwater_session::{ConnectOptions, Endpoint};
use tailwater_tables::{Throttle, ThrottleQuery, ThrottleRules};

use crate::arguments::ThrottleArgs;

/// Starts the checks that pause the work. `server` is the server on which the work runs.
///
/// # Errors
/// If the address of a replica is invalid.
pub(super) fn throttle(arguments: &ThrottleArgs, server: &ConnectOptions) -> anyhow::Result<Throttle> {
    let replicas = arguments.throttle_replica.iter().map(|name| {
        let endpoint = endpoint(name)?;
        Ok(ConnectOptions { endpoint, ..server.clone() })
    });
    let rules = ThrottleRules {
        replicas: replicas.collect::<anyhow::Result<_>>()?,
        replica_lag_max: Duration::from_secs(arguments.replica_lag_max_s),
        threads_running_max: arguments.threads_running_max,
        query: arguments
            .throttle_query
            .clone()
            .map(|sql| ThrottleQuery { sql, max: arguments.throttle_query_max }),
        every: Duration::from_millis(arguments.throttle_every_ms),
    };
    Ok(Throttle::start(rules, server.clone()))
}

/// Parses a server address: `host`, `host:port`, `[::1]:port`.
fn endpoint(name: &str) -> anyhow::Result<Endpoint> {
    const PORT: u16 = 3306;
    if let Some(rest) = name.strip_prefix('[') {
        let (host, port) =
            rest.split_once(']').with_context(|| format!("{name}: expected [ADDRESS]:PORT"))?;
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().with_context(|| format!("{name}: {port:?} is not a port number"))?,
            None => PORT,
        };
        return Ok(Endpoint::tcp(host, port));
    }
    match name.split_once(':') {
        Some((host, port)) => {
            let port = port.parse().with_context(|| format!("{name}: {port:?} is not a port number"))?;
            Ok(Endpoint::tcp(host, port))
        }
        None => Ok(Endpoint::tcp(name, PORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_are_parsed() {
        assert_eq!(endpoint("db1").unwrap(), Endpoint::tcp("db1", 3306));
        assert_eq!(endpoint("db1:33").unwrap(), Endpoint::tcp("db1", 33));
        assert_eq!(endpoint("[::1]:33").unwrap(), Endpoint::tcp("::1", 33));
        assert!(endpoint("db1:x").is_err());
    }
}
