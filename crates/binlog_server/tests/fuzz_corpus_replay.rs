//! Replays the stored fuzzing inputs and mutations of them. The mutations come from a fixed seed, so neither
//! a fuzzer nor nightly Rust is needed.

use std::fs;
use std::path::{Path, PathBuf};

use tailwater_binlog_server::fuzzing::{ServerFuzzCheck, TARGETS};

/// The number of mutations per target, for all its stored inputs together.
const CHANGED_PER_TARGET: usize = 4_000;

/// The maximum size in bytes of the stored inputs of all targets.
const CORPUS_BYTES_MAX: usize = 256 << 10;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The stored inputs of a target, in a fixed order.
fn kept_inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = fuzz_folder().join("corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Prints the target, the input and the seed if the check of this input panics.
struct Witness<'a>(&'a str, &'a [u8], u64);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "failing check: target {}, seed {}, input \"{}\"",
                self.0,
                self.2,
                self.1.escape_ascii()
            );
        }
    }
}

fn run(target: &str, check: ServerFuzzCheck, data: &[u8], seed: u64) {
    let _witness = Witness(target, data, seed);
    check(data);
}

/// The next random number, from SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A random number below `end`, which must not be 0.
fn below(end: usize, state: &mut u64) -> usize {
    (next(state) % end as u64) as usize
}

/// Makes one to three small changes to `data`. Some of them copy parts of `other`, another stored input.
fn change(data: &mut Vec<u8>, other: &[u8], state: &mut u64) {
    const TELLING: &[u8] = b"\0\x01\x7f\x80\xff'\"`@(),.;%_\\-/*!=0 ";
    for _ in 0..1 + below(3, state) {
        let at = below(data.len() + 1, state);
        let length = below(12, state).min(data.len() - at);
        match below(6, state) {
            0 if at < data.len() => data[at] ^= 1 << below(8, state),
            1 if at < data.len() => data[at] = TELLING[below(TELLING.len(), state)],
            2 => drop(data.drain(at..at + length)),
            3 => {
                let copy = data[at..at + length].to_vec();
                data.splice(at..at, copy);
            }
            4 if !other.is_empty() => {
                let from = below(other.len(), state);
                let to = (from + 1 + below(32, state)).min(other.len());
                data.splice(at..at + length, other[from..to].iter().copied());
            }
            _ => data.insert(at, TELLING[below(TELLING.len(), state)]),
        }
    }
}

#[test]
fn every_target_has_a_fuzz_target_and_a_corpus() {
    let mut bytes = 0;
    for (target, _) in TARGETS {
        let source = fuzz_folder().join("fuzz_targets").join(target).with_extension("rs");
        let source = fs::read_to_string(&source).unwrap();
        assert!(source.contains(&format!("check(\"{target}\"")), "{target}.rs calls another target's check");
        let inputs = kept_inputs(target);
        assert!(inputs.len() >= 50, "only {} inputs are stored for {target}", inputs.len());
        bytes += inputs.iter().map(Vec::len).sum::<usize>();
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "the stored inputs have {bytes} bytes in total: minimise them");
}

#[test]
fn stored_and_mutated_inputs_pass_all_checks() {
    for (target, check) in TARGETS {
        run(target, *check, b"", 0);
        let inputs = kept_inputs(target);
        inputs.iter().for_each(|data| run(target, *check, data, 0));
        for seed in 1..=CHANGED_PER_TARGET as u64 {
            let mut state = seed;
            let mut data = inputs[seed as usize % inputs.len()].clone();
            let other = &inputs[below(inputs.len(), &mut state)];
            change(&mut data, other, &mut state);
            run(target, *check, &data, seed);
        }
    }
}
