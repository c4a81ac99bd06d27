//! Free TCP ports on the loopback address.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use parking_lot::Mutex;
use rand::Rng;

use crate::error::SandboxError;

const TRIES_MAX: u32 = 200;

/// Ports that this process has reserved. A server keeps its port while it is down.
static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A free port, reserved within this process until this value is dropped.
///
/// The port is below the range from which the kernel takes local ports for outgoing connections. While the
/// server restarts, any client could take a port in that range.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
}

impl ReservedPort {
    /// Reserves a free port.
    ///
    /// # Errors
    /// [`SandboxError::NoFreePort`].
    pub fn pick() -> Result<Self, SandboxError> {
        let range = below_ephemeral();
        for _ in 0..TRIES_MAX {
            let number = rand::rng().random_range(range.clone());
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
                && let Some(port) = Self::claim(number)
            {
                return Ok(port);
            }
        }
        Err(SandboxError::NoFreePort { tries: TRIES_MAX })
    }

    /// Reserves a given port, unless another server of this process has it.
    pub(crate) fn claim(number: u16) -> Option<Self> {
        let mut taken = TAKEN.lock();
        taken.get_or_insert_default().insert(number).then(|| Self { number })
    }

    /// Reserves a given port, if no program listens on it.
    ///
    /// # Errors
    /// [`SandboxError::PortTaken`].
    pub fn fixed(number: u16) -> Result<Self, SandboxError> {
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
        is_free.then(|| Self::claim(number)).flatten().ok_or(SandboxError::PortTaken { port: number })
    }

    /// Returns the port number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for ReservedPort {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock();
        taken.get_or_insert_default().remove(&self.number);
    }
}

fn below_ephemeral() -> Range<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let low = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
    match low {
        Some(low) if low > 12_000 => 10_000..low,
        // On this machine the kernel uses nearly all ports for outgoing connections, so the server's port
        // must be one of them.
        _ => 20_000..60_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_distinct() {
        let ports: Vec<_> = (0..20).map(|_| ReservedPort::pick().expect("port")).collect();
        let numbers: HashSet<_> = ports.iter().map(ReservedPort::number).collect();
        assert_eq!(numbers.len(), ports.len());
        assert!(ReservedPort::claim(ports[0].number()).is_none());
        let number = ports[0].number();
        drop(ports);
        assert!(ReservedPort::claim(number).is_some());
    }
}
