//! Errors at a given call.

use rustix::io::Errno;

/// An operation that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOperation {
    /// Reading a file.
    Read,
    /// Writing or preallocating a file.
    Write,
    /// Syncing a file or folder.
    Sync,
}

/// An error that is injected at the n-th call of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InjectedError {
    /// The operation.
    pub operation: DiskOperation,
    /// The call that fails, counted from 1 when the error is set.
    pub call: u64,
    /// Whether all later calls fail too.
    pub repeats: bool,
    /// The error, such as `EIO` or `ENOSPC`.
    pub error: Errno,
}

/// The errors to inject, with the number of calls of each operation so far.
#[derive(Debug, Default)]
pub(crate) struct ErrorSchedule {
    errors: Vec<(InjectedError, u64)>,
}

impl ErrorSchedule {
    pub(crate) fn set(&mut self, errors: &[InjectedError]) {
        self.errors = errors.iter().map(|error| (*error, 0)).collect();
    }

    /// Counts a call. Returns its error if it must fail.
    pub(crate) fn check(&mut self, operation: DiskOperation) -> Result<(), Errno> {
        let mut result = Ok(());
        for (error, calls) in self.errors.iter_mut().filter(|(error, _)| error.operation == operation) {
            *calls += 1;
            if *calls == error.call || (error.repeats && *calls > error.call) {
                result = Err(error.error);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_given_calls_fail() {
        let mut schedule = ErrorSchedule::default();
        let full =
            InjectedError { operation: DiskOperation::Write, call: 2, repeats: false, error: Errno::NOSPC };
        let broken =
            InjectedError { operation: DiskOperation::Sync, call: 1, repeats: true, error: Errno::IO };
        schedule.set(&[full, broken]);
        let writes: Vec<_> = (0..3).map(|_| schedule.check(DiskOperation::Write)).collect();
        assert_eq!(writes, [Ok(()), Err(Errno::NOSPC), Ok(())]);
        let syncs: Vec<_> = (0..2).map(|_| schedule.check(DiskOperation::Sync)).collect();
        assert_eq!(syncs, [Err(Errno::IO), Err(Errno::IO)]);
        assert_eq!(schedule.check(DiskOperation::Read), Ok(()));
        schedule.set(&[]);
        assert_eq!(schedule.check(DiskOperation::Sync), Ok(()));
    }
}
