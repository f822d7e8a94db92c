//! Rejected promises that nobody has handled yet. A handler that comes late, also after a park, clears its entry.

use std::cell::RefCell;

use crate::engine::Value;

struct Rejection {
    promise: Value,
    reason: Value,
}

thread_local! {
    static UNHANDLED: RefCell<Vec<Rejection>> = const { RefCell::new(Vec::new()) };
}

/// A promise was rejected, and it has no handler.
pub fn remember(promise: Value, reason: Value) {
    UNHANDLED.with_borrow_mut(|all| all.push(Rejection { promise, reason }));
}

/// A promise that was rejected has got a handler.
pub fn forget(promise: &Value) {
    let handled = UNHANDLED.with_borrow_mut(|all| {
        let index = all.iter().position(|rejection| rejection.promise.is_same_object(promise))?;
        Some(all.remove(index))
    });
    // Dropped outside the borrow: the last reference of an object may go with it.
    drop(handled);
}

/// The reason of the first rejection that is still unhandled.
pub fn first_unhandled() -> Option<Value> {
    UNHANDLED.with_borrow(|all| all.first().map(|rejection| rejection.reason.clone()))
}
