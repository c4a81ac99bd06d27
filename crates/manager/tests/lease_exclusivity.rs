//! Tests of the lease: two managers never act at the same time, whatever happens to clocks, processes and
//! messages.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tailwater_manager::lease::{
    BootTime, EtcdLease, EtcdOptions, EtcdUser, EtcdValue, FileLease, LeaseAnswer, LeaseChange, LeaseHandle,
    LeaseHolder, LeaseRequest, LeaseStatus, LeaseStore, LeaseTask, LeaseTimes, TERM_FLOOR_KEY,
};
use tailwater_manager::model::LeaseToken;
use tailwater_sandbox::{Etcd, EtcdTls};

const STEP_MS: u64 = 50;

/// A mistake that the simulated managers make, if any. The simulation must detect each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The lease term counts from the time of the answer, not of the request.
    CountsFromTheAnswer,
    /// The manager acts until the very end of its lease term, by a clock that runs slow.
    NoMargin,
}

/// A request that is on its way to the store, or its answer on the way back.
#[derive(Debug, Clone)]
struct Message {
    manager: usize,
    sent: BootTime,
    of: Option<LeaseToken>,
    /// When the request reaches the store, and when the answer is back; `None` means never.
    arrives: Option<u64>,
    returns: Option<u64>,
    heard: Option<LeaseAnswer>,
}

struct Manager {
    keeper: LeaseHolder,
    /// The manager's clock starts at `began`. It advances by `1000 + drift` ms while the store's clock
    /// advances by 1000 ms.
    drift: i64,
    began: u64,
    paused_until: u64,
    asking: bool,
}

impl Manager {
    fn now(&self, time: u64) -> BootTime {
        let rate = u64::try_from(1000 + self.drift).expect("a clock must never run backwards");
        BootTime(self.began + time * rate / 1000)
    }
}

/// The store that grants the lease. It ends the lease by its own clock.
#[derive(Default)]
struct Store {
    held: Option<(usize, u64, LeaseToken)>,
    revision: u64,
}

impl Store {
    fn answer(&mut self, time: u64, manager: usize, of: Option<LeaseToken>, ttl_ms: u64) -> LeaseAnswer {
        if self.held.is_some_and(|(_, until, _)| until <= time) {
            self.held = None;
        }
        match (self.held, of) {
            (None, None) => {
                self.revision += 1;
                let token = LeaseToken(self.revision);
                self.held = Some((manager, time + ttl_ms, token));
                LeaseAnswer::Granted { token, ttl_ms }
            }
            (Some((holder, _, _)), None) => LeaseAnswer::HeldByOther { holder: holder.to_string() },
            (Some((holder, _, held)), Some(token)) if holder == manager && held == token => {
                self.held = Some((manager, time + ttl_ms, token));
                LeaseAnswer::Renewed { ttl_ms }
            }
            (_, Some(_)) => LeaseAnswer::Expired { reason: "the lease term has ended".to_owned() },
        }
    }
}

/// What happens in one step of the simulation. The property test draws it at random.
#[derive(Debug, Clone)]
enum Fate {
    Calm,
    Pause { manager: usize, ms: u64 },
    StoreRestarts,
    StorePauses { ms: u64 },
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        20 => Just(Fate::Calm),
        2 => (0usize..3, 100u64..20_000).prop_map(|(manager, ms)| Fate::Pause { manager, ms }),
        1 => Just(Fate::StoreRestarts),
        1 => (500u64..20_000).prop_map(|ms| Fate::StorePauses { ms }),
    ]
}

/// How long a request and its answer take; `None` if the message is lost.
fn any_way() -> impl Strategy<Value = (Option<u64>, Option<u64>)> {
    let leg =
        || prop_oneof![8 => (0u64..200).prop_map(Some), 2 => (200u64..9_000).prop_map(Some), 1 => Just(None)];
    (leg(), leg())
}

