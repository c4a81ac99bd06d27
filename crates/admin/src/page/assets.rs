//! Scripts, styles and licences, from the binary.

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::RustEmbed;

use super::PageState;

/// The files of `assets/`. docs/how-to/page.md names the libraries.
#[derive(RustEmbed)]
#[folder = "assets/"]
struct PageAssets;

pub(super) fn routes() -> Router<PageState> {
    Router::new().route("/assets/{*path}", get(asset))
}

async fn asset(Path(path): Path<String>, request: Request) -> Response {
    let Some(file) = PageAssets::get(&path) else {
        return (StatusCode::NOT_FOUND, "there is no such file").into_response();
    };
    // An update of the daemon changes the files, so browsers ask each time whether they have changed.
    let etag = format!("\"{}\"", &hex(&file.metadata.sha256_hash())[..32]);
    let headers = [
        (CACHE_CONTROL, "no-cache".to_owned()),
        (ETAG, etag.clone()),
        (CONTENT_TYPE, content_type(&path).to_owned()),
    ];
    let known = request.headers().get(IF_NONE_MATCH);
    if known.is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, file.data.into_owned()).into_response()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
