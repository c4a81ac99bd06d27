//! Compares ENUM members, SET members and character sets in the log with those of the target.

use anyhow::{Result, ensure};
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_sandbox::ServerKind;

use crate::channel_test_servers::Rig;

on_each_server!(members_are_compared_as_text);

/// Tables whose ENUM and SET members must not be compared byte by byte.
const TABLE: &str = r#"SET NAMES utf8mb4; CREATE DATABASE said; USE said;
CREATE TABLE odd (id INT PRIMARY KEY, a ENUM('a\\b','c\nd','e''f','g,h','ключ','😀','','i"j','k%') CHARACTER SET utf8mb4,
  b ENUM('ä','€','ÿ') CHARACTER SET latin1, c SET('ж','я','a') CHARACTER SET cp1251, d ENUM('ж','ÿ','x\\y') CHARACTER SET utf16,
  e SET('ж','q') CHARACTER SET utf32, f ENUM('a','b') CHARACTER SET binary, g ENUM('ж','я') CHARACTER SET ucs2, h SET('х','я') CHARACTER SET utf16le);
INSERT INTO odd VALUES (1, 'a\\b', '€', 'ж,я', 'x\\y', 'q', 'b', 'я', 'х,я'), (2, 'c\nd', 'ÿ', 'a', 'ж', 'ж', 'a', 'ж', '');
UPDATE odd SET a = 'ключ' WHERE id = 2; DELETE FROM odd WHERE id = 1;
CREATE TABLE turned (id INT PRIMARY KEY, a ENUM('a','b') CHARACTER SET ucs2);
CREATE TABLE spelled (id INT PRIMARY KEY, t VARCHAR(9) CHARACTER SET cp1251)"#;

async fn members_are_compared_as_text(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &["--binlog-row-metadata=FULL"], &[]).await? else { return Ok(()) };
    rig.source.sql(TABLE).await?;
    let sets = "SELECT character_set_name FROM information_schema.character_sets ORDER BY 1";
    let sets = rig.source.sql(sets).await?;
    ensure!(sets.len() > 35, "too few character sets: {sets:?}");
    let columns: Vec<String> = sets
        .iter()
        .map(|set| {
            format!(
                "e_{set} ENUM('x','it''s','Y') CHARACTER SET {set}, s_{set} SET('p','q') CHARACTER SET {set}"
            )
        })
        .collect();
    rig.source
        .sql(&format!("USE said; CREATE TABLE every (id INT PRIMARY KEY, {})", columns.join(",")))
        .await?;
    let values = vec!["2, 3"; sets.len()].join(",");
    rig.source
        .sql(&format!(
            "USE said; INSERT INTO every VALUES (1, {values}), (2, {values}); DELETE FROM every WHERE id = 1"
        ))
        .await?;
    let options = ChannelOptions { start: ChannelStart::Oldest, ..rig.options("said") };
    let channel = rig.channel(options);
    rig.wait_applied(&channel).await?;
    rig.ensure_equal(&["said"]).await?;

    // Text in another character set with characters of the same length is converted, not copied.
    let other = "SET sql_log_bin=0; ALTER TABLE said.spelled MODIFY t VARCHAR(9) CHARACTER SET koi8r; \
                 ALTER TABLE said.turned MODIFY a ENUM('b','a') CHARACTER SET ucs2";
    rig.target.sql(other).await?;
    channel.pause().await?;
    channel.resume(None).await?;
    rig.source.sql("SET NAMES utf8mb4; INSERT INTO said.spelled VALUES (1, 'жук')").await?;
    rig.wait_applied(&channel).await?;
    let spelled = "SELECT HEX(CONVERT(t USING utf8mb4)) FROM said.spelled";
    ensure!(rig.target.sql(spelled).await? == rig.source.sql(spelled).await?);

    rig.source.sql("INSERT INTO said.turned VALUES (1, 'a')").await?;
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0004" && fault.message.contains("said.turned"),
        "wrong fault of the channel: {fault:?}"
    );
    channel.shut_down().await;
    Ok(())
}
