//! The documentation: its pages form a book, links resolve, and commands of the first hour work.

mod book;
mod first_hour;
pub mod markdown;
