//! Checks that a login handles arbitrary bytes from a client. The fuzz target under `fuzz/` calls these
//! checks, and `tests/fuzz_corpus_replay.rs` replays the corpus and mutations under `cargo test`.

use std::sync::LazyLock;

use tailwater_wire::Flavour;
use tailwater_wire::protocol::authentication_plugin::{
    AuthPlugin, AuthSwitchRequest, MORE_DATA, PERFORM_FULL_AUTHENTICATION, native_password_hash,
};
use tailwater_wire::protocol::handshake::{ClientAnswer, HandshakeResponse};
use tailwater_wire::protocol::sha256_crypt::Sha256Crypt;
use tailwater_wire::protocol::{Capabilities, MariadbCapabilities};

use crate::server::authentication_exchange::{AuthStep, NONCE_BYTES, ServerAuthentication, default_plugin};
use crate::server::client_accounts::{Accounts, ClaimedAccount, Credential};

const PASSWORD: &str = "geheim";

/// The random bytes of the greeting. A real server uses other bytes for each login.
const NONCE: [u8; NONCE_BYTES] = [7; NONCE_BYTES];

/// The maximum number of requests that the server may send in one login: a request to switch plugins, a
/// request for the password, and the server's key.
const QUESTIONS_MAX: usize = 3;

/// The maximum size of a request of the server during a login, in bytes.
const QUESTION_BYTES_MAX: usize = 64;

/// For each way to store a credential: an account and a decoy.
static CLAIMED: LazyLock<Vec<[ClaimedAccount; 2]>> = LazyLock::new(|| {
    let digits = native_password_hash(PASSWORD.as_bytes()).map(|byte| format!("{byte:02x}")).concat();
    let mut stored = Vec::new();
    Sha256Crypt::new(PASSWORD.as_bytes(), [b'x'; 20], 1).encode(&mut stored);
    let stored = String::from_utf8(stored).expect("the hash consists of printable characters");
    let hash = |text: &str| Credential::parse_hash(text).expect("the hash is valid");
    let native = hash(&format!("*{digits}"));
    // The hash that MariaDB stores for the password "foo".
    let ed25519 = hash("vubFBzIrapbfHct1/J72dnUryz5VS7lA6XHH8sIx4TI");
    let accounts = [
        vec![Credential::password(PASSWORD)],
        vec![native.clone()],
        vec![hash(&stored)],
        vec![ed25519.clone()],
        vec![native, ed25519, hash(&stored)],
    ];
    let claimed = |credentials: &Vec<Credential>| {
        let mut accounts = Accounts::new();
        accounts.add("u", credentials).expect("the account is valid");
        [accounts.claim("u"), accounts.claim("nobody")]
    };
    accounts.iter().map(claimed).collect()
});

