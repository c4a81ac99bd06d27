//! The lease in etcd, for managers on several machines.
//!
//! The lease is one key that is bound to an etcd lease. A transaction creates the key only if it does not
//! exist, so only one manager can own it. The key is deleted when the etcd lease ends. The revision that
//! created the key becomes the token of the lease term, because revisions only grow.
//!
//! The revisions of a rebuilt etcd cluster start again at low numbers, below the tokens that relays have
//! accepted. The floor that an operator sets ([`TERM_FLOOR_KEY`]) is therefore read in the same transaction
//! and added to each revision. The floor only grows, so tokens only grow too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::LeaseStore;
use super::etcd_client::{EtcdClient, EtcdOptions, number};
use super::lease_validity::LeaseAnswer;
use crate::ManagerError;
use crate::model::LeaseToken;

/// Suffix of the key that contains the floor of the lease terms: a number that is added to all tokens.
pub const TERM_FLOOR_KEY: &str = "above";

/// A lease in etcd.
#[derive(Debug)]
pub struct EtcdLease {
    etcd: EtcdClient,
    /// Id of the etcd lease to which the key may be bound.
    lease: Option<String>,
    /// The etcd revision in which this manager created the key.
    made_in: u64,
}

impl EtcdLease {
    /// Creates a lease that has not been requested yet.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] if there is no endpoint, if the CA file cannot be used, or if the client cannot
    /// be created.
    pub fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        Ok(Self { etcd: EtcdClient::new(options)?, lease: None, made_in: 0 })
    }

    async fn try_acquire(&mut self) -> Result<LeaseAnswer, String> {
        let key = STANDARD.encode(&self.etcd.options.key);
        // The key is read first, because usually another manager holds it. Granting an etcd lease for each
        // attempt would burden the cluster.
        let there = self.etcd.post("kv/range", json!({ "key": key })).await?;
        if let Some(holder) = value_of(&there["kvs"]) {
            return Ok(LeaseAnswer::HeldByOther { holder });
        }
        let ttl = self.etcd.options.ttl_ms.div_ceil(1000).to_string();
        let granted = self.etcd.post("lease/grant", json!({ "TTL": ttl })).await?;
        let lease = granted["ID"].as_str().ok_or("etcd returned no lease id")?.to_owned();
        let ttl_ms = number(&granted["TTL"]).ok_or("etcd returned no TTL")?.saturating_mul(1000);
        self.lease = Some(lease.clone());
        let above = format!("{}/{TERM_FLOOR_KEY}", self.etcd.options.key);
        let read_above = json!({ "request_range": { "key": STANDARD.encode(&above) } });
        let put = json!({ "key": key, "value": STANDARD.encode(&self.etcd.options.holder), "lease": lease });
        let answer = self
            .etcd
            .post(
                "kv/txn",
                json!({
                    "compare": [created(&key, 0)],
                    "success": [{ "request_put": put }, read_above],
                    "failure": [{ "request_range": { "key": key } }],
                }),
            )
            .await?;
        if answer["succeeded"].as_bool() == Some(true) {
            let revision = number(&answer["header"]["revision"]).ok_or("etcd returned no revision")?;
            self.made_in = revision;
            let lowest = match value_of(&answer["responses"][1]["response_range"]["kvs"]) {
                Some(text) => text
                    .trim()
                    .parse::<u64>()
                    .map_err(|_| format!("the value of the key {above} in etcd is not a number: {text:?}"))?,
                None => 0,
            };
            return Ok(LeaseAnswer::Granted { token: LeaseToken(lowest.saturating_add(revision)), ttl_ms });
        }
        let holder = value_of(&answer["responses"][0]["response_range"]["kvs"]);
        self.revoke().await;
        Ok(LeaseAnswer::HeldByOther { holder: holder.unwrap_or_else(|| "another manager".to_owned()) })
    }

    async fn try_renew(&mut self) -> Result<LeaseAnswer, String> {
        let gone = |reason: &str| Ok(LeaseAnswer::Expired { reason: reason.to_owned() });
        let Some(lease) = self.lease.clone() else { return gone("this manager holds no etcd lease") };
        let key = STANDARD.encode(&self.etcd.options.key);
        let ours = self.etcd.post("kv/txn", json!({ "compare": [created(&key, self.made_in)] })).await?;
        if ours["succeeded"].as_bool() != Some(true) {
            return gone("the key in etcd no longer belongs to this manager");
        }
        let answer = self.etcd.post("lease/keepalive", json!({ "ID": lease })).await?;
        if answer["result"].is_null() {
            return Err(format!("etcd did not renew the lease: {}", answer["error"]));
        }
        // If the etcd lease has expired, the answer contains no TTL.
        match number(&answer["result"]["TTL"]).filter(|ttl| *ttl > 0) {
            Some(ttl) => Ok(LeaseAnswer::Renewed { ttl_ms: ttl.saturating_mul(1000) }),
            None => gone("etcd has ended the lease"),
        }
    }

    async fn revoke(&mut self) {
        if let Some(lease) = self.lease.take() {
            // If the request fails, the etcd lease expires by itself.
            let _ = self.etcd.post("lease/revoke", json!({ "ID": lease })).await;
        }
    }
}

impl LeaseStore for EtcdLease {
    async fn acquire(&mut self) -> LeaseAnswer {
        // Revokes the etcd lease of an earlier attempt whose outcome is unknown.
        self.revoke().await;
        self.try_acquire().await.unwrap_or_else(|reason| LeaseAnswer::Failed { reason })
    }

    async fn renew(&mut self, _: LeaseToken) -> LeaseAnswer {
        self.try_renew().await.unwrap_or_else(|reason| LeaseAnswer::Failed { reason })
    }

    async fn release(&mut self) {
        self.revoke().await;
    }
}

/// Returns the condition that the key was created in this revision; 0 means that the key does not exist.
fn created(key: &str, revision: u64) -> Value {
    json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": revision.to_string() })
}

/// Returns the value of the key in an answer.
fn value_of(keys: &Value) -> Option<String> {
    let value = keys.get(0)?.get("value").and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(value).unwrap_or_default();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
