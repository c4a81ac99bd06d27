//! Connection limits for clients, and the delay of logins after failures. This code reads no clock: callers
//! pass the time.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::client_limits::ConnectionLimits;

/// The maximum number of client addresses for which a record is stored.
const ADDRESSES_MAX: usize = 10_000;

/// The maximum number of failures that are counted for an address. With fewer failures than this, the delay
/// has already reached its maximum.
const FAILURES_MAX: u32 = 32;

/// A client address for the limits: an IPv4 address, or a /64 network of IPv6, because one machine may own a
/// whole /64 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClientAddress(u128);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().to_bits()),
            IpAddr::V6(address) => Self(address.to_bits() >> 64 << 64),
        }
    }
}

/// The data that is recorded about a client address.
#[derive(Debug)]
struct AddressRecord {
    /// The number of connections that the address may still open now, in billionths of a connection.
    allowance: u64,
    allowance_at: Instant,
    /// The number of failed logins from which the delay is computed. It decreases with time.
    failures: u32,
    /// The time of the last failed login or of the last halving of the delay.
    failures_at: Instant,
    unauthenticated: usize,
}

/// The unit of [`AddressRecord::allowance`]: one connection, in billionths of a connection.
const ONE: u64 = 1_000_000_000;

/// The connection counts and address records with which the limits are checked.
#[derive(Debug)]
pub(super) struct Admission {
    limits: ConnectionLimits,
    open: usize,
    unauthenticated: usize,
    origins: HashMap<ClientAddress, AddressRecord>,
}

impl Admission {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: 0, unauthenticated: 0, origins: HashMap::new() }
    }

    /// Counts a new connection.
    ///
    /// # Errors
    /// The limit that is reached. The refused connection is not counted as open, but it counts for the limit
    /// per second.
    pub(super) fn open(&mut self, origin: ClientAddress, now: Instant) -> Result<(), &'static str> {
        let per_second = u64::from(self.limits.connections_per_second_max);
        let per_address = self.limits.unauthenticated_per_address_max;
        let Some(memory) = self.memory(origin, now) else {
            return Err("too many addresses have connections that are not logged in");
        };
        let elapsed = now.saturating_duration_since(memory.allowance_at).as_nanos();
        let earned = elapsed.saturating_mul(u128::from(per_second));
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        memory.allowance = memory.allowance.saturating_add(earned).min(per_second.saturating_mul(ONE));
        memory.allowance_at = now;
        if memory.allowance < ONE {
            return Err("too many connections of this address per second (connections_per_second_max)");
        }
        memory.allowance -= ONE;
        if memory.unauthenticated >= per_address {
            return Err(
                "too many connections of this address are not logged in (unauthenticated_per_address_max)",
            );
        }
        if self.open >= self.limits.connections_max {
            return Err("too many connections (connections_max)");
        }
        if self.unauthenticated >= self.limits.unauthenticated_max {
            return Err("too many connections are not logged in (unauthenticated_max)");
        }
        self.open += 1;
        self.unauthenticated += 1;
        if let Some(memory) = self.origins.get_mut(&origin) {
            memory.unauthenticated += 1;
        }
        Ok(())
    }

    /// Counts an open connection as logged in.
    pub(super) fn logged_in(&mut self, origin: ClientAddress) {
        self.unauthenticated = self.unauthenticated.saturating_sub(1);
        if let Some(memory) = self.origins.get_mut(&origin) {
            memory.unauthenticated = memory.unauthenticated.saturating_sub(1);
        }
    }

    /// Counts the end of a connection, whether or not it was logged in.
    pub(super) fn closed(&mut self, origin: ClientAddress, was_logged_in: bool) {
        if !was_logged_in {
            self.logged_in(origin);
        }
        self.open = self.open.saturating_sub(1);
    }

    /// Counts a failed login.
    pub(super) fn failed(&mut self, origin: ClientAddress, now: Instant) {
        let forgiven_after = self.limits.failed_login_forgiven_after;
        if let Some(memory) = self.memory(origin, now) {
            memory.forgive(forgiven_after, now);
            memory.failures = (memory.failures + 1).min(FAILURES_MAX);
            memory.failures_at = now;
        }
    }

    /// Returns how long to delay the answer to a login from this address.
    pub(super) fn delay(&mut self, origin: ClientAddress, now: Instant) -> Duration {
        let forgiven_after = self.limits.failed_login_forgiven_after;
        let (first, delay_max) = (self.limits.failed_login_delay, self.limits.failed_login_delay_max);
        let Some(memory) = self.origins.get_mut(&origin) else { return Duration::ZERO };
        memory.forgive(forgiven_after, now);
        match memory.failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => first.saturating_mul(1 << doublings.min(31)).min(delay_max),
        }
    }

    /// The number of open connections, and the number of open connections that are not logged in.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.open, self.unauthenticated)
    }

    /// Returns the record of an address. Creates it if it is missing. `None` if the maximum number of records
    /// is reached.
    fn memory(&mut self, origin: ClientAddress, now: Instant) -> Option<&mut AddressRecord> {
        if !self.origins.contains_key(&origin) && self.origins.len() >= ADDRESSES_MAX {
            self.forget(now);
            if self.origins.len() >= ADDRESSES_MAX {
                return None;
            }
        }
        let allowance = u64::from(self.limits.connections_per_second_max).saturating_mul(ONE);
        Some(self.origins.entry(origin).or_insert_with(|| AddressRecord {
            allowance,
            allowance_at: now,
            failures: 0,
            failures_at: now,
            unauthenticated: 0,
        }))
    }

    /// Removes the records of addresses that are idle and have no failed logins. If there are none, removes
    /// one tenth of the idle records: those with the oldest activity.
    fn forget(&mut self, now: Instant) {
        let forgiven_after = self.limits.failed_login_forgiven_after;
        let second = Duration::from_secs(1);
        self.origins.retain(|_, memory| {
            memory.forgive(forgiven_after, now);
            memory.unauthenticated > 0
                || memory.failures > 0
                || now.saturating_duration_since(memory.allowance_at) < second
        });
        if self.origins.len() < ADDRESSES_MAX {
            return;
        }
        let quiet = |memory: &AddressRecord| memory.unauthenticated == 0;
        let mut times: Vec<_> =
            self.origins.values().filter(|memory| quiet(memory)).map(|memory| memory.allowance_at).collect();
        let tenth = ADDRESSES_MAX / 10;
        if times.len() > tenth {
            let (_, limit, _) = times.select_nth_unstable(tenth);
            let limit = *limit;
            self.origins.retain(|_, memory| !quiet(memory) || memory.allowance_at > limit);
        } else {
            self.origins.retain(|_, memory| !quiet(memory));
        }
    }
}

