//! Authentication plugins: how a client answers the server's random bytes, and how a server verifies the
//! answer.
//!
//! | plugin | servers | what the client sends |
//! |---|---|---|
//! | `mysql_native_password` | MariaDB, MySQL up to 8.4 | a hash over the random bytes and the SHA1 of the password |
//! | `caching_sha2_password` | MySQL | the same with SHA256; if the server has no cached hash, the password itself, under TLS, through a Unix socket, or encrypted with the server's RSA key |
//! | `sha256_password` | MySQL up to 9.x | the password itself, protected in the same ways |
//! | `client_ed25519` | MariaDB | a signature of the random bytes by a key made of the password |
//! | `mysql_clear_password` | both (PAM, LDAP) | the password itself, so only under TLS |

use std::fmt;

use curve25519_dalek::constants::ED25519_BASEPOINT_TABLE;
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use rsa::pkcs8::DecodePublicKey;
use rsa::{Oaep, RsaPublicKey};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// The system's source of random numbers, for [`encrypt_password`].
pub use rsa::rand_core::OsRng;

/// The first byte of the packet in which the server requests another authentication plugin.
pub const SWITCH_REQUEST: u8 = 0xfe;

/// The first byte of a packet in which the server sends more data for the same plugin.
pub const MORE_DATA: u8 = 0x01;

/// In `caching_sha2_password`: the server accepted the hash, and an OK packet follows.
pub const FAST_AUTH_SUCCESS: u8 = 3;

/// In `caching_sha2_password`: the server requests the password itself.
pub const PERFORM_FULL_AUTHENTICATION: u8 = 4;

/// In `caching_sha2_password`: a client requests the server's public key.
pub const REQUEST_PUBLIC_KEY: u8 = 2;

/// In `sha256_password`: a client requests the server's public key.
pub const REQUEST_PUBLIC_KEY_SHA256: u8 = 1;

/// The maximum length of a public key in PEM form, in bytes. An RSA key of 16384 bits takes 3 kB.
pub const PUBLIC_KEY_BYTES_MAX: usize = 8192;

/// A supported authentication plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthPlugin {
    /// `mysql_native_password`.
    NativePassword,
    /// `caching_sha2_password`.
    CachingSha2Password,
    /// `sha256_password`.
    Sha256Password,
    /// `client_ed25519`.
    Ed25519,
    /// `mysql_clear_password`.
    ClearPassword,
}

impl AuthPlugin {
    /// All plugins.
    pub const ALL: [Self; 5] = [
        Self::NativePassword,
        Self::CachingSha2Password,
        Self::Sha256Password,
        Self::Ed25519,
        Self::ClearPassword,
    ];

    /// Returns the plugin with this name, if it is supported.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    /// Returns the name of the client plugin in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::NativePassword => "mysql_native_password",
            Self::CachingSha2Password => "caching_sha2_password",
            Self::Sha256Password => "sha256_password",
            Self::Ed25519 => "client_ed25519",
            Self::ClearPassword => "mysql_clear_password",
        }
    }

    /// Returns whether the first answer of the plugin is the password in clear text.
    pub fn sends_password(self) -> bool {
        matches!(self, Self::ClearPassword)
    }

    /// Returns the client's first answer to the server's random bytes.
    ///
    /// For [`AuthPlugin::Sha256Password`] the answer requests the public key, so it is only for unprotected
    /// connections. On a protected connection send [`clear_password`] instead. For
    /// [`AuthPlugin::ClearPassword`] the answer is the password itself, so check
    /// [`AuthPlugin::sends_password`] first.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if there are fewer random bytes than the plugin needs.
    pub fn first_answer(self, password: &[u8], nonce: &[u8]) -> Result<Vec<u8>, WireError> {
        Ok(match self {
            Self::NativePassword => native_password(password, &nonce_array(self, nonce)?),
            Self::CachingSha2Password => caching_sha2_password(password, &nonce_array(self, nonce)?),
            Self::Sha256Password if password.is_empty() => vec![0],
            Self::Sha256Password => vec![REQUEST_PUBLIC_KEY_SHA256],
            Self::Ed25519 => ed25519_sign(password, &nonce_array(self, nonce)?).to_vec(),
            Self::ClearPassword => clear_password(password),
        })
    }
}

