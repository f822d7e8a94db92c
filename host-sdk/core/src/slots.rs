//! Slots for parked cells and for cells that may park. A value that counts; sharing it is the host's business.

/// No slot is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many cells are suspended: all {capacity} slots are taken; let some finish first")]
pub struct SlotsFull {
    /// How many there are.
    pub capacity: u64,
}

/// Counts slots.
#[derive(Debug)]
pub struct Slots {
    capacity: u64,
    taken: u64,
}

impl Slots {
    /// Slots for this many cells.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, taken: 0 }
    }

    /// Takes one.
    ///
    /// # Errors
    ///
    /// [`SlotsFull`] when none is free.
    pub fn take(&mut self) -> Result<(), SlotsFull> {
        if self.taken >= self.capacity {
            return Err(SlotsFull { capacity: self.capacity });
        }
        self.taken += 1;
        Ok(())
    }

    /// Gives one back.
    ///
    /// # Panics
    ///
    /// When none is taken: a slot was given back twice.
    pub fn give_back(&mut self) {
        assert!(self.taken > 0, "a slot that is given back was taken");
        self.taken -= 1;
    }

    /// How many there are.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many are taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_can_be_taken_and_one_more_is_refused() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.take(), Ok(()));
        assert_eq!(slots.take(), Ok(()));
        assert_eq!(slots.take(), Err(SlotsFull { capacity: 2 }));
        slots.give_back();
        assert_eq!(slots.take(), Ok(()));
    }
}
