//! A cluster of three servers and the daemon, with the network links between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_daemon::api::clusters::ClusterReport;
use tailwater_lab::fault_trial::managed_cluster::{PRIMARY_NAME, report};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec, primary_options};
use tailwater_log::AckMode;
use tailwater_sandbox::network_link::Link;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{
    Ledger, ReplicaOf, ReservedPort, Server, ServerKind, ServerSpec, SlowSync, SteppedClock,
};
use tailwater_wire::Flavour;

use super::cluster_health_wait::PATIENCE;
use super::full_disk::Disk;
use crate::shell_session::{PROGRAM, Shell};

/// Settings of the manager. Intervals are shorter than the defaults, so that rounds are short. A former
/// primary rejoins automatically.
const MANAGER: &str = r#"
automatic = true
rejoin = true
replica_host = "127.0.0.2"
lease_ttl_ms = 4000
[manager.analysis]
detect_after_ms = 1500
stale_after_ms = 3000
cooldown_ms = 0
[manager.pace]
ping_timeout_ms = 300
poll_timeout_ms = 1000
poll_ms = 300
"#;

/// Returns a fence hook that confirms that the old primary is down. Without the hook, MariaDB needs an option
/// file with which it waits for ACKs after a restart, and no failover writes that file. A link accepts
/// connections even if its server is down. So the hook connects to the server itself.
fn old_primary_down_hook(addresses: &Path) -> String {
    let script = format!(
        "read -r port < {}/port-$TAILWATER_OLD_NAME && ! : > /dev/tcp/127.0.0.1/$port",
        addresses.display()
    );
    format!("\n[[manager.fence_hook]]\nname = \"gone\"\ncommand = [\"bash\", \"-c\", \"{script}\"]\n")
}

/// A cluster in which each server can be the primary.
pub struct Cluster {
    pub kind: ServerKind,
    pub durability: TrialDurability,
    /// The first server and the daemon.
    pub trial: Trial,
    others: Vec<Server>,
    /// The network links from the daemon to the servers, by the server's name.
    pub ways: BTreeMap<String, Link>,
    /// The network link from the replicas to the daemon's binlog server.
    pub log_way: Link,
    /// The network link that clients connect to. It leads to the current primary.
    pub front: Arc<Link>,
    /// The daemon's wall clock. `None` if this machine does not allow the test to set it.
    pub clock: Option<SteppedClock>,
    disks: BTreeMap<String, Disk>,
    http: ReservedPort,
    pub shell: Shell,
}

/// Returns the folder of a server's binlog.
fn binlog_folder(shell: &Shell, name: &str) -> PathBuf {
    shell.path().join(format!("binlog-{name}"))
}

/// Returns the options of every server, primary or replica.
fn options(kind: ServerKind, durability: TrialDurability, number: u32, binlogs: &Path) -> Vec<String> {
    let mut options = primary_options(kind);
    options.retain(|option| !option.starts_with("--server-id") && !option.starts_with("--log-bin"));
    let promised = u8::from(durability == TrialDurability::Full);
    options.extend([
        format!("--server-id={number}"),
        format!("--log-bin={}/binlog", binlogs.display()),
        format!("--sync-binlog={promised}"),
        format!("--innodb-flush-log-at-trx-commit={promised}"),
    ]);
    options.push(match kind.flavour() {
        Flavour::MySql => "--log-replica-updates=1".to_owned(),
        Flavour::MariaDb => "--log-slave-updates=1".to_owned(),
    });
    options
}

/// Returns further options of a primary, as an operator would set them in its option file. The primary waits
/// for ACKs after a restart, and accepts writes.
fn leading(kind: ServerKind) -> Vec<String> {
    ServerSpec::new(kind).semi_sync_source().options
}

/// Returns further options of a replica.
fn following(kind: ServerKind) -> Vec<String> {
    match kind.flavour() {
        Flavour::MySql => vec!["--read-only=1".into(), "--super-read-only=1".into()],
        Flavour::MariaDb => vec!["--read-only=1".into()],
    }
}

