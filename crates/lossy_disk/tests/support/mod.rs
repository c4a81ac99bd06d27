//! What a power cut may leave, by a simple rule: each sector of a file has the content that it had at some
//! moment since the last sync.

/// A file whose contents after each change since the last sync are known.
#[derive(Debug, Clone)]
pub struct ExpectedFile {
    versions: Vec<Vec<u8>>,
}

impl ExpectedFile {
    pub fn empty() -> Self {
        Self { versions: vec![Vec::new()] }
    }

    pub fn current(&self) -> &[u8] {
        self.versions.last().expect("a file has a version")
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut next = self.current().to_vec();
        change(&mut next);
        self.versions.push(next);
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.change(|contents| {
            let end = offset + bytes.len();
            contents.resize(contents.len().max(end), 0);
            contents[offset..end].copy_from_slice(bytes);
        });
    }

    pub fn resize(&mut self, length: usize) {
        self.change(|contents| contents.resize(length, 0));
    }

    pub fn sync(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
    }

    /// Whether all changes are synced.
    pub fn is_durable(&self) -> bool {
        self.versions.len() == 1
    }

    /// The file that was durable at the last sync.
    pub fn durable(&self) -> &[u8] {
        &self.versions[0]
    }

    /// Checks what a power cut has left. From now on that is durable.
    pub fn check_after_cut(&mut self, found: &[u8], sector_bytes: usize) -> Result<(), String> {
        let lengths = self.versions.iter().map(Vec::len);
        let (shortest, longest) = (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0));
        if found.len() < shortest || found.len() > longest {
            return Err(format!("length {} is not within {shortest}..={longest}", found.len()));
        }
        for (number, sector) in found.chunks(sector_bytes).enumerate() {
            let at = number * sector_bytes;
            let is_version = |version: &Vec<u8>| {
                (0..sector.len()).all(|index| sector[index] == version.get(at + index).copied().unwrap_or(0))
            };
            if !self.versions.iter().any(is_version) {
                return Err(format!("sector {number} is none of {} versions", self.versions.len()));
            }
        }
        self.versions = vec![found.to_vec()];
        Ok(())
    }
}
