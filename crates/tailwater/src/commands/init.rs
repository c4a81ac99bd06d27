//! `tailwater init`: prepares a primary for capture and writes the configuration.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use dialoguer::{Confirm, Input, Password};
use tailwater_preflight::cluster_setup::cluster_discovery::{DiscoveredCluster, account_state, discover};
use tailwater_preflight::cluster_setup::setup_execution::{self, FileOwner};
use tailwater_preflight::cluster_setup::setup_plan::{SetupPlan, SetupWishes, plan};
use tailwater_session::{ConnectOptions, Endpoint};

use super::client_connection_options::connect_options;
use super::init_daemon_start::{self, own_program};
use super::init_text::{plan_json, plan_text};
use crate::arguments::{InitArgs, Output, ServerArgs};
use crate::exit_codes::Exit;

/// The user of the Debian package.
const PACKAGE_USER: &str = "tailwater";

/// The folder of the Debian package's configuration, and the folder of its log.
const PACKAGE_FOLDER: &str = "/etc/tailwater";
const PACKAGE_LOG: &str = "/var/lib/tailwater/log";

/// Prints the plan, and carries it out after a confirmation. Returns [`Exit::Refused`] if the plan is unsafe,
/// and [`Exit::ProblemsFound`] if the check at the end finds problems.
///
/// # Errors
/// If the primary cannot be queried, or a step fails.
pub(super) async fn init(arguments: &InitArgs, output: Output) -> anyhow::Result<Exit> {
    let asks = output == Output::Text && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let admin = administrator(&arguments.server, asks)?;
    let wishes = wishes(arguments, &admin)?;
    let owner = owner(arguments.owner.as_deref())?;
    let mut existing = setup_execution::read_existing(&wishes)?;
    let cluster = discover(&admin, existing.server_id(&wishes.source_name)).await?;
    let account = (wishes.account.0.as_str(), wishes.account.1.as_str());
    let password = existing.password.clone().flatten();
    existing.account = Some(account_state(&admin, account, password.as_deref(), &wishes.purposes()).await?);
    let plan = plan(&cluster, &wishes, &existing, &mut rand::rng());
    show(&cluster, &plan, output)?;
    if !plan.refusals.is_empty() {
        for refusal in &plan.refusals {
            eprintln!("tailwater: refused, nothing was changed: {refusal}");
        }
        return Ok(Exit::Refused);
    }
    if !plan.is_done() {
        let is_confirmed =
            arguments.yes || (asks && Confirm::new().with_prompt("Do this now?").interact()?);
        if !is_confirmed {
            note(output, "nothing was changed: repeat with --yes");
            return Ok(Exit::Done);
        }
        setup_execution::execute(&plan, &admin, owner, |step| note(output, &format!("done: {step}"))).await?;
        for replica in setup_execution::wait_for_replicas(&cluster, &wishes, &admin).await? {
            note(output, &format!("the account is not on a replica yet: {replica}"));
        }
    }
    finish(arguments, &wishes, &plan, &admin, output).await
}

/// Checks the configuration. Then starts the daemon, or prints how to start it.
async fn finish(
    arguments: &InitArgs,
    wishes: &SetupWishes,
    plan: &SetupPlan,
    admin: &ConnectOptions,
    output: Output,
) -> anyhow::Result<Exit> {
    note(output, "");
    let checked = own_program()?
        .args([
            "config",
            "check",
            "--connect",
            "--output",
            if output == Output::Json { "json" } else { "text" },
        ])
        .arg("-c")
        .arg(&wishes.config)
        .status()
        .context("cannot run `tailwater config check --connect`")?;
    match checked.code() {
        Some(0) => {}
        Some(3) => return Ok(Exit::ProblemsFound),
        _ => bail!("the configuration cannot be checked; the message above has the reason"),
    }
    if !arguments.start {
        for line in next_steps(wishes, plan) {
            note(output, &line);
        }
        return Ok(Exit::Done);
    }
    init_daemon_start::start(&wishes.config, |line| note(output, &line)).await?;
    setup_execution::run_statements(&plan.after_start, admin, &mut |step| {
        note(output, &format!("done: {step}"));
    })
    .await?;
    init_daemon_start::wait_until_captured(&wishes.config, &wishes.source_name).await?;
    note(output, &format!("the daemon captures {}", admin.endpoint));
    for line in option_file_hint(plan) {
        note(output, &line);
    }
    Ok(Exit::Done)
}

/// Prints a line for people: to standard error if the results on standard output are JSON.
fn note(output: Output, line: &str) {
    match output {
        Output::Text => println!("{line}"),
        Output::Json => eprintln!("{line}"),
    }
}

