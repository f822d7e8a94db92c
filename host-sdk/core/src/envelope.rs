//! The form of a snapshot: a header that says what it belongs to, then runs of memory that differ from the base image.
//! Everything is checked before a byte is used. Taking and applying memory is the host's business.

/// The format of what follows the header. Any change of meaning gets a new number.
pub const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 4] = *b"CMSN";
/// Bytes of a SHA-256 digest.
pub const DIGEST_BYTES: usize = 32;
/// Bytes before the first run.
pub const HEADER_BYTES: usize = 4 + 4 + DIGEST_BYTES + 8 + 8 + 8 + 8;
/// Bytes before the content of each run: its address and its length.
const RUN_HEADER_BYTES: usize = 8;

/// A digest.
pub type Digest = [u8; DIGEST_BYTES];

/// What a snapshot says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The component that the snapshot belongs to.
    pub component: Digest,
    /// The size of linear memory, in bytes.
    pub memory_bytes: u64,
    /// How many runs follow.
    pub run_count: u64,
}

/// Why a snapshot was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Shorter than its header, or than the header says.
    #[error("the snapshot is truncated: {found} of {expected} bytes")]
    Truncated {
        /// Bytes that are there.
        found: usize,
        /// Bytes that should be.
        expected: usize,
    },
    /// Doesn't start as a snapshot does.
    #[error("not a snapshot")]
    NotASnapshot,
    /// Another format.
    #[error("snapshot format {found}; this host reads format {FORMAT_VERSION}")]
    ForeignVersion {
        /// The format of the snapshot.
        found: u32,
    },
    /// Made by another build of the component.
    #[error("the snapshot belongs to another component")]
    ForeignComponent,
    /// The bytes aren't those that were written.
    #[error("the snapshot was altered")]
    Altered,
    /// A run lies outside of memory, overlaps another, or is out of order.
    #[error("a run of the snapshot is out of place")]
    MisplacedRun,
}

/// One run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// Where it goes.
    pub address: u32,
    /// What goes there.
    pub bytes: &'a [u8],
}

/// Writes a snapshot.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    header: Header,
}

impl Writer {
    /// Starts a snapshot of this component and memory size.
    pub fn new(component: Digest, memory_bytes: u64) -> Self {
        Self { bytes: vec![0; HEADER_BYTES], header: Header { component, memory_bytes, run_count: 0 } }
    }

    /// Adds a run. Runs come in order of their addresses.
    pub fn push(&mut self, address: u32, content: &[u8]) {
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        self.bytes.reserve(RUN_HEADER_BYTES + content.len());
        self.bytes.extend_from_slice(&address.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(content);
        self.header.run_count += 1;
    }

    /// How long the snapshot is so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it but its header.
    pub fn is_empty(&self) -> bool {
        self.header.run_count == 0
    }

    /// The finished snapshot.
    pub fn finish(mut self) -> Vec<u8> {
        let checksum = checksum(self.header.memory_bytes, self.bytes.get(HEADER_BYTES..).unwrap_or_default());
        let total = self.bytes.len() as u64;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        header.extend_from_slice(&self.header.component);
        header.extend_from_slice(&self.header.memory_bytes.to_le_bytes());
        header.extend_from_slice(&self.header.run_count.to_le_bytes());
        header.extend_from_slice(&total.to_le_bytes());
        header.extend_from_slice(&checksum.to_le_bytes());
        if let Some(place) = self.bytes.get_mut(..HEADER_BYTES) {
            place.copy_from_slice(&header);
        }
        self.bytes
    }
}

/// Guards against mistakes, not against forgery: a snapshot never leaves the process in this form. A sealed one is
/// authenticated by its encryption.
fn checksum(memory_bytes: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut words = bytes.chunks_exact(8);
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(PRIME).rotate_left(29);
    let mut sum = words
        .by_ref()
        .fold(mix(memory_bytes, bytes.len() as u64), |sum, word| mix(sum, u64::from_le_bytes(fixed(word))));
    for byte in words.remainder() {
        sum = mix(sum, u64::from(*byte));
    }
    sum ^ (sum >> 32)
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

/// A snapshot that was checked.
#[derive(Debug)]
pub struct Snapshot<'a> {
    header: Header,
    runs: &'a [u8],
}

impl<'a> Snapshot<'a> {
    /// Checks a snapshot for a host with this component: its form, version, component, size, checksum, and that every
    /// run lies in order between `floor` and the end of memory.
    ///
    /// # Errors
    ///
    /// One [`Refused`] for each of these.
    pub fn check(bytes: &'a [u8], component: &Digest, floor: u32) -> Result<Self, Refused> {
        let (head, runs) = bytes
            .split_at_checked(HEADER_BYTES)
            .ok_or(Refused::Truncated { found: bytes.len(), expected: HEADER_BYTES })?;
        let mut fields = Fields(head);
        if fields.take::<4>() != MAGIC {
            return Err(Refused::NotASnapshot);
        }
        let found = u32::from_le_bytes(fields.take());
        if found != FORMAT_VERSION {
            return Err(Refused::ForeignVersion { found });
        }
        if fields.take::<DIGEST_BYTES>() != *component {
            return Err(Refused::ForeignComponent);
        }
        let memory_bytes = u64::from_le_bytes(fields.take());
        let run_count = u64::from_le_bytes(fields.take());
        let expected = usize::try_from(u64::from_le_bytes(fields.take())).unwrap_or(usize::MAX);
        if bytes.len() != expected {
            return Err(Refused::Truncated { found: bytes.len(), expected });
        }
        if checksum(memory_bytes, runs) != u64::from_le_bytes(fields.take()) {
            return Err(Refused::Altered);
        }
        let snapshot = Self { header: Header { component: *component, memory_bytes, run_count }, runs };
        snapshot.check_places(floor)?;
        Ok(snapshot)
    }