impl AddressRecord {
    fn forgive(&mut self, forgiven_after: Duration, now: Instant) {
        if self.failures == 0 || forgiven_after.is_zero() {
            self.failures = 0;
            return;
        }
        let elapsed = now.saturating_duration_since(self.failures_at).as_nanos();
        let periods = u32::try_from(elapsed / forgiven_after.as_nanos()).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_sub(periods);
        // The sum is at most `now`, so it cannot overflow.
        self.failures_at += forgiven_after.saturating_mul(periods.min(FAILURES_MAX));
    }
}

/// Represents one connection in the counts. Dropping this value counts the connection as closed.
#[derive(Debug)]
pub(super) struct AdmissionSlot {
    admission: Arc<Mutex<Admission>>,
    origin: ClientAddress,
    logged_in: bool,
}

/// Locks the limits. Ignores that the lock is poisoned, because a panic never leaves the counts inconsistent.
pub(super) fn lock(admission: &Mutex<Admission>) -> MutexGuard<'_, Admission> {
    admission.lock()
}

impl AdmissionSlot {
    /// Counts a new connection and returns its slot.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn take(
        admission: &Arc<Mutex<Admission>>,
        address: IpAddr,
        now: Instant,
    ) -> Result<Self, &'static str> {
        let origin = ClientAddress::from(address);
        lock(admission).open(origin, now)?;
        Ok(Self { admission: Arc::clone(admission), origin, logged_in: false })
    }

    pub(super) fn set_logged_in(&mut self) {
        if !self.logged_in {
            self.logged_in = true;
            lock(&self.admission).logged_in(self.origin);
        }
    }

    /// Counts a failed login if `failed` is set, and returns the delay of the answer.
    pub(super) fn delay(&self, failed: bool, now: Instant) -> Duration {
        let mut admission = lock(&self.admission);
        if failed {
            admission.failed(self.origin, now);
        }
        admission.delay(self.origin, now)
    }
}

