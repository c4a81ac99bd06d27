//! Template data directories. A template is initialised once for each server version, then copied for each
//! new server.
//!
//! Initialising a data directory takes a server seconds (system tables, time zones, TLS keys). Copying it
//! takes a fraction of a second.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tailwater_wire::Flavour;

use crate::cache_folder::{Cache, FileLock};
use crate::child_process_lifetime::run_to_end;
use crate::error::{FileContext, SandboxError};
use crate::install::{Install, remove_tree};

/// Increased when the contents of a template change.
const REVISION: u32 = 1;

/// Creates `data`, which must not exist, as a copy of the template for `install`.
///
/// The superuser is `root` without a password, over 127.0.0.1 and over the socket. The template contains no
/// server UUID: each server generates its own.
pub(crate) fn copy_to(install: &Install, cache: &Cache, data: &Path) -> Result<(), SandboxError> {
    let template = ensure(install, cache)?;
    let mut copy = Command::new("cp");
    // If the file system supports reflinks, servers share disk blocks with the template.
    copy.args(["-a", "--reflink=auto", "--"]).arg(&template).arg(data);
    let output = copy
        .stdin(Stdio::null())
        .output()
        .map_err(|source| SandboxError::Spawn { program: "cp".to_owned(), source })?;
    if !output.status.success() {
        return Err(SandboxError::Client {
            program: "cp".to_owned(),
            status: output.status.to_string(),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(())
}

fn ensure(install: &Install, cache: &Cache) -> Result<PathBuf, SandboxError> {
    let folder = cache.templates();
    let name = format!("{}-{}-r{REVISION}", install.kind().name(), install.build());
    let template = folder.join(&name);
    if template.is_dir() {
        return Ok(template);
    }
    let _lock = FileLock::acquire(&folder.join(format!(".lock-{}", install.kind().name())), || {})?;
    if template.is_dir() {
        return Ok(template);
    }
    tracing::info!(server = %install.kind(), "initialising a data directory");
    let work = folder.join(format!(".new-{name}"));
    remove_tree(&work).on_path("remove", &work)?;
    fs::create_dir_all(&work).on_path("create", &work)?;
    let data = work.join("data");
    match install.kind().flavour() {
        Flavour::MySql => initialise_mysql(install, &work, &data)?,
        Flavour::MariaDb => initialise_mariadb(install, &work, &data)?,
    }
    // Two servers with the same UUID cannot replicate from each other.
    let identity = data.join("auto.cnf");
    if identity.exists() {
        fs::remove_file(&identity).on_path("remove", &identity)?;
    }
    // The template is complete or does not exist, even after a power failure: its folder is renamed to the
    // final name after everything is on disk.
    let folder_handle = fs::File::open(&work).on_path("open", &work)?;
    rustix::fs::syncfs(&folder_handle).on_path("flush", &work)?;
    fs::rename(&data, &template).on_path("rename", &template)?;
    remove_tree(&work).on_path("remove", &work)?;
    Ok(template)
}

/// Returns the options that keep a small server small. They determine the layout of files, so the template
/// and the servers must use the same options.
pub(crate) fn shape_options(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::MySql => &["--innodb-redo-log-capacity=64M", "--mysqlx=0"],
        Flavour::MariaDb => &["--innodb-log-file-size=48M"],
    }
}

const ROOT_OVER_TCP: &str = "CREATE USER IF NOT EXISTS root@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
";

fn initialise_mysql(install: &Install, work: &Path, data: &Path) -> Result<(), SandboxError> {
    let script = work.join("init.sql");
    fs::write(&script, ROOT_OVER_TCP).on_path("write", &script)?;
    let mut init_file = OsString::from("--init-file=");
    init_file.push(&script);
    initialise(install, data, work, Stdio::null(), &["--initialize-insecure".into(), init_file])
}

fn initialise_mariadb(install: &Install, work: &Path, data: &Path) -> Result<(), SandboxError> {
    let share = install.share();
    let script = work.join("bootstrap.sql");
    // The scripts run in the order of mariadb-install-db. The prefix of their file names changed in MariaDB
    // 11.
    let mut sql = b"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n".to_vec();
    let parts: [&[&str]; 6] = [
        &["mariadb_system_tables.sql", "mysql_system_tables.sql"],
        &["mariadb_performance_tables.sql", "mysql_performance_tables.sql"],
        &["mariadb_system_tables_data.sql", "mysql_system_tables_data.sql"],
        &["fill_help_tables.sql"],
        &["maria_add_gis_sp_bootstrap.sql"],
        &["mariadb_sys_schema.sql", "mysql_sys_schema.sql"],
    ];
    for names in parts {
        let path = names.iter().map(|name| share.join(name)).find(|path| path.is_file());
        let path = path.unwrap_or_else(|| share.join(names[0]));
        sql.extend_from_slice(&fs::read(&path).on_path("read", &path)?);
        sql.push(b'\n');
    }
    fs::write(&script, sql).on_path("write", &script)?;
    let database = data.join("mysql");
    fs::create_dir_all(&database).on_path("create", &database)?;
    let input = fs::File::open(&script).on_path("open", &script)?;
    let options = ["--bootstrap", "--skip-networking", "--max-allowed-packet=8M", "--net-buffer-length=16K"];
    initialise(install, data, work, input.into(), &options.map(OsString::from))
}

fn initialise(
    install: &Install,
    data: &Path,
    work: &Path,
    input: Stdio,
    options: &[OsString],
) -> Result<(), SandboxError> {
    let mut program = install.program(install.kind().daemon())?;
    program.arg("--no-defaults");
    for option in install.layout_options().iter().chain(options) {
        program.arg(option);
    }
    for option in shape_options(install.kind().flavour()) {
        program.arg(*option);
    }
    if rustix::process::geteuid().is_root() {
        program.arg("--user=root");
    }
    let mut data_option = OsString::from("--datadir=");
    data_option.push(data);
    program.arg(data_option);
    // The initialisation does not sync after each write, because one sync at the end is enough.
    program.arg("--innodb-flush-log-at-trx-commit=0").arg("--skip-log-bin");
    let output = run_to_end(&program, input)?;
    let log = work.join("initialise.log");
    fs::write(&log, &output.stderr).on_path("write", &log)?;
    if output.status.success() {
        return Ok(());
    }
    Err(SandboxError::EndedEarly {
        name: format!("{} (initialising a data directory)", install.kind()),
        status: output.status.to_string(),
        tail: crate::server_files_and_launch::tail_of(&log),
        log,
    })
}