    fn check_places(&self, floor: u32) -> Result<(), Refused> {
        let mut free_from = u64::from(floor);
        let mut count = 0;
        let mut runs = self.runs();
        for run in runs.by_ref() {
            let start = u64::from(run.address);
            let end = start + run.bytes.len() as u64;
            if start < free_from || end > self.header.memory_bytes || run.bytes.is_empty() {
                return Err(Refused::MisplacedRun);
            }
            free_from = end;
            count += 1;
        }
        if count == self.header.run_count && runs.0.is_empty() { Ok(()) } else { Err(Refused::MisplacedRun) }
    }

    /// What it says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its runs, in order.
    pub fn runs(&self) -> Runs<'a> {
        Runs(self.runs)
    }
}

/// The runs of a snapshot.
#[derive(Debug)]
pub struct Runs<'a>(&'a [u8]);

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let (head, rest) = self.0.split_at_checked(RUN_HEADER_BYTES)?;
        let mut fields = Fields(head);
        let address = u32::from_le_bytes(fields.take());
        let length = usize::try_from(u32::from_le_bytes(fields.take())).ok()?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Run { address, bytes })
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_at_checked(N).unwrap_or((&[], &[]));
        self.0 = rest;
        fixed(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENT: Digest = [7; DIGEST_BYTES];
    const FLOOR: u32 = 4_096;

    fn sample() -> Vec<u8> {
        let mut writer = Writer::new(COMPONENT, 65_536);
        writer.push(4_096, &[1; 40]);
        writer.push(8_192, &[2; 9]);
        writer.finish()
    }

    fn check(bytes: &[u8]) -> Result<usize, Refused> {
        Snapshot::check(bytes, &COMPONENT, FLOOR).map(|snapshot| snapshot.runs().count())
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = sample();
        let snapshot = Snapshot::check(&bytes, &COMPONENT, FLOOR).unwrap();
        assert_eq!(snapshot.header().memory_bytes, 65_536);
        let runs: Vec<Run<'_>> = snapshot.runs().collect();
        assert_eq!(runs, [Run { address: 4_096, bytes: &[1; 40] }, Run { address: 8_192, bytes: &[2; 9] }]);
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let bytes = sample();
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&altered).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = sample();
        for length in 0..bytes.len() {
            assert!(matches!(check(&bytes[..length]), Err(Refused::Truncated { .. })), "{length} bytes");
        }
    }

    #[test]
    fn foreign_snapshots_are_told_apart() {
        let bytes = sample();
        assert_eq!(Snapshot::check(&bytes, &[8; DIGEST_BYTES], FLOOR).unwrap_err(), Refused::ForeignComponent);
        let mut version = bytes.clone();
        version[4] = 9;
        assert_eq!(check(&version), Err(Refused::ForeignVersion { found: 9 }));
        let mut magic = bytes;
        magic[0] = b'X';
        assert_eq!(check(&magic), Err(Refused::NotASnapshot));
    }

    #[test]
    fn runs_outside_of_memory_are_refused() {
        let with = |runs: &[(u32, usize)]| {
            let mut writer = Writer::new(COMPONENT, 65_536);
            for (address, length) in runs {
                writer.push(*address, &vec![1; *length]);
            }
            check(&writer.finish())
        };
        assert_eq!(with(&[(65_530, 6)]), Ok(1));
        assert_eq!(with(&[(65_530, 7)]), Err(Refused::MisplacedRun));
        assert_eq!(with(&[(4_095, 1)]), Err(Refused::MisplacedRun));
        assert_eq!(with(&[(8_192, 1), (4_096, 1)]), Err(Refused::MisplacedRun));
        assert_eq!(with(&[(8_192, 0)]), Err(Refused::MisplacedRun));
    }
}
