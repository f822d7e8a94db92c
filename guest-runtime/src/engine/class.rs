//! Classes of our own: constructors whose instances hold a Rust value. It lies in the same memory as the engine's heap, so
//! that it goes with the cell when the cell is parked.
#![expect(unsafe_code, reason = "hooks that the engine calls, and a pointer that it keeps; see the module above")]

use core::any::Any;
use core::cell::OnceCell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::cell::RefCell;

use javy::quickjs::qjs as q;

use super::{Key, Result, Thrown, Value, context, runtime};

struct Once(OnceCell<q::JSClassID>);
// The guest has one thread.
unsafe impl Sync for Once {}
static CLASS: Once = Once(OnceCell::new());

type State = Box<dyn Any>;

thread_local! {
    /// What instances inherit from, by the name of their constructor.
    static PROTOTYPES: RefCell<Vec<(&'static CStr, Value)>> = const { RefCell::new(Vec::new()) };
}

fn class_id() -> q::JSClassID {
    CLASS.0.get().copied().unwrap_or_default()
}

/// Makes the class known to the engine. The build calls this once.
pub(super) fn register() {
    let mut id = 0;
    unsafe { q::JS_NewClassID(runtime(), &raw mut id) };
    let definition = q::JSClassDef {
        class_name: c"Object".as_ptr(),
        finalizer: Some(finalize),
        gc_mark: None,
        call: None,
        exotic: ptr::null_mut(),
    };
    unsafe { q::JS_NewClass(runtime(), id, &raw const definition) };
    assert!(CLASS.0.set(id).is_ok(), "the engine is built once");
}

unsafe extern "C" fn finalize(_: *mut q::JSRuntime, object: q::JSValue) {
    let state = unsafe { q::JS_GetOpaque(object, class_id()) }.cast::<State>();
    if !state.is_null() {
        // Safety: put there by `instance`, and the engine finalizes an object once.
        drop(unsafe { Box::from_raw(state) });
    }
}

/// A constructor out of `crate::natives::TABLE`; `index` is its place there. Calling it without `new` throws. Instances
/// inherit from `prototype`.
pub fn constructor(name: &'static CStr, length: c_int, index: i32, prototype: &Value) -> Value {
    PROTOTYPES.with_borrow_mut(|prototypes| prototypes.push((name, prototype.clone())));
    let kind = q::JSCFunctionEnum_JS_CFUNC_constructor_magic;
    let constructor = super::function_of_kind(name, length, index, kind);
    unsafe { q::JS_SetConstructor(context(), constructor.raw(), prototype.raw()) };
    constructor
}

/// A new instance with this state, for the constructor `name` that was called with `target` as `new.target`. Runs guest
/// code when a subclass has a getter for its prototype.
pub fn instance(name: &CStr, target: &Value, state: impl Any) -> Result<Value> {
    let mut prototype = target.get(&Key::named("prototype"))?;
    if !prototype.is_object() {
        let own = PROTOTYPES.with_borrow(|all| all.iter().find(|(of, _)| *of == name).map(|(_, own)| own.clone()));
        prototype = own.unwrap_or(prototype);
    }
    let made = unsafe { Value::owned(q::JS_NewObjectProtoClass(context(), prototype.raw(), class_id()))? };
    let state: State = Box::new(state);
    unsafe { q::JS_SetOpaque(made.raw(), Box::into_raw(Box::new(state)).cast::<c_void>()) };
    Ok(made)
}

/// Lends the state of an instance; `None` when the value is no instance with a state of this type. `visit` runs no guest
/// code.
pub fn with_state<S: Any, T>(value: &Value, visit: impl FnOnce(&mut S) -> T) -> Option<T> {
    let state = unsafe { q::JS_GetOpaque(value.raw(), class_id()) }.cast::<State>();
    if state.is_null() {
        return None;
    }
    // Safety: `instance` put it there, it lives as long as the object, and `visit` can't get here again.
    let state = unsafe { &mut *state };
    state.downcast_mut::<S>().map(visit)
}

/// Defines an accessor that shows up like a method of a built-in.
pub fn define_getter(object: &Value, key: &Key, getter: Value) -> Result<()> {
    let flags = (q::JS_PROP_CONFIGURABLE | q::JS_PROP_ENUMERABLE) as c_int;
    let defined = unsafe {
        q::JS_DefinePropertyGetSet(context(), object.raw(), key.raw(), getter.into_raw(), q::JS_UNDEFINED, flags)
    };
    if defined < 0 { Err(Thrown) } else { Ok(()) }
}
