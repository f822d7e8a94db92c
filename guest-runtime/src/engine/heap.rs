//! The engine's allocator: the system's, plus a byte limit, a memory of having hit it, and zeroing of large freed blocks.
//! Rust's own allocations aren't counted here; the store's limiter on the host bounds the whole memory.
#![expect(unsafe_code, reason = "an allocator is made of raw pointers; this file is one of the named unsafe ones")]

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::alloc::System;

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

/// Rust's own allocator, with large freed blocks zeroed as well: a decoder or an adapter copies whole texts, and a snapshot
/// would carry what they leave.
struct Zeroing;

#[global_allocator]
static ALLOCATOR: Zeroing = Zeroing;

// Safety: every block comes from the system's allocator and goes back to it with its own layout.
unsafe impl GlobalAlloc for Zeroing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe {
            zero_when_large(block, layout.size());
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size() < ZEROED_WHEN_FREED_BYTES {
            return unsafe { System.realloc(block, layout, size) };
        }
        let Ok(moved_layout) = Layout::from_size_align(size, layout.align()) else { return core::ptr::null_mut() };
        let moved = unsafe { System.alloc(moved_layout) };
        if !moved.is_null() {
            unsafe {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

/// Zeroes a block that is about to be freed.
unsafe fn zero_when_large(block: *mut u8, size: usize) {
    if size >= ZEROED_WHEN_FREED_BYTES {
        unsafe { block.write_bytes(0, size) };
        // The compiler knows that nobody reads a freed block, and would leave the zeros out. A snapshot does read it.
        core::hint::black_box(block);
    }
}

static USED: AtomicUsize = AtomicUsize::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static LIMIT_HIT: AtomicBool = AtomicBool::new(false);

/// Sets how many bytes the engine may hold.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Relaxed);
}

/// Leaves free memory in the base image, so that a catalog of some hundred tools and most cells needn't grow memory:
/// growing costs more than all else that restoring such a catalog does. The build calls this last.
pub fn leave_room() {
    const ROOM_BYTES: usize = 56 * 1024;
    drop(core::hint::black_box(vec![0u8; ROOM_BYTES]));
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
    unsafe {
        zero_when_large(block.cast(), held);
        free(block);
    }
}
