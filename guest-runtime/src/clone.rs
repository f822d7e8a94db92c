//! `structuredClone`: a copy of plain data with its cycles and shared parts. Containers are filled in the order in which
//! they are met, without recursion, so that no nesting is too deep.

use std::collections::{HashMap, VecDeque};

use crate::adapter::iterate;
use crate::engine::{self, Attributes, Call, Class, Key, Kind, Primordials, Result, Thrown, Value};

struct Cloner {
    /// Copies by the identity of their originals.
    copies: HashMap<usize, Value>,
    /// Originals and copies whose content is still to come. Originals stay here or in the value that is being cloned.
    unfilled: VecDeque<(Value, Value)>,
    /// Keeps originals alive that only a getter gave, so that no identity is used twice.
    originals: Vec<Value>,
}

/// `structuredClone(value)`
pub fn structured_clone(call: &Call<'_>, _: i32) -> Result<Value> {
    if call.count() == 0 {
        return Err(engine::throw_type_error("structuredClone needs a value"));
    }
    let options = call.argument(1);
    if options.is_object() && !options.get(&Key::named("transfer"))?.is_undefined() {
        return Err(refuse("transferring isn't supported; leave `transfer` out, the value is copied"));
    }
    let mut cloner = Cloner { copies: HashMap::new(), unfilled: VecDeque::new(), originals: Vec::new() };
    let copy = cloner.copy(&call.argument(0))?;
    while let Some((original, copy)) = cloner.unfilled.pop_front() {
        cloner.fill(&original, &copy)?;
    }
    Ok(copy)
}

fn refuse(message: &str) -> Thrown {
    engine::throw_dom_exception(message, "DataCloneError")
}

impl Cloner {
    fn copy(&mut self, value: &Value) -> Result<Value> {
        match value.kind() {
            Kind::Undefined
            | Kind::Null
            | Kind::Bool(_)
            | Kind::Int(_)
            | Kind::Float(_)
            | Kind::BigInt
            | Kind::String => return Ok(value.clone()),
            Kind::Symbol => return Err(refuse("a symbol can't be cloned")),
            Kind::Object => {}
        }
        if let Some(copy) = self.copies.get(&value.identity()) {
            return Ok(copy.clone());
        }
        let copy = self.empty_copy(value)?;
        self.copies.insert(value.identity(), copy.clone());
        self.originals.push(value.clone());
        Ok(copy)
    }

    /// The copy of an object, without what is filled in later.
    fn empty_copy(&mut self, value: &Value) -> Result<Value> {
        let primordials = Primordials::get();
        let later = |this: &mut Self, copy: Value| {
            this.unfilled.push_back((value.clone(), copy.clone()));
            copy
        };
        if value.is_proxy() {
            return Err(refuse("a Proxy can't be cloned"));
        }
        Ok(match value.class() {
            Class::Array => {
                let copy = Value::array(Vec::new())?;
                #[expect(clippy::cast_precision_loss, reason = "lengths of arrays are below 2^32")]
                let length = value.length()? as f64;
                copy.set(&Key::named("length"), Value::number(length))?;
                later(self, copy)
            }
            Class::Plain if value.is_ordinary() => later(self, Value::object()?),
            Class::Map => later(self, primordials.map.construct(&[])?),
            Class::Set => later(self, primordials.set.construct(&[])?),
            Class::Date => primordials.date.construct(&[primordials.date_value.call(value, &[])?])?,
            Class::RegExp => {
                let source = primordials.regexp_source.call(value, &[])?;
                let flags = Value::string(&crate::adapter::regexp_flags(value)?)?;
                primordials.regexp.construct(&[source, flags])?
            }
            Class::Boxed => primordials.object.call(&Value::undefined(), &[primordials.unbox(value)?])?,
            Class::Error => self.error(value)?,
            Class::ArrayBuffer if value.is_detached() => return Err(refuse("its buffer is detached")),
            Class::ArrayBuffer => Value::buffer(&value.copied_bytes()?)?,
            Class::TypedArray => {
                let Some(view) = value.typed_array_bytes() else { return Err(refuse("its buffer is detached")) };
                let count = view.length / value.element_type().bytes();
                let buffer = self.copy(&view.buffer)?;
                value.typed_array_like(buffer, number(view.offset), number(count))?
            }
            Class::DataView => {
                let Some(view) = value.data_view_bytes() else { return Err(refuse("its buffer is detached")) };
                let buffer = self.copy(&view.buffer)?;
                let (offset, length) = (Value::number(number(view.offset)), Value::number(number(view.length)));
                primordials.data_view_constructor.construct(&[buffer, offset, length])?
            }
            Class::Plain | Class::Function | Class::Handle(_) | Class::Promise | Class::BoxedSymbol => {
                return Err(refuse("only data can be cloned, not functions, promises, tools or symbols"));
            }
        })
    }

    /// An error keeps its kind, message, stack and cause.
    fn error(&mut self, value: &Value) -> Result<Value> {
        let name = value.error_text("name").unwrap_or_default();
        if value.is_dom_exception() {
            let text = |name: &str| Value::string(&value.error_text(name).unwrap_or_default());
            return Primordials::get().dom_exception_constructor.construct(&[text("message")?, text("name")?]);
        }
        let constructors = &Primordials::get().errors;
        let constructor = constructors.iter().find(|(known, _)| *known == name).or(constructors.first());
        let Some((_, constructor)) = constructor else { return Err(refuse("this error can't be cloned")) };
        let message = value.error_text("message").map(|message| Value::string(&message)).transpose()?;
        let copy = constructor.construct(message.as_slice())?;
        if let Some(stack) = value.error_text("stack") {
            copy.define(&Key::named("stack"), Value::string(&stack)?, Attributes::Hidden)?;
        }
        if let Some(cause) = value.data_property(&Key::named("cause")) {
            // Found without guest code, so a chain of causes is as deep as it was made; each is cloned like a field.
            let holder = Value::object()?;
            holder.define(&Key::named("cause"), cause, Attributes::Open)?;
            self.unfilled.push_back((holder, copy.clone()));
        }
        Ok(copy)
    }

    fn fill(&mut self, original: &Value, copy: &Value) -> Result<()> {
        let primordials = Primordials::get();
        match original.class() {
            Class::Map => {
                for entry in iterate(original, &primordials.map_entries, &primordials.map_next)? {
                    let part = |index| entry.data_property(&Key::element(index)).unwrap_or_else(Value::undefined);
                    let pair = [self.copy(&part(0))?, self.copy(&part(1))?];
                    primordials.map_set.call(copy, &pair)?;
                }
            }
            Class::Set => {
                for item in iterate(original, &primordials.set_values, &primordials.set_next)? {
                    primordials.set_add.call(copy, &[self.copy(&item)?])?;
                }
            }
            _ => {
                let attributes = if copy.class() == Class::Error { Attributes::Hidden } else { Attributes::Open };
                let keys = original.own_keys()?;
                for key in (0..keys.len()).filter_map(|place| keys.at(place)) {
                    // A getter that ran before may have taken it away.
                    if original.own_property(&key)?.is_some() {
                        let value = self.copy(&original.get(&key)?)?;
                        copy.define(&key, value, attributes)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of memory are far below 2^53")]
fn number(size: usize) -> f64 {
    size as f64
}
