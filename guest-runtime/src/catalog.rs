//! The tools as the guest sees them: one frozen, callable handle each, which is also the global of that name; and the
//! lists of handles that `catalog` gives.

use std::cell::RefCell;

use crate::engine::{Attributes, Key, Kind, Result, Value, parse_json, throw_type_error};

/// The properties of a handle, in order. A missing one is there as `undefined`, and JSON drops it.
const METADATA: &[&str] = &["callableName", "toolName", "label", "description", "source", "input", "output"];

struct Handle {
    callable_name: String,
    value: Value,
}

thread_local! {
    /// By index.
    static HANDLES: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    /// `describe` and `toJSON`, which all handles share.
    static METHODS: RefCell<Option<(Value, Value)>> = const { RefCell::new(None) };
}

/// Keeps the methods of handles. The build calls this once.
pub fn capture_methods(describe: Value, to_json: Value) {
    METHODS.set(Some((describe, to_json)));
}

/// Installs a catalog: an array of metadata objects, in the order of their indexes.
pub fn install(mut catalog: Vec<u8>) -> Result<()> {
    if catalog.is_empty() {
        return Ok(());
    }
    catalog.push(0);
    let tools = parse_json(&catalog)?;
    let global = Value::global();
    let keys: Vec<Key> = METADATA.iter().map(|name| Key::named(name)).collect();
    let (name, length) = (Key::named("name"), Key::named("length"));
    let (describe, to_json) = (Key::named("describe"), Key::named("toJSON"));
    let methods = METHODS.with_borrow(Clone::clone);
    let count = u32::try_from(tools.length()?).unwrap_or(u32::MAX);
    let mut handles = Vec::new();
    for index in 0..count {
        let Some(metadata) = tools.data_property(&Key::element(index)) else { continue };
        let handle = Value::handle(index)?;
        let callable_name = match keys.first().and_then(|key| metadata.data_property(key)) {
            Some(callable_name) if matches!(callable_name.kind(), Kind::String) => callable_name,
            _ => continue,
        };
        handle.define(&length, Value::integer(1), Attributes::Hidden)?;
        handle.define(&name, callable_name.clone(), Attributes::Hidden)?;
        for key in &keys {
            let value = metadata.data_property(key).unwrap_or_else(Value::undefined);
            handle.define(key, value, Attributes::Fixed)?;
        }
        if let Some((describe_method, to_json_method)) = &methods {
            handle.define(&describe, describe_method.clone(), Attributes::Fixed)?;
            handle.define(&to_json, to_json_method.clone(), Attributes::Hidden)?;
        }
        handle.freeze()?;
        let callable_name = callable_name.to_text()?;
        global.define(&Key::named(&callable_name), handle.clone(), Attributes::Deletable)?;
        handles.push(Handle { callable_name, value: handle });
    }
    HANDLES.set(handles);
    Ok(())
}

/// Every handle, by callable name, as a frozen array.
pub fn all() -> Result<Value> {
    let mut sorted: Vec<(String, Value)> = HANDLES.with_borrow(|handles| {
        handles.iter().map(|handle| (handle.callable_name.clone(), handle.value.clone())).collect()
    });
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    frozen(sorted.into_iter().map(|(_, handle)| handle).collect())
}

/// The handles of a list of indexes, as a frozen array.
pub fn handles_of(indexes: &Value) -> Result<Value> {
    let count = u32::try_from(indexes.length()?).unwrap_or(u32::MAX);
    let mut found = Vec::new();
    for place in 0..count {
        let index = match indexes.data_property(&Key::element(place)).map(|index| index.kind()) {
            Some(Kind::Int(index)) => usize::try_from(index).unwrap_or(usize::MAX),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what doesn't fit isn't found")]
            Some(Kind::Float(index)) => index as usize,
            _ => continue,
        };
        found.extend(HANDLES.with_borrow(|handles| handles.get(index).map(|handle| handle.value.clone())));
    }
    frozen(found)
}

fn frozen(items: Vec<Value>) -> Result<Value> {
    let array = Value::array(items)?;
    array.freeze()?;
    Ok(array)
}

/// The metadata of a handle as a frozen object of data.
pub fn metadata_of(handle: &Value) -> Result<Value> {
    if handle.handle_index().is_none() {
        return Err(throw_type_error("toJSON is a method of tool handles"));
    }
    let metadata = Value::object()?;
    for name in METADATA {
        let key = Key::named(name);
        if let Some(value) = handle.data_property(&key).filter(|value| !value.is_undefined()) {
            metadata.define(&key, value, Attributes::Open)?;
        }
    }
    metadata.freeze()?;
    Ok(metadata)
}
