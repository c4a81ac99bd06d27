//! Who looks at the page, and what they may do.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tailwater_config::HttpRole;
use tailwater_http_api::authentication::Caller;

/// The caller of a request for a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Visitor {
    /// The name of the token.
    pub(super) name: String,
    /// Whether the visitor may change something.
    pub(super) is_operator: bool,
    /// What the page sends with each change; empty without a session.
    pub(super) csrf_token: String,
}

impl Visitor {
    pub(super) fn role(&self) -> &'static str {
        if self.is_operator { "operator" } else { "read only" }
    }
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = Infallible;

    /// Requests without a caller, such as those for the login, see the page as a reader without a name.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>();
        Ok(Self {
            name: caller.map(|caller| caller.name.clone()).unwrap_or_default(),
            is_operator: caller.is_some_and(|caller| caller.role == HttpRole::Operator),
            csrf_token: caller.and_then(|caller| caller.csrf_token.clone()).unwrap_or_default(),
        })
    }
}
