//! Everything that a cell can name: the own properties of the global object, of what it inherits from, and of what we put
//! there, pinned with their attributes in `globals.txt`. A new line in that file is a decision, not an accident.

use super::{engine, exec, runtime, session};

const PINNED: &str = include_str!("globals.txt");

/// Lists `path: type attributes` for each property: w, e, c for writable, enumerable and configurable, or `accessor`.
const LISTING: &str = r#"
const lines = [];
const list = (path, object) => {
  for (const key of Reflect.ownKeys(object)) {
    const d = Object.getOwnPropertyDescriptor(object, key);
    const kind = 'value' in d ? (d.value === null ? 'null' : typeof d.value) : 'accessor';
    const flags = (d.writable ? 'w' : '-') + (d.enumerable ? 'e' : '-') + (d.configurable ? 'c' : '-');
    lines.push(`${path}.${String(key)}: ${kind} ${flags}`);
  }
};
list('globalThis', globalThis);
for (let p = Object.getPrototypeOf(globalThis), n = 1; p; p = Object.getPrototypeOf(p), n++) list(`prototype${n}`, p);
for (const name of ['API', 'catalog', 'console', 'crypto', 'namespaces', 'performance', 'results']) {
  list(name, globalThis[name]);
  lines.push(`${name}: frozen ${Object.isFrozen(globalThis[name])}`);
}
for (const name of ['TextDecoder', 'TextEncoder']) {
  list(name, globalThis[name]);
  list(`${name}.prototype`, globalThis[name].prototype);
}
list('Math.random', Math.random);
list('Error', Error);
lines.push(`Promise.prototype.constructor: ${JSON.stringify(Object.getOwnPropertyDescriptor(Promise.prototype, 'constructor'))}`);
return lines.sort().join('\n');
"#;

#[test]
fn a_cell_sees_exactly_the_pinned_names() {
    let (engine, runtime) = (engine(), runtime());
    let session = session(&engine, &runtime, &[]);
    let result = exec(&runtime, &session, LISTING);
    let found = result["value"].as_str().unwrap_or_else(|| panic!("{result}"));
    let pinned: Vec<&str> = PINNED.lines().collect();
    let found: Vec<&str> = found.lines().collect();
    let fresh: Vec<&&str> = found.iter().filter(|line| !pinned.contains(line)).collect();
    let gone: Vec<&&str> = pinned.iter().filter(|line| !found.contains(line)).collect();
    assert!(fresh.is_empty() && gone.is_empty(), "new: {fresh:#?}\ngone: {gone:#?}");
}

/// Plumbing has no names: whatever the guest tries, it finds nothing of ours besides what is pinned.
#[test]
fn nothing_private_can_be_reached_by_name_or_through_a_stack() {
    let (engine, runtime) = (engine(), runtime());
    let session = session(&engine, &runtime, &[]);
    let source = r#"
        const seen = new Set(), names = [];
        const open = [globalThis];
        while (open.length) {
            const object = open.pop();
            if (object === null || (typeof object !== 'object' && typeof object !== 'function') || seen.has(object)) continue;
            seen.add(object);
            for (const key of Reflect.ownKeys(object)) {
                names.push(String(key));
                const d = Object.getOwnPropertyDescriptor(object, key);
                open.push(d.value, d.get, d.set);
            }
            open.push(Object.getPrototypeOf(object));
        }
        const stack = await new Promise((resolve) => setTimeout(() => resolve(new Error().stack), 0));
        return { odd: names.filter((name) => /codemode|openclaw|javy|quickjs|bridge|^__(?!proto__|(define|lookup)[GS]etter__)/i.test(name)),
                 count: seen.size > 500, stack: /codemode|native/.test(stack) };
    "#;
    let result = exec(&runtime, &session, source);
    assert_eq!(result["value"], serde_json::json!({"odd": [], "count": true, "stack": false}), "{result}");
}
