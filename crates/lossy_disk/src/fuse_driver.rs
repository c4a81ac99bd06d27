//! The requests of the kernel, as operations on the model.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags};

use crate::delayed_work_thread::DelayedReplies;
use crate::disk_latency::{DiskQueue, DiskSpeed};
use crate::injected_errors::{DiskOperation, ErrorSchedule};
use crate::model::{AttributeChange, DiskModel, NewNode, NodeAttributes, NodeType, RenameMode};

/// How long the kernel may cache names and attributes. All changes come through the kernel.
const CACHED: Duration = Duration::from_secs(3600);
/// Block size that is reported to programs.
const BLOCK_BYTES: u32 = 4096;
/// Size that is reported to programs, in blocks: 64 GiB.
const BLOCKS: u64 = 16 << 20;

/// The disk, shared by the driver and the test.
#[derive(Debug)]
pub(crate) struct PoweredDisk {
    pub(crate) model: DiskModel,
    pub(crate) speed: DiskSpeed,
    pub(crate) queue: DiskQueue,
    pub(crate) errors: ErrorSchedule,
    /// Incremented by each power cut. A driver of an earlier mount answers all requests with EIO.
    pub(crate) power_cycle: u64,
    /// Whether the disk has power.
    pub(crate) is_powered: bool,
}

/// The file system of one mount.
pub(crate) struct FuseDriver {
    state: Arc<Mutex<PoweredDisk>>,
    power_cycle: u64,
    replies: DelayedReplies,
}

type DriverResult<T> = Result<T, rustix::io::Errno>;

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

impl PoweredDisk {
    fn check_power(&self, power_cycle: u64) -> DriverResult<()> {
        match self.is_powered && self.power_cycle == power_cycle {
            true => Ok(()),
            false => Err(rustix::io::Errno::IO),
        }
    }
}

impl FuseDriver {
    pub(crate) fn new(state: Arc<Mutex<PoweredDisk>>, replies: DelayedReplies) -> Self {
        let power_cycle = state.lock().power_cycle;
        Self { state, power_cycle, replies }
    }

    /// Runs an operation on the model, unless the power was cut.
    fn run<T>(&self, operation: impl FnOnce(&mut DiskModel) -> DriverResult<T>) -> Result<T, Errno> {
        let mut state = self.state.lock();
        state.check_power(self.power_cycle).and_then(|()| operation(&mut state.model)).map_err(errno)
    }

    /// Counts an operation. Returns when it completes, or its injected error.
    fn schedule(
        &self,
        operation: DiskOperation,
        latency: impl FnOnce(&DiskSpeed) -> Duration,
        bytes: u64,
    ) -> Result<Option<Instant>, Errno> {
        let mut state = self.state.lock();
        state.errors.check(operation).map_err(errno)?;
        let speed = state.speed;
        Ok(state.queue.completion(&speed, latency(&speed), bytes, Instant::now()))
    }

    fn attributes(&self, inode: u64) -> Result<FileAttr, Errno> {
        self.run(|model| model.attributes(inode)).map(|found| file_attributes(inode, &found))
    }

    /// Creates a node with `create`, and returns its attributes.
    fn create_node(
        &self,
        request: &Request,
        mode: u32,
        create: impl FnOnce(&mut DiskModel, NewNode) -> DriverResult<u64>,
    ) -> Result<FileAttr, Errno> {
        let new = NewNode { mode, uid: request.uid(), gid: request.gid(), now: SystemTime::now() };
        self.run(|model| {
            let inode = create(model, new)?;
            Ok(file_attributes(inode, &model.attributes(inode)?))
        })
    }

    /// Answers a sync when it completes. The data become durable at that moment, unless the power was cut
    /// before.
    fn sync(
        &self,
        bytes: u64,
        reply: ReplyEmpty,
        sync: impl FnOnce(&mut DiskModel) -> DriverResult<()> + Send + 'static,
    ) {
        let due = match self.schedule(DiskOperation::Sync, |speed| speed.sync, bytes) {
            Ok(due) => due,
            Err(error) => return reply.error(error),
        };
        let (state, power_cycle) = (Arc::clone(&self.state), self.power_cycle);
        self.replies.run_at(due, move || {
            let result = {
                let mut state = state.lock();
                state.check_power(power_cycle).and_then(|()| sync(&mut state.model))
            };
            reply_empty(result.map_err(errno), reply);
        });
    }
}

