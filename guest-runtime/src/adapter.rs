//! The one value adapter: any guest value to compact JSON, natively over the heap. The only guest code it runs is own
//! getters and Proxy traps. It keeps its own stack, so nesting can't exhaust the guest's.

use crate::engine::{self, Class, ElementType, Key, Keys, Kind, Primordials, Property, Thrown, Value};
use crate::json_text::{letter_boundary, push_escaped, push_integer, push_number, push_string};

/// Containers that may be nested in each other: this many pass, one more fails.
const DEPTH_MAX: usize = 1_000;

/// What stands in for a promise that nobody awaited.
pub const UNAWAITED_PROMISE: &str =
    "[unawaited Promise: await it first, for instance with `await value` or `await Promise.all([...])`]";

/// How to treat what JSON can't say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Replaces it: the final value and output.
    Lenient,
    /// Replaces it, and leaves out what only guest code could tell: accessors, and everything inside a Proxy. For the
    /// report of a failed cell, whose code doesn't run any more.
    Inert,
    /// Refuses a BigInt, a cycle and an un-awaited promise: tool arguments and stored results.
    Strict,
}

/// Why a value has no JSON.
#[derive(Debug)]
pub enum Refusal {
    /// A getter or a trap threw, or a strict rule did; the exception is pending in the engine.
    Thrown,
    /// Nested deeper than `DEPTH_MAX`.
    TooDeep,
    /// Longer than the limit that was given.
    TooLarge,
}

impl From<Thrown> for Refusal {
    fn from(_: Thrown) -> Self {
        Self::Thrown
    }
}

/// Compact JSON, or the beginning of it.
pub enum Json {
    /// All of it.
    Whole(Vec<u8>),
    /// It is too long to be held at once.
    Start(Start),
}

/// The beginning of JSON that is too long.
#[derive(Default)]
pub struct Start {
    /// As many bytes of it as were asked for.
    pub text: Vec<u8>,
    /// How many bytes there are in all.
    pub bytes: u64,
    /// Quotes and backslashes in all of it: what the JSON has more when it is made a JSON string.
    pub escapes: u64,
}

/// The compact JSON of `value`, at most `bytes_max` bytes of it.
pub fn to_json(value: &Value, mode: Mode, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let mut adapter = Adapter::new(mode, bytes_max);
    adapter.all(value)?;
    Ok(adapter.out)
}

/// The compact JSON of `value`, or the first `start_bytes` bytes of it when it is longer than `bytes_max`.
pub fn to_json_or_start(value: &Value, bytes_max: usize, start_bytes: usize) -> Result<Json, Refusal> {
    let mut adapter = Adapter { start_bytes: Some(start_bytes), ..Adapter::new(Mode::Lenient, bytes_max) };
    adapter.all(value)?;
    if adapter.start.bytes == 0 {
        return Ok(Json::Whole(adapter.out));
    }
    adapter.let_go(start_bytes);
    Ok(Json::Start(adapter.start))
}

struct Adapter {
    out: Vec<u8>,
    stack: Vec<Frame>,
    keys: KeyTexts,
    mode: Mode,
    bytes_max: usize,
    /// How much of something longer is kept; refused when absent.
    start_bytes: Option<usize>,
    start: Start,
}

/// The JSON of keys that came before: rows of a table have the same ones.
#[derive(Default)]
struct KeyTexts {
    places: Vec<Option<(Key, Box<[u8]>)>>,
    /// Keys so far. A value with few of them isn't worth the memory.
    count: usize,
}

impl KeyTexts {
    /// A key finds its place by the number that the engine gives it.
    const PLACES: usize = 128;
    const WORTHWHILE_FROM: usize = 32;
    /// A longer key isn't kept.
    const BYTES_MAX: usize = 256;

    fn push(&mut self, out: &mut Vec<u8>, key: &Key) -> Result<(), Thrown> {
        self.count += 1;
        if self.count < Self::WORTHWHILE_FROM {
            return key.text()?.with_text(|text| push_string(out, text));
        }
        self.places.resize_with(Self::PLACES, || None);
        let known = self.places.get_mut(key.identity() % Self::PLACES);
        if let Some(Some((same, json))) = &known
            && same.identity() == key.identity()
        {
            out.extend_from_slice(json);
            return Ok(());
        }
        let start = out.len();
        key.text()?.with_text(|text| push_string(out, text))?;
        if let (Some(known), Some(json)) = (known, out.get(start..))
            && json.len() <= Self::BYTES_MAX
        {
            // Kept alive, so that its number can't become another key's.
            *known = Some((key.duplicate(), json.into()));
        }
        Ok(())
    }
}

