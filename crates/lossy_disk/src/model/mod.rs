//! The state of the disk: files, folders, their names, and which changes are not durable. It does no I/O and
//! reads no clock.

mod directory_entries;
mod power_cut;
mod sparse_contents;
mod volatile_file;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::io::Errno;

use directory_entries::NameTable;
use power_cut::CutDecision;
pub use power_cut::{CutReport, PowerCut, UnsyncedLoss};
use volatile_file::VolatileFile;

/// Number of the root folder.
pub const ROOT: u64 = 1;

/// When a created, renamed or removed name is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameDurability {
    /// After a sync of the folder. The manual page of fsync(2) promises no more.
    FolderSync,
    /// After any sync of a file or folder, in the order of the changes, as on ext4 and XFS: a sync commits
    /// the journal. Database servers rely on it.
    Journal,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeType {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A Unix socket.
    Socket,
}

/// Attributes of a file or folder. They survive a power cut unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAttributes {
    /// What the node is.
    pub node_type: NodeType,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub length: u64,
    /// Stored bytes.
    pub stored_bytes: u64,
    /// Number of names.
    pub names: u32,
    /// Last access. Reads do not change it.
    pub accessed: SystemTime,
    /// Last change of the contents.
    pub modified: SystemTime,
    /// Last change of the contents or attributes.
    pub changed: SystemTime,
}

/// Attributes to change; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<SystemTime>,
    /// Last change of the contents.
    pub modified: Option<SystemTime>,
}

/// What happens to an existing file with the new name of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// The existing file is replaced.
    Replace,
    /// The rename fails.
    KeepExisting,
    /// The two files exchange their names.
    Exchange,
}

#[derive(Debug, Clone)]
struct Node {
    contents: NodeContents,
    mode: u32,
    uid: u32,
    gid: u32,
    accessed: SystemTime,
    modified: SystemTime,
    changed: SystemTime,
    /// Number of open handles.
    handles: u32,
}

#[derive(Debug, Clone)]
enum NodeContents {
    File(VolatileFile),
    Folder,
    Link(OsString),
    Socket,
}

/// A new file, folder or link: its owner and the time.
#[derive(Debug, Clone, Copy)]
pub struct NewNode {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The present time.
    pub now: SystemTime,
}

/// A disk. A clone is an independent disk with the same state; it shares the contents until they change.
#[derive(Debug, Clone)]
pub struct DiskModel {
    name_durability: NameDurability,
    nodes: BTreeMap<u64, Node>,
    names: NameTable,
    next_inode: u64,
    sequence: u64,
    /// Files that have lost a name and are removed when nothing refers to them.
    unlinked: BTreeSet<u64>,
}

type DiskResult<T> = Result<T, Errno>;

impl DiskModel {
    /// Returns an empty disk.
    pub fn new(name_durability: NameDurability) -> Self {
        let start = SystemTime::UNIX_EPOCH;
        let root = Node::new(NodeContents::Folder, NewNode { mode: 0o755, uid: 0, gid: 0, now: start });
        Self {
            name_durability,
            nodes: BTreeMap::from([(ROOT, root)]),
            names: NameTable::default(),
            next_inode: ROOT + 1,
            sequence: 0,
            unlinked: BTreeSet::new(),
        }
    }

    fn node(&self, inode: u64) -> DiskResult<&Node> {
        self.nodes.get(&inode).ok_or(Errno::NOENT)
    }

