//! Measures the load of servers at a limited rate.

use std::time::Duration;

use tailwater_session::{ConnectOptions, Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::server_version::ServerFeature;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::pause_decision::{ThrottleDecision, ThrottleGauges, ThrottleLimit};
use super::{ThrottleQuery, ThrottleRules};

/// Time limit for one measurement. If it is exceeded, the value counts as unknown.
const PATIENCE: Duration = Duration::from_secs(3);

/// Measures one value on one server.
struct ServerProbe {
    options: ConnectOptions,
    question: ThrottleMetric,
    connection: Option<Connection>,
}

enum ThrottleMetric {
    Lag,
    ThreadsRunning,
    Own(String),
}

impl ServerProbe {
    fn new(options: &ConnectOptions, question: ThrottleMetric) -> Self {
        let options = ConnectOptions {
            connect_timeout: PATIENCE,
            read_timeout: Some(PATIENCE),
            program_name: "tailwater throttle".into(),
            ..options.clone()
        };
        Self { options, question, connection: None }
    }

    /// Measures the value once. Reconnects if the connection was lost.
    async fn ask(&mut self) -> Result<f64, String> {
        match tokio::time::timeout(PATIENCE, self.try_ask()).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(reason)) => {
                self.connection = None;
                Err(reason)
            }
            Err(_) => {
                self.connection = None;
                Err(format!("no answer in {} s", PATIENCE.as_secs()))
            }
        }
    }

    async fn try_ask(&mut self) -> Result<f64, String> {
        let text = |error: SessionError| error.to_string();
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert(Connection::connect(&self.options).await.map_err(text)?),
        };
        match &self.question {
            ThrottleMetric::Lag => lag(connection).await,
            ThrottleMetric::ThreadsRunning => {
                let answer =
                    connection.query("SHOW GLOBAL STATUS LIKE 'Threads_running'").await.map_err(text)?;
                let value = answer.first().and_then(|row| row.get_str(1));
                number(value.ok_or("the server does not report this value")?)
            }
            ThrottleMetric::Own(sql) => {
                let answer = connection.query(sql).await.map_err(text)?;
                number(answer.scalar().ok_or("the query returned no value")?)
            }
        }
    }
}

/// Returns the lag of a replica in seconds. If the replica has several replication channels, returns the lag
/// of the channel with the most lag.
async fn lag(connection: &mut Connection) -> Result<f64, String> {
    let server = connection.server();
    let sql = match server.flavour {
        Flavour::MariaDb => "SHOW ALL SLAVES STATUS",
        Flavour::MySql if server.has(ServerFeature::ShowReplicaStatus) => "SHOW REPLICA STATUS",
        Flavour::MySql => "SHOW SLAVE STATUS",
    };
    let answer = connection.query(sql).await.map_err(|error| error.to_string())?;
    let column = answer.column("Seconds_Behind_Source").or_else(|| answer.column("Seconds_Behind_Master"));
    let column = column.filter(|_| !answer.rows.is_empty()).ok_or("the server is not a replica")?;
    let mut most = 0.0_f64;
    for row in &answer.rows {
        most = most.max(number(row.get_str(column).ok_or("replication is not running")?)?);
    }
    Ok(most)
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// Measures all servers repeatedly, and publishes the decision of the throttle. Never returns.
pub(super) async fn run_probes(
    rules: ThrottleRules,
    server: ConnectOptions,
    sender: watch::Sender<ThrottleDecision>,
) {
    let (mut probe_list, mut limits) = (Vec::new(), Vec::new());
    for replica in &rules.replicas {
        probe_list.push(ServerProbe::new(replica, ThrottleMetric::Lag));
        let what = format!("replica lag of {}", replica.endpoint);
        limits.push(ThrottleLimit { what, max: rules.replica_lag_max.as_secs_f64(), unit: " s" });
    }
    if let Some(max) = rules.threads_running_max {
        probe_list.push(ServerProbe::new(&server, ThrottleMetric::ThreadsRunning));
        let what = format!("Threads_running of {}", server.endpoint);
        limits.push(ThrottleLimit { what, max: max as f64, unit: "" });
    }
    if let Some(ThrottleQuery { sql, max }) = rules.query {
        probe_list.push(ServerProbe::new(&server, ThrottleMetric::Own(sql)));
        limits.push(ThrottleLimit { what: "the throttle query".into(), max, unit: "" });
    }
    let mut gauges = ThrottleGauges::new(limits);
    let mut ticks = tokio::time::interval(rules.every.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answers = futures_util::future::join_all(probe_list.iter_mut().map(ServerProbe::ask)).await;
        for (number, answer) in answers.into_iter().enumerate() {
            gauges.record(number, answer);
        }
        let decision = gauges.decision();
        sender.send_if_modified(|current| {
            let differs = *current != decision;
            *current = decision;
            differs
        });
    }
}
