//! Tool handles: callable objects of a class of their own, so that the guest can't forge one. A handle holds its tool's
//! index and nothing else; its properties are made when somebody looks at them. Thousands of handles cost little then.
#![expect(unsafe_code, reason = "hooks that the engine calls; see the module above")]

use core::cell::OnceCell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use javy::quickjs::qjs as q;

use super::{Key, Result, Thrown, Value, context, runtime, size};
use crate::catalog::Field;

/// What a handle says that it is.
const CLASS_NAME: &CStr = c"Function";
/// In the order in which a handle lists its properties.
const FIELDS: &[(&str, Field, Visibility)] = &[
    ("length", Field::Length, Visibility::Hidden),
    ("name", Field::Metadata("callableName"), Visibility::Hidden),
    ("callableName", Field::Metadata("callableName"), Visibility::Listed),
    ("toolName", Field::Metadata("toolName"), Visibility::Listed),
    ("label", Field::Metadata("label"), Visibility::Listed),
    ("description", Field::Metadata("description"), Visibility::Listed),
    ("source", Field::Metadata("source"), Visibility::Listed),
    ("input", Field::Metadata("input"), Visibility::Listed),
    ("output", Field::Metadata("output"), Visibility::Listed),
    ("apiPath", Field::ApiPath, Visibility::Listed),
    ("describe", Field::Describe, Visibility::Listed),
    ("toJSON", Field::ToJson, Visibility::Hidden),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Listed,
    Hidden,
}

struct Class {
    id: q::JSClassID,
    /// The keys of `FIELDS`, in their order.
    keys: Vec<Key>,
}

struct Once(OnceCell<Class>);
// The guest has one thread.
unsafe impl Sync for Once {}
static CLASS: Once = Once(OnceCell::new());

static HOOKS: q::JSClassExoticMethods = q::JSClassExoticMethods {
    get_own_property: Some(get_own_property),
    get_own_property_names: Some(get_own_property_names),
    delete_property: Some(delete_property),
    define_own_property: Some(define_own_property),
    has_property: None,
    get_property: None,
    set_property: None,
};

/// Makes the class known to the engine. The build calls this once.
pub(super) fn register() {
    let mut id = 0;
    unsafe { q::JS_NewClassID(runtime(), &raw mut id) };
    let definition = q::JSClassDef {
        class_name: CLASS_NAME.as_ptr(),
        finalizer: None,
        gc_mark: None,
        call: Some(call),
        exotic: (&raw const HOOKS).cast_mut(),
    };
    unsafe {
        q::JS_NewClass(runtime(), id, &raw const definition);
        q::JS_SetClassProto(context(), id, q::JS_GetFunctionProto(context()));
    }
    let keys = FIELDS.iter().map(|(name, _, _)| Key::named(name)).collect();
    assert!(CLASS.0.set(Class { id, keys }).is_ok(), "the engine is built once");
}

fn class_id() -> q::JSClassID {
    CLASS.0.get().map(|class| class.id).unwrap_or_default()
}

/// A handle of the tool at `index`. Nothing can be added to it or changed.
pub fn new(index: u32) -> Result<Value> {
    let made = unsafe { Value::owned(q::JS_NewObjectClass(context(), class_id()))? };
    unsafe {
        q::JS_SetOpaque(made.raw(), ptr::without_provenance_mut::<c_void>(index as usize));
        if q::JS_PreventExtensions(context(), made.raw()) < 0 {
            return Err(Thrown);
        }
    }
    Ok(made)
}

/// The index of the tool whose handle this is.
pub fn index_of(value: &Value) -> Option<u32> {
    if unsafe { q::JS_GetClassID(value.raw()) } != class_id() {
        return None;
    }
    u32::try_from(unsafe { q::JS_GetOpaque(value.raw(), class_id()) }.addr()).ok()
}

/// The field behind a key of a handle.
fn field_of(object: q::JSValueConst, key: q::JSAtom) -> Option<(u32, Field, Visibility)> {
    let index = index_of(&unsafe { Value::borrowed(object) })?;
    let place = CLASS.0.get()?.keys.iter().position(|known| known.is(key))?;
    let (_, field, visibility) = *FIELDS.get(place)?;
    crate::catalog::has_field(index, field).then_some((index, field, visibility))
}