/// A container that is being written.
struct Frame {
    /// The object itself, for finding cycles; a pair of a Map has none.
    object: Option<Value>,
    is_proxy: bool,
    children: Children,
    is_first: bool,
}

enum Children {
    Elements { length: u64, next: u64 },
    Fields { listed: std::vec::IntoIter<(Name, Value)>, own: Option<Keys>, next: u32 },
    List(std::vec::IntoIter<Item>),
}

enum Name {
    Fixed(&'static str),
    Text(Value),
    Own(Key),
}

enum Item {
    Value(Value),
    Pair(Value, Value),
}

/// What the topmost container has next.
enum Step {
    Close(u8),
    Element(Item),
    Field(Name, Value),
}

impl Adapter {
    fn new(mode: Mode, bytes_max: usize) -> Self {
        let keys = KeyTexts::default();
        Self { out: Vec::new(), stack: Vec::new(), keys, mode, bytes_max, start_bytes: None, start: Start::default() }
    }

    fn all(&mut self, value: &Value) -> Result<(), Refusal> {
        self.emit(value.clone())?;
        while let Some(step) = self.next_step()? {
            self.take(step)?;
        }
        Ok(())
    }

    /// Called when something is written whole: what is too long is refused, or counted and let go.
    fn check_size(&mut self) -> Result<(), Refusal> {
        if self.out.len() > self.bytes_max {
            let start_bytes = self.start_bytes.ok_or(Refusal::TooLarge)?;
            self.let_go(start_bytes);
        }
        Ok(())
    }

    fn let_go(&mut self, start_bytes: usize) {
        if self.start.bytes == 0 {
            let end = letter_boundary(&self.out, start_bytes);
            self.start.text = self.out.get(..end).unwrap_or_default().to_vec();
        }
        self.start.bytes += self.out.len() as u64;
        self.start.escapes += self.out.iter().filter(|byte| matches!(byte, b'"' | b'\\')).count() as u64;
        self.out.clear();
    }

    fn next_step(&mut self) -> Result<Option<Step>, Refusal> {
        let Some(frame) = self.stack.last_mut() else { return Ok(None) };
        Ok(Some(match &mut frame.children {
            Children::Elements { length, next } => {
                if next == length {
                    Step::Close(b']')
                } else {
                    let index = *next;
                    *next += 1;
                    Step::Element(Item::Value(element(frame.object.as_ref(), frame.is_proxy, index, self.mode)?))
                }
            }
            Children::List(items) => items.next().map_or(Step::Close(b']'), Step::Element),
            Children::Fields { listed, own, next } => {
                if let Some((name, value)) = listed.next() {
                    Step::Field(name, value)
                } else {
                    next_own_field(frame.object.as_ref(), frame.is_proxy, own.as_ref(), next, self.mode)?
                        .map_or(Step::Close(b'}'), |(name, value)| Step::Field(name, value))
                }
            }
        }))
    }

    fn take(&mut self, step: Step) -> Result<(), Refusal> {
        match step {
            Step::Close(bracket) => {
                self.stack.pop();
                self.out.push(bracket);
            }
            Step::Element(item) => {
                self.separate();
                match item {
                    Item::Value(value) => self.emit(value)?,
                    Item::Pair(key, value) => {
                        let pair = vec![Item::Value(key), Item::Value(value)];
                        self.open(None, b'[', Children::List(pair.into_iter()))?;
                    }
                }
            }
            Step::Field(name, value) => {
                if !is_absent(&value) {
                    self.separate();
                    match name {
                        Name::Fixed(text) => push_string(&mut self.out, text),
                        Name::Text(text) => text.with_text(|text| push_string(&mut self.out, text))?,
                        Name::Own(key) => self.keys.push(&mut self.out, &key)?,
                    }
                    self.out.push(b':');
                    self.emit(value)?;
                }
            }
        }
        self.check_size()
    }

    fn separate(&mut self) {
        if let Some(frame) = self.stack.last_mut() {
            if !frame.is_first {
                self.out.push(b',');
            }
            frame.is_first = false;
        }
    }

    fn emit(&mut self, value: Value) -> Result<(), Refusal> {
        match value.kind() {
            Kind::Undefined | Kind::Null | Kind::Symbol => self.out.extend_from_slice(b"null"),
            Kind::Bool(true) => self.out.extend_from_slice(b"true"),
            Kind::Bool(false) => self.out.extend_from_slice(b"false"),
            Kind::Int(integer) => push_integer(&mut self.out, i64::from(integer)),
            Kind::Float(number) => push_number(&mut self.out, number),
            Kind::BigInt => {
                self.refuse_when_strict(|| {
                    engine::throw_type_error(
                        "a BigInt can't be passed on as JSON; convert it first, for instance with String(value)",
                    )
                })?;
                value.with_text(|text| push_string(&mut self.out, text))?;
            }
            Kind::String => value.with_text(|text| self.emit_text(text))??,
            Kind::Object => self.emit_object(value)?,
        }
        self.check_size()
    }

