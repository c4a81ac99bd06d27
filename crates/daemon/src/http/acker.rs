//! What a manager on another machine asks a capture, and orders it. Everything here wants the token.

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::handler::{Answer, AnswerBody};
use super::route::OrderKind;
use super::token::BearerToken;
use crate::control::SourceHandle;
use crate::manager::acker::{AckerFailure, AckerOrder, AckerStatus, obey};
use crate::wiring::ClusterWiring;

/// How a source's capture stands, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// Under which `server_id` the source knows it.
    pub server_id: u32,
    /// It reads its source's stream now.
    pub is_streaming: bool,
    /// It acknowledges commits while it does.
    pub acknowledges: bool,
    /// How long ago something came in the stream, in milliseconds; absent if nothing ever did.
    pub heard_ago_ms: Option<u64>,
    /// How often something comes in it at least, in milliseconds; absent of a daemon that does not say so.
    #[serde(default)]
    pub heartbeat_ms: Option<u64>,
    /// What the source's own server is called there; absent of a daemon that does not say so.
    #[serde(default)]
    pub own: Option<String>,
    /// What it was ordered, and what it holds.
    pub acker: AckerStatus,
}

/// The body of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderBody {
    /// The term of the lease in which it is given.
    pub token: u64,
    /// Whom to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Whether a request may ask or order; or the answer that it may not.
pub(super) fn admit(secret: Option<&BearerToken>, credential: Option<&[u8]>) -> Result<(), Answer> {
    let secret = secret.ok_or_else(|| {
        Answer::failed(StatusCode::FORBIDDEN, "[http] has no token_file: nobody may ask or order this here")
    })?;
    if credential.is_some_and(|credential| secret.is_in(credential)) {
        return Ok(());
    }
    Err(Answer::failed(StatusCode::UNAUTHORIZED, "Authorization: Bearer TOKEN, with that of token_file"))
}

/// How the capture of a source stands.
pub(super) async fn read(source: &SourceHandle, wiring: &ClusterWiring) -> Answer {
    answer(obey(&source.acker, &AckerOrder::Read).await.map(|acker| json!(source.relay_text(wiring, acker))))
}

/// Has the capture of a source obey.
pub(super) async fn order(
    source: &SourceHandle,
    wiring: &ClusterWiring,
    kind: OrderKind,
    body: &[u8],
) -> Answer {
    let order = match understood(kind, body) {
        Ok(order) => order,
        Err(reason) => return Answer::failed(StatusCode::BAD_REQUEST, &reason),
    };
    answer(obey(&source.acker, &order).await.map(|acker| json!(source.relay_text(wiring, acker))))
}

fn understood(kind: OrderKind, body: &[u8]) -> Result<AckerOrder, String> {
    let body: OrderBody = serde_json::from_slice(body).map_err(|error| {
        format!("the body is an object such as {{\"token\": 7}}, to follow with \"server\" besides: {error}")
    })?;
    match (kind, body) {
        (OrderKind::Stop, OrderBody { token, server: None }) => Ok(AckerOrder::Stop { token }),
        (OrderKind::Start, OrderBody { token, server: None }) => Ok(AckerOrder::Start { token }),
        (OrderKind::Follow, OrderBody { token, server: Some(server) }) => {
            Ok(AckerOrder::Follow { token, server })
        }
        (OrderKind::Follow, _) => Err("whom to follow is missing: \"server\"".to_owned()),
        (OrderKind::Stop | OrderKind::Start, _) => Err("\"server\" is for orders to follow".to_owned()),
    }
}

/// A failure is told with its code, so that who asked knows whether anything was done.
fn answer(obeyed: Result<Value, AckerFailure>) -> Answer {
    match obeyed {
        Ok(body) => Answer::ok(body),
        Err(failure) => {
            Answer { status: StatusCode::CONFLICT, body: AnswerBody::Json(json!(failure)), allowed: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_whole() {
        let read = |kind, body: &str| understood(kind, body.as_bytes());
        assert_eq!(read(OrderKind::Stop, r#"{"token":7}"#), Ok(AckerOrder::Stop { token: 7 }));
        let follow = AckerOrder::Follow { token: 7, server: "db2".to_owned() };
        assert_eq!(read(OrderKind::Follow, r#"{"token":7,"server":"db2"}"#), Ok(follow));
        for (kind, wrong) in [
            (OrderKind::Stop, ""),
            (OrderKind::Stop, "{}"),
            (OrderKind::Stop, r#"{"token":-1}"#),
            (OrderKind::Stop, r#"{"token":7,"server":"db2"}"#),
            (OrderKind::Start, r#"{"token":7,"force":true}"#),
            (OrderKind::Follow, r#"{"token":7}"#),
        ] {
            assert!(read(kind, wrong).is_err(), "{kind:?} {wrong}");
        }
    }
}
