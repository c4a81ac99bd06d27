//! What can go wrong with a dump or a load.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tailwater_session::SessionError;

/// Why a dump or a load could not go on. What was finished before is kept, and gone on behind.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    /// The connection to a server failed or broke, or a statement did.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was being done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file of a dump is not what was written.
    #[error("{}: {reason}; it is damaged or not of a dump", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// A newer version wrote the dump.
    #[error("{}: format {found}, and this version reads up to {known}; use a newer Tailwater", path.display())]
    NewerFormat {
        /// The dump's manifest.
        path: PathBuf,
        /// The format it names.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// Another process works in the folder.
    #[error("another process works in {}; wait for it, or take another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A server answered what makes no sense.
    #[error("{table}: the server's answer makes no sense: {reason}; report it with the table's definition")]
    Answer {
        /// The table.
        table: String,
        /// What was asked.
        reason: String,
    },
    /// No way to the same point in time on all connections is open.
    #[error(
        "no consistent snapshot: {reasons}; grant RELOAD (and BACKUP_ADMIN on MySQL) or LOCK TABLES, or try at a quieter time"
    )]
    NoSnapshot {
        /// What was tried, and why it did not work.
        reasons: String,
    },
    /// Writers would have waited for too long.
    #[error("writers waited for {} ms, and the snapshot was given up", waited.as_millis())]
    WritersWaited {
        /// How long they did.
        waited: Duration,
    },
    /// Commits kept coming between the snapshots.
    #[error("snapshots opened without a lock were never at the same place of the binlog in {tries} tries")]
    NotAlike {
        /// How often they were opened.
        tries: u32,
    },
    /// The transaction that everything was read in did not last.
    #[error(
        "{server} ended the transaction of the snapshot; what was read in it is not of one point in time: dump again"
    )]
    SnapshotLost {
        /// Where.
        server: String,
    },
    /// A folder for a new dump is not empty.
    #[error(
        "{} is not empty; go on with the interrupted dump in it with --resume, or take another folder",
        path.display()
    )]
    FolderInUse {
        /// The folder.
        path: PathBuf,
    },
    /// It was told to stop.
    #[error("interrupted; what is finished is kept: go on with --resume")]
    Interrupted,
    /// What was begun cannot be gone on with.
    #[error("{what} cannot be gone on with: {reason}; dump into another folder")]
    Changed {
        /// What.
        what: String,
        /// Why not.
        reason: String,
    },
    /// Something that was asked for is not on the server.
    #[error("there is no {what} on {server}; check its name and whether the user may see it")]
    Missing {
        /// What.
        what: String,
        /// Where.
        server: String,
    },
    /// The server does not show a definition to this user.
    #[error(
        "the server does not show the definition of {object} to this user; grant it SHOW_ROUTINE (MySQL), SELECT on \
         mysql.proc (MariaDB) or the right that the object's own kind needs"
    )]
    NoDefinition {
        /// What.
        object: String,
    },
}

impl BulkError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::File { .. } => "TW-BULK-0001",
            Self::Damaged { .. } => "TW-BULK-0002",
            Self::NewerFormat { .. } => "TW-BULK-0003",
            Self::Busy { .. } => "TW-BULK-0004",
            Self::Answer { .. } => "TW-BULK-0005",
            Self::NoSnapshot { .. } => "TW-BULK-0006",
            Self::WritersWaited { .. } => "TW-BULK-0007",
            Self::NotAlike { .. } => "TW-BULK-0008",
            Self::SnapshotLost { .. } => "TW-BULK-0009",
            Self::FolderInUse { .. } => "TW-BULK-0010",
            Self::Interrupted => "TW-BULK-0011",
            Self::Changed { .. } => "TW-BULK-0012",
            Self::Missing { .. } => "TW-BULK-0020",
            Self::NoDefinition { .. } => "TW-BULK-0021",
        }
    }
}
