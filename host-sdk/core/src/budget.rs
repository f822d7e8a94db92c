//! The time budget of one `exec` or `wait` call. It is told the time and never reads a clock.

use std::time::Duration;

/// A point in time, as the distance from a start that the host chooses.
pub type Instant = Duration;

/// One call's budget.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    total: Duration,
    ends_at: Instant,
}

impl Budget {
    /// A budget of `total` that starts now.
    pub fn start(total: Duration, now: Instant) -> Self {
        Self { total, ends_at: now + total }
    }

    /// When it is spent.
    pub fn ends_at(&self) -> Instant {
        self.ends_at
    }

    /// What is left.
    pub fn left(&self, now: Instant) -> Duration {
        self.ends_at.saturating_sub(now)
    }

    /// Whether nothing is left.
    pub fn is_spent(&self, now: Instant) -> bool {
        now >= self.ends_at
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
    fn the_margin_is_half_of_a_small_budget() {
        assert_eq!(Budget::start(MS(10_000), MS(0)).resume_margin(MS(250)), MS(250));
        assert_eq!(Budget::start(MS(300), MS(0)).resume_margin(MS(250)), MS(150));
    }
}