    /// A long text in parts, so that not all of it is held twice.
    fn emit_text(&mut self, text: &str) -> Result<(), Refusal> {
        const PART_BYTES: usize = 64 * 1024;
        if text.len() <= PART_BYTES {
            push_string(&mut self.out, text);
            return Ok(());
        }
        self.out.push(b'"');
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
            if let Some(start_bytes) = self.start_bytes
                && self.out.len() + part.len() > self.bytes_max
            {
                // Before it has to grow: memory is short when values are that long.
                self.let_go(start_bytes);
            }
            push_escaped(&mut self.out, part);
            self.check_size()?;
            rest = after;
        }
        self.out.push(b'"');
        Ok(())
    }

    fn refuse_when_strict(&self, refuse: impl FnOnce() -> Thrown) -> Result<(), Refusal> {
        match self.mode {
            Mode::Lenient | Mode::Inert => Ok(()),
            Mode::Strict => Err(refuse().into()),
        }
    }

    fn emit_object(&mut self, value: Value) -> Result<(), Refusal> {
        let is_on_path =
            self.stack.iter().any(|frame| frame.object.as_ref().is_some_and(|object| object.is_same_object(&value)));
        if is_on_path {
            self.refuse_when_strict(|| {
                engine::throw_type_error(
                    "a value that contains itself can't be passed on as JSON; pass the parts that are needed",
                )
            })?;
            push_string(&mut self.out, "[Circular]");
            return Ok(());
        }
        if self.mode == Mode::Inert && value.is_proxy() {
            push_string(&mut self.out, "[object Proxy]");
            return Ok(());
        }
        let primordials = Primordials::get();
        match value.class() {
            Class::Function => self.out.extend_from_slice(b"null"),
            Class::Array => {
                let length = value.length()?;
                self.open(Some(value), b'[', Children::Elements { length, next: 0 })?;
            }
            Class::Plain | Class::BoxedSymbol => self.open_fields(value, Vec::new())?,
            Class::Handle(tool) => self.out.extend(crate::catalog::metadata(tool)),
            Class::Error => {
                let fields = error_fields(&value);
                self.open_fields(value, fields)?;
            }
            Class::Promise => {
                self.refuse_when_strict(|| {
                    engine::throw_type_error(
                        "a promise can't be passed on as JSON; await it first, for instance with `await value`",
                    )
                })?;
                push_string(&mut self.out, UNAWAITED_PROMISE);
            }
            Class::Date => match primordials.date_to_iso.call(&value, &[]) {
                Ok(text) => text.with_text(|text| push_string(&mut self.out, text))?,
                // An invalid date.
                Err(Thrown) => {
                    drop(engine::take_exception());
                    self.out.extend_from_slice(b"null");
                }
            },
            Class::RegExp => push_string(&mut self.out, &regexp_literal(&value)?),
            Class::Boxed => {
                let primitive = primordials.unbox(&value)?;
                self.emit(primitive)?;
            }
            Class::Map => self.open_map(value)?,
            Class::Set => {
                let items = iterate(&value, &primordials.set_values, &primordials.set_next)?;
                let items: Vec<Item> = items.into_iter().map(Item::Value).collect();
                self.open(Some(value), b'[', Children::List(items.into_iter()))?;
            }
            Class::TypedArray => self.emit_typed_array(&value)?,
            Class::ArrayBuffer | Class::DataView => {
                let bytes = value.copied_bytes()?;
                self.emit_bytes(&bytes)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, object: Option<Value>, bracket: u8, children: Children) -> Result<(), Refusal> {
        if self.stack.len() >= DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        self.out.push(bracket);
        let is_proxy = object.as_ref().is_some_and(Value::is_proxy);
        self.stack.push(Frame { object, is_proxy, children, is_first: true });
        Ok(())
    }

    fn open_fields(&mut self, value: Value, listed: Vec<(Name, Value)>) -> Result<(), Refusal> {
        // The depth first: listing the keys may run a trap.
        if self.stack.len() >= DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        let own = value.own_keys()?;
        let children = Children::Fields { listed: listed.into_iter(), own: Some(own), next: 0 };
        self.open(Some(value), b'{', children)
    }

    fn open_map(&mut self, value: Value) -> Result<(), Refusal> {
        let primordials = Primordials::get();
        let mut entries = Vec::new();
        for entry in iterate(&value, &primordials.map_entries, &primordials.map_next)? {
            let part = |index| entry.data_property(&Key::element(index)).unwrap_or_else(Value::undefined);
            entries.push((part(0), part(1)));
        }
        if entries.iter().all(|(key, _)| matches!(key.kind(), Kind::String)) {
            let fields: Vec<(Name, Value)> = entries.into_iter().map(|(key, value)| (Name::Text(key), value)).collect();
            self.open(Some(value), b'{', Children::Fields { listed: fields.into_iter(), own: None, next: 0 })
        } else {
            let pairs: Vec<Item> = entries.into_iter().map(|(key, value)| Item::Pair(key, value)).collect();
            self.open(Some(value), b'[', Children::List(pairs.into_iter()))
        }
    }

    fn emit_bytes(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.emit_numbers(bytes.iter().map(|byte| Number::Integer(i64::from(*byte))))
    }

    fn emit_typed_array(&mut self, value: &Value) -> Result<(), Refusal> {
        let Some(view) = value.typed_array_bytes() else {
            self.out.extend_from_slice(b"[]");
            return Ok(());
        };
        let bytes = value.with_bytes(view, <[u8]>::to_vec);
        self.emit_elements(value.element_type(), &bytes)
    }

    fn emit_elements(&mut self, element: ElementType, bytes: &[u8]) -> Result<(), Refusal> {
        let integers = |width| bytes.chunks_exact(width);
        match element {
            ElementType::Int8 => self.emit_numbers(bytes.iter().map(|byte| Number::Integer(byte.cast_signed().into()))),
            ElementType::Uint8 | ElementType::Uint8Clamped => self.emit_bytes(bytes),
            ElementType::Int16 => {
                self.emit_numbers(integers(2).map(|part| Number::Integer(i16::from_le_bytes(array(part)).into())))
            }
            ElementType::Uint16 => {
                self.emit_numbers(integers(2).map(|part| Number::Integer(u16::from_le_bytes(array(part)).into())))
            }
            ElementType::Int32 => {
                self.emit_numbers(integers(4).map(|part| Number::Integer(i32::from_le_bytes(array(part)).into())))
            }
            ElementType::Uint32 => {
                self.emit_numbers(integers(4).map(|part| Number::Integer(u32::from_le_bytes(array(part)).into())))
            }
            ElementType::BigInt64 => {
                self.emit_numbers(integers(8).map(|part| Number::Quoted(i64::from_le_bytes(array(part)).to_string())))
            }
            ElementType::BigUint64 => {
                self.emit_numbers(integers(8).map(|part| Number::Quoted(u64::from_le_bytes(array(part)).to_string())))
            }
            ElementType::Float16 => {
                self.emit_numbers(integers(2).map(|part| Number::Float(half(u16::from_le_bytes(array(part))))))
            }
            ElementType::Float32 => {
                self.emit_numbers(integers(4).map(|part| Number::Float(f32::from_le_bytes(array(part)).into())))
            }
            ElementType::Float64 => {
                self.emit_numbers(integers(8).map(|part| Number::Float(f64::from_le_bytes(array(part)))))
            }
        }
    }

    fn emit_numbers(&mut self, numbers: impl Iterator<Item = Number>) -> Result<(), Refusal> {
        self.out.push(b'[');
        for (index, number) in numbers.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            match number {
                Number::Integer(integer) => push_integer(&mut self.out, integer),
                Number::Float(number) => push_number(&mut self.out, number),
                Number::Quoted(digits) => push_string(&mut self.out, &digits),
            }
            self.check_size()?;
        }
        self.out.push(b']');
        Ok(())
    }
}

enum Number {
    Integer(i64),
    Float(f64),
    Quoted(String),
}

fn array<const N: usize>(part: &[u8]) -> [u8; N] {
    part.try_into().unwrap_or([0; N])
}

/// The value of an IEEE half-precision number.
fn half(bits: u16) -> f64 {
    const EXPONENT_BIAS: i32 = 15;
    const FRACTION_BITS: i32 = 10;
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((bits >> FRACTION_BITS) & 0x1F);
    let fraction = f64::from(bits & 0x3FF);
    let magnitude = match exponent {
        0 => fraction * f64::powi(2.0, 1 - EXPONENT_BIAS - FRACTION_BITS),
        0x1F if fraction == 0.0 => f64::INFINITY,
        0x1F => f64::NAN,
        _ => (fraction + 1024.0) * f64::powi(2.0, exponent - EXPONENT_BIAS - FRACTION_BITS),
    };
    sign * magnitude
}

/// Whether an object drops the key of this value.
fn is_absent(value: &Value) -> bool {
    match value.kind() {
        Kind::Undefined | Kind::Symbol => true,
        Kind::Object => matches!(value.class(), Class::Function),
        Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) | Kind::BigInt | Kind::String => false,
    }
}

