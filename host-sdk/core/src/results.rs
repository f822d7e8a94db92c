//! The results store: values that a cell keeps for later cells of its run (B 3.5). It counts what it holds and never drops
//! anything to make room. What a value looks like from outside is in `descriptor`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::ids::ResultId;
use crate::limits;

/// A value that was saved.
#[derive(Debug, Clone)]
pub struct Saved {
    /// Compact JSON.
    pub value: Arc<RawValue>,
    /// Whether it may carry data from outside: whoever loads it may then as well, and a model should read it as data only.
    pub is_untrusted: bool,
}

/// Why a value can't be saved. Nothing was kept, and nothing dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSaved {
    /// There are as many values as there may be.
    #[error("{entries_max} results are saved, and no more may be; delete some with results.delete(id)")]
    Full {
        /// The limit.
        entries_max: u64,
    },
    /// The bytes of all values together would be too many.
    #[error(
        "the value has {bytes} bytes of JSON, and {left} of the {bytes_max} that saved results may have together are \
         left; save less, or delete some with results.delete(id)"
    )]
    TooLarge {
        /// Of the value.
        bytes: u64,
        /// How many would fit.
        left: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The run has ended, or its tools were replaced.
    #[error("the results of this run are closed")]
    Closed,
}

/// The saved values of one run.
///
/// ```
/// use codemode_core::{ids::ResultId, results::Results};
/// let value = serde_json::value::RawValue::from_string("[1]".into()).unwrap();
/// let mut results = Results::new(1_024);
/// results.save(ResultId::new("7"), value.into(), false).unwrap();
/// assert_eq!(results.load("result_7").unwrap().value.get(), "[1]");
/// assert!(results.delete("result_7") && !results.delete("result_7"));
/// ```
#[derive(Debug)]
pub struct Results {
    saved: BTreeMap<ResultId, Saved>,
    bytes: u64,
    bytes_max: u64,
    is_closed: bool,
}

impl Results {
    /// A store for this many bytes of JSON.
    pub fn new(bytes_max: u64) -> Self {
        Self { saved: BTreeMap::new(), bytes: 0, bytes_max, is_closed: false }
    }

    /// Keeps a value under an id that is fresh.
    ///
    /// # Errors
    ///
    /// A [`NotSaved`] for each case.
    pub fn save(&mut self, id: ResultId, value: Arc<RawValue>, is_untrusted: bool) -> Result<(), NotSaved> {
        let (bytes, left) = (length(&value), self.bytes_max - self.bytes);
        let entries_max = limits::fixed(&limits::SAVED_RESULTS);
        if self.is_closed {
            return Err(NotSaved::Closed);
        }
        if self.saved.len() as u64 >= entries_max {
            return Err(NotSaved::Full { entries_max });
        }
        if bytes > left {
            return Err(NotSaved::TooLarge { bytes, left, bytes_max: self.bytes_max });
        }
        self.bytes += bytes;
        let replaced = self.saved.insert(id, Saved { value, is_untrusted });
        assert!(replaced.is_none(), "ids of results are fresh, so that bytes are counted once");
        Ok(())
    }

    /// A saved value.
    pub fn load(&self, id: &str) -> Option<Saved> {
        self.saved.get(id).cloned()
    }

    /// Forgets a value. Whether there was one.
    pub fn delete(&mut self, id: &str) -> bool {
        let deleted = self.saved.remove(id);
        self.bytes -= deleted.as_ref().map_or(0, |saved| length(&saved.value));
        deleted.is_some()
    }

    /// Forgets everything, and saves nothing any more.
    pub fn close(&mut self) {
        self.saved.clear();
        (self.bytes, self.is_closed) = (0, true);
    }
}

fn length(value: &RawValue) -> u64 {
    value.get().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Arc<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap().into()
    }

    #[test]
    fn as_many_bytes_as_are_allowed_fit_and_one_more_does_not() {
        let mut results = Results::new(8);
        assert_eq!(results.save(ResultId::new(1), json("[1,2]"), false), Ok(()));
        assert_eq!(
            results.save(ResultId::new(2), json("1234"), false),
            Err(NotSaved::TooLarge { bytes: 4, left: 3, bytes_max: 8 })
        );
        assert_eq!(results.save(ResultId::new(3), json("123"), true), Ok(()));
        assert!(results.load("result_1").is_some_and(|saved| !saved.is_untrusted), "nothing was dropped for it");
        assert!(results.load("result_2").is_none());
        assert!(results.load("result_3").is_some_and(|saved| saved.is_untrusted));
        assert!(results.delete("result_1"));
        assert_eq!(results.save(ResultId::new(4), json("12345"), false), Ok(()));
    }

    #[test]
    fn the_last_entry_fits_and_one_more_does_not() {
        let mut results = Results::new(1_000);
        let entries_max = limits::fixed(&limits::SAVED_RESULTS);
        for number in 0..entries_max {
            assert_eq!(results.save(ResultId::new(number), json("1"), false), Ok(()));
        }
        assert_eq!(results.save(ResultId::new("more"), json("1"), false), Err(NotSaved::Full { entries_max }));
        assert!(results.delete("result_0"));
        assert_eq!(results.save(ResultId::new("more"), json("1"), false), Ok(()));
    }

    #[test]
    fn a_closed_store_has_nothing_and_takes_nothing() {
        let mut results = Results::new(8);
        results.save(ResultId::new(1), json("1"), false).unwrap();
        results.close();
        assert!(results.load("result_1").is_none());
        assert_eq!(results.save(ResultId::new(2), json("1"), false), Err(NotSaved::Closed));
    }
}
