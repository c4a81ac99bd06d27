//! Writing a large file to the disk, past the page cache.
//!
//! A dump is written once and seldom read soon. Through the page cache each of its bytes is copied once more, and takes the
//! place of a page that somebody reads: on the server's own machine, of its files. So whole blocks go to the disk from where
//! they are (`O_DIRECT`), on a thread of their own, so that rows are received and compressed meanwhile. What file systems do
//! not take that way goes through the page cache.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fstatfs};

/// Of each write: large enough for disks far away, where each takes a millisecond.
const BLOCK_BYTES: usize = 512 << 10;
/// Blocks of a file: one gets bytes while one is written, and one waits.
const BLOCKS: usize = 3;
/// What places in memory and in files are multiples of: no disk in use has larger sectors.
const ALIGNMENT: usize = 4096;
/// What a file has in memory while it has no more: most tables are small.
const SMALL_BYTES: usize = 16 << 10;
/// Through the page cache: so many bytes are on their way to the disk at once, so that little is left to wait for at the end.
const WRITEBACK_BYTES: u64 = 4 << 20;
/// File systems that answer each direct write over a network, or from another process, and gather others: NFS, SMB (of three kinds),
/// Ceph, FUSE, 9P.
const FAR: [u32; 7] = [0x6969, 0x517B, 0xFE53_4D42, 0xFF53_4D42, 0x00C3_6400, 0x6573_5546, 0x0102_1997];

/// See the module. Nothing is sure to be in the file before [`DirectIoFile::end`].
#[derive(Debug)]
pub(super) struct DirectIoFile {
    /// Gets bytes.
    block: Block,
    stage: Stage,
    written_bytes: u64,
}

#[derive(Debug)]
enum Stage {
    /// No block was full yet.
    Small(File),
    Large(Writer),
    /// It failed.
    Gone,
}

impl DirectIoFile {
    /// Of a file that is empty.
    pub(super) fn new(file: File) -> Self {
        Self { block: Block::new(), stage: Stage::Small(file), written_bytes: 0 }
    }

    /// Takes at least one byte of some.
    ///
    /// # Errors
    /// What the system said of this or of bytes before.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.stage, Stage::Gone) {
            return Err(failed_before());
        }
        if self.block.is_full() {
            self.hand_over()?;
        }
        let taken = self.block.fill(bytes);
        self.written_bytes += taken as u64;
        Ok(taken)
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let mut writer = match std::mem::replace(&mut self.stage, Stage::Gone) {
            Stage::Small(file) => Writer::start(file)?,
            Stage::Large(writer) => writer,
            Stage::Gone => return Err(failed_before()),
        };
        match writer.exchange(&mut self.block) {
            Ok(()) => {
                self.stage = Stage::Large(writer);
                Ok(())
            }
            Err(Closed) => Err(writer.end().err().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Writes the rest; when it returns all is in the file, and on the disk if it is to be. How many bytes that are.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn end(&mut self, durable: bool) -> io::Result<u64> {
        let mut file = match std::mem::replace(&mut self.stage, Stage::Gone) {
            Stage::Small(file) => file,
            Stage::Large(writer) => writer.end()?,
            Stage::Gone => return Err(failed_before()),
        };
        // Not a whole number of sectors.
        set_direct(&file, false)?;
        file.write_all(self.block.bytes())?;
        if durable {
            file.sync_data()?;
        }
        Ok(self.written_bytes)
    }
}

/// Bytes that begin at a multiple of [`ALIGNMENT`], once they are more than a few.
struct Block {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} of {BLOCK_BYTES} bytes)", self.length)
    }
}

impl Block {
    fn new() -> Self {
        Self { memory: Vec::new(), begin: 0, length: 0 }
    }

    /// Makes room for more bytes.
    fn grow(&mut self, more: usize) {
        let wanted = self.length + more;
        if self.memory.len() > SMALL_BYTES {
            // All that there may be.
        } else if wanted <= SMALL_BYTES {
            self.memory.resize(wanted, 0);
        } else {
            let few = std::mem::replace(&mut self.memory, vec![0; BLOCK_BYTES + ALIGNMENT]);
            let address = self.memory.as_ptr().addr();
            self.begin = address.next_multiple_of(ALIGNMENT) - address;
            self.memory[self.begin..][..self.length].copy_from_slice(&few[..self.length]);
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..][..self.length]
    }

    fn is_full(&self) -> bool {
        self.length == BLOCK_BYTES
    }

    /// Takes what there is room for.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(BLOCK_BYTES - self.length);
        self.grow(taken);
        self.memory[self.begin + self.length..][..taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
        taken
    }
}

/// A thread that writes whole blocks.
#[derive(Debug)]
struct Writer {
    full: SyncSender<Block>,
    empty: Receiver<Block>,
    thread: JoinHandle<io::Result<File>>,
    /// Blocks there are.
    blocks: usize,
}

/// The thread takes no more: it failed.
#[derive(Debug)]
struct Closed;

impl Writer {
    fn start(file: File) -> io::Result<Self> {
        let (full, to_write) = sync_channel(BLOCKS);
        let (give_back, empty) = sync_channel(BLOCKS);
        let thread = thread::Builder::new()
            .name("dump writer".into())
            .spawn(move || write_blocks(file, &to_write, &give_back))?;
        Ok(Self { full, empty, thread, blocks: 1 })
    }

    /// Takes a full block, leaves an empty one; waits for it while all are full.
    fn exchange(&mut self, block: &mut Block) -> Result<(), Closed> {
        let next = if self.blocks < BLOCKS {
            self.blocks += 1;
            Block::new()
        } else {
            self.empty.recv().map_err(|_| Closed)?
        };
        self.full.send(std::mem::replace(block, next)).map_err(|_| Closed)
    }

