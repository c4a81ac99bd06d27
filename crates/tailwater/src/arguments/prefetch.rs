//! Arguments of `prefetch`.

use std::path::PathBuf;

use clap::Args;
use tailwater_session::TlsMode;
use tailwater_session::option_file::parse_tls_mode;

use super::SourceServerArgs;

#[derive(Debug, Args)]
pub struct PrefetchArgs {
    /// The replica whose pages are read. Without options for the source (--source-host and others), the
    /// binlog is read from the source that the replica's replication status shows, with the replica's user.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub replica: String,
    /// Option file with a [client] group for the replica, instead of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub replica_defaults_file: Option<PathBuf>,
    /// User name on the replica. The password is read from the option file or TAILWATER_PASSWORD.
    #[arg(long, value_name = "USER")]
    pub replica_user: Option<String>,
    /// TLS mode to the replica: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY. Default:
    /// VERIFY_CA with --replica-ssl-ca, else PREFERRED.
    #[arg(long, value_name = "MODE", value_parser = parse_tls_mode)]
    pub replica_ssl_mode: Option<TlsMode>,
    /// PEM file of the certificate authorities that the replica's certificate is verified against.
    #[arg(long, value_name = "FILE")]
    pub replica_ssl_ca: Option<PathBuf>,
    /// Replication channel of the replica (MariaDB: name of the connection). Needed if it has several.
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    #[command(flatten)]
    pub source: SourceServerArgs,
    #[command(flatten)]
    pub how: PrefetchHowArgs,
    /// Print the figures every N seconds: a line of text, or an object with --output json.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub report_s: u64,
    /// End after N seconds. Default: run until interrupted.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub run_s: Option<u64>,
}

/// How far ahead the prefetch reads, and how.
#[derive(Debug, Args)]
pub struct PrefetchHowArgs {
    /// Number of connections that read pages on the replica.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: u16,
    /// Leave transactions to the replica that are nearer than this to the applied one, in seconds of commit
    /// time and in --ahead-bytes-min.
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    pub ahead_s_min: u64,
    /// The distance in bytes of the binlog below which transactions are left to the replica: see
    /// --ahead-s-min.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    pub ahead_bytes_min: u64,
    /// Read at most this far ahead of the applied transaction, in seconds of commit time.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..))]
    pub ahead_s_max: u64,
    /// Read at most this far ahead of the applied transaction, in bytes of the binlog.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub ahead_bytes_max: u64,
    /// A query that returns more rows for a key is slow and is not repeated for a while.
    #[arg(long, value_name = "ROWS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub slow_rows_max: u64,
    /// How long slow queries are not repeated, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub slow_keep_s: u64,
    /// Keep on reading even if the measurement shows that it does not pay.
    #[arg(long)]
    pub always: bool,
    /// Resource group of the reading sessions, with a lower thread priority (MySQL).
    #[arg(long, value_name = "NAME")]
    pub resource_group: Option<String>,
}
