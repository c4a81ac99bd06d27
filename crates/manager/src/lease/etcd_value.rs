//! A value in etcd that several managers read and change: none undoes what another did meanwhile.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::etcd_client::{EtcdClient, EtcdOptions, number};
use crate::ManagerError;

/// What was read, and when it was written last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdStored {
    /// The bytes; none if nothing is there.
    pub bytes: Option<Vec<u8>>,
    /// The revision of etcd in which they were written; 0 if nothing is there.
    pub revision: u64,
}

/// One key in etcd.
#[derive(Debug)]
pub struct EtcdValue {
    etcd: EtcdClient,
}

impl EtcdValue {
    /// The key of the options. Nothing is asked yet.
    ///
    /// # Errors
    /// As [`super::EtcdLease::new`].
    pub fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        Ok(Self { etcd: EtcdClient::new(options)? })
    }

    /// What is there now. A member that does not answer is passed over once.
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

    /// Puts these bytes in place of what was read at `revision`, and gives theirs. Nothing if somebody else has written since, and then
    /// nothing is changed.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if no member answers: it may be done then.
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

    /// Each member at most once. To ask twice does no harm: what was written has another revision.
    async fn ask(&mut self, method: &str, body: &Value) -> Result<Value, ManagerError> {
        let mut last = String::new();
        let members = self.etcd.options.endpoints.len();
        let request_max = Duration::from_millis(self.etcd.options.request_ms_max);
        for member in 1..=members {
            // A run waits for this, and the first member may have died with the primary's machine.
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
