//! The engine: all that names javy, rquickjs or QuickJS. It offers owned values and a few operations on them, so that
//! the rest of the guest is safe Rust. What a cell is and which globals it sees live elsewhere.
#![expect(unsafe_code, reason = "QuickJS is a C library; this folder is its one safe face")]

pub mod class;
pub mod handle;
pub mod heap;
mod primordials;
mod value;

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use javy::quickjs::qjs as q;

pub use primordials::Primordials;
pub use value::{Attributes, Class, ElementType, Key, Keys, Kind, Property, Value};

/// Marks that an exception is pending in the engine. Whoever receives it hands it on or takes the exception out.
#[derive(Debug)]
pub struct Thrown;

/// The result of an operation that may run guest code.
pub type Result<T> = core::result::Result<T, Thrown>;

/// Bytes of stack that the engine may use: half of the shadow stack, which leaves the other half to natives.
const STACK_LIMIT_BYTES: usize = 512 * 1024;
/// Bytes allocated since the last collection that start the next one.
const GC_THRESHOLD_BYTES: usize = 256 * 1024;

static CONTEXT: AtomicPtr<q::JSContext> = AtomicPtr::new(ptr::null_mut());
static RUNTIME: AtomicPtr<q::JSRuntime> = AtomicPtr::new(ptr::null_mut());
/// Set once the host asks to stop, and never cleared: a guest that catches the interrupt doesn't run on.
static STOPPED: AtomicBool = AtomicBool::new(false);

fn context() -> *mut q::JSContext {
    CONTEXT.load(Relaxed)
}

/// A size as C has it.
#[expect(clippy::cast_possible_truncation, reason = "both have 32 bits in the guest")]
const fn size(bytes: usize) -> q::size_t {
    bytes as q::size_t
}

fn runtime() -> *mut q::JSRuntime {
    RUNTIME.load(Relaxed)
}

/// Builds the engine and its intrinsics.
///
/// # Panics
///
/// When the engine cannot be built, which only the build can see.
pub fn build() {
    let mut config = javy::Config::default();
    config.max_stack_size(STACK_LIMIT_BYTES).gc_threshold(GC_THRESHOLD_BYTES).weak_ref(true).performance(false);
    #[expect(clippy::expect_used, reason = "runs while the component is built, never in a cell")]
    let engine = javy::Runtime::new(config).expect("the engine can be built");
    let raw = engine.context().with(|context| context.as_raw().as_ptr());
    // The engine outlives this handle: javy frees nothing when it drops one.
    CONTEXT.store(raw, Relaxed);
    unsafe {
        RUNTIME.store(q::JS_GetRuntime(raw), Relaxed);
        q::JS_AddIntrinsicDOMException(raw);
        q::JS_AddIntrinsicAToB(raw);
        q::JS_SetHostPromiseRejectionTracker(runtime(), Some(track_rejection), ptr::null_mut());
    }
    value::register_classes();
    handle::register();
    class::register();
}

/// Lets the host stop the engine from now on. While the base state is built there is no host to ask.
pub fn arm_interrupt() {
    unsafe { q::JS_SetInterruptHandler(runtime(), Some(interrupt), ptr::null_mut()) };
}

/// Tells the engine where the stack starts. Every export does so first: the depth at which the host enters differs.
pub fn enter() {
    unsafe { q::JS_UpdateStackTop(runtime()) };
}

/// Collects garbage.
pub fn collect_garbage() {
    unsafe { q::JS_RunGC(runtime()) };
}

/// Whether the host asked to stop.
pub fn is_stopped() -> bool {
    STOPPED.load(Relaxed)
}

unsafe extern "C" fn interrupt(_: *mut q::JSRuntime, _: *mut c_void) -> c_int {
    if !is_stopped() && crate::codemode::cell::control::stop_requested() {
        STOPPED.store(true, Relaxed);
    }
    c_int::from(is_stopped())
}

unsafe extern "C" fn track_rejection(
    _: *mut q::JSContext,
    promise: q::JSValueConst,
    reason: q::JSValueConst,
    is_handled: bool,
    _: *mut c_void,
) {
    let promise = unsafe { Value::borrowed(promise) };
    if is_handled {
        crate::rejections::forget(&promise);
    } else {
        crate::rejections::remember(promise, unsafe { Value::borrowed(reason) });
    }
}