fn show(cluster: &DiscoveredCluster, plan: &SetupPlan, output: Output) -> anyhow::Result<()> {
    let text = match output {
        Output::Text => plan_text(cluster, plan),
        Output::Json => format!("{}\n", plan_json(cluster, plan)),
    };
    super::write_stdout(text.as_bytes())
}

fn next_steps(wishes: &SetupWishes, plan: &SetupPlan) -> Vec<String> {
    let is_packaged = wishes.config.starts_with(PACKAGE_FOLDER);
    let start = match is_packaged {
        true => "systemctl enable --now tailwater".to_owned(),
        false => format!("tailwater run -c {}", wishes.config.display()),
    };
    let mut lines = vec![String::new(), "next:".to_owned(), format!("  start the daemon:    {start}")];
    if !plan.after_start.is_empty() {
        lines.push("  then on the primary, so that commits wait for the log:".to_owned());
        lines.extend(plan.after_start.iter().map(|statement| format!("    {};", statement.shown)));
    }
    lines.push(format!("  see how it works:    tailwater status -c {}", wishes.config.display()));
    lines.extend(option_file_hint(plan));
    lines
}

fn option_file_hint(plan: &SetupPlan) -> Vec<String> {
    let mut lines = Vec::new();
    if !plan.option_file_lines.is_empty() {
        lines
            .push("  in the primary's option file, because a restart would reset these settings:".to_owned());
        lines.extend(plan.option_file_lines.iter().map(|line| format!("    {line}")));
    }
    lines
}

/// Returns the connection options of the administrator. On a terminal, asks for the options that are not
/// given.
fn administrator(server: &ServerArgs, asks: bool) -> anyhow::Result<ConnectOptions> {
    let mut connect = connect_options(server)?;
    let is_given = server.host.is_some()
        || server.port.is_some()
        || server.socket.is_some()
        || server.defaults_file.is_some();
    if asks && !is_given {
        if let Endpoint::Tcp { host, port } = &connect.endpoint {
            let host =
                Input::new().with_prompt("Host of the primary").default(host.clone()).interact_text()?;
            let port = Input::new().with_prompt("Port").default(*port).interact_text()?;
            connect.endpoint = Endpoint::tcp(host, port);
        }
        let user = if connect.user.is_empty() { "root".to_owned() } else { connect.user.clone() };
        connect.user = Input::new().with_prompt("Administrator").default(user).interact_text()?;
    }
    if asks && connect.password.expose().is_empty() {
        let prompt = format!("Password of {} at {}", connect.user, connect.endpoint);
        let password = Password::new().with_prompt(prompt).allow_empty_password(true).interact()?;
        connect = connect.password(password);
    }
    Ok(connect)
}

fn wishes(arguments: &InitArgs, admin: &ConnectOptions) -> anyhow::Result<SetupWishes> {
    let (user, host) = arguments.account.rsplit_once('@').unwrap_or((&arguments.account, "%"));
    if user.is_empty() || host.is_empty() {
        bail!("--account {}: give USER@HOST, for example tailwater@%", arguments.account);
    }
    let name = &arguments.name;
    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(is_legal) {
        bail!(
            "--name {name:?}: a name has 1 to 64 of the characters a-z, A-Z, 0-9, `_`, `-`, `.`, and no leading dot"
        );
    }
    let log_directory = arguments.log_directory.clone().unwrap_or_else(|| {
        PathBuf::from(if arguments.config.starts_with(PACKAGE_FOLDER) { PACKAGE_LOG } else { "log" })
    });
    Ok(SetupWishes {
        source_name: name.clone(),
        config: arguments.config.clone(),
        // A relative path in the configuration file is relative to the file's folder. A relative path on the
        // command line is relative to the working directory.
        log_directory: match &arguments.log_directory {
            Some(given) => std::path::absolute(given)?,
            None => log_directory,
        },
        account: (user.to_owned(), host.to_owned()),
        semi_sync: !arguments.no_semi_sync,
        manager: arguments.manager,
        serve: arguments.serve,
        tls: admin.tls.clone(),
        overwrite: arguments.overwrite,
        reset_password: arguments.reset_password,
    })
}

fn owner(name: Option<&str>) -> anyhow::Result<Option<FileOwner>> {
    match name {
        Some(name) => {
            let owner =
                FileOwner::named(name).with_context(|| format!("--owner {name}: there is no such user"))?;
            Ok(Some(owner))
        }
        None if is_root() => Ok(FileOwner::named(PACKAGE_USER)),
        None => Ok(None),
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(Path::new("/proc/self")).is_ok_and(|process| process.uid() == 0)
}
