//! Requests that the host answers at once, from what it has: the catalog, and the results of the run. Nothing here waits.

use std::sync::atomic::Ordering;

use codemode_core::cell::{Payload, Reply};

use crate::catalog::{Entry, reply};
use crate::session::{Current, Inner as Session};

/// A reply, and whether it carries data from outside.
pub(crate) struct Answer {
    pub reply: Reply,
    pub is_untrusted: bool,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply, is_untrusted: false }
    }
}

/// The answer to a request, for a cell that may have data from outside already.
pub(crate) fn answer(payload: Payload, session: &Session, current: &Current, is_untrusted: bool) -> Answer {
    let Current { catalog, counters, results } = current;
    let tools = &catalog.0;
    let described = |index: u32| {
        counters.descriptions.fetch_add(1, Ordering::Relaxed);
        tools.entry(index).is_some_and(Entry::is_member)
    };
    match payload {
        Payload::Search { query, limit } => {
            counters.searches.fetch_add(1, Ordering::Relaxed);
            let found = tools.search(&query, session.search_limit(limit));
            let is_untrusted = found.iter().any(|place| tools.entries.get(*place).is_some_and(Entry::is_member));
            Answer { reply: reply(&found), is_untrusted }
        }
        Payload::Describe { index } => Answer { is_untrusted: described(index), reply: tools.describe(index) },
        Payload::Declare { index } => Answer { is_untrusted: described(index), reply: tools.declaration(index) },
        Payload::Save { value } => results.save(value, is_untrusted).into(),
        Payload::Load { id } => match results.load(&id) {
            Some(saved) => Answer { reply: Reply::Value((*saved.value).to_owned()), is_untrusted: saved.is_untrusted },
            None => no_result(&id).into(),
        },
        Payload::Delete { id } if results.delete(&id) => reply(&true).into(),
        Payload::Delete { id } => no_result(&id).into(),
        Payload::Tool { .. }
        | Payload::Timer { .. }
        | Payload::Yield { .. }
        | Payload::Oversized
        | Payload::Refused { .. } => Reply::failed("nothing to answer").into(),
    }
}

fn no_result(id: &str) -> Reply {
    Reply::failed(format!("there is no saved result {id:?} in this run; results.save gives the ids"))
}
