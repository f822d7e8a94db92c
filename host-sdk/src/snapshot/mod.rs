//! Snapshots of a cell: the pages of its memory that differ from the base image, in the envelope that the core defines.
//! Taking an image out of an instance and putting it back is `instance`'s; keeping parked cells is `store`'s.

pub(crate) mod kept;
pub(crate) mod store;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use codemode_core::envelope::{Digest, Refused, Snapshot, Writer};
use sha2::{Digest as _, Sha256};

/// What pages are compared by. A parked cell consists of whole ones.
const PAGE_BYTES: usize = 4_096;

/// The memory of a fresh instance, above its stack.
#[derive(Debug, Clone)]
pub(crate) struct BaseImage {
    /// Where it starts.
    pub address: u32,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// The component that it belongs to.
    pub component: Digest,
}

impl BaseImage {
    /// What a cell starts with whose catalog is installed already, or empty.
    pub fn with<'a>(&'a self, catalog: Option<&'a CatalogImage>) -> StartImage<'a> {
        StartImage { base: self, catalog }
    }

    /// Whether a fresh instance has these bytes at this offset. Beyond the base everything is zero.
    fn holds(&self, offset: usize, content: &[u8]) -> bool {
        match self.bytes.get(offset..offset + content.len()) {
            Some(base) => base == content,
            None => content.iter().all(|byte| *byte == 0),
        }
    }
}

/// What installing a catalog changes in a fresh instance: restored into every cell of that catalog, instead of
/// installing it again.
#[derive(Debug)]
pub(crate) struct CatalogImage {
    /// Addresses and bytes.
    runs: Vec<(u32, Arc<[u8]>)>,
    /// The pages of all runs: offset in the image, run, offset in the run. Sorted.
    pages: Vec<(usize, usize, usize)>,
    memory_bytes: u64,
    /// The component that it belongs to.
    pub component: Digest,
    /// Of the component and all of the above.
    digest: Digest,
}

impl CatalogImage {
    /// The image of an instance in which nothing but the catalog was installed.
    pub fn new(base: &BaseImage, live: &[u8]) -> Self {
        let memory_bytes = u64::from(base.address) + live.len() as u64;
        let component = base.component;
        let mut image = Self { runs: Vec::new(), pages: Vec::new(), memory_bytes, component, digest: component };
        let mut hasher = Sha256::new();
        hasher.update(component);
        hasher.update(memory_bytes.to_le_bytes());
        for run in changed_runs(live, |start, content| base.holds(start, content)) {
            let (Ok(offset), Some(content)) = (u32::try_from(run.start), live.get(run.clone())) else { continue };
            let place = image.runs.len();
            image
                .pages
                .extend((0..content.len()).step_by(PAGE_BYTES).map(|within| (run.start + within, place, within)));
            hasher.update(offset.to_le_bytes());
            hasher.update(content);
            image.runs.push((base.address + offset, content.into()));
        }
        image.digest = hasher.finalize().into();
        image
    }

    /// The page at this offset, when installing the catalog changed it.
    fn page(&self, offset: usize) -> Option<&[u8]> {
        let place = self.pages.binary_search_by_key(&offset, |(offset, _, _)| *offset).ok()?;
        let (_, run, within) = self.pages.get(place)?;
        let (_, bytes) = self.runs.get(*run)?;
        bytes.get(*within..bytes.len().min(within + PAGE_BYTES))
    }
}

/// The memory that a cell starts with: the base image, and its catalog's pages over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartImage<'a> {
    /// Below.
    pub base: &'a BaseImage,
    /// Above, when there are tools.
    pub catalog: Option<&'a CatalogImage>,
}

