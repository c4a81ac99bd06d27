//! Settings from the environment and from `--set`, and the exit code of a daemon with a wrong configuration.

use anyhow::{Result, ensure};

use crate::shell_session::Shell;

const FILE: &str = "[log]\ndirectory = \"log\"\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = 1\nserver_id = 4201\n\
                    [[serve]]\nsource = \"orders\"\nlisten = \"127.0.0.1:3307\"\n[[serve.user]]\nname = \"repl\"\npassword = \"p4711\"\n";

#[test]
fn settings_in_force_name_their_source() -> Result<()> {
    let mut shell = Shell::new()?;
    shell.write("tailwater.toml", FILE)?;
    shell.set("TAILWATER_SOURCE_ORDERS_HEARTBEAT_MS", "300".into());
    let words = "config show -c tailwater.toml --set log.directory=elsewhere";
    shell.run(words)?.exits(0).stdout_lacks(&["4711"]).says(&[
        "directory = \"elsewhere\"  # --set",
        "host = \"127.0.0.1\"  # file",
        "heartbeat_ms = 300  # environment: TAILWATER_SOURCE_ORDERS_HEARTBEAT_MS",
        "semi_sync = true  # default",
        "password = \"***\"  # file",
    ]);
    let sections = shell.run(&format!("{words} --output json"))?.exits(0).json()?;
    let log = &sections[0];
    ensure!(log["section"] == "[log]", "the first section is not [log]: {log:#}");
    let directory = &log["settings"][0];
    ensure!(
        directory["name"] == "log.directory" && directory["value"] == "elsewhere",
        "the value of --set is not shown for log.directory: {directory:#}"
    );
    ensure!(
        directory["variable"] == "TAILWATER_LOG_DIRECTORY",
        "the environment variable of log.directory is wrong: {directory:#}"
    );
    ensure!(
        directory["origin"]["from"] == "flag",
        "--set is not shown as the origin of log.directory: {directory:#}"
    );
    // Every command obeys `--set`. So `status` looks for a daemon in the folder `elsewhere`, and finds none.
    shell.run("status -c tailwater.toml --set log.directory=elsewhere")?.exits(1).stderr_has(&["elsewhere"]);
    shell.set("TAILWATER_LOG_DIRECTROY", "x".into());
    let ran = shell.run("config check -c tailwater.toml")?.exits(1);
    ran.stderr_has(&["TW-CFG-0004", "did you mean TAILWATER_LOG_DIRECTORY?"]);
    Ok(())
}

#[test]
fn a_daemon_with_a_wrong_configuration_has_its_own_exit_code() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("tailwater.toml", FILE)?;
    shell.write("unknown.toml", &FILE.replace("host", "hots"))?;
    shell.write("no_password.toml", &FILE.replace("password = \"p4711\"", "password_file = \"absent\""))?;
    for (words, code) in [
        ("run -c absent.toml", "TW-CFG-0001"),
        ("run -c unknown.toml", "TW-CFG-0002"),
        ("run -c no_password.toml", "TW-CFG-0010"),
        ("run -c tailwater.toml --set source.orders.server_id=0", "TW-CFG-0003"),
        ("run -c tailwater.toml --set source.orders.serverid=7", "TW-CFG-0004"),
    ] {
        shell.run(words)?.exits(78).stderr_has(&[code, "does not start with this configuration"]);
    }
    // The exit code is 1 if the log folder cannot be created, because its disk may not be mounted yet. With
    // that exit code, the service manager starts the daemon again.
    shell.write("file", "")?;
    shell.run("run -c tailwater.toml --set log.directory=file/log")?.exits(1).stderr_has(&["TW-LOG-"]);
    Ok(())
}
