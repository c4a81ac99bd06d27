//! The conversation of one login: what the client answers goes in, what to do next comes out. No I/O, and no work that
//! takes long: that is asked of the caller.

use std::fmt;

use rand::RngCore;
use tailwater_wire::Flavour;
use tailwater_wire::protocol::Capabilities;
use tailwater_wire::protocol::auth::{
    AuthPlugin, AuthSwitchRequest, FAST_AUTH_SUCCESS, MORE_DATA, PERFORM_FULL_AUTHENTICATION,
    REQUEST_PUBLIC_KEY,
};
use tailwater_wire::protocol::handshake::HandshakeResponse;

use crate::server::accounts::{Claimed, Proven};

/// How many random bytes most plugins take.
pub(super) const NONCE_BYTES: usize = 20;

/// Random bytes for a scramble. Clients take them for text, so none is zero, and none is `$`, as in the servers.
pub(super) fn nonce<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes.map(|byte| match byte & 0x7f {
        0 | b'$' => b'!',
        byte => byte,
    })
}

/// The plugin that a greeting names.
pub(super) fn default_plugin(flavour: Flavour) -> AuthPlugin {
    match flavour {
        Flavour::MySql => AuthPlugin::CachingSha2Password,
        Flavour::MariaDb => AuthPlugin::NativePassword,
    }
}

/// What to do next. Its password does not print.
#[derive(PartialEq, Eq)]
pub(super) enum Step {
    /// Send this payload, and hand the client's answer to [`Authentication::answered`].
    Ask(Vec<u8>),
    /// Send the public key of the server behind [`MORE_DATA`], and hand in the client's answer.
    SendKey,
    /// Decrypt this with the server's key and [`Authentication::nonce`]; then as [`Step::Check`].
    Decrypt(Vec<u8>),
    /// Check this password ([`crate::server::accounts::Proofs::sha2_password`]), which takes long, and hand the result
    /// to [`Authentication::checked`].
    Check(Vec<u8>),
    /// The client is who it claims to be. Send this payload, if there is one, before OK.
    Granted { before_ok: Option<Vec<u8>>, proven: Proven },
    /// It did not prove it.
    Denied(&'static str),
}

impl fmt::Debug for Step {
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
enum State {
    /// The plugin's first answer is due.
    Answer,
    /// The password itself is due.
    Password {
        key_sent: bool,
    },
    Over,
}

/// One login.
#[derive(Debug)]
pub(super) struct Authentication {
    claimed: Claimed,
    plugin: AuthPlugin,
    nonce: Vec<u8>,
    /// The random bytes that both sides keep for MariaDB's proof of a certificate: those that came last in this length,
    /// by `mysql_native_password`, or else the greeting's.
    scramble: [u8; NONCE_BYTES],
    state: State,
    /// Whether nobody can read along.
    private: bool,
    /// Whether the client sent anything that may be a proof.
    pub(super) password_used: bool,
}

impl Authentication {
    /// Begins with the client's answer to a greeting that named `greeted` and `nonce`.
    pub(super) fn begin(
        claimed: Claimed,
        response: &HandshakeResponse,
        greeted: AuthPlugin,
        nonce: [u8; NONCE_BYTES],
        private: bool,
    ) -> (Self, Step) {
        let plugin = choose(&claimed, response, greeted);
        let mut login = Self {
            claimed,
            plugin,
            nonce: nonce.to_vec(),
            scramble: nonce,
            state: State::Answer,
            private,
            password_used: !response.auth_response.is_empty(),
        };
        // A client whose plugin is another one has not answered the greeting's random bytes.
        let step = match response.auth_plugin == greeted.name() && plugin == greeted {
            true => login.answered(&response.auth_response),
            false => login.switch(),
        };
        (login, step)
    }

    /// The random bytes that the client mixes in.
    pub(super) fn nonce(&self) -> &[u8] {
        &self.nonce
    }

    /// The account that the client claims to be.
    pub(super) fn claimed(&self) -> &Claimed {
        &self.claimed
    }

    /// The random bytes that [`Proven::shared_secret`] goes with.
    pub(super) fn scramble(&self) -> [u8; NONCE_BYTES] {
        self.scramble
    }

    fn switch(&mut self) -> Step {
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
        Step::Ask(payload)
    }

    /// Takes a packet of the client.
    pub(super) fn answered(&mut self, answer: &[u8]) -> Step {
        match self.state {
            State::Answer => self.first_answer(answer),
            State::Password { key_sent } => self.password(answer, key_sent),
            State::Over => Step::Denied("it sent more than was asked for"),
        }
    }

