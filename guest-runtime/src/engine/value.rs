//! Owned engine values: what they are, their own properties, and how to call them. Nothing here runs guest code except
//! where the name says so (`call`, `get`), or on a Proxy.
#![expect(unsafe_code, reason = "wraps raw engine values; see the module above")]

use core::cell::OnceCell;
use core::ffi::c_int;
use core::ptr;

use javy::quickjs::qjs as q;

use super::{Result, Thrown, context, size};

/// A value that the guest's heap keeps alive as long as this lives.
pub struct Value(q::JSValue);

impl Clone for Value {
    fn clone(&self) -> Self {
        unsafe { Self::borrowed(self.0) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        unsafe { q::JS_FreeValue(context(), self.0) };
    }
}

/// The primitive kinds, with their content where it is cheap.
pub enum Kind {
    /// `undefined`
    Undefined,
    /// `null`
    Null,
    /// A boolean.
    Bool(bool),
    /// A number that the engine keeps as an integer.
    Int(i32),
    /// Any other number.
    Float(f64),
    /// A BigInt.
    BigInt,
    /// A string.
    String,
    /// A symbol.
    Symbol,
    /// An object, functions included.
    Object,
}

/// What an object is, by its internal slots. A guest can't forge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// None of the following.
    Plain,
    /// An array, or a Proxy of one.
    Array,
    /// A callable, except a tool handle.
    Function,
    /// A tool handle, with its index.
    Handle(u32),
    /// An Error, or a DOMException.
    Error,
    /// A Date.
    Date,
    /// A RegExp.
    RegExp,
    /// A Map.
    Map,
    /// A Set.
    Set,
    /// A typed array.
    TypedArray,
    /// An ArrayBuffer or SharedArrayBuffer.
    ArrayBuffer,
    /// A DataView.
    DataView,
    /// A boxed number, string, boolean or BigInt.
    Boxed,
    /// A boxed symbol.
    BoxedSymbol,
    /// A promise.
    Promise,
}

/// The engine's first two classes. Its header doesn't name them; the build checks them.
const ORDINARY_CLASS: q::JSClassID = 1;
const ARRAY_CLASS: q::JSClassID = 2;

/// One own property.
pub enum Property {
    /// A data property and its value.
    Data(Value),
    /// An accessor and its getter, which is `undefined` when there is none.
    Accessor(Value),
}

/// A property key.
pub struct Key(q::JSAtom);

impl Key {
    /// The key of this name.
    pub fn named(name: &str) -> Self {
        Self(unsafe { q::JS_NewAtomLen(context(), name.as_ptr().cast(), size(name.len())) })
    }

    /// `Symbol.toStringTag`, which names a class.
    pub fn to_string_tag() -> Self {
        Self(q::JS_ATOM_Symbol_toStringTag)
    }

    /// The key of an array element.
    pub fn element(index: u32) -> Self {
        Self(unsafe { q::JS_NewAtomUInt32(context(), index) })
    }

    /// Whether it is this key of the engine.
    pub(super) fn is(&self, raw: q::JSAtom) -> bool {
        self.0 == raw
    }

    pub(super) fn raw(&self) -> q::JSAtom {
        self.0
    }

    /// Another reference to the key.
    pub fn duplicate(&self) -> Self {
        Self(unsafe { q::JS_DupAtom(context(), self.0) })
    }

    /// What tells keys apart, as long as they live.
    pub fn identity(&self) -> usize {
        self.0 as usize
    }

    /// The key as a string value.
    pub fn text(&self) -> Result<Value> {
        unsafe { Value::owned(q::JS_AtomToString(context(), self.0)) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        unsafe { q::JS_FreeAtom(context(), self.0) };
    }
}

/// The own keys of an object, in order.
pub struct Keys {
    table: *mut q::JSPropertyEnum,
    count: u32,
}

impl Keys {
    /// How many there are.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// The key at `index`.
    pub fn at(&self, index: u32) -> Option<Key> {
        if index >= self.count {
            return None;
        }
        let entry = unsafe { *self.table.add(index as usize) };
        Some(Key(unsafe { q::JS_DupAtom(context(), entry.atom) }))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        unsafe { q::JS_FreePropertyEnum(context(), self.table, self.count) };
    }
}

impl Value {
    /// Takes over a reference, or reports the exception that it stands for.
    pub(super) unsafe fn owned(raw: q::JSValue) -> Result<Self> {
        if unsafe { q::JS_IsException(raw) } { Err(Thrown) } else { Ok(Self(raw)) }
    }

