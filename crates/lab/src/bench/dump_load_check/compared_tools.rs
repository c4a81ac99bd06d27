//! The tools that dump and load tables, with their best options.

use std::path::Path;

use tailwater_sandbox::{Server, ServerKind};
use tailwater_wire::Flavour;

use super::WORKERS;
use super::program_measurement::MeasuredProgram;
use crate::arguments::TablesData;

/// Prefix of the names of Tailwater's contenders in the report.
pub const OURS: &str = "tailwater";

/// The variant of mydumper whose files the benchmark syncs at the end, as Tailwater syncs its files.
pub const SYNCED: &str = "mydumper, plain, whole tables, synced";

/// The number of files of a big table in another tool's dump. With several files, the threads of the tool can
/// share the table.
const PEER_PARTS: u64 = 16;

/// The tools that dump, each with a dump format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpTool {
    /// Tailwater, not compressed.
    OursPlain,
    /// Tailwater, with Zstandard at its usual level 3.
    OursZstd,
    /// Tailwater, with gzip at its usual level 6, which is also mydumper's level.
    OursGzip,
    /// mydumper, not compressed, with one file for each table.
    MydumperWhole,
    /// The same as `MydumperWhole`, followed by a sync of all files, as Tailwater does it.
    MydumperSynced,
    /// mydumper, not compressed, with tables split by `--rows`.
    MydumperParts,
    /// mydumper with gzip, the only compression that it has, and with tables split by `--rows`.
    MydumperGzip,
    /// The server's own tool, which uses one connection and one file.
    Stock,
}

impl DumpTool {
    /// All tools with their formats.
    pub const ALL: [Self; 8] = [
        Self::OursPlain,
        Self::OursZstd,
        Self::OursGzip,
        Self::MydumperWhole,
        Self::MydumperSynced,
        Self::MydumperParts,
        Self::MydumperGzip,
        Self::Stock,
    ];

    /// Returns the tool's name in the report.
    pub fn name(self, kind: ServerKind) -> &'static str {
        match self {
            Self::OursPlain => "tailwater, plain",
            Self::OursZstd => "tailwater, zstd",
            Self::OursGzip => "tailwater, gzip",
            Self::MydumperWhole => "mydumper, plain, whole tables",
            Self::MydumperSynced => SYNCED,
            Self::MydumperParts => "mydumper, plain, in parts",
            Self::MydumperGzip => "mydumper, gzip, in parts",
            Self::Stock => match kind.flavour() {
                Flavour::MySql => "mysqldump",
                Flavour::MariaDb => "mariadb-dump",
            },
        }
    }

    /// Returns the name of the program.
    pub fn tool(self, kind: ServerKind) -> &'static str {
        match self {
            Self::OursPlain | Self::OursZstd | Self::OursGzip => OURS,
            Self::MydumperWhole | Self::MydumperSynced | Self::MydumperParts | Self::MydumperGzip => {
                "mydumper"
            }
            Self::Stock => self.name(kind),
        }
    }

    /// Whether the tool compresses its files.
    pub fn compresses(self) -> bool {
        matches!(self, Self::OursZstd | Self::OursGzip | Self::MydumperGzip)
    }

    /// Returns the command that dumps into a folder that does not exist yet.
    ///
    /// # Errors
    /// If the server is installed without its tool.
    pub fn program(
        self,
        source: &Server,
        set: TablesData,
        rows: u64,
        folder: &Path,
    ) -> anyhow::Result<MeasuredProgram> {
        let workers = WORKERS.to_string();
        Ok(match self {
            Self::OursPlain | Self::OursZstd | Self::OursGzip => {
                let compression = match self {
                    Self::OursZstd => "zstd",
                    Self::OursGzip => "gzip",
                    _ => "none",
                };
                MeasuredProgram::new(std::env::current_exe()?)
                    .arguments(["dump", "--output=json", "--user=root", "--database", set.schema()])
                    .arguments(["--workers", &workers])
                    .arguments(["--compression", compression])
                    .path_argument("--socket=", source.socket())
                    .arguments([folder])
            }
            Self::MydumperWhole | Self::MydumperSynced | Self::MydumperParts | Self::MydumperGzip => {
                let program = MeasuredProgram::new("mydumper")
                    .arguments(["--user=root", "--database", set.schema(), "--threads", &workers])
                    // With this option, mydumper holds its locks for the shortest time.
                    .arguments(["--trx-consistency-only"])
                    .path_argument("--socket=", source.socket())
                    .path_argument("--outputdir=", folder);
                let parts = format!("--rows={}", (rows / PEER_PARTS).max(1000));
                match self {
                    Self::MydumperWhole | Self::MydumperSynced => program,
                    Self::MydumperGzip => program.arguments([parts.as_str(), "--compress"]),
                    _ => program.arguments([parts]),
                }
            }
            Self::Stock => {
                std::fs::create_dir_all(folder)?;
                let program = MeasuredProgram::of_server(source, self.name(source.kind()))?.arguments([
                    "--no-defaults",
                    "--user=root",
                    "--single-transaction",
                    "--quick",
                    // This option writes binary data in a form that SQL accepts in any character set.
                    "--hex-blob",
                ]);
                let program = match source.kind().flavour() {
                    Flavour::MySql => program.arguments(["--set-gtid-purged=OFF"]),
                    Flavour::MariaDb => program,
                };
                program
                    .path_argument("--socket=", source.socket())
                    .path_argument("--result-file=", &folder.join("dump.sql"))
                    .arguments(["--databases", set.schema()])
            }
        })
    }
}

