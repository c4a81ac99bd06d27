//! Tests of the `wire` crate with files of real servers and with the fuzzing corpus.

mod binlog_file_parsing;
mod documented_error_codes;
mod fuzz_corpus_replay;
mod printed_rows_comparison;