    /// Takes over a reference that is no exception.
    pub(super) unsafe fn adopted(raw: q::JSValue) -> Self {
        Self(raw)
    }

    /// Adds a reference.
    pub(super) unsafe fn borrowed(raw: q::JSValue) -> Self {
        Self(unsafe { q::JS_DupValue(context(), raw) })
    }

    pub(super) fn raw(&self) -> q::JSValue {
        self.0
    }

    /// Gives the reference away.
    pub(super) fn into_raw(self) -> q::JSValue {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// `undefined`
    pub fn undefined() -> Self {
        Self(q::JS_UNDEFINED)
    }

    /// A number.
    pub fn number(value: f64) -> Self {
        Self(q::JS_NewFloat64(value))
    }

    /// An integer.
    pub fn integer(value: i32) -> Self {
        Self(q::JS_MKVAL(q::JS_TAG_INT, value))
    }

    /// A string.
    pub fn string(text: &str) -> Result<Self> {
        unsafe { Self::owned(q::JS_NewStringLen(context(), text.as_ptr().cast(), size(text.len()))) }
    }

    /// A boolean.
    pub fn boolean(value: bool) -> Self {
        Self(q::JS_MKVAL(q::JS_TAG_BOOL, i32::from(value)))
    }

    /// A Uint8Array of a copy of these bytes.
    pub fn bytes(bytes: &[u8]) -> Result<Self> {
        unsafe { Self::owned(q::JS_NewUint8ArrayCopy(context(), bytes.as_ptr(), size(bytes.len()))) }
    }

    /// An ArrayBuffer of a copy of these bytes.
    pub fn buffer(bytes: &[u8]) -> Result<Self> {
        unsafe { Self::owned(q::JS_NewArrayBufferCopy(context(), bytes.as_ptr(), size(bytes.len()))) }
    }

    /// An empty object.
    pub fn object() -> Result<Self> {
        unsafe { Self::owned(q::JS_NewObject(context())) }
    }

    /// An array of these.
    pub fn array(items: Vec<Self>) -> Result<Self> {
        let count = c_int::try_from(items.len()).unwrap_or(c_int::MAX);
        let raw: Vec<q::JSValue> = items.into_iter().map(Self::into_raw).collect();
        unsafe { Self::owned(q::JS_NewArrayFrom(context(), count, raw.as_ptr())) }
    }

    /// The global object.
    pub fn global() -> Self {
        Self(unsafe { q::JS_GetGlobalObject(context()) })
    }

    /// An empty object without a prototype.
    pub fn bare_object() -> Result<Self> {
        unsafe { Self::owned(q::JS_NewObjectProto(context(), q::JS_NULL)) }
    }

    /// What the value is.
    pub fn kind(&self) -> Kind {
        let tag = unsafe { q::JS_VALUE_GET_NORM_TAG(self.0) };
        match tag {
            q::JS_TAG_UNDEFINED => Kind::Undefined,
            q::JS_TAG_BOOL => Kind::Bool(unsafe { q::JS_VALUE_GET_BOOL(self.0) }),
            q::JS_TAG_INT => Kind::Int(unsafe { q::JS_VALUE_GET_INT(self.0) }),
            q::JS_TAG_FLOAT64 => Kind::Float(unsafe { q::JS_VALUE_GET_FLOAT64(self.0) }),
            q::JS_TAG_BIG_INT | q::JS_TAG_SHORT_BIG_INT => Kind::BigInt,
            q::JS_TAG_STRING | q::JS_TAG_STRING_ROPE => Kind::String,
            q::JS_TAG_SYMBOL => Kind::Symbol,
            q::JS_TAG_OBJECT => Kind::Object,
            _ => Kind::Null,
        }
    }

    /// Whether it is `undefined`.
    pub fn is_undefined(&self) -> bool {
        matches!(self.kind(), Kind::Undefined)
    }

    /// Whether it is an object, functions included.
    pub fn is_object(&self) -> bool {
        matches!(self.kind(), Kind::Object)
    }

    /// Whether it can be called.
    pub fn is_function(&self) -> bool {
        unsafe { q::JS_IsFunction(context(), self.0) }
    }

    /// Whether it is a Proxy.
    pub fn is_proxy(&self) -> bool {
        unsafe { q::JS_IsProxy(self.0) }
    }

    /// Whether both are the same object.
    pub fn is_same_object(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// What the object is. Only for objects.
    pub fn class(&self) -> Class {
        let value = self.0;
        // The two most frequent ones at once.
        match unsafe { q::JS_GetClassID(value) } {
            ORDINARY_CLASS => return Class::Plain,
            ARRAY_CLASS => return Class::Array,
            _ => {}
        }
        unsafe {
            if let Some(tool) = self.handle_index() {
                Class::Handle(tool)
            } else if q::JS_IsFunction(context(), value) {
                Class::Function
            } else if q::JS_IsArray(value) || (q::JS_IsProxy(value) && self.is_proxy_of_array()) {
                Class::Array
            } else if q::JS_IsError(value) {
                Class::Error
            } else if q::JS_IsPromise(value) {
                Class::Promise
            } else if q::JS_IsDate(value) {
                Class::Date
            } else if q::JS_IsRegExp(value) {
                Class::RegExp
            } else if q::JS_IsMap(value) {
                Class::Map
            } else if q::JS_IsSet(value) {
                Class::Set
            } else if q::JS_GetTypedArrayType(value) >= 0 {
                Class::TypedArray
            } else if q::JS_IsDataView(value) {
                Class::DataView
            } else {
                boxed_classes().map_or(Class::Plain, |classes| classes.of(q::JS_GetClassID(value)))
            }
        }
    }

    fn is_proxy_of_array(&self) -> bool {
        // A chain of Proxies can be as long as the guest likes; past this it counts as an object.
        const LINKS_MAX: usize = 64;
        let mut target = self.clone();
        for _ in 0..LINKS_MAX {
            if !target.is_proxy() {
                return unsafe { q::JS_IsArray(target.0) };
            }
            match unsafe { Self::owned(q::JS_GetProxyTarget(context(), target.0)) } {
                Ok(next) => target = next,
                Err(Thrown) => {
                    drop(super::take_exception());
                    return false;
                }
            }
        }
        false
    }

    /// The index of the tool whose handle this is.
    pub fn handle_index(&self) -> Option<u32> {
        super::handle::index_of(self)
    }

    /// Calls `visit` with the text in UTF-8, lone surrogates replaced by U+FFFD. Numbers, BigInts and strings only:
    /// those become text without guest code.
    pub fn with_text<T>(&self, visit: impl FnOnce(&str) -> T) -> Result<T> {
        let mut length: q::size_t = 0;
        let text = unsafe { q::JS_ToCStringLen2(context(), &raw mut length, self.0, false) };
        if text.is_null() {
            return Err(Thrown);
        }
        let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length as usize) };
        let result = match core::str::from_utf8(bytes) {
            Ok(text) => visit(text),
            Err(_) => visit(&without_lone_surrogates(bytes)),
        };
        unsafe { q::JS_FreeCString(context(), text) };
        Ok(result)
    }

