//! A document taken apart just as far as an edit needs, and put together again as the server would.

use super::path::PathLeg;
use super::{DEPTH_MAX, JsonBinary, JsonNode, JsonPath, JsonValue, WHAT, is_inlined, key_order, tag};
use crate::WireError;

/// The most members that are held apart at once: a bound on memory, about 700 MB, beyond any document that a
/// server with the largest `max_allowed_packet` makes of members that are not tiny.
const MEMBERS_MAX: usize = 1 << 24;

/// A document whose containers come apart along the paths that are edited. All else stays as it is.
pub(super) struct Tree<'a> {
    root: Node<'a>,
    members: usize,
}

enum Node<'a> {
    /// Not taken apart.
    Whole(JsonValue<'a>),
    Array(Vec<Node<'a>>),
    /// Sorted by [`key_order`].
    Object(Vec<(Key<'a>, Node<'a>)>),
}

type Key<'a> = std::borrow::Cow<'a, [u8]>;

impl<'a> Tree<'a> {
    pub(super) fn new(document: JsonBinary<'a>) -> Self {
        Self { root: Node::Whole(document.root()), members: 0 }
    }

    /// Replaces the value at `path`, which must exist. Returns whether it does.
    pub(super) fn replace(&mut self, path: &JsonPath, value: JsonBinary<'a>) -> Result<bool, WireError> {
        match self.seek(&path.legs)? {
            Some(node) => {
                *node = Node::Whole(value.root());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Inserts a member that must not exist yet, or a cell. Returns whether that fits.
    pub(super) fn insert(&mut self, path: &JsonPath, value: JsonBinary<'a>) -> Result<bool, WireError> {
        let Some((leg, parents)) = path.legs.split_last() else { return Ok(false) };
        let value = Node::Whole(value.root());
        match (self.seek(parents)?, leg) {
            (Some(Node::Object(members)), PathLeg::Member(name)) => {
                match members.binary_search_by(|(key, _)| key_order(key, name)) {
                    Ok(_) => return Ok(false),
                    Err(index) => members.insert(index, (Key::Owned(name.clone()), value)),
                }
            }
            (Some(Node::Array(cells)), PathLeg::Cell(index)) => {
                cells.insert((*index).min(cells.len()), value)
            }
            (Some(Node::Array(cells)), PathLeg::CellFromLast(_)) => {
                // Before the first cell is where a distance from the last that is too large leads.
                let index = leg.index(cells.len()).unwrap_or(0);
                cells.insert(index, value);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Removes the member or cell at `path`, which must exist. Returns whether it does.
    pub(super) fn remove(&mut self, path: &JsonPath) -> Result<bool, WireError> {
        let Some((leg, parents)) = path.legs.split_last() else { return Ok(false) };
        Ok(match (self.seek(parents)?, leg) {
            (Some(Node::Object(members)), PathLeg::Member(name)) => {
                let found = members.binary_search_by(|(key, _)| key_order(key, name));
                found.map(|index| members.remove(index)).is_ok()
            }
            (Some(Node::Array(cells)), leg) => match leg.index(cells.len()) {
                Some(index) if index < cells.len() => {
                    cells.remove(index);
                    true
                }
                _ => false,
            },
            _ => false,
        })
    }

    /// The node at the end of `legs`, with every container on the way taken apart, the last one too.
    fn seek(&mut self, legs: &[PathLeg]) -> Result<Option<&mut Node<'a>>, WireError> {
        let mut node = &mut self.root;
        node.take_apart(&mut self.members)?;
        for leg in legs {
            let next = match (node, leg) {
                (Node::Object(members), PathLeg::Member(name)) => {
                    match members.binary_search_by(|(key, _)| key_order(key, name)) {
                        Ok(index) => members.get_mut(index).map(|(_, node)| node),
                        Err(_) => None,
                    }
                }
                (Node::Array(cells), leg) => leg.index(cells.len()).and_then(|index| cells.get_mut(index)),
                _ => None,
            };
            let Some(next) = next else { return Ok(None) };
            node = next;
            node.take_apart(&mut self.members)?;
        }
        Ok(Some(node))
    }

    /// The document in binary form, of at most `bytes_max` bytes.
    pub(super) fn encode(&self, bytes_max: usize) -> Result<Vec<u8>, WireError> {
        let mut encoder = Encoder { out: vec![0], bytes_max };
        let tag = match encoder.node(&self.root, false, 0)? {
            Some(tag) => tag,
            // Only a small container can be too big for its form, and none was asked for.
            None => {
                return Err(WireError::TooLarge { what: WHAT, size: u64::MAX, size_max: bytes_max as u64 });
            }
        };
        encoder.out[0] = tag;
        Ok(encoder.out)
    }
}

impl<'a> Node<'a> {
    /// Makes a container whose members can be edited out of one that is whole.
    fn take_apart(&mut self, members: &mut usize) -> Result<(), WireError> {
        let Self::Whole(value) = self else { return Ok(()) };
        let mut count = |length: usize| {
            *members += length;
            if *members > MEMBERS_MAX {
                return Err(WireError::TooLarge {
                    what: "JSON document in members",
                    size: *members as u64,
                    size_max: MEMBERS_MAX as u64,
                });
            }
            Ok(())
        };
        match value.decode()? {
            JsonNode::Array(array) => {
                count(array.len())?;
                let cells = (0..array.len()).map(|index| array.get(index).map(Node::Whole));
                *self = Self::Array(cells.collect::<Result<_, _>>()?);
            }
            JsonNode::Object(object) => {
                count(object.len())?;
                let members = (0..object.len()).map(|index| {
                    let (key, value) = object.member(index)?;
                    Ok((Key::Borrowed(key), Node::Whole(value)))
                });
                *self = Self::Object(members.collect::<Result<_, WireError>>()?);
            }
            _ => {}
        }
        Ok(())
    }
}

struct Encoder {
    out: Vec<u8>,
    bytes_max: usize,
}

impl Encoder {
    /// Appends `node` and returns its type byte; `None` if its container is `in_small` one, for which it is too big.
    fn node(&mut self, node: &Node<'_>, in_small: bool, depth: usize) -> Result<Option<u8>, WireError> {
        let (small, large) = match node {
            Node::Whole(value) => {
                let bytes = value.encoded()?;
                self.append(bytes)?;
                return Ok(Some(value.tag));
            }
            Node::Array(_) => (tag::SMALL_ARRAY, tag::LARGE_ARRAY),
            Node::Object(_) => (tag::SMALL_OBJECT, tag::LARGE_OBJECT),
        };
        if depth >= DEPTH_MAX {
            return Err(WireError::malformed(WHAT, format!("nested deeper than {DEPTH_MAX}")));
        }
        let start = self.out.len();
        if self.container(node, false, depth)? {
            return Ok(Some(small));
        }
        if in_small {
            return Ok(None);
        }
        self.out.truncate(start);
        match self.container(node, true, depth)? {
            true => Ok(Some(large)),
            false => Err(WireError::TooLarge { what: WHAT, size: u64::MAX, size_max: u64::from(u32::MAX) }),
        }
    }

    /// Appends a container in the small or the large form. Returns whether it fits the form.
    fn container(&mut self, node: &Node<'_>, large: bool, depth: usize) -> Result<bool, WireError> {
        let width = if large { 4 } else { 2 };
        let start = self.out.len();
        let count = match node {
            Node::Whole(_) => return Ok(false),
            Node::Array(cells) => cells.len(),
            Node::Object(members) => members.len(),
        };
        if !fits(count, large) {
            return Ok(false);
        }
        self.append(&(count as u32).to_le_bytes()[..width])?;
        let size_at = self.out.len();
        self.append(&[0; 4][..width])?;
        if let Node::Object(members) = node {
            let mut offset = 2 * width + count * (width + 2 + width + 1);
            for (key, _) in members {
                let Ok(length) = u16::try_from(key.len()) else {
                    return Err(WireError::malformed(WHAT, format!("a key of {} bytes", key.len())));
                };
                if !fits(offset, large) {
                    return Ok(false);
                }
                self.append(&(offset as u32).to_le_bytes()[..width])?;
                self.append(&length.to_le_bytes())?;
                offset += key.len();
            }
        }
        let mut entry = self.out.len();
        for _ in 0..count {
            self.append(&[0; 5][..width + 1])?;
        }
        if let Node::Object(members) = node {
            for (key, _) in members {
                self.append(key)?;
            }
        }
        let values: &mut dyn Iterator<Item = &Node<'_>> = match node {
            Node::Object(members) => &mut members.iter().map(|(_, value)| value),
            Node::Array(cells) => &mut cells.iter(),
            Node::Whole(_) => return Ok(false),
        };
        for value in values {
            if !self.value_entry(value, start, entry, large, depth)? {
                return Ok(false);
            }
            entry += width + 1;
        }
        let size = self.out.len() - start;
        if !fits(size, large) {
            return Ok(false);
        }
        self.out[size_at..size_at + width].copy_from_slice(&(size as u32).to_le_bytes()[..width]);
        Ok(true)
    }

    /// Fills the entry at `entry` of the container at `start` with `value`, which goes into it or behind all there is.
    fn value_entry(
        &mut self,
        value: &Node<'_>,
        start: usize,
        entry: usize,
        large: bool,
        depth: usize,
    ) -> Result<bool, WireError> {
        let width = if large { 4 } else { 2 };
        let (tag, content) = match value {
            Node::Whole(whole) if is_inlined(whole.tag, large) => {
                let mut content = [0; 4];
                let bytes = whole.encoded()?;
                content[..bytes.len()].copy_from_slice(bytes);
                // Signed numbers are widened to the entry.
                if whole.tag == tag::INT16 && bytes[1] & 0x80 != 0 {
                    content[2..].fill(0xff);
                }
                (whole.tag, content)
            }
            _ => {
                let offset = self.out.len() - start;
                if !fits(offset, large) {
                    return Ok(false);
                }
                let Some(tag) = self.node(value, !large, depth + 1)? else { return Ok(false) };
                (tag, (offset as u32).to_le_bytes())
            }
        };
        self.out[entry] = tag;
        self.out[entry + 1..=entry + width].copy_from_slice(&content[..width]);
        Ok(true)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let size = self.out.len().saturating_add(bytes.len());
        if size > self.bytes_max {
            return Err(WireError::TooLarge {
                what: WHAT,
                size: size as u64,
                size_max: self.bytes_max as u64,
            });
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

/// Whether a count, offset or size can be written in the form.
fn fits(number: usize, large: bool) -> bool {
    number <= if large { u32::MAX as usize } else { usize::from(u16::MAX) }
}
