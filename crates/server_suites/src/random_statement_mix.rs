//! Mixes of random statements: parts of several test files, with changes of settings between them. This
//! module does no I/O.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use tailwater_sandbox::ServerKind;

use super::random_settings::FileSettings;

/// Number of test files in a mix.
pub const FILES: usize = 6;
/// Maximum number of statements from each file.
const STATEMENTS_MAX: usize = 40;

/// Mixes statements from the beginning of several files. The statements of one file keep their order.
pub fn mix(kind: ServerKind, seed: u64, files: &[Vec<String>]) -> Vec<String> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut turns = Vec::new();
    for (number, statements) in files.iter().enumerate() {
        turns.extend(std::iter::repeat_n(number, statements.len().min(STATEMENTS_MAX)));
    }
    // Each part has a few statements, so that most statements of a file follow each other.
    let mut pieces: Vec<&[usize]> = turns.chunks(5).collect();
    pieces.shuffle(&mut random);
    let mut next = vec![0; files.len()];
    let mut mixed = Vec::new();
    for piece in pieces {
        if random.random_bool(0.3) {
            let settings = FileSettings::choose(kind, random.random::<u64>() | 1, "mix");
            if let Some((name, value)) = settings.globals.choose(&mut random) {
                let name = if *name == "character_set_server" { "character_set_client" } else { name };
                mixed.push(format!("SET SESSION {name}={value}"));
            }
        }
        for &file in piece {
            mixed.push(files[file][next[file]].clone());
            next[file] += 1;
        }
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_keeps_the_order_of_each_file_and_depends_on_its_seed() {
        let files: Vec<Vec<String>> =
            (0..3).map(|file| (0..12).map(|number| format!("{file}-{number:02}")).collect()).collect();
        let kind = ServerKind::Mariadb1011;
        let mixed = mix(kind, 7, &files);
        assert_eq!(mixed, mix(kind, 7, &files));
        assert!((8..20).any(|seed| mix(kind, seed, &files) != mixed));
        for file in &files {
            let of_file: Vec<_> = mixed.iter().filter(|statement| file.contains(statement)).collect();
            assert_eq!(of_file, file.iter().collect::<Vec<_>>());
        }
    }
}