impl fmt::Display for AuthPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the random bytes without a final zero byte. Returns an error if their number is not what the
/// plugin needs.
fn nonce_array<const N: usize>(plugin: AuthPlugin, nonce: &[u8]) -> Result<[u8; N], WireError> {
    let bytes = match nonce {
        [bytes @ .., 0] if bytes.len() == N => bytes,
        bytes => bytes,
    };
    bytes.try_into().map_err(|_| {
        WireError::malformed(
            "authentication data",
            format!("the server sent {} random bytes, but {plugin} needs {N}", nonce.len()),
        )
    })
}

/// The server's request to start the authentication again with another plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSwitchRequest {
    /// The plugin that the client must use.
    pub plugin: String,
    /// New random bytes, with or without a final zero byte.
    pub auth_data: Vec<u8>,
}

impl AuthSwitchRequest {
    /// Parses the request's payload.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] for the one-byte form of servers before 4.1; [`WireError::Truncated`] or
    /// [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("authentication switch request", payload);
        let first = cursor.u8()?;
        if first != SWITCH_REQUEST {
            let reason = format!("the request begins with the byte {first:#04x}");
            return Err(WireError::malformed("authentication switch request", reason));
        }
        if cursor.is_empty() {
            return Err(WireError::unsupported(
                "authentication switch request",
                "the server requests the plugin mysql_old_password",
            ));
        }
        let plugin = String::from_utf8_lossy(cursor.until_nul()?).into_owned();
        Ok(Self { plugin, auth_data: cursor.rest().to_vec() })
    }

    /// Appends the request's payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(SWITCH_REQUEST);
        out.extend_from_slice(self.plugin.as_bytes());
        out.push(0);
        out.extend_from_slice(&self.auth_data);
    }
}

/// Returns the answer of `mysql_native_password`: SHA1(password) xor SHA1(nonce, SHA1(SHA1(password))). It is
/// empty for an empty password.
pub fn native_password(password: &[u8], nonce: &[u8; 20]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let stage1 = Sha1::digest(password);
    let mix = Sha1::new().chain_update(nonce).chain_update(Sha1::digest(stage1)).finalize();
    xor(&stage1, &mix)
}

/// Returns the hash that a server stores for `mysql_native_password`: SHA1(SHA1(password)).
pub fn native_password_hash(password: &[u8]) -> [u8; 20] {
    Sha1::digest(Sha1::digest(password)).into()
}

/// Returns whether `answer` proves knowledge of the password with this `hash` (see [`native_password_hash`]).
pub fn native_password_verify(answer: &[u8], nonce: &[u8; 20], hash: &[u8; 20]) -> bool {
    let mix = Sha1::new().chain_update(nonce).chain_update(hash).finalize();
    answer.len() == mix.len() && equal(&Sha1::digest(xor(answer, &mix)), hash)
}

/// Returns the answer of `caching_sha2_password`: SHA256(password) xor SHA256(SHA256(SHA256(password)),
/// nonce). It is empty for an empty password.
pub fn caching_sha2_password(password: &[u8], nonce: &[u8; 20]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let stage1 = Sha256::digest(password);
    let mix = Sha256::new().chain_update(Sha256::digest(stage1)).chain_update(nonce).finalize();
    xor(&stage1, &mix)
}

/// Returns the hash that a server caches for `caching_sha2_password`: SHA256(SHA256(password)).
pub fn caching_sha2_password_hash(password: &[u8]) -> [u8; 32] {
    Sha256::digest(Sha256::digest(password)).into()
}

