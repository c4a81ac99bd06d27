//! The RSA key of a server. Clients encrypt a password with it on an unprotected connection.

use std::fmt;

use rsa::pkcs8::{EncodePublicKey, LineEnding};
use rsa::rand_core::CryptoRngCore;
use rsa::{Oaep, RsaPrivateKey};
use sha1::Sha1;

use crate::WireError;

/// The size of the key in bits, as in MySQL.
const KEY_BITS: usize = 2048;

/// A key pair for `caching_sha2_password` without TLS. `Debug` does not print the key.
pub struct PasswordKey {
    private: RsaPrivateKey,
    public_pem: String,
}

impl fmt::Debug for PasswordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PasswordKey {
    /// Generates a key of 2048 bits. This takes from 0.1 s to several seconds.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] if the system cannot supply random numbers.
    pub fn generate<R: CryptoRngCore>(random: &mut R) -> Result<Self, WireError> {
        let failed = |detail: String| WireError::unsupported("RSA key", detail);
        let private = RsaPrivateKey::new(random, KEY_BITS).map_err(|error| failed(error.to_string()))?;
        let public_pem = private.to_public_key().to_public_key_pem(LineEnding::LF);
        Ok(Self { public_pem: public_pem.map_err(|error| failed(error.to_string()))?, private })
    }

    /// Returns the public key in PEM form, as the server sends it to clients.
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// Decrypts a password that was encrypted by [`super::authentication_plugin::encrypt_password`], and
    /// removes the final zero byte.
    ///
    /// # Errors
    /// [`WireError::Malformed`]. The error does not state the cause, because an attacker could use this
    /// information.
    pub fn decrypt<R: CryptoRngCore>(
        &self,
        secret: &[u8],
        nonce: &[u8; 20],
        random: &mut R,
    ) -> Result<Vec<u8>, WireError> {
        let wrong = || {
            WireError::malformed(
                "encrypted password",
                "the password was not encrypted with the key of this server",
            )
        };
        // Decrypt with blinding, so that the duration reveals nothing about the key.
        let opened = self.private.decrypt_blinded(random, Oaep::new::<Sha1>(), secret);
        let mut opened = opened.map_err(|_| wrong())?;
        for (byte, mask) in opened.iter_mut().zip(nonce.iter().cycle()) {
            *byte ^= mask;
        }
        match opened.pop() {
            Some(0) => Ok(opened),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::authentication_plugin::{OsRng, encrypt_password};

    #[test]
    fn only_encrypted_passwords_are_decrypted() {
        let key = PasswordKey::generate(&mut OsRng).unwrap();
        let nonce: [u8; 20] = std::array::from_fn(|index| index as u8 + 1);
        for password in ["", "geheim", "a password longer than the nonce that masks it"] {
            let secret =
                encrypt_password(password.as_bytes(), &nonce, key.public_pem().as_bytes(), &mut OsRng)
                    .unwrap();
            assert_eq!(key.decrypt(&secret, &nonce, &mut OsRng).unwrap(), password.as_bytes());
            assert!(key.decrypt(&secret[1..], &nonce, &mut OsRng).is_err());
            let other =
                encrypt_password(password.as_bytes(), &[9; 20], key.public_pem().as_bytes(), &mut OsRng);
            assert_ne!(
                key.decrypt(&other.unwrap(), &nonce, &mut OsRng).ok().as_deref(),
                Some(password.as_bytes())
            );
        }
        for garbage in [&[][..], &[0; 256], &[0xff; 256], &[7; 300]] {
            assert!(key.decrypt(garbage, &nonce, &mut OsRng).is_err());
        }
    }
}