impl Drop for AdmissionSlot {
    fn drop(&mut self) {
        lock(&self.admission).closed(self.origin, self.logged_in);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> ClientAddress {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn admission(change: impl FnOnce(&mut ConnectionLimits)) -> (Admission, Instant) {
        let mut limits = ConnectionLimits::default();
        change(&mut limits);
        (Admission::new(limits), Instant::now())
    }

    #[test]
    fn clients_of_one_ipv6_network_share_their_limits() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
        assert_ne!(origin("10.0.0.1"), origin("::1"));
    }

    #[test]
    fn connections_are_limited_and_closed_ones_are_not_counted() {
        let (mut admission, now) = admission(|limits| {
            limits.connections_max = 3;
            limits.unauthenticated_max = 2;
        });
        let (one, other) = (origin("10.0.0.1"), origin("10.0.0.2"));
        assert!(admission.open(one, now).is_ok() && admission.open(other, now).is_ok());
        assert!(admission.open(one, now).unwrap_err().contains("unauthenticated_max"));
        admission.logged_in(one);
        assert!(admission.open(one, now).is_ok());
        admission.logged_in(one);
        assert!(admission.open(one, now).unwrap_err().contains("(connections_max)"));
        admission.closed(one, true);
        assert!(admission.open(one, now).is_ok());
        assert_eq!(admission.counts(), (3, 2));
        admission.closed(one, false);
        admission.closed(one, true);
        admission.closed(other, false);
        assert_eq!(admission.counts(), (0, 0));
    }

    #[test]
    fn one_address_does_not_block_other_addresses() {
        let (mut admission, now) = admission(|limits| limits.unauthenticated_per_address_max = 2);
        let (one, other) = (origin("10.0.0.1"), origin("10.0.0.2"));
        assert!(admission.open(one, now).is_ok() && admission.open(one, now).is_ok());
        assert!(admission.open(one, now).unwrap_err().contains("unauthenticated_per_address_max"));
        assert!(admission.open(other, now).is_ok());
        admission.closed(one, false);
        assert!(admission.open(one, now).is_ok());
    }

    #[test]
    fn connections_per_second_are_limited() {
        let (mut admission, now) = admission(|limits| limits.connections_per_second_max = 2);
        let one = origin("10.0.0.1");
        assert!(admission.open(one, now).is_ok() && admission.open(one, now).is_ok());
        assert!(admission.open(one, now).unwrap_err().contains("per second"));
        assert!(admission.open(origin("10.0.0.2"), now).is_ok());
        let later = now + Duration::from_millis(499);
        assert!(admission.open(one, later).is_err());
        let later = now + Duration::from_millis(500);
        assert!(admission.open(one, later).is_ok());
        assert!(admission.open(one, later).is_err());
        // A long pause does not allow a larger burst.
        let later = now + Duration::from_secs(3600);
        assert!(admission.open(one, later).is_ok() && admission.open(one, later).is_ok());
        assert!(admission.open(one, later).is_err());
        // A clock that stops or jumps back does not allow more connections.
        assert!(admission.open(one, now).is_err());
    }

    #[test]
    fn the_login_delay_doubles_to_its_maximum_and_is_halved_later() {
        let (mut admission, now) = admission(|_| {});
        let one = origin("10.0.0.1");
        assert_eq!(admission.delay(one, now), Duration::ZERO);
        for expected in [200, 400, 800, 1600, 3200, 5000, 5000] {
            admission.failed(one, now);
            assert_eq!(admission.delay(one, now), Duration::from_millis(expected));
        }
        assert_eq!(admission.delay(origin("10.0.0.2"), now), Duration::ZERO);
        // There were seven failures. Every 30 s, one of them stops counting.
        for (seconds, expected) in [(29, 5000), (59, 5000), (60, 3200), (119, 1600), (180, 200), (210, 0)] {
            let delay = admission.delay(one, now + Duration::from_secs(seconds));
            assert_eq!(
                delay,
                Duration::from_millis(expected),
                "the login delay is wrong {seconds} s after the last failed login"
            );
        }
        for _ in 0..1000 {
            admission.failed(one, now + Duration::from_secs(1000));
        }
        let delay = admission.delay(one, now + Duration::from_secs(1000) + Duration::from_secs(33 * 30));
        assert_eq!(delay, Duration::ZERO, "a thousand failures must not delay logins for hours");
    }

    #[test]
    fn the_number_of_records_is_bounded_and_recent_failures_are_kept() {
        let (mut admission, now) = admission(|limits| limits.unauthenticated_max = usize::MAX);
        let address = |index: u32| ClientAddress::from(IpAddr::from((0x0a00_0000 + index).to_be_bytes()));
        for index in 0..3 * ADDRESSES_MAX as u32 {
            let at = now + Duration::from_micros(u64::from(index));
            admission.open(address(index), at).unwrap();
            admission.failed(address(index), at);
            admission.closed(address(index), false);
            assert!(admission.origins.len() <= ADDRESSES_MAX);
        }
        let last = 3 * ADDRESSES_MAX as u32 - 1;
        let at = now + Duration::from_micros(u64::from(last));
        assert_eq!(admission.delay(address(last), at), Duration::from_millis(200));
        // An address without failures needs no record.
        admission.forget(at + Duration::from_secs(60));
        assert!(admission.origins.is_empty());
    }
}