    /// The text as an owned string; see `with_text`.
    pub fn to_text(&self) -> Result<String> {
        self.with_text(str::to_owned)
    }

    /// The description of a symbol; empty when it has none.
    pub fn symbol_description(&self) -> Result<String> {
        let description = super::Primordials::get().symbol_description.call(self, &[])?;
        if description.is_undefined() { Ok(String::new()) } else { description.to_text() }
    }

    /// The number that the value converts to. Runs guest code for objects.
    pub fn to_number(&self) -> Result<f64> {
        let mut number = 0.0;
        if unsafe { q::JS_ToFloat64(context(), &raw mut number, self.0) } < 0 { Err(Thrown) } else { Ok(number) }
    }

    /// The string that the value converts to. Runs guest code for objects.
    pub fn to_js_string(&self) -> Result<Self> {
        unsafe { Self::owned(q::JS_ToString(context(), self.0)) }
    }

    /// Whether the value counts as true. Runs no guest code.
    pub fn is_truthy(&self) -> Result<bool> {
        match unsafe { q::JS_ToBool(context(), self.0) } {
            code if code < 0 => Err(Thrown),
            code => Ok(code != 0),
        }
    }

    /// What tells objects apart, as long as they live.
    pub fn identity(&self) -> usize {
        unsafe { q::JS_VALUE_GET_PTR(self.0) }.addr()
    }

