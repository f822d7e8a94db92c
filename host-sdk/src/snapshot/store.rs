//! Parked cells by run id: who owns each, when it expires, and whether somebody resumes it. In this process only.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use codemode_core::ids::{Owner, RunId};
use codemode_core::input::Refusal;
use codemode_core::limits;
use codemode_core::outcome::Kind;

/// Parked cells, of type `C`.
#[derive(Debug)]
pub(crate) struct ParkedStore<C> {
    runs: BTreeMap<String, Run<C>>,
    expired: VecDeque<(String, Instant)>,
}

#[derive(Debug)]
struct Run<C> {
    owner: Owner,
    /// `None` while a `wait` resumes it.
    parked: Option<Parked<C>>,
}

#[derive(Debug)]
struct Parked<C> {
    cell: C,
    since: Instant,
    expires_at: Instant,
}

impl<C> Default for ParkedStore<C> {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), expired: VecDeque::new() }
    }
}

impl<C> ParkedStore<C> {
    /// Parks a cell, or parks it again.
    pub fn park(&mut self, id: &RunId, owner: Owner, cell: C, since: Instant, expires_at: Instant) {
        let parked = Some(Parked { cell, since, expires_at });
        self.runs.insert(id.as_str().to_owned(), Run { owner, parked });
    }

    /// Takes a cell for `caller`, who resumes it. It stays busy until it is parked again or closed.
    ///
    /// # Errors
    ///
    /// A refusal that leaves the cell as it is: `busy_run`, `expired_run`, `unknown_run` or `foreign_run`.
    pub fn resume(&mut self, id: &str, caller: &Owner) -> Result<C, Refusal> {
        let Some(run) = self.runs.get_mut(id) else {
            let was_expired = self.expired.iter().any(|(expired, _)| expired == id);
            return Err(if was_expired {
                Refusal::new(
                    Kind::ExpiredRun,
                    format!("run {id} idled for too long and was dropped; start over with exec"),
                )
            } else {
                Refusal::new(Kind::UnknownRun, format!("there is no waiting run {id}; it may have ended"))
            });
        };
        let Some(parked) = run.parked.take() else {
            return Err(Refusal::new(Kind::BusyRun, format!("run {id} is already being resumed by another wait")));
        };
        if !run.owner.admits(caller) {
            run.parked = Some(parked);
            return Err(Refusal::new(Kind::ForeignRun, format!("run {id} belongs to another run, session or agent")));
        }
        Ok(parked.cell)
    }

    /// A parked cell that nobody resumes.
    pub fn peek(&mut self, id: &RunId) -> Option<&mut C> {
        self.runs.get_mut(id.as_str())?.parked.as_mut().map(|parked| &mut parked.cell)
    }

    /// Forgets a run that ended.
    pub fn close(&mut self, id: &RunId) {
        self.runs.remove(id.as_str());
    }

    /// Takes a parked cell out for good. One that somebody resumes stays theirs.
    pub fn remove(&mut self, id: &RunId) -> Option<C> {
        let parked = self.runs.get_mut(id.as_str())?.parked.take()?;
        self.runs.remove(id.as_str());
        Some(parked.cell)
    }

    /// Takes out what has expired, for the caller to drop outside of any lock.
    pub fn sweep(&mut self, now: Instant) -> Vec<C> {
        self.expired.retain(|(_, forget_at)| *forget_at > now);
        let due: Vec<String> = self
            .runs
            .iter()
            .filter(|(_, run)| run.parked.as_ref().is_some_and(|parked| parked.expires_at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        let mut cells = Vec::new();
        for id in due {
            let Some(Run { parked: Some(parked), .. }) = self.runs.remove(&id) else { continue };
            // Remembered for one more time-to-live.
            let time_to_live = parked.expires_at - parked.since;
            if self.expired.len() as u64 >= limits::fixed(&limits::EXPIRED_RUNS) {
                self.expired.pop_front();
            }
            self.expired.push_back((id, now + time_to_live));
            cells.push(parked.cell);
        }
        cells
    }

    /// Takes out the parked cells that `belongs` picks, for the caller to drop outside of any lock.
    pub fn take_all(&mut self, belongs: impl Fn(&C) -> bool) -> Vec<C> {
        let ids: Vec<String> = self
            .runs
            .iter()
            .filter(|(_, run)| run.parked.as_ref().is_some_and(|parked| belongs(&parked.cell)))
            .map(|(id, _)| id.clone())
            .collect();
        ids.iter().filter_map(|id| self.runs.remove(id)?.parked).map(|parked| parked.cell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn owner(session: &str) -> Owner {
        Owner { session: Some(session.to_owned()), ..Owner::default() }
    }

    fn store() -> (ParkedStore<u32>, RunId, Instant) {
        let mut store = ParkedStore::default();
        let (id, now) = (RunId::new("1"), Instant::now());
        store.park(&id, owner("a"), 1, now, now + Duration::from_secs(1));
        (store, id, now)
    }

    fn kind(result: Result<u32, Refusal>) -> Kind {
        result.unwrap_err().kind
    }

    #[test]
    fn a_refused_wait_leaves_the_cell_to_its_owner() {
        let (mut store, id, _) = store();
        assert_eq!(kind(store.resume("cm_2", &owner("a"))), Kind::UnknownRun);
        assert_eq!(kind(store.resume(id.as_str(), &owner("b"))), Kind::ForeignRun);
        assert_eq!(kind(store.resume(id.as_str(), &Owner::default())), Kind::ForeignRun);
        assert_eq!(store.resume(id.as_str(), &owner("a")), Ok(1));
        assert_eq!(kind(store.resume(id.as_str(), &owner("a"))), Kind::BusyRun);
        store.close(&id);
        assert_eq!(kind(store.resume(id.as_str(), &owner("a"))), Kind::UnknownRun);
    }

    #[test]
    fn an_expired_run_is_remembered_for_one_more_time_to_live() {
        let (mut store, id, now) = store();
        assert_eq!(store.sweep(now + Duration::from_millis(999)), Vec::<u32>::new());
        assert_eq!(store.sweep(now + Duration::from_secs(1)), [1]);
        assert_eq!(kind(store.resume(id.as_str(), &owner("a"))), Kind::ExpiredRun);
        store.sweep(now + Duration::from_secs(3));
        assert_eq!(kind(store.resume(id.as_str(), &owner("a"))), Kind::UnknownRun);
    }

    #[test]
    fn time_does_not_run_while_a_wait_is_in_flight() {
        let (mut store, id, now) = store();
        store.resume(id.as_str(), &owner("a")).unwrap();
        assert_eq!(store.sweep(now + Duration::from_secs(9)), Vec::<u32>::new());
        store.park(&id, owner("a"), 2, now, now + Duration::from_secs(10));
        assert_eq!(store.resume(id.as_str(), &owner("a")), Ok(2));
    }
}
