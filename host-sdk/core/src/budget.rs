//! The time budget of one `exec` or `wait` call. It is told the time and never reads a clock.

use std::time::Duration;

/// A point in time, as the distance from a start that the host chooses.
pub type Instant = Duration;

/// One call's budget.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    total: Duration,
    ends_at: Instant,
    paused_at: Option<Instant>,
}

impl Budget {
    /// A budget of `total` that starts now.
    pub fn start(total: Duration, now: Instant) -> Self {
        Self { total, ends_at: now + total, paused_at: None }
    }

    /// When it is spent, unless it is paused.
    pub fn ends_at(&self) -> Instant {
        self.ends_at
    }

    /// Stops counting, until [`Budget::resume`]. What is left then is exactly what is left now (B 1.4.31).
    pub fn pause(&mut self, now: Instant) {
        self.paused_at = self.paused_at.or(Some(now));
    }

    /// Goes on counting.
    pub fn resume(&mut self, now: Instant) {
        if let Some(paused_at) = self.paused_at.take() {
            self.ends_at += now.saturating_sub(paused_at);
        }
    }

    /// Whether it doesn't count.
    pub fn is_paused(&self) -> bool {
        self.paused_at.is_some()
    }

    /// What is left.
    pub fn left(&self, now: Instant) -> Duration {
        self.ends_at.saturating_sub(self.paused_at.unwrap_or(now))
    }

    /// Whether nothing is left.
    pub fn is_spent(&self, now: Instant) -> bool {
        self.left(now).is_zero()
    }

    /// The least time that must be left for resuming from a snapshot inside the same call: `margin`, or half of the
    /// budget when that is less (B 1.4.28).
    pub fn resume_margin(&self, margin: Duration) -> Duration {
        margin.min(self.total / 2).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_budget_is_spent_exactly_at_its_end() {
        let budget = Budget::start(MS(300), MS(1_000));
        assert!(!budget.is_spent(MS(1_299)));
        assert!(budget.is_spent(MS(1_300)));
        assert_eq!(budget.left(MS(1_100)), MS(200));
        assert_eq!(budget.left(MS(2_000)), MS(0));
    }

    #[test]
    fn a_pause_gives_exactly_the_rest_back() {
        let mut budget = Budget::start(MS(300), MS(0));
        budget.pause(MS(100));
        budget.pause(MS(150));
        assert_eq!((budget.left(MS(9_000)), budget.is_spent(MS(9_000))), (MS(200), false));
        budget.resume(MS(5_100));
        budget.resume(MS(6_000));
        assert_eq!(budget.ends_at(), MS(5_300));
        assert!(!budget.is_spent(MS(5_299)) && budget.is_spent(MS(5_300)));
    }

    #[test]
    fn the_margin_is_half_of_a_small_budget() {
        assert_eq!(Budget::start(MS(10_000), MS(0)).resume_margin(MS(250)), MS(250));
        assert_eq!(Budget::start(MS(300), MS(0)).resume_margin(MS(250)), MS(150));
    }
}