    /// Whether it is an object without internal slots, and no Proxy.
    pub fn is_ordinary(&self) -> bool {
        self.is_object() && unsafe { q::JS_GetClassID(self.0) } == ORDINARY_CLASS
    }

    /// The own enumerable string keys. Runs traps of a Proxy.
    pub fn own_keys(&self) -> Result<Keys> {
        let mut table = ptr::null_mut();
        let mut count = 0;
        let flags = (q::JS_GPN_STRING_MASK | q::JS_GPN_ENUM_ONLY) as c_int;
        if unsafe { q::JS_GetOwnPropertyNames(context(), &raw mut table, &raw mut count, self.0, flags) } < 0 {
            return Err(Thrown);
        }
        Ok(Keys { table, count })
    }

    /// An own property, read without running its getter. Runs a trap of a Proxy.
    pub fn own_property(&self, key: &Key) -> Result<Option<Property>> {
        let mut found = q::JSPropertyDescriptor {
            flags: 0,
            value: q::JS_UNDEFINED,
            getter: q::JS_UNDEFINED,
            setter: q::JS_UNDEFINED,
        };
        match unsafe { q::JS_GetOwnProperty(context(), &raw mut found, self.0, key.0) } {
            0 => Ok(None),
            code if code < 0 => Err(Thrown),
            _ => {
                let (value, getter) = (Self(found.value), Self(found.getter));
                drop(Self(found.setter));
                let is_accessor = found.flags & q::JS_PROP_GETSET as c_int != 0;
                Ok(Some(if is_accessor { Property::Accessor(getter) } else { Property::Data(value) }))
            }
        }
    }

    /// The value of a data property, own or inherited, found without running any guest code: `None` when there is none,
    /// when it is an accessor, or when a Proxy is in the way.
    pub fn data_property(&self, key: &Key) -> Option<Self> {
        // Prototype chains are as long as the guest likes.
        const LINKS_MAX: usize = 64;
        let mut holder = self.clone();
        for _ in 0..LINKS_MAX {
            if !holder.is_object() || holder.is_proxy() {
                return None;
            }
            match holder.own_property(key) {
                Ok(Some(Property::Data(value))) => return Some(value),
                Ok(Some(Property::Accessor(_))) => return None,
                Ok(None) => holder = unsafe { Self(q::JS_GetPrototype(context(), holder.0)) },
                Err(Thrown) => {
                    drop(super::take_exception());
                    return None;
                }
            }
        }
        None
    }

    /// Whether it is a DOMException.
    pub fn is_dom_exception(&self) -> bool {
        boxed_classes().is_some_and(|classes| classes.dom_exception == unsafe { q::JS_GetClassID(self.0) })
    }

    /// `name` or `message` of an error as text, found without running any guest code. A DOMException keeps both in
    /// internal slots.
    pub fn error_text(&self, name: &str) -> Option<String> {
        let value = match self.data_property(&Key::named(name)) {
            Some(value) => value,
            None if unsafe { q::JS_IsError(self.0) } => return None,
            None => super::Primordials::get().dom_exception_text(self, name)?,
        };
        if matches!(value.kind(), Kind::String) { value.to_text().ok() } else { None }
    }

    /// Reads a property as guest code would, getters and traps included.
    pub fn get(&self, key: &Key) -> Result<Self> {
        unsafe { Self::owned(q::JS_GetProperty(context(), self.0, key.0)) }
    }

    /// The length of an array. Runs a trap of a Proxy.
    pub fn length(&self) -> Result<u64> {
        let mut length = 0i64;
        if unsafe { q::JS_GetLength(context(), self.0, &raw mut length) } < 0 {
            return Err(Thrown);
        }
        Ok(u64::try_from(length).unwrap_or(0))
    }

