//! Opens, creates and replaces files. Tailwater opens all its files with these functions, or by the same
//! rules:
//!
//! - it reads regular files only: reading a pipe can block forever, and a device never ends;
//! - a file that is read completely has a size limit, and a longer file is an error;
//! - it creates files with `O_EXCL` and `O_NOFOLLOW`. So it does not follow a link that another user has
//!   placed there, and never overwrites the target of such a link;
//! - only the owner can read files that hold rows or passwords.
//!
//! [`file_store`] is a set of complete files without subfolders, the form in which dumps are stored.

pub mod file_store;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The mode of a file that only its owner can read and write.
pub const PRIVATE_FILE_MODE: u32 = 0o600;

/// The mode of a folder that only its owner can enter.
pub const PRIVATE_FOLDER_MODE: u32 = 0o700;

/// Opens a regular file for reading. Follows links.
///
/// # Errors
/// The error of the system; [`ErrorKind::InvalidInput`] if the path is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_existing(path, false)
}

/// Opens an existing regular file for reading, and also for writing if `writes` is true. Follows links.
///
/// # Errors
/// As [`open_regular`].
pub fn open_existing(path: &Path, writes: bool) -> io::Result<File> {
    // Without NONBLOCK, opening a pipe blocks if the pipe has no writer.
    require_regular(
        OpenOptions::new().read(true).write(writes).custom_flags(flags(OFlags::NONBLOCK)).open(path)?,
    )
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open_regular`]; [`ErrorKind::FileTooLarge`] if the file is longer.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_regular(path)?, bytes_max)
}

/// Reads a small file that the user names, such as a configuration file or a password file. It may be a pipe,
/// such as the shell's `<(command)`, but not a device.
///
/// # Errors
/// The error of the system; [`ErrorKind::InvalidInput`] if the path is a device; [`ErrorKind::FileTooLarge`]
/// if the file is longer than `bytes_max`.
pub fn read_user_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(not_regular("a device"));
    }
    read_bounded(File::open(path)?, bytes_max)
}

/// Reads a file like [`read_user_file`], as UTF-8 text.
///
/// # Errors
/// As [`read_user_file`]; [`ErrorKind::InvalidData`] if the file is not UTF-8.
pub fn read_user_file_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let bytes = read_user_file(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file is not UTF-8"))
}

/// Reads to the end of `from`, at most `bytes_max` bytes.
///
/// # Errors
/// The error of the system; [`ErrorKind::FileTooLarge`] if there are more bytes.
pub fn read_bounded(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let reason = format!("the file has more than {bytes_max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Creates a new file for reading and writing.
///
/// # Errors
/// The error of the system; [`ErrorKind::AlreadyExists`] if a file or a link with that name exists, even if
/// the link has no target.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(flags(OFlags::NOFOLLOW))
        .open(path)
}

/// Creates a new file. First removes an older file with the same name, such as a file that a killed process
/// left. If the older file is a link, removes only the link.
///
/// # Errors
/// The error of the system; [`ErrorKind::InvalidInput`] if the path exists and is neither a file nor a link.
pub fn create_replacing(path: &Path, mode: u32) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => {
            let kind = found?.file_type();
            if !kind.is_file() && !kind.is_symlink() {
                return Err(not_regular("a folder, pipe, socket or device"));
            }
            fs::remove_file(path)?;
        }
    }
    create_new(path, mode)
}

/// Opens a regular file for reading and writing, and creates it if it does not exist. Lock files and journals
/// are opened like this.
///
/// # Errors
/// The error of the system; [`ErrorKind::InvalidInput`] if the path is a link or not a regular file.
pub fn open_or_create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(mode);
    match options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(path) {
        Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::LOOP) => {
            Err(io::Error::new(ErrorKind::InvalidInput, "the path is a link; name the file itself"))
        }
        opened => require_regular(opened?),
    }
}

/// Does the same as [`open_or_create`] for a file that the user names. Follows a link to an existing file,
/// because the user may have created the link.
///
/// # Errors
/// As [`open_or_create`]. A link without a target is an error too.
pub fn open_or_create_user_file(path: &Path, mode: u32) -> io::Result<File> {
    match open_existing(path, true) {
        Err(error) if error.kind() == ErrorKind::NotFound => open_or_create(path, mode),
        opened => opened,
    }
}

/// Creates a folder and its missing parents. Only the owner can enter the created folders.
///
/// # Errors
/// The error of the system.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER_MODE).create(path)
}

/// Replaces a file atomically and durably: the old content remains until the new content is on disk. If the
/// path is a link, replaces the link and not its target.
///
/// # Errors
/// The error of the system; [`ErrorKind::InvalidInput`] if the path exists and is neither a file nor a link.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    if let Ok(found) = fs::symlink_metadata(path)
        && !found.is_file()
        && !found.is_symlink()
    {
        return Err(not_regular("a folder, pipe, socket or device"));
    }
    let half = temporary_path(path);
    let mut file = create_replacing(&half, mode)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&half, path));
    if written.is_err() {
        let _ = fs::remove_file(&half);
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns the path to which [`write_atomically`] writes before it renames the file.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".half");
    path.with_file_name(name)
}

fn require_regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular("a folder, pipe, socket or device")),
    }
}

fn not_regular(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("the path is {what}, not a regular file"))
}

fn flags(flags: OFlags) -> i32 {
    // All flags of `open(2)` fit in 31 bits.
    i32::try_from(flags.bits()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn pipe(folder: &Path) -> PathBuf {
        let path = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    #[test]
    fn pipes_devices_and_folders_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = pipe(folder.path());
        for path in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
            let kind = |opened: io::Result<()>| opened.unwrap_err().kind();
            assert_eq!(kind(open_regular(path).map(drop)), ErrorKind::InvalidInput, "{}", path.display());
            // For a folder, the operating system refuses to open it for writing.
            assert!(open_or_create(path, PRIVATE_FILE_MODE).is_err(), "{}", path.display());
            assert!(create_new(path, PRIVATE_FILE_MODE).is_err(), "{}", path.display());
            if path != Path::new("/dev/zero") {
                assert_eq!(
                    kind(create_replacing(path, PRIVATE_FILE_MODE).map(drop)),
                    ErrorKind::InvalidInput
                );
                assert_eq!(kind(write_atomically(path, b"", PRIVATE_FILE_MODE)), ErrorKind::InvalidInput);
            }
        }
        assert_eq!(read_user_file(Path::new("/dev/zero"), 9).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(pipe.exists());
    }

    #[test]
    fn new_files_do_not_follow_links() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        let is_sound = || fs::read(&victim).unwrap() == b"precious";
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &link).unwrap();
        assert_eq!(read_regular(&link, 8).unwrap(), b"precious");
        assert_eq!(create_new(&link, PRIVATE_FILE_MODE).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let refused = open_or_create(&link, PRIVATE_FILE_MODE).unwrap_err();
        assert!(refused.to_string().contains("name the file itself") && is_sound(), "{refused}");
        let mut named = String::new();
        open_or_create_user_file(&link, PRIVATE_FILE_MODE).unwrap().read_to_string(&mut named).unwrap();
        assert_eq!(named, "precious");
        let (nowhere, dangling) = (folder.path().join("not there"), folder.path().join("dangling"));
        symlink(&nowhere, &dangling).unwrap();
        let refused = open_or_create_user_file(&dangling, PRIVATE_FILE_MODE).unwrap_err();
        assert!(refused.to_string().contains("name the file itself") && !nowhere.exists(), "{refused}");
        open_or_create_user_file(&nowhere, PRIVATE_FILE_MODE).unwrap();
        assert!(nowhere.is_file());
        write_atomically(&link, b"page", PRIVATE_FILE_MODE).unwrap();
        assert!(is_sound() && !link.is_symlink() && fs::read(&link).unwrap() == b"page");
        let half = temporary_path(&link);
        symlink(&victim, &half).unwrap();
        write_atomically(&link, b"page 2", PRIVATE_FILE_MODE).unwrap();
        assert!(is_sound() && !half.exists() && fs::read(&link).unwrap() == b"page 2");
        symlink(folder.path().join("nowhere"), &half).unwrap();
        create_replacing(&half, PRIVATE_FILE_MODE).unwrap();
        assert!(!folder.path().join("nowhere").exists() && half.is_file());
    }

    #[test]
    fn one_byte_over_the_limit_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        assert_eq!(read_regular(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_bounded(io::repeat(0), 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn new_files_and_folders_are_for_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("a/b");
        create_private_folder(&made).unwrap();
        write_atomically(&made.join("file"), b"rows", PRIVATE_FILE_MODE).unwrap();
        open_or_create(&made.join("lock"), PRIVATE_FILE_MODE).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.path().join("a")), mode(&made)), (0o700, 0o700));
        assert_eq!((mode(&made.join("file")), mode(&made.join("lock"))), (0o600, 0o600));
    }
}
