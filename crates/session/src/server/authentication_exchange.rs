//! The authentication exchange of one login. Takes the client's packets and returns the next step. The caller
//! does all I/O and all long computations.

use std::fmt;

use rand::RngCore;
use tailwater_wire::Flavour;
use tailwater_wire::protocol::Capabilities;
use tailwater_wire::protocol::authentication_plugin::{
    AuthPlugin, AuthSwitchRequest, FAST_AUTH_SUCCESS, MORE_DATA, PERFORM_FULL_AUTHENTICATION,
    REQUEST_PUBLIC_KEY,
};
use tailwater_wire::protocol::handshake::HandshakeResponse;

use crate::server::client_accounts::{ClaimedAccount, PasswordProof};

/// The number of random bytes that most plugins use.
pub(super) const NONCE_BYTES: usize = 20;

/// Random bytes for a scramble. Clients treat them as text. So, as on MySQL and MariaDB, no byte is zero or
/// `$`.
pub(super) fn nonce<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes.map(|byte| match byte & 0x7f {
        0 | b'$' => b'!',
        byte => byte,
    })
}

/// The authentication plugin that the greeting names.
pub(super) fn default_plugin(flavour: Flavour) -> AuthPlugin {
    match flavour {
        Flavour::MySql => AuthPlugin::CachingSha2Password,
        Flavour::MariaDb => AuthPlugin::NativePassword,
    }
}

