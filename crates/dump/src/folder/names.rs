//! The names of dump files. Readers take names from the manifest and do not parse them.

use sha2::{Digest, Sha256};

use tailwater_tables::schema::ObjectKind;

/// Maximum size of an encoded name in bytes: two of them, a number and an ending fit into the 255 bytes of a
/// file name.
const ENCODED_BYTES_MAX: usize = 100;

/// The manifest.
pub const MANIFEST: &str = "manifest.json";
/// The journal of events that are not in the manifest yet.
pub const JOURNAL: &str = "journal.jsonl";

/// The file that names the writing process of a dump whose files cannot be locked.
pub const WRITER: &str = "writer";

/// A part of the journal, in stores where files cannot grow.
pub fn numbered_journal(number: u32) -> String {
    format!("journal.{number:010}.jsonl")
}

/// The number of a part of the journal; `None` for other files.
pub fn journal_number(file: &str) -> Option<u32> {
    let number = file.strip_prefix("journal.")?.strip_suffix(".jsonl")?;
    number.parse().ok().filter(|&number| numbered_journal(number) == file)
}

/// The name of a database object as part of a file name: bytes outside `[A-Za-z0-9_$-]` become `%XX`. A name
/// that is too long is shortened to its beginning, `~` and a hash of the whole name.
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

/// The file of a database's definition.
pub fn schema_file(schema: &str) -> String {
    format!("{}.schema.sql", encode(schema))
}

/// The ending of table definition files. No other file has it: encoded names have no dots.
pub const TABLE_ENDING: &str = ".table.sql";

/// The file of a table's definition.
pub fn table_file(schema: &str, table: &str) -> String {
    format!("{}.{}{TABLE_ENDING}", encode(schema), encode(table))
}

/// The file of a chunk; chunks are numbered from 0, and `ending` is that of [`super::Manifest::ending`].
pub fn chunk_file(schema: &str, table: &str, number: u32, ending: &str) -> String {
    format!("{}.{}.{number:06}.{}", encode(schema), encode(table), ending)
}

/// The files of an account: its definition and its privileges.
pub fn account_files(user: &str, host: &str) -> (String, String) {
    let name = format!("{}.{}", encode(user), encode(host));
    (format!("{name}.account.sql"), format!("{name}.grants.sql"))
}

/// The file of the definition of another object.
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
        fn names_fit_into_a_file_system_and_differ(one in ".{1,64}", other in ".{1,64}") {
            let file = object_file(ObjectKind::PackageBody, &one, &other);
            prop_assert!(file.len() <= 255 && file.bytes().all(|byte| byte != b'/' && byte != 0), "{}", file);
            prop_assert_eq!(encode(&one) == encode(&other), one == other);
            prop_assert!(!encode(&one).contains('.'));
        }
    }
}
