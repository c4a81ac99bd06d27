//! Browsers that have logged in to the page with a token.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tailwater_config::HttpRole;

/// The name of the cookie with the session's id.
pub const SESSION_COOKIE: &str = "tailwater_session";
/// The header that every change from a browser must carry. Other sites cannot set it.
pub const CSRF_HEADER: &str = "x-csrf-token";
/// A session ends after this time.
pub const SESSION_TIME_MAX: Duration = Duration::from_secs(12 * 3600);
/// The greatest number of sessions. The oldest one ends when a further browser logs in.
const SESSIONS_MAX: usize = 1000;

/// A browser that has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSession {
    /// The name of the token.
    pub name: String,
    /// The role of the token.
    pub role: HttpRole,
    /// The value of [`CSRF_HEADER`] in requests of this browser.
    pub csrf_token: String,
}

/// The sessions of all browsers. They end with the daemon.
#[derive(Debug, Default)]
pub struct PageSessions(Mutex<HashMap<String, (Instant, PageSession)>>);

impl PageSessions {
    /// Starts a session, and returns its id for the cookie.
    pub fn start(&self, name: &str, role: HttpRole) -> String {
        let id = random_id();
        let session = PageSession { name: name.to_owned(), role, csrf_token: random_id() };
        let mut sessions = self.0.lock();
        sessions.retain(|_, (started, _)| started.elapsed() < SESSION_TIME_MAX);
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, (started, _))| *started).map(|(id, _)| id.clone());
            oldest.map(|oldest| sessions.remove(&oldest));
        }
        sessions.insert(id.clone(), (Instant::now(), session));
        id
    }

    /// Returns the session with this id.
    pub fn get(&self, id: &str) -> Option<PageSession> {
        let sessions = self.0.lock();
        let (started, session) = sessions.get(id)?;
        (started.elapsed() < SESSION_TIME_MAX).then(|| session.clone())
    }

    /// Ends a session.
    pub fn end(&self, id: &str) {
        self.0.lock().remove(id);
    }
}

impl PageSession {
    /// Whether the value of [`CSRF_HEADER`] is the one of this session.
    pub fn accepts(&self, csrf_token: &[u8]) -> bool {
        csrf_token.ct_eq(self.csrf_token.as_bytes()).into()
    }
}

/// Returns the session's id in the value of a header `Cookie`.
pub fn session_id(cookies: &str) -> Option<&str> {
    let pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == SESSION_COOKIE).map(|(_, id)| id).next()
}

/// 256 random bits in hexadecimal digits.
fn random_id() -> String {
    let bytes: [u8; 32] = rand::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lasts_until_it_is_ended() {
        let sessions = PageSessions::default();
        let id = sessions.start("anna", HttpRole::Operator);
        let session = sessions.get(&id).expect("the session has started");
        assert_eq!((session.name.as_str(), session.role), ("anna", HttpRole::Operator));
        assert!(
            session.accepts(session.csrf_token.as_bytes())
                && !session.accepts(b"")
                && !session.accepts(id.as_bytes())
        );
        sessions.end(&id);
        assert_eq!(sessions.get(&id), None);
    }

    #[test]
    fn the_number_of_sessions_is_limited() {
        let sessions = PageSessions::default();
        let first = sessions.start("anna", HttpRole::ReadOnly);
        for _ in 0..SESSIONS_MAX {
            sessions.start("anna", HttpRole::ReadOnly);
        }
        assert_eq!(sessions.get(&first), None);
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX);
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        assert_eq!(session_id("theme=dark; tailwater_session=ab12; x"), Some("ab12"));
        for cookies in ["", "tailwater_session", "xtailwater_session=1", "theme=tailwater_session=1"] {
            assert_eq!(session_id(cookies), None, "a session was found in the cookies {cookies}");
        }
    }
}
