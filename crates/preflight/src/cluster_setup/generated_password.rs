//! Passwords that satisfy the password policies of servers.

use rand::Rng;
use rand::seq::IndexedRandom;

/// Letters and digits that are not mistaken for each other.
const LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Number of groups of letters, which are joined by hyphens. 24 letters of 57 have 139 bits of entropy.
const GROUPS: usize = 4;
const GROUP_LETTERS: usize = 6;

/// Returns a random password. It has upper and lower case letters, digits and hyphens, which need no quotes
/// in an option file.
pub(super) fn generate(random: &mut impl Rng) -> String {
    loop {
        let group = |random: &mut _| {
            let letters =
                (0..GROUP_LETTERS).filter_map(|_| LETTERS.choose(random).map(|letter| char::from(*letter)));
            letters.collect::<String>()
        };
        let password = (0..GROUPS).map(|_| group(random)).collect::<Vec<_>>().join("-");
        let has = |test: fn(&char) -> bool| password.chars().any(|letter| test(&letter));
        if has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit) {
            return password;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_differ_and_satisfy_policies() {
        let mut random = rand::rng();
        let (one, other) = (generate(&mut random), generate(&mut random));
        assert_ne!(one, other);
        assert_eq!(one.len(), GROUPS * GROUP_LETTERS + GROUPS - 1);
        assert!(one.contains('-') && one.chars().any(|letter| letter.is_ascii_digit()));
    }
}