impl StartImage<'_> {
    fn digest(&self) -> Digest {
        self.catalog.map_or(self.base.component, |catalog| catalog.digest)
    }

    fn holds(&self, offset: usize, content: &[u8]) -> bool {
        match self.catalog.and_then(|catalog| catalog.page(offset)) {
            Some(page) => page == content,
            None => self.base.holds(offset, content),
        }
    }

    /// The page at this offset, when it isn't all zeros.
    fn page(&self, offset: usize) -> Option<&[u8]> {
        let of_catalog = self.catalog.and_then(|catalog| catalog.page(offset));
        of_catalog.or_else(|| {
            let end = self.base.bytes.len().min(offset + PAGE_BYTES);
            self.base.bytes.get(offset..end)
        })
    }

    /// The snapshot of a live image: what differs from what the cell started with. `None` when it is longer than
    /// `bytes_max`.
    pub fn delta(&self, live: &[u8], bytes_max: u64) -> Option<Vec<u8>> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut writer = Writer::new(self.digest(), u64::from(self.base.address) + live.len() as u64);
        for run in changed_runs(live, |start, content| self.holds(start, content)) {
            if writer.len() + run.len() > bytes_max {
                return None;
            }
            if let (Ok(offset), Some(content)) = (u32::try_from(run.start), live.get(run)) {
                writer.push(self.base.address + offset, content);
            }
        }
        (writer.len() <= bytes_max).then(|| writer.finish())
    }

    /// Prepares to put the start image into a fresh instance; `None` when a fresh instance has it already.
    pub fn begin(&self) -> Option<RestoreCursor> {
        let catalog = self.catalog?;
        let pieces = catalog.runs.iter().map(|(address, bytes)| (*address, Piece::Whole(bytes.clone())));
        Some(RestoreCursor::new(pieces.collect(), catalog.memory_bytes))
    }

    /// Checks a snapshot of a cell that started with this image, and prepares to restore it.
    ///
    /// # Errors
    ///
    /// What [`Snapshot::check`] refuses.
    pub fn open(&self, snapshot: Arc<[u8]>) -> Result<RestoreCursor, Refused> {
        let checked = Snapshot::check(&snapshot, &self.digest(), self.base.address)?;
        let memory_bytes = checked.header().memory_bytes;
        let start = snapshot.as_ptr().addr();
        let mut pieces = self.begin().map(|cursor| cursor.pieces).unwrap_or_default();
        for run in checked.runs() {
            let offset = run.bytes.as_ptr().addr() - start;
            pieces.push_back((run.address, Piece::Part(snapshot.clone(), offset..offset + run.bytes.len())));
        }
        Ok(RestoreCursor::new(pieces, memory_bytes))
    }
}

/// Neighbouring pages of a live image that `is_held` doesn't know, as ranges.
fn changed_runs(live: &[u8], is_held: impl Fn(usize, &[u8]) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut changed = live
        .chunks(PAGE_BYTES)
        .enumerate()
        .map(|(page, content)| (page * PAGE_BYTES, content))
        .filter(move |(start, content)| !is_held(*start, content))
        .map(|(start, content)| start..start + content.len())
        .peekable();
    std::iter::from_fn(move || {
        let mut run = changed.next()?;
        while let Some(next) = changed.next_if(|next| next.start == run.end) {
            run.end = next.end;
        }
        Some(run)
    })
}

/// The bytes of one run.
#[derive(Debug)]
enum Piece {
    Whole(Arc<[u8]>),
    Part(Arc<[u8]>, Range<usize>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Part(_, range) => range.len(),
        }
    }

    fn bytes(self) -> Arc<[u8]> {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Part(bytes, range) => bytes.get(range).unwrap_or_default().into(),
        }
    }
}

/// Hands runs to an instance, one after the other.
#[derive(Debug)]
pub(crate) struct RestoreCursor {
    pieces: VecDeque<(u32, Piece)>,
    announced: Option<Piece>,
    /// The size that memory has to have.
    pub memory_bytes: u64,
}

impl RestoreCursor {
    fn new(pieces: VecDeque<(u32, Piece)>, memory_bytes: u64) -> Self {
        Self { pieces, announced: None, memory_bytes }
    }

