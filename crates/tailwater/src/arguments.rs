//! The command-line arguments. A command is a noun, then a verb: `tailwater log verify`. The doc comments
//! below are the help texts.

#![allow(
    missing_docs,
    reason = "doc comments are help texts; a doc comment on an argument group would replace the help text of its command"
)]

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use tailwater_config::{Config, ConfigError, Overrides};
#[cfg(feature = "lab")]
use tailwater_lab::arguments::{BenchCommand, DemoArgs, SandboxCommand};
#[cfg(feature = "lab")]
use tailwater_server_suites::arguments::TrialCommand;
use tailwater_session::TlsMode;
use tailwater_session::option_file::parse_tls_mode;
use tailwater_wire::Flavour;

mod channel;
mod check;
mod copy;
mod dump;
mod init;
mod job;
mod log;
mod manager;
mod prefetch;
mod shell_integration;
mod top;

pub use channel::{ChannelAdd, ChannelCommand, ChannelEditArgs, ChannelName, CommitOrderArg, GtidArg};
pub use check::{CheckArgs, CompareArgs, DigestsArg, RepairArgs, ThrottleArgs, WaitArg};
pub use copy::{
    CloneArgs, CopyArgs, CopyBinaryArgs, CopyHowArgs, DeferIndexesArg, SourceServerArgs, TargetServerArgs,
};
pub use dump::{CompressionArg, DumpArgs, FormatArg, LoadArgs};
pub use init::InitArgs;
pub use job::{DaemonArgs, JobCommand, JobDaemon, JobId};
pub use log::{ArchiveArgs, CatArgs, LogCommand, LogSource, PurgeArgs, StatsArgs, TimeArgs};
pub use manager::{
    DowntimeArgs, FailoverArgs, ManagerCommand, ManagerScope, RaiseTermsArgs, RejoinArgs, SwitchoverArgs,
};
pub use prefetch::{PrefetchArgs, PrefetchHowArgs};
pub use shell_integration::{CompletionShell, CompletionsArgs, ManArgs};
pub use top::{ScreenArg, TopArgs};

/// Everything downstream of the binlog: keeps MySQL and MariaDB data safe, in step and available.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 usage error, 3 differences or damage found, \
                        4 refused because unsafe; nothing was changed.")]
pub struct Cli {
    /// Output format.
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Show row values in error messages and in reported differences. Key values are always shown; secrets
    /// are never shown
    #[arg(long, global = true)]
    pub show_values: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// Format of the results on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people.
    Text,
    /// JSON: one object, or one object per line if there are several results.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "lab")]
    /// Demonstrate capture, failover, binlog serving and apply on servers that this command starts locally,
    /// with injected faults.
    Demo(DemoArgs),
    #[cfg(feature = "lab")]
    /// Start and stop MariaDB and MySQL test servers on this machine.
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Prepare a primary for capture: find its replicas, create an account, and write a configuration. Prints
    /// the plan first. Exit code 3: the check at the end found problems; 4: the plan is unsafe, and nothing
    /// was changed.
    Init(InitArgs),
    /// Run the daemon until SIGTERM or SIGINT: it captures every configured source, serves and applies the
    /// logs, and manages the clusters. SIGHUP reloads the configuration. Exit code 78: the configuration is
    /// wrong.
    Run(ConfigFile),
    /// Show whether all is well with the running daemon: sources, log disk, binlog servers, channels and
    /// clusters, and what to do about each problem. Exit code 3: something is wrong.
    Status(ConfigFile),
    /// Watch the running daemon in a terminal: problems, write rates, channels and their workers, clusters,
    /// trends. Key `?` lists the keys, `q` quits.
    Top(TopArgs),
    /// Check a configuration file, or print one to start from.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List, print, verify, archive and purge the transaction log.
    #[command(subcommand)]
    Log(LogCommand),
    /// Control the channels of the running daemon. A channel applies a source's log to a target.
    #[command(subcommand)]
    Channel(ChannelCommand),
    /// Show the replication topology of each source as a tree with its problems: the primary, Tailwater's
    /// relays, the replicas and the targets.
    Topology(TopologyArgs),
    /// Promote another server because the primary has failed, unless acknowledged commits would be lost. Exit
    /// code 4: a safety rule refused the failover, and nothing was changed.
    Failover(FailoverArgs),
    /// Promote another server while the primary is alive. Clients cannot write for a limited time. Exit code
    /// 4: the limit would be exceeded or a safety rule refused the switchover, and the cluster is as it was
    /// before.
    Switchover(SwitchoverArgs),
    /// Make a former primary a replica again: undo the transactions that only this server has, apply the
    /// transactions that it lost from the log, and compare its rows with the rows of the primary. Exit code
    /// 3: rows differ; 4: the server cannot be rejoined.
    Rejoin(RejoinArgs),
    /// Show and control the manager of the daemon: status, pause, downtime, acknowledgment of a failover.
    #[command(subcommand)]
    Manager(ManagerCommand),
    /// Show and cancel jobs: dumps, loads, copies, checks, repairs and rejoins.
    #[command(subcommand)]
    Job(JobCommand),
    /// Dump databases into a folder or S3, on several connections that see one consistent snapshot. The lock
    /// that starts the snapshot is the shortest that the server allows.
    Dump(DumpArgs),
    /// Load a dump into a server on several connections. An interrupted load can be resumed, because each
    /// file and its progress record are committed together.
    Load(LoadArgs),
    /// Copy databases from one server to another without files in between: dump and load run at the same
    /// time.
    Copy(CopyArgs),
    /// Compare the data of a source and of its replica or target while clients write to them. Takes no locks
    /// and changes no rows. Exit code 3: something differs.
    Check(CheckArgs),
    /// Change each row of the target that differs from the source, then compare the row again. Exit code 3:
    /// differences remain.
    Repair(RepairArgs),
    /// Read the pages that a cold native replica needs next into its buffer pool, ahead of its applier. Sends
    /// only SELECT statements, and stops itself while it does not pay.
    Prefetch(PrefetchArgs),
    /// Print the GRANT statements for capture, apply, dump, load, check, repair, failover and prefetch.
    Grants {
        /// Print only the statements for this server family: mysql or mariadb. Default: both.
        #[arg(long, value_parser = families())]
        server: Option<Flavour>,
        /// Account that the GRANT statements are for.
        #[arg(long, value_name = "ACCOUNT", default_value = "'tailwater'@'%'")]
        account: String,
    },
    /// Print a script that completes command lines of `tailwater` in a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages, one for each command, into a folder.
    Man(ManArgs),
    #[cfg(feature = "lab")]
    /// Run the benchmarks of the published figures. Each run also measures other tools.
    #[command(subcommand)]
    Bench(BenchCommand),
    #[cfg(feature = "lab")]
    /// Run test suites; for developers of Tailwater.
    #[command(subcommand, hide = true)]
    Trial(TrialCommand),
}

