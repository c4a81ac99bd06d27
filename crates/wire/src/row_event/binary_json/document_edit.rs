//! Edits a JSON document. Expands only the containers that an edit changes, and encodes the result as the
//! server does.

use super::json_path::PathLeg;
use super::{DEPTH_MAX, JsonBinary, JsonNode, JsonPath, JsonValue, WHAT, is_inlined, key_order, tag};
use crate::WireError;

/// The maximum number of expanded members. It limits the memory to about 700 MB. Even with the largest
/// `max_allowed_packet`, only a document with tiny members reaches this limit.
const MEMBERS_MAX: usize = 1 << 24;

/// A document whose containers are expanded along the edited paths. All other values are unchanged.
pub(super) struct JsonTree<'a> {
    root: JsonTreeNode<'a>,
    members: usize,
}

enum JsonTreeNode<'a> {
    /// A value that is not expanded.
    Whole(JsonValue<'a>),
    Array(Vec<JsonTreeNode<'a>>),
    /// An expanded object. Its members are sorted by [`key_order`].
    Object(Vec<(MemberKey<'a>, JsonTreeNode<'a>)>),
}

type MemberKey<'a> = std::borrow::Cow<'a, [u8]>;

impl<'a> JsonTree<'a> {
    pub(super) fn new(document: JsonBinary<'a>) -> Self {
        Self { root: JsonTreeNode::Whole(document.root()), members: 0 }
    }

    /// Replaces the value at `path`. Returns whether there is a value at `path`.
    pub(super) fn replace(&mut self, path: &JsonPath, value: JsonBinary<'a>) -> Result<bool, WireError> {
        match self.seek(&path.legs)? {
            Some(node) => {
                *node = JsonTreeNode::Whole(value.root());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Inserts an object member that must not exist yet, or an array cell. Returns whether the value was
    /// inserted.
    pub(super) fn insert(&mut self, path: &JsonPath, value: JsonBinary<'a>) -> Result<bool, WireError> {
        let Some((leg, parents)) = path.legs.split_last() else { return Ok(false) };
        let value = JsonTreeNode::Whole(value.root());
        match (self.seek(parents)?, leg) {
            (Some(JsonTreeNode::Object(members)), PathLeg::Member(name)) => {
                match members.binary_search_by(|(key, _)| key_order(key, name)) {
                    Ok(_) => return Ok(false),
                    Err(index) => members.insert(index, (MemberKey::Owned(name.clone()), value)),
                }
            }
            (Some(JsonTreeNode::Array(cells)), PathLeg::Cell(index)) => {
                cells.insert((*index).min(cells.len()), value)
            }
            (Some(JsonTreeNode::Array(cells)), PathLeg::CellFromLast(_)) => {
                // If the distance from the last cell is larger than the array, the new cell becomes the first
                // cell.
                let index = leg.index(cells.len()).unwrap_or(0);
                cells.insert(index, value);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Removes the member or cell at `path`. Returns whether it existed.
    pub(super) fn remove(&mut self, path: &JsonPath) -> Result<bool, WireError> {
        let Some((leg, parents)) = path.legs.split_last() else { return Ok(false) };
        Ok(match (self.seek(parents)?, leg) {
            (Some(JsonTreeNode::Object(members)), PathLeg::Member(name)) => {
                let found = members.binary_search_by(|(key, _)| key_order(key, name));
                found.map(|index| members.remove(index)).is_ok()
            }
            (Some(JsonTreeNode::Array(cells)), leg) => match leg.index(cells.len()) {
                Some(index) if index < cells.len() => {
                    cells.remove(index);
                    true
                }
                _ => false,
            },
            _ => false,
        })
    }

    /// Returns the node at the end of `legs`. Expands every container on the path, including the last.
    fn seek(&mut self, legs: &[PathLeg]) -> Result<Option<&mut JsonTreeNode<'a>>, WireError> {
        let mut node = &mut self.root;
        node.take_apart(&mut self.members)?;
        for leg in legs {
            let next = match (node, leg) {
                (JsonTreeNode::Object(members), PathLeg::Member(name)) => {
                    match members.binary_search_by(|(key, _)| key_order(key, name)) {
                        Ok(index) => members.get_mut(index).map(|(_, node)| node),
                        Err(_) => None,
                    }
                }
                (JsonTreeNode::Array(cells), leg) => {
                    leg.index(cells.len()).and_then(|index| cells.get_mut(index))
                }
                _ => None,
            };
            let Some(next) = next else { return Ok(None) };
            node = next;
            node.take_apart(&mut self.members)?;
        }
        Ok(Some(node))
    }

    /// Returns the document in binary form. The result has at most `bytes_max` bytes.
    pub(super) fn encode(&self, bytes_max: usize) -> Result<Vec<u8>, WireError> {
        let mut encoder = JsonTreeEncoder { out: vec![0], bytes_max };
        let tag = match encoder.node(&self.root, false, 0)? {
            Some(tag) => tag,
            // This cannot happen: only a node inside a container in the small form can give `None`, and the
            // root is not inside a container.
            None => {
                return Err(WireError::TooLarge { what: WHAT, size: u64::MAX, size_max: bytes_max as u64 });
            }
        };
        encoder.out[0] = tag;
        Ok(encoder.out)
    }
}

impl<'a> JsonTreeNode<'a> {
    /// Expands an encoded container into its members.
    fn take_apart(&mut self, members: &mut usize) -> Result<(), WireError> {
        let Self::Whole(value) = self else { return Ok(()) };
        let mut count = |length: usize| {
            *members += length;
            if *members > MEMBERS_MAX {
                return Err(WireError::TooLarge {
                    what: "JSON document with expanded members",
                    size: *members as u64,
                    size_max: MEMBERS_MAX as u64,
                });
            }
            Ok(())
        };
        match value.decode()? {
            JsonNode::Array(array) => {
                count(array.len())?;
                let cells = (0..array.len()).map(|index| array.get(index).map(JsonTreeNode::Whole));
                *self = Self::Array(cells.collect::<Result<_, _>>()?);
            }
            JsonNode::Object(object) => {
                count(object.len())?;
                let members = (0..object.len()).map(|index| {
                    let (key, value) = object.member(index)?;
                    Ok((MemberKey::Borrowed(key), JsonTreeNode::Whole(value)))
                });
                *self = Self::Object(members.collect::<Result<_, WireError>>()?);
            }
            _ => {}
        }
        Ok(())
    }
}

struct JsonTreeEncoder {
    out: Vec<u8>,
    bytes_max: usize,
}

impl JsonTreeEncoder {
    /// Appends `node` and returns its type byte. `in_small` is true if the node is inside a container in the
    /// small form. If the node does not fit into the small form, returns `None`, because the container must
    /// then use the large form too.
    fn node(
        &mut self,
        node: &JsonTreeNode<'_>,
        in_small: bool,
        depth: usize,
    ) -> Result<Option<u8>, WireError> {
        let (small, large) = match node {
            JsonTreeNode::Whole(value) => {
                let bytes = value.encoded()?;
                self.append(bytes)?;
                return Ok(Some(value.tag));
            }
            JsonTreeNode::Array(_) => (tag::SMALL_ARRAY, tag::LARGE_ARRAY),
            JsonTreeNode::Object(_) => (tag::SMALL_OBJECT, tag::LARGE_OBJECT),
        };
        if depth >= DEPTH_MAX {
            return Err(WireError::malformed(
                WHAT,
                format!("the document is nested deeper than {DEPTH_MAX}"),
            ));
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

    /// Appends a container in the small or the large form. Returns whether the container fits the form.
    fn container(&mut self, node: &JsonTreeNode<'_>, large: bool, depth: usize) -> Result<bool, WireError> {
        let width = if large { 4 } else { 2 };
        let start = self.out.len();
        let count = match node {
            JsonTreeNode::Whole(_) => return Ok(false),
            JsonTreeNode::Array(cells) => cells.len(),
            JsonTreeNode::Object(members) => members.len(),
        };
        if !fits(count, large) {
            return Ok(false);
        }
        self.append(&(count as u32).to_le_bytes()[..width])?;
        let size_at = self.out.len();
        self.append(&[0; 4][..width])?;
        if let JsonTreeNode::Object(members) = node {
            let mut offset = 2 * width + count * (width + 2 + width + 1);
            for (key, _) in members {
                let Ok(length) = u16::try_from(key.len()) else {
                    return Err(WireError::malformed(
                        WHAT,
                        format!("the document has a key of {} bytes", key.len()),
                    ));
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
        if let JsonTreeNode::Object(members) = node {
            for (key, _) in members {
                self.append(key)?;
            }
        }
        let values: &mut dyn Iterator<Item = &JsonTreeNode<'_>> = match node {
            JsonTreeNode::Object(members) => &mut members.iter().map(|(_, value)| value),
            JsonTreeNode::Array(cells) => &mut cells.iter(),
            JsonTreeNode::Whole(_) => return Ok(false),
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

    /// Writes `value` into the entry at offset `entry` of the container at offset `start`. The value is
    /// inline, or it is appended at the end.
    fn value_entry(
        &mut self,
        value: &JsonTreeNode<'_>,
        start: usize,
        entry: usize,
        large: bool,
        depth: usize,
    ) -> Result<bool, WireError> {
        let width = if large { 4 } else { 2 };
        let (tag, content) = match value {
            JsonTreeNode::Whole(whole) if is_inlined(whole.tag, large) => {
                let mut content = [0; 4];
                let bytes = whole.encoded()?;
                content[..bytes.len()].copy_from_slice(bytes);
                // Extend the sign of a negative number to the size of the entry.
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

/// Returns whether the small or the large form can represent a count, offset or size.
fn fits(number: usize, large: bool) -> bool {
    number <= if large { u32::MAX as usize } else { usize::from(u16::MAX) }
}
