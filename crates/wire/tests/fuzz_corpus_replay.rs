//! Replays the fuzzing corpus, and mutations of it from fixed seeds, without a fuzzer or nightly Rust.

use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tailwater_wire::fuzzing::{FuzzCheck, TARGETS};

/// The maximum number of mutated inputs per target.
const MUTATIONS_PER_TARGET: usize = 60_000;

/// The maximum total length of the mutated inputs per target, in bytes. It keeps the time short for targets
/// with long inputs.
const MUTATED_BYTES_PER_TARGET: usize = 8 << 20;

/// The maximum number of mutations per input. It keeps the time short for a small corpus.
const MUTATIONS_PER_INPUT_MAX: usize = 3_000;

/// The maximum length of a mutated input in bytes.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// The maximum size of the corpus in the repository, in bytes.
const CORPUS_BYTES_MAX: usize = 1 << 20;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns the corpus of a target in a fixed order.
fn kept_inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = fuzz_folder().join("corpus").join(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("reading an entry of the corpus folder succeeds").path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), fs::read(&path).expect("reading a corpus input succeeds")))
        .collect()
}

/// Prints the input if a check panics, so that the failure can be replayed.
struct Witness<'a> {
    target: &'a str,
    origin: &'a Path,
    seed: Option<u64>,
    data: &'a [u8],
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { target, origin, seed, data } = self;
            eprintln!(
                "failing check: target {target}, input {}, seed {seed:?}, bytes:\n\"{}\"",
                origin.display(),
                data.escape_ascii()
            );
        }
    }
}

fn run(target: &str, check: FuzzCheck, origin: &Path, seed: Option<u64>, data: &[u8]) {
    let _witness = Witness { target, origin, seed, data };
    check(data);
}

/// Makes one to four small changes, as a fuzzer does. Some changes copy parts of `other`, another input.
fn mutate(data: &mut Vec<u8>, other: &[u8], random: &mut SmallRng) {
    const TELLING: [u8; 10] = [0, 1, 0x7f, 0x80, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff];
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..=data.len());
        let length = random.random_range(0..=8).min(data.len() - at);
        match random.random_range(0..8) {
            0 if at < data.len() => data[at] ^= 1 << random.random_range(0..8),
            1 if at < data.len() => data[at] = TELLING[random.random_range(0..TELLING.len())],
            2 if at < data.len() => data[at] = random.random(),
            3 => data.truncate(at),
            4 => drop(data.drain(at..at + length)),
            5 => {
                let copy = data[at..at + length].to_vec();
                data.splice(at..at, copy);
            }
            6 if !other.is_empty() => {
                let from = random.random_range(0..other.len());
                let to = (from + random.random_range(1..=32)).min(other.len());
                data.splice(at..at + length, other[from..to].iter().copied());
            }
            _ => data.insert(at, TELLING[random.random_range(0..TELLING.len())]),
        }
    }
    data.truncate(INPUT_BYTES_MAX);
}

#[test]
fn every_target_has_a_fuzz_target_and_a_corpus() {
    let mut bytes = 0;
    for (target, _) in TARGETS {
        let source = fuzz_folder().join("fuzz_targets").join(target).with_extension("rs");
        let source = fs::read_to_string(&source)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", source.display()));
        assert!(source.contains(&format!("check(\"{target}\"")), "{target}.rs calls another target's check");
        let inputs = kept_inputs(target);
        assert!(!inputs.is_empty(), "the corpus has no inputs for {target}");
        bytes += inputs.iter().map(|(_, data)| data.len()).sum::<usize>();
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "the corpus takes {bytes} bytes: minimise it");
}

#[test]
fn corpus_inputs_pass_the_checks() {
    for (target, check) in TARGETS {
        run(target, *check, Path::new("(empty)"), None, b"");
        for (path, data) in kept_inputs(target) {
            run(target, *check, &path, None, &data);
        }
    }
}

#[test]
fn mutated_inputs_pass_the_checks() {
    for (target, check) in TARGETS {
        let inputs = kept_inputs(target);
        let bytes: usize = inputs.iter().map(|(_, data)| data.len()).sum();
        let each = (MUTATIONS_PER_TARGET / inputs.len())
            .min(MUTATED_BYTES_PER_TARGET / bytes)
            .clamp(1, MUTATIONS_PER_INPUT_MAX);
        for (index, (path, data)) in inputs.iter().enumerate() {
            for round in 0..each {
                let seed = (index * MUTATIONS_PER_INPUT_MAX + round) as u64;
                let mut random = SmallRng::seed_from_u64(seed);
                let (_, other) = &inputs[random.random_range(0..inputs.len())];
                let mut mutated = data.clone();
                mutate(&mut mutated, other, &mut random);
                run(target, *check, path, Some(seed), &mutated);
            }
        }
    }
}
