//! The accounts that clients of Tailwater log in with, and their credentials.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use tailwater_wire::protocol::authentication_plugin::{
    AuthPlugin, caching_sha2_password_hash, caching_sha2_password_verify, ed25519_public_key, ed25519_verify,
    native_password_hash, native_password_verify,
};
use tailwater_wire::protocol::sha256_crypt::Sha256Crypt;

use crate::connection_options::PasswordText;
use crate::error::SessionError;

/// The maximum length of a user name in characters. This is MariaDB's limit; MySQL's limit is 32.
const USER_CHARS_MAX: usize = 128;

/// The maximum number of credentials of an account. A login may have to try each of them.
const CREDENTIALS_MAX: usize = 8;

/// A credential of an account: the password, or a hash for one authentication plugin.
#[derive(Clone)]
pub struct Credential(CredentialKind);

#[derive(Clone)]
enum CredentialKind {
    Password(PasswordText),
    Native([u8; 20]),
    CachingSha2(Sha256Crypt),
    Ed25519([u8; 32]),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            CredentialKind::Password(_) => "password ***",
            CredentialKind::Native(_) => "mysql_native_password ***",
            CredentialKind::CachingSha2(_) => "caching_sha2_password ***",
            CredentialKind::Ed25519(_) => "ed25519 ***",
        })
    }
}

impl Credential {
    /// A password. It works with every plugin.
    pub fn password(password: impl Into<PasswordText>) -> Self {
        Self(CredentialKind::Password(password.into()))
    }

    /// A hash as a server stores it in `mysql.user`:
    /// - `*` and 40 hexadecimal digits: `mysql_native_password`;
    /// - `$A$005$`, salt and digest: MySQL's `caching_sha2_password`. The salt may contain any character, so
    ///   the hash is also accepted in the form `0x24412430...` that `SHOW CREATE USER` prints under
    ///   `print_identified_with_as_hex = ON`;
    /// - 43 characters of base64: MariaDB's `ed25519`.
    ///
    /// # Errors
    /// A text that says what is wrong with the hash. It does not contain the hash.
    pub fn parse_hash(text: &str) -> Result<Self, String> {
        if let Some(digits) = text.strip_prefix('*') {
            let hash = hex(digits).and_then(|bytes| <[u8; 20]>::try_from(bytes).ok());
            return match hash {
                Some(hash) => Ok(Self(CredentialKind::Native(hash))),
                None => {
                    Err("a hash of mysql_native_password consists of * and 40 hexadecimal digits".to_owned())
                }
            };
        }
        if text.starts_with("$A$") {
            return caching_sha2(text.as_bytes());
        }
        if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            return match hex(digits) {
                Some(bytes) if bytes.starts_with(b"$A$") => caching_sha2(&bytes),
                _ => Err("the text after 0x is not a hash of caching_sha2_password in hexadecimal digits"
                    .to_owned()),
            };
        }
        match (text.len(), base64_key(text)) {
            (43, Some(key)) => Ok(Self(CredentialKind::Ed25519(key))),
            _ => Err("the text is not a hash of mysql_native_password (*...), caching_sha2_password ($A$... or 0x2441...) or \
                      ed25519 (43 characters of base64)"
                .to_owned()),
        }
    }
}

fn caching_sha2(text: &[u8]) -> Result<Credential, String> {
    let hash = Sha256Crypt::parse(text).map_err(|error| {
        format!("{error}; copy it as SHOW CREATE USER prints it under print_identified_with_as_hex = ON")
    })?;
    Ok(Credential(CredentialKind::CachingSha2(hash)))
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    match digits.as_bytes().as_chunks::<2>() {
        (pairs, []) => pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect(),
        _ => None,
    }
}

/// Decodes 32 bytes from 43 characters of base64 without the final `=`.
fn base64_key(text: &str) -> Option<[u8; 32]> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(33);
    let (mut word, mut bits) = (0u32, 0);
    for char in text.bytes().take(43) {
        let value = ALPHABET.iter().position(|known| *known == char)?;
        word = word << 6 | value as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    bytes.try_into().ok()
}