/// Runs one job. `Ok(false)` when none is left.
pub fn run_job() -> Result<bool> {
    let mut ran_in = ptr::null_mut();
    match unsafe { q::JS_ExecutePendingJob(runtime(), &raw mut ran_in) } {
        0 => Ok(false),
        code if code < 0 => Err(Thrown),
        _ => Ok(true),
    }
}

/// Evaluates `source` as a sloppy global script whose first line counts as `first_line`.
pub fn evaluate(source: &str, file_name: &CStr, first_line: c_int) -> Result<Value> {
    let mut text = Vec::with_capacity(source.len() + 1);
    text.extend_from_slice(source.as_bytes());
    text.push(0);
    let mut options = q::JSEvalOptions {
        version: q::JS_EVAL_OPTIONS_VERSION as c_int,
        eval_flags: q::JS_EVAL_TYPE_GLOBAL as c_int,
        filename: file_name.as_ptr(),
        line_num: first_line,
    };
    let evaluated = unsafe { q::JS_Eval2(context(), text.as_ptr().cast(), size(source.len()), &raw mut options) };
    unsafe { Value::owned(evaluated) }
}

/// Parses JSON text. `text` ends with the NUL byte that the parser wants, which isn't part of the JSON.
pub fn parse_json(text: &[u8]) -> Result<Value> {
    debug_assert!(text.last() == Some(&0), "the parser reads up to the NUL byte");
    let length = text.len().saturating_sub(1);
    unsafe { Value::owned(q::JS_ParseJSON(context(), text.as_ptr().cast(), size(length), c"json".as_ptr())) }
}

/// Takes the pending exception out of the engine.
pub fn take_exception() -> Value {
    unsafe { Value::adopted(q::JS_GetException(context())) }
}

/// Throws `value`.
pub fn throw(value: Value) -> Thrown {
    unsafe { q::JS_Throw(context(), value.into_raw()) };
    Thrown
}

/// Throws a TypeError.
pub fn throw_type_error(message: &str) -> Thrown {
    throw_text(message, |context, text| unsafe { q::JS_ThrowTypeError(context, c"%s".as_ptr(), text) })
}

/// Throws a RangeError.
pub fn throw_range_error(message: &str) -> Thrown {
    throw_text(message, |context, text| unsafe { q::JS_ThrowRangeError(context, c"%s".as_ptr(), text) })
}

/// Throws a DOMException of this name.
pub fn throw_dom_exception(message: &str, name: &str) -> Thrown {
    let made = Value::string(message)
        .and_then(|message| Primordials::get().dom_exception_constructor.construct(&[message, Value::string(name)?]));
    match made {
        Ok(exception) => throw(exception),
        Err(thrown) => thrown,
    }
}

fn throw_text(message: &str, raise: impl Fn(*mut q::JSContext, *const core::ffi::c_char) -> q::JSValue) -> Thrown {
    let mut text: Vec<u8> = message.bytes().filter(|byte| *byte != 0).collect();
    text.push(0);
    raise(context(), text.as_ptr().cast());
    Thrown
}

/// A promise and the two functions that settle it.
pub struct Deferred {
    /// What the guest awaits.
    pub promise: Value,
    /// Fulfils the promise.
    pub resolve: Value,
    /// Rejects the promise.
    pub reject: Value,
}

/// Makes a promise natively: nothing that the guest overwrites takes part.
pub fn deferred() -> Result<Deferred> {
    let mut functions = [q::JS_UNDEFINED; 2];
    let promise = unsafe { Value::owned(q::JS_NewPromiseCapability(context(), functions.as_mut_ptr()))? };
    let [resolve, reject] = functions;
    unsafe { Ok(Deferred { promise, resolve: Value::adopted(resolve), reject: Value::adopted(reject) }) }
}

/// Fulfils a promise with data that came from the host, and freezes it if asked to. An object that merely inherits a `then`, which only the guest can
/// have put on a built-in prototype, isn't taken for a thenable.
pub fn resolve_with_data(deferred: &Deferred, value: Value, is_frozen: bool) -> Result<Value> {
    let then = Key::named("then");
    let inherits_then = value.is_object() && value.own_property(&then)?.is_none() && value.inherits(&then)?;
    if inherits_then {
        value.define(&then, Value::undefined(), Attributes::Open)?;
    }
    let resolved = deferred.resolve.call(&Value::undefined(), std::slice::from_ref(&value));
    if inherits_then {
        value.delete(&then)?;
    }
    // Only now: what is frozen can't be shielded.
    if is_frozen {
        value.freeze()?;
    }
    resolved
}

