//! Replays the stored fuzzing inputs and mutations of them. The mutations come from a fixed seed, so neither
//! a fuzzer nor nightly Rust is needed.

use std::fs;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The total number of mutations of all stored inputs.
const CHANGED: u64 = 1_000;

/// The maximum size of all stored inputs together, in bytes.
const CORPUS_BYTES_MAX: usize = 128 << 10;

/// Prints the input and the seed if the check of this input panics.
struct Witness<'a>(&'a [u8], u64);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing input with seed {}: \"{}\"", self.1, self.0.escape_ascii());
        }
    }
}

fn check(data: &[u8], seed: u64) {
    let _witness = Witness(data, seed);
    tailwater_session::server::login_fuzzing::check(data);
}

/// Makes one to three small changes to `data`. One kind of change appends the end of `other`, another stored
/// input.
fn change(data: &mut Vec<u8>, other: &[u8], random: &mut SmallRng) {
    const TELLING: [u8; 8] = [0, 1, 2, 4, 20, 32, 0x7f, 0xff];
    for _ in 0..random.random_range(1..=3) {
        let at = random.random_range(0..=data.len());
        match random.random_range(0..6) {
            0 if at < data.len() => data[at] ^= 1 << random.random_range(0..8),
            1 if at < data.len() => data[at] = TELLING[random.random_range(0..TELLING.len())],
            2 if at < data.len() => drop(data.remove(at)),
            3 => data.truncate(at),
            4 => {
                data.truncate(at);
                data.extend_from_slice(other.get(at..).unwrap_or_default());
            }
            _ => data.insert(at, random.random()),
        }
    }
}

#[test]
fn stored_and_mutated_login_inputs_pass_all_checks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/login_packets");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let inputs: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(inputs.len() >= 20, "only {} inputs are stored", inputs.len());
    let bytes: usize = inputs.iter().map(Vec::len).sum();
    assert!(bytes <= CORPUS_BYTES_MAX, "the stored inputs have {bytes} bytes in total: minimise them");
    check(b"", 0);
    inputs.iter().for_each(|data| check(data, 0));
    for seed in 1..=CHANGED {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut data = inputs[seed as usize % inputs.len()].clone();
        let other = &inputs[random.random_range(0..inputs.len())];
        change(&mut data, other, &mut random);
        check(&data, seed);
    }
}
