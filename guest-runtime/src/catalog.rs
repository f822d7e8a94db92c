//! The tools as the guest sees them: one frozen, callable handle each, which is also the global of that name.

use crate::engine::{Attributes, Key, Kind, Result, Value, parse_json};

/// The properties of a handle, in order. A missing one is there as `undefined`, and JSON drops it.
const METADATA: &[&str] = &["callableName", "toolName", "label", "description", "source", "input", "output"];

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
    let count = u32::try_from(tools.length()?).unwrap_or(u32::MAX);
    for index in 0..count {
        let Some(metadata) = tools.data_property(&Key::element(index)) else { continue };
        let handle = Value::handle(index)?;
        handle.define(&length, Value::integer(1), Attributes::Hidden)?;
        let mut callable_name = None;
        for key in &keys {
            let value = metadata.data_property(key).unwrap_or_else(Value::undefined);
            if callable_name.is_none() && matches!(value.kind(), Kind::String) {
                handle.define(&name, value.clone(), Attributes::Hidden)?;
                callable_name = Some(value.to_text()?);
            }
            handle.define(key, value, Attributes::Fixed)?;
        }
        handle.freeze()?;
        if let Some(callable_name) = callable_name {
            global.define(&Key::named(&callable_name), handle, Attributes::Deletable)?;
        }
    }
    Ok(())
}