/// Simulates three managers. Returns the number of lease terms. Returns `Err` with the time if two managers
/// acted at once, or if a lease term did not get a higher number than all earlier terms.
fn simulate(
    fates: &[Fate],
    ways: &[(Option<u64>, Option<u64>)],
    drifts: [i64; 3],
    broken: Broken,
) -> Result<u64, u64> {
    let honest = LeaseTimes::of(5_000).expect("the lease duration must be allowed");
    let terms = if broken == Broken::NoMargin { LeaseTimes { margin_ms: 0, ..honest } } else { honest };
    let mut managers: Vec<Manager> = (0u64..)
        .zip(drifts)
        .map(|(index, drift)| Manager {
            keeper: LeaseHolder::new(terms),
            drift,
            began: index * 1_000_000,
            paused_until: 0,
            asking: false,
        })
        .collect();
    let mut store = Store::default();
    let mut store_paused_until = 0;
    let mut messages: Vec<Message> = Vec::new();
    let mut ways = ways.iter().cycle();
    let mut last_token = LeaseToken(0);
    for (step, fate) in fates.iter().enumerate() {
        // Only every tenth step has a fault, so that the managers can work between the faults.
        for part in 0..10 {
            let time = (step as u64 * 10 + part) * STEP_MS;
            match fate {
                Fate::Pause { manager, ms } if part == 0 => managers[*manager].paused_until = time + ms,
                // When etcd restarts, it grants each lease its full duration again.
                Fate::StoreRestarts if part == 0 => {
                    store.held = store.held.map(|(manager, _, token)| (manager, time + terms.ttl_ms, token));
                }
                Fate::StorePauses { ms } if part == 0 => store_paused_until = time + ms,
                _ => {}
            }
            if time >= store_paused_until {
                for message in messages.iter_mut().filter(|message| message.heard.is_none()) {
                    if message.arrives.is_some_and(|at| at <= time) {
                        message.heard = Some(store.answer(time, message.manager, message.of, terms.ttl_ms));
                    }
                }
            }
            for (index, manager) in
                managers.iter_mut().enumerate().filter(|(_, one)| one.paused_until <= time)
            {
                let now = manager.now(time);
                let back = |one: &Message| {
                    one.manager == index && one.heard.is_some() && one.returns.is_some_and(|at| at <= time)
                };
                while let Some(at) = messages.iter().position(back) {
                    let message = messages.swap_remove(at);
                    let sent = if broken == Broken::CountsFromTheAnswer { now } else { message.sent };
                    let heard = message.heard.expect("the message must have an answer");
                    manager.asking = false;
                    if let Some(LeaseChange::Active(token)) =
                        manager.keeper.take_answer(now, sent, message.of, heard)
                    {
                        if token <= last_token {
                            return Err(time);
                        }
                        last_token = token;
                    }
                }
                manager.keeper.tick(now);
                let of = match manager.keeper.next(now) {
                    LeaseRequest::Wait(_) => continue,
                    LeaseRequest::Acquire => None,
                    LeaseRequest::Renew(token) => Some(token),
                };
                // The lease task gives up a request after its time limit, but the answer may still arrive
                // much later.
                if manager.asking && !time.is_multiple_of(2_000) {
                    continue;
                }
                manager.asking = true;
                let (there, back) = ways.next().expect("the cyclic iterator must never end");
                let arrives = there.map(|ms| time + ms);
                let returns = arrives.zip(*back).map(|(at, ms)| at + ms);
                messages.push(Message { manager: index, sent: now, of, arrives, returns, heard: None });
            }
            // A paused manager may act as soon as it resumes. Only its own clock shows it whether its lease
            // term lasts, so its lease is checked here too.
            let acting = managers.iter().filter(|one| one.keeper.holds(one.now(time)).is_some()).count();
            if acting > 1 {
                return Err(time);
            }
        }
    }
    Ok(last_token.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn two_managers_never_hold_the_lease(
        fates in prop::collection::vec(any_fate(), 100..300),
        ways in prop::collection::vec(any_way(), 1..50),
        drifts in prop::array::uniform3(-100i64..=100),
    ) {
        let outcome = simulate(&fates, &ways, drifts, Broken::Nothing);
        prop_assert!(outcome.is_ok(), "two managers acted at the same time, or a lease term had a low number: {outcome:?}");
    }
}

/// Each mistake must be detected in some of a few hundred simulations. Otherwise the property test would
/// prove nothing.
#[test]
fn the_simulation_detects_each_injected_mistake() {
    let worlds = (
        prop::collection::vec(any_fate(), 100..300),
        prop::collection::vec(any_way(), 1..50),
        prop::array::uniform3(-100i64..=100),
    );
    let mut runner = TestRunner::deterministic();
    let mut seen = [false; 2];
    let mut terms = 0;
    for _ in 0..400 {
        let (fates, ways, drifts) = worlds
            .new_tree(&mut runner)
            .expect("the strategy must generate the input of a simulation")
            .current();
        terms += simulate(&fates, &ways, drifts, Broken::Nothing)
            .expect("without a mistake, only one manager acts at a time");
        for (seen, broken) in seen.iter_mut().zip([Broken::CountsFromTheAnswer, Broken::NoMargin]) {
            *seen |= simulate(&fates, &ways, drifts, broken).is_err();
        }
        if seen == [true; 2] && terms > 100 {
            return;
        }
    }
    panic!("the simulations did not detect all mistakes: {seen:?} in {terms} lease terms");
}

#[test]
fn a_lease_term_counts_from_its_request_and_ends_a_margin_early() {
    let terms = LeaseTimes::of(10_000).expect("the lease duration must be allowed");
    let mut keeper = LeaseHolder::new(terms);
    let granted = |token| LeaseAnswer::Granted { token: LeaseToken(token), ttl_ms: 10_000 };
    assert_eq!(keeper.next(BootTime(0)), LeaseRequest::Acquire);
    assert_eq!(
        keeper.take_answer(BootTime(900), BootTime(0), None, granted(7)),
        Some(LeaseChange::Active(LeaseToken(7)))
    );
    assert_eq!(keeper.holds(BootTime(7_999)), Some(LeaseToken(7)));
    assert_eq!(keeper.holds(BootTime(8_000)), None);
    // An answer to a renewal that arrives after the end of the lease term does not restore the term.
    assert!(matches!(keeper.tick(BootTime(8_000)), Some(LeaseChange::Lost { token: LeaseToken(7), .. })));
    assert_eq!(
        keeper.take_answer(
            BootTime(8_001),
            BootTime(7_000),
            Some(LeaseToken(7)),
            LeaseAnswer::Renewed { ttl_ms: 10_000 }
        ),
        None
    );
    assert_eq!(keeper.holds(BootTime(8_001)), None);
    // A grant that arrives eight seconds after its request gives no lease, because its lease term has already
    // ended.
    assert_eq!(keeper.take_answer(BootTime(20_000), BootTime(12_000), None, granted(8)), None);
    assert_eq!(keeper.holds(BootTime(20_000)), None);
    assert!(LeaseTimes::of(1_999).is_err());
}

/// Waits until the manager has the wanted status.
async fn until(handle: &LeaseHandle, wanted: impl Fn(&LeaseStatus) -> bool) -> anyhow::Result<LeaseStatus> {
    let mut standing = handle.standing();
    let stored =
        tokio::time::timeout(Duration::from_secs(60), standing.wait_for(|now| wanted(now))).await??;
    Ok(stored.clone())
}

fn is_active(standing: &LeaseStatus) -> bool {
    matches!(standing, LeaseStatus::Active(_))
}

#[tokio::test]
async fn a_lock_file_is_locked_by_one_manager_and_names_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("manager/lease");
    let terms = LeaseTimes::of(2_000)?;
    let first = LeaseTask::start(FileLease::new(&path, "first", terms.ttl_ms), terms);
    until(&first.handle(), is_active).await?;
    let token = first.handle().check()?;
    let second = LeaseTask::start(FileLease::new(&path, "second", terms.ttl_ms), terms);
    let waits = |now: &LeaseStatus| matches!(now, LeaseStatus::HeldByOther { holder } if holder.contains("first (process"));
    until(&second.handle(), waits).await?;
    let refused = second.handle().check().expect_err("the first manager holds the lease");
    assert_eq!(refused.code(), "TW-MGR-0046");
    assert!(refused.to_string().contains("first"), "the lease was refused for the wrong reason: {refused}");
    let handle = first.handle();
    first.release().await;
    assert!(handle.check().is_err());
    until(&second.handle(), is_active).await?;
    assert!(second.handle().check()? > token);
    Ok(())
}