/// Runs a login from the fuzzer's bytes. The first byte selects the greeting and the stored credential. The
/// client's first answer follows, with its length in two bytes before it. Each further answer has its length
/// in one byte before it.
///
/// # Panics
/// If a client logs in without the password, receives more requests than a login needs, or can tell from a
/// request that the user does not exist.
pub fn check(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let Some((length, data)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(data.len());
    let (first, answers) = data.split_at(length);
    let Some(response) = first_answer(mode, first) else { return };
    let flavour = if mode & 1 == 0 { Flavour::MySql } else { Flavour::MariaDb };
    let private = mode & 2 != 0;
    let [known, unknown] = &CLAIMED[usize::from(mode >> 3) % CLAIMED.len()];
    let asked = converse(known, &response, flavour, private, answers);
    let asked_unknown = converse(unknown, &response, flavour, private, answers);
    // If the client logged in to the account, it received other packets than the client of the decoy account.
    // So compare the packets only if the client did not log in.
    if asked.last() != Some(&ClientRequest::In) {
        assert_eq!(
            asked, asked_unknown,
            "a client can tell the decoy from the account after its answer {response:?}"
        );
    }
    assert_ne!(
        asked_unknown.last(),
        Some(&ClientRequest::In),
        "a client logged in to the decoy account with the answer {response:?}"
    );
}

/// The client's answer to the greeting. It is the fuzzer's bytes themselves, or an answer for a plugin that
/// one of these bytes selects. So the fuzzer need not guess plugin names.
fn first_answer(mode: u8, bytes: &[u8]) -> Option<HandshakeResponse> {
    if mode & 4 == 0 {
        return match ClientAnswer::parse(bytes) {
            Ok(ClientAnswer::Response(response)) => Some(response),
            Ok(ClientAnswer::SslRequest(_)) | Err(_) => None,
        };
    }
    let (plugin, auth_response) = bytes.split_first()?;
    let plugin = AuthPlugin::ALL.get(usize::from(plugin >> 1)).map_or("other", |plugin| plugin.name());
    Some(HandshakeResponse {
        capabilities: match bytes[0] & 1 == 0 {
            true => Capabilities::LONG_PASSWORD,
            false => Capabilities::default(),
        },
        mariadb_capabilities: MariadbCapabilities::default(),
        packet_bytes_max: 1 << 24,
        collation: 45,
        user: "u".to_owned(),
        auth_response: auth_response.to_vec(),
        database: None,
        auth_plugin: plugin.to_owned(),
        attributes: Vec::new(),
    })
}

/// What a client receives during a login.
#[derive(Debug, PartialEq, Eq)]
enum ClientRequest {
    Switch(String),
    Password,
    Key,
    In,
    Refused,
}

/// Runs a login and returns what the client received. The client sends nothing more after its last answer.
fn converse(
    claimed: &ClaimedAccount,
    response: &HandshakeResponse,
    flavour: Flavour,
    private: bool,
    mut answers: &[u8],
) -> Vec<ClientRequest> {
    let greeted = default_plugin(flavour);
    let knew = knows(&response.auth_plugin, &NONCE, &response.auth_response);
    let (mut login, mut step) =
        ServerAuthentication::begin(claimed.clone(), response, greeted, NONCE, private);
    let (mut asked, mut knew) = (Vec::new(), knew);
    loop {
        let question = match step {
            AuthStep::Ask(payload) => question(&payload),
            AuthStep::SendKey => ClientRequest::Key,
            // Treat bytes that could not be decrypted as if they were the decrypted password.
            AuthStep::Check(password) | AuthStep::Decrypt(password) => {
                let fits = claimed.proofs.sha2_password(&password, claimed.decoy);
                assert_eq!(fits, password == PASSWORD.as_bytes() && !claimed.decoy);
                knew = fits;
                step = login.checked(fits);
                continue;
            }
            AuthStep::Granted { .. } => {
                assert!(knew && !claimed.decoy, "the client logged in without the password: {response:?}");
                asked.push(ClientRequest::In);
                break;
            }
            AuthStep::Denied(_) => {
                asked.push(ClientRequest::Refused);
                break;
            }
        };
        asked.push(question);
        assert!(asked.len() <= QUESTIONS_MAX, "the server sent too many requests: {asked:?}");
        let answer;
        (answer, answers) = next_answer(answers);
        if let Some(ClientRequest::Switch(plugin)) = asked.last() {
            knew = knows(plugin, login.nonce(), answer);
        }
        step = login.answered(answer);
    }
    assert!(
        matches!(login.answered(b"more"), AuthStep::Denied(_)),
        "a packet after the end of the login must be rejected"
    );
    asked
}

fn next_answer(answers: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = answers.split_first() else { return (&[], &[]) };
    rest.split_at(usize::from(*length).min(rest.len()))
}

fn question(payload: &[u8]) -> ClientRequest {
    assert!(
        payload.len() <= QUESTION_BYTES_MAX,
        "a request of the server is too long: {}",
        payload.escape_ascii()
    );
    if payload == [MORE_DATA, PERFORM_FULL_AUTHENTICATION] {
        return ClientRequest::Password;
    }
    let request = AuthSwitchRequest::parse(payload)
        .expect("the server's packet is a request to switch plugins or for the password");
    let plugin = AuthPlugin::from_name(&request.plugin).expect("the server requests a plugin that it knows");
    assert!(!plugin.sends_password(), "{plugin} sends the password to any server that requests it");
    // The server must choose new random bytes. If it used the bytes of the greeting again, an eavesdropper
    // could replay an answer.
    assert!(!request.auth_data.starts_with(&NONCE));
    ClientRequest::Switch(request.plugin)
}

/// Whether a client that knows one of the test's passwords would send this answer.
fn knows(plugin: &str, nonce: &[u8], answer: &[u8]) -> bool {
    let Some(plugin) = AuthPlugin::from_name(plugin) else { return false };
    ["geheim", "foo"].iter().any(|password| {
        plugin.first_answer(password.as_bytes(), nonce).is_ok_and(|expected| expected == answer)
    })
}
