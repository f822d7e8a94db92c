//! Getting the cell's state out of an instance and into another: a view of linear memory above the stack, and the way
//! back in. Written by hand against the canonical ABI, because both must leave the heap alone while they run.
//!
//! One core module, one memory, one mutable global (the stack pointer, at its base between turns) and no host handle are
//! all the state that there is; tests pin each of these facts on the built component.
#![expect(unsafe_code, reason = "reads and writes the whole linear memory; this file is one of the named unsafe ones")]

use core::arch::wasm32::{memory_grow, memory_size, unreachable};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use crate::engine;

const WASM_PAGE_BYTES: usize = 65_536;
/// A heap is collected before its image is taken when it holds more than this.
const COLLECTED_FROM_BYTES: usize = 1024 * 1024;

unsafe extern "C" {
    /// Set by the linker: the end of the stack, which it puts first, and the start of everything else.
    static __global_base: u8;
}

/// The canonical ABI returns a list through a pointer to its address and length.
#[repr(C)]
struct List {
    address: usize,
    length: usize,
}

struct Returned(UnsafeCell<List>);
// The guest has one thread.
unsafe impl Sync for Returned {}
static IMAGE: Returned = Returned(UnsafeCell::new(List { address: 0, length: 0 }));

mod imports {
    #[link(wasm_import_module = "codemode:cell/restore-source@0.1.0")]
    unsafe extern "C" {
        #[link_name = "next-run"]
        pub fn next_run() -> u64;
        #[link_name = "run-bytes"]
        pub fn run_bytes(returned: *mut super::List);
    }
}

fn base() -> usize {
    (&raw const __global_base).addr()
}

#[unsafe(export_name = "codemode:cell/snapshot@0.1.0#image-base")]
extern "C" fn image_base() -> u32 {
    u32::try_from(base()).unwrap_or(0)
}

#[unsafe(export_name = "codemode:cell/snapshot@0.1.0#image")]
extern "C" fn image(collect: i32) -> *const List {
    // A small heap is mostly the base state: collecting moves its objects between lists, which costs more dirty pages
    // than the garbage of a small cell does.
    if collect != 0 && engine::heap::used() > COLLECTED_FROM_BYTES {
        engine::enter();
        engine::collect_garbage();
    }
    let length = memory_size(0) * WASM_PAGE_BYTES - base();
    let returned = IMAGE.0.get();
    unsafe {
        (*returned).address = base();
        (*returned).length = length;
    }
    returned
}

/// Where the next run goes, and how long it is. Armed for one `cabi_realloc` only.
static RUN_ADDRESS: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static RUN_LENGTH: AtomicU32 = AtomicU32::new(0);

/// Nothing here may allocate, drop or panic: the memory that it would use is being replaced.
#[unsafe(export_name = "codemode:cell/snapshot@0.1.0#restore")]
extern "C" fn restore(memory_bytes: u32) {
    let wanted = (memory_bytes as usize).div_ceil(WASM_PAGE_BYTES);
    let have = memory_size(0);
    if wanted > have && memory_grow(0, wanted - have) == usize::MAX {
        unreachable();
    }
    loop {
        let run = unsafe { imports::next_run() };
        if run == 0 {
            break;
        }
        let address = (run >> 32) as usize;
        #[expect(clippy::cast_possible_truncation, reason = "the length is the lower half")]
        let length = run as u32;
        let mut returned = List { address: 0, length: 0 };
        compiler_fence(SeqCst);
        RUN_ADDRESS.store(ptr::with_exposed_provenance_mut(address), Relaxed);
        RUN_LENGTH.store(length, Relaxed);
        unsafe { imports::run_bytes(&raw mut returned) };
        compiler_fence(SeqCst);
        if returned.address != address || returned.length != length as usize {
            unreachable();
        }
    }
    // The run that holds these two may have brought old values along.
    RUN_ADDRESS.store(ptr::null_mut(), Relaxed);
    RUN_LENGTH.store(0, Relaxed);
}

/// Where the host puts what it passes in. While a run is armed, that is the run's own place in memory.
#[unsafe(export_name = "cabi_realloc")]
unsafe extern "C" fn cabi_realloc(old: *mut u8, old_length: usize, align: usize, length: usize) -> *mut u8 {
    let armed = RUN_ADDRESS.load(Relaxed);
    if !armed.is_null() {
        if !old.is_null() || align != 1 || length != RUN_LENGTH.load(Relaxed) as usize {
            unreachable();
        }
        RUN_ADDRESS.store(ptr::null_mut(), Relaxed);
        return armed;
    }
    if length == 0 {
        return ptr::without_provenance_mut(align);
    }
    let Ok(layout) = core::alloc::Layout::from_size_align(old_length.max(1), align) else { unreachable() };
    let block = unsafe {
        if old_length == 0 {
            std::alloc::alloc(core::alloc::Layout::from_size_align_unchecked(length, align))
        } else {
            std::alloc::realloc(old, layout, length)
        }
    };
    if block.is_null() {
        unreachable();
    }
    block
}

/// Runs the constructors of the C library. Where nobody calls them, the linker makes every export do it on every call.
pub fn run_constructors() {
    unsafe extern "C" {
        fn __wasm_call_ctors();
    }
    // Safety: called once, before anything else.
    unsafe { __wasm_call_ctors() };
}

/// Zeroes the stack below the caller, so that what building the base state left there isn't part of the component.
pub fn zero_stack() {
    /// Room for the frames that are still in use.
    const MARGIN_BYTES: usize = 4_096;
    /// The lowest addresses stay untouched: a null pointer has no bytes to write.
    const START: usize = 1_024;
    let marker = 0u8;
    let end = (&raw const marker).addr().saturating_sub(MARGIN_BYTES);
    let length = end.saturating_sub(START);
    // Safety: the shadow stack grows downward from above `end`; nothing below it is in use.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(START).write_bytes(0, length) };
}
