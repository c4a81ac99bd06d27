//! Traces: a receiver of OpenTelemetry gets the spans of jobs, switchovers and slow batches. Needs the
//! feature `otel`; without it, the section is refused.

#[cfg(not(feature = "otel"))]
#[test]
fn a_build_without_traces_refuses_the_section() -> anyhow::Result<()> {
    let daemon = super::http_api::ApiDaemon::prepare("[traces]\nendpoint = \"http://127.0.0.1:4318\"\n")?;
    for words in ["config check -c tailwater.toml", "run -c tailwater.toml"] {
        let refused = daemon.shell.run(words)?;
        let code = if words.starts_with("run") { 78 } else { 1 };
        refused.exits(code).stderr_has(&["[traces]", "--features otel", "traces.md"]);
    }
    Ok(())
}

#[cfg(feature = "otel")]
mod with_exporter {
    use std::convert::Infallible;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result, ensure};
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
    use parking_lot::Mutex;
    use prost::Message;
    use serde_json::json;
    use tailwater_lab::fault_trial::managed_cluster::start_candidate;
    use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
    use tailwater_log::AckMode;
    use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
    use tailwater_session::Connection;
    use tokio::net::TcpListener;

    use super::super::http_api::{ApiDaemon, OPERATOR};
    use crate::shell_session::{PROGRAM, Shell};

    /// Time limit of each wait. A passing test never reaches it.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// An HTTP server that decodes what it receives at `/v1/traces`.
    struct Receiver {
        port: u16,
        requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
        /// Absent only while this value is dropped.
        runtime: Option<tokio::runtime::Runtime>,
    }

    impl Drop for Receiver {
        fn drop(&mut self) {
            // A test may drop it within a runtime, where nothing may wait for another one.
            if let Some(runtime) = self.runtime.take() {
                runtime.shutdown_background();
            }
        }
    }

    impl Receiver {
        fn start() -> Result<Self> {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
            let (port, requests) = (listener.local_addr()?.port(), Arc::<Mutex<Vec<_>>>::default());
            let received = Arc::clone(&requests);
            runtime.spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let received = Arc::clone(&received);
                    let service = service_fn(move |request| answer(request, Arc::clone(&received)));
                    tokio::spawn(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service),
                    );
                }
            });
            Ok(Self { port, requests, runtime: Some(runtime) })
        }

        fn config(&self) -> String {
            format!("\n[traces]\nendpoint = \"http://127.0.0.1:{}/\"\n", self.port)
        }

        /// All spans so far.
        fn spans(&self) -> Vec<Span> {
            let requests = self.requests.lock();
            let scopes = requests.iter().flat_map(|request| &request.resource_spans);
            scopes.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
        }

        /// Waits for a span with this name.
        fn until(&self, name: &str) -> Result<Span> {
            let started = Instant::now();
            loop {
                let spans = self.spans();
                if let Some(span) = spans.iter().find(|span| span.name == name) {
                    return Ok(span.clone());
                }
                let names: Vec<_> = spans.into_iter().map(|span| span.name).collect();
                ensure!(started.elapsed() < PATIENCE, "no span {name:?} arrived: {names:?}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }

        fn children(&self, of: &Span) -> Vec<Span> {
            let is_child = |span: &Span| span.trace_id == of.trace_id && span.parent_span_id == of.span_id;
            self.spans().into_iter().filter(is_child).collect()
        }
    }

    async fn answer(
        request: Request<Incoming>,
        received: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let is_traces = request.method() == "POST"
            && request.uri().path() == "/v1/traces"
            && request.headers().get("content-type").is_some_and(|kind| kind == "application/x-protobuf");
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let mut response = Response::new(Full::default());
        match ExportTraceServiceRequest::decode(body) {
            Ok(request) if is_traces => received.lock().push(request),
            _ => *response.status_mut() = hyper::StatusCode::BAD_REQUEST,
        }
        Ok(response)
    }

    fn attribute(span: &Span, name: &str) -> Option<String> {
        let attribute = span.attributes.iter().find(|one| one.key == format!("tailwater.{name}"))?;
        match attribute.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Some(text.clone()),
            Value::IntValue(number) => Some(number.to_string()),
            Value::BoolValue(value) => Some(value.to_string()),
            _ => None,
        }
    }

    fn milliseconds(span: &Span) -> u64 {
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1_000_000
    }

    #[test]
    fn a_job_is_a_span() -> Result<()> {
        let receiver = Receiver::start()?;
        let daemon = ApiDaemon::start(&receiver.config())?;
        let ask =
            |path: &str, body: serde_json::Value| daemon.ask("POST", path, Some(OPERATOR), &body.to_string());
        for (outcome, subject) in [("finished", "shop"), ("failed", "other")] {
            let body = json!({ "kind": "dump", "subject": subject, "can_cancel": true });
            let (code, job) = ask("/api/v1/jobs", body)?;
            ensure!(code == 201, "{code} {job}");
            let end = json!({ "outcome": outcome, "code": "TW-BULK-0001", "message": "no space" });
            let (code, answer) = ask(&format!("/api/v1/jobs/{}/end", job["id"]), end)?;
            ensure!(code == 200, "{code} {answer}");
        }
        let started = Instant::now();
        while receiver.spans().len() < 2 {
            ensure!(started.elapsed() < PATIENCE, "{:?}", receiver.spans());
            std::thread::sleep(Duration::from_millis(50));
        }
        let spans = receiver.spans();
        for (span, (subject, is_error)) in spans.iter().zip([("shop", false), ("other", true)]) {
            ensure!(
                span.name == "job dump" && attribute(span, "subject").as_deref() == Some(subject),
                "{span:?}"
            );
            let status = span.status.as_ref().context("no status")?;
            ensure!((status.code() == StatusCode::Error) == is_error, "{span:?}");
            ensure!(!is_error || status.message == "no space", "{span:?}");
        }
        let requests = receiver.requests.lock();
        let resource = requests[0].resource_spans[0].resource.clone().context("no resource")?;
        let service = resource.attributes.iter().find(|attribute| attribute.key == "service.name");
        ensure!(format!("{service:?}").contains("\"tailwater\""), "{resource:?}");
        // Spans are not messages.
        let messages = std::fs::read_to_string(daemon.shell.path().join("relay.log"))?;
        ensure!(!messages.contains("span_json"), "{messages}");
        Ok(())
    }

    /// The daemon works while no receiver answers, and says so.
    #[test]
    fn a_missing_receiver_changes_nothing() -> Result<()> {
        let daemon = ApiDaemon::start("[traces]\nendpoint = \"http://127.0.0.1:1\"\n")?;
        let body = json!({ "kind": "dump", "subject": "shop", "can_cancel": true }).to_string();
        let (code, job) = daemon.ask("POST", "/api/v1/jobs", Some(OPERATOR), &body)?;
        ensure!(code == 201, "{code} {job}");
        let end = json!({ "outcome": "finished" }).to_string();
        let path = format!("/api/v1/jobs/{}/end", job["id"]);
        ensure!(daemon.ask("POST", &path, Some(OPERATOR), &end)?.0 == 200);
        let started = Instant::now();
        loop {
            let messages = std::fs::read_to_string(daemon.shell.path().join("relay.log"))?;
            if messages.contains("ExportError") || messages.contains("ExportFailed") {
                return Ok(());
            }
            ensure!(started.elapsed() < PATIENCE, "no message says that traces are lost: {messages}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn trial_spec(shell: &Shell) -> TrialSpec {
        TrialSpec {
            kind: ServerKind::Mariadb1011,
            durability: TrialDurability::Reduced,
            options: Vec::new(),
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: shell.path().to_owned(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_switchover_is_a_span_with_its_phases() -> Result<()> {
        if require(ServerKind::Mariadb1011).is_none() {
            return Ok(());
        }
        let receiver = tokio::task::block_in_place(Receiver::start)?;
        let shell = Shell::new()?;
        let options = vec!["--log-slave-updates=1".to_owned()];
        let mut trial = Trial::start(TrialSpec { options, ..trial_spec(&shell) }).await?;
        let replica = start_candidate(ServerKind::Mariadb1011, 2).await?;
        trial.manage(&[&replica], "lease_ttl_ms = 10000")?;
        trial.add_channel(&receiver.config())?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        replica.replicate(&trial.replica_of_relay()).await?;
        trial.wait_until_observed().await?;
        let started = Instant::now();
        let ran = loop {
            let ran = shell.run(
                "switchover -c tailwater.toml primary --to db2 --max-write-pause-ms 20000 --output json",
            )?;
            if ran.text().contains("\"promoted\"") {
                break ran;
            }
            ensure!(started.elapsed() < PATIENCE, "{}{}", ran.text(), ran.errors());
            tokio::time::sleep(Duration::from_millis(300)).await;
        };
        let audit = ran.json()?.pop().context("no audit record")?;
        let id = audit["id"].as_str().context("no id")?.to_owned();
        let is_run = |span: &Span| span.name == "switchover" && attribute(span, "id").as_deref() == Some(&id);
        let started = Instant::now();
        let run = loop {
            if let Some(run) = receiver.spans().into_iter().find(is_run) {
                break run;
            }
            ensure!(started.elapsed() < PATIENCE, "no span of {id}: {:?}", receiver.spans());
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        ensure!(attribute(&run, "source").as_deref() == Some("primary"), "{run:?}");
        ensure!(attribute(&run, "old_primary").as_deref() == audit["primary"].as_str(), "{run:?}");
        ensure!(attribute(&run, "new_primary").as_deref() == Some("db2"), "{run:?}");
        let pause = audit["pause_ms"].as_u64().map(|ms| ms.to_string());
        ensure!(attribute(&run, "write_pause_ms") == pause, "{run:?} {pause:?}");
        let phases = receiver.children(&run);
        let names: Vec<_> = phases.iter().map(|phase| phase.name.as_str()).collect();
        ensure!(names.contains(&"pause"), "{names:?}");
        let sum: u64 = phases.iter().map(|phase| phase.end_time_unix_nano - phase.start_time_unix_nano).sum();
        ensure!(sum == run.end_time_unix_nano - run.start_time_unix_nano, "the phases are not the whole run");
        let actions: usize = phases.iter().map(|phase| receiver.children(phase).len()).sum();
        let ordered = audit["steps"].as_array().map(|steps| {
            steps.iter().filter(|step| step["note"] == "ordered" || step["note"] == "action_ordered").count()
        });
        ensure!(Some(actions) == ordered && actions > 5, "{actions} of {ordered:?} actions");
        trial.kill_relay().await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_slow_batch_is_a_span() -> Result<()> {
        if require(ServerKind::Mariadb1011).is_none() {
            return Ok(());
        }
        let receiver = tokio::task::block_in_place(Receiver::start)?;
        let shell = Shell::new()?;
        let mut trial = Trial::start(trial_spec(&shell)).await?;
        let target =
            Server::start(ServerSpec::new(ServerKind::Mariadb1011).name("target").option("--server-id=2"));
        let target = target.await?;
        trial.add_channel(&format!(
            "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n{}",
            target.socket().display(),
            receiver.config()
        ))?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)").await?;
        trial.primary.sql("INSERT INTO shop.t VALUES (1, 1)").await?;
        let rows = async |wanted: &str| {
            let started = Instant::now();
            while target.sql("SELECT n FROM shop.t").await.is_ok_and(|rows| rows.concat().trim() != wanted)
                || target.sql("SELECT n FROM shop.t").await.is_err()
            {
                ensure!(started.elapsed() < PATIENCE, "the channel does not apply");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        rows("1").await?;
        let mut holder = Connection::connect(&target.connect_options()).await?;
        holder.execute("BEGIN").await?;
        holder.query("SELECT * FROM shop.t FOR UPDATE").await?;
        trial.primary.sql("UPDATE shop.t SET n = 2").await?;
        let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
        let started = Instant::now();
        while target.sql(waiting).await?.concat().trim() != "1" {
            ensure!(started.elapsed() < PATIENCE, "the channel does not wait for the lock");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        holder.execute("ROLLBACK").await?;
        rows("2").await?;
        let span = tokio::task::block_in_place(|| receiver.until("apply batch"))?;
        ensure!(milliseconds(&span) >= 1_000, "{} ms: {span:?}", milliseconds(&span));
        ensure!(attribute(&span, "channel").as_deref() == Some("reports"), "{span:?}");
        ensure!(attribute(&span, "transactions").as_deref() == Some("1"), "{span:?}");
        ensure!(attribute(&span, "first_gtid").is_some_and(|gtid| gtid.starts_with("0-1-")), "{span:?}");
        let parts: Vec<_> = receiver.children(&span).into_iter().map(|part| part.name).collect();
        ensure!(parts == ["execute", "commit"], "{parts:?}");
        let slow: Vec<_> = receiver.spans().into_iter().filter(|span| span.name == "apply batch").collect();
        ensure!(slow.len() == 1, "fast batches are spans, too: {slow:?}");
        trial.kill_relay().await
    }
}
