//! A model of a replica with its two threads and its relay log. The test drains the model from any state.

use proptest::prelude::*;
use tailwater_manager::actions::relay_log_drain::{DrainState, DrainStep, next};
use tailwater_topology::server_state::{IoState, ReplicaChannel, ThreadError};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

/// The state of the modelled replica. The model behaves as the documentation of MySQL and MariaDB says, and
/// as the servers do.
#[derive(Debug, Clone)]
struct Replica {
    flavour: Flavour,
    io: IoState,
    applies: bool,
    delayed: bool,
    /// Whether the applier stops with an error whenever it is started.
    is_broken: bool,
    uses_gtids: bool,
    received: u64,
    executed: u64,
    /// Number of transactions that still arrive while the replica receives, one in each step.
    coming: u64,
    /// Whether the relay log was dropped before it was executed.
    lost: bool,
}

impl Replica {
    /// MariaDB with GTIDs drops the relay logs when a thread starts while both threads are stopped.
    fn before_start(&mut self) {
        let is_stopped = self.io == IoState::Stopped && !self.applies;
        if is_stopped && self.uses_gtids && self.flavour == Flavour::MariaDb {
            self.drop_relay_log();
        }
    }

    fn drop_relay_log(&mut self) {
        self.lost |= self.received > self.executed;
    }

    fn start_applier(&mut self) {
        self.before_start();
        self.applies = !self.is_broken;
    }

    fn does(&mut self, step: DrainStep) {
        match step {
            DrainStep::StartApplier => self.start_applier(),
            DrainStep::LiftDelay => {
                self.applies = false;
                if self.io == IoState::Stopped || self.flavour == Flavour::MariaDb {
                    self.drop_relay_log();
                }
                self.delayed = false;
                self.start_applier();
            }
            DrainStep::ResumeAtPosition => {
                (self.io, self.applies, self.delayed, self.uses_gtids) =
                    (IoState::Stopped, false, false, false);
                self.start_applier();
            }
            DrainStep::StopReceiving => self.io = IoState::Stopped,
            DrainStep::Wait | DrainStep::Drained | DrainStep::Failed => {}
        }
        if self.io != IoState::Stopped && self.coming > 0 {
            self.coming -= 1;
            self.received += 1;
        }
        if self.applies && !self.delayed && self.executed < self.received {
            self.executed += 1;
        }
    }

    fn set(&self, number: u64) -> GtidSet {
        let text = match (self.flavour, number) {
            (_, 0) => String::new(),
            (Flavour::MySql, number) => format!("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-{number}"),
            (Flavour::MariaDb, number) => format!("0-1-{number}"),
        };
        GtidSet::parse(self.flavour, &text).unwrap()
    }

    fn channel(&self) -> ReplicaChannel {
        let error = ThreadError { number: 1062, message: "duplicate".into() };
        ReplicaChannel {
            name: String::new(),
            source_host: "db1".into(),
            source_port: 3306,
            source_server_id: 1,
            source_uuid: None,
            io: self.io,
            io_error: None,
            sql_running: self.applies,
            sql_error: self.is_broken.then_some(error),
            lag_seconds: None,
            delay_seconds: if self.delayed { 3600 } else { 0 },
            uses_gtids: self.uses_gtids,
            received: self.set(self.received),
            received_position: (String::new(), 0),
            executed_position: (String::new(), 0),
        }
    }
}

fn replica() -> impl Strategy<Value = Replica> {
    let flavour = prop_oneof![Just(Flavour::MySql), Just(Flavour::MariaDb)];
    let io = prop_oneof![Just(IoState::Running), Just(IoState::Connecting), Just(IoState::Stopped)];
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2));
    (flavour, io, flags, 0..5u64, 0..5u64, 0..4u64).prop_map(
        |(flavour, io, flags, executed, more, coming)| {
            let (applies, delayed, is_broken) = flags;
            Replica {
                flavour,
                io,
                applies: applies && !is_broken,
                delayed,
                is_broken,
                uses_gtids: true,
                received: executed + more,
                executed,
                coming,
                lost: false,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_drain_loses_nothing_and_ends(mut replica in replica()) {
        let initial = replica.clone();
        let mut starts = 0;
        for _ in 0..50 {
            let (channel, received) = (replica.channel(), replica.set(replica.received));
            let executed = replica.set(replica.executed);
            let view = DrainState {
                flavour: replica.flavour, channel: &channel, received: &received, executed: &executed, starts,
            };
            let step = next(view);
            match step {
                DrainStep::Drained => {
                    prop_assert!(replica.io == IoState::Stopped && replica.executed == replica.received);
                    return Ok(());
                }
                DrainStep::Failed => {
                    prop_assert!(
                        replica.is_broken,
                        "the replica must be broken after this initial state: {initial:?}"
                    );
                    return Ok(());
                }
                DrainStep::StartApplier | DrainStep::LiftDelay | DrainStep::ResumeAtPosition => starts += 1,
                DrainStep::StopReceiving | DrainStep::Wait => {}
            }
            replica.does(step);
            prop_assert!(!replica.lost, "the step {step:?} lost transactions that {initial:?} had received");
        }
        prop_assert!(false, "the drain does not end: {initial:?}, now {replica:?}");
    }
}
