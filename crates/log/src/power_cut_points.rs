//! Power cuts at each change that the log makes on its disk: writes, preallocations, syncs, new, renamed and
//! removed files. After each cut the log opens, and has every durable transaction bit for bit.
//!
//! `TAILWATER_SEED=n` runs one workload; `TAILWATER_LONG=1` runs more workloads and more cuts of each point.

use tailwater_lossy_disk::PowerCut;

use crate::crash_simulation::{World, for_seeds, open};
use crate::storage::power_cut_disk::PowerCutDirectory;

fn is_long() -> bool {
    std::env::var_os("TAILWATER_LONG").is_some()
}

#[test]
fn a_power_cut_before_each_change_loses_no_durable_transaction() {
    let (workloads, cuts_per_point) = if is_long() { (300, 6) } else { (30, 2) };
    let cuts = std::sync::atomic::AtomicU64::new(0);
    for_seeds(workloads, |seed| {
        let mut world = World::new(seed);
        let disk = PowerCutDirectory::empty();
        let mut writer = open(&disk).unwrap();
        for _ in 0..20 + world.random_below(40) {
            world.step(&mut writer).unwrap();
            disk.set_durable(world.durable());
        }
        let points = disk.points();
        drop(writer);
        for (number, point) in points.iter().enumerate() {
            for round in 0..cuts_per_point {
                let cut = PowerCut::from_seed((seed << 32) | ((number as u64) << 8) | round);
                let check = || {
                    let mut world = world.after_power_cut(point.durable);
                    let mut writer = world.check_after_crash(&point.cut(&cut));
                    // The log accepts what the source sends next.
                    world.step(&mut writer).unwrap();
                };
                if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
                    eprintln!("failed with {cut:?} before change {number} of {}", points.len());
                    std::panic::resume_unwind(panic);
                }
                cuts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    eprintln!("{} power cuts", cuts.into_inner());
}

/// The log is opened after a power cut, and the power is cut again at each change that the repair makes.
#[test]
fn a_power_cut_during_recovery_loses_no_durable_transaction() {
    let workloads = if is_long() { 500 } else { 40 };
    for_seeds(workloads, |seed| {
        let mut world = World::new(seed);
        let disk = PowerCutDirectory::empty();
        let mut writer = open(&disk).unwrap();
        for _ in 0..10 + world.random_below(30) {
            world.step(&mut writer).unwrap();
            disk.set_durable(world.durable());
        }
        let points = disk.points();
        drop(writer);
        let point = &points[world.random_below(points.len() as u64) as usize];
        let repaired = point.cut(&PowerCut::from_seed(seed));
        repaired.set_durable(point.durable);
        open(&repaired).unwrap();
        for (number, point) in repaired.points().iter().enumerate() {
            let cut = PowerCut::from_seed((seed << 8) | number as u64);
            world.after_power_cut(point.durable).check_after_crash(&point.cut(&cut));
        }
    });
}
