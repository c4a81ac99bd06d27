//! Runs statements through a channel and through native replication. Afterwards the target and the native
//! replica must be the same.

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::ChannelOptions;
use tailwater_sandbox::{Server, ServerKind};
use tailwater_session::{ConnectOptions, Connection, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

use crate::channel_test_servers::{PATIENCE, Rig, spec};

mod account_statements;
mod ddl_statements;
mod session_settings;

/// The account of the channels. Its name must not appear in definitions or rows.
const CHANNEL_USER: &str = "carrier";

/// Queries for definitions in `information_schema`, each with the column that has the database name.
const DEFINITIONS: &[(&str, &str)] = &[
    ("schema_name, default_collation_name FROM information_schema.schemata", "schema_name"),
    (
        "table_schema, table_name, table_type, engine, row_format, table_collation, create_options, table_comment FROM \
         information_schema.tables",
        "table_schema",
    ),
    (
        "table_schema, table_name, column_name, ordinal_position, column_default, is_nullable, column_type, \
         collation_name, extra, column_comment, generation_expression FROM information_schema.columns",
        "table_schema",
    ),
    (
        "table_schema, table_name, index_name, seq_in_index, column_name, sub_part, non_unique, index_type FROM \
         information_schema.statistics",
        "table_schema",
    ),
    (
        "constraint_schema, table_name, constraint_name, constraint_type FROM information_schema.table_constraints",
        "constraint_schema",
    ),
    (
        "table_schema, table_name, view_definition, definer, character_set_client, collation_connection FROM \
         information_schema.views",
        "table_schema",
    ),
    (
        "trigger_schema, trigger_name, action_statement, definer, sql_mode, character_set_client, collation_connection, \
         database_collation FROM information_schema.triggers",
        "trigger_schema",
    ),
    (
        "routine_schema, routine_name, routine_definition, definer, sql_mode, character_set_client, collation_connection, \
         database_collation FROM information_schema.routines",
        "routine_schema",
    ),
    (
        "event_schema, event_name, event_definition, definer, status, sql_mode, time_zone, character_set_client, \
         collation_connection, database_collation FROM information_schema.events",
        "event_schema",
    ),
];

/// A source, a target, and a native replica of the source.
struct Comparison {
    rig: Rig,
    native: Server,
    flavour: Flavour,
}

impl Comparison {
    /// Starts the servers. Returns `None` if they are not installed.
    async fn start(kind: ServerKind, options: &[&str]) -> Result<Option<Self>> {
        let Some(rig) = Rig::start(kind, options, options).await? else { return Ok(None) };
        let native = Server::start(spec(kind, 3).options(options.iter().copied())).await?;
        native.replicate_from(&rig.source).await?;
        rig.target
            .sql(&format!(
                "SET sql_log_bin=0; CREATE USER {CHANNEL_USER}@localhost IDENTIFIED BY 'channel'; \
                 GRANT ALL ON *.* TO {CHANNEL_USER}@localhost WITH GRANT OPTION"
            ))
            .await?;
        Ok(Some(Self { rig, native, flavour: kind.flavour() }))
    }

    /// Returns a channel whose account does not exist on the source.
    fn channel(&self) -> Channel {
        let target = connect_as(Endpoint::unix(self.rig.target.socket()), CHANNEL_USER, "channel");
        self.rig.channel(ChannelOptions {
            target,
            workers: 2,
            ..ChannelOptions::new("comparison", self.rig.target.socket_options())
        })
    }

    /// Connects to the source as `user`.
    async fn session(&self, user: &str, password: &str) -> Result<Connection> {
        let endpoint = Endpoint::unix(self.rig.source.socket());
        Ok(Connection::connect(&connect_as(endpoint, user, password)).await?)
    }

    /// Runs statements in one session. A statement that starts with `!` must fail on the source.
    async fn run(&self, user: &str, statements: &[&str]) -> Result<()> {
        let password = if user == "root" { "" } else { "secret" };
        let mut session = self.session(user, password).await?;
        for statement in statements {
            match statement.strip_prefix('!') {
                Some(statement) => {
                    ensure!(
                        session.execute(statement).await.is_err(),
                        "the statement must fail on the source, but it succeeded: {statement}"
                    )
                }
                None => drop(session.execute(statement).await.with_context(|| (*statement).to_owned())?),
            }
        }
        Ok(())
    }

    /// Waits until the target and the native replica have applied all transactions of the source.
    async fn wait(&self, channel: &Channel) -> Result<()> {
        let gtids = self.rig.source_gtids().await?.to_string();
        let there = self.native.wait_for_gtids(&gtids, PATIENCE).await?;
        if !there {
            let status = self.native.replica_status().await?;
            anyhow::bail!("the native replica did not apply everything: {status:?}");
        }
        self.rig.wait_applied(channel).await
    }

    /// Compares databases on the target and the native replica: the definitions with their settings, and the
    /// rows.
    async fn ensure_same_databases(&self, schemas: &[&str]) -> Result<()> {
        let list = schemas.iter().map(|schema| format!("'{schema}'")).collect::<Vec<_>>().join(",");
        let mut queries: Vec<String> = DEFINITIONS
            .iter()
            .map(|(select, column)| format!("SELECT {select} WHERE {column} IN ({list})"))
            .collect();
        let tables = format!(
            "SELECT CONCAT('SELECT * FROM `', table_schema, '`.`', table_name, '`') FROM information_schema.tables WHERE \
             table_schema IN ({list}) AND table_type LIKE '%BASE TABLE%' OR table_schema IN ({list}) AND table_type LIKE 'SYSTEM V%'"
        );
        queries.extend(self.native.sql(&tables).await?);
        self.ensure_same(&queries).await
    }

    /// Compares the results of queries on target and native replica.
    async fn ensure_same(&self, queries: &[String]) -> Result<()> {
        let mut differences = Vec::new();
        for query in queries {
            let (mut ours, mut native) =
                (self.rig.target.sql(query).await.context(query.clone())?, self.native.sql(query).await?);
            ours.sort();
            native.sort();
            if ours != native {
                let only = |one: &[String], other: &[String]| -> Vec<String> {
                    one.iter().filter(|row| !other.contains(row)).cloned().collect()
                };
                differences.push(format!(
                    "the result of {query} differs\nonly on the target: {:#?}\nonly on the native replica: {:#?}",
                    only(&ours, &native),
                    only(&native, &ours)
                ));
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
        Ok(())
    }
}

fn connect_as(endpoint: Endpoint, user: &str, password: &str) -> ConnectOptions {
    let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
    ConnectOptions::new(endpoint, user).password(password).tls(tls)
}

async fn statements(kind: ServerKind) -> Result<()> {
    // With `log_bin_trust_function_creators`, the source accepts and logs every statement.
    let Some(comparison) = Comparison::start(kind, &["--log-bin-trust-function-creators=ON"]).await? else {
        return Ok(());
    };
    let channel = comparison.channel();
    // An error in one part must not hide the errors of other parts.
    let found = [
        account_statements::run(&comparison, &channel).await,
        ddl_statements::run(&comparison, &channel).await,
        session_settings::run(&comparison, &channel).await,
    ];
    channel.shut_down().await;
    let errors: Vec<String> =
        found.into_iter().filter_map(|result| Some(format!("{:#}", result.err()?))).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n\n"));
    Ok(())
}

on_each_server!(statements);
