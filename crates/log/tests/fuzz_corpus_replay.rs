//! Replays the stored fuzzing inputs, and mutations of them from fixed seeds, without a fuzzer or nightly
//! Rust.

use std::fs;
use std::path::Path;

/// The number of mutations per stored input.
const CHANGES: u64 = 2_000;

/// Prints the input if the check panics, so that the failure can be replayed.
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
    tailwater_log::fuzzing::check(data);
}

/// Returns the next random number (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[test]
fn stored_and_mutated_inputs_pass_the_check() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/seekable_zstd");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 4, "too few stored inputs: {paths:?}");
    check(b"", 0);
    for path in paths {
        let kept = fs::read(&path).unwrap();
        check(&kept, 0);
        for seed in 1..=CHANGES {
            let mut state = seed;
            let mut data = kept.clone();
            for _ in 0..1 + next(&mut state) % 3 {
                // Make most changes near the end of the input, where the seek table is.
                let reach = if next(&mut state).is_multiple_of(4) { data.len() } else { data.len().min(40) };
                let at = data.len() - 1 - (next(&mut state) % reach as u64) as usize;
                match next(&mut state) % 4 {
                    0 => data[at] ^= 1 << (next(&mut state) % 8),
                    1 => data[at] = [0, 1, 0x7f, 0x80, 0xff][(next(&mut state) % 5) as usize],
                    2 => drop(data.remove(at)),
                    _ => data.insert(at, next(&mut state) as u8),
                }
                if data.is_empty() {
                    break;
                }
            }
            check(&data, seed);
        }
    }
}
