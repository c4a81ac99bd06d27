//! The tools that dump and load, with their best options.

use std::path::Path;

use tailwater_sandbox::{Server, ServerKind};
use tailwater_wire::Flavour;

use super::WORKERS;
use super::measured_program::MeasuredProgram;
use crate::args::TablesData;

/// Prefix of the names of Tailwater's contenders.
pub const OURS: &str = "tailwater";

/// The peer whose files are synced when it ends, like Tailwater's.
pub const SYNCED: &str = "mydumper, plain, whole tables, synced";

/// Number of files of a big table in a peer's dump, so that its threads share the table.
const PEER_PARTS: u64 = 16;

/// Formats of dumps, and their tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpTool {
    /// Tailwater, not compressed.
    OursPlain,
    /// Tailwater, Zstandard at its usual level 3.
    OursZstd,
    /// Tailwater, gzip at its usual level 6, which is also mydumper's.
    OursGzip,
    /// mydumper, not compressed, a file for each table.
    MydumperWhole,
    /// The same, followed by a sync of all files, as Tailwater does.
    MydumperSynced,
    /// mydumper, not compressed, tables split by `--rows`.
    MydumperParts,
    /// mydumper with gzip, the only compression that it has, tables split by `--rows`.
    MydumperGzip,
    /// The server's own tool: one connection, one file.
    Stock,
}

impl DumpTool {
    /// All of them.
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

    /// Its name in the report.
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

    /// The program.
    pub fn tool(self, kind: ServerKind) -> &'static str {
        match self {
            Self::OursPlain | Self::OursZstd | Self::OursGzip => OURS,
            Self::MydumperWhole | Self::MydumperSynced | Self::MydumperParts | Self::MydumperGzip => {
                "mydumper"
            }
            Self::Stock => self.name(kind),
        }
    }

    /// Whether its files are compressed.
    pub fn compresses(self) -> bool {
        matches!(self, Self::OursZstd | Self::OursGzip | Self::MydumperGzip)
    }

    /// The command that dumps into a folder that does not exist yet.
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
                    // Its locks with the shortest hold time.
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
                    // Binary data in a form that SQL accepts in any character set.
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

/// Loaders, and the dumps that they load.
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
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::OursPlain, Self::OursZstd, Self::Myloader, Self::MyloaderGzip, Self::Stock];

    /// Its name in the report.
    pub fn name(self, kind: ServerKind) -> &'static str {
        match self {
            Self::OursPlain => "tailwater, plain",
            Self::OursZstd => "tailwater, zstd",
            Self::Myloader => "myloader, plain",
            Self::MyloaderGzip => "myloader, gzip",
            Self::Stock => client(kind),
        }
    }

    /// The program.
    pub fn tool(self, kind: ServerKind) -> &'static str {
        match self {
            Self::OursPlain | Self::OursZstd => OURS,
            Self::Myloader | Self::MyloaderGzip => "myloader",
            Self::Stock => client(kind),
        }
    }

    /// The tool whose dump it loads.
    pub fn dumper(self) -> DumpTool {
        match self {
            Self::OursPlain => DumpTool::OursPlain,
            Self::OursZstd => DumpTool::OursZstd,
            Self::Myloader => DumpTool::MydumperParts,
            Self::MyloaderGzip => DumpTool::MydumperGzip,
            Self::Stock => DumpTool::Stock,
        }
    }

    /// The command that loads a dump folder of its dumper.
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

/// The server's own client.
fn client(kind: ServerKind) -> &'static str {
    match kind.flavour() {
        Flavour::MySql => "mysql",
        Flavour::MariaDb => "mariadb",
    }
}