    /// Calls the function. Runs guest code.
    pub fn call(&self, this: &Self, arguments: &[Self]) -> Result<Self> {
        let mut raw: Vec<q::JSValue> = arguments.iter().map(|argument| argument.0).collect();
        let count = c_int::try_from(raw.len()).unwrap_or(c_int::MAX);
        unsafe { Self::owned(q::JS_Call(context(), self.0, this.0, count, raw.as_mut_ptr())) }
    }

    /// Constructs with the constructor. Runs guest code unless it is one of the engine's own.
    pub fn construct(&self, arguments: &[Self]) -> Result<Self> {
        let mut raw: Vec<q::JSValue> = arguments.iter().map(|argument| argument.0).collect();
        let count = c_int::try_from(raw.len()).unwrap_or(c_int::MAX);
        unsafe { Self::owned(q::JS_CallConstructor(context(), self.0, count, raw.as_mut_ptr())) }
    }

    /// Defines an own property that is writable, enumerable or configurable as `attributes` says.
    pub fn define(&self, key: &Key, value: Self, attributes: Attributes) -> Result<()> {
        let flags = attributes.flags() | q::JS_PROP_THROW as c_int;
        let code = unsafe { q::JS_DefinePropertyValue(context(), self.0, key.0, value.into_raw(), flags) };
        if code < 0 { Err(Thrown) } else { Ok(()) }
    }

    /// Assigns a property as guest code would. Runs setters and traps.
    pub fn set(&self, key: &Key, value: Self) -> Result<()> {
        let code = unsafe { q::JS_SetProperty(context(), self.0, key.0, value.into_raw()) };
        if code < 0 { Err(Thrown) } else { Ok(()) }
    }

    /// Deletes an own property.
    pub fn delete(&self, key: &Key) -> Result<()> {
        let flags = q::JS_PROP_THROW as c_int;
        if unsafe { q::JS_DeleteProperty(context(), self.0, key.0, flags) } < 0 { Err(Thrown) } else { Ok(()) }
    }

    /// Whether the object has the property, own or inherited. Runs traps of a Proxy.
    pub fn inherits(&self, key: &Key) -> Result<bool> {
        match unsafe { q::JS_HasProperty(context(), self.0, key.0) } {
            code if code < 0 => Err(Thrown),
            code => Ok(code != 0),
        }
    }

    /// Freezes the object itself.
    pub fn freeze(&self) -> Result<()> {
        if unsafe { q::JS_FreezeObject(context(), self.0) } < 0 { Err(Thrown) } else { Ok(()) }
    }

    /// The bytes that a typed array, DataView or buffer covers, and how many bytes an element of it has. Empty when the
    /// buffer is detached.
    pub fn with_bytes<T>(&self, view: Bytes, visit: impl FnOnce(&[u8]) -> T) -> T {
        let mut size: q::size_t = 0;
        let start = unsafe { q::JS_GetArrayBuffer(context(), &raw mut size, view.buffer.0) };
        if start.is_null() {
            drop(super::take_exception());
            return visit(&[]);
        }
        let whole = unsafe { core::slice::from_raw_parts(start, size as usize) };
        let end = view.offset.saturating_add(view.length).min(whole.len());
        visit(whole.get(view.offset..end).unwrap_or(&[]))
    }

    /// Where the bytes of a typed array are.
    pub fn typed_array_bytes(&self) -> Option<Bytes> {
        let (mut offset, mut length, mut element): (q::size_t, q::size_t, q::size_t) = (0, 0, 0);
        let buffer = unsafe {
            Self::owned(q::JS_GetTypedArrayBuffer(
                context(),
                self.0,
                &raw mut offset,
                &raw mut length,
                &raw mut element,
            ))
        };
        match buffer {
            Ok(buffer) => {
                // The engine keeps the length of an array that follows its buffer elsewhere.
                let followed = super::Primordials::get().typed_array_length.call(self, &[]).ok()?;
                let length = followed.to_number().map_or(length as usize, to_size);
                Some(Bytes { buffer, offset: offset as usize, length })
            }
            Err(Thrown) => {
                drop(super::take_exception());
                None
            }
        }
    }