/// The next step of a login. `Debug` does not print the password in it.
#[derive(PartialEq, Eq)]
pub(super) enum AuthStep {
    /// Send this payload, and pass the client's answer to [`ServerAuthentication::answered`].
    Ask(Vec<u8>),
    /// Send the server's public key after [`MORE_DATA`], and pass the client's answer to
    /// [`ServerAuthentication::answered`].
    SendKey,
    /// Decrypt these bytes with the server's key and [`ServerAuthentication::nonce`]. Then continue as for
    /// [`AuthStep::Check`].
    Decrypt(Vec<u8>),
    /// Verify this password with [`crate::server::accounts::LoginVerifiers::sha2_password`], which takes
    /// milliseconds, and pass the result to [`ServerAuthentication::checked`].
    Check(Vec<u8>),
    /// The login succeeded. Send this payload, if there is one, before the OK packet.
    Granted { before_ok: Option<Vec<u8>>, proven: PasswordProof },
    /// The login failed. The text is the reason.
    Denied(&'static str),
}

impl fmt::Debug for AuthStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(payload) => write!(f, "Ask({})", payload.escape_ascii()),
            Self::SendKey => f.write_str("SendKey"),
            Self::Decrypt(_) => f.write_str("Decrypt(***)"),
            Self::Check(_) => f.write_str("Check(***)"),
            Self::Granted { .. } => f.write_str("Granted"),
            Self::Denied(reason) => write!(f, "Denied({reason})"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuthState {
    /// The server waits for the plugin's first answer.
    Answer,
    /// The server waits for the password.
    Password {
        key_sent: bool,
    },
    Over,
}

/// The state of one login on the server's side.
#[derive(Debug)]
pub(super) struct ServerAuthentication {
    claimed: ClaimedAccount,
    plugin: AuthPlugin,
    nonce: Vec<u8>,
    /// The random bytes for MariaDB's proof of a certificate. They are the last 20 random bytes that the
    /// server sent in the greeting or for `mysql_native_password`.
    scramble: [u8; NONCE_BYTES],
    state: AuthState,
    /// Whether the connection is protected from eavesdropping.
    private: bool,
    /// Whether the client has sent bytes that may be a proof of a password.
    pub(super) password_used: bool,
}

impl ServerAuthentication {
    /// Starts a login. `response` is the client's answer to a greeting that named the plugin `greeted` and
    /// sent `nonce`.
    pub(super) fn begin(
        claimed: ClaimedAccount,
        response: &HandshakeResponse,
        greeted: AuthPlugin,
        nonce: [u8; NONCE_BYTES],
        private: bool,
    ) -> (Self, AuthStep) {
        let plugin = choose(&claimed, response, greeted);
        let mut login = Self {
            claimed,
            plugin,
            nonce: nonce.to_vec(),
            scramble: nonce,
            state: AuthState::Answer,
            private,
            password_used: !response.auth_response.is_empty(),
        };
        // A client that answers with another plugin has not used the random bytes of the greeting.
        let step = match response.auth_plugin == greeted.name() && plugin == greeted {
            true => login.answered(&response.auth_response),
            false => login.switch(),
        };
        (login, step)
    }

    /// The random bytes of the current scramble.
    pub(super) fn nonce(&self) -> &[u8] {
        &self.nonce
    }

    /// The account that the client wants to log in to.
    pub(super) fn claimed(&self) -> &ClaimedAccount {
        &self.claimed
    }

    /// The random bytes for [`PasswordProof::shared_secret`].
    pub(super) fn scramble(&self) -> [u8; NONCE_BYTES] {
        self.scramble
    }

    fn switch(&mut self) -> AuthStep {
        let auth_data = match self.plugin {
            AuthPlugin::Ed25519 => {
                self.nonce = nonce::<32>().to_vec();
                self.nonce.clone()
            }
            _ => {
                self.scramble = nonce();
                self.nonce = self.scramble.to_vec();
                [&self.scramble[..], &[0]].concat()
            }
        };
        let mut payload = Vec::new();
        AuthSwitchRequest { plugin: self.plugin.name().to_owned(), auth_data }.encode(&mut payload);
        AuthStep::Ask(payload)
    }

    /// Processes a packet of the client.
    pub(super) fn answered(&mut self, answer: &[u8]) -> AuthStep {
        match self.state {
            AuthState::Answer => self.first_answer(answer),
            AuthState::Password { key_sent } => self.password(answer, key_sent),
            AuthState::Over => AuthStep::Denied("the client sent more packets than the plugin requested"),
        }
    }

    fn first_answer(&mut self, answer: &[u8]) -> AuthStep {
        // In `caching_sha2_password` a zero byte means that the client has no password. Every account of
        // Tailwater has a password.
        if matches!(answer, [] | [0]) {
            self.password_used = false;
            return self.deny("no password");
        }
        self.password_used = true;
        let proven = match self.plugin {
            AuthPlugin::NativePassword => {
                self.short_nonce().and_then(|nonce| self.claimed.proofs.native(answer, &nonce))
            }
            AuthPlugin::Ed25519 => {
                let nonce = <[u8; 32]>::try_from(self.nonce.as_slice()).ok();
                nonce.and_then(|nonce| self.claimed.proofs.ed25519(answer, &nonce))
            }
            AuthPlugin::CachingSha2Password => return self.sha2_answer(answer),
            AuthPlugin::Sha256Password | AuthPlugin::ClearPassword => None,
        };
        match proven {
            Some(proven) => self.grant(None, proven),
            None => self.deny("wrong password"),
        }
    }

    fn sha2_answer(&mut self, answer: &[u8]) -> AuthStep {
        let fits = self.short_nonce().is_some_and(|nonce| self.claimed.proofs.sha2_fast(answer, &nonce));
        if fits {
            return self.grant(Some(vec![MORE_DATA, FAST_AUTH_SUCCESS]), PasswordProof::Password);
        }
        if !self.claimed.proofs.has_stored() {
            return self.deny("wrong password");
        }
        self.state = AuthState::Password { key_sent: false };
        AuthStep::Ask(vec![MORE_DATA, PERFORM_FULL_AUTHENTICATION])
    }

    fn password(&mut self, answer: &[u8], key_sent: bool) -> AuthStep {
        if !self.private {
            if answer == [REQUEST_PUBLIC_KEY] && !key_sent {
                self.state = AuthState::Password { key_sent: true };
                return AuthStep::SendKey;
            }
            self.state = AuthState::Over;
            return AuthStep::Decrypt(answer.to_vec());
        }
        self.state = AuthState::Over;
        match answer.split_last() {
            Some((0, password)) => AuthStep::Check(password.to_vec()),
            _ => self.deny("the password is not in the requested form"),
        }
    }

    /// Processes the result of [`AuthStep::Check`].
    pub(super) fn checked(&mut self, fits: bool) -> AuthStep {
        match fits {
            true => self.grant(None, PasswordProof::Password),
            false => self.deny("wrong password"),
        }
    }

    fn grant(&mut self, before_ok: Option<Vec<u8>>, proven: PasswordProof) -> AuthStep {
        self.state = AuthState::Over;
        match self.claimed.decoy {
            // No client can prove the password of a decoy account. If a client seems to have proved it,
            // refuse the login even so.
            true => self.deny("unknown user"),
            false => AuthStep::Granted { before_ok, proven },
        }
    }

    fn deny(&mut self, reason: &'static str) -> AuthStep {
        self.state = AuthState::Over;
        AuthStep::Denied(if self.claimed.decoy { "unknown user" } else { reason })
    }

    fn short_nonce(&self) -> Option<[u8; NONCE_BYTES]> {
        <[u8; NONCE_BYTES]>::try_from(self.nonce.as_slice()).ok()
    }
}

/// Chooses the plugin for this login. If the account's credentials can be verified with the plugin that the
/// client proposes, this plugin is chosen. Otherwise the choice is the first other plugin that works for the
/// account and that all MySQL or MariaDB clients support.
fn choose(claimed: &ClaimedAccount, response: &HandshakeResponse, greeted: AuthPlugin) -> AuthPlugin {
    let offered = |plugin: &AuthPlugin| claimed.proofs.offers(*plugin);
    if let Some(own) = AuthPlugin::from_name(&response.auth_plugin).filter(offered) {
        return own;
    }
    let order = match may_be_mariadb(response, greeted) {
        true => [AuthPlugin::NativePassword, AuthPlugin::Ed25519, AuthPlugin::CachingSha2Password],
        false => [AuthPlugin::CachingSha2Password, AuthPlugin::NativePassword, AuthPlugin::Ed25519],
    };
    order.into_iter().find(offered).unwrap_or(greeted)
}

/// Whether the client may be a MariaDB client. Its connection attributes or a missing capability bit can show
/// this. If this server presents itself as MariaDB, every client may be a MariaDB client: MariaDB's own
/// replicas claim to be MySQL clients.
pub(super) fn may_be_mariadb(response: &HandshakeResponse, greeted: AuthPlugin) -> bool {
    let name = response.attributes.iter().find(|(name, _)| name == "_client_name");
    greeted == default_plugin(Flavour::MariaDb)
        || name.is_some_and(|(_, value)| value == "libmariadb")
        || !response.capabilities.has(Capabilities::LONG_PASSWORD)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_wire::protocol::authentication_plugin::{self, native_password_hash};
    use tailwater_wire::protocol::sha256_crypt::Sha256Crypt;
    use tailwater_wire::protocol::{COLLATION_UTF8MB4, MariadbCapabilities};

    use super::*;
    use crate::server::client_accounts::{Accounts, Credential};

    const PASSWORD: &[u8] = b"geheim";
    const NONCE: [u8; NONCE_BYTES] = [7; NONCE_BYTES];
    use AuthPlugin::{CachingSha2Password as Sha2, Ed25519, NativePassword as Native};

    /// An account with the given kinds of credentials: `password`, `native`, `sha2`, `ed25519`.
    fn claimed(credentials: &[&str]) -> ClaimedAccount {
        let credential = |name: &&str| match *name {
            "password" => Credential::password("geheim"),
            "native" => {
                let digits = native_password_hash(PASSWORD).map(|byte| format!("{byte:02x}"));
                Credential::parse_hash(&format!("*{}", digits.concat())).unwrap()
            }
            "sha2" => {
                let mut text = Vec::new();
                Sha256Crypt::new(PASSWORD, [b'x'; 20], 1).encode(&mut text);
                Credential::parse_hash(str::from_utf8(&text).unwrap()).unwrap()
            }
            // The hash that MariaDB stores for the password "foo".
            _ => Credential::parse_hash("vubFBzIrapbfHct1/J72dnUryz5VS7lA6XHH8sIx4TI").unwrap(),
        };
        let mut accounts = Accounts::new();
        accounts.add("u", &credentials.iter().map(credential).collect::<Vec<_>>()).unwrap();
        accounts.claim("u")
    }

    fn response(plugin: &str, auth_response: Vec<u8>, mariadb: bool) -> HandshakeResponse {
        HandshakeResponse {
            capabilities: if mariadb { Capabilities::PROTOCOL_41 } else { Capabilities::LONG_PASSWORD },
            mariadb_capabilities: MariadbCapabilities::default(),
            packet_bytes_max: 1 << 24,
            collation: COLLATION_UTF8MB4,
            user: "u".to_owned(),
            auth_response,
            database: None,
            auth_plugin: plugin.to_owned(),
            attributes: Vec::new(),
        }
    }

    fn switched(step: &AuthStep) -> AuthSwitchRequest {
        let AuthStep::Ask(payload) = step else {
            panic!("the server must request another plugin, but the step is {step:?}")
        };
        AuthSwitchRequest::parse(payload).unwrap()
    }

    #[test]
    fn the_plugin_is_one_that_client_and_server_support() {
        let all = &["password"][..];
        let both = &["native", "ed25519"][..];
        // Each case: the greeting's plugin, the client's plugin, whether it is a MariaDB client, and the
        // credentials. Last comes the plugin that the server must request, or `None` if the server must
        // accept the client's first answer.
        for (greeted, own, mariadb, credentials, expected) in [
            (Sha2, "caching_sha2_password", false, all, None),
            (Native, "mysql_native_password", true, all, None),
            (Native, "caching_sha2_password", false, all, Some(Sha2)),
            (Sha2, "mysql_native_password", true, all, Some(Native)),
            (Sha2, "client_ed25519", true, all, Some(Ed25519)),
            (Sha2, "caching_sha2_password", false, &["native"], Some(Native)),
            (Native, "mysql_native_password", true, &["sha2"], Some(Sha2)),
            (Native, "mysql_native_password", true, &["ed25519"], Some(Ed25519)),
            (Sha2, "parsec", true, both, Some(Native)),
            (Sha2, "parsec", true, &["ed25519", "sha2"], Some(Ed25519)),
            (Sha2, "parsec", false, both, Some(Native)),
            (Sha2, "parsec", false, all, Some(Sha2)),
            (Sha2, "", false, all, Some(Sha2)),
            // Plugins that a client may name but that this server never uses.
            (Native, "mysql_clear_password", true, all, Some(Native)),
            (Sha2, "sha256_password", false, all, Some(Sha2)),
            // MariaDB's replicas name this plugin.
            (Native, "dialog", false, all, Some(Native)),
        ] {
            let answer = response(own, vec![1; 20], mariadb);
            let (login, step) =
                ServerAuthentication::begin(claimed(credentials), &answer, greeted, NONCE, false);
            match expected {
                None => {
                    assert_eq!(
                        login.nonce(),
                        NONCE,
                        "the server must accept the first answer of client plugin {own} with credentials {credentials:?}"
                    )
                }
                Some(plugin) => {
                    let request = switched(&step);
                    assert_eq!(
                        request.plugin,
                        plugin.name(),
                        "the server requested a wrong plugin from client plugin {own} with credentials {credentials:?}"
                    );
                    let bytes = if plugin == Ed25519 { 32 } else { 21 };
                    assert_eq!(request.auth_data.len(), bytes);
                    assert!(!request.auth_data[..20].iter().any(|byte| matches!(byte, 0 | b'$' | 0x80..)));
                    assert_ne!(login.nonce(), NONCE);
                }
            }
        }
    }

    #[test]
    fn only_a_correct_answer_is_granted() {
        for (plugin, credential, password) in [
            (Native, "native", PASSWORD),
            (Native, "password", PASSWORD),
            (Ed25519, "ed25519", b"foo"),
            (Sha2, "password", PASSWORD),
        ] {
            for (given, right) in [(password, true), (b"wrong", false), (b"", false)] {
                // Make the server switch plugins, so that this login gets its own random bytes.
                let answer = response(plugin.name(), Vec::new(), true);
                let greeted = if plugin == Native { Sha2 } else { Native };
                let (mut login, step) =
                    ServerAuthentication::begin(claimed(&[credential]), &answer, greeted, NONCE, false);
                let request = switched(&step);
                let step = login.answered(&plugin.first_answer(given, &request.auth_data).unwrap());
                assert_eq!(
                    matches!(step, AuthStep::Granted { .. }),
                    right,
                    "the login with plugin {plugin} and credential {credential} had the wrong result: {step:?}"
                );
                assert_eq!(matches!(step, AuthStep::Denied(_)), !right);
                assert!(
                    matches!(login.answered(b"more"), AuthStep::Denied(_)),
                    "a packet after the end of the login must be rejected"
                );
            }
        }
    }

    #[test]
    fn the_password_is_requested_if_only_its_hash_is_known() {
        let answer = || {
            response(
                "caching_sha2_password",
                authentication_plugin::caching_sha2_password(PASSWORD, &NONCE),
                false,
            )
        };
        let full = AuthStep::Ask(vec![MORE_DATA, PERFORM_FULL_AUTHENTICATION]);

        // On a protected connection the server requests the password in clear text.
        let claim = claimed(&["sha2"]);
        let (mut login, step) = ServerAuthentication::begin(claim.clone(), &answer(), Sha2, NONCE, true);
        assert_eq!(step, full);
        assert_eq!(login.answered(b"geheim\0"), AuthStep::Check(PASSWORD.to_vec()));
        assert!(claim.proofs.sha2_password(PASSWORD, false));
        assert!(matches!(
            login.checked(true),
            AuthStep::Granted { before_ok: None, proven: PasswordProof::Password }
        ));
        // After a login with the password the server knows the fast hash, so it accepts the client's first
        // answer.
        let (_, step) = ServerAuthentication::begin(claim, &answer(), Sha2, NONCE, false);
        let fast = AuthStep::Granted {
            before_ok: Some(vec![MORE_DATA, FAST_AUTH_SUCCESS]),
            proven: PasswordProof::Password,
        };
        assert_eq!(step, fast);

        // On an unprotected connection the server sends its key once, and then accepts only encrypted
        // passwords.
        let begin = || ServerAuthentication::begin(claimed(&["sha2"]), &answer(), Sha2, NONCE, false);
        let (mut login, step) = begin();
        assert_eq!(step, full);
        assert_eq!(login.answered(&[REQUEST_PUBLIC_KEY]), AuthStep::SendKey);
        assert_eq!(login.answered(&[9; 256]), AuthStep::Decrypt(vec![9; 256]));
        assert!(matches!(login.checked(false), AuthStep::Denied("wrong password")));
        let (mut login, _) = begin();
        login.answered(&[REQUEST_PUBLIC_KEY]);
        assert_eq!(login.answered(&[REQUEST_PUBLIC_KEY]), AuthStep::Decrypt(vec![REQUEST_PUBLIC_KEY]));
        // A password without the final zero byte is rejected.
        let (mut login, _) = ServerAuthentication::begin(claimed(&["sha2"]), &answer(), Sha2, NONCE, true);
        assert!(matches!(login.answered(b"geheim"), AuthStep::Denied(_)));
    }

    #[test]
    fn decoys_accept_no_password_proof() {
        let decoy = |of: &str| ClaimedAccount { decoy: true, ..claimed(&[of]) };
        let answer =
            response("mysql_native_password", authentication_plugin::native_password(PASSWORD, &NONCE), true);
        let (_, step) = ServerAuthentication::begin(decoy("native"), &answer, Native, NONCE, false);
        assert_eq!(step, AuthStep::Denied("unknown user"));
        let answer = response("caching_sha2_password", vec![1; 32], false);
        let (mut login, step) = ServerAuthentication::begin(decoy("sha2"), &answer, Sha2, NONCE, true);
        assert_eq!(step, AuthStep::Ask(vec![MORE_DATA, PERFORM_FULL_AUTHENTICATION]));
        assert_eq!(login.answered(b"geheim\0"), AuthStep::Check(PASSWORD.to_vec()));
        assert_eq!(login.checked(true), AuthStep::Denied("unknown user"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_log_in_and_the_exchange_ends(
            credentials in prop::sample::subsequence(vec!["password", "native", "sha2", "ed25519"], 1..=4),
            own in prop::sample::select(vec!["mysql_native_password", "caching_sha2_password", "client_ed25519", "x"]),
            answers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 6),
            mysql: bool, private: bool, mariadb: bool,
        ) {
            let greeted = if mysql { Sha2 } else { Native };
            let answer = response(own, answers[0].clone(), mariadb);
            let (mut login, mut step) = ServerAuthentication::begin(claimed(&credentials), &answer, greeted, NONCE, private);
            let mut over = false;
            for answer in &answers[1..] {
                step = match step {
                    AuthStep::Ask(_) | AuthStep::SendKey => login.answered(answer),
                    AuthStep::Check(password) => {
                        let fits = login.claimed().proofs.sha2_password(&password, false);
                        login.checked(fits)
                    }
                    AuthStep::Decrypt(_) => login.checked(false),
                    AuthStep::Granted { .. } => { prop_assert!(false, "a login with random packets was granted"); break }
                    AuthStep::Denied(_) => { over = true; break }
                };
            }
            prop_assert!(over, "a login with random packets must end with a refusal, but the last step is {step:?}");
        }
    }
}
