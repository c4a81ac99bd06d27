//! Tests of the cores: rows and statements as queries, the window, the caches, the feedback.

mod bounded_caches;
mod feedback_simulation;
mod row_queries;
mod statement_queries;
mod window_simulation;