/// A stored hash of `caching_sha2_password`, and the fast hash of the same password. The fast hash is known
/// after the first login with the right password.
struct StoredSha2 {
    crypt: Sha256Crypt,
    fast: OnceLock<[u8; 32]>,
}

/// The data with which each plugin verifies the logins of one account. `Debug` does not print it.
#[derive(Default)]
pub(super) struct LoginVerifiers {
    native: Vec<[u8; 20]>,
    /// The fast hashes of the passwords that are configured in clear text.
    sha2_fast: Vec<[u8; 32]>,
    sha2_stored: Vec<StoredSha2>,
    ed25519: Vec<[u8; 32]>,
}

impl fmt::Debug for LoginVerifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl LoginVerifiers {
    fn of(credentials: &[Credential]) -> Result<Self, &'static str> {
        const EMPTY: &str = "the password is empty, which is not supported";
        let mut proofs = Self::default();
        for credential in credentials {
            match &credential.0 {
                CredentialKind::Password(secret) if secret.expose().is_empty() => return Err(EMPTY),
                CredentialKind::Password(secret) => {
                    let password = secret.expose().as_bytes();
                    proofs.native.push(native_password_hash(password));
                    proofs.sha2_fast.push(caching_sha2_password_hash(password));
                    proofs.ed25519.push(ed25519_public_key(password));
                }
                CredentialKind::Native(hash) => proofs.native.push(*hash),
                CredentialKind::CachingSha2(crypt) if crypt.verify(b"") => return Err(EMPTY),
                CredentialKind::CachingSha2(crypt) => {
                    proofs.sha2_stored.push(StoredSha2 { crypt: crypt.clone(), fast: OnceLock::new() });
                }
                CredentialKind::Ed25519(key) if *key == ed25519_public_key(b"") => return Err(EMPTY),
                CredentialKind::Ed25519(key) => proofs.ed25519.push(*key),
            }
        }
        Ok(proofs)
    }

    /// Creates verifiers for the same plugins as `shape`, but without a password that satisfies them.
    fn decoy_of(shape: &Self) -> Self {
        let mut native = shape.native.clone();
        native.fill_with(rand::random);
        let mut sha2_fast = shape.sha2_fast.clone();
        sha2_fast.fill_with(rand::random);
        let stored = |of: &StoredSha2| StoredSha2 { crypt: of.crypt.clone(), fast: OnceLock::new() };
        let mut ed25519 = shape.ed25519.clone();
        // The secret keys of these random public keys are not stored, so no client can have them.
        ed25519.fill_with(|| ed25519_public_key(&rand::random::<[u8; 32]>()));
        Self { native, sha2_fast, sha2_stored: shape.sha2_stored.iter().map(stored).collect(), ed25519 }
    }

    /// Whether `plugin` can verify a login of this account.
    pub(super) fn offers(&self, plugin: AuthPlugin) -> bool {
        match plugin {
            AuthPlugin::NativePassword => !self.native.is_empty(),
            AuthPlugin::CachingSha2Password => !self.sha2_fast.is_empty() || self.has_stored(),
            AuthPlugin::Ed25519 => !self.ed25519.is_empty(),
            AuthPlugin::Sha256Password | AuthPlugin::ClearPassword => false,
        }
    }

    /// Whether there is a stored hash for which the client must send its password. A scramble is not enough
    /// to verify such a hash.
    pub(super) fn has_stored(&self) -> bool {
        !self.sha2_stored.is_empty()
    }

    pub(super) fn native(&self, answer: &[u8], nonce: &[u8; 20]) -> Option<PasswordProof> {
        find(&self.native, |hash| native_password_verify(answer, nonce, hash))
            .map(|hash| PasswordProof::Native(*hash))
    }

    pub(super) fn sha2_fast(&self, answer: &[u8], nonce: &[u8; 20]) -> bool {
        let known = find(&self.sha2_fast, |hash| caching_sha2_password_verify(answer, nonce, hash)).is_some();
        let cached = find(&self.sha2_stored, |stored| {
            stored.fast.get().is_some_and(|hash| caching_sha2_password_verify(answer, nonce, hash))
        });
        known | cached.is_some()
    }

    pub(super) fn ed25519(&self, answer: &[u8], nonce: &[u8; 32]) -> Option<PasswordProof> {
        find(&self.ed25519, |key| ed25519_verify(answer, nonce, key)).map(|key| PasswordProof::Ed25519(*key))
    }

    /// Verifies a password in clear text. Takes milliseconds for each stored hash. Like MySQL, stores the
    /// fast hash of a correct password.
    pub(super) fn sha2_password(&self, password: &[u8], decoy: bool) -> bool {
        let fast = caching_sha2_password_hash(password);
        let known = find(&self.sha2_fast, |hash| *hash == fast).is_some();
        let stored = find(&self.sha2_stored, |stored| stored.crypt.verify(password));
        if decoy {
            return false;
        }
        if let Some(stored) = stored {
            let _ = stored.fast.set(fast);
        }
        known | stored.is_some()
    }
}