#[derive(Debug, Args)]
pub struct ConfigFile {
    /// Configuration file (TOML).
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub config: PathBuf,
    /// Set a key of the configuration, for example log.directory=/srv/log or source.NAME.host=db1. The value
    /// overrides the file and the environment. Can be repeated.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

impl ConfigFile {
    /// Settings that take precedence over the file: the environment and `--set`.
    pub fn overrides(&self) -> Overrides {
        Overrides::from_environment().with_flags(&self.set)
    }

    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// The errors of [`Config::load_with`].
    pub fn load(&self) -> Result<Config, ConfigError> {
        Config::load_with(&self.config, &self.overrides())
    }
}

#[derive(Debug, Args)]
pub struct TopologyArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Repeat every N seconds until interrupted. With --output json, each refresh prints one object per line.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub watch: Option<u64>,
    /// Maximum time to wait for the answer of each server, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub timeout_ms: u64,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file and report its errors. With --connect, also check the servers that it names
    /// and this machine. Exit code 3: there are problems.
    Check(ConfigCheckArgs),
    /// Print the settings in force, and whether each comes from the file, the environment, --set or is the
    /// default. Secrets are not shown.
    Show(ConfigFile),
    /// Let the running daemon read its configuration again. Prints what was applied, and what needs a
    /// restart. SIGHUP does the same.
    Reload(ConfigFile),
    /// Print a configuration file with every key: its meaning, unit and default.
    Default,
}

#[derive(Debug, Args)]
pub struct ConfigCheckArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Log in to each server, and check versions, encryption, privileges, binlog, GTIDs, semi-sync,
    /// server_ids and clocks; check this machine: the log's disk, the limit of open files, the listen
    /// addresses. Changes nothing.
    #[arg(long)]
    pub connect: bool,
}

/// Connection options. An option that is not given comes from the option file or the environment.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Option file with a [client] group, instead of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub defaults_file: Option<PathBuf>,
    /// Host of the server.
    #[arg(short = 'h', long)]
    pub host: Option<String>,
    /// TCP port of the server.
    #[arg(short = 'P', long)]
    pub port: Option<u16>,
    /// Unix socket file of the server.
    #[arg(short = 'S', long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// User name. The password is read from the option file or TAILWATER_PASSWORD.
    #[arg(short = 'u', long)]
    pub user: Option<String>,
    /// TLS mode: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY. Default: VERIFY_CA with
    /// --ssl-ca, else PREFERRED.
    #[arg(long, value_name = "MODE", value_parser = parse_tls_mode)]
    pub ssl_mode: Option<TlsMode>,
    /// PEM file of the certificate authorities that the server's certificate is verified against.
    #[arg(long, value_name = "FILE")]
    pub ssl_ca: Option<PathBuf>,
    /// PEM file of the client certificate.
    #[arg(long, value_name = "FILE")]
    pub ssl_cert: Option<PathBuf>,
    /// PEM file of the client's private key.
    #[arg(long, value_name = "FILE")]
    pub ssl_key: Option<PathBuf>,
}

