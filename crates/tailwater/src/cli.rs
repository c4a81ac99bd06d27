//! The command line: noun, then verb. Defined once here; help texts are the reference.

#![allow(
    missing_docs,
    reason = "doc comments are help texts here, and those of groups would displace their parents'"
)]

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
#[cfg(feature = "lab")]
use tailwater_lab::args::{BenchCommand, DemoArgs, SandboxCommand, TrialCommand};
use tailwater_session::TlsMode;
use tailwater_session::option_file::parse_tls_mode;
use tailwater_wire::Flavour;

mod channel;
mod checking;
mod copying;
mod dumping;
mod log;
mod managing;

pub use channel::{ChannelAdd, ChannelCommand, ChannelEditArgs, ChannelName, CommitOrderArg, GtidArg};
pub use checking::{CheckArgs, CompareArgs, DigestsArg, RepairArgs, ThrottleArgs, WaitArg};
pub use copying::{
    CloneArgs, CopyArgs, CopyBinaryArgs, CopyHowArgs, DeferIndexesArg, SourceServerArgs, TargetServerArgs,
};
pub use dumping::{CompressionArg, DumpArgs, FormatArg, LoadArgs};
pub use log::{ArchiveArgs, CatArgs, LogCommand, LogSource, PurgeArgs, StatsArgs, TimeArgs};
pub use managing::{
    DowntimeArgs, FailoverArgs, ManagerCommand, ManagerScope, RaiseTermsArgs, RejoinArgs, SwitchoverArgs,
};

/// Everything downstream of the binlog: keeps MySQL and MariaDB data safe, in step and available.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 found what it looked for (a failed verification, drift), \
                        4 refused because it would be unsafe."
)]
pub struct Cli {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Show values of rows, too, in error messages and of rows that differ; keys of these are always shown, and secrets never.
    #[arg(long, global = true)]
    pub show_values: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs: one JSON object, or one per line where there are many.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "lab")]
    /// The main job end to end on real servers started locally.
    Demo(DemoArgs),
    #[cfg(feature = "lab")]
    /// Real MariaDB and MySQL servers on this machine, for trying things out.
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// The daemon: captures every source of the configuration into the log until it is told to stop.
    Run(ConfigFile),
    /// The configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// The durable transaction log.
    #[command(subcommand)]
    Log(LogCommand),
    /// Where the log is applied: channels of a running daemon.
    #[command(subcommand)]
    Channel(ChannelCommand),
    /// Who reads from whom: the primary, Tailwater, replicas and targets of each source as a tree, with what is wrong.
    Topology(TopologyArgs),
    /// Makes another server the primary of a source whose own has failed, if nothing that was acknowledged is lost by it. Exits
    /// with 4 if a rule refuses; then everything is as it was.
    Failover(FailoverArgs),
    /// Makes another server the primary of a source whose own is alive, with a bound on how long nobody can write. Exits with 4
    /// if that cannot be kept or a rule refuses; then everything is as it was.
    Switchover(SwitchoverArgs),
    /// Makes a former primary a replica again: what only it has is undone, what it lost is done again from the log, and its rows are
    /// compared with the primary's. Exits with 3 if something differs, with 4 if it cannot be done.
    Rejoin(RejoinArgs),
    /// The manager in the daemon: what it sees, and what holds it back.
    #[command(subcommand)]
    Manager(ManagerCommand),
    /// Dumps databases into a folder: rows on several connections at one point in time, with the shortest lock that does.
    Dump(DumpArgs),
    /// Loads a dump into a server: rows on several connections, each file in one transaction with the note that it is there.
    Load(LoadArgs),
    /// Copies databases from one server into another, as a dump and a load at once with no disk between.
    Copy(CopyArgs),
    /// Compares the data of two servers that are kept in step, while they are written to: no locks, no writes. Exits with 3 if
    /// something differs.
    Check(CheckArgs),
    /// Makes rows of the target that differ as they are on the source, and compares them again. Exits with 3 if something
    /// remains.
    Repair(RepairArgs),
    /// The GRANT statements that capturing, applying, dumping and loading need.
    Grants {
        /// The family of the server; both if absent.
        #[arg(long, value_parser = families())]
        server: Option<Flavour>,
        /// The account that they are for.
        #[arg(long, value_name = "ACCOUNT", default_value = "'tailwater'@'%'")]
        account: String,
    },
    #[cfg(feature = "lab")]
    /// The measurements behind every claim, against real peers, in one run.
    #[command(subcommand)]
    Bench(BenchCommand),
    #[cfg(feature = "lab")]
    /// Trials for developers of this program.
    #[command(subcommand, hide = true)]
    Trial(TrialCommand),
}

