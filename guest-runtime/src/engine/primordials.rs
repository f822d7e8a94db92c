//! Built-ins that natives need, taken before any cell runs: what the guest overwrites later changes nothing here.
#![expect(unsafe_code, reason = "one static of a guest that has one thread")]

use core::cell::OnceCell;

use super::{Result, Value, evaluate};

/// Captured built-in functions. Each reads internal slots of its receiver and runs no guest code.
pub struct Primordials {
    /// `Date.prototype.toISOString`
    pub date_to_iso: Value,
    /// The getter of `RegExp.prototype.source`
    pub regexp_source: Value,
    /// The getters of the flags of a RegExp, with their letters, in the order of the alphabet.
    pub regexp_flags: Vec<(char, Value)>,
    /// `Map.prototype.entries`
    pub map_entries: Value,
    /// `next` of a Map iterator
    pub map_next: Value,
    /// `Set.prototype.values`
    pub set_values: Value,
    /// `next` of a Set iterator
    pub set_next: Value,
    /// Unboxes: `valueOf` of Number, String, Boolean, BigInt.
    pub unboxers: Vec<Value>,
    /// The getters `buffer`, `byteOffset` and `byteLength` of a DataView.
    pub data_view: Vec<Value>,
    /// The getter `byteLength` of a typed array.
    pub typed_array_length: Value,
    /// The getter `detached` of an ArrayBuffer.
    pub buffer_detached: Value,
    /// The getter of `Symbol.prototype.description`
    pub symbol_description: Value,
    /// The getters of `name` and `message` of a DOMException.
    pub dom_exception: [Value; 2],
    /// The Error constructor.
    pub error: Value,
    /// The constructors of errors by name, `Error` first.
    pub errors: Vec<(&'static str, Value)>,
    /// `Map`
    pub map: Value,
    /// `Map.prototype.set`
    pub map_set: Value,
    /// `Set`
    pub set: Value,
    /// `Set.prototype.add`
    pub set_add: Value,
    /// `Date`
    pub date: Value,
    /// `Date.prototype.getTime`
    pub date_value: Value,
    /// `RegExp`
    pub regexp: Value,
    /// `Object`, which boxes primitives
    pub object: Value,
    /// `DataView`
    pub data_view_constructor: Value,
    /// `DOMException`
    pub dom_exception_constructor: Value,
}

struct Once(OnceCell<Primordials>);
// The guest has one thread.
unsafe impl Sync for Once {}
static CAPTURED: Once = Once(OnceCell::new());

impl Primordials {
    /// Takes them. The build calls this once.
    ///
    /// # Panics
    ///
    /// When a built-in is missing, which only the build can see.
    #[expect(clippy::expect_used, reason = "runs while the component is built, never in a cell")]
    pub fn capture() {
        let take = |source: &str| evaluate(source, c"primordials", 1).expect("the engine has its built-ins");
        let getter =
            |of: &str, name: &str| take(&format!("Object.getOwnPropertyDescriptor({of}.prototype, '{name}').get"));
        let flags = [
            ('d', "hasIndices"),
            ('g', "global"),
            ('i', "ignoreCase"),
            ('m', "multiline"),
            ('s', "dotAll"),
            ('u', "unicode"),
            ('v', "unicodeSets"),
            ('y', "sticky"),
        ];
        let captured = Self {
            date_to_iso: take("Date.prototype.toISOString"),
            regexp_source: getter("RegExp", "source"),
            regexp_flags: flags.map(|(letter, name)| (letter, getter("RegExp", name))).into(),
            map_entries: take("Map.prototype.entries"),
            map_next: take("Object.getPrototypeOf(new Map().entries()).next"),
            set_values: take("Set.prototype.values"),
            set_next: take("Object.getPrototypeOf(new Set().values()).next"),
            unboxers: ["Number", "String", "Boolean", "BigInt"]
                .map(|of| take(&format!("{of}.prototype.valueOf")))
                .into(),
            data_view: ["buffer", "byteOffset", "byteLength"].map(|name| getter("DataView", name)).into(),
            typed_array_length: take(
                "Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), 'byteLength').get",
            ),
            buffer_detached: getter("ArrayBuffer", "detached"),
            symbol_description: getter("Symbol", "description"),
            dom_exception: ["name", "message"].map(|name| getter("DOMException", name)),
            error: take("Error"),
            errors: ["Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"]
                .map(|name| (name, take(name)))
                .into(),
            map: take("Map"),
            map_set: take("Map.prototype.set"),
            set: take("Set"),
            set_add: take("Set.prototype.add"),
            date: take("Date"),
            date_value: take("Date.prototype.getTime"),
            regexp: take("RegExp"),
            object: take("Object"),
            data_view_constructor: take("DataView"),
            dom_exception_constructor: take("DOMException"),
        };
        assert!(CAPTURED.0.set(captured).is_ok(), "primordials are captured once");
    }

    /// What was captured.
    ///
    /// # Panics
    ///
    /// When called before `capture`: a mistake of ours that the build would show.
    #[expect(clippy::expect_used, reason = "the base image always holds them")]
    pub fn get() -> &'static Self {
        CAPTURED.0.get().expect("captured while the component was built")
    }

    /// `name` or `message` of a DOMException; `None` for anything else.
    pub fn dom_exception_text(&self, exception: &Value, name: &str) -> Option<Value> {
        let [name_getter, message_getter] = &self.dom_exception;
        let getter = if name == "name" { name_getter } else { message_getter };
        match getter.call(exception, &[]) {
            Ok(text) => Some(text),
            Err(_) => {
                drop(super::take_exception());
                None
            }
        }
    }

    /// The primitive inside a boxed one.
    pub fn unbox(&self, boxed: &Value) -> Result<Value> {
        for unboxer in &self.unboxers {
            match unboxer.call(boxed, &[]) {
                Ok(value) => return Ok(value),
                // Each refuses what isn't its own.
                Err(_) => drop(super::take_exception()),
            }
        }
        Err(super::throw_type_error("not a boxed primitive"))
    }
}
