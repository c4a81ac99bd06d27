//! Whether keys are coarser than the servers' collations.