    /// The next run: its address in the upper, its length in the lower half; zero when there is none.
    pub fn announce(&mut self) -> u64 {
        let Some((address, piece)) = self.pieces.pop_front() else { return 0 };
        let length = piece.len() as u64;
        self.announced = Some(piece);
        (u64::from(address) << u32::BITS) | length
    }

    /// The bytes of the run that was announced last.
    pub fn take(&mut self) -> Arc<[u8]> {
        self.announced.take().map(Piece::bytes).unwrap_or_default()
    }

    /// Whether everything was handed over.
    pub fn is_done(&self) -> bool {
        self.pieces.is_empty() && self.announced.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u32 = 1 << 20;

    fn base() -> BaseImage {
        BaseImage { address: BASE, bytes: vec![7; 3 * PAGE_BYTES].into(), component: [1; 32] }
    }

    fn runs(live: &[u8], bytes_max: u64) -> Result<Vec<(u32, usize)>, Refused> {
        let snapshot: Arc<[u8]> = base().with(None).delta(live, bytes_max).unwrap().into();
        base().with(None).open(snapshot).map(drained)
    }

    /// Offsets and lengths of all runs.
    fn drained(mut cursor: RestoreCursor) -> Vec<(u32, usize)> {
        let mut runs = Vec::new();
        loop {
            let run = cursor.announce();
            if run == 0 {
                assert!(cursor.is_done());
                return runs;
            }
            assert_eq!(cursor.take().len() as u64, run & u64::from(u32::MAX));
            runs.push((u32::try_from(run >> 32).unwrap() - BASE, usize::try_from(run & 0xFFFF_FFFF).unwrap()));
        }
    }

    #[test]
    fn only_pages_that_differ_are_kept_and_neighbours_are_joined() {
        let mut live = vec![7; 3 * PAGE_BYTES];
        live.resize(6 * PAGE_BYTES, 0);
        assert_eq!(runs(&live, u64::MAX), Ok(vec![]));
        live[0] = 1;
        live[PAGE_BYTES] = 1;
        live[4 * PAGE_BYTES] = 1;
        assert_eq!(runs(&live, u64::MAX), Ok(vec![(0, 2 * PAGE_BYTES), (4 * 4_096, PAGE_BYTES)]));
    }

    #[test]
    fn the_limit_counts_header_and_pages() {
        let mut live = vec![7; 3 * PAGE_BYTES];
        live[0] = 1;
        let length = base().with(None).delta(&live, u64::MAX).unwrap().len() as u64;
        assert_eq!(base().with(None).delta(&live, length).map(|snapshot| snapshot.len() as u64), Some(length));
        assert_eq!(base().with(None).delta(&live, length - 1), None);
    }

    #[test]
    fn a_cell_is_compared_with_its_catalog_and_restored_over_it() {
        let base = base();
        let mut live = vec![7; 3 * PAGE_BYTES];
        live[PAGE_BYTES] = 1;
        live.resize(4 * PAGE_BYTES, 2);
        let catalog = CatalogImage::new(&base, &live);
        let start = base.with(Some(&catalog));
        assert_eq!(drained(start.begin().unwrap()), [(4_096, PAGE_BYTES), (3 * 4_096, PAGE_BYTES)]);
        live[3 * PAGE_BYTES] = 3;
        let snapshot: Arc<[u8]> = start.delta(&live, u64::MAX).unwrap().into();
        let runs = drained(start.open(snapshot.clone()).unwrap());
        assert_eq!(runs, [(4_096, PAGE_BYTES), (3 * 4_096, PAGE_BYTES), (3 * 4_096, PAGE_BYTES)]);
        assert!(matches!(base.with(None).open(snapshot), Err(Refused::ForeignComponent)), "it belongs to its catalog");
    }

    #[test]
    fn a_page_that_became_zero_is_kept() {
        let mut live = vec![7; 3 * PAGE_BYTES];
        live[..PAGE_BYTES].fill(0);
        assert_eq!(runs(&live, u64::MAX), Ok(vec![(0, PAGE_BYTES)]));
    }
}
