//! A value in etcd that several managers read and change, without overwriting each other's changes.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::etcd_client::{EtcdClient, EtcdOptions, number};
use crate::ManagerError;

/// A value with the revision of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdStored {
    /// `None` if the key does not exist.
    pub bytes: Option<Vec<u8>>,
    /// Revision of the last change; 0 if the key does not exist.
    pub revision: u64,
}

/// A value in etcd.
#[derive(Debug)]
pub struct EtcdValue {
    etcd: EtcdClient,
}

impl EtcdValue {
    /// The value at the key of the options; nothing is requested yet.
    ///
    /// # Errors
    /// As [`super::EtcdLease::new`].
    pub fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        Ok(Self { etcd: EtcdClient::new(options)? })
    }

    /// Reads the value. If a member does not answer, the next one is asked.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if no member answers.
    pub async fn read(&mut self) -> Result<EtcdStored, ManagerError> {
        let body = json!({ "key": self.key() });
        let answer = self.ask("kv/range", &body).await?;
        let Some(found) = answer["kvs"].get(0) else { return Ok(EtcdStored { bytes: None, revision: 0 }) };
        let bytes = STANDARD.decode(found["value"].as_str().unwrap_or_default());
        let bytes = bytes.map_err(|error| self.failed(&format!("its answer is not base64: {error}")))?;
        let revision = number(&found["mod_revision"]).ok_or_else(|| self.failed("it named no revision"))?;
        Ok(EtcdStored { bytes: Some(bytes), revision })
    }

    /// Replaces the value read at `revision`, and returns the new revision. Returns `None` and changes
    /// nothing if the value has changed since.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if no member answers; the change may then have been made.
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
        Ok(Some(revision.ok_or_else(|| self.failed("it named no revision"))?))
    }

    fn key(&self) -> String {
        STANDARD.encode(&self.etcd.options.key)
    }

    /// Asks each member at most once. A repeated write is harmless, because the revision has changed.
    async fn ask(&mut self, method: &str, body: &Value) -> Result<Value, ManagerError> {
        let mut last = String::new();
        let members = self.etcd.options.endpoints.len();
        let request_max = Duration::from_millis(self.etcd.options.request_ms_max);
        for member in 1..=members {
            // A run waits for this, and the first member may have died with the primary's host.
            let limit = if member < members { request_max / 4 } else { request_max };
            match self.etcd.post_within(limit, method, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(reason) => last = reason,
            }
        }
        Err(self.failed(&last))
    }

    fn failed(&self, reason: &str) -> ManagerError {
        let endpoints = self.etcd.options.endpoints.join(", ");
        ManagerError::Etcd { endpoints, reason: reason.to_owned() }
    }
}
