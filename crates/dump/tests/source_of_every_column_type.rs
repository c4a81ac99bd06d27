//! A source with columns of every type.

use anyhow::Result;
use tailwater_sandbox::{Server, ServerKind};

use crate::column_type_limits;
use crate::server_contents::started;
use crate::stock_client::run_script;

/// Starts a source with columns of every type, and other objects.
pub async fn source(kind: ServerKind) -> Result<Server> {
    let server = started(kind).await?;
    run_script(&server, column_type_limits::script(kind).as_bytes())?;
    let objects = "
        USE every;
        CREATE VIEW b AS SELECT a FROM keyless;
        CREATE VIEW a AS SELECT a FROM b;
        DELIMITER //
        CREATE TRIGGER stop BEFORE INSERT ON keyless FOR EACH ROW SIGNAL SQLSTATE '45000'//
        CREATE PROCEDURE p() BEGIN DO 1; DO 2; END//
        DELIMITER ;
    ";
    run_script(&server, objects.as_bytes())?;
    Ok(server)
}