/// Returns the last element that matches. Tries all elements, so that the time does not reveal which element
/// matched.
fn find<T>(all: &[T], fits: impl Fn(&T) -> bool) -> Option<&T> {
    all.iter().fold(None, |found, one| if fits(one) { Some(one) } else { found })
}

/// The secret that a client has proved to know, in the form that a server with only stored hashes has.
/// `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PasswordProof {
    Native([u8; 20]),
    Ed25519([u8; 32]),
    /// The client proved a password through `caching_sha2_password`.
    Password,
}

impl fmt::Debug for PasswordProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PasswordProof {
    /// The secret that client and server share, for MariaDB's proof of a certificate.
    pub(super) fn shared_secret(&self) -> Option<&[u8]> {
        match self {
            Self::Native(hash) => Some(hash),
            Self::Ed25519(key) => Some(key),
            Self::Password => None,
        }
    }
}

/// The account that a client wants to log in to.
#[derive(Debug, Clone)]
pub(super) struct ClaimedAccount {
    pub(super) proofs: Arc<LoginVerifiers>,
    /// Whether no account has this name. The server then refuses every password, and the login must look like
    /// a login with a wrong password.
    pub(super) decoy: bool,
}

/// All accounts. `Debug` prints only their names.
#[derive(Clone)]
pub struct Accounts {
    users: HashMap<String, Arc<LoginVerifiers>>,
    /// The verifiers of the accounts, in the order in which the accounts were added.
    shapes: Vec<Arc<LoginVerifiers>>,
    /// A random key for choosing the account that the decoy of an unknown user imitates. Because of the key,
    /// clients cannot compute the choice.
    decoy_key: [u8; 32],
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.users.keys()).finish()
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self { users: HashMap::new(), shapes: Vec::new(), decoy_key: rand::random() }
    }
}

impl Accounts {
    /// An empty list of accounts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an account that may log in with any of `credentials` from any host. With a password, every plugin
    /// works. With a hash, only the plugin of the hash works.
    ///
    /// # Errors
    /// [`SessionError::Account`] if the name is empty, too long or already used, if there are no credentials
    /// or too many, or if the password is empty.
    pub fn add(&mut self, user: &str, credentials: &[Credential]) -> Result<(), SessionError> {
        let wrong = |reason: &str| SessionError::Account { user: user.to_owned(), reason: reason.to_owned() };
        if user.is_empty() {
            return Err(wrong("the account has no name; anonymous accounts are not supported"));
        }
        if user.chars().count() > USER_CHARS_MAX || user.contains('\0') {
            return Err(wrong("the name is longer than 128 characters, or contains a zero byte"));
        }
        if credentials.is_empty() || credentials.len() > CREDENTIALS_MAX {
            return Err(wrong("an account needs at least one password or hash, and may have at most 8"));
        }
        if self.users.contains_key(user) {
            return Err(wrong("there are two accounts with this name"));
        }
        let proofs = Arc::new(LoginVerifiers::of(credentials).map_err(wrong)?);
        self.users.insert(user.to_owned(), Arc::clone(&proofs));
        self.shapes.push(proofs);
        Ok(())
    }