/// An element of an array: holes are `undefined`, prototypes are not asked.
fn element(array: Option<&Value>, is_proxy: bool, index: u64, mode: Mode) -> Result<Value, Refusal> {
    let Some(array) = array else { return Ok(Value::undefined()) };
    let key = u32::try_from(index).map_or_else(|_| Key::named(&index.to_string()), Key::element);
    if is_proxy {
        return Ok(array.get(&key)?);
    }
    Ok(match array.own_property(&key)? {
        Some(property) => read(array, property, mode)?,
        None => Value::undefined(),
    })
}

fn next_own_field(
    object: Option<&Value>,
    is_proxy: bool,
    keys: Option<&Keys>,
    next: &mut u32,
    mode: Mode,
) -> Result<Option<(Name, Value)>, Refusal> {
    let (Some(object), Some(keys)) = (object, keys) else { return Ok(None) };
    while let Some(key) = keys.at(*next) {
        *next += 1;
        let value = if is_proxy {
            object.get(&key)?
        } else {
            match object.own_property(&key)? {
                Some(property) => read(object, property, mode)?,
                // An earlier getter deleted it.
                None => continue,
            }
        };
        return Ok(Some((Name::Own(key), value)));
    }
    Ok(None)
}

fn read(object: &Value, property: Property, mode: Mode) -> Result<Value, Thrown> {
    match property {
        Property::Accessor(_) if mode == Mode::Inert => Ok(Value::undefined()),
        Property::Data(value) => Ok(value),
        Property::Accessor(getter) if getter.is_undefined() => Ok(getter),
        Property::Accessor(getter) => getter.call(object, &[]),
    }
}