    fn first_answer(&mut self, answer: &[u8]) -> Step {
        // The client of caching_sha2_password says "no password" with a zero byte. No account is without.
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

    fn sha2_answer(&mut self, answer: &[u8]) -> Step {
        let fits = self.short_nonce().is_some_and(|nonce| self.claimed.proofs.sha2_fast(answer, &nonce));
        if fits {
            return self.grant(Some(vec![MORE_DATA, FAST_AUTH_SUCCESS]), Proven::Password);
        }
        if !self.claimed.proofs.has_stored() {
            return self.deny("wrong password");
        }
        self.state = State::Password { key_sent: false };
        Step::Ask(vec![MORE_DATA, PERFORM_FULL_AUTHENTICATION])
    }

    fn password(&mut self, answer: &[u8], key_sent: bool) -> Step {
        if !self.private {
            if answer == [REQUEST_PUBLIC_KEY] && !key_sent {
                self.state = State::Password { key_sent: true };
                return Step::SendKey;
            }
            self.state = State::Over;
            return Step::Decrypt(answer.to_vec());
        }
        self.state = State::Over;
        match answer.split_last() {
            Some((0, password)) => Step::Check(password.to_vec()),
            _ => self.deny("the password is not in the form that was asked for"),
        }
    }

    /// Takes the result of [`Step::Check`].
    pub(super) fn checked(&mut self, fits: bool) -> Step {
        match fits {
            true => self.grant(None, Proven::Password),
            false => self.deny("wrong password"),
        }
    }

    fn grant(&mut self, before_ok: Option<Vec<u8>>, proven: Proven) -> Step {
        self.state = State::Over;
        match self.claimed.decoy {
            // Nothing proves to be nobody; and if it did, this is where it ends.
            true => self.deny("unknown user"),
            false => Step::Granted { before_ok, proven },
        }
    }

    fn deny(&mut self, reason: &'static str) -> Step {
        self.state = State::Over;
        Step::Denied(if self.claimed.decoy { "unknown user" } else { reason })
    }

    fn short_nonce(&self) -> Option<[u8; NONCE_BYTES]> {
        <[u8; NONCE_BYTES]>::try_from(self.nonce.as_slice()).ok()
    }
}

/// The plugin to go on with: the client's own if it proves something here, else the first that does of those that a
/// client of its kind always has.
fn choose(claimed: &Claimed, response: &HandshakeResponse, greeted: AuthPlugin) -> AuthPlugin {
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

/// Whether the client may be of MariaDB's kind: it says so by its attributes or by a bit that it leaves out, or we speak
/// like a MariaDB, whose replicas say that they are of MySQL's kind.
pub(super) fn may_be_mariadb(response: &HandshakeResponse, greeted: AuthPlugin) -> bool {
    let name = response.attributes.iter().find(|(name, _)| name == "_client_name");
    greeted == default_plugin(Flavour::MariaDb)
        || name.is_some_and(|(_, value)| value == "libmariadb")
        || !response.capabilities.has(Capabilities::LONG_PASSWORD)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_wire::protocol::auth::{self, native_password_hash};
    use tailwater_wire::protocol::sha256_crypt::Sha256Crypt;
    use tailwater_wire::protocol::{COLLATION_UTF8MB4, MariadbCapabilities};

    use super::*;
    use crate::server::accounts::{Accounts, Credential};

    const PASSWORD: &[u8] = b"geheim";
    const NONCE: [u8; NONCE_BYTES] = [7; NONCE_BYTES];
    use AuthPlugin::{CachingSha2Password as Sha2, Ed25519, NativePassword as Native};

    /// The account whose credentials are named: `password`, `native`, `sha2`, `ed25519`.
    fn claimed(credentials: &[&str]) -> Claimed {
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
            // What a MariaDB makes of "foo".
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

    fn switched(step: &Step) -> AuthSwitchRequest {
        let Step::Ask(payload) = step else { panic!("{step:?}") };
        AuthSwitchRequest::parse(payload).unwrap()
    }

    #[test]
    fn the_plugin_is_one_that_both_sides_can_do() {
        let all = &["password"][..];
        let both = &["native", "ed25519"][..];
        // Who greeted how, the client's plugin and kind, what proves it; then the plugin asked for, or none if the first
        // answer already counts.
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
            // What a client never gets to use, though it names it.
            (Native, "mysql_clear_password", true, all, Some(Native)),
            (Sha2, "sha256_password", false, all, Some(Sha2)),
            // A replica of MariaDB.
            (Native, "dialog", false, all, Some(Native)),
        ] {
            let answer = response(own, vec![1; 20], mariadb);
            let (login, step) = Authentication::begin(claimed(credentials), &answer, greeted, NONCE, false);
            match expected {
                None => assert_eq!(login.nonce(), NONCE, "{own} of {credentials:?}: asked again"),
                Some(plugin) => {
                    let request = switched(&step);
                    assert_eq!(request.plugin, plugin.name(), "{own} of {credentials:?}");
                    let bytes = if plugin == Ed25519 { 32 } else { 21 };
                    assert_eq!(request.auth_data.len(), bytes);
                    assert!(!request.auth_data[..20].iter().any(|byte| matches!(byte, 0 | b'$' | 0x80..)));
                    assert_ne!(login.nonce(), NONCE);
                }
            }
        }
    }

    #[test]
    fn a_right_answer_is_granted_and_a_wrong_one_is_not() {
        for (plugin, credential, password) in [
            (Native, "native", PASSWORD),
            (Native, "password", PASSWORD),
            (Ed25519, "ed25519", b"foo"),
            (Sha2, "password", PASSWORD),
        ] {
            for (given, right) in [(password, true), (b"wrong", false), (b"", false)] {
                // By way of a switch, so that the random bytes are the login's own.
                let answer = response(plugin.name(), Vec::new(), true);
                let greeted = if plugin == Native { Sha2 } else { Native };
                let (mut login, step) =
                    Authentication::begin(claimed(&[credential]), &answer, greeted, NONCE, false);
                let request = switched(&step);
                let step = login.answered(&plugin.first_answer(given, &request.auth_data).unwrap());
                assert_eq!(matches!(step, Step::Granted { .. }), right, "{plugin} {credential}: {step:?}");
                assert_eq!(matches!(step, Step::Denied(_)), !right);
                assert!(matches!(login.answered(b"more"), Step::Denied(_)), "it is over");
            }
        }
    }

    #[test]
    fn the_password_itself_is_asked_for_where_only_its_hash_is_known() {
        let answer =
            || response("caching_sha2_password", auth::caching_sha2_password(PASSWORD, &NONCE), false);
        let full = Step::Ask(vec![MORE_DATA, PERFORM_FULL_AUTHENTICATION]);

        // Where nobody can read along.
        let claim = claimed(&["sha2"]);
        let (mut login, step) = Authentication::begin(claim.clone(), &answer(), Sha2, NONCE, true);
        assert_eq!(step, full);
        assert_eq!(login.answered(b"geheim\0"), Step::Check(PASSWORD.to_vec()));
        assert!(claim.proofs.sha2_password(PASSWORD, false));
        assert!(matches!(login.checked(true), Step::Granted { before_ok: None, proven: Proven::Password }));
        // From then on the first answer is enough.
        let (_, step) = Authentication::begin(claim, &answer(), Sha2, NONCE, false);
        let fast =
            Step::Granted { before_ok: Some(vec![MORE_DATA, FAST_AUTH_SUCCESS]), proven: Proven::Password };
        assert_eq!(step, fast);

        // Where others can: the key, once, and then only what is encrypted with it.
        let begin = || Authentication::begin(claimed(&["sha2"]), &answer(), Sha2, NONCE, false);
        let (mut login, step) = begin();
        assert_eq!(step, full);
        assert_eq!(login.answered(&[REQUEST_PUBLIC_KEY]), Step::SendKey);
        assert_eq!(login.answered(&[9; 256]), Step::Decrypt(vec![9; 256]));
        assert!(matches!(login.checked(false), Step::Denied("wrong password")));
        let (mut login, _) = begin();
        login.answered(&[REQUEST_PUBLIC_KEY]);
        assert_eq!(login.answered(&[REQUEST_PUBLIC_KEY]), Step::Decrypt(vec![REQUEST_PUBLIC_KEY]));
        // A password without the zero byte behind it.
        let (mut login, _) = Authentication::begin(claimed(&["sha2"]), &answer(), Sha2, NONCE, true);
        assert!(matches!(login.answered(b"geheim"), Step::Denied(_)));
    }

    #[test]
    fn nobody_is_nobody_whatever_is_proven() {
        let decoy = |of: &str| Claimed { decoy: true, ..claimed(&[of]) };
        let answer = response("mysql_native_password", auth::native_password(PASSWORD, &NONCE), true);
        let (_, step) = Authentication::begin(decoy("native"), &answer, Native, NONCE, false);
        assert_eq!(step, Step::Denied("unknown user"));
        let answer = response("caching_sha2_password", vec![1; 32], false);
        let (mut login, step) = Authentication::begin(decoy("sha2"), &answer, Sha2, NONCE, true);
        assert_eq!(step, Step::Ask(vec![MORE_DATA, PERFORM_FULL_AUTHENTICATION]));
        assert_eq!(login.answered(b"geheim\0"), Step::Check(PASSWORD.to_vec()));
        assert_eq!(login.checked(true), Step::Denied("unknown user"));
    }

    proptest! {
        #[test]
        fn foreign_bytes_prove_nothing_and_come_to_an_end(
            credentials in prop::sample::subsequence(vec!["password", "native", "sha2", "ed25519"], 1..=4),
            own in prop::sample::select(vec!["mysql_native_password", "caching_sha2_password", "client_ed25519", "x"]),
            answers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 6),
            mysql: bool, private: bool, mariadb: bool,
        ) {
            let greeted = if mysql { Sha2 } else { Native };
            let answer = response(own, answers[0].clone(), mariadb);
            let (mut login, mut step) = Authentication::begin(claimed(&credentials), &answer, greeted, NONCE, private);
            let mut over = false;
            for answer in &answers[1..] {
                step = match step {
                    Step::Ask(_) | Step::SendKey => login.answered(answer),
                    Step::Check(password) => {
                        let fits = login.claimed().proofs.sha2_password(&password, false);
                        login.checked(fits)
                    }
                    Step::Decrypt(_) => login.checked(false),
                    Step::Granted { .. } => { prop_assert!(false, "granted"); break }
                    Step::Denied(_) => { over = true; break }
                };
            }
            prop_assert!(over, "{step:?}");
        }
    }
}
