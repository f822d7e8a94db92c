//! Which calls of a session's tools may run beside each other: a sequential one waits for all that came before it and holds up
//! all that come after it (B 1.10.61). A call that would wait for itself, because a cell that its tool runs makes it, is
//! refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// One for each session.
#[derive(Clone, Default)]
pub(crate) struct Turnstile(Arc<RwLock<()>>);

/// The right to run, given back when the last clone is dropped.
pub(crate) struct Pass {
    turnstile: Turnstile,
    is_alone: bool,
    _lock: Lock,
}

#[expect(dead_code, reason = "guards do their work when they are dropped")]
enum Lock {
    Alone(OwnedRwLockWriteGuard<()>),
    Shared(OwnedRwLockReadGuard<()>),
}

/// A place in the queue, taken already.
pub(crate) enum Entry {
    Open(Arc<Pass>),
    Queued(Pin<Box<dyn Future<Output = Arc<Pass>> + Send>>),
}

/// The call would wait for a call that waits for it.
pub(crate) struct Deadlock;

/// The passes of the calls that a cell runs inside of.
#[derive(Clone)]
pub(crate) struct Lineage(Arc<[Weak<Pass>]>);

impl Default for Lineage {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

tokio::task_local! {
    static INSIDE: Lineage;
}

impl Turnstile {
    /// Takes a place. Calls get theirs in the order in which they come here.
    ///
    /// # Errors
    ///
    /// [`Deadlock`] when a call that the caller runs inside of would have to end first.
    pub fn enter(&self, is_alone: bool, inside: &Lineage) -> Result<Entry, Deadlock> {
        self.check(is_alone, inside)?;
        if let Some(outer) = inside.holder(self) {
            // Both share: the outer one's place is kept until both are done.
            return Ok(Entry::Open(outer));
        }
        if !is_alone && let Ok(lock) = self.0.clone().try_read_owned() {
            return Ok(Entry::Open(self.pass(false, Lock::Shared(lock))));
        }
        let turnstile = self.clone();
        let mut queued: Pin<Box<dyn Future<Output = Arc<Pass>> + Send>> = Box::pin(async move {
            let lock = turnstile.0.clone();
            let lock =
                if is_alone { Lock::Alone(lock.write_owned().await) } else { Lock::Shared(lock.read_owned().await) };
            turnstile.pass(is_alone, lock)
        });
        // The first poll takes the place. Nobody is woken by it: whoever waits polls again.
        match queued.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(pass) => Ok(Entry::Open(pass)),
            Poll::Pending => Ok(Entry::Queued(queued)),
        }
    }

    /// Whether a call could enter some time.
    ///
    /// # Errors
    ///
    /// As [`Turnstile::enter`].
    pub fn check(&self, is_alone: bool, inside: &Lineage) -> Result<(), Deadlock> {
        match inside.holder(self) {
            Some(outer) if is_alone || outer.is_alone => Err(Deadlock),
            Some(_) | None => Ok(()),
        }
    }

    fn pass(&self, is_alone: bool, lock: Lock) -> Arc<Pass> {
        Arc::new(Pass { turnstile: self.clone(), is_alone, _lock: lock })
    }
}

impl Lineage {
    /// That of the code which runs now: of a tool's call, or of nobody's.
    pub fn current() -> Self {
        INSIDE.try_with(Clone::clone).unwrap_or_default()
    }

    /// One call further in.
    pub fn with(&self, pass: &Arc<Pass>) -> Self {
        self.and(&Self(Arc::new([Arc::downgrade(pass)])))
    }

    /// Those of both, as far as they are held still: of a cell that was started inside of one call and is waited for inside of
    /// another.
    pub fn and(&self, other: &Self) -> Self {
        let is_known = |pass: &Weak<Pass>| self.0.iter().any(|known| known.ptr_eq(pass));
        let passes = self.0.iter().chain(other.0.iter().filter(|pass| !is_known(pass)));
        Self(passes.filter(|pass| pass.strong_count() > 0).cloned().collect())
    }

    /// Runs a step of a tool's call, so that cells which it starts know what they run inside of.
    pub fn scope<T>(&self, step: impl FnOnce() -> T) -> T {
        INSIDE.sync_scope(self.clone(), step)
    }

