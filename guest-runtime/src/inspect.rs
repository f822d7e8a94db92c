//! Console inspection: bounded text for one console call. It runs no guest code at all: no getter, no toJSON, no trap.
//! The budget of the whole cell is kept elsewhere.

use crate::adapter::UNAWAITED_PROMISE;
use crate::engine::{self, Class, Key, Kind, Property, Value};
use crate::json_text::{push_number, push_string};

/// Values that one call visits.
const VISITED_VALUES_MAX: u32 = 100;
/// Properties that are shown of one object, and elements of one array.
const PROPERTIES_MAX: u32 = 50;
/// Levels of objects that are shown, the outermost included.
const LEVELS_MAX: usize = 4;
/// UTF-16 units that are kept of a string or key.
const STRING_UNITS_MAX: usize = 512;
/// UTF-16 units that are kept of a whole message.
const MESSAGE_UNITS_MAX: usize = 4_096;

const CUT_SUFFIX: &str = "…[truncated]";
const TRUNCATED: &str = "[truncated]";
const UNSERIALIZABLE: &str = "[Unserializable]";

/// The message of a console call with these arguments.
pub fn message(prefix: &str, arguments: &[Value]) -> String {
    let mut inspector = Inspector { out: Vec::new(), visited: 0, path: Vec::new() };
    let mut line = String::from(prefix);
    for (index, argument) in arguments.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        inspector.out.clear();
        inspector.path.clear();
        match inspector.top_level(argument) {
            Ok(()) => line.push_str(&String::from_utf8_lossy(&inspector.out)),
            Err(engine::Thrown) => {
                drop(engine::take_exception());
                line.push_str(UNSERIALIZABLE);
            }
        }
        if line.len() > MESSAGE_UNITS_MAX * 4 {
            break;
        }
    }
    cut(&line, MESSAGE_UNITS_MAX)
}

/// The text itself when it has at most `units_max` UTF-16 units, else its start with a suffix. Pairs aren't split.
fn cut(text: &str, units_max: usize) -> String {
    // UTF-8 never has fewer bytes than UTF-16 has units.
    if text.len() <= units_max {
        return text.to_owned();
    }
    let mut units = 0;
    for (index, letter) in text.char_indices() {
        units += letter.len_utf16();
        if units > units_max {
            let mut kept = text.get(..index).unwrap_or_default().to_owned();
            kept.push_str(CUT_SUFFIX);
            return kept;
        }
    }
    text.to_owned()
}

struct Inspector {
    out: Vec<u8>,
    visited: u32,
    path: Vec<Value>,
}

impl Inspector {
    fn top_level(&mut self, value: &Value) -> engine::Result<()> {
        if self.visited >= VISITED_VALUES_MAX {
            self.out.extend_from_slice(TRUNCATED.as_bytes());
            return Ok(());
        }
        match value.kind() {
            Kind::String => {
                self.visited += 1;
                let text = value.with_text(|text| cut(text, STRING_UNITS_MAX))?;
                self.out.extend_from_slice(text.as_bytes());
            }
            Kind::Undefined | Kind::BigInt | Kind::Symbol => {
                self.visited += 1;
                let word = word(value)?;
                self.out.extend_from_slice(word.as_bytes());
            }
            Kind::Object => match placeholder(value) {
                Some(text) => {
                    self.visited += 1;
                    self.out.extend_from_slice(text.as_bytes());
                }
                None => self.nested(value)?,
            },
            Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => self.nested(value)?,
        }
        Ok(())
    }

    /// Recursion is bounded by `LEVELS_MAX`.
    fn nested(&mut self, value: &Value) -> engine::Result<()> {
        if self.visited >= VISITED_VALUES_MAX {
            push_string(&mut self.out, TRUNCATED);
            return Ok(());
        }
        self.visited += 1;
        match value.kind() {
            Kind::Null => self.out.extend_from_slice(b"null"),
            Kind::Bool(flag) => self.out.extend_from_slice(if flag { b"true" } else { b"false" }),
            Kind::Int(integer) => push_number(&mut self.out, f64::from(integer)),
            Kind::Float(number) => push_number(&mut self.out, number),
            Kind::String => {
                let text = value.with_text(|text| cut(text, STRING_UNITS_MAX))?;
                push_string(&mut self.out, &text);
            }
            Kind::Undefined | Kind::BigInt | Kind::Symbol => {
                let word = word(value)?;
                push_string(&mut self.out, &word);
            }
            Kind::Object => self.object(value)?,
        }
        Ok(())
    }

