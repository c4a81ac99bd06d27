//! An archive in memory whose calls fail on request.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use tailwater_log::archive::{ArchiveFailure, ArchiveObject, ArchiveStore};

/// The next fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and has no effect.
    Refused,
    /// The call fails and has no effect, and a retry also fails.
    Forbidden,
    /// A put is interrupted after this number of bytes.
    BreaksAt(usize),
    /// A put stores only this number of bytes, and reports success.
    Truncates(usize),
    /// A put changes the byte at this offset, and reports success.
    Changes(usize),
}

#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, (Vec<u8>, SystemTime)>,
    faults: Vec<Fault>,
    /// All calls of the store, each as `VERB NAME`.
    calls: Vec<String>,
}

impl MemoryStore {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no call of this store panics")
    }

    /// Injects faults. Each fault affects the next call that can fail in this way.
    pub fn fail(&self, faults: &[Fault]) {
        self.state().faults = faults.to_vec();
    }

    pub fn names(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    pub fn object(&self, name: &str) -> Vec<u8> {
        self.state().objects.get(name).unwrap_or_else(|| panic!("there is no object {name}")).0.clone()
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        change(&mut state.objects.get_mut(name).unwrap_or_else(|| panic!("there is no object {name}")).0);
    }

    pub fn remove(&self, name: &str) {
        assert!(self.state().objects.remove(name).is_some(), "there is no object {name}");
    }

    pub fn age(&self, by: Duration) {
        self.state().objects.values_mut().for_each(|(_, modified)| *modified -= by);
    }

    /// Returns the calls since this method was last called.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    fn call(&self, verb: &str, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.calls.push(format!("{verb} {name}"));
        match state.faults.first() {
            Some(Fault::Refused) => {
                state.faults.remove(0);
                Err(ArchiveFailure::error(ErrorKind::Other, "503 slow down"))
            }
            Some(Fault::Forbidden) => {
                Err(ArchiveFailure::error(ErrorKind::PermissionDenied, "403 forbidden"))
            }
            _ => Ok(()),
        }
    }
}

impl ArchiveStore for MemoryStore {
    fn url(&self) -> &str {
        "memory://archive"
    }

    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        self.call("put", name)?;
        let fault = {
            let mut state = self.state();
            let puts = |fault: &Fault| !matches!(fault, Fault::Refused | Fault::Forbidden);
            let fault = state.faults.first().copied().filter(puts);
            state.faults.drain(..usize::from(fault.is_some()));
            fault
        };
        let mut bytes = Vec::new();
        match fault {
            Some(Fault::BreaksAt(at)) => {
                content.take(at as u64).read_to_end(&mut bytes)?;
                return Err(ArchiveFailure::error(ErrorKind::ConnectionReset, "connection reset by peer"));
            }
            _ => content.read_to_end(&mut bytes)?,
        };
        match fault {
            Some(Fault::Truncates(at)) => bytes.truncate(at),
            Some(Fault::Changes(at)) => bytes[at] ^= 1,
            _ => {}
        }
        self.state().objects.insert(name.to_owned(), (bytes, SystemTime::now()));
        Ok(())
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.call("read", name)?;
        let state = self.state();
        let (bytes, _) = state.objects.get(name).ok_or_else(|| not_found(name))?;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.call("length", name)?;
        let state = self.state();
        state.objects.get(name).map(|(bytes, _)| bytes.len() as u64).ok_or_else(|| not_found(name))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<ArchiveObject>> {
        self.call("list", folder)?;
        let state = self.state();
        let below = state.objects.iter().filter(|(name, _)| {
            folder.is_empty() || name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        });
        let object = |(name, (bytes, modified)): (&String, &(Vec<u8>, SystemTime))| ArchiveObject {
            name: name.clone(),
            bytes: bytes.len() as u64,
            modified: *modified,
        };
        Ok(below.map(object).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.call("delete", name)?;
        self.state().objects.remove(name);
        Ok(())
    }
}

fn not_found(name: &str) -> io::Error {
    ArchiveFailure::error(ErrorKind::NotFound, format!("404 {name}"))
}