    /// A typed array of the same element type over another buffer.
    pub fn typed_array_like(&self, buffer: Self, offset: f64, length: f64) -> Result<Self> {
        let mut arguments = [buffer.0, q::JS_NewFloat64(offset), q::JS_NewFloat64(length)];
        unsafe {
            let element = q::JS_GetTypedArrayType(self.0).cast_unsigned();
            Self::owned(q::JS_NewTypedArray(context(), 3, arguments.as_mut_ptr(), element))
        }
    }

    /// Whether a buffer is detached.
    pub fn is_detached(&self) -> bool {
        matches!(
            super::Primordials::get().buffer_detached.call(self, &[]).map(|flag| flag.kind()),
            Ok(Kind::Bool(true))
        )
    }

    /// A copy of the bytes of a buffer, or of those that a view covers; empty when the buffer is detached.
    pub fn copied_bytes(&self) -> Result<Vec<u8>> {
        let covered = match self.class() {
            Class::ArrayBuffer => Some(Bytes { buffer: self.clone(), offset: 0, length: usize::MAX }),
            Class::DataView => self.data_view_bytes(),
            _ => self.typed_array_bytes(),
        };
        Ok(covered.map(|covered| self.with_bytes(covered, <[u8]>::to_vec)).unwrap_or_default())
    }

    /// Where the bytes of a DataView are.
    pub fn data_view_bytes(&self) -> Option<Bytes> {
        let mut parts = Vec::new();
        for getter in &super::Primordials::get().data_view {
            match getter.call(self, &[]) {
                Ok(part) => parts.push(part),
                // The buffer is detached or has shrunk.
                Err(Thrown) => {
                    drop(super::take_exception());
                    return None;
                }
            }
        }
        let [buffer, offset, length] = parts.as_slice() else { return None };
        let size = |value: &Self| match value.kind() {
            Kind::Int(integer) => usize::try_from(integer).unwrap_or(0),
            _ => 0,
        };
        Some(Bytes { buffer: buffer.clone(), offset: size(offset), length: size(length) })
    }

    /// Lends the bytes that a view covers, to be written. `visit` runs no guest code.
    pub fn with_bytes_mut<T>(&self, view: Bytes, visit: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        if unsafe { q::JS_IsImmutableArrayBuffer(view.buffer.0) } > 0 {
            return Err(super::throw_type_error("the buffer is immutable"));
        }
        Ok(Self::lend_bytes(view, visit))
    }

    fn lend_bytes<T>(view: Bytes, visit: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut size: q::size_t = 0;
        let start = unsafe { q::JS_GetArrayBuffer(context(), &raw mut size, view.buffer.0) };
        if start.is_null() {
            drop(super::take_exception());
            return visit(&mut []);
        }
        // Safety: the engine lends its buffer, and nothing else runs meanwhile.
        let whole = unsafe { core::slice::from_raw_parts_mut(start, size as usize) };
        let end = view.offset.saturating_add(view.length).min(whole.len());
        visit(whole.get_mut(view.offset..end).unwrap_or(&mut []))
    }

    /// The element type of a typed array.
    pub fn element_type(&self) -> ElementType {
        match unsafe { q::JS_GetTypedArrayType(self.0) } {
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_UINT8C as c_int => ElementType::Uint8Clamped,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_INT8 as c_int => ElementType::Int8,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_INT16 as c_int => ElementType::Int16,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_UINT16 as c_int => ElementType::Uint16,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_INT32 as c_int => ElementType::Int32,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_UINT32 as c_int => ElementType::Uint32,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_BIG_INT64 as c_int => ElementType::BigInt64,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_BIG_UINT64 as c_int => ElementType::BigUint64,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_FLOAT16 as c_int => ElementType::Float16,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_FLOAT32 as c_int => ElementType::Float32,
            code if code == q::JSTypedArrayEnum_JS_TYPED_ARRAY_FLOAT64 as c_int => ElementType::Float64,
            _ => ElementType::Uint8,
        }
    }
}

/// The part of a buffer that a view covers; what lies beyond the end of the buffer is left out.
pub struct Bytes {
    /// The buffer.
    pub buffer: Value,
    /// Where the view starts, in bytes.
    pub offset: usize,
    /// How long it is, in bytes.
    pub length: usize,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of memory, and saturating")]
fn to_size(number: f64) -> usize {
    number as usize
}

/// What the elements of a typed array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    Int8,
    Uint8,
    Uint8Clamped,
    Int16,
    Uint16,
    Int32,
    Uint32,
    BigInt64,
    BigUint64,
    Float16,
    Float32,
    Float64,
}

impl ElementType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Uint8Clamped => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::BigInt64 | Self::BigUint64 | Self::Float64 => 8,
        }
    }
}

