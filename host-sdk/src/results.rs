//! The results of one run as its cells share them: the store behind a lock, fresh ids, and values that are kept because they
//! exceeded their budget. What fits and what is counted is decided in the core.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use codemode_core::cell::Reply;
use codemode_core::descriptor::{DESCRIPTOR_BYTES_MAX, Descriptor};
use codemode_core::ids::ResultId;
use codemode_core::output::{Overflow, reference};
use codemode_core::results::{NotSaved, Results, Saved};
use serde_json::value::RawValue;

/// Shared by the cells of a run; cloning it shares it.
#[derive(Clone)]
pub(crate) struct SharedResults(Arc<Mutex<Results>>);

/// A value that was kept without being asked. Whoever finds that nobody will learn its id releases it.
pub(crate) struct Retained {
    results: SharedResults,
    id: ResultId,
}

impl Retained {
    pub fn release(self) {
        self.results.lock().delete(self.id.as_str());
    }
}

impl SharedResults {
    /// For this many bytes of JSON.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Mutex::new(Results::new(bytes_max))))
    }

    fn lock(&self) -> MutexGuard<'_, Results> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, value: Arc<RawValue>, is_untrusted: bool) -> Result<ResultId, NotSaved> {
        let id = ResultId::new(uuid::Uuid::new_v4());
        self.lock().save(id.clone(), value, is_untrusted)?;
        Ok(id)
    }

    /// Keeps a value. The reply is its descriptor.
    pub fn save(&self, value: Box<RawValue>, is_untrusted: bool) -> Reply {
        let value: Arc<RawValue> = value.into();
        match self.keep(value.clone(), is_untrusted) {
            Ok(id) => match Descriptor::of(id.as_str(), &value).to_json(DESCRIPTOR_BYTES_MAX) {
                Some(descriptor) => Reply::Value(descriptor),
                None => Reply::failed("the result can't be described"),
            },
            Err(refusal) => Reply::failed(refusal.to_string()),
        }
    }

    /// Keeps a value that exceeded its budget, with a reference of at most `bytes_max` bytes in its place.
    pub fn retain(&self, value: &RawValue, is_untrusted: bool, bytes_max: u64) -> (Overflow, Option<Retained>) {
        let id = match self.keep(value.to_owned().into(), is_untrusted) {
            Ok(id) => id,
            Err(refusal) => return (Overflow::NotKept(refusal.to_string()), None),
        };
        let retained = Retained { results: self.clone(), id };
        match reference(retained.id.as_str(), value, bytes_max) {
            Some(reference) => (Overflow::Kept(reference), Some(retained)),
            None => {
                retained.release();
                (Overflow::NotKept(String::from("a reference to it doesn't fit either")), None)
            }
        }
    }

    /// A kept value.
    pub fn load(&self, id: &str) -> Option<Saved> {
        self.lock().load(id)
    }

    /// Forgets a kept value. Whether there was one.
    pub fn delete(&self, id: &str) -> bool {
        self.lock().delete(id)
    }

    /// Forgets everything; the run is over.
    pub fn close(&self) {
        self.lock().close();
    }
}