    fn object(&mut self, value: &Value) -> engine::Result<()> {
        if let Some(text) = placeholder(value) {
            push_string(&mut self.out, text);
            return Ok(());
        }
        if self.path.iter().any(|ancestor| ancestor.is_same_object(value)) {
            push_string(&mut self.out, "[Circular]");
            return Ok(());
        }
        if self.path.len() >= LEVELS_MAX {
            push_string(&mut self.out, TRUNCATED);
            return Ok(());
        }
        self.path.push(value.clone());
        match value.class() {
            Class::Array => self.elements(value)?,
            // Listing the keys of a large one would take more memory than all that is shown of it.
            Class::TypedArray | Class::Boxed => self.indexed(value)?,
            class => self.fields(value, class == Class::Error)?,
        }
        self.path.pop();
        Ok(())
    }

    fn elements(&mut self, array: &Value) -> engine::Result<()> {
        self.out.push(b'[');
        let length = u32::try_from(array.length()?).unwrap_or(u32::MAX);
        for index in 0..length {
            if index > 0 {
                self.out.push(b',');
            }
            if index == PROPERTIES_MAX || self.visited >= VISITED_VALUES_MAX {
                push_string(&mut self.out, TRUNCATED);
                break;
            }
            match array.own_property(&Key::element(index))? {
                Some(Property::Data(value)) => self.nested(&value)?,
                Some(Property::Accessor(_)) => self.accessor(),
                None => self.nested(&Value::undefined())?,
            }
        }
        self.out.push(b']');
        Ok(())
    }

    /// An object whose properties are its elements.
    fn indexed(&mut self, object: &Value) -> engine::Result<()> {
        self.out.push(b'{');
        for index in 0.. {
            let Some(Property::Data(value)) = object.own_property(&Key::element(index))? else { break };
            if index > 0 {
                self.out.push(b',');
            }
            if index == PROPERTIES_MAX || self.visited >= VISITED_VALUES_MAX {
                self.cut_fields();
                break;
            }
            push_string(&mut self.out, &index.to_string());
            self.out.push(b':');
            self.nested(&value)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn cut_fields(&mut self) {
        push_string(&mut self.out, "…");
        self.out.push(b':');
        push_string(&mut self.out, TRUNCATED);
    }

    fn accessor(&mut self) {
        self.visited += 1;
        push_string(&mut self.out, "[Accessor]");
    }

    fn fields(&mut self, object: &Value, is_error: bool) -> engine::Result<()> {
        self.out.push(b'{');
        let keys = object.own_keys()?;
        let mut shown = 0;
        let mut has_message = false;
        while let Some(key) = keys.at(shown) {
            if shown > 0 {
                self.out.push(b',');
            }
            shown += 1;
            if shown > PROPERTIES_MAX || self.visited >= VISITED_VALUES_MAX {
                self.cut_fields();
                break;
            }
            let name = key.text()?.with_text(|text| cut(text, STRING_UNITS_MAX))?;
            has_message |= name == "message";
            push_string(&mut self.out, &name);
            self.out.push(b':');
            match object.own_property(&key)? {
                Some(Property::Data(value)) => self.nested(&value)?,
                Some(Property::Accessor(_)) => self.accessor(),
                None => self.nested(&Value::undefined())?,
            }
        }
        if is_error && !has_message {
            self.error_message(object, shown > 0)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The own message of an Error stands last.
    fn error_message(&mut self, error: &Value, follows: bool) -> engine::Result<()> {
        let property = error.own_property(&Key::named("message"))?;
        let Some(property) = property else { return Ok(()) };
        if follows {
            self.out.push(b',');
        }
        self.out.extend_from_slice(b"\"message\":");
        match property {
            Property::Data(value) => self.nested(&value),
            Property::Accessor(_) => {
                self.accessor();
                Ok(())
            }
        }
    }
}

/// What stands in for an object that isn't looked into.
fn placeholder(value: &Value) -> Option<&'static str> {
    if value.is_proxy() {
        return Some(UNSERIALIZABLE);
    }
    match value.class() {
        Class::Function | Class::Handle(_) => Some("[Function]"),
        Class::Promise => Some(UNAWAITED_PROMISE),
        Class::Plain
        | Class::Array
        | Class::Error
        | Class::Date
        | Class::RegExp
        | Class::Map
        | Class::Set
        | Class::TypedArray
        | Class::ArrayBuffer
        | Class::DataView
        | Class::Boxed
        | Class::BoxedSymbol => None,
    }
}

/// The text of a primitive that JSON doesn't have.
fn word(value: &Value) -> engine::Result<String> {
    Ok(match value.kind() {
        Kind::BigInt => value.with_text(|digits| format!("{}n", cut(digits, STRING_UNITS_MAX)))?,
        Kind::Symbol => {
            let description = value.symbol_description()?;
            format!("Symbol({})", cut(&description, STRING_UNITS_MAX))
        }
        _ => String::from("undefined"),
    })
}