    /// Waits until all is written.
    fn end(self) -> io::Result<File> {
        drop((self.full, self.empty));
        match self.thread.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn failed_before() -> io::Error {
    io::Error::other("an earlier write failed")
}

fn write_blocks(
    mut file: File,
    to_write: &Receiver<Block>,
    give_back: &SyncSender<Block>,
) -> io::Result<File> {
    let mut direct = !is_far(&file) && set_direct(&file, true).is_ok();
    let (mut written_to, mut writeback_to) = (0, 0);
    while let Ok(mut block) = to_write.recv() {
        direct = write_block(&mut file, block.bytes(), direct)?;
        written_to += block.length as u64;
        if written_to - writeback_to >= WRITEBACK_BYTES {
            // Linux answers this advice by starting to write the range's pages to the disk, without waiting, if there are any: a file
            // system may take direct writes and gather them all the same. A system that does otherwise only makes the end slower.
            let length = NonZeroU64::new(written_to - writeback_to);
            let _ = fadvise(&file, writeback_to, length, Advice::DontNeed);
            writeback_to = written_to;
        }
        block.length = 0;
        // Nobody wants it any more when this was the last one.
        let _ = give_back.send(block);
    }
    Ok(file)
}

/// Writes a block; whether the next one may go directly, too.
fn write_block(file: &mut File, mut bytes: &[u8], mut direct: bool) -> io::Result<bool> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A file system that takes the flag and then not the writes; or the disk was full for a moment, and only a
            // part that ends in the middle of a sector was written.
            Err(error)
                if direct
                    && matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
            {
                set_direct(file, false)?;
                direct = false;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(direct)
}

fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(file, flags)?)
}

fn is_far(file: &File) -> bool {
    // The kernel's numbers have 32 bits; the field's type is the platform's.
    fstatfs(file).is_ok_and(|system| FAR.contains(&(system.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn in_folder(folder: &Path) -> (std::path::PathBuf, DirectIoFile) {
        let path = folder.join("file");
        let file = DirectIoFile::new(File::create(&path).expect("a file"));
        (path, file)
    }

    fn put(file: &mut DirectIoFile, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = file.write(bytes).expect("taken");
            assert!(taken > 0);
            bytes = &bytes[taken..];
        }
    }

    /// Bytes of which no two blocks are alike.
    fn noise(length: usize) -> Vec<u8> {
        (0..length.div_ceil(8) as u64)
            .flat_map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
            .take(length)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

        #[test]
        fn what_was_written_is_in_the_file(
            lengths in prop::collection::vec(prop_oneof![0..100usize, 4000..5000usize, 16_000..17_000usize, 200_000..1_200_000usize], 0..8),
            durable in any::<bool>(),
            in_memory in any::<bool>(),
        ) {
            // Of memory, too, where it is there: file systems differ in what they take directly.
            let memory = Path::new("/dev/shm");
            let folder = match in_memory && memory.is_dir() {
                true => tempfile::tempdir_in(memory),
                false => tempfile::tempdir(),
            }.expect("a folder");
            let (path, mut file) = in_folder(folder.path());
            let bytes = noise(lengths.iter().sum());
            let mut rest = &bytes[..];
            for length in lengths {
                let (piece, behind) = rest.split_at(length);
                put(&mut file, piece);
                rest = behind;
            }
            prop_assert_eq!(file.end(durable).expect("ended"), bytes.len() as u64);
            prop_assert!(std::fs::read(&path).expect("read") == bytes);
        }
    }

    #[test]
    fn whole_blocks_are_as_good_as_any_other_length() {
        let folder = tempfile::tempdir().expect("a folder");
        for length in
            [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 4 * BLOCK_BYTES, 9 * BLOCK_BYTES + 4095]
        {
            let (path, mut file) = in_folder(folder.path());
            let bytes = noise(length);
            put(&mut file, &bytes);
            assert_eq!(file.end(true).expect("ended"), length as u64);
            assert!(std::fs::read(&path).expect("read") == bytes, "{length}");
        }
    }

    #[test]
    fn what_the_thread_could_not_write_is_said() {
        // The kernel's own full disk.
        let full = File::options().write(true).open("/dev/full").expect("a full disk");
        let mut file = DirectIoFile::new(full);
        let bytes = noise(BLOCK_BYTES);
        let refused = (0..=BLOCKS + 1).find_map(|_| {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                match file.write(rest) {
                    Ok(taken) => rest = &rest[taken..],
                    Err(error) => return Some(error),
                }
            }
            None
        });
        assert_eq!(refused.expect("refused").kind(), io::ErrorKind::StorageFull);
        assert!(file.write(&bytes).is_err() && file.end(true).is_err());
    }

    #[test]
    fn a_small_file_that_does_not_fit_says_so_at_its_end() {
        let full = File::options().write(true).open("/dev/full").expect("a full disk");
        let mut file = DirectIoFile::new(full);
        put(&mut file, b"few");
        assert_eq!(file.end(true).expect_err("refused").kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_block_that_no_sector_fits_goes_through_the_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut file = File::create(&path).expect("a file");
        if set_direct(&file, true).is_err() {
            return;
        }
        let bytes = noise(100_003);
        // Whatever the file system thinks of it, all of it is there.
        write_block(&mut file, &bytes[1..], true).expect("written");
        assert!(std::fs::read(&path).expect("read") == bytes[1..]);
    }
}