/// What may be done with a property.
#[derive(Clone, Copy, Debug)]
pub enum Attributes {
    /// Visible in loops; neither writable nor configurable. Fixed globals.
    Fixed,
    /// As a class keeps its name for itself: only configurable.
    Tag,
    /// Visible in loops and deletable, but not writable. Tool globals.
    Deletable,
    /// Like a built-in method: writable, configurable, not visible in loops.
    Hidden,
    /// Like a built-in method, but fixed for good.
    Locked,
    /// Like an assignment.
    Open,
}

impl Attributes {
    fn flags(self) -> c_int {
        let flags = match self {
            Self::Fixed => q::JS_PROP_ENUMERABLE,
            Self::Deletable => q::JS_PROP_ENUMERABLE | q::JS_PROP_CONFIGURABLE,
            Self::Tag => q::JS_PROP_CONFIGURABLE,
            Self::Locked => 0,
            Self::Hidden => q::JS_PROP_WRITABLE | q::JS_PROP_CONFIGURABLE,
            Self::Open => q::JS_PROP_C_W_E,
        };
        flags as c_int
    }
}

/// The engine writes a lone surrogate as three bytes that aren't UTF-8; each becomes one U+FFFD.
fn without_lone_surrogates(bytes: &[u8]) -> String {
    const SURROGATE_BYTES: usize = 3;
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match core::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, broken) = rest.split_at(error.valid_up_to());
                text.push_str(core::str::from_utf8(valid).unwrap_or_default());
                text.push(char::REPLACEMENT_CHARACTER);
                rest = broken.get(SURROGATE_BYTES..).unwrap_or_default();
            }
        }
    }
}

/// The class ids of boxed primitives and buffers, which the engine's header doesn't name: read off samples.
struct BoxedClasses {
    boxed: [q::JSClassID; 4],
    symbol: q::JSClassID,
    buffers: [q::JSClassID; 2],
    dom_exception: q::JSClassID,
}

impl BoxedClasses {
    fn of(&self, id: q::JSClassID) -> Class {
        if self.boxed.contains(&id) {
            Class::Boxed
        } else if self.buffers.contains(&id) {
            Class::ArrayBuffer
        } else if self.dom_exception == id {
            Class::Error
        } else if self.symbol == id {
            Class::BoxedSymbol
        } else {
            Class::Plain
        }
    }
}

/// State that is written once, while the component is built. The guest has one thread.
struct Once<T>(OnceCell<T>);
unsafe impl<T> Sync for Once<T> {}

static BOXED: Once<BoxedClasses> = Once(OnceCell::new());

fn boxed_classes() -> Option<&'static BoxedClasses> {
    BOXED.0.get()
}

#[expect(clippy::expect_used, reason = "runs while the component is built, never in a cell")]
pub(super) fn register_classes() {
    let id_of = |source: &str| {
        let sample = super::evaluate(source, c"classes", 1).expect("the samples are valid");
        unsafe { q::JS_GetClassID(sample.0) }
    };
    let classes = BoxedClasses {
        boxed: [id_of("new Number(1)"), id_of("new String('')"), id_of("new Boolean(true)"), id_of("Object(1n)")],
        symbol: id_of("Object(Symbol())"),
        buffers: [id_of("new ArrayBuffer(1)"), id_of("new SharedArrayBuffer(1)")],
        dom_exception: id_of("new DOMException()"),
    };
    assert!(id_of("({})") == ORDINARY_CLASS && id_of("[]") == ARRAY_CLASS, "the engine numbers its classes as it did");
    assert!(BOXED.0.set(classes).is_ok(), "the engine is built once");
}
