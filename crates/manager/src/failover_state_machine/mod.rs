//! The state machine that failover, switchover and recovery share. Pure: it takes outcomes and returns
//! actions; the driver executes the actions.
//!
//! A failover or switchover is a table of phases. Each phase orders its actions, in parallel or one after the
//! other. The next phase begins when all of them are answered. The lease is checked before each phase and
//! before each further action; parallel actions share a check. Without the lease no action is executed, not
//! even an undo action; the audit record lists what is left to undo.
//!
//! Before a server may have become primary, everything is undone if a rule refuses, an action fails or the
//! deadline passes. Nothing is undone while an action of the phase is still in flight. Once a server is
//! primary, the failover or switchover only continues, and lists the actions that failed.
//!
//! - [`next_actions`]: the state machine.
//! - [`phase_rules`]: what a failover, a switchover or a recovery supplies: its phases, its actions, and its
//!   rules.
//! - [`failover_state`]: the state that every failover or switchover has, and its audit record.
//! - [`undo_actions`]: how to undo the actions that the failover or switchover has executed.

pub mod failover_state;
pub mod next_actions;
pub mod phase_rules;
pub mod undo_actions;

pub use failover_state::RunState;
pub use next_actions::PhaseMachine;
pub use phase_rules::RunProcedure;
pub(crate) use phase_rules::{Applied, Decision, NextStep, PhaseRule, UndoRule};
pub use undo_actions::UndoLog;
