//! Converts commands to requests of the HTTP API, and responses to answers. Has no side effects.

use anyhow::Context;
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::capture_orders::OrderBody;
use crate::api::daemon_requests::{ApiFailure, ControlAnswer, ControlCommand, StartedFailover};
use crate::api::jobs::{JobAnswer, JobRequest};
use crate::api::manager_requests::{ManagerAnswer, ManagerRequest};

/// A request of the API. docs/reference/api.md describes the paths.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// The URL of the request. Its host is not used.
    pub url: Url,
    /// The body.
    pub body: Option<Value>,
    answer: AnswerKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerKind {
    Channels,
    Channel,
    Acker,
    Sources,
    Status,
    Clusters,
    Started,
    Audit,
    Reload,
    Runs,
    Jobs,
    Job,
    RegisteredJob,
    JobReport,
}

impl ApiRequest {
    /// Returns a GET request for a resource. The caller parses the body of the response.
    pub(super) fn get(path: &[&str]) -> anyhow::Result<Self> {
        Self::new(Method::GET, path, None, AnswerKind::Status)
    }

    /// Returns the request for a command.
    ///
    /// # Errors
    /// If clients of the socket cannot send the command.
    pub fn of(command: &ControlCommand) -> anyhow::Result<Self> {
        let get = |path: &[&str], answer| Self::new(Method::GET, path, None, answer);
        let channel = |name: &str, action: &str, body: Value| {
            Self::new(Method::POST, &["channels", name, action], Some(body), AnswerKind::Channel)
        };
        let capture = |source: &str, order: &str, body: Value| {
            Self::new(Method::POST, &["captures", source, order], Some(body), AnswerKind::Acker)
        };
        match command {
            ControlCommand::List => get(&["channels"], AnswerKind::Channels),
            ControlCommand::ListWithValues => {
                let mut request = get(&["channels"], AnswerKind::Channels)?;
                request.url.set_query(Some("show_values=true"));
                Ok(request)
            }
            ControlCommand::Start { channel: name, until_gtid, until_time_us } => {
                channel(name, "start", json!({ "until_gtid": until_gtid, "until_time_us": until_time_us }))
            }
            ControlCommand::Tolerate { channel: name, until_gtid } => {
                channel(name, "tolerate", json!({ "until_gtid": until_gtid }))
            }
            ControlCommand::Stop { channel: name } => channel(name, "stop", json!({})),
            ControlCommand::Pause { channel: name } => channel(name, "pause", json!({})),
            ControlCommand::Skip { channel: name, gtid } => channel(name, "skip", json!({ "gtid": gtid })),
            ControlCommand::Seek { channel: name, gtids } => channel(name, "seek", json!({ "gtids": gtids })),
            ControlCommand::Hold { channel: name } => channel(name, "hold", json!({})),
            ControlCommand::Filter { channel, filters, from_gtid } => {
                let body = json!({ "filters": filters, "from_gtid": from_gtid });
                Self::new(Method::PUT, &["channels", channel, "filters"], Some(body), AnswerKind::Channel)
            }
            ControlCommand::Set { channel, edit } => {
                Self::new(Method::PATCH, &["channels", channel], Some(json!(edit)), AnswerKind::Channel)
            }
            ControlCommand::AckerStop { source, token, run } => {
                capture(source, "stop", json!(OrderBody { token: *token, run: *run, server: None }))
            }
            ControlCommand::AckerStart { source, token, run } => {
                capture(source, "start", json!(OrderBody { token: *token, run: *run, server: None }))
            }
            ControlCommand::AckerFollow { source, token, run, server } => {
                let server = Some(server.clone());
                capture(source, "follow", json!(OrderBody { token: *token, run: *run, server }))
            }
            ControlCommand::AckerRead { source } => get(&["captures", source], AnswerKind::Acker),
            ControlCommand::Topology => get(&["sources"], AnswerKind::Sources),
            ControlCommand::Status => get(&["status"], AnswerKind::Status),
            ControlCommand::Reload => {
                let path = ["configuration", "reload"];
                Self::new(Method::POST, &path, Some(json!({})), AnswerKind::Reload)
            }
            ControlCommand::Manager(request) => Self::of_manager(request),
            ControlCommand::Job(request) => Self::of_job(request),
            ControlCommand::CheckPrimary { .. } | ControlCommand::CheckReplica { .. } => {
                anyhow::bail!("only code inside the daemon may give this command; it has no HTTP request")
            }
        }
    }

    fn of_manager(request: &ManagerRequest) -> anyhow::Result<Self> {
        let order = |source: Option<&str>, order: &str, body: Value| {
            let path = ["clusters"].into_iter().chain(source).chain([order]).collect::<Vec<_>>();
            Self::new(Method::POST, &path, Some(body), AnswerKind::Clusters)
        };
        let begin = |source: &str, kind: &str, options: Value| {
            Self::new(Method::POST, &["clusters", source, kind], Some(options), AnswerKind::Started)
        };
        match request {
            ManagerRequest::Status => Self::new(Method::GET, &["clusters"], None, AnswerKind::Clusters),
            ManagerRequest::FailOver { source, options } => begin(source, "failover", json!(options)),
            ManagerRequest::SwitchOver { source, options } => begin(source, "switchover", json!(options)),
            ManagerRequest::Audit { source, id } => {
                Self::new(Method::GET, &["clusters", source, "runs", id], None, AnswerKind::Audit)
            }
            ManagerRequest::Runs { source, count_max } => {
                let mut request =
                    Self::new(Method::GET, &["clusters", source, "runs"], None, AnswerKind::Runs)?;
                request.url.query_pairs_mut().append_pair("count_max", &count_max.to_string());
                Ok(request)
            }
            ManagerRequest::Pause { source } => order(source.as_deref(), "pause", json!({})),
            ManagerRequest::Resume { source } => order(source.as_deref(), "resume", json!({})),
            ManagerRequest::Acknowledge { source } => order(source.as_deref(), "acknowledge", json!({})),
            ManagerRequest::RaiseTerms { source } => order(Some(source), "raise-terms", json!({})),
            ManagerRequest::Downtime { source, server, for_ms, reason } => {
                let body = json!({ "server": server, "for_ms": for_ms, "reason": reason });
                order(Some(source), "downtime", body)
            }
        }
    }

