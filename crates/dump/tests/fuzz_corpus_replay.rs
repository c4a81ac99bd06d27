//! Runs the checks of the fuzzer on its stored inputs, and on random mutations of these inputs. The test
//! needs no fuzzer and no nightly Rust.

use std::path::Path;
use std::{env, fs};

/// Number of mutations of each stored input.
const CHANGES: u64 = 3_000;

/// Pieces of text from dump files, which the mutations insert.
const WORDS: [&[u8]; 20] = [
    b"'", b"\"", b"`", b";", b"\\", b"\n", b"\t", b"-", b"--", b"#", b"/", b"*", b"/*", b"*/", b"/*!",
    b"/*M!", b"\\N", b" ", b";\n", b"; \n",
];

/// Prints the input and its seed if the check panics.
struct Witness<'a>(&'a [u8], u64);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the check failed with seed {} and input \"{}\"", self.1, self.0.escape_ascii());
        }
    }
}

fn check(data: &[u8], seed: u64) {
    let _witness = Witness(data, seed);
    tailwater_dump::fuzzing::check(data);
}

/// Returns the next random number (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn below(state: &mut u64, end: usize) -> usize {
    (next(state) % end.max(1) as u64) as usize
}

fn changed(kept: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut data = kept.to_vec();
    for _ in 0..1 + below(&mut state, 4) {
        let at = below(&mut state, data.len());
        match below(&mut state, 5) {
            0 => data[at] ^= 1 << below(&mut state, 8),
            1 if data.len() > 3 => drop(data.remove(at)),
            2 => data.insert(at, next(&mut state) as u8),
            _ => {
                let word = WORDS[below(&mut state, WORDS.len())];
                data.splice(at..at, word.iter().copied());
            }
        }
    }
    data
}

#[test]
fn stored_inputs_and_their_mutations_pass_all_checks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dump_files");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "there are too few stored inputs: {paths:?}");
    check(b"", 0);
    let changes = if env::var_os("TAILWATER_LONG").is_some() { 100 * CHANGES } else { CHANGES };
    for path in paths {
        let kept = fs::read(&path).unwrap();
        check(&kept, 0);
        for seed in 1..=changes {
            check(&changed(&kept, seed), seed);
        }
    }
}
