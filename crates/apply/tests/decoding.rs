//! Binlog files of real servers, decoded.