unsafe extern "C" fn get_own_property(
    _: *mut q::JSContext,
    descriptor: *mut q::JSPropertyDescriptor,
    object: q::JSValueConst,
    key: q::JSAtom,
) -> c_int {
    let Some((index, field, visibility)) = field_of(object, key) else { return 0 };
    if descriptor.is_null() {
        return 1;
    }
    let Ok(value) = crate::catalog::field(index, field) else { return -1 };
    let flags = if visibility == Visibility::Listed { q::JS_PROP_ENUMERABLE } else { 0 };
    unsafe {
        descriptor.write(q::JSPropertyDescriptor {
            flags: flags as c_int,
            value: value.into_raw(),
            getter: q::JS_UNDEFINED,
            setter: q::JS_UNDEFINED,
        });
    }
    1
}

unsafe extern "C" fn get_own_property_names(
    context: *mut q::JSContext,
    table: *mut *mut q::JSPropertyEnum,
    count: *mut u32,
    object: q::JSValueConst,
) -> c_int {
    let keys = CLASS.0.get().map(|class| class.keys.as_slice()).unwrap_or_default();
    let present: Vec<&Key> = keys.iter().filter(|key| field_of(object, key.raw()).is_some()).collect();
    unsafe {
        let list = q::js_malloc(context, size(present.len() * size_of::<q::JSPropertyEnum>()));
        let list = list.cast::<q::JSPropertyEnum>();
        if list.is_null() {
            return -1;
        }
        for (place, key) in present.iter().enumerate() {
            let atom = q::JS_DupAtom(context, key.raw());
            list.add(place).write(q::JSPropertyEnum { is_enumerable: false, atom });
        }
        table.write(list);
        count.write(u32::try_from(present.len()).unwrap_or(0));
    }
    0
}

/// The properties of a handle stay; others aren't there, which counts as deleted.
unsafe extern "C" fn delete_property(_: *mut q::JSContext, object: q::JSValueConst, key: q::JSAtom) -> c_int {
    c_int::from(field_of(object, key).is_none())
}

/// Only what changes nothing is allowed, as when a frozen object is frozen again.
unsafe extern "C" fn define_own_property(
    context: *mut q::JSContext,
    object: q::JSValueConst,
    key: q::JSAtom,
    _: q::JSValueConst,
    _: q::JSValueConst,
    _: q::JSValueConst,
    flags: c_int,
) -> c_int {
    let flags = flags.cast_unsigned();
    let given = |has: u32, flag: u32| flags & has != 0 && flags & flag != 0;
    let is_change = flags & (q::JS_PROP_HAS_VALUE | q::JS_PROP_HAS_GET | q::JS_PROP_HAS_SET) != 0
        || given(q::JS_PROP_HAS_WRITABLE, q::JS_PROP_WRITABLE)
        || given(q::JS_PROP_HAS_CONFIGURABLE, q::JS_PROP_CONFIGURABLE);
    if !is_change && field_of(object, key).is_some() {
        return 1;
    }
    if flags & q::JS_PROP_THROW != 0 {
        unsafe { q::JS_ThrowTypeError(context, c"a tool handle can't be changed".as_ptr()) };
        return -1;
    }
    0
}

unsafe extern "C" fn call(
    _: *mut q::JSContext,
    function: q::JSValueConst,
    _this: q::JSValueConst,
    count: c_int,
    arguments: *mut q::JSValueConst,
    _flags: c_int,
) -> q::JSValue {
    let argument = if count > 0 { unsafe { Value::borrowed(*arguments) } } else { Value::undefined() };
    let tool = index_of(&unsafe { Value::borrowed(function) });
    match tool.map(|tool| crate::natives::call_tool(tool, &argument, count.cast_unsigned())) {
        Some(Ok(value)) => value.into_raw(),
        Some(Err(Thrown)) => q::JS_EXCEPTION,
        None => q::JS_UNDEFINED,
    }
}
