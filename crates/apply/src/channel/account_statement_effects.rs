//! Corrects the effects of statements about accounts or routines. These effects differ from the effects in
//! native replication, because the channel's account runs the statement.
//!
//! A server's replication thread runs the statement as the account in the binlog event, and has all
//! privileges. The channel runs the statement in a client session with its own account. The server then
//! records the channel's account as grantor, and does not give the routine's creator the privileges on the
//! routine. The corrections change only the target, and are not written to its binlog.

use std::sync::Arc;

use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::Invoker;

use super::account_statement_parser::{ObjectGrant, Routine, grants, routine};
use super::current_user_rewrite::account_name;
use super::shared_channel_state::ChannelShared;
use super::sql_log_bin_off_connection::{ignore_refusal, unlogged_connection};
use crate::error::ApplyError;
use tailwater_wire::sql_quote::{portable_literal, qualified_name};

/// The tables in schema `mysql` that have a grantor column, with the columns of their primary keys.
const GRANTOR_TABLES: [(&str, &str); 3] = [
    ("tables_priv", "Host, Db, User, Table_name"),
    ("procs_priv", "Host, Db, User, Routine_name, Routine_type"),
    ("proxies_priv", "Host, User, Proxied_host, Proxied_user"),
];

/// The corrections to make after a statement has run.
pub(super) struct AccountEffects {
    connection: Connection,
    /// The account of the source's session in the spelling of the grant tables: `user@host`.
    grantor: String,
    /// The same account in the spelling of SQL statements.
    account: Vec<u8>,
    /// The keys of the grants whose grantor was already the channel's account before the statement, for each
    /// table of [`GRANTOR_TABLES`].
    before: Vec<Vec<String>>,
    /// The table or routine of the `GRANT`. All grants on it get the account of the source's session as
    /// grantor, even those that another account had granted.
    granted: Option<ObjectGrant>,
    /// The routine that the statement creates, if any.
    routine: Option<Routine>,
}