impl Cluster {
    pub async fn start(kind: ServerKind, durability: TrialDurability) -> Result<Self> {
        let shell = Shell::new()?;
        let mut disks = BTreeMap::new();
        let mut have_disk = |name: &str, folder: &Path| -> Result<()> {
            disks.extend(Disk::mount(folder)?.map(|disk| (name.to_owned(), disk)));
            Ok(())
        };
        have_disk("log", &shell.path().join("log"))?;
        for name in [PRIMARY_NAME, "db2", "db3"] {
            have_disk(name, &binlog_folder(&shell, name))?;
        }
        let spec = TrialSpec {
            kind,
            durability,
            options: options(kind, durability, 1, &binlog_folder(&shell, PRIMARY_NAME)),
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        };
        let follower = async |number: u32| {
            let name = format!("db{number}");
            let options = options(kind, durability, number, &binlog_folder(&shell, &name));
            let server = Server::start(ServerSpec::new(kind).name(name).options(options)).await?;
            server.create_replication_user().await?;
            server.sql(read_only(kind)).await?;
            anyhow::Ok(server)
        };
        let (trial, two, three) = tokio::join!(Trial::start(spec), follower(2), follower(3));
        let (mut trial, others) = (trial?, vec![two?, three?]);
        let http = ReservedPort::pick()?;
        let (mut ways, mut servers) = (BTreeMap::new(), Vec::new());
        let all = others.iter().map(|server| (server.name(), server.address()));
        for (name, address) in all.chain([(PRIMARY_NAME, trial.primary.address())]) {
            let way = Link::open(address).await?;
            servers.push((name.to_owned(), way.port()));
            shell.write(&format!("port-{name}"), &format!("{}\n", address.port()))?;
            ways.insert(name.to_owned(), way);
        }
        let serve = trial.serve_port();
        let log_way = Link::open_at(([127, 0, 0, 2], serve).into(), ([127, 0, 0, 1], serve).into()).await?;
        let front = Arc::new(Link::open(([127, 0, 0, 1], 1).into()).await?);
        front.refuse();
        let clock = match SlowSync::is_possible() {
            true => Some(SteppedClock::compile(shell.path())?),
            false => None,
        };
        trial.add_environment(clock.iter().flat_map(SteppedClock::environment));
        trial.add_channel(&format!(
            "\n[http]\nlisten = \"127.0.0.1:{}\"\nlook_interval_ms = 100\nstale_after_ms = 1000\n",
            http.number()
        ))?;
        let hook = match kind.flavour() {
            Flavour::MySql => String::new(),
            Flavour::MariaDb => old_primary_down_hook(shell.path()),
        };
        trial.manage_at(&servers, &format!("{MANAGER}{hook}"))?;
        trial.write_config("127.0.0.1", ways[PRIMARY_NAME].port())?;
        let mut cluster =
            Self { kind, durability, trial, others, ways, log_way, front, clock, disks, http, shell };
        cluster.begin().await?;
        Ok(cluster)
    }

    async fn begin(&mut self) -> Result<()> {
        self.trial.start_relay()?;
        self.trial.wait_captured().await?;
        let log = ReplicaOf { host: "127.0.0.2".into(), ..self.trial.replica_of_relay() };
        for server in &self.others {
            server.replicate(&log).await?;
        }
        let primary = &self.trial.primary;
        prepare(&primary.connect_options()).await?;
        primary.sql("CREATE USER app@'%' IDENTIFIED BY 'app'; GRANT ALL ON tw_load.* TO app@'%'").await?;
        self.trial.wait_until_observed().await
    }

    pub fn server(&self, name: &str) -> Result<&Server> {
        match name {
            PRIMARY_NAME => Ok(&self.trial.primary),
            name => self.others.iter().find(|server| server.name() == name).context(name.to_owned()),
        }
    }

    pub fn server_mut(&mut self, name: &str) -> Result<&mut Server> {
        match name {
            PRIMARY_NAME => Ok(&mut self.trial.primary),
            name => self.others.iter_mut().find(|server| server.name() == name).context(name.to_owned()),
        }
    }

    /// Returns the names of all servers.
    pub fn names(&self) -> Vec<String> {
        self.ways.keys().cloned().collect()
    }

    /// Returns the names of all servers except `leader`.
    pub fn names_but(&self, leader: &str) -> Vec<String> {
        self.names().into_iter().filter(|name| name != leader).collect()
    }