/// The whole process is paused for longer than the lease term, as by SIGSTOP or while its machine is
/// suspended. When it resumes, it checks the lease before the task that renews the lease has run.
#[tokio::test]
async fn a_manager_that_was_paused_for_longer_than_its_lease_term_may_not_act() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let terms = LeaseTimes::of(2_000)?;
    let task = LeaseTask::start(FileLease::new(folder.path().join("lease"), "first", terms.ttl_ms), terms);
    until(&task.handle(), is_active).await?;
    let token = task.handle().check()?;
    std::thread::sleep(Duration::from_millis(terms.ttl_ms));
    assert_eq!(task.handle().check().expect_err("the lease term has ended").code(), "TW-MGR-0046");
    // The manager requests the lease again, and gets a new lease term.
    until(&task.handle(), |now| matches!(now, LeaseStatus::Active(later) if *later > token)).await?;
    Ok(())
}

#[tokio::test]
async fn a_lock_file_that_was_removed_ends_the_lease_term() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("lease");
    let mut store = FileLease::new(&path, "first", 2_000);
    let LeaseAnswer::Granted { token, .. } = store.acquire().await else {
        anyhow::bail!("the lease was not granted")
    };
    assert!(matches!(store.renew(token).await, LeaseAnswer::Renewed { .. }));
    std::fs::remove_file(&path)?;
    let mut other = FileLease::new(&path, "second", 2_000);
    assert!(matches!(other.acquire().await, LeaseAnswer::Granted { token: later, .. } if later > token));
    assert!(matches!(store.renew(token).await, LeaseAnswer::Expired { .. }));
    Ok(())
}

