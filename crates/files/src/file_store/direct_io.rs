//! Writes large files with direct I/O, which does not use the page cache.
//!
//! A dump is written once and usually not read again soon. A write through the page cache copies each byte
//! one more time, and evicts pages that are in use. If the dump runs on the server's machine, these are pages
//! of the server's files. So whole blocks are written directly to the disk (`O_DIRECT`). A separate thread
//! writes the blocks, while the caller receives and compresses more rows. If the file system does not support
//! direct I/O, writes use the page cache.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fstatfs};

/// Size of a write in bytes. It is large enough for remote disks, where each write takes a millisecond.
const BLOCK_BYTES: usize = 512 << 10;
/// Number of blocks per file: one is being written, one is being filled, and one waits.
const BLOCKS: usize = 3;
/// Alignment of memory and file positions in bytes. No disk that is in use today has larger sectors.
const ALIGNMENT: usize = 4096;
/// Initial size of the buffer of a file in bytes. It is small, because most tables are small.
const SMALL_BYTES: usize = 16 << 10;
/// For writes through the page cache: after this many bytes, the writer asks the kernel to write them to the
/// disk. So only a few bytes are left to write when the file ends.
const WRITEBACK_BYTES: u64 = 4 << 20;
/// The type numbers of file systems on which direct writes are slow: NFS, SMB (three kinds), Ceph, FUSE, 9P.
/// They send each direct write over a network or to another process, but combine writes through the page
/// cache.
const FAR: [u32; 7] = [0x6969, 0x517B, 0xFE53_4D42, 0xFF53_4D42, 0x00C3_6400, 0x6573_5546, 0x0102_1997];

/// A file that is written with direct I/O. Its content is complete only after [`DirectIoFile::end`].
#[derive(Debug)]
pub(super) struct DirectIoFile {
    /// The block that is being filled.
    block: AlignedBlock,
    stage: WriteStage,
    written_bytes: u64,
}

#[derive(Debug)]
enum WriteStage {
    /// No block has been full yet.
    Small(File),
    Large(DirectWriter),
    /// A write failed.
    Gone,
}

impl DirectIoFile {
    /// Creates the writer for an empty file.
    pub(super) fn new(file: File) -> Self {
        Self { block: AlignedBlock::new(), stage: WriteStage::Small(file), written_bytes: 0 }
    }

    /// Buffers or writes at least one of the bytes. Returns how many of the bytes it has taken.
    ///
    /// # Errors
    /// The error of the system for this write or an earlier one.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.stage, WriteStage::Gone) {
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
        let mut writer = match std::mem::replace(&mut self.stage, WriteStage::Gone) {
            WriteStage::Small(file) => DirectWriter::start(file)?,
            WriteStage::Large(writer) => writer,
            WriteStage::Gone => return Err(failed_before()),
        };
        match writer.exchange(&mut self.block) {
            Ok(()) => {
                self.stage = WriteStage::Large(writer);
                Ok(())
            }
            Err(WriterClosed) => Err(writer.end().err().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Writes the remaining bytes. After this call, all bytes are in the file, and on the disk if `durable`
    /// is true. Returns the length of the file in bytes.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn end(&mut self, durable: bool) -> io::Result<u64> {
        let mut file = match std::mem::replace(&mut self.stage, WriteStage::Gone) {
            WriteStage::Small(file) => file,
            WriteStage::Large(writer) => writer.end()?,
            WriteStage::Gone => return Err(failed_before()),
        };
        // A direct write must consist of whole sectors. The remaining bytes are usually not whole sectors, so
        // write them through the page cache.
        set_direct(&file, false)?;
        file.write_all(self.block.bytes())?;
        if durable {
            file.sync_data()?;
        }
        Ok(self.written_bytes)
    }
}

/// A buffer. If it holds more than a few bytes, its memory is aligned to [`ALIGNMENT`].
struct AlignedBlock {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

impl std::fmt::Debug for AlignedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} of {BLOCK_BYTES} bytes)", self.length)
    }
}

impl AlignedBlock {
    fn new() -> Self {
        Self { memory: Vec::new(), begin: 0, length: 0 }
    }