    /// Returns the address of each server.
    pub fn addresses(&self) -> Result<BTreeMap<String, SocketAddr>> {
        self.names().into_iter().map(|name| Ok((name.clone(), self.server(&name)?.address()))).collect()
    }

    /// Returns the port of the daemon's HTTP listener for load balancers.
    pub fn http(&self) -> u16 {
        self.http.number()
    }

    pub fn has_disks(&self) -> bool {
        self.disks.len() > self.others.len() + 1
    }

    /// Returns the disk of a server's binlog. The name `log` means the disk of the daemon's log.
    pub fn disk(&self, name: &str) -> Result<&Disk> {
        self.disks.get(name).with_context(|| format!("{name} has no disk that the test can fill"))
    }

    /// Starts a killed server again, as the primary if `leads` is true, else as a replica.
    pub async fn start_again(&mut self, name: &str, leads: bool) -> Result<()> {
        let number = name.trim_start_matches("db").parse()?;
        let mut all = options(self.kind, self.durability, number, &binlog_folder(&self.shell, name));
        all.extend(if leads { leading(self.kind) } else { following(self.kind) });
        let server = self.server_mut(name)?;
        server.set_options(all);
        server.start_again().await?;
        Ok(())
    }

    /// Returns the manager's report; `None` if the daemon does not answer.
    pub async fn report(&self) -> Option<ClusterReport> {
        let config = self.shell.path().join("tailwater.toml");
        let asked = tokio::task::spawn_blocking(move || report(&config));
        tokio::time::timeout(Duration::from_secs(2), asked).await.ok()?.ok()?
    }

    /// Returns the last log lines of all processes, for a failure message.
    pub fn last_words(&self) -> String {
        let tail = |path: &Path, lines: usize| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(lines).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        let mut words = format!("the end of the daemon's log:\n{}", tail(&self.trial.relay_output(), 60));
        for name in self.names() {
            if let Ok(server) = self.server(&name) {
                words += &format!("\nthe end of the log of {name}:\n{}", tail(server.error_log(), 10));
            }
        }
        words
    }

    /// Checks that all servers have the same rows, and that these are the rows recorded in the ledger.
    pub async fn compare_all(&self, leader: &str, ledger: &Ledger) -> Result<()> {
        self.wait_equal_gtids(leader).await?;
        let mut expected = None;
        for name in self.names() {
            let server = self.server(&name)?;
            let report = ledger.compare_with_server(&server.connect_options()).await?;
            let wrong = report.missing.count + report.altered.count + report.failed_but_present.count;
            ensure!(
                wrong == 0 && report.unlisted == 0,
                "{name} lacks acknowledged commits, or has rows that no client wrote: {report:?}"
            );
            let sums = server
                .sql("CHECKSUM TABLE tw_load.tw_ledger, tw_load.orders, tw_load.items, tw_load.accounts, tw_load.documents")
                .await?;
            let expected = expected.get_or_insert_with(|| sums.clone());
            ensure!(*expected == sums, "{name} has the checksums {sums:?}, another server has {expected:?}");
        }
        Ok(())
    }

    /// Waits until all other servers have executed all transactions that the primary has now.
    pub async fn wait_equal_gtids(&self, leader: &str) -> Result<()> {
        let variable = match self.kind.flavour() {
            Flavour::MySql => "gtid_executed",
            Flavour::MariaDb => "gtid_binlog_pos",
        };
        let position = self.server(leader)?.sql(&format!("SELECT @@global.{variable}")).await?;
        let position = position.concat().replace("\\n", "");
        for name in self.names_but(leader) {
            let server = self.server(&name)?;
            let is_there = server.wait_for_gtids(&position, PATIENCE).await?;
            ensure!(
                is_there,
                "{name} does not reach the GTIDs {position}: {:?}",
                server.replica_status().await?
            );
        }
        Ok(())
    }

    pub async fn stop(mut self) -> Result<()> {
        self.trial.stop_relay().await?;
        self.shell.run("log verify log/primary")?.exits(0);
        Ok(())
    }
}

/// Returns the statement that makes a server read-only for clients.
fn read_only(kind: ServerKind) -> &'static str {
    match kind.flavour() {
        Flavour::MySql => "SET GLOBAL super_read_only = 1",
        Flavour::MariaDb => "SET GLOBAL read_only = 1",
    }
}