fn in_etcd(endpoint: &str, holder: &str, terms: LeaseTimes) -> anyhow::Result<EtcdLease> {
    // The first endpoint does not answer; the second endpoint answers.
    let endpoints = vec!["http://127.0.0.1:1".to_owned(), endpoint.to_owned()];
    let key = "tailwater/test".to_owned();
    let options = EtcdOptions {
        endpoints,
        key,
        holder: holder.to_owned(),
        ttl_ms: terms.ttl_ms,
        request_ms_max: terms.request_ms_max,
        ..EtcdOptions::default()
    };
    Ok(EtcdLease::new(options)?)
}

async fn etcd(folder: &Path) -> anyhow::Result<Option<Etcd>> {
    match Etcd::require() {
        Some(program) => Ok(Some(Etcd::start(&program, folder).await?)),
        None => Ok(None),
    }
}

/// Panics at the first moment at which two managers could act.
async fn watch(handles: [LeaseHandle; 2]) -> Infallible {
    loop {
        let held = handles.iter().filter(|handle| handle.check().is_ok()).count();
        assert!(held <= 1, "two managers act at the same time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn etcd_that_hangs_or_restarts_never_makes_two_managers_active() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(mut etcd) = etcd(folder.path()).await? else { return Ok(()) };
    let terms = LeaseTimes::of(2_000)?;
    let first = LeaseTask::start(in_etcd(&etcd.endpoint(), "first", terms)?, terms);
    until(&first.handle(), is_active).await?;
    let token = first.handle().check()?;
    let second = LeaseTask::start(in_etcd(&etcd.endpoint(), "second", terms)?, terms);
    until(&second.handle(), |now| matches!(now, LeaseStatus::HeldByOther { holder } if holder == "first"))
        .await?;
    let watching = tokio::spawn(watch([first.handle(), second.handle()]));

    // No manager can renew the lease. The holder stops by itself, and no other manager begins.
    etcd.pause()?;
    until(&first.handle(), |now| !is_active(now)).await?;
    assert!(first.handle().check().is_err() && second.handle().check().is_err());
    etcd.resume()?;
    let active = || async {
        tokio::select! {
            standing = async { until(&first.handle(), is_active).await } => standing,
            standing = async { until(&second.handle(), is_active).await } => standing,
        }
    };
    let LeaseStatus::Active(later) = active().await? else { anyhow::bail!("no manager is active") };
    assert!(later > token, "the lease term {later} is not higher than {token}");

    // After it was killed, etcd still has the lease. The lease term continues, or another lease term begins.
    let etcd = etcd.restart().await?;
    let LeaseStatus::Active(latest) = active().await? else { anyhow::bail!("no manager is active") };
    assert!(latest >= later);

    // When a manager releases the lease, another manager can get it at once.
    let (leaves, irreversible) =
        if first.handle().check().is_ok() { (first, second) } else { (second, first) };
    leaves.release().await;
    until(&irreversible.handle(), is_active).await?;
    assert!(!watching.is_finished(), "two managers acted at the same time");
    watching.abort();
    drop(etcd);
    Ok(())
}

#[tokio::test]
async fn when_the_key_in_etcd_is_removed_the_lease_term_ends() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(etcd) = etcd(folder.path()).await? else { return Ok(()) };
    let terms = LeaseTimes::of(20_000)?;
    let mut store = in_etcd(&etcd.endpoint(), "first", terms)?;
    // The endpoint that does not answer costs one attempt.
    assert!(
        matches!(store.acquire().await, LeaseAnswer::Failed { reason } if reason.contains("127.0.0.1:1"))
    );
    let LeaseAnswer::Granted { token, ttl_ms } = store.acquire().await else {
        anyhow::bail!("the lease was not granted")
    };
    assert_eq!(ttl_ms, 20_000);
    assert_eq!(store.renew(token).await, LeaseAnswer::Renewed { ttl_ms: 20_000 });
    let mut other = in_etcd(&etcd.endpoint(), "second", terms)?;
    let _ = other.acquire().await;
    assert_eq!(other.acquire().await, LeaseAnswer::HeldByOther { holder: "first".to_owned() });
    store.release().await;
    assert!(matches!(store.renew(token).await, LeaseAnswer::Expired { .. }));
    assert!(matches!(other.acquire().await, LeaseAnswer::Granted { token: later, .. } if later > token));
    assert!(
        EtcdLease::new(EtcdOptions {
            endpoints: vec!["127.0.0.1:2379".to_owned()],
            key: String::new(),
            holder: String::new(),
            ttl_ms: 2_000,
            request_ms_max: 400,
            ..EtcdOptions::default()
        })
        .is_err()
    );
    Ok(())
}

/// The revisions of a recreated etcd start again at 1, and so do the lease terms that are derived from them.
/// The floor raises them above the former lease terms.
#[tokio::test]
async fn the_floor_of_the_lease_terms_is_added_to_the_revisions_of_etcd() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(etcd) = etcd(folder.path()).await? else { return Ok(()) };
    let terms = LeaseTimes::of(2_000)?;
    let task = LeaseTask::start(in_etcd(&etcd.endpoint(), "first", terms)?, terms);
    until(&task.handle(), is_active).await?;
    let before = task.handle().check()?;
    let etcd = etcd.recreate().await?;
    until(&task.handle(), |now| !is_active(now)).await?;
    until(&task.handle(), is_active).await?;
    assert!(task.handle().check()? <= before, "the revisions of the recreated etcd must be low");

    let mut above = EtcdValue::new(EtcdOptions {
        endpoints: vec![etcd.endpoint()],
        key: format!("tailwater/test/{TERM_FLOOR_KEY}"),
        request_ms_max: 2_000,
        ..EtcdOptions::default()
    })?;
    assert!(above.replace(0, b"4711").await?.is_some());
    // The floor applies from the next lease term on. The present term continues until then.
    let held = task.handle().check()?;
    tokio::time::sleep(2 * Duration::from_millis(terms.renew_ms)).await;
    assert_eq!(task.handle().check()?, held);
    task.handle().restart_term();
    until(&task.handle(), |now| matches!(now, LeaseStatus::Active(token) if token.0 > 4711)).await?;
    tokio::time::sleep(2 * Duration::from_millis(terms.renew_ms)).await;
    assert!(task.handle().check()?.0 > 4711, "a lease term above the floor must be renewable");
    // A floor that is not a number must prevent a grant.
    let revision = above.read().await?.revision;
    assert!(above.replace(revision, b"many").await?.is_some());
    task.release().await;
    let mut store = in_etcd(&etcd.endpoint(), "second", terms)?;
    let _ = store.acquire().await;
    assert!(
        matches!(store.acquire().await, LeaseAnswer::Failed { reason } if reason.contains("is not a number"))
    );
    Ok(())
}