/// Returns whether `answer` proves knowledge of the password with this `hash` (see
/// [`caching_sha2_password_hash`]).
pub fn caching_sha2_password_verify(answer: &[u8], nonce: &[u8; 20], hash: &[u8; 32]) -> bool {
    let mix = Sha256::new().chain_update(hash).chain_update(nonce).finalize();
    answer.len() == mix.len() && equal(&Sha256::digest(xor(answer, &mix)), hash)
}

/// Returns the password with a final zero byte, for protected connections.
pub fn clear_password(password: &[u8]) -> Vec<u8> {
    [password, &[0]].concat()
}

/// Returns the password encrypted with the server's RSA key. The encrypted text is (password, 0) xor the
/// repeated nonce, with OAEP and SHA1.
///
/// # Errors
/// [`WireError::Malformed`] if the key is not an RSA public key in PEM form, there are no random bytes, or
/// the password is too long for the key.
pub fn encrypt_password<R: rsa::rand_core::CryptoRngCore>(
    password: &[u8],
    nonce: &[u8],
    public_key_pem: &[u8],
    random: &mut R,
) -> Result<Vec<u8>, WireError> {
    const WHAT: &str = "server's public key";
    let nonce: [u8; 20] = nonce_array(AuthPlugin::CachingSha2Password, nonce)?;
    if public_key_pem.len() > PUBLIC_KEY_BYTES_MAX {
        return Err(WireError::TooLarge {
            what: WHAT,
            size: public_key_pem.len() as u64,
            size_max: PUBLIC_KEY_BYTES_MAX as u64,
        });
    }
    // The key file of MySQL ends with a zero byte.
    let pem =
        str::from_utf8(public_key_pem).map_err(|_| WireError::malformed(WHAT, "the key is not PEM text"))?;
    let pem = pem.trim_end_matches('\0');
    let key = RsaPublicKey::from_public_key_pem(pem)
        .map_err(|error| WireError::malformed(WHAT, error.to_string()))?;
    let mut secret = clear_password(password);
    for (byte, mask) in secret.iter_mut().zip(nonce.iter().cycle()) {
        *byte ^= mask;
    }
    key.encrypt(random, Oaep::new::<Sha1>(), &secret)
        .map_err(|error| WireError::malformed(WHAT, error.to_string()))
}

/// The key pair that MariaDB's ed25519 plugin derives from a password. It is Ed25519 as in the first
/// reference code, but the secret key is the SHA512 of the password instead of the SHA512 of a 32-byte seed.
/// The password may have any length.
struct Ed25519Key {
    scalar: Scalar,
    prefix: [u8; 32],
    public: CompressedEdwardsY,
}

impl Ed25519Key {
    fn from_password(password: &[u8]) -> Self {
        let hash: [u8; 64] = Sha512::digest(password).into();
        let (mut low, mut prefix) = ([0; 32], [0; 32]);
        low.copy_from_slice(&hash[..32]);
        prefix.copy_from_slice(&hash[32..]);
        let scalar = Scalar::from_bytes_mod_order(clamp_integer(low));
        let public = (&scalar * ED25519_BASEPOINT_TABLE).compress();
        Self { scalar, prefix, public }
    }
}

/// Returns the answer of `client_ed25519`: the signature of the server's random bytes.
pub fn ed25519_sign(password: &[u8], nonce: &[u8; 32]) -> [u8; 64] {
    let key = Ed25519Key::from_password(password);
    let once = scalar_of(&[&key.prefix, nonce]);
    let commitment = (&once * ED25519_BASEPOINT_TABLE).compress();
    let challenge = scalar_of(&[commitment.as_bytes(), key.public.as_bytes(), nonce]);
    let response = once + challenge * key.scalar;
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(commitment.as_bytes());
    signature[32..].copy_from_slice(response.as_bytes());
    signature
}