/// `name` and `message`, then `cause` and `errors` when they are own properties that a loop wouldn't show.
fn error_fields(error: &Value) -> Vec<(Name, Value)> {
    let mut fields = Vec::new();
    for (name, fallback) in [("name", "Error"), ("message", "")] {
        let text = error.error_text(name).unwrap_or_else(|| fallback.to_owned());
        if let Ok(value) = Value::string(&text) {
            fields.push((Name::Fixed(name), value));
        }
    }
    let enumerable = enumerable_names(error);
    fields.retain(|(name, _)| !matches!(name, Name::Fixed(name) if enumerable.iter().any(|other| other == name)));
    for name in ["cause", "errors"] {
        if enumerable.iter().any(|other| other == name) {
            continue;
        }
        if let Ok(Some(Property::Data(value))) = error.own_property(&Key::named(name)) {
            fields.push((Name::Fixed(name), value));
        }
    }
    fields
}

fn enumerable_names(object: &Value) -> Vec<String> {
    let Ok(keys) = object.own_keys() else {
        drop(engine::take_exception());
        return Vec::new();
    };
    (0..keys.len()).filter_map(|index| keys.at(index)?.text().ok()?.to_text().ok()).collect()
}

fn regexp_literal(regexp: &Value) -> Result<String, Refusal> {
    let primordials = Primordials::get();
    let mut literal = String::from("/");
    literal.push_str(&primordials.regexp_source.call(regexp, &[])?.to_text()?);
    literal.push('/');
    literal.push_str(&regexp_flags(regexp)?);
    Ok(literal)
}

/// The flags of a RegExp, read through captured built-ins.
pub fn regexp_flags(regexp: &Value) -> engine::Result<String> {
    let mut flags = String::new();
    for (letter, getter) in &Primordials::get().regexp_flags {
        if matches!(getter.call(regexp, &[])?.kind(), Kind::Bool(true)) {
            flags.push(*letter);
        }
    }
    Ok(flags)
}

/// What a Map or Set holds, read through captured built-ins.
pub fn iterate(collection: &Value, start: &Value, next: &Value) -> engine::Result<Vec<Value>> {
    let iterator = start.call(collection, &[])?;
    let (done, value) = (Key::named("done"), Key::named("value"));
    let mut items = Vec::new();
    loop {
        let result = next.call(&iterator, &[])?;
        if !matches!(result.data_property(&done).map(|done| done.kind()), Some(Kind::Bool(false))) {
            return Ok(items);
        }
        items.push(result.data_property(&value).unwrap_or_else(Value::undefined));
    }
}