    /// The pass of this turnstile that somebody further out holds still.
    fn holder(&self, turnstile: &Turnstile) -> Option<Arc<Pass>> {
        let mut held = self.0.iter().filter_map(Weak::upgrade);
        held.find(|pass| Arc::ptr_eq(&pass.turnstile.0, &turnstile.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(entry: Result<Entry, Deadlock>) -> Option<Arc<Pass>> {
        match entry {
            Ok(Entry::Open(pass)) => Some(pass),
            Ok(Entry::Queued(_)) | Err(Deadlock) => None,
        }
    }

    fn next(queued: &mut Result<Entry, Deadlock>) -> Option<Arc<Pass>> {
        let Ok(Entry::Queued(queued)) = queued else { return None };
        match queued.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(pass) => Some(pass),
            Poll::Pending => None,
        }
    }

    #[test]
    fn places_are_taken_in_the_order_of_calls() {
        let (turnstile, nobody) = (Turnstile::default(), Lineage::default());
        let first = open(turnstile.enter(false, &nobody)).unwrap();
        let second = open(turnstile.enter(false, &nobody)).unwrap();
        let mut alone = turnstile.enter(true, &nobody);
        let mut later = turnstile.enter(false, &nobody);
        let mut last = turnstile.enter(true, &nobody);
        drop(first);
        assert!(next(&mut alone).is_none() && next(&mut later).is_none(), "one that came earlier runs still");
        drop(second);
        assert!(next(&mut last).is_none() && next(&mut later).is_none(), "one that runs alone came earlier");
        let alone = next(&mut alone).unwrap();
        assert!(next(&mut later).is_none());
        drop(alone);
        let later = next(&mut later).unwrap();
        assert!(next(&mut last).is_none());
        drop(later);
        assert!(next(&mut last).is_some());
    }

    #[test]
    fn a_call_that_would_wait_for_itself_is_refused() {
        let (turnstile, other, nobody) = (Turnstile::default(), Turnstile::default(), Lineage::default());
        let alone = open(turnstile.enter(true, &nobody)).unwrap();
        let inside = nobody.with(&alone);
        assert!(matches!(turnstile.enter(false, &inside), Err(Deadlock)));
        assert!(matches!(turnstile.enter(true, &inside), Err(Deadlock)));
        assert!(open(other.enter(true, &inside)).is_some(), "another session's tools don't matter");
        let further = inside.with(&open(other.enter(false, &inside)).unwrap());
        assert!(matches!(turnstile.enter(false, &further), Err(Deadlock)), "with another session between");
        drop(alone);
        assert!(open(turnstile.enter(false, &inside)).is_some(), "the call has ended");
    }

    #[test]
    fn calls_inside_of_a_shared_one_share_its_place() {
        let (turnstile, nobody) = (Turnstile::default(), Lineage::default());
        let outer = open(turnstile.enter(false, &nobody)).unwrap();
        let inside = nobody.with(&outer);
        let mut alone = turnstile.enter(true, &nobody);
        let inner = open(turnstile.enter(false, &inside)).unwrap();
        assert!(matches!(turnstile.enter(true, &inside), Err(Deadlock)));
        drop(outer);
        assert!(next(&mut alone).is_none(), "the inner call runs still");
        drop(inner);
        assert!(next(&mut alone).is_some());
    }

    #[test]
    fn waiting_again_and_again_inside_of_a_call_notes_it_once() {
        let turnstile = Turnstile::default();
        let pass = open(turnstile.enter(false, &Lineage::default())).unwrap();
        let inside = Lineage::default().with(&pass);
        let noted = (0..100).fold(Lineage::default(), |noted, _| noted.and(&inside));
        assert_eq!(noted.0.len(), 1);
        drop(pass);
        assert_eq!(noted.and(&inside).0.len(), 0, "it has ended");
    }

    #[test]
    fn a_step_of_a_call_knows_what_it_runs_inside_of() {
        let turnstile = Turnstile::default();
        let pass = open(turnstile.enter(true, &Lineage::current())).unwrap();
        let inside = Lineage::current().with(&pass);
        assert!(inside.scope(|| turnstile.enter(false, &Lineage::current()).is_err()));
        assert!(Lineage::current().holder(&turnstile).is_none());
    }
}