    /// Makes room for more bytes.
    fn grow(&mut self, more: usize) {
        let wanted = self.length + more;
        if self.memory.len() > SMALL_BYTES {
            // The buffer has its full size.
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

    /// Copies as many bytes as fit into the buffer. Returns the number of copied bytes.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(BLOCK_BYTES - self.length);
        self.grow(taken);
        self.memory[self.begin + self.length..][..taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
        taken
    }
}

/// A thread that writes full blocks.
#[derive(Debug)]
struct DirectWriter {
    full: SyncSender<AlignedBlock>,
    empty: Receiver<AlignedBlock>,
    thread: JoinHandle<io::Result<File>>,
    /// The number of allocated blocks.
    blocks: usize,
}

/// The error that a caller gets if the writer thread has stopped after a failed write.
#[derive(Debug)]
struct WriterClosed;

impl DirectWriter {
    fn start(file: File) -> io::Result<Self> {
        let (full, to_write) = sync_channel(BLOCKS);
        let (give_back, empty) = sync_channel(BLOCKS);
        let thread = thread::Builder::new()
            .name("dump writer".into())
            .spawn(move || write_blocks(file, &to_write, &give_back))?;
        Ok(Self { full, empty, thread, blocks: 1 })
    }

    /// Passes a full block to the writer thread and receives an empty block. Waits if no block is empty.
    fn exchange(&mut self, block: &mut AlignedBlock) -> Result<(), WriterClosed> {
        let next = if self.blocks < BLOCKS {
            self.blocks += 1;
            AlignedBlock::new()
        } else {
            self.empty.recv().map_err(|_| WriterClosed)?
        };
        self.full.send(std::mem::replace(block, next)).map_err(|_| WriterClosed)
    }

    /// Waits until all blocks are written.
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
    to_write: &Receiver<AlignedBlock>,
    give_back: &SyncSender<AlignedBlock>,
) -> io::Result<File> {
    let mut direct = !is_far(&file) && set_direct(&file, true).is_ok();
    let (mut written_to, mut writeback_to) = (0, 0);
    while let Ok(mut block) = to_write.recv() {
        direct = write_block(&mut file, block.bytes(), direct)?;
        written_to += block.length as u64;
        if written_to - writeback_to >= WRITEBACK_BYTES {
            // With this advice Linux starts to write the cached pages of the range to disk, and does not
            // wait. Such cached pages exist if a file system accepts direct writes but caches them. On other
            // systems only the final sync takes longer.
            let length = NonZeroU64::new(written_to - writeback_to);
            let _ = fadvise(&file, writeback_to, length, Advice::DontNeed);
            writeback_to = written_to;
        }
        block.length = 0;
        // Ignore an error: after the last block there is no receiver of empty blocks any more.
        let _ = give_back.send(block);
    }
    Ok(file)
}

/// Writes a block. Returns whether the next block may be written directly too.
fn write_block(file: &mut File, mut bytes: &[u8], mut direct: bool) -> io::Result<bool> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // There are two causes for this error. The file system may accept the flag `O_DIRECT` but reject
            // direct writes. Or the disk was full for a moment, and only a part of the block was written,
            // which ends in the middle of a sector.
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
    // The kernel's type numbers have 32 bits. The type of this field depends on the platform.
    fstatfs(file).is_ok_and(|system| FAR.contains(&(system.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn in_folder(folder: &Path) -> (std::path::PathBuf, DirectIoFile) {
        let path = folder.join("file");
        let file = DirectIoFile::new(File::create(&path).expect("creating the file succeeds"));
        (path, file)
    }

    fn put(file: &mut DirectIoFile, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = file.write(bytes).expect("the write of the test's bytes succeeds");
            assert!(taken > 0);
            bytes = &bytes[taken..];
        }
    }

    /// Returns bytes in which no two blocks are equal.
    fn noise(length: usize) -> Vec<u8> {
        (0..length.div_ceil(8) as u64)
            .flat_map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
            .take(length)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

        #[test]
        fn written_bytes_are_in_the_file(
            lengths in prop::collection::vec(prop_oneof![0..100usize, 4000..5000usize, 16_000..17_000usize, 200_000..1_200_000usize], 0..8),
            durable in any::<bool>(),
            in_memory in any::<bool>(),
        ) {
            // Also test with a file system in memory, if there is one, because file systems differ in their
            // support for direct writes.
            let memory = Path::new("/dev/shm");
            let folder = match in_memory && memory.is_dir() {
                true => tempfile::tempdir_in(memory),
                false => tempfile::tempdir(),
            }.expect("creating a temporary folder succeeds");
            let (path, mut file) = in_folder(folder.path());
            let bytes = noise(lengths.iter().sum());
            let mut rest = &bytes[..];
            for length in lengths {
                let (piece, remaining) = rest.split_at(length);
                put(&mut file, piece);
                rest = remaining;
            }
            prop_assert_eq!(file.end(durable).expect("ending the file succeeds"), bytes.len() as u64);
            prop_assert!(std::fs::read(&path).expect("reading the file succeeds") == bytes);
        }
    }

    #[test]
    fn files_of_whole_blocks_are_complete() {
        let folder = tempfile::tempdir().expect("creating a temporary folder succeeds");
        for length in
            [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 4 * BLOCK_BYTES, 9 * BLOCK_BYTES + 4095]
        {
            let (path, mut file) = in_folder(folder.path());
            let bytes = noise(length);
            put(&mut file, &bytes);
            assert_eq!(file.end(true).expect("ending the file succeeds"), length as u64);
            assert!(
                std::fs::read(&path).expect("reading the file succeeds") == bytes,
                "the file of {length} bytes differs"
            );
        }
    }

    #[test]
    fn errors_of_the_writing_thread_are_reported() {
        // The kernel's device `/dev/full` behaves like a full disk.
        let full = File::options().write(true).open("/dev/full").expect("/dev/full exists");
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
        assert_eq!(refused.expect("a write to /dev/full fails").kind(), io::ErrorKind::StorageFull);
        assert!(file.write(&bytes).is_err() && file.end(true).is_err());
    }

    #[test]
    fn a_small_file_on_a_full_disk_fails_at_its_end() {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full exists");
        let mut file = DirectIoFile::new(full);
        put(&mut file, b"few");
        assert_eq!(
            file.end(true).expect_err("ending a file on /dev/full fails").kind(),
            io::ErrorKind::StorageFull
        );
    }

    #[test]
    fn an_unaligned_block_is_written_through_the_cache() {
        let folder = tempfile::tempdir().expect("creating a temporary folder succeeds");
        let path = folder.path().join("file");
        let mut file = File::create(&path).expect("creating the file succeeds");
        if set_direct(&file, true).is_err() {
            return;
        }
        let bytes = noise(100_003);
        // The block must be complete, whether or not the file system accepts direct writes.
        write_block(&mut file, &bytes[1..], true).expect("writing the block succeeds");
        assert!(std::fs::read(&path).expect("reading the file succeeds") == bytes[1..]);
    }
}