/// Returns a lease in etcd over TLS, for a manager that logs in.
fn as_user(etcd: &Etcd, authority: &Path, password: &str, holder: &str) -> anyhow::Result<EtcdLease> {
    Ok(EtcdLease::new(EtcdOptions {
        endpoints: vec![etcd.endpoint()],
        key: "tailwater/test".to_owned(),
        holder: holder.to_owned(),
        ttl_ms: 20_000,
        request_ms_max: 20_000,
        user: Some(EtcdUser { name: "manager".to_owned(), password: password.to_owned() }),
        ca_file: Some(authority.to_owned()),
    })?)
}

/// Configures etcd with a user that has only the permissions which a lease needs, and enables authentication.
async fn require_login(endpoint: &str, authority: &Path) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = reqwest::Certificate::from_pem(&std::fs::read(authority)?)?;
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build()?;
    // The range of all keys that begin with `tailwater/test`, in base64.
    let permission = json!({
        "permType": "READWRITE",
        "key": "dGFpbHdhdGVyL3Rlc3Q=",
        "range_end": "dGFpbHdhdGVyL3Rlc3U=",
    });
    for (method, body) in [
        ("user/add", json!({ "name": "root", "password": "root" })),
        ("role/add", json!({ "name": "root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("role/add", json!({ "name": "lease" })),
        ("role/grant", json!({ "name": "lease", "perm": permission })),
        ("user/add", json!({ "name": "manager", "password": "right" })),
        ("user/grant", json!({ "user": "manager", "role": "lease" })),
        ("enable", json!({})),
    ] {
        let url = format!("{endpoint}/v3/auth/{method}");
        let answer = client.post(url).body(body.to_string()).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        anyhow::ensure!(status.is_success(), "etcd refused {method}: {status}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_lease_works_on_an_etcd_that_requires_tls_and_a_login() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(program) = Etcd::require() else { return Ok(()) };
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let of_authority = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).map(|()| path)
    };
    let authority = file("authority.pem", of_authority.pem())?;
    let certificate = file("certificate.pem", certificate.pem())?;
    let tls = EtcdTls { certificate: certificate.clone(), key: file("key.pem", key.serialize_pem())? };
    let etcd = Etcd::start_tls(&program, folder.path(), tls).await?;
    require_login(&etcd.endpoint(), &authority).await?;

    let failed = |heard: LeaseAnswer| match heard {
        LeaseAnswer::Failed { reason } => reason,
        heard => format!("{heard:?}"),
    };
    let reason = failed(as_user(&etcd, &authority, "wrong", "first")?.acquire().await);
    assert!(
        reason.contains("login of \"manager\"") && reason.contains("authentication failed"),
        "etcd refused the manager with the wrong error: {reason}"
    );
    assert!(!reason.contains("wrong"), "the error contains the password: {reason}");
    // The certificate is not signed by a trusted authority.
    let reason = failed(as_user(&etcd, &certificate, "right", "first")?.acquire().await);
    assert!(reason.contains("certificate"), "etcd refused the manager with the wrong error: {reason}");

    let mut first = as_user(&etcd, &authority, "right", "first")?;
    let LeaseAnswer::Granted { token, .. } = first.acquire().await else {
        anyhow::bail!("the lease was not granted")
    };
    assert_eq!(first.renew(token).await, LeaseAnswer::Renewed { ttl_ms: 20_000 });
    let mut second = as_user(&etcd, &authority, "right", "second")?;
    assert_eq!(second.acquire().await, LeaseAnswer::HeldByOther { holder: "first".to_owned() });
    // A restart of etcd forgets its login tokens. The manager must log in again by itself.
    let etcd = etcd.restart().await?;
    assert_eq!(first.renew(token).await, LeaseAnswer::Renewed { ttl_ms: 20_000 });
    first.release().await;
    assert!(matches!(second.acquire().await, LeaseAnswer::Granted { token: later, .. } if later > token));

    let absent = as_user(&etcd, &folder.path().join("absent.pem"), "right", "first");
    assert!(absent.is_err_and(|error| error.to_string().contains("absent.pem")));
    drop(etcd);
    Ok(())
}
