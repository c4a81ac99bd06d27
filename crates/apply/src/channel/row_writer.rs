//! A session on the target that writes rows, as row events or as SQL.

use tailwater_session::{AccountPurpose, Connection, SessionError, SessionPreset, check_privileges};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::RowsKind;

use super::affected_rows_check::RowCount;
use super::channel_options::{ChannelOptions, GtidMode};
use super::multi_statement_packets::{Packets, ensure_found};
use super::progress_store::session_statement;
use super::worker_progress_row::ProgressRow;
use crate::batch::{self, PlanOptions};
use crate::binlog_statement::{BinlogStatementEncoder, BinlogStatementOptions};
use crate::dml_statement;
use crate::error::ApplyError;
use crate::source_transaction::RowChanges;

/// The maximum length of a `BINLOG` statement with several rows, in bytes, unless the server's limits are
/// lower.
const STATEMENT_BYTES_MAX: usize = 1 << 20;

/// Rows of at least this many bytes are copied only if a copy cannot be avoided.
pub(super) const LONG_ROW_BYTES: usize = 4 << 20;

/// Connects to the target, with a session that is set up to apply rows.
///
/// # Errors
/// [`ApplyError::Session`].
pub(super) async fn connect(options: &ChannelOptions) -> Result<Connection, ApplyError> {
    let mut target = options.target.clone();
    target.multi_statements = true;
    target.found_rows = true;
    target.session_preset = SessionPreset::ForDefinitions;
    target.program_name = format!("tailwater {}", options.name);
    // The target may need a long time for a large batch or statement. TCP detects a dead target.
    target.read_timeout = None;
    let mut connection = Connection::connect(&target).await?;
    let flavour = connection.server().flavour;
    if let Err(error) = connection.execute(&session_statement(flavour, options.gtid)).await {
        // If the account lacks a privilege, this check's error names the privilege.
        check_privileges(&mut connection, AccountPurpose::Apply).await?;
        return Err(error.into());
    }
    Ok(connection)
}

/// The session's character set for the text of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementCharset {
    /// UTF-8: the statements may contain any text.
    Utf8,
    /// The statements contain only ASCII text, such as base64, so the session uses a single-byte character
    /// set. In a multi-byte character set, servers check each character of a statement. This check took 5 %
    /// of the total cost of applying (MariaDB 10.11, target and Tailwater together).
    Ascii,
}

impl StatementCharset {
    fn character_set(self) -> &'static str {
        match self {
            Self::Utf8 => "utf8mb4",
            Self::Ascii => "latin1",
        }
    }
}

/// A connection to the target, and the encoders that turn rows into statements for it.
#[derive(Debug)]
pub(crate) struct RowWriter {
    pub(crate) connection: Connection,
    encoder: BinlogStatementEncoder,
    sql: dml_statement::SqlWriter,
    sizes: BinlogStatementOptions,
    plan: PlanOptions,
    tolerant: bool,
    /// Whether the target logs what the channel applies.
    target_logs: bool,
    /// Whether this session sends only ASCII statements, apart from rows written as SQL.
    ascii_only: bool,
    /// The session's character set after the pushed statements have run.
    charset: StatementCharset,
    /// Whether the pushed statements change the character set.
    charset_changes: bool,
    row_count: RowCount,
}

/// Returns whether the table is in schema `mysql`. Such tables cannot be locked together with other tables
/// (`ER_WRONG_LOCK_OF_SYSTEM_TABLE`).
fn is_system(group: &batch::RowGroup<'_>) -> bool {
    group.table.target.schema.eq_ignore_ascii_case("mysql")
}

