//! A value in etcd that several managers read and change without overwriting each other's changes.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::etcd_client::{EtcdClient, EtcdOptions, number};
use crate::ManagerError;

/// A value with the etcd revision of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdStored {
    /// The value; `None` if the key does not exist.
    pub bytes: Option<Vec<u8>>,
    /// The etcd revision of the last change; 0 if the key does not exist.
    pub revision: u64,
}

/// Reads and replaces one value in etcd.
#[derive(Debug)]
pub struct EtcdValue {
    etcd: EtcdClient,
}

impl EtcdValue {
    /// Creates access to the value whose key is in `options`. Sends no request yet.
    ///
    /// # Errors
    /// As [`super::EtcdLease::new`].
    pub fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        Ok(Self { etcd: EtcdClient::new(options)? })
    }

    /// Reads the value. If a member of etcd does not answer, asks the next member.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if no member answers.
    pub async fn read(&mut self) -> Result<EtcdStored, ManagerError> {
        let body = json!({ "key": self.key() });
        let answer = self.ask("kv/range", &body).await?;
        let Some(found) = answer["kvs"].get(0) else { return Ok(EtcdStored { bytes: None, revision: 0 }) };
        let bytes = STANDARD.decode(found["value"].as_str().unwrap_or_default());
        let bytes =
            bytes.map_err(|error| self.failed(&format!("the answer of etcd is not base64: {error}")))?;
        let revision =
            number(&found["mod_revision"]).ok_or_else(|| self.failed("etcd returned no revision"))?;
        Ok(EtcdStored { bytes: Some(bytes), revision })
    }

    /// Replaces the value that was read at `revision`, and returns the new revision. If the value has changed
    /// since then, returns `None` and changes nothing.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if no member answers; the value may have been replaced nevertheless.
    pub async fn replace(&mut self, revision: u64, bytes: &[u8]) -> Result<Option<u64>, ManagerError> {
        let key = self.key();
        let unchanged =
            json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() });
        let put = json!({ "request_put": { "key": key, "value": STANDARD.encode(bytes) } });
        let answer = self.ask("kv/txn", &json!({ "compare": [unchanged], "success": [put] })).await?;
        if answer["succeeded"].as_bool() != Some(true) {
            return Ok(None);
        }
        let revision = number(&answer["header"]["revision"]);
        Ok(Some(revision.ok_or_else(|| self.failed("etcd returned no revision"))?))
    }

    fn key(&self) -> String {
        STANDARD.encode(&self.etcd.options.key)
    }

    /// Sends the request to each member at most once. A repeated write has no effect, because the first write
    /// has changed the revision.
    async fn ask(&mut self, method: &str, body: &Value) -> Result<Value, ManagerError> {
        let mut last = String::new();
        let members = self.etcd.options.endpoints.len();
        let request_max = Duration::from_millis(self.etcd.options.request_ms_max);
        for member in 1..=members {
            // A failover or switchover waits for the answer. The first member may have died together with the
            // primary's host, so it gets less time.
            let limit = if member < members { request_max / 4 } else { request_max };
            match self.etcd.post_within(limit, method, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(reason) => last = reason,
            }
        }
        Err(self.failed(&last))
    }

    fn failed(&self, reason: &str) -> ManagerError {
        let endpoints = self.etcd.options.shown_endpoints();
        ManagerError::Etcd { endpoints, reason: reason.to_owned() }
    }
}
