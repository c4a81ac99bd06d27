//! The names of dump files. The code that reads a dump takes the names from the manifest and does not parse
//! them.

use sha2::{Digest, Sha256};

use tailwater_tables::schema::ObjectKind;

/// Maximum size in bytes of an encoded name. A file name has at most 255 bytes: two encoded names, a number
/// and an extension.
const ENCODED_BYTES_MAX: usize = 100;

/// The name of the manifest file.
pub const MANIFEST: &str = "manifest.json";
/// The name of the journal, which has the events that are not in the manifest yet.
pub const JOURNAL: &str = "journal.jsonl";

/// The file that identifies the process that writes the dump, in stores whose files cannot be locked.
pub const WRITER: &str = "writer";

/// Returns the name of a part of the journal, in stores where files cannot grow.
pub fn numbered_journal(number: u32) -> String {
    format!("journal.{number:010}.jsonl")
}

/// Returns the number of a part of the journal; `None` for other files.
pub fn journal_number(file: &str) -> Option<u32> {
    let number = file.strip_prefix("journal.")?.strip_suffix(".jsonl")?;
    number.parse().ok().filter(|&number| numbered_journal(number) == file)
}

/// Encodes the name of a database object as part of a file name. Bytes outside `[A-Za-z0-9_$-]` become `%XX`.
/// A name that is too long is shortened to its beginning, `~` and a hash of the whole name.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for &byte in name.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'$' | b'-' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    if encoded.len() > ENCODED_BYTES_MAX {
        let hash = Sha256::digest(name.as_bytes());
        encoded.truncate(ENCODED_BYTES_MAX - 17);
        encoded.push('~');
        encoded.extend(hash[..8].iter().map(|byte| format!("{byte:02x}")));
    }
    encoded
}

/// Returns the name of the file with a database's definition.
pub fn schema_file(schema: &str) -> String {
    format!("{}.schema.sql", encode(schema))
}

/// The extension of table definition files. No other file has this extension, because encoded names contain
/// no dots.
pub const TABLE_ENDING: &str = ".table.sql";

/// Returns the name of the file with a table's definition.
pub fn table_file(schema: &str, table: &str) -> String {
    format!("{}.{}{TABLE_ENDING}", encode(schema), encode(table))
}

/// Returns the name of a chunk's data file. Chunks are numbered from 0; `ending` comes from
/// [`super::Manifest::ending`].
pub fn chunk_file(schema: &str, table: &str, number: u32, ending: &str) -> String {
    format!("{}.{}.{number:06}.{}", encode(schema), encode(table), ending)
}

/// Returns the names of the two files of an account: its definition and its privileges.
pub fn account_files(user: &str, host: &str) -> (String, String) {
    let name = format!("{}.{}", encode(user), encode(host));
    (format!("{name}.account.sql"), format!("{name}.grants.sql"))
}

/// Returns the name of the file with the definition of another object.
pub fn object_file(kind: ObjectKind, schema: &str, name: &str) -> String {
    format!("{}.{}.{}.sql", encode(schema), encode(name), kind.name())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_encoded() {
        assert_eq!(chunk_file("shop", "a.b/c d", 7, "tsv.zst"), "shop.a%2Eb%2Fc%20d.000007.tsv.zst");
        assert_eq!(chunk_file("shop", "ä", 1_234_567, "tsv"), "shop.%C3%A4.1234567.tsv");
        assert_eq!(object_file(ObjectKind::View, "s", "v"), "s.v.view.sql");
    }

    proptest! {
        #[test]
        fn encoded_names_fit_into_a_file_name_and_differ(one in ".{1,64}", other in ".{1,64}") {
            let file = object_file(ObjectKind::PackageBody, &one, &other);
            prop_assert!(
                file.len() <= 255 && file.bytes().all(|byte| byte != b'/' && byte != 0),
                "the file name is too long or has an invalid byte: {}",
                file
            );
            prop_assert_eq!(encode(&one) == encode(&other), one == other);
            prop_assert!(!encode(&one).contains('.'));
        }
    }
}
