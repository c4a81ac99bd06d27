//! The hash that MySQL stores for `caching_sha2_password`: SHA256-crypt of the password and a salt, with
//! thousands of rounds.
//!
//! The text in `mysql.user.authentication_string` is `$A$`, the rounds in thousands as three hexadecimal
//! digits, and `$`. Then follow 20 bytes of salt (any byte below 128 except 0 and `$`) and 43 characters of
//! digest. The digest is computed like that of the `$5$` method of crypt(3), but with a longer salt. Source:
//! `crypt_genhash_impl.cc` and `sha2_password.cc` of MySQL.

use std::fmt;

use sha2::{Digest, Sha256};

use super::authentication_plugin::equal;
use crate::WireError;

/// The length of the salt in bytes.
pub const SALT_BYTES: usize = 20;

/// The maximum length of a password that MySQL verifies with a SHA256-crypt hash, in bytes. The time for the
/// check grows with the square of the length.
pub const PASSWORD_BYTES_MAX: usize = 256;

/// The unit in which the stored text counts the rounds.
const ROUNDS_UNIT: u32 = 1000;

/// The length of the stored text before the salt: `$A$005$`.
const PREFIX_BYTES: usize = 7;

/// The number of characters for a digest of 32 bytes, with 6 bits per character.
const DIGEST_CHARS: usize = 43;

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Groups of three bytes of the digest, as indexes with the highest byte first. Each group makes four
/// characters. The two bytes that are left make three characters.
const GROUPS: [[usize; 3]; 10] = [
    [0, 10, 20],
    [21, 1, 11],
    [12, 22, 2],
    [3, 13, 23],
    [24, 4, 14],
    [15, 25, 5],
    [6, 16, 26],
    [27, 7, 17],
    [18, 28, 8],
    [9, 19, 29],
];

/// A stored hash. `Debug` does not print the hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Sha256Crypt {
    /// The rounds in units of 1000, 1..=0xfff.
    rounds: u32,
    salt: [u8; SALT_BYTES],
    digest: [u8; 32],
}

impl fmt::Debug for Sha256Crypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Sha256Crypt {
    /// Hashes a password. `rounds_thousands` is limited to 1..=0xfff; MySQL uses 5.
    pub fn new(password: &[u8], salt: [u8; SALT_BYTES], rounds_thousands: u32) -> Self {
        let rounds = rounds_thousands.clamp(1, 0xfff);
        Self { rounds, salt, digest: digest(password, &salt, rounds * ROUNDS_UNIT) }
    }

    /// Parses the text that MySQL stores.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the cause. The error does not hold the text.
    pub fn parse(text: &[u8]) -> Result<Self, WireError> {
        let wrong = |reason: &str| WireError::malformed("caching_sha2_password hash", reason);
        let bytes_due = PREFIX_BYTES + SALT_BYTES + DIGEST_CHARS;
        if text.len() != bytes_due {
            let reason = format!("the hash has {} bytes, but must have {bytes_due}", text.len());
            return Err(WireError::malformed("caching_sha2_password hash", reason));
        }
        let (prefix, rest) = text.split_at(PREFIX_BYTES);
        let (salt, digest) = rest.split_at(SALT_BYTES);
        let [b'$', b'A', b'$', rounds @ .., b'$'] = prefix else {
            return Err(wrong("the hash does not begin like $A$005$"));
        };
        let rounds = str::from_utf8(rounds).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
        let rounds = rounds
            .filter(|rounds| *rounds > 0)
            .ok_or_else(|| wrong("the rounds of the hash are not a number"))?;
        let mut salt_array = [0; SALT_BYTES];
        salt_array.copy_from_slice(salt);
        let digest = decode(digest)
            .ok_or_else(|| wrong("the digest of the hash is not in the base64 form of crypt(3)"))?;
        Ok(Self { rounds, salt: salt_array, digest })
    }

    /// Appends the text that MySQL stores.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("$A${:03X}$", self.rounds).as_bytes());
        out.extend_from_slice(&self.salt);
        encode(&self.digest, out);
    }

    /// Returns whether this is the hash of `password`. By design, the check takes milliseconds.
    pub fn verify(&self, password: &[u8]) -> bool {
        password.len() <= PASSWORD_BYTES_MAX
            && equal(&digest(password, &self.salt, self.rounds * ROUNDS_UNIT), &self.digest)
    }
}