impl AccountEffects {
    /// Returns the corrections for a statement that is about to run; `None` if the statement needs no
    /// corrections.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn before_statement(
        shared: &Arc<ChannelShared>,
        text: &[u8],
        database: &[u8],
        invoker: Option<&Invoker<'_>>,
    ) -> Result<Option<Self>, ApplyError> {
        let Some(mut effects) = Self::after_statement(shared, text, database, invoker).await? else {
            return Ok(None);
        };
        // With `IF NOT EXISTS`, MySQL gives the creator no privileges if the routine already exists. MariaDB
        // gives the privileges to the account that runs the statement even if the routine already exists.
        let is_passed_over =
            |routine: &mut Routine| routine.unless_exists && shared.flavour == Flavour::MySql;
        if let Some(routine) = effects.routine.take_if(is_passed_over)
            && !effects.routine_exists(&routine).await?
        {
            effects.routine = Some(routine);
        }
        Ok(Some(effects))
    }

    /// Returns the corrections for a statement that has already run. The grants that existed before the
    /// statement are then unknown, so every present grant counts as a grant that existed before.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn after_statement(
        shared: &Arc<ChannelShared>,
        text: &[u8],
        database: &[u8],
        invoker: Option<&Invoker<'_>>,
    ) -> Result<Option<Self>, ApplyError> {
        let routine = routine(text, database);
        let Some(invoker) = invoker.filter(|_| routine.is_some() || grants(text)) else { return Ok(None) };
        let (user, host) = (String::from_utf8_lossy(invoker.user), String::from_utf8_lossy(invoker.host));
        let grantor = format!("{user}@{host}");
        let mut connection = unlogged_connection(shared).await?;
        let own = connection.query("SELECT USER()").await?;
        if own.scalar() == Some(grantor.as_str()) {
            return Ok(None);
        }
        let mut before = Vec::new();
        for (table, key) in GRANTOR_TABLES {
            let sql = format!("SELECT HEX(CONCAT_WS('/', {key})) FROM mysql.{table} WHERE Grantor=USER()");
            match connection.query(&sql).await {
                Ok(rows) => before.push(
                    rows.rows.iter().map(|row| row.get_str(0).unwrap_or_default().to_owned()).collect(),
                ),
                Err(error) => {
                    // The channel's account may lack the privilege to read schema `mysql`. The source's
                    // statement still takes effect without the correction.
                    ignore_refusal(error)?;
                    before.clear();
                    break;
                }
            }
        }
        let granted = ObjectGrant::of(text, database);
        Ok(Some(Self { connection, grantor, account: account_name(invoker), before, granted, routine }))
    }

    /// Makes the corrections. `has_run` is false if the statement failed and so created no routine.
    ///
    /// # Errors
    /// [`ApplyError::Session`]. It is not an error if the target refuses a correction.
    pub(super) async fn run(mut self, has_run: bool) -> Result<(), ApplyError> {
        if let Some(routine) = self.routine.take_if(|_| has_run) {
            self.grant_to_creator(&routine).await?;
        }
        for ((table, key), before) in GRANTOR_TABLES.iter().zip(std::mem::take(&mut self.before)) {
            let kept: Vec<String> = before.iter().map(|key| portable_literal(key)).collect();
            let granted = self.granted.as_ref().and_then(|granted| rows_filter(granted, table));
            let kept = match kept.is_empty() {
                true => String::new(),
                false => format!(
                    " AND (HEX(CONCAT_WS('/', {key})) NOT IN ({}){})",
                    kept.join(","),
                    granted.map(|granted| format!(" OR {granted}")).unwrap_or_default()
                ),
            };
            let sql = format!(
                "UPDATE mysql.{table} SET Grantor={}, Timestamp=Timestamp WHERE Grantor=USER(){kept}",
                portable_literal(&self.grantor)
            );
            if let Err(error) = self.connection.execute(&sql).await {
                ignore_refusal(error)?;
            }
        }
        Ok(())
    }

    /// Returns whether the target has the routine. If it does, `CREATE ... IF NOT EXISTS` does nothing.
    async fn routine_exists(&mut self, routine: &Routine) -> Result<bool, ApplyError> {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.routines WHERE routine_type='{}' AND routine_schema={} AND routine_name={}",
            routine.kind,
            portable_literal(&routine.database),
            portable_literal(&routine.name)
        );
        Ok(self.connection.query(&sql).await?.scalar() != Some("0"))
    }

    /// Grants the creator of a routine the privileges on it (`automatic_sp_privileges`).
    async fn grant_to_creator(&mut self, routine: &Routine) -> Result<(), ApplyError> {
        // Split the account, which is written as in `information_schema`: `user@host`.
        let (user, host) = self.grantor.rsplit_once('@').unwrap_or((&self.grantor, ""));
        let grantee = portable_literal(&format!("'{user}'@'{host}'"));
        let database = portable_literal(&routine.database);
        let sql = format!(
            "SELECT @@automatic_sp_privileges=1 AND \
             (SELECT COUNT(*) FROM information_schema.user_privileges WHERE grantee={grantee}) > 0 AND \
             (SELECT COUNT(DISTINCT privilege_type) FROM (\
              SELECT privilege_type FROM information_schema.user_privileges WHERE grantee={grantee} \
              UNION SELECT privilege_type FROM information_schema.schema_privileges WHERE grantee={grantee} \
              AND {database} LIKE table_schema) held WHERE privilege_type IN ('EXECUTE', 'ALTER ROUTINE')) < 2"
        );
        if self.connection.query(&sql).await?.scalar() != Some("1") {
            return Ok(());
        }
        let name = qualified_name(&routine.database, &routine.name);
        let on = format!("GRANT EXECUTE, ALTER ROUTINE ON {} {name} TO ", routine.kind);
        let grant = [on.as_bytes(), &self.account].concat();
        // Use the SQL mode ORACLE for packages, because older MariaDB servers know packages only in this
        // mode.
        let is_package = routine.kind.starts_with("PACKAGE");
        if is_package {
            self.connection.execute("SET SESSION sql_mode='ORACLE'").await?;
        }
        let granted = self.connection.execute_bytes(&grant).await;
        if is_package {
            self.connection.execute("SET SESSION sql_mode=''").await?;
        }
        if let Err(error) = granted {
            ignore_refusal(error)?;
        }
        Ok(())
    }
}

/// Returns the condition that selects the rows about the object of a grant in a table of [`GRANTOR_TABLES`].
fn rows_filter(granted: &ObjectGrant, table: &str) -> Option<String> {
    let name = match table {
        "tables_priv" => "Table_name",
        "procs_priv" => "Routine_name",
        _ => return None,
    };
    let accounts: Vec<String> = granted
        .accounts
        .iter()
        .map(|(user, host)| format!("({},{})", portable_literal(user), portable_literal(host)))
        .collect();
    (!accounts.is_empty()).then(|| {
        format!(
            "Db={} AND {name}={} AND (User, Host) IN ({})",
            portable_literal(&granted.database),
            portable_literal(&granted.name),
            accounts.join(",")
        )
    })
}
