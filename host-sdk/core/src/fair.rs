//! A queue that is fair between its users: each has a line of its own, and the lines take turns. Somebody who brings a
//! thousand jobs delays somebody who brings one by one job, not by a thousand.

use std::collections::{HashMap, VecDeque};

/// Jobs of type `T` by user.
#[derive(Debug)]
pub struct FairQueue<T> {
    lines: HashMap<u64, VecDeque<T>>,
    /// Users that have jobs, in the order in which their lines come next.
    turns: VecDeque<u64>,
    length: usize,
    length_max: usize,
}

impl<T> FairQueue<T> {
    /// A queue that holds at most `length_max` jobs.
    pub fn new(length_max: usize) -> Self {
        Self { lines: HashMap::new(), turns: VecDeque::new(), length: 0, length_max }
    }

    /// Adds a job at the end of a user's line.
    ///
    /// # Errors
    ///
    /// The job itself, when the queue is full.
    ///
    /// ```
    /// use codemode_core::fair::FairQueue;
    /// let mut queue = FairQueue::new(2);
    /// assert_eq!((queue.push(1, 'a'), queue.push(1, 'b'), queue.push(2, 'c')), (Ok(()), Ok(()), Err('c')));
    /// ```
    pub fn push(&mut self, user: u64, job: T) -> Result<(), T> {
        if self.length >= self.length_max {
            return Err(job);
        }
        let line = self.lines.entry(user).or_default();
        if line.is_empty() {
            self.turns.push_back(user);
        }
        line.push_back(job);
        self.length += 1;
        Ok(())
    }

    /// Takes the first job of the line whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let user = self.turns.pop_front()?;
        let line = self.lines.get_mut(&user)?;
        let job = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        self.length -= usize::from(job.is_some());
        job
    }

    /// How many jobs wait.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_take_turns_and_each_keeps_its_order() {
        let mut queue = FairQueue::new(100);
        for job in ["a1", "a2", "a3", "a4"] {
            queue.push(1, job).unwrap();
        }
        queue.push(2, "b1").unwrap();
        queue.push(3, "c1").unwrap();
        queue.push(2, "b2").unwrap();
        let mut order = Vec::new();
        while let Some(job) = queue.pop() {
            order.push(job);
            if job == "c1" {
                queue.push(4, "d1").unwrap();
            }
        }
        assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "d1", "a3", "a4"]);
        assert!(queue.is_empty() && queue.lines.is_empty());
    }

    #[test]
    fn a_full_queue_gives_the_job_back_and_has_room_again_after_one_left() {
        let mut queue = FairQueue::new(1);
        assert_eq!((queue.push(1, 'a'), queue.push(2, 'b')), (Ok(()), Err('b')));
        assert_eq!((queue.pop(), queue.len(), queue.push(2, 'b')), (Some('a'), 0, Ok(())));
    }
}