/// Computes the SHA256-crypt digest in the steps of its specification.
fn digest(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let alternate = Sha256::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Sha256::new().chain_update(password).chain_update(salt);
    first.update(repeated(&alternate, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 { &alternate[..] } else { password });
        bits >>= 1;
    }
    let mut running = first.finalize();

    let mut of_password = Sha256::new();
    for _ in 0..password.len() {
        of_password.update(password);
    }
    let password_part = repeated(&of_password.finalize(), password.len());
    let mut of_salt = Sha256::new();
    for _ in 0..16 + usize::from(running[0]) {
        of_salt.update(salt);
    }
    let salt_part = repeated(&of_salt.finalize(), salt.len());

    for round in 0..rounds {
        let odd = round % 2 == 1;
        let mut hash = Sha256::new();
        hash.update(if odd { &password_part } else { &running[..] });
        if round % 3 != 0 {
            hash.update(&salt_part);
        }
        if round % 7 != 0 {
            hash.update(&password_part);
        }
        hash.update(if odd { &running[..] } else { &password_part });
        running = hash.finalize();
    }
    running.into()
}

/// Returns `bytes` repeated up to a total of `length` bytes.
fn repeated(bytes: &[u8], length: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(length).collect()
}

fn encode(digest: &[u8; 32], out: &mut Vec<u8>) {
    let mut put = |mut word: u32, chars: usize| {
        for _ in 0..chars {
            out.push(ALPHABET[word as usize & 63]);
            word >>= 6;
        }
    };
    for [high, middle, low] in GROUPS {
        put(u32::from(digest[high]) << 16 | u32::from(digest[middle]) << 8 | u32::from(digest[low]), 4);
    }
    put(u32::from(digest[31]) << 8 | u32::from(digest[30]), 3);
}

fn decode(text: &[u8]) -> Option<[u8; 32]> {
    let word = |chars: &[u8]| {
        chars.iter().rev().try_fold(0u32, |word, char| {
            let value = ALPHABET.iter().position(|known| known == char)?;
            Some(word << 6 | value as u32)
        })
    };
    let mut digest = [0; 32];
    let (groups, last) = text.split_at_checked(4 * GROUPS.len())?;
    for (places, chars) in GROUPS.iter().zip(groups.chunks(4)) {
        let [_, high, middle, low] = word(chars)?.to_be_bytes();
        for (place, byte) in places.iter().zip([high, middle, low]) {
            digest[*place] = byte;
        }
    }
    match word(last)?.to_be_bytes() {
        [0, 0, high, low] if last.len() == 3 => (digest[31], digest[30]) = (high, low),
        _ => return None,
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the `$5$` test vector of the specification. Its salt is shorter than MySQL's.
    #[test]
    fn the_digest_equals_that_of_crypt() {
        let mut text = Vec::new();
        encode(&digest(b"Hello world!", b"saltstring", 5000), &mut text);
        assert_eq!(text, b"5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5");
    }

    /// Checks a hash with 10000 rounds from `mysql.user` of a MySQL 9.7 server.
    #[test]
    fn a_hash_of_a_server_is_verified() {
        let text =
            b"$A$00A$pt\x1d\x0fX=pw\x7f\x1c\x14?GOW\x04|\x17YYJo4oTDYcQc16O2V04Ac.xHsbPRGxtssFMuDXhepYUU2";
        let hash = Sha256Crypt::parse(text).unwrap();
        assert!(hash.verify("Geheim!1 äöü".as_bytes()) && !hash.verify(b"Geheim!1") && !hash.verify(b""));
        let mut again = Vec::new();
        hash.encode(&mut again);
        assert_eq!(again, text);
    }

    #[test]
    fn invalid_hashes_are_refused() {
        let mut good = Vec::new();
        Sha256Crypt::new(b"secret", [b'x'; SALT_BYTES], 1).encode(&mut good);
        assert!(Sha256Crypt::parse(&good).unwrap().verify(b"secret"));
        assert!(!Sha256Crypt::parse(&good).unwrap().verify(&[b's'; PASSWORD_BYTES_MAX + 1]));
        for (at, byte) in [(0, b'*'), (1, b'B'), (3, b'g'), (6, b'0'), (30, b'!'), (69, b'z')] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(
                Sha256Crypt::parse(&bad).is_err(),
                "an invalid hash was accepted: {}",
                String::from_utf8_lossy(&bad)
            );
        }
        assert!(Sha256Crypt::parse(&good[..good.len() - 1]).is_err());
        assert!(Sha256Crypt::parse(&[&good[..3], b"000", &good[6..]].concat()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn hashes_round_trip_and_verify(
            password in prop::collection::vec(any::<u8>(), 0..80), other in prop::collection::vec(any::<u8>(), 0..80),
            salt: [u8; SALT_BYTES],
        ) {
            prop_assume!(password != other);
            let hash = Sha256Crypt::new(&password, salt, 1);
            let mut text = Vec::new();
            hash.encode(&mut text);
            prop_assert_eq!(&Sha256Crypt::parse(&text).unwrap(), &hash);
            prop_assert!(hash.verify(&password) && !hash.verify(&other));
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 60..80)) {
            let _ = Sha256Crypt::parse(&bytes);
        }
    }
}