#[derive(Debug, Args)]
pub struct ConfigFile {
    /// Configuration file (TOML).
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
pub struct TopologyArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Look again after so many seconds, until interrupted; with --output json one object per line.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub watch: Option<u64>,
    /// How long one server may take to answer.
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub timeout_ms: u64,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Reads a configuration file and says what is wrong with it, if anything.
    Check(ConfigFile),
}

/// Where a server is and who asks; what is not said here is taken from the option file and the environment.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Option file with a [client] group, in place of ~/.my.cnf.
    #[arg(long, value_name = "FILE")]
    pub defaults_file: Option<PathBuf>,
    /// The server's host.
    #[arg(short = 'h', long)]
    pub host: Option<String>,
    /// Its port.
    #[arg(short = 'P', long)]
    pub port: Option<u16>,
    /// Its Unix socket.
    #[arg(short = 'S', long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// The user; the password is taken from the option file or TAILWATER_PASSWORD.
    #[arg(short = 'u', long)]
    pub user: Option<String>,
    /// How much TLS the connection needs: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY. VERIFY_CA if --ssl-ca is
    /// given, else PREFERRED.
    #[arg(long, value_name = "MODE", value_parser = parse_tls_mode)]
    pub ssl_mode: Option<TlsMode>,
    /// PEM file of the authorities that may have signed the server's certificate, which is then verified.
    #[arg(long, value_name = "FILE")]
    pub ssl_ca: Option<PathBuf>,
    /// PEM file of the client's own certificate.
    #[arg(long, value_name = "FILE")]
    pub ssl_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE")]
    pub ssl_key: Option<PathBuf>,
}

/// The families of servers by their names on the command line.
fn families() -> impl TypedValueParser<Value = Flavour> {
    PossibleValuesParser::new(["mariadb", "mysql"]).map(|name| match name.as_str() {
        "mariadb" => Flavour::MariaDb,
        _ => Flavour::MySql,
    })
}

impl Cli {
    /// The command line as clap has it. `-h` is the host, as in the servers' own programs, and never help: who asks for a backup
    /// of a host must not get a help text and an exit code of 0.
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

    /// The command lines of a page: those that begin with the program's name, in code. Those with `...` are none yet.
    fn command_lines(page: &str) -> Vec<String> {
        let code = page.lines().scan(false, |fenced, line| {
            *fenced ^= line.starts_with("```");
            Some((*fenced || line.starts_with("    ")).then_some(line))
        });
        let lines = code.flatten().map(|line| line.trim_start_matches([' ', '>', '$']));
        let commands = lines.filter(|line| line.starts_with("tailwater ") && !line.contains("..."));
        let cut = |line: &str| {
            // What it is piped to, a comment, or what is beside it in another column.
            let ends = [" | ", " # ", "   ", " > ", " && ", " &"];
            let end = ends.iter().filter_map(|end| line.trim_end().find(end)).min().unwrap_or(line.len());
            line.get(..end).unwrap_or(line).to_owned()
        };
        commands.map(cut).collect()
    }

    /// Splits a command line as a shell does, as far as the pages need it.
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
    fn commands_in_the_book_are_commands() {
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
                assert!(parsed.is_ok() || is_help, "{}: {line}\n{}", page.display(), parsed.unwrap_err());
            }
        }
        assert!(found > 40, "only {found} command lines were found");
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
                "{old}"
            );
            // Only the required arguments that both lines leave out may be missing.
            if let Err(error) = parse(old) {
                assert_eq!(error.kind(), clap::error::ErrorKind::MissingRequiredArgument, "{error}");
            }
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::definition().debug_assert();
    }
}