/// Returns the public key that a MariaDB server stores for `ed25519`.
pub fn ed25519_public_key(password: &[u8]) -> [u8; 32] {
    Ed25519Key::from_password(password).public.to_bytes()
}

/// Returns whether `signature` proves knowledge of the password with this `public_key`.
pub fn ed25519_verify(signature: &[u8], nonce: &[u8; 32], public_key: &[u8; 32]) -> bool {
    let Ok(signature) = <[u8; 64]>::try_from(signature) else { return false };
    let (mut commitment, mut response) = ([0; 32], [0; 32]);
    commitment.copy_from_slice(&signature[..32]);
    response.copy_from_slice(&signature[32..]);
    let Some(point) = CompressedEdwardsY(*public_key).decompress() else { return false };
    let Some(response) = Option::<Scalar>::from(Scalar::from_canonical_bytes(response)) else { return false };
    let challenge = scalar_of(&[&commitment, public_key, nonce]);
    let expected = &response * ED25519_BASEPOINT_TABLE - challenge * point;
    equal(expected.compress().as_bytes(), &commitment)
}

fn scalar_of(parts: &[&[u8]]) -> Scalar {
    let mut hash = Sha512::new();
    for part in parts {
        hash.update(part);
    }
    Scalar::from_bytes_mod_order_wide(&hash.finalize().into())
}

fn xor(left: &[u8], right: &[u8]) -> Vec<u8> {
    left.iter().zip(right).map(|(left, right)| left ^ right).collect()
}