    /// The number of accounts.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is no account.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The account of this name, or a decoy if there is none. The decoy imitates an existing account, and
    /// always the same account for the same name.
    pub(super) fn claim(&self, user: &str) -> ClaimedAccount {
        // Compute this hash even if the account exists, so that the time does not reveal whether it exists.
        let hash = Sha256::new().chain_update(self.decoy_key).chain_update(user).finalize();
        let number =
            u64::from_le_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]]);
        let decoy = match number.checked_rem(self.shapes.len() as u64) {
            Some(index) => LoginVerifiers::decoy_of(&self.shapes[index as usize]),
            None => LoginVerifiers { native: vec![rand::random()], ..LoginVerifiers::default() },
        };
        match self.users.get(user) {
            Some(proofs) => ClaimedAccount { proofs: Arc::clone(proofs), decoy: false },
            None => ClaimedAccount { proofs: Arc::new(decoy), decoy: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> CredentialKind {
        Credential::parse_hash(text).unwrap().0
    }

    /// The hashes come from `ed25519_password()` of MariaDB 10.11, from `PASSWORD('mypass')` in MySQL's
    /// manual, and from `mysql.user` of MySQL 9.7.
    #[test]
    fn hashes_that_servers_store_are_parsed() {
        for (password, text) in [
            ("foo", "vubFBzIrapbfHct1/J72dnUryz5VS7lA6XHH8sIx4TI"),
            ("foobar", "qv2mG6HWCuy32Slb5xhV4THStewNz2VINVPbgk+XAJ8"),
        ] {
            let CredentialKind::Ed25519(key) = parsed(text) else {
                panic!("the hash was parsed as a hash of another plugin: {text}")
            };
            assert_eq!(key, ed25519_public_key(password.as_bytes()));
        }
        let CredentialKind::Native(hash) = parsed("*6C8989366EAF75BB670AD8EA7A7FC1176A95CEF4") else {
            panic!()
        };
        assert_eq!(hash, native_password_hash(b"mypass"));
        let text =
            "$A$00A$pt\x1d\x0fX=pw\x7f\x1c\x14?GOW\x04|\x17YYJo4oTDYcQc16O2V04Ac.xHsbPRGxtssFMuDXhepYUU2";
        let digits: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
        for text in [text.to_owned(), format!("0x{digits}")] {
            let CredentialKind::CachingSha2(hash) = parsed(&text) else {
                panic!("the hash was parsed as a hash of another plugin: {text:?}")
            };
            assert!(hash.verify("Geheim!1 äöü".as_bytes()));
        }
    }

    #[test]
    fn invalid_hashes_are_refused_without_repeating_them() {
        for text in [
            "",
            "geheim",
            "*6C8989366EAF75BB670AD8EA7A7FC1176A95CEF",
            "*6C8989366EAF75BB670AD8EA7A7FC1176A95CEFG",
            "$A$005$short",
            "$A$005$ä234567890123456789 5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc",
            "0x2441",
            "0xgg",
            "0x6C8989366EAF75BB670AD8EA7A7FC1176A95CEF4",
            "vubFBzIrapbfHct1/J72dnUryz5VS7lA6XHH8sIx4T=",
            "vubFBzIrapbfHct1/J72dnUryz5VS7lA6XHH8sIx4TIA",
        ] {
            let error = Credential::parse_hash(text).unwrap_err();
            assert!(text.is_empty() || !error.contains(text), "the error must not contain the hash: {error}");
        }
        for credential in [
            Credential::password("geheim"),
            Credential::parse_hash("*6C8989366EAF75BB670AD8EA7A7FC1176A95CEF4").unwrap(),
        ] {
            let printed = format!("{credential:?}");
            assert!(
                !printed.contains("geheim") && !printed.contains("6C89") && !printed.contains("108"),
                "the debug output must not contain the secrets: {printed}"
            );
        }
    }

    #[test]
    fn hashes_of_an_empty_password_are_refused() {
        let mut accounts = Accounts::new();
        // The result of `ed25519_password('')` in MariaDB 10.11.
        let credential = Credential::parse_hash("4LH+dBF+G5W2CKTyId8xR3SyDqZoQjUNUVNxx8aWbG4").unwrap();
        assert!(accounts.add("u", &[credential]).is_err());
        let credential = Credential(CredentialKind::CachingSha2(Sha256Crypt::new(b"", [1; 20], 5)));
        assert!(accounts.add("u", &[credential]).is_err());
        assert!(accounts.is_empty());
    }

    #[test]
    fn debug_output_of_accounts_contains_only_names() {
        let mut accounts = Accounts::new();
        accounts.add("u", &[Credential::password("geheim")]).unwrap();
        assert_eq!(format!("{accounts:?}"), "{\"u\"}");
        assert_eq!(format!("{:?}", accounts.claim("u")), "ClaimedAccount { proofs: ***, decoy: false }");
        let proven = accounts.claim("u").proofs.native(
            &tailwater_wire::protocol::authentication_plugin::native_password(b"geheim", &[7; 20]),
            &[7; 20],
        );
        assert_eq!(format!("{proven:?}"), "Some(***)");
    }

    fn offers(claimed: &ClaimedAccount) -> [bool; 3] {
        use AuthPlugin::{CachingSha2Password, Ed25519, NativePassword};
        [NativePassword, CachingSha2Password, Ed25519].map(|plugin| claimed.proofs.offers(plugin))
    }

    #[test]
    fn logins_of_unknown_users_look_like_those_of_existing_users() {
        let mut accounts = Accounts::new();
        // Even if the server has no accounts, a login must take all its steps, and then fail.
        assert!(accounts.claim("x").decoy && offers(&accounts.claim("x"))[0]);
        let sha2 = Credential(CredentialKind::CachingSha2(Sha256Crypt::new(b"geheim", [1; 20], 1)));
        accounts.add("sha2", &[sha2]).unwrap();
        accounts
            .add("native", &[Credential(CredentialKind::Native(native_password_hash(b"geheim")))])
            .unwrap();
        accounts.add("all", &[Credential::password("geheim")]).unwrap();
        let known = ["sha2", "native", "all"].map(|user| offers(&accounts.claim(user)));
        assert_eq!(known, [[false, true, false], [true, false, false], [true, true, true]]);
        let mut seen = [0; 3];
        for user in (0..200).map(|index| format!("nobody{index}")) {
            let claimed = accounts.claim(&user);
            assert!(claimed.decoy);
            // An unknown user must get the same plugins each time. A difference would reveal that the user is
            // unknown.
            assert_eq!(offers(&claimed), offers(&accounts.claim(&user)));
            assert_eq!(claimed.proofs.has_stored(), offers(&claimed) == known[0]);
            let shape = known.iter().position(|shape| *shape == offers(&claimed)).unwrap();
            seen[shape] += 1;
            // Not even the password of the imitated account logs in to a decoy.
            let nonce = [7; 20];
            let answer = tailwater_wire::protocol::authentication_plugin::native_password(b"geheim", &nonce);
            assert_eq!(claimed.proofs.native(&answer, &nonce), None);
            let answer =
                tailwater_wire::protocol::authentication_plugin::caching_sha2_password(b"geheim", &nonce);
            assert!(!claimed.proofs.sha2_fast(&answer, &nonce));
            assert!(!claimed.proofs.sha2_password(b"geheim", claimed.decoy));
            assert!(!claimed.proofs.sha2_fast(&answer, &nonce), "a decoy stores no fast hash");
        }
        assert!(
            seen.iter().all(|count| *count > 20),
            "too few unknown users imitate one of the accounts: {seen:?}"
        );
    }

    #[test]
    fn the_fast_hash_is_stored_after_the_first_login() {
        let mut accounts = Accounts::new();
        accounts
            .add("u", &[Credential(CredentialKind::CachingSha2(Sha256Crypt::new(b"geheim", [1; 20], 1)))])
            .unwrap();
        let nonce = [7; 20];
        let answer =
            tailwater_wire::protocol::authentication_plugin::caching_sha2_password(b"geheim", &nonce);
        let proofs = accounts.claim("u").proofs;
        assert!(!proofs.sha2_fast(&answer, &nonce));
        assert!(!proofs.sha2_password(b"wrong", false));
        assert!(!proofs.sha2_fast(&answer, &nonce));
        assert!(proofs.sha2_password(b"geheim", false));
        assert!(accounts.claim("u").proofs.sha2_fast(&answer, &nonce));
    }
}