/// The tools that load, each with the dump that it loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadTool {
    /// Tailwater, from its plain dump.
    OursPlain,
    /// Tailwater, from its compressed dump.
    OursZstd,
    /// myloader, from mydumper's plain dump.
    Myloader,
    /// myloader, from mydumper's compressed dump.
    MyloaderGzip,
    /// The server's own client, from the dump of its own tool.
    Stock,
}

impl LoadTool {
    /// All tools that load.
    pub const ALL: [Self; 5] =
        [Self::OursPlain, Self::OursZstd, Self::Myloader, Self::MyloaderGzip, Self::Stock];

    /// Returns the tool's name in the report.
    pub fn name(self, kind: ServerKind) -> &'static str {
        match self {
            Self::OursPlain => "tailwater, plain",
            Self::OursZstd => "tailwater, zstd",
            Self::Myloader => "myloader, plain",
            Self::MyloaderGzip => "myloader, gzip",
            Self::Stock => client(kind),
        }
    }

    /// Returns the name of the program.
    pub fn tool(self, kind: ServerKind) -> &'static str {
        match self {
            Self::OursPlain | Self::OursZstd => OURS,
            Self::Myloader | Self::MyloaderGzip => "myloader",
            Self::Stock => client(kind),
        }
    }

    /// Returns the tool whose dump this tool loads.
    pub fn dumper(self) -> DumpTool {
        match self {
            Self::OursPlain => DumpTool::OursPlain,
            Self::OursZstd => DumpTool::OursZstd,
            Self::Myloader => DumpTool::MydumperParts,
            Self::MyloaderGzip => DumpTool::MydumperGzip,
            Self::Stock => DumpTool::Stock,
        }
    }

    /// Returns the command that loads a dump folder.
    ///
    /// # Errors
    /// If the server is installed without its tool.
    pub fn program(self, target: &Server, folder: &Path) -> anyhow::Result<MeasuredProgram> {
        let workers = WORKERS.to_string();
        Ok(match self {
            Self::OursPlain | Self::OursZstd => MeasuredProgram::new(std::env::current_exe()?)
                .arguments(["load", "--user=root", "--workers", &workers])
                .path_argument("--socket=", target.socket())
                .arguments([folder]),
            Self::Myloader | Self::MyloaderGzip => MeasuredProgram::new("myloader")
                .arguments(["--user=root", "--threads", &workers])
                .path_argument("--socket=", target.socket())
                .path_argument("--directory=", folder),
            Self::Stock => MeasuredProgram::of_server(target, client(target.kind()))?
                .arguments(["--no-defaults", "--user=root", "--binary-mode"])
                .path_argument("--socket=", target.socket())
                .input(&folder.join("dump.sql")),
        })
    }
}

/// Returns the name of the server's own client program.
fn client(kind: ServerKind) -> &'static str {
    match kind.flavour() {
        Flavour::MySql => "mysql",
        Flavour::MariaDb => "mariadb",
    }
}