/// Compares in constant time, so that the duration reveals nothing about the bytes.
pub(super) fn equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |sum, (left, right)| sum | (left ^ right)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rsa::RsaPrivateKey;
    use rsa::pkcs8::{EncodePublicKey, LineEnding};

    use super::*;

    const NONCE: [u8; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The expected answers were computed with Python's hashlib.
    #[test]
    fn answers_equal_those_of_hashlib() {
        assert_eq!(hex(&native_password(b"secret", &NONCE)), "b32bb3a583e1340c0a1108d58b1be49781ad8c2f");
        assert_eq!(
            hex(&caching_sha2_password(b"secret", &NONCE)),
            "746ebe205d56a0707acb3e796e834e0dd7b1d61743b26bd5202c7a623230c7c9"
        );
    }

    /// The value of `PASSWORD('mypass')` in MySQL's manual.
    #[test]
    fn the_native_hash_equals_that_of_the_server() {
        assert_eq!(hex(&native_password_hash(b"mypass")), "6c8989366eaf75bb670ad8ea7a7fc1176a95cef4");
    }

    /// The result of `ed25519_password()` in MariaDB 10.11, decoded from base64.
    #[test]
    fn ed25519_public_keys_equal_those_of_the_server() {
        for (password, key) in [
            ("foo", "bee6c507322b6a96df1dcb75fc9ef676752bcb3e554bb940e971c7f2c231e132"),
            ("foobar", "aafda61ba1d60aecb7d9295be71855e131d2b5ec0dcf65483553db824f97009f"),
            ("", "e0b1fe74117e1b95b608a4f221df314774b20ea66842350d515371c7c6966c6e"),
        ] {
            assert_eq!(
                hex(&ed25519_public_key(password.as_bytes())),
                key,
                "wrong public key for the password {password:?}"
            );
        }
    }

    /// The expected signature was computed with big integers from the equations of RFC 8032.
    #[test]
    fn an_ed25519_signature_equals_that_of_rfc_8032() {
        let nonce: [u8; 32] = std::array::from_fn(|index| index as u8);
        let signature = ed25519_sign(b"foobar", &nonce);
        assert_eq!(hex(&signature[..32]), "15b850956c15de59f927685de1d628476c138451d84705676f6fb16433e259c9");
        assert_eq!(hex(&signature[32..]), "6ab314e146897062f6de89d161405298430710c392613dec9f14c4b3d0179b0f");
    }

    #[test]
    fn the_encrypted_password_is_decrypted_with_the_private_key_and_the_nonce() {
        let private = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        let pem = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        let password = b"a password longer than the nonce that masks it";
        let with_zero = [&NONCE[..], &[0]].concat();
        let pem_with_zero = [pem.as_bytes(), &[0]].concat();
        let secret = encrypt_password(password, &with_zero, &pem_with_zero, &mut OsRng).unwrap();
        let mut opened = private.decrypt(Oaep::new::<Sha1>(), &secret).unwrap();
        for (byte, mask) in opened.iter_mut().zip(NONCE.iter().cycle()) {
            *byte ^= mask;
        }
        assert_eq!(opened, [&password[..], &[0]].concat());

        let too_long = [b'x'; 128];
        assert!(encrypt_password(&too_long, &NONCE, pem.as_bytes(), &mut OsRng).is_err());
        assert!(encrypt_password(password, &NONCE[..19], pem.as_bytes(), &mut OsRng).is_err());
    }

    #[test]
    fn empty_passwords_give_empty_answers() {
        assert_eq!(native_password(b"", &NONCE), b"");
        assert_eq!(caching_sha2_password(b"", &NONCE), b"");
    }

    #[test]
    fn plugin_names_round_trip() {
        for plugin in AuthPlugin::ALL {
            assert_eq!(AuthPlugin::from_name(plugin.name()), Some(plugin));
        }
        assert_eq!(AuthPlugin::from_name("mysql_old_password"), None);
    }

    #[test]
    fn a_nonce_of_another_length_is_refused() {
        assert!(AuthPlugin::NativePassword.first_answer(b"x", &[1; 8]).is_err());
        assert!(AuthPlugin::Ed25519.first_answer(b"x", &[1; 20]).is_err());
        assert!(AuthPlugin::Ed25519.first_answer(b"x", &[0; 32]).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn answers_verify_and_wrong_passwords_do_not(
            password in prop::collection::vec(any::<u8>(), 1..40), other in prop::collection::vec(any::<u8>(), 1..40),
            nonce: [u8; 32],
        ) {
            prop_assume!(password != other);
            let mut short = [0; 20];
            short.copy_from_slice(&nonce[..20]);

            let hash = native_password_hash(&password);
            prop_assert!(native_password_verify(&native_password(&password, &short), &short, &hash));
            prop_assert!(!native_password_verify(&native_password(&other, &short), &short, &hash));

            let hash = caching_sha2_password_hash(&password);
            prop_assert!(caching_sha2_password_verify(&caching_sha2_password(&password, &short), &short, &hash));
            prop_assert!(!caching_sha2_password_verify(&caching_sha2_password(&other, &short), &short, &hash));

            let key = ed25519_public_key(&password);
            prop_assert!(ed25519_verify(&ed25519_sign(&password, &nonce), &nonce, &key));
            prop_assert!(!ed25519_verify(&ed25519_sign(&other, &nonce), &nonce, &key));
        }

        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes: Vec<u8>, nonce: Vec<u8>, key: [u8; 32]) {
            let _ = AuthSwitchRequest::parse(&bytes);
            for plugin in AuthPlugin::ALL {
                let _ = plugin.first_answer(&bytes, &nonce);
            }
            let _ = encrypt_password(b"x", &NONCE, &bytes, &mut OsRng);
            let _ = native_password_verify(&bytes, &NONCE, &[7; 20]);
            let _ = caching_sha2_password_verify(&bytes, &NONCE, &[7; 32]);
            let _ = ed25519_verify(&bytes, &key, &key);
        }

        #[test]
        fn switch_requests_round_trip(plugin in "[a-z_0-9]{1,30}", auth_data: Vec<u8>) {
            let request = AuthSwitchRequest { plugin, auth_data };
            let mut out = Vec::new();
            request.encode(&mut out);
            prop_assert_eq!(AuthSwitchRequest::parse(&out).unwrap(), request);
        }
    }
}
