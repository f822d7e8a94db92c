//! The snapshot of a cell while it is parked: as it was taken, or packed when the cell has idled for a while. What is packed
//! is the difference to what the cell started with, which is mostly zeros.

use std::ops::Range;
use std::sync::Arc;

use super::{PAGE_BYTES, StartImage};

/// A snapshot that is kept in memory.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// As it was taken.
    Raw(Arc<[u8]>),
    /// Smaller, for cells that nobody has asked for in a while.
    Packed(Arc<Packed>),
}

/// A packed snapshot.
#[derive(Debug)]
pub(crate) struct Packed {
    bytes: Box<[u8]>,
    raw_bytes: usize,
    /// Where the pages of memory are in the raw form: offset in the image, and place.
    pages: Vec<(u32, Range<u32>)>,
}

impl Kept {
    /// Bytes of the raw form.
    pub fn raw_bytes(&self) -> usize {
        match self {
            Self::Raw(bytes) => bytes.len(),
            Self::Packed(packed) => packed.raw_bytes,
        }
    }

    /// Bytes that it takes now.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Raw(bytes) => bytes.len(),
            Self::Packed(packed) => packed.bytes.len() + packed.pages.len() * size_of::<(u32, Range<u32>)>(),
        }
    }

    /// The raw form. `None` when a packed one is broken, which would be a mistake of ours: the snapshot's own checksum is
    /// verified afterwards in any case.
    pub fn into_raw(self, start: StartImage<'_>) -> Option<Arc<[u8]>> {
        match self {
            Self::Raw(bytes) => Some(bytes),
            Self::Packed(packed) => {
                let mut raw = lz4_flex::block::decompress(&packed.bytes, packed.raw_bytes).ok()?;
                start.difference(&packed.pages, &mut raw);
                Some(raw.into())
            }
        }
    }

    /// The packed form of a raw snapshot that started with `start`; `None` when it is packed already, or wouldn't get
    /// smaller.
    pub fn packed(&self, start: StartImage<'_>) -> Option<Self> {
        let Self::Raw(raw) = self else { return None };
        let pages = start.pages_of(raw)?;
        let mut different = raw.to_vec();
        start.difference(&pages, &mut different);
        let bytes = lz4_flex::block::compress(&different).into_boxed_slice();
        let packed = Self::Packed(Arc::new(Packed { bytes, raw_bytes: raw.len(), pages }));
        (packed.bytes() < raw.len()).then_some(packed)
    }

    /// Whether both are the same object.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Raw(one), Self::Raw(other)) => Arc::ptr_eq(one, other),
            (Self::Packed(one), Self::Packed(other)) => Arc::ptr_eq(one, other),
            (Self::Raw(_), Self::Packed(_)) | (Self::Packed(_), Self::Raw(_)) => false,
        }
    }
}

impl StartImage<'_> {
    /// The pages of a snapshot, which `check` has accepted or which was just taken.
    fn pages_of(&self, raw: &[u8]) -> Option<Vec<(u32, Range<u32>)>> {
        let checked = codemode_core::envelope::Snapshot::check(raw, &self.digest(), self.base.address).ok()?;
        let start = raw.as_ptr().addr();
        let mut pages = Vec::new();
        for run in checked.runs() {
            let offset = run.address.checked_sub(self.base.address)?;
            let place = run.bytes.as_ptr().addr() - start;
            for within in (0..run.bytes.len()).step_by(PAGE_BYTES) {
                let end = (within + PAGE_BYTES).min(run.bytes.len());
                let page = offset.checked_add(u32::try_from(within).ok()?)?;
                pages.push((page, u32::try_from(place + within).ok()?..u32::try_from(place + end).ok()?));
            }
        }
        Some(pages)
    }

    /// Replaces pages by their difference to the start image, and back.
    fn difference(&self, pages: &[(u32, Range<u32>)], snapshot: &mut [u8]) {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        for (offset, place) in pages {
            let (Some(base), Some(page)) =
                (self.page(size(*offset)), snapshot.get_mut(size(place.start)..size(place.end)))
            else {
                continue;
            };
            page.iter_mut().zip(base).for_each(|(byte, base)| *byte ^= base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{BaseImage, CatalogImage};

    #[test]
    fn packing_and_unpacking_give_the_same_bytes() {
        let base = BaseImage { address: 1 << 20, bytes: vec![7; 3 * PAGE_BYTES].into(), component: [1; 32] };
        let mut live = vec![7; 3 * PAGE_BYTES];
        live[PAGE_BYTES] = 1;
        live.resize(4 * PAGE_BYTES, 2);
        let catalog = CatalogImage::new(&base, &live);
        for start in [base.with(None), base.with(Some(&catalog))] {
            let mut changed = live.clone();
            changed[0] = 9;
            changed[PAGE_BYTES + 5] = 9;
            changed.resize(6 * PAGE_BYTES, 0);
            changed[5 * PAGE_BYTES] = 3;
            let raw: Arc<[u8]> = start.delta(&changed, u64::MAX).unwrap().into();
            let kept = Kept::Raw(raw.clone());
            let packed = kept.packed(start).unwrap();
            assert!(packed.bytes() * 10 < raw.len(), "{} of {}", packed.bytes(), raw.len());
            assert_eq!(packed.raw_bytes(), raw.len());
            assert!(packed.packed(start).is_none() && !packed.is(&kept));
            assert_eq!(packed.into_raw(start).unwrap(), raw);
        }
    }
}