/// Returns the clap parser for the name of a server family.
fn families() -> impl TypedValueParser<Value = Flavour> {
    PossibleValuesParser::new(["mariadb", "mysql"]).map(|name| match name.as_str() {
        "mariadb" => Flavour::MariaDb,
        _ => Flavour::MySql,
    })
}

impl Cli {
    /// Returns the clap definition. As in the mysql client, `-h` sets the host and does not print the help.
    /// Otherwise a backup script that passes `-h HOST` would get the help text and exit code 0.
    pub fn definition() -> clap::Command {
        without_short_help(Self::command())
    }
}

fn without_short_help(command: clap::Command) -> clap::Command {
    let help = clap::Arg::new("help").long("help").action(clap::ArgAction::Help).help("Print help");
    command.disable_help_flag(true).arg(help).mut_subcommands(without_short_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the command lines in the code blocks of a documentation page: the lines that begin with
    /// `tailwater`. Lines with `...` are skipped.
    fn command_lines(page: &str) -> Vec<String> {
        let code = page.lines().scan(false, |fenced, line| {
            *fenced ^= line.starts_with("```");
            Some((*fenced || line.starts_with("    ")).then_some(line))
        });
        let lines = code.flatten().map(|line| line.trim_start_matches([' ', '>', '$']));
        let commands = lines.filter(|line| line.starts_with("tailwater ") && !line.contains("..."));
        let cut = |line: &str| {
            // A command line ends before a pipe, a shell comment, or the next column of a table.
            let ends = [" | ", " # ", "   ", " > ", " && ", " &"];
            let end = ends.iter().filter_map(|end| line.trim_end().find(end)).min().unwrap_or(line.len());
            line.get(..end).unwrap_or(line).to_owned()
        };
        commands.map(cut).collect()
    }

    /// Splits a command line into words like a shell. Supports only the quotes that the pages use.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let (mut word, mut quote) = (String::new(), None);
        for character in line.chars() {
            match (character, quote) {
                ('\'' | '"', None) => quote = Some(character),
                (_, Some(open)) if character == open => quote = None,
                (' ', None) => words.push(std::mem::take(&mut word)),
                _ => word.push(character),
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn commands_in_the_docs_parse() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let pages: Vec<_> = ["how-to", "reference"]
            .iter()
            .flat_map(|folder| std::fs::read_dir(docs.join(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .collect();
        let mut found = 0;
        for page in pages.iter().filter(|page| page.extension().is_some_and(|kind| kind == "md")) {
            for line in command_lines(&std::fs::read_to_string(page).unwrap()) {
                found += 1;
                let parsed = Cli::definition().try_get_matches_from(words(&line));
                let is_help = parsed.as_ref().err().is_some_and(|error| !error.use_stderr());
                assert!(
                    parsed.is_ok() || is_help,
                    "{}: this command line cannot be parsed: {line}\n{}",
                    page.display(),
                    parsed.unwrap_err()
                );
            }
        }
        assert!(found > 40, "only {found} command lines were found in the documentation");
    }

    #[test]
    fn old_spellings_of_flags_are_accepted() {
        let parse = |line: &str| Cli::definition().try_get_matches_from(line.split(' ')).map(|_| ());
        for (old, new) in [
            ("tailwater check --digests here", "tailwater check --digests client"),
            ("tailwater copy --anew", "tailwater copy --restart"),
        ] {
            assert_eq!(
                parse(old).map_err(|error| error.kind()),
                parse(new).map_err(|error| error.kind()),
                "{old} and {new} give different results"
            );
            // The command lines of this test may lack required arguments. With any other parse error the test
            // fails.
            if let Err(error) = parse(old) {
                assert_eq!(
                    error.kind(),
                    clap::error::ErrorKind::MissingRequiredArgument,
                    "{old}: unexpected parse error: {error}"
                );
            }
        }
    }

    #[test]
    #[cfg(feature = "lab")]
    fn old_spellings_are_accepted() {
        for line in ["tailwater bench apply --only ours", "tailwater trial suites --plant"] {
            let parsed = Cli::definition().try_get_matches_from(words(line));
            assert!(parsed.is_ok(), "{line} cannot be parsed: {:?}", parsed.err());
        }
    }

    #[test]
    fn clap_definition_is_valid() {
        Cli::definition().debug_assert();
    }
}