fn reply_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn reply_entry(result: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match result {
        Ok(attributes) => reply.entry(&CACHED, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn reply_attributes(result: Result<FileAttr, Errno>, reply: ReplyAttr) {
    match result {
        Ok(attributes) => reply.attr(&CACHED, &attributes),
        Err(error) => reply.error(error),
    }
}

fn file_type(node_type: NodeType) -> FileType {
    match node_type {
        NodeType::File => FileType::RegularFile,
        NodeType::Folder => FileType::Directory,
        NodeType::Link => FileType::Symlink,
        NodeType::Socket => FileType::Socket,
    }
}

fn file_attributes(inode: u64, found: &NodeAttributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: found.length,
        blocks: found.stored_bytes / 512,
        atime: found.accessed,
        mtime: found.modified,
        ctime: found.changed,
        crtime: found.changed,
        kind: file_type(found.node_type),
        perm: found.mode as u16,
        nlink: found.names,
        uid: found.uid,
        gid: found.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Whether a write with these flags goes to the disk at once.
fn is_direct(flags: OpenFlags) -> bool {
    let flags = OFlags::from_bits_retain(flags.0 as u32);
    flags.intersects(OFlags::DIRECT | OFlags::DSYNC)
}

/// Whether a write with these flags is durable when it returns.
fn is_synchronous(flags: OpenFlags) -> bool {
    OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC)
}

impl Filesystem for FuseDriver {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.run(|model| {
            let inode = model.lookup(parent.0, name)?;
            Ok(file_attributes(inode, &model.attributes(inode)?))
        });
        reply_entry(found, reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(self.attributes(inode.0), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let now = SystemTime::now();
        let time = |time: Option<TimeOrNow>| {
            time.map(|time| match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => now,
            })
        };
        let change = AttributeChange { mode, uid, gid, accessed: time(accessed), modified: time(modified) };
        let result = self.run(|model| {
            if let Some(length) = size {
                model.resize(inode.0, length, now)?;
            }
            model.change_attributes(inode.0, change, now)?;
            Ok(file_attributes(inode.0, &model.attributes(inode.0)?))
        });
        reply_attributes(result, reply);
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.run(|model| Ok(model.link_target(inode.0)?.to_owned())) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let result = match rustix::fs::FileType::from_raw_mode(mode) {
            rustix::fs::FileType::RegularFile => {
                self.create_node(request, mode, |model, new| model.create_file(parent.0, name, new))
            }
            rustix::fs::FileType::Socket => {
                self.create_node(request, mode, |model, new| model.create_socket(parent.0, name, new))
            }
            _ => Err(Errno::EPERM),
        };
        reply_entry(result, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let result = self.create_node(request, mode, |model, new| model.create_folder(parent.0, name, new));
        reply_entry(result, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str();
        let create = |model: &mut DiskModel, new| model.create_link(parent.0, name, target, new);
        reply_entry(self.create_node(request, 0o777, create), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.run(|model| model.remove_file(parent.0, name)), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.run(|model| model.remove_folder(parent.0, name)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::KeepExisting,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let result = self.run(|model| model.rename((parent.0, name), (new_parent.0, new_name), mode));
        reply_empty(result, reply);
    }

    fn link(&self, _: &Request, inode: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let result = self.run(|model| {
            model.add_name(inode.0, new_parent.0, new_name)?;
            Ok(file_attributes(inode.0, &model.attributes(inode.0)?))
        });
        reply_entry(result, reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.run(|model| model.open(inode.0)) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let result = self.create_node(request, mode, |model, new| {
            let inode = model.create_file(parent.0, name, new)?;
            model.open(inode)?;
            Ok(inode)
        });
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
        match result {
            Ok(attributes) => reply.created(&CACHED, &attributes, Generation(0), FileHandle(0), flags),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let result = self.run(|model| model.read(inode.0, offset, size as usize)).and_then(|bytes| {
            let due = self.schedule(DiskOperation::Read, |speed| speed.read, bytes.len() as u64)?;
            Ok((bytes, due))
        });
        match result {
            Ok((bytes, due)) => self.replies.run_at(due, move || reply.data(&bytes)),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let count = data.len();
        let due = match is_direct(flags) {
            true => self.schedule(DiskOperation::Write, |speed| speed.write, count as u64),
            false => {
                let checked = self.state.lock().errors.check(DiskOperation::Write);
                checked.map(|()| None).map_err(errno)
            }
        };
        let result = due.and_then(|due| {
            self.run(|model| {
                model.write(inode.0, offset, data, SystemTime::now())?;
                if is_synchronous(flags) {
                    model.sync_file(inode.0)?;
                }
                Ok(due)
            })
        });
        match result {
            Ok(due) => self.replies.run_at(due, move || reply.written(count as u32)),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let result = self.run(|model| {
            model.close(inode.0);
            Ok(())
        });
        reply_empty(result, reply);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let bytes = self.state.lock().model.unsynced_bytes(inode.0);
        self.sync(bytes as u64, reply, move |model| model.sync_file(inode.0));
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(0, reply, move |model| model.sync_folder(inode.0));
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut entries = match self.run(|model| model.entries(inode.0)) {
            Ok(entries) => entries,
            Err(error) => return reply.error(error),
        };
        // Numbers of files are never used again. So a program that removes files while it reads the folder
        // misses none.
        entries.sort_by_key(|(_, entry, _)| *entry);
        let dots = [(1, "."), (2, "..")].map(|(next, name)| (next, (name.into(), inode.0, NodeType::Folder)));
        let entries = entries.into_iter().map(|entry| (entry.1 + 1, entry));
        for (next, (name, entry, node_type)) in dots.into_iter().chain(entries) {
            if next > offset && reply.add(INodeNo(entry), next, file_type(node_type), name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS / 2, BLOCKS / 2, 1 << 20, 1 << 19, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let keeps_length = flags.contains(FallocateFlags::KEEP_SIZE);
        let zeroes = flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let known = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !known.contains(flags) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let checked = self.state.lock().errors.check(DiskOperation::Write).map_err(errno);
        let result = checked.and_then(|()| {
            self.run(|model| {
                let now = SystemTime::now();
                if zeroes {
                    model.zero(inode.0, offset, length, now)?;
                }
                if !keeps_length && model.attributes(inode.0)?.length < offset + length {
                    model.resize(inode.0, offset + length, now)?;
                }
                Ok(())
            })
        });
        reply_empty(result, reply);
    }
}