/// What a promise has come to.
pub enum PromiseState {
    /// Not settled.
    Pending,
    /// Its value.
    Fulfilled(Value),
    /// Its reason.
    Rejected(Value),
}

/// Reads a promise without touching its methods.
pub fn promise_state(promise: &Value) -> PromiseState {
    let result = || unsafe { Value::adopted(q::JS_PromiseResult(context(), promise.raw())) };
    match unsafe { q::JS_PromiseState(context(), promise.raw()) } {
        q::JSPromiseStateEnum_JS_PROMISE_FULFILLED => PromiseState::Fulfilled(result()),
        q::JSPromiseStateEnum_JS_PROMISE_REJECTED => PromiseState::Rejected(result()),
        _ => PromiseState::Pending,
    }
}

/// One call of a native.
pub struct Call<'a> {
    this: q::JSValue,
    arguments: &'a [q::JSValue],
    bound: q::JSValue,
}

impl Call<'_> {
    /// What it was called on.
    pub fn this(&self) -> Value {
        unsafe { Value::borrowed(self.this) }
    }

    /// The argument at `index`; `undefined` when there is none.
    pub fn argument(&self, index: usize) -> Value {
        self.arguments.get(index).map_or_else(Value::undefined, |raw| unsafe { Value::borrowed(*raw) })
    }

    /// What the function was bound to; `undefined` unless it is a bound one.
    pub fn bound(&self) -> Value {
        unsafe { Value::borrowed(self.bound) }
    }

    /// How many arguments there are.
    pub fn count(&self) -> usize {
        self.arguments.len()
    }
}

/// Code that the guest can call. `magic` is what it was registered with.
pub type Native = fn(&Call<'_>, magic: i32) -> Result<Value>;

/// Makes a function of the guest out of one of `crate::natives::TABLE`; `index` is its place there.
pub fn native_function(name: &CStr, length: c_int, index: i32) -> Value {
    function_of_kind(name, length, index, q::JSCFunctionEnum_JS_CFUNC_generic_magic)
}

fn function_of_kind(name: &CStr, length: c_int, index: i32, kind: q::JSCFunctionEnum) -> Value {
    let function = q::JSCFunctionType { generic_magic: Some(call_native) };
    unsafe { Value::adopted(q::JS_NewCFunction2(context(), function.generic, name.as_ptr(), length, kind, index)) }
}

/// As [`native_function`], with a value that calls find in [`Call::bound`].
pub fn bound_function(name: &CStr, length: c_int, index: i32, bound: &Value) -> Result<Value> {
    let mut data = [bound.raw()];
    let function = Some(call_bound as unsafe extern "C" fn(_, _, _, _, _, _) -> _);
    unsafe {
        Value::owned(q::JS_NewCFunctionData2(context(), function, name.as_ptr(), length, index, 1, data.as_mut_ptr()))
    }
}

unsafe extern "C" fn call_native(
    context: *mut q::JSContext,
    this: q::JSValueConst,
    count: c_int,
    arguments: *mut q::JSValueConst,
    magic: c_int,
) -> q::JSValue {
    let mut bound = q::JS_UNDEFINED;
    unsafe { call_bound(context, this, count, arguments, magic, &raw mut bound) }
}

unsafe extern "C" fn call_bound(
    _: *mut q::JSContext,
    this: q::JSValueConst,
    count: c_int,
    arguments: *mut q::JSValueConst,
    magic: c_int,
    bound: *mut q::JSValueConst,
) -> q::JSValue {
    let count = usize::try_from(count).unwrap_or(0);
    let arguments = if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(arguments, count) } };
    let call = Call { this, arguments, bound: unsafe { *bound } };
    let native = usize::try_from(magic).ok().and_then(|index| crate::natives::TABLE.get(index));
    match native.map(|native| (native.run)(&call, native.magic)) {
        Some(Ok(value)) => value.into_raw(),
        Some(Err(Thrown)) => q::JS_EXCEPTION,
        None => q::JS_UNDEFINED,
    }
}
