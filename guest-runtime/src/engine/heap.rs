//! The engine's allocator: the system's, plus a byte limit, a memory of having hit it, and zeroing of large freed blocks.
//! Rust's own allocations don't come through here; the store's limiter on the host bounds the whole memory.
#![expect(unsafe_code, reason = "an allocator is made of raw pointers; this file is one of the named unsafe ones")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

/// A freed block from this size on is zeroed, so that a snapshot doesn't carry its old bytes. Zeroing costs far less
/// than comparing and copying the pages later.
const ZEROED_WHEN_FREED_BYTES: usize = 16 * 1024;

static USED: AtomicUsize = AtomicUsize::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static LIMIT_HIT: AtomicBool = AtomicBool::new(false);

/// Sets how many bytes the engine may hold.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Relaxed);
}

/// Takes what the engine holds now as what every cell starts with.
pub fn note_base() {
    BASE.store(USED.load(Relaxed), Relaxed);
}

/// Bytes that the engine holds beyond what it started with.
pub fn used() -> usize {
    USED.load(Relaxed).saturating_sub(BASE.load(Relaxed))
}

/// Whether an allocation was ever refused. A cell may catch that and go on, so this alone decides nothing.
pub fn limit_was_hit() -> bool {
    LIMIT_HIT.load(Relaxed)
}

fn admits(more: usize) -> bool {
    let fits = USED.load(Relaxed).checked_add(more).is_some_and(|total| total <= LIMIT.load(Relaxed));
    if !fits {
        LIMIT_HIT.store(true, Relaxed);
    }
    fits
}

/// Books what `block` holds, which is null when the system refused.
unsafe fn booked(block: *mut c_void) -> *mut c_void {
    if block.is_null() {
        LIMIT_HIT.store(true, Relaxed);
    } else {
        USED.fetch_add(unsafe { malloc_usable_size(block) }, Relaxed);
    }
    block
}

#[unsafe(no_mangle)]
unsafe extern "C" fn codemode_malloc(size: usize) -> *mut c_void {
    if !admits(size) {
        return core::ptr::null_mut();
    }
    unsafe { booked(malloc(size)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn codemode_calloc(count: usize, size: usize) -> *mut c_void {
    if !count.checked_mul(size).is_some_and(admits) {
        return core::ptr::null_mut();
    }
    unsafe { booked(calloc(count, size)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn codemode_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return unsafe { codemode_malloc(size) };
    }
    let before = unsafe { malloc_usable_size(block) };
    if !admits(size.saturating_sub(before)) {
        return core::ptr::null_mut();
    }
    let moved = unsafe { realloc(block, size) };
    if !moved.is_null() {
        USED.fetch_sub(before, Relaxed);
    }
    unsafe { booked(moved) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn codemode_free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    let held = unsafe { malloc_usable_size(block) };
    USED.fetch_sub(held, Relaxed);
    if held >= ZEROED_WHEN_FREED_BYTES {
        unsafe { core::ptr::write_bytes(block.cast::<u8>(), 0, held) };
    }
    unsafe { free(block) };
}