    /// Returns the HTTP request for a request about jobs. It does not name its sender, because the daemon
    /// knows the sender from the connection.
    fn of_job(request: &JobRequest) -> anyhow::Result<Self> {
        let one = |method, id: &u64, action: Option<&str>, body, answer| {
            let id = id.to_string();
            let path: Vec<_> = ["jobs", id.as_str()].into_iter().chain(action).collect();
            Self::new(method, &path, body, answer)
        };
        match request {
            JobRequest::List => Self::new(Method::GET, &["jobs"], None, AnswerKind::Jobs),
            JobRequest::Show { id } => one(Method::GET, id, None, None, AnswerKind::Job),
            JobRequest::Register { registration, .. } => {
                Self::new(Method::POST, &["jobs"], Some(json!(registration)), AnswerKind::RegisteredJob)
            }
            JobRequest::Report { id, report } => {
                one(Method::PUT, id, Some("progress"), Some(json!(report)), AnswerKind::JobReport)
            }
            JobRequest::End { id, end } => {
                one(Method::POST, id, Some("end"), Some(json!(end)), AnswerKind::Job)
            }
            JobRequest::Cancel { id, .. } => {
                one(Method::POST, id, Some("cancel"), Some(json!({})), AnswerKind::Job)
            }
        }
    }

    fn new(method: Method, path: &[&str], body: Option<Value>, answer: AnswerKind) -> anyhow::Result<Self> {
        let mut url = Url::parse("http://localhost/api/v1").context("the URL of the API")?;
        // Encodes those characters of the names that have a meaning in URLs.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        Ok(Self { method, url, body, answer })
    }

    /// Returns the answer in the body of a successful response.
    ///
    /// # Errors
    /// If the body does not have the expected shape.
    pub fn answer(&self, body: &[u8]) -> anyhow::Result<ControlAnswer> {
        Ok(match self.answer {
            AnswerKind::Channels => ControlAnswer::Channels(parse(body)?),
            AnswerKind::Channel => ControlAnswer::Channels(vec![parse(body)?]),
            AnswerKind::Acker => ControlAnswer::Acker(parse(body)?),
            AnswerKind::Sources => ControlAnswer::Topology(parse(body)?),
            AnswerKind::Status => ControlAnswer::Status(parse(body)?),
            AnswerKind::Clusters => ControlAnswer::Manager(ManagerAnswer::Clusters(parse(body)?)),
            AnswerKind::Runs => ControlAnswer::Manager(ManagerAnswer::Runs(parse(body)?)),
            AnswerKind::Started => {
                let StartedFailover { id } = parse(body)?;
                ControlAnswer::Manager(ManagerAnswer::Begun { id })
            }
            AnswerKind::Reload => ControlAnswer::Reloaded(parse(body)?),
            AnswerKind::Jobs => ControlAnswer::Job(JobAnswer::List(parse(body)?)),
            AnswerKind::Job => ControlAnswer::Job(JobAnswer::Details(parse(body)?)),
            AnswerKind::RegisteredJob => ControlAnswer::Job(JobAnswer::Registered(parse(body)?)),
            AnswerKind::JobReport => ControlAnswer::Job(JobAnswer::Reported(parse(body)?)),
            AnswerKind::Audit => ControlAnswer::Manager(ManagerAnswer::Audit(parse(body)?)),
        })
    }

    /// Returns the failure in the body of a response that is not successful.
    ///
    /// # Errors
    /// If the body is not the description of a failure.
    pub fn failure(body: &[u8]) -> anyhow::Result<ControlAnswer> {
        let ApiFailure { code, message } = parse(body)?;
        Ok(ControlAnswer::Failed { code, message })
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("the body of the response cannot be parsed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_names_are_encoded() -> anyhow::Result<()> {
        let stop = ControlCommand::Stop { channel: "a/b c?".to_owned() };
        let request = ApiRequest::of(&stop)?;
        assert_eq!(request.url.path(), "/api/v1/channels/a%2Fb%20c%3F/stop");
        let all = ApiRequest::of(&ControlCommand::Manager(ManagerRequest::Pause { source: None }))?;
        assert_eq!((all.method, all.url.path()), (Method::POST, "/api/v1/clusters/pause"));
        Ok(())
    }

    #[test]
    fn failures_keep_their_code() -> anyhow::Result<()> {
        let failed = ApiRequest::failure(br#"{"code":"TW-MGR-0032","message":"refused"}"#)?;
        assert!(
            matches!(&failed, ControlAnswer::Failed { code: Some(code), message } if code == "TW-MGR-0032" && message == "refused"),
            "the failure has another code or message: {failed:?}"
        );
        assert!(ApiRequest::failure(b"<html>").is_err());
        Ok(())
    }
}
