//! Each way of copying preserves the bytes of texts in every character set of a server.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_check::table_check::{CheckOptions, Digests};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{LoadOptions, load, tailwater_folder};
use tailwater_sandbox::{ServerKind, require};
use tailwater_session::Connection;
use tailwater_tables::schema::Selection;
use tokio_util::sync::CancellationToken;

use crate::server_contents::{all, ensure_equal, started};
use crate::{table_check, test_dump_folders};

on_each_server!(texts_in_all_character_sets_arrive);

/// Ranges of Unicode code points (first, last) of the scripts that have character sets.
const SCRIPTS: &[(u32, u32)] = &[
    (0x0000, 0x017F),
    (0x0370, 0x03FF),
    (0x0400, 0x045F),
    (0x0531, 0x058F),
    (0x05D0, 0x05EA),
    (0x060C, 0x0652),
    (0x0E01, 0x0E5B),
    (0x10D0, 0x10FF),
    (0x2010, 0x203A),
    (0x20AC, 0x20AC),
    (0x2500, 0x259F),
    (0x3041, 0x30FE),
    (0x4E00, 0x4EFF),
    (0x8000, 0x80FF),
    (0xAC00, 0xAC7F),
    (0xFF01, 0xFF9F),
    (0x1F600, 0x1F64F),
];

async fn texts_in_all_character_sets_arrive(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (started(kind).await?, started(kind).await?);
    let mut connection = Connection::connect(&source.connect_options()).await?;
    let sets = "SELECT character_set_name FROM information_schema.character_sets WHERE character_set_name <> 'binary'";
    let sets = connection.query(sets).await?;
    let sets: Vec<_> = sets.rows.iter().filter_map(|row| row.get_str(0)).collect();
    ensure!(sets.len() > 35, "the server has only the character sets {sets:?}");
    let columns: Vec<_> = sets.iter().map(|set| format!("c_{set} TEXT CHARACTER SET {set}")).collect();
    connection.execute("CREATE DATABASE sets").await?;
    let columns = columns.join(", ");
    connection.execute(&format!("CREATE TABLE sets.t (id INT PRIMARY KEY, {columns})")).await?;
    let points: Vec<_> = SCRIPTS.iter().flat_map(|(from, to)| *from..=*to).collect();
    // With this SQL mode, the server stores a question mark for each character that a character set lacks.
    connection.execute("SET sql_mode = ''").await?;
    for (id, points) in points.chunks(16).enumerate() {
        let text: String = points.iter().map(|point| format!("{point:08X}")).collect();
        let values: Vec<_> =
            sets.iter().map(|set| format!("CONVERT(_utf32 X'{text}' USING {set})")).collect();
        connection.execute(&format!("INSERT INTO sets.t VALUES ({id}, {})", values.join(", "))).await?;
    }
    let before = all(&source).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 10).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    for inserts in [false, true] {
        target.sql("DROP DATABASE IF EXISTS sets; DROP DATABASE IF EXISTS tailwater").await?;
        let options = LoadOptions { inserts, ..LoadOptions::new(target.connect_options()) };
        load(&contents, &options, &Arc::default(), &CancellationToken::new()).await?;
        ensure_equal(&before, &all(&target).await?)?;
    }
    let options = CheckOptions {
        selection: Selection { schemas: vec!["sets".into()], ..Selection::default() },
        sync_method: Some(SyncMethod::None),
        ..CheckOptions::new(source.connect_options(), target.connect_options())
    };
    for digests in [options.digests, Digests::Client { seed: 7 }, Digests::OnServers] {
        let report = table_check::run(&CheckOptions { digests, ..options.clone() }).await?;
        ensure!(
            report.is_equal() && report.rows > 100,
            "the loaded texts differ, or there are too few rows: {report:#?}"
        );
    }
    Ok(())
}
