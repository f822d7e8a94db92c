//! The catalog as the guest sees it: a handle for each tool, globals and namespaces that hold the handles, and what a
//! handle shows. Descriptions and schemas stay on the host until somebody looks at them.

use std::cell::{Cell, RefCell};

use crate::codemode::cell::catalog as host;
use crate::codemode::cell::types::Server;
use crate::engine::{self, Attributes, Key, Kind, Property, Result, Value, handle, parse_json};

/// What a property of a handle shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// How many arguments it takes.
    Length,
    /// The field of this name of the tool's metadata; `undefined` when the tool lacks it.
    Metadata(&'static str),
    /// Where the declaration of its server is. Members of servers only.
    ApiPath,
    /// The method `describe`.
    Describe,
    /// The method `toJSON`.
    ToJson,
}

struct Methods {
    describe: Value,
    to_json: Value,
    /// The object that holds the namespaces; frozen when the cell starts.
    namespaces: Value,
}

thread_local! {
    /// By index.
    static HANDLES: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
    /// How many of them are globals, which come first; the rest are members of servers.
    static GLOBALS: Cell<usize> = const { Cell::new(0) };
    static METHODS: RefCell<Option<Methods>> = const { RefCell::new(None) };
}

/// Keeps what all catalogs share. The build calls this once.
pub fn capture(describe: Value, to_json: Value, namespaces: Value) {
    METHODS.set(Some(Methods { describe, to_json, namespaces }));
}

/// Installs a catalog: tools by callable name in code point order, then servers with their members.
pub fn install(tools: &[String], servers: &[Server]) -> Result<()> {
    let global = Value::global();
    for name in tools {
        global.define(&Key::named(name), new_handle()?, Attributes::Deletable)?;
    }
    GLOBALS.set(tools.len());
    if !servers.is_empty() {
        let root = Value::bare_object()?;
        root.define(&Key::named("$api"), crate::natives::api_of(None)?, Attributes::Fixed)?;
        for (place, server) in servers.iter().enumerate() {
            let tree = server_tree(place, server)?;
            root.define(&Key::named(&server.identifier), tree, Attributes::Fixed)?;
        }
        root.freeze()?;
        let key = Key::named("MCP");
        let namespaces = METHODS.with_borrow(|methods| methods.as_ref().map(|methods| methods.namespaces.clone()));
        if let Some(namespaces) = namespaces {
            namespaces.define(&key, root.clone(), Attributes::Fixed)?;
        }
        global.define(&key, root, Attributes::Deletable)?;
    }
    Ok(())
}

/// Whether no tool is installed.
pub fn is_empty() -> bool {
    HANDLES.with_borrow(Vec::is_empty)
}

/// The last step before a cell's own code: nothing more is put into the namespaces.
pub fn seal() -> Result<()> {
    let namespaces = METHODS.with_borrow(|methods| methods.as_ref().map(|methods| methods.namespaces.clone()));
    namespaces.map_or(Ok(()), |namespaces| namespaces.freeze())
}

fn server_tree(place: usize, server: &Server) -> Result<Value> {
    let tree = Value::bare_object()?;
    tree.define(&Key::named("$api"), crate::natives::api_of(Some(place))?, Attributes::Fixed)?;
    tree.define(&Key::named("$serverName"), Value::string(&server.server_name)?, Attributes::Fixed)?;
    // Groups stand together, because members come in code point order.
    let mut group: Option<(&str, Value)> = None;
    for path in &server.members {
        let handle = new_handle()?;
        let Some((name, member)) = path.split_once('.') else {
            tree.define(&Key::named(path), handle, Attributes::Fixed)?;
            continue;
        };
        let open = match group.take() {
            Some((open, object)) if open == name => object,
            closed => {
                if let Some((_, object)) = closed {
                    object.freeze()?;
                }
                let object = Value::bare_object()?;
                tree.define(&Key::named(name), object.clone(), Attributes::Fixed)?;
                object
            }
        };
        open.define(&Key::named(member), handle, Attributes::Fixed)?;
        group = Some((name, open));
    }
    if let Some((_, object)) = group {
        object.freeze()?;
    }
    tree.freeze()?;
    Ok(tree)
}

fn new_handle() -> Result<Value> {
    let index = HANDLES.with_borrow(Vec::len);
    let handle = handle::new(u32::try_from(index).unwrap_or(u32::MAX))?;
    HANDLES.with_borrow_mut(|handles| handles.push(handle.clone()));
    Ok(handle)
}

/// Whether the tool is a member of a server.
pub fn is_member(index: u32) -> bool {
    usize::try_from(index).is_ok_and(|index| index >= GLOBALS.get())
}

/// Whether the handle of this tool has the property.
pub fn has_field(index: u32, field: Field) -> bool {
    field != Field::ApiPath || is_member(index)
}

/// The value of a handle's property.
pub fn field(index: u32, field: Field) -> Result<Value> {
    let method = |pick: fn(&Methods) -> &Value| {
        METHODS.with_borrow(|methods| methods.as_ref().map_or_else(Value::undefined, |methods| pick(methods).clone()))
    };
    let name = match field {
        Field::Length => return Ok(Value::integer(1)),
        Field::Describe => return Ok(method(|methods| &methods.describe)),
        Field::ToJson => return Ok(method(|methods| &methods.to_json)),
        Field::Metadata(name) => name,
        Field::ApiPath => "apiPath",
    };
    match parse_json(&terminated(metadata(index)))?.own_property(&Key::named(name))? {
        Some(Property::Data(value)) => Ok(value),
        Some(Property::Accessor(_)) | None => Ok(Value::undefined()),
    }
}

/// What a handle becomes as data: compact JSON.
pub fn metadata(index: u32) -> Vec<u8> {
    host::metadata(index)
}

/// The metadata of a handle as a frozen object.
pub fn metadata_of(handle: &Value) -> Result<Value> {
    let Some(index) = handle.handle_index() else {
        return Err(engine::throw_type_error("toJSON is a method of tool handles"));
    };
    let metadata = parse_json(&terminated(metadata(index)))?;
    metadata.freeze()?;
    Ok(metadata)
}

/// JSON from the host as the engine's parser wants it.
pub fn terminated(mut json: Vec<u8>) -> Vec<u8> {
    json.push(0);
    json
}

/// The handles of all tools that are globals, by callable name, as a frozen array.
pub fn all() -> Result<Value> {
    let all = Value::array(HANDLES.with_borrow(|handles| handles.get(..GLOBALS.get()).unwrap_or_default().to_vec()))?;
    all.freeze()?;
    Ok(all)
}

/// The handles of a list of indexes, as an array.
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
        found.extend(HANDLES.with_borrow(|handles| handles.get(index).cloned()));
    }
    Value::array(found)
}

/// A frozen list of frozen files, inside an object `{files}`.
pub fn file_list(json: Vec<u8>) -> Result<Value> {
    let files = parse_json(&terminated(json))?;
    for place in 0..u32::try_from(files.length()?).unwrap_or(u32::MAX) {
        if let Some(file) = files.data_property(&Key::element(place)) {
            file.freeze()?;
        }
    }
    files.freeze()?;
    let list = Value::object()?;
    list.define(&Key::named("files"), files, Attributes::Open)?;
    Ok(list)
}
