//! Watching for something that other threads are about to do: for a short while without sleeping, because waking a
//! sleeping thread takes longer than most of what is waited for.

use std::time::{Duration, Instant};

/// How long to watch.
const WATCH: Duration = Duration::from_micros(40);
/// Looks that cost no system call; after them the processor is offered to other threads between looks.
const QUICK_LOOKS: u32 = 600;

/// One watch.
pub(crate) struct Watch {
    looks: u32,
    since: Option<Instant>,
}

impl Watch {
    /// Begins a watch.
    pub fn begin() -> Self {
        Self { looks: 0, since: None }
    }

    /// Passes a moment; whether to look again.
    pub fn goes_on(&mut self) -> bool {
        if self.looks < QUICK_LOOKS {
            self.looks += 1;
            std::hint::spin_loop();
            return true;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        std::thread::yield_now();
        since.elapsed() <= WATCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_ends() {
        let mut watch = Watch::begin();
        while watch.goes_on() {}
        assert!(!watch.goes_on());
    }
}