    fn node_mut(&mut self, inode: u64) -> DiskResult<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(Errno::NOENT)
    }

    fn file(&self, inode: u64) -> DiskResult<&VolatileFile> {
        match &self.node(inode)?.contents {
            NodeContents::File(file) => Ok(file),
            NodeContents::Folder => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    fn file_mut(&mut self, inode: u64) -> DiskResult<&mut VolatileFile> {
        match &mut self.node_mut(inode)?.contents {
            NodeContents::File(file) => Ok(file),
            NodeContents::Folder => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Returns the file or folder of a name.
    ///
    /// # Errors
    /// ENOENT.
    pub fn lookup(&self, folder: u64, name: &OsStr) -> DiskResult<u64> {
        self.names.get(folder, name).ok_or(Errno::NOENT)
    }

    /// Returns the attributes of a file or folder.
    ///
    /// # Errors
    /// ENOENT.
    pub fn attributes(&self, inode: u64) -> DiskResult<NodeAttributes> {
        let node = self.node(inode)?;
        let (length, stored_bytes) = match &node.contents {
            NodeContents::File(file) => (file.length(), file.stored_bytes()),
            NodeContents::Link(to) => (to.len() as u64, 0),
            _ => (0, 0),
        };
        Ok(NodeAttributes {
            node_type: node.node_type(),
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            length,
            stored_bytes,
            names: if node.node_type() == NodeType::Folder { 2 } else { self.names.count(inode) },
            accessed: node.accessed,
            modified: node.modified,
            changed: node.changed,
        })
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// ENOENT.
    pub fn change_attributes(
        &mut self,
        inode: u64,
        change: AttributeChange,
        now: SystemTime,
    ) -> DiskResult<()> {
        let node = self.node_mut(inode)?;
        node.mode = change.mode.map_or(node.mode, |mode| mode & 0o7777);
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        node.accessed = change.accessed.unwrap_or(node.accessed);
        node.modified = change.modified.unwrap_or(node.modified);
        node.changed = now;
        Ok(())
    }

    /// Returns the names in a folder, with their files.
    ///
    /// # Errors
    /// ENOENT.
    pub fn entries(&self, folder: u64) -> DiskResult<Vec<(OsString, u64, NodeType)>> {
        self.node(folder)?;
        let entries = self.names.entries(folder);
        entries.map(|(name, inode)| Ok((name.to_owned(), inode, self.node(inode)?.node_type()))).collect()
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// ENOENT; EINVAL if the node is no link.
    pub fn link_target(&self, inode: u64) -> DiskResult<&OsStr> {
        match &self.node(inode)?.contents {
            NodeContents::Link(to) => Ok(to),
            _ => Err(Errno::INVAL),
        }
    }

    fn add(&mut self, folder: u64, name: &OsStr, contents: NodeContents, new: NewNode) -> DiskResult<u64> {
        self.node(folder)?;
        if self.lookup(folder, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.nodes.insert(inode, Node::new(contents, new));
        let sequence = self.next_sequence();
        self.names.change(sequence, vec![((folder, name.to_owned()), Some(inode))]);
        Ok(inode)
    }

    /// Creates an empty file.
    ///
    /// # Errors
    /// EEXIST, ENOENT.
    pub fn create_file(&mut self, folder: u64, name: &OsStr, new: NewNode) -> DiskResult<u64> {
        self.add(folder, name, NodeContents::File(VolatileFile::default()), new)
    }

    /// Creates a folder.
    ///
    /// # Errors
    /// EEXIST, ENOENT.
    pub fn create_folder(&mut self, folder: u64, name: &OsStr, new: NewNode) -> DiskResult<u64> {
        self.add(folder, name, NodeContents::Folder, new)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// EEXIST, ENOENT.
    pub fn create_link(&mut self, folder: u64, name: &OsStr, to: &OsStr, new: NewNode) -> DiskResult<u64> {
        self.add(folder, name, NodeContents::Link(to.to_owned()), new)
    }

    /// Creates a Unix socket.
    ///
    /// # Errors
    /// EEXIST, ENOENT.
    pub fn create_socket(&mut self, folder: u64, name: &OsStr, new: NewNode) -> DiskResult<u64> {
        self.add(folder, name, NodeContents::Socket, new)
    }

    /// Gives a file another name (a hard link).
    ///
    /// # Errors
    /// EEXIST, ENOENT; EPERM for a folder.
    pub fn add_name(&mut self, inode: u64, folder: u64, name: &OsStr) -> DiskResult<()> {
        if self.node(inode)?.node_type() == NodeType::Folder {
            return Err(Errno::PERM);
        }
        if self.lookup(folder, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let sequence = self.next_sequence();
        self.names.change(sequence, vec![((folder, name.to_owned()), Some(inode))]);
        Ok(())
    }

    /// Removes a name of a file.
    ///
    /// # Errors
    /// ENOENT; EISDIR for a folder.
    pub fn remove_file(&mut self, folder: u64, name: &OsStr) -> DiskResult<()> {
        let inode = self.lookup(folder, name)?;
        if self.node(inode)?.node_type() == NodeType::Folder {
            return Err(Errno::ISDIR);
        }
        self.remove_name(folder, name, inode);
        Ok(())
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY.
    pub fn remove_folder(&mut self, folder: u64, name: &OsStr) -> DiskResult<()> {
        let inode = self.lookup(folder, name)?;
        self.check_empty_folder(inode)?;
        self.remove_name(folder, name, inode);
        Ok(())
    }

    fn check_empty_folder(&self, inode: u64) -> DiskResult<()> {
        match self.node(inode)?.node_type() {
            NodeType::Folder if self.names.entries(inode).next().is_some() => Err(Errno::NOTEMPTY),
            NodeType::Folder => Ok(()),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn remove_name(&mut self, folder: u64, name: &OsStr, inode: u64) {
        let sequence = self.next_sequence();
        self.names.change(sequence, vec![((folder, name.to_owned()), None)]);
        self.unlinked.insert(inode);
    }

    /// Renames a file or folder, in one step.
    ///
    /// # Errors
    /// ENOENT, EEXIST, ENOTEMPTY, ENOTDIR, EISDIR.
    pub fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr), mode: RenameMode) -> DiskResult<()> {
        let moved = self.lookup(from.0, from.1)?;
        let existing = self.lookup(to.0, to.1).ok();
        self.node(to.0)?;
        let other = match (existing, mode) {
            (Some(_), RenameMode::KeepExisting) => return Err(Errno::EXIST),
            (None, RenameMode::Exchange) => return Err(Errno::NOENT),
            (Some(other), RenameMode::Exchange) => Some(other),
            // Both names are of the same file, so the rename changes nothing.
            (Some(other), _) if other == moved => return Ok(()),
            (Some(other), _) => {
                let is_folder = |inode| Ok::<_, Errno>(self.node(inode)?.node_type() == NodeType::Folder);
                match (is_folder(moved)?, is_folder(other)?) {
                    (true, _) => self.check_empty_folder(other)?,
                    (false, true) => return Err(Errno::ISDIR),
                    (false, false) => {}
                }
                self.unlinked.insert(other);
                None
            }
            (None, _) => None,
        };
        let sequence = self.next_sequence();
        let slots = vec![((from.0, from.1.to_owned()), other), ((to.0, to.1.to_owned()), Some(moved))];
        self.names.change(sequence, slots);
        Ok(())
    }

    /// Counts an open handle. A file with handles can be used after its last name is removed.
    ///
    /// # Errors
    /// ENOENT.
    pub fn open(&mut self, inode: u64) -> DiskResult<()> {
        self.node_mut(inode)?.handles += 1;
        Ok(())
    }

    /// Counts a closed handle.
    pub fn close(&mut self, inode: u64) {
        if let Ok(node) = self.node_mut(inode) {
            node.handles = node.handles.saturating_sub(1);
        }
        self.remove_unlinked();
    }

    /// Returns up to `length` bytes of a file; fewer at its end.
    ///
    /// # Errors
    /// ENOENT; EISDIR for a folder.
    pub fn read(&self, inode: u64, offset: u64, length: usize) -> DiskResult<Vec<u8>> {
        Ok(self.file(inode)?.read(offset, length))
    }

    /// Writes to a file. The bytes are not durable before a sync.
    ///
    /// # Errors
    /// ENOENT; EISDIR for a folder.
    pub fn write(&mut self, inode: u64, offset: u64, bytes: &[u8], now: SystemTime) -> DiskResult<()> {
        let sequence = self.next_sequence();
        self.file_mut(inode)?.write(sequence, offset, bytes);
        self.touch(inode, now)
    }

    /// Cuts a file, or extends it by zeros.
    ///
    /// # Errors
    /// ENOENT; EISDIR for a folder.
    pub fn resize(&mut self, inode: u64, length: u64, now: SystemTime) -> DiskResult<()> {
        let sequence = self.next_sequence();
        self.file_mut(inode)?.resize(sequence, length);
        self.touch(inode, now)
    }

    /// Replaces a part of a file by zeros. The length does not change.
    ///
    /// # Errors
    /// ENOENT; EISDIR for a folder.
    pub fn zero(&mut self, inode: u64, offset: u64, length: u64, now: SystemTime) -> DiskResult<()> {
        let sequence = self.next_sequence();
        self.file_mut(inode)?.zero(sequence, offset, length);
        self.touch(inode, now)
    }

    fn touch(&mut self, inode: u64, now: SystemTime) -> DiskResult<()> {
        let node = self.node_mut(inode)?;
        (node.modified, node.changed) = (now, now);
        Ok(())
    }

    /// Returns the number of bytes that were written to a file since its last sync.
    pub fn unsynced_bytes(&self, inode: u64) -> usize {
        self.file(inode).map_or(0, VolatileFile::unsynced_bytes)
    }

    /// Makes contents and length of a file durable.
    ///
    /// # Errors
    /// ENOENT; EISDIR for a folder.
    pub fn sync_file(&mut self, inode: u64) -> DiskResult<()> {
        self.file_mut(inode)?.sync();
        if self.name_durability == NameDurability::Journal {
            self.names.sync();
        }
        self.remove_unlinked();
        Ok(())
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// ENOENT.
    pub fn sync_folder(&mut self, folder: u64) -> DiskResult<()> {
        self.node(folder)?;
        match self.name_durability {
            NameDurability::Journal => self.names.sync(),
            NameDurability::FolderSync => self.names.sync_folder(folder),
        }
        self.remove_unlinked();
        Ok(())
    }

    /// Makes everything durable, as sync(2).
    pub fn sync_everything(&mut self) {
        for node in self.nodes.values_mut() {
            if let NodeContents::File(file) = &mut node.contents {
                file.sync();
            }
        }
        self.names.sync();
        self.remove_unlinked();
    }

    /// Removes files that have no name and no handle, and get no name back at a power cut.
    fn remove_unlinked(&mut self) {
        if self.unlinked.is_empty() {
            return;
        }
        for inode in std::mem::take(&mut self.unlinked) {
            let Some(node) = self.nodes.get(&inode) else { continue };
            if self.names.refers_to(inode) || node.handles > 0 {
                self.unlinked.insert(inode);
            } else {
                self.nodes.remove(&inode);
            }
        }
    }

    /// Cuts the power: what was not synced is lost, or a part of it. All that is left is durable. No file is
    /// open.
    pub fn cut_power(&mut self, cut: &PowerCut) -> CutReport {
        let mut random = StdRng::seed_from_u64(cut.seed);
        let decision = self.decide(cut, &mut random);
        let mut report = CutReport { unsynced_names: self.names.unsynced_count(), ..CutReport::default() };
        for node in self.nodes.values_mut() {
            node.handles = 0;
            if let NodeContents::File(file) = &mut node.contents
                && file.newest_change().is_some()
            {
                report.unsynced_files += 1;
                file.cut_power(&decision, &mut random);
            }
        }
        report.lost_names = self.names.cut_power(decision.name_limit());
        self.remove_unreachable();
        report
    }

    fn decide(&self, cut: &PowerCut, random: &mut StdRng) -> CutDecision {
        let files = self.nodes.values().filter_map(|node| match &node.contents {
            NodeContents::File(file) => Some((file.oldest_change()?, file.newest_change()?)),
            _ => None,
        });
        let names = self.names.oldest_change().zip(self.names.newest_change());
        let (oldest, newest) = files
            .chain(names)
            .fold((self.sequence + 1, self.sequence), |all, one| (all.0.min(one.0), all.1.max(one.1)));
        CutDecision::new(cut, oldest, newest, random)
    }

    /// Removes everything that cannot be reached from the root.
    fn remove_unreachable(&mut self) {
        let mut found = BTreeSet::from([ROOT]);
        let mut folders = vec![ROOT];
        while let Some(folder) = folders.pop() {
            for (_, inode) in self.names.entries(folder) {
                if found.insert(inode) {
                    folders.push(inode);
                }
            }
        }
        self.nodes.retain(|inode, _| found.contains(inode));
        self.names.retain_folders(|folder| found.contains(&folder));
        self.unlinked.clear();
    }
}

impl Node {
    fn new(contents: NodeContents, new: NewNode) -> Self {
        let NewNode { mode, uid, gid, now } = new;
        let mode = mode & 0o7777;
        Self { contents, mode, uid, gid, accessed: now, modified: now, changed: now, handles: 0 }
    }

    fn node_type(&self) -> NodeType {
        match self.contents {
            NodeContents::File(_) => NodeType::File,
            NodeContents::Folder => NodeType::Folder,
            NodeContents::Link(_) => NodeType::Link,
            NodeContents::Socket => NodeType::Socket,
        }
    }
}