impl RowWriter {
    /// Connects, and prepares the session for `BINLOG` statements and for row changes as SQL.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn open(options: &ChannelOptions) -> Result<Self, ApplyError> {
        let mut connection = connect(options).await?;
        let flavour = connection.server().flavour;
        let packet = connection.query("SELECT @@max_allowed_packet, @@log_bin").await?;
        let packet_bytes_max = packet.first().and_then(|row| row.get_u64(0)).unwrap_or(1 << 20);
        let has_binlog = packet.first().and_then(|row| row.get_u64(1)) != Some(0);
        let packet_bytes_max = usize::try_from(packet_bytes_max).unwrap_or(usize::MAX);
        let sizes = BinlogStatementOptions {
            statement_bytes_max: STATEMENT_BYTES_MAX.min(packet_bytes_max / 2),
            packet_bytes_max,
        };
        let encoder = BinlogStatementEncoder::new(flavour, sizes);
        let format = encoder.format_description_statement().map_err(|source| SessionError::Protocol {
            doing: "sending the format description event",
            source,
        })?;
        connection.execute_bytes(&format).await?;
        if flavour == Flavour::MySql {
            // After the format description statement, `gtid_next` of the session is that of a replica, and a
            // commit would fail with error 1782.
            connection.execute("SET @@SESSION.gtid_next='AUTOMATIC'").await?;
        }
        let tolerant = options.tolerate_until.is_some();
        let plan = PlanOptions {
            // If differences are tolerated, do not merge the changes of a row. The target then applies or
            // ignores each change separately, and in the end every row is as on the source.
            net_change: !tolerant,
            // A target that writes a binlog would log the shortened row images, and its replicas might not
            // find a key in them.
            cut_images: options.gtid == GtidMode::Log && !tolerant,
        };
        let sql = dml_statement::SqlWriter::new(flavour, sizes);
        let mut writer = Self {
            connection,
            encoder,
            sql,
            sizes,
            plan,
            tolerant,
            target_logs: options.gtid != GtidMode::Log && has_binlog,
            ascii_only: false,
            charset: StatementCharset::Utf8,
            charset_changes: false,
            row_count: RowCount::new(flavour),
        };
        writer.set_up_sql().await?;
        Ok(writer)
    }

    /// Returns this writer, set up for a session that sends only rows and ASCII text.
    #[must_use]
    pub(super) fn ascii_only(self) -> Self {
        Self { ascii_only: true, ..self }
    }

    /// Returns a writer that overwrites existing rows: an insert replaces an existing row, and a delete of a
    /// missing row is ignored. No triggers run for tables that are the same as on the source.
    ///
    /// MariaDB has this mode only as a global variable. So no replication to that server may run meanwhile,
    /// and the caller must restore `slave_exec_mode` afterwards.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(crate) async fn open_idempotent(options: &ChannelOptions) -> Result<Self, ApplyError> {
        let mut writer = Self::open(options).await?;
        let setting = match writer.connection.server().flavour {
            Flavour::MySql => "SET SESSION rbr_exec_mode='IDEMPOTENT'",
            Flavour::MariaDb => "SET GLOBAL slave_exec_mode='IDEMPOTENT'",
        };
        writer.connection.execute(setting).await?;
        writer.plan = PlanOptions { net_change: false, cut_images: false };
        // Overwrite existing rows also in tables whose columns differ from the source's. Rows of these tables
        // are written as SQL.
        writer.sql =
            dml_statement::SqlWriter::new(writer.connection.server().flavour, writer.sizes).tolerant(true);
        Ok(writer)
    }

    /// Returns whether an event fails if a row that it changes is missing. On MariaDB, a global setting can
    /// make the server ignore missing rows.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn is_strict(&mut self) -> Result<bool, ApplyError> {
        if self.connection.server().flavour == Flavour::MySql {
            return Ok(true);
        }
        let mode = self.connection.query("SELECT @@GLOBAL.slave_exec_mode").await?;
        Ok(mode.scalar() == Some("STRICT"))
    }

    /// Sets the session up for rows as SQL, whatever its settings were before.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn set_up_sql(&mut self) -> Result<(), ApplyError> {
        let flavour = self.connection.server().flavour;
        // Send SET NAMES separately and first: if the session's literals are in UCS-2, the quoted text in the
        // next statement would mean something else.
        let mut packets = Packets::default();
        packets.push("SET NAMES utf8mb4");
        packets.push(format!("{}, @@session.timestamp=DEFAULT", dml_statement::session_statement(flavour)));
        packets.run(&mut self.connection).await?;
        self.sql = dml_statement::SqlWriter::new(flavour, self.sizes).tolerant(self.tolerant);
        (self.charset, self.charset_changes) = (StatementCharset::Utf8, false);
        Ok(())
    }

    /// Restores the settings for rows as SQL, in case some of the pushed statements did not run.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn restore_sql_settings(&mut self) -> Result<(), ApplyError> {
        self.sql.forget_history();
        match self.sql.has_set() || self.charset_changes {
            true => self.set_up_sql().await,
            false => Ok(()),
        }
    }

    /// Applies `changes` at once, without copying [long](LONG_ROW_BYTES) rows. All earlier statements must
    /// have run.
    ///
    /// # Errors
    /// As [`RowWriter::push_rows`] and [`Packets::run`].
    pub(super) async fn run_rows(&mut self, changes: &RowChanges) -> Result<(), ApplyError> {
        let by_event = !self.tolerant && changes.table.same_shape;
        // Do not shorten the images of rows that are written as SQL, because shortening may copy a long row.
        let options = PlanOptions { cut_images: self.plan.cut_images && by_event, ..self.plan };
        let mut plan = batch::plan([changes], options).map_err(ApplyError::rows)?;
        self.drop_blackhole_changes(&mut plan)?;
        for group in &plan.groups {
            let is_short = |row: &batch::PlannedRow<'_>| row.bytes() <= LONG_ROW_BYTES;
            for rows in group.rows.chunk_by(|one, other| is_short(one) && is_short(other)) {
                match rows {
                    [row] if !is_short(row) && by_event => self.run_long_event(group, row).await?,
                    [row] if !is_short(row) => self.run_long_sql(group, row).await?,
                    rows => {
                        let mut packets = Packets::default();
                        self.push_groups(
                            &[batch::RowGroup { rows: rows.to_vec(), ..group.clone() }],
                            &mut packets,
                        )?;
                        self.run_counted(packets).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn run_long_event(
        &mut self,
        group: &batch::RowGroup<'_>,
        row: &batch::PlannedRow<'_>,
    ) -> Result<(), ApplyError> {
        let row = self.encoder.long_row(group, row);
        for statement in self.encoder.long_statements(group, &row)? {
            self.connection.execute_pieces(statement.bytes(), statement.pieces()).await?;
        }
        Ok(())
    }

    async fn run_long_sql(
        &mut self,
        group: &batch::RowGroup<'_>,
        row: &batch::PlannedRow<'_>,
    ) -> Result<(), ApplyError> {
        let mapping =
            group.table.sql_mapping().map_err(|mismatch| ApplyError::mismatch(group.table, mismatch))?;
        let one = batch::RowGroup { rows: vec![*row], ..group.clone() };
        for part in self.sql.parts(&one, mapping)? {
            let (group, mapping, prefix) = match &part {
                dml_statement::SqlPart::Rows { group, mapping, prefix } => (group, *mapping, prefix),
                dml_statement::SqlPart::Statement(text) => {
                    self.connection.execute_bytes(text).await?;
                    continue;
                }
            };
            for row in &group.rows {
                let images = dml_statement::RowImageBytes::of(row);
                let mut settings = Vec::new();
                let statement = self.sql.long_statement(group, mapping, prefix, &images, &mut settings)?;
                for setting in settings {
                    self.connection.execute_bytes(&setting.text).await?;
                }
                let Some(statement) = statement else { continue };
                let ok = self.connection.execute_pieces(statement.bytes(), statement.pieces()).await?;
                ensure_found(ok.affected_rows, statement.rows, statement.start())?;
            }
        }
        Ok(())
    }

    /// Removes what the writer has stored about the previous target transaction. Call this before the rows of
    /// a transaction or a batch.
    pub(super) fn start_transaction(&mut self) {
        self.sql.forget_history();
    }

    /// Adds the statements that apply `changes`.
    ///
    /// # Errors
    /// [`ApplyError::TooLarge`]; [`ApplyError::Event`] for malformed rows.
    pub(crate) fn push_rows<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a RowChanges>,
        packets: &mut Packets,
    ) -> Result<(), ApplyError> {
        let mut plan = batch::plan(changes, self.plan).map_err(ApplyError::rows)?;
        self.drop_blackhole_changes(&mut plan)?;
        self.push_groups(&plan.groups, packets)
    }

    /// Removes updates and deletes of BLACKHOLE tables from the plan, because such a table has no rows to
    /// change. If the target logs what the channel applies, such a change is an error: only the server's own
    /// replication can apply it.
    fn drop_blackhole_changes(&self, plan: &mut batch::BatchPlan<'_>) -> Result<(), ApplyError> {
        let is_blackhole_change = |group: &batch::RowGroup<'_>| {
            group.kind != RowsKind::Write && group.table.target.engine == "BLACKHOLE"
        };
        if self.target_logs
            && let Some(group) = plan.groups.iter().find(|group| is_blackhole_change(group))
        {
            let target = &group.table.target;
            return Err(ApplyError::Unsupported {
                gtid: String::new(),
                what: format!("a change of rows of {}.{}, a BLACKHOLE table", target.schema, target.table),
                reason: "the target must log the change for its own replicas, but cannot, because the table keeps no \
                         rows; set gtid = log for the channel, give the table another engine, or exclude it with a \
                         filter"
                    .to_owned(),
            });
        }
        plan.groups.retain(|group| !is_blackhole_change(group));
        Ok(())
    }

    /// Does the same as [`RowWriter::push_rows`], and then adds the change of the progress row. If the rows
    /// fit into one statement, the change is part of that statement.
    ///
    /// # Errors
    /// As [`RowWriter::push_rows`].
    pub(super) fn push_rows_with_progress<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a RowChanges>,
        row: &ProgressRow,
        image: &[u8],
        packets: &mut Packets,
    ) -> Result<(), ApplyError> {
        let mut plan = batch::plan(changes, self.plan).map_err(ApplyError::rows)?;
        self.drop_blackhole_changes(&mut plan)?;
        let progress = row.group(image, plan.groups.last());
        plan.groups.push(progress);
        self.push_groups(&plan.groups, packets)
    }

    fn push_groups(
        &mut self,
        groups: &[batch::RowGroup<'_>],
        packets: &mut Packets,
    ) -> Result<(), ApplyError> {
        // Split the groups, in order, into sequences that can be written together. Only tables with the
        // source's layout, outside schema `mysql`, are joined.
        let together = |one: &batch::RowGroup<'_>, other: &batch::RowGroup<'_>| {
            one.table.same_shape == other.table.same_shape && !is_system(one) && !is_system(other)
        };
        for run in groups.chunk_by(together) {
            if !self.tolerant && run.first().is_some_and(|group| group.table.same_shape) {
                let mut statements = Vec::new();
                let scopes = self.encoder.statements(run, &mut statements)?;
                self.set_charset(StatementCharset::Ascii, packets);
                statements.into_iter().for_each(|statement| packets.push(statement));
                packets.count_changes(scopes);
                self.row_count.send(run);
                continue;
            }
            self.set_charset(StatementCharset::Utf8, packets);
            // The row count does not include rows written as SQL, because each SQL statement reports how many
            // rows it has matched.
            self.row_count.reset();
            for group in run {
                let mapping = group.table.sql_mapping();
                let mapping = mapping.map_err(|mismatch| ApplyError::mismatch(group.table, mismatch))?;
                let mut statements = Vec::new();
                self.sql.statements(group, mapping, &mut statements)?;
                packets.count_changes(statements.len());
                statements.into_iter().for_each(|statement| packets.push_sql(statement));
            }
        }
        Ok(())
    }

    /// Runs the pushed statements, and counts their rows.
    ///
    /// # Errors
    /// As [`Packets::run`].
    pub(super) async fn run_counted(&mut self, packets: Packets) -> Result<(), ApplyError> {
        self.row_count.start_counting(&mut self.connection).await?;
        packets.run(&mut self.connection).await
    }

    /// Checks the target's count of changed rows, if a check is due. Call this before the commit.
    ///
    /// # Errors
    /// [`ApplyError::RowCountMismatch`]; [`ApplyError::Session`].
    pub(super) async fn check_rows(&mut self) -> Result<(), ApplyError> {
        match self.row_count.is_due() {
            true => self.count_rows().await,
            false => Ok(()),
        }
    }

    /// Checks the target's count of changed rows now.
    ///
    /// # Errors
    /// As [`RowWriter::check_rows`].
    pub(super) async fn count_rows(&mut self) -> Result<(), ApplyError> {
        self.row_count.check(&mut self.connection).await
    }

    /// Returns the count of changed rows.
    pub(super) fn row_count(&mut self) -> &mut RowCount {
        &mut self.row_count
    }

    fn set_charset(&mut self, charset: StatementCharset, packets: &mut Packets) {
        if !self.ascii_only || self.charset == charset {
            return;
        }
        (self.charset, self.charset_changes) = (charset, true);
        packets.push(format!("SET @@session.character_set_client={}", charset.character_set()));
    }
}
