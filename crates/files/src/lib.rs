//! Opens files. Every file that Tailwater reads or writes by itself is opened here, or as it is done here:
//!
//! - what is read is a regular file: a pipe would be waited for without an end, a device never ends;
//! - what is read whole has a limit: at the byte that is too many it is an error;
//! - what is made is a new file (`O_EXCL`, `O_NOFOLLOW`): a link that another user has put there is not followed, and
//!   what it names is not overwritten;
//! - what holds rows or passwords is for its owner alone.

pub mod store;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// For its owner alone.
pub const PRIVATE_FILE_MODE: u32 = 0o600;

/// A folder for its owner alone.
pub const PRIVATE_FOLDER_MODE: u32 = 0o700;

/// Opens a regular file for reading, also through a link.
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidInput`] if it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_existing(path, false)
}

/// Opens a regular file that is there, also through a link; to be written to if `writes`.
///
/// # Errors
/// As [`open_regular`].
pub fn open_existing(path: &Path, writes: bool) -> io::Result<File> {
    // A pipe without a writer would be waited for.
    regular(OpenOptions::new().read(true).write(writes).custom_flags(flags(OFlags::NONBLOCK)).open(path)?)
}

/// All of a regular file that is no longer than `bytes_max`.
///
/// # Errors
/// As [`open_regular`]; [`ErrorKind::FileTooLarge`] if it is longer.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_regular(path)?, bytes_max)
}

/// All of a small file that the user names, such as a configuration or a password. It may be a pipe, as shells make one
/// of `<(command)`, but no device.
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidInput`] if it is a device; [`ErrorKind::FileTooLarge`] if it is longer than `bytes_max`.
pub fn read_user_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(not_regular("a device"));
    }
    read_bounded(File::open(path)?, bytes_max)
}

/// As [`read_user_file`], as text.
///
/// # Errors
/// As [`read_user_file`]; [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_user_file_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let bytes = read_user_file(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// All that is to be read, if that is no more than `bytes_max`.
///
/// # Errors
/// What the system says; [`ErrorKind::FileTooLarge`].
pub fn read_bounded(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let reason = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Makes a file that is not there, for reading and writing.
///
/// # Errors
/// What the system says; [`ErrorKind::AlreadyExists`] also for a link, wherever it leads.
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

/// Makes a file in the place of one of that name, such as a process that was killed has left. Of a link only the link goes.
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidInput`] if something else than a file or a link is there.
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

/// Opens a regular file for reading and writing, and makes it if it is not there: a lock, or a journal that grows.
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidInput`] if it is a link or no regular file.
pub fn open_or_create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(mode);
    match options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(path) {
        Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::LOOP) => {
            Err(io::Error::new(ErrorKind::InvalidInput, "it is a link; name the file itself"))
        }
        opened => regular(opened?),
    }
}

/// As [`open_or_create`], for a file that the user names: a link to a file that is there is followed, as the user may have made it.
///
/// # Errors
/// As [`open_or_create`], of a link that leads nowhere.
pub fn open_or_create_user_file(path: &Path, mode: u32) -> io::Result<File> {
    match open_existing(path, true) {
        Err(error) if error.kind() == ErrorKind::NotFound => open_or_create(path, mode),
        opened => opened,
    }
}

/// Makes a folder and those above it where they are missing, for their owner alone.
///
/// # Errors
/// What the system says.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER_MODE).create(path)
}

/// Writes a file whole or not at all, durably: what was there before stays until the new one is. A link is replaced, not followed.
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidInput`] if something else than a file or a link is there.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    if let Ok(found) = fs::symlink_metadata(path)
        && !found.is_file()
        && !found.is_symlink()
    {
        return Err(not_regular("a folder, pipe, socket or device"));
    }
    let half = beside(path);
    let mut file = create_replacing(&half, mode)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&half, path));
    if written.is_err() {
        let _ = fs::remove_file(&half);
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Where a file is written before it gets its name.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".half");
    path.with_file_name(name)
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular("a folder, pipe, socket or device")),
    }
}

fn not_regular(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("it is {what}, and no regular file"))
}

fn flags(flags: OFlags) -> i32 {
    // The bits of `open(2)`; there are no more than fit.
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
            // What cannot be opened for writing at all is said by the system.
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
    fn links_are_not_followed_by_what_is_made() {
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
        let half = beside(&link);
        symlink(&victim, &half).unwrap();
        write_atomically(&link, b"page 2", PRIVATE_FILE_MODE).unwrap();
        assert!(is_sound() && !half.exists() && fs::read(&link).unwrap() == b"page 2");
        symlink(folder.path().join("nowhere"), &half).unwrap();
        create_replacing(&half, PRIVATE_FILE_MODE).unwrap();
        assert!(!folder.path().join("nowhere").exists() && half.is_file());
    }

    #[test]
    fn the_byte_that_is_too_many_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        assert_eq!(read_regular(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_bounded(io::repeat(0), 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_is_made_is_for_its_owner() {
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
