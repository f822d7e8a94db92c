//! Snapshots of a cell: the pages of its memory that differ from the base image, in the envelope that the core defines.
//! Taking an image out of an instance and putting it back is `instance`'s; keeping parked cells is `store`'s.

pub(crate) mod store;

use std::sync::Arc;

use codemode_core::envelope::{Digest, Refused, Snapshot, Writer};

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
    /// The snapshot of a live image: what differs from this base. `None` when it is longer than `bytes_max`.
    pub fn delta(&self, live: &[u8], bytes_max: u64) -> Option<Vec<u8>> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut writer = Writer::new(self.component, u64::from(self.address) + live.len() as u64);
        let mut run = 0..0;
        for (page, content) in live.chunks(PAGE_BYTES).enumerate() {
            let start = page * PAGE_BYTES;
            if self.holds(start, content) {
                continue;
            }
            if run.end != start {
                self.flush(&mut writer, live, run);
                run = start..start;
            }
            run.end += content.len();
            if writer.len() + run.len() > bytes_max {
                return None;
            }
        }
        self.flush(&mut writer, live, run);
        (writer.len() <= bytes_max).then(|| writer.finish())
    }

    fn flush(&self, writer: &mut Writer, live: &[u8], run: std::ops::Range<usize>) {
        if let (Ok(offset), Some(content)) = (u32::try_from(run.start), live.get(run))
            && !content.is_empty()
        {
            writer.push(self.address + offset, content);
        }
    }

    /// Whether a fresh instance has these bytes at this offset. Beyond the base everything is zero.
    fn holds(&self, offset: usize, content: &[u8]) -> bool {
        match self.bytes.get(offset..offset + content.len()) {
            Some(base) => base == content,
            None => content.iter().all(|byte| *byte == 0),
        }
    }

    /// Checks a snapshot for this base and prepares to restore it.
    ///
    /// # Errors
    ///
    /// What [`Snapshot::check`] refuses.
    pub fn open(&self, snapshot: Arc<[u8]>) -> Result<RestoreCursor, Refused> {
        let checked = Snapshot::check(&snapshot, &self.component, self.address)?;
        let memory_bytes = checked.header().memory_bytes;
        let mut runs: Vec<(u32, std::ops::Range<usize>)> = Vec::new();
        let start = snapshot.as_ptr().addr();
        for run in checked.runs() {
            let offset = run.bytes.as_ptr().addr() - start;
            runs.push((run.address, offset..offset + run.bytes.len()));
        }
        runs.reverse();
        Ok(RestoreCursor { snapshot, runs, announced: 0..0, memory_bytes })
    }
}

/// Hands the runs of a checked snapshot to an instance, one after the other.
#[derive(Debug)]
pub(crate) struct RestoreCursor {
    snapshot: Arc<[u8]>,
    /// What is left, last first.
    runs: Vec<(u32, std::ops::Range<usize>)>,
    announced: std::ops::Range<usize>,
    /// The size that memory has to have.
    pub memory_bytes: u64,
}

impl RestoreCursor {
    /// The next run: its address in the upper, its length in the lower half; zero when there is none.
    pub fn announce(&mut self) -> u64 {
        let Some((address, range)) = self.runs.pop() else { return 0 };
        let length = range.len() as u64;
        self.announced = range;
        (u64::from(address) << u32::BITS) | length
    }

    /// The bytes of the run that was announced last.
    pub fn take(&mut self) -> Vec<u8> {
        let range = std::mem::take(&mut self.announced);
        self.snapshot.get(range).unwrap_or_default().to_vec()
    }

    /// Whether everything was handed over.
    pub fn is_done(&self) -> bool {
        self.runs.is_empty() && self.announced.is_empty()
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
        let snapshot: Arc<[u8]> = base().delta(live, bytes_max).unwrap().into();
        let mut cursor = base().open(snapshot)?;
        let mut runs = Vec::new();
        loop {
            let run = cursor.announce();
            if run == 0 {
                assert!(cursor.is_done());
                return Ok(runs);
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
        let length = base().delta(&live, u64::MAX).unwrap().len() as u64;
        assert_eq!(base().delta(&live, length).map(|snapshot| snapshot.len() as u64), Some(length));
        assert_eq!(base().delta(&live, length - 1), None);
    }

    #[test]
    fn a_page_that_became_zero_is_kept() {
        let mut live = vec![7; 3 * PAGE_BYTES];
        live[..PAGE_BYTES].fill(0);
        assert_eq!(runs(&live, u64::MAX), Ok(vec![(0, PAGE_BYTES)]));
    }
}
