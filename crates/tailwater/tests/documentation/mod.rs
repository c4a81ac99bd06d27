//! The documentation: its pages form a book, links resolve, commands of the first hour work, and
//! everything that a user can name is documented.

mod completeness;
mod first_hour_tutorial;
pub mod markdown;
mod table_of_contents_and_links;
