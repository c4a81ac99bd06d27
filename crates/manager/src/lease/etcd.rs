//! The lease of several managers, kept by etcd.
//!
//! One key, bound to an etcd lease: it is made only if it is not there, in one transaction, so one manager has it; and it
//! goes when its lease ends. The revision in which it was made is the term's token: revisions only grow.
//!
//! Those of a cluster that was made anew begin anew, too, below what relays have obeyed. So what a person has put beneath them
//! ([`TERM_FLOOR_KEY`]) is added, read in the transaction that makes the key: as it only grows, tokens do.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::etcd_client::{EtcdClient, EtcdOptions, number};
use super::lease_holder::LeaseAnswer;
use super::{LeaseStore, LeaseToken};
use crate::ManagerError;

/// Behind the lease's key and a slash: a number above which all terms are.
pub const TERM_FLOOR_KEY: &str = "above";

/// A lease in etcd.
#[derive(Debug)]
pub struct EtcdLease {
    etcd: EtcdClient,
    /// The etcd lease that the key may be bound to.
    lease: Option<String>,
    /// The revision in which this manager has made the key.
    made_in: u64,
}

impl EtcdLease {
    /// One that has asked for nothing yet.
    ///
    /// # Errors
    /// [`ManagerError::Etcd`] without an endpoint, if the file of the authorities cannot be used, or if no client can be
    /// made.
    pub fn new(options: EtcdOptions) -> Result<Self, ManagerError> {
        Ok(Self { etcd: EtcdClient::new(options)?, lease: None, made_in: 0 })
    }

    async fn try_acquire(&mut self) -> Result<LeaseAnswer, String> {
        let key = STANDARD.encode(&self.etcd.options.key);
        // Most of the time somebody has it; a lease for each try would burden the cluster.
        let there = self.etcd.post("kv/range", json!({ "key": key })).await?;
        if let Some(holder) = value_of(&there["kvs"]) {
            return Ok(LeaseAnswer::HeldByOther { holder });
        }
        let ttl = self.etcd.options.ttl_ms.div_ceil(1000).to_string();
        let granted = self.etcd.post("lease/grant", json!({ "TTL": ttl })).await?;
        let lease = granted["ID"].as_str().ok_or("etcd named no lease")?.to_owned();
        let ttl_ms = number(&granted["TTL"]).ok_or("etcd named no TTL")?.saturating_mul(1000);
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
            let revision = number(&answer["header"]["revision"]).ok_or("etcd named no revision")?;
            self.made_in = revision;
            let lowest = match value_of(&answer["responses"][1]["response_range"]["kvs"]) {
                Some(text) => text
                    .trim()
                    .parse::<u64>()
                    .map_err(|_| format!("{above} in etcd is no number: {text:?}"))?,
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
        let Some(lease) = self.lease.clone() else { return gone("no lease of etcd is held") };
        let key = STANDARD.encode(&self.etcd.options.key);
        let ours = self.etcd.post("kv/txn", json!({ "compare": [created(&key, self.made_in)] })).await?;
        if ours["succeeded"].as_bool() != Some(true) {
            return gone("the key in etcd is not this manager's any more");
        }
        let answer = self.etcd.post("lease/keepalive", json!({ "ID": lease })).await?;
        if answer["result"].is_null() {
            return Err(format!("etcd does not renew: {}", answer["error"]));
        }
        // Of a lease that has ended no TTL is told.
        match number(&answer["result"]["TTL"]).filter(|ttl| *ttl > 0) {
            Some(ttl) => Ok(LeaseAnswer::Renewed { ttl_ms: ttl.saturating_mul(1000) }),
            None => gone("etcd has ended the lease"),
        }
    }

    async fn revoke(&mut self) {
        if let Some(lease) = self.lease.take() {
            // It ends by itself otherwise.
            let _ = self.etcd.post("lease/revoke", json!({ "ID": lease })).await;
        }
    }
}

impl LeaseStore for EtcdLease {
    async fn acquire(&mut self) -> LeaseAnswer {
        // Of an earlier try whose end is not known.
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

/// True if the key was made in this revision; 0 if it is not there.
fn created(key: &str, revision: u64) -> Value {
    json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": revision.to_string() })
}

/// What stands under the key in an answer.
fn value_of(keys: &Value) -> Option<String> {
    let value = keys.get(0)?.get("value").and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(value).unwrap_or_default();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
