//! Randomness of a cell: one ChaCha stream, seeded by the host for every cell and again on every restore.

use std::cell::RefCell;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use crate::codemode::cell::types::Seed;

thread_local! {
    static STREAM: RefCell<Option<ChaCha12Rng>> = const { RefCell::new(None) };
}

/// Starts a new stream.
pub fn reseed((a, b, c, d): Seed) {
    let mut seed = [0; 32];
    for (part, word) in seed.chunks_exact_mut(8).zip([a, b, c, d]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    STREAM.set(Some(ChaCha12Rng::from_seed(seed)));
}

/// Fills a buffer.
pub fn fill(bytes: &mut [u8]) {
    STREAM.with_borrow_mut(|stream| {
        if let Some(stream) = stream {
            stream.fill_bytes(bytes);
        }
    });
}

/// A number in `[0, 1)` with 53 random bits.
pub fn unit_interval() -> f64 {
    const FRACTION_BITS: u32 = 53;
    let bits = STREAM.with_borrow_mut(|stream| stream.as_mut().map_or(0, |stream| stream.next_u64()));
    let fraction = bits >> (u64::BITS - FRACTION_BITS);
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    let fraction = fraction as f64;
    fraction / f64::powi(2.0, FRACTION_BITS.cast_signed())
}
