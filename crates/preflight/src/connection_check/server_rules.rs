//! Derives the result lines about a server from its facts.

use tailwater_capture::semi_sync_monitor::ALARM_TIMEOUT_MIN;
use tailwater_session::{Endpoint, VersionSupport, support_of};
use tailwater_topology::server_state::{ServerState, WaitPoint};
use tailwater_wire::Flavour;

use super::check_report::{CheckLine, CheckLines};
use super::server_facts::{ServerAnswer, ServerFacts};
use super::server_roles::{ServerRole, UsedServer};

/// The maximum difference between the clocks of a server and of this machine, in milliseconds. A greater
/// difference causes a warning.
const CLOCK_DIFFERENCE_MS_MAX: i64 = 1_000;

/// Returns the result lines for a server. If the server does not answer, the only line reports that error.
pub(super) fn judge(server: &UsedServer, answer: &ServerAnswer) -> Vec<CheckLine> {
    let mut lines = CheckLines::about(&server.object);
    match answer {
        Err(error) => lines.problem(
            "connection",
            format!("{} cannot be used as user {:?}: {error}", server.connect.endpoint, server.connect.user),
            "correct the address, the account or its password; check that the server runs and that no firewall blocks the connection",
        ),
        Ok(facts) => {
            let endpoint = &server.connect.endpoint;
            let what = format!("{endpoint} answers: {} {}", facts.flavour, facts.version_text);
            lines.ok("connection", format!("{what}, as user {}", server.connect.user));
            version(&mut lines, facts);
            encryption(&mut lines, server, facts);
            privileges(&mut lines, server, facts);
            clock(&mut lines, facts);
            state(&mut lines, server, facts);
        }
    }
    lines.lines
}

fn version(lines: &mut CheckLines, facts: &ServerFacts) {
    let remedy = "see the supported versions in the documentation (reference/versions.md)";
    match support_of(facts.flavour, facts.version) {
        VersionSupport::Supported => lines.ok("version", "the version is supported"),
        VersionSupport::Older => {
            lines.warning("version", "the server is older than the supported versions", remedy)
        }
        VersionSupport::Newer => {
            lines.warning("version", "the server is newer than the supported versions", remedy)
        }
        VersionSupport::TooOld => lines.problem("version", "the server is too old for Tailwater", remedy),
    }
}

