//! The conversation of one login: what the client answers goes in, what to do next comes out. No I/O, and no work that
//! takes long: that is asked of the caller.

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

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
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
    let order = match is_mariadb_client(response) {
        true => [AuthPlugin::NativePassword, AuthPlugin::Ed25519, AuthPlugin::CachingSha2Password],
        false => [AuthPlugin::CachingSha2Password, AuthPlugin::NativePassword, AuthPlugin::Ed25519],
    };
    order.into_iter().find(offered).unwrap_or(greeted)
}

/// Whether the client is of MariaDB's kind, which says so by its attributes, or by a bit that it leaves out.
pub(super) fn is_mariadb_client(response: &HandshakeResponse) -> bool {
    let name = response.attributes.iter().find(|(name, _)| name == "_client_name");
    name.is_some_and(|(_, value)| value == "libmariadb")
        || !response.capabilities.has(Capabilities::LONG_PASSWORD)
}