fn encryption(lines: &mut CheckLines, server: &UsedServer, facts: &ServerFacts) {
    let is_local = match &server.connect.endpoint {
        Endpoint::Unix { .. } => true,
        Endpoint::Tcp { host, .. } => {
            host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
    };
    match (facts.is_encrypted, is_local) {
        (true, _) => lines.ok("encryption", "the connection is encrypted"),
        (false, true) => lines.ok("encryption", "the connection stays on this machine"),
        (false, false) => lines.warning(
            "encryption",
            "the connection is not encrypted: the network can read the binlog and the rows",
            "configure certificates on the server, and set tls = \"required\" or, with tls_ca, \"verify-full\"",
        ),
    }
}

fn privileges(lines: &mut CheckLines, server: &UsedServer, facts: &ServerFacts) {
    for missing in &facts.missing_privileges {
        lines.problem(
            "privileges",
            missing.clone(),
            "run the GRANT statement of the message on the server, as an administrator",
        );
    }
    if server.role == ServerRole::Target && !facts.may_write.to_schema_tailwater {
        let user = &server.connect.user;
        lines.problem(
            "privileges",
            format!("user {user} may not write to schema `tailwater`, which stores the progress of channels"),
            format!("GRANT ALL ON tailwater.* TO the account of {user}"),
        );
    } else if facts.missing_privileges.is_empty() {
        lines.ok("privileges", "the account has the privileges that it needs");
    }
    if server.role == ServerRole::Target && !facts.may_write.everywhere {
        lines.warning(
            "privileges on data",
            "the account may not write to all databases; the check does not know to which databases the channel writes",
            "grant ALL on each database to which the channel writes; if a channel lacks a privilege, it stops and prints the GRANT statement",
        );
    }
}

fn clock(lines: &mut CheckLines, facts: &ServerFacts) {
    let remedy = "run a time service (chrony, systemd-timesyncd) on both machines";
    match facts.clock_ahead_ms {
        None => lines.warning(
            "clock",
            "the server's clock could not be read",
            "see the other lines about this server",
        ),
        Some(ahead) if ahead.abs() > CLOCK_DIFFERENCE_MS_MAX => {
            let seconds = ahead.abs() as f64 / 1e3;
            let how = if ahead > 0 { "ahead of" } else { "behind" };
            let text = format!("the server's clock is {seconds:.1} s {how} the clock of this machine");
            lines.warning("clock", text, remedy);
        }
        Some(ahead) => lines.ok(
            "clock",
            format!("the server's clock differs by {} ms from the clock of this machine", ahead.abs()),
        ),
    }
}

fn state(lines: &mut CheckLines, server: &UsedServer, facts: &ServerFacts) {
    let state = match &facts.state {
        Ok(state) => state,
        Err(error) => {
            let remedy = "run the GRANT statement that `tailwater grants` prints for `tailwater topology`";
            lines.warning("state", format!("the state of the server could not be read: {error}"), remedy);
            return;
        }
    };
    let needs_all_queries = server.purposes.contains(&tailwater_session::AccountPurpose::Probe);
    for unanswered in state.unanswered.iter().filter(|_| needs_all_queries) {
        lines.warning("state", unanswered.to_string(), format!("GRANT {}", unanswered.privilege));
    }
    if server.role.is_captured() {
        binlog(lines, state, facts);
        durability(lines, state);
    }
    match server.role {
        ServerRole::Source { semi_sync: true } => semi_sync_of_source(lines, state, facts.flavour),
        ServerRole::Member { semi_sync: true } => {
            if let Some(reason) = &state.semi_sync_unavailable {
                let remedy = "load the plugin as an administrator: INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'";
                lines.warning("semi-sync", format!("the server cannot become a semi-sync primary: {reason}"), remedy);
            }
        }
        ServerRole::Target if !state.is_writable() => lines.ok(
            "read_only",
            "read_only is on: only accounts with the privilege to ignore it, such as the channel's, can write",
        ),
        _ => {}
    }
}

fn binlog(lines: &mut CheckLines, state: &ServerState, facts: &ServerFacts) {
    let variable = |name: &str| facts.variables.get(name).map(String::as_str).unwrap_or_default();
    if !state.log_bin {
        let remedy = "set log_bin in the server's option file, and restart the server";
        lines.problem("binlog", "the server writes no binlog, so Tailwater can capture nothing", remedy);
        return;
    }
    match variable("binlog_format").to_ascii_uppercase().as_str() {
        "ROW" | "" => lines.ok("binlog format", "the server logs rows"),
        format => lines.warning(
            "binlog format",
            format!("binlog_format = {format}: channels cannot filter logged statements, and cannot run them in parallel"),
            "SET GLOBAL binlog_format = ROW, and set it in the option file; existing sessions keep the old format",
        ),
    }
    match variable("binlog_row_image").to_ascii_uppercase().as_str() {
        "FULL" | "" => lines.ok("row images", "the server logs whole rows"),
        image => lines.warning(
            "row images",
            format!(
                "binlog_row_image = {image}: if a former primary has transactions that no other server has, they cannot be undone \
                 from the log"
            ),
            "SET GLOBAL binlog_row_image = FULL, and set it in the option file",
        ),
    }
    match (facts.flavour, variable("gtid_mode").to_ascii_uppercase().as_str()) {
        (Flavour::MySql, mode @ ("OFF" | "OFF_PERMISSIVE" | "ON_PERMISSIVE")) => lines.warning(
            "GTIDs",
            format!("gtid_mode = {mode}: a capture cannot resume after the server has purged the binlog file that it was reading"),
            "enable GTIDs: set enforce_gtid_consistency = ON, then change gtid_mode in steps to ON",
        ),
        (Flavour::MySql, _) => lines.ok("GTIDs", "gtid_mode is ON"),
        (Flavour::MariaDb, _) => lines.ok("GTIDs", "MariaDB always logs GTIDs"),
    }
}

fn durability(lines: &mut CheckLines, state: &ServerState) {
    if state.durability.is_crash_safe() {
        lines.ok("durability", "the server loses no commit if its machine crashes");
    } else {
        let tailwater_topology::server_state::DurabilitySettings { flush_log_at_commit, sync_binlog } =
            state.durability;
        lines.warning(
            "durability",
            format!(
                "innodb_flush_log_at_trx_commit = {flush_log_at_commit}, sync_binlog = {sync_binlog}: after a crash, the server may \
                 lack commits that are in Tailwater's log"
            ),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, sync_binlog = 1; and set both in the option file",
        );
    }
}

fn semi_sync_of_source(lines: &mut CheckLines, state: &ServerState, flavour: Flavour) {
    let prefix = match flavour {
        Flavour::MySql => "rpl_semi_sync_source",
        Flavour::MariaDb => "rpl_semi_sync_master",
    };
    let set = match flavour {
        Flavour::MySql => "SET PERSIST",
        Flavour::MariaDb => "SET GLOBAL",
    };
    let Some(source) = &state.semi_sync_source else {
        let remedy = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; or set semi_sync = false for the source";
        lines.problem(
            "semi-sync",
            "the semi-sync plugin is not loaded, so commits cannot wait for the log",
            remedy,
        );
        return;
    };
    let findings = lines.lines.len();
    if !source.enabled {
        lines.warning(
            "semi-sync",
            "semi-sync is disabled: the capture does not start before it is enabled, and until then no commit waits for the log",
            format!("start the daemon, then run {set} {prefix}_enabled = ON (how-to/capture.md)"),
        );
    }
    if source.wait_point == WaitPoint::AfterCommit {
        lines.problem(
            "semi-sync",
            "commits wait for the log after the storage engine has committed: other clients can read a commit that may still be lost",
            format!("{set} {prefix}_wait_point = AFTER_SYNC"),
        );
    }
    if u128::from(source.timeout_ms) < ALARM_TIMEOUT_MIN.as_millis() {
        lines.warning(
            "semi-sync",
            format!(
                "commits wait at most {} ms, and then continue although they are not in the log",
                source.timeout_ms
            ),
            format!("{set} {prefix}_timeout = 2000000000"),
        );
    }
    if !source.wait_no_replica {
        let ending = if flavour == Flavour::MySql { "wait_no_replica" } else { "wait_no_slave" };
        lines.warning(
            "semi-sync",
            format!("{ending} is OFF: while the daemon is down, commits do not wait"),
            format!("{set} {prefix}_{ending} = ON"),
        );
    }
    if source.enabled && !source.survives_restart {
        lines.warning(
            "semi-sync",
            "the semi-sync settings may be lost at a restart of the server",
            match flavour {
                Flavour::MySql => "set them with SET PERSIST or in the option file",
                Flavour::MariaDb => "set them in the server's option file",
            },
        );
    }
    if lines.lines.len() == findings {
        lines.ok("semi-sync", "commits wait for the log before they are acknowledged");
    }
}
