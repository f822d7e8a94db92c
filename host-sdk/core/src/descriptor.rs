//! What a saved value looks like to a model: size, shape, and samples of it in a few hundred bytes (B 3.5.25-28). It reads
//! JSON text in place, a bounded number of times. Samples show; they declare nothing.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Bytes of JSON that a descriptor may have.
pub const DESCRIPTOR_BYTES_MAX: usize = 768;
/// A value up to this many bytes is its own preview.
const WHOLE_BYTES_MAX: usize = 256;
/// Values that are looked at, and how deep they may lie.
const NODES_MAX: usize = 128;
const LEVELS_MAX: usize = 5;
/// Keys of an object that are followed, and bytes of a key or path.
const KEYS_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 192;
/// Arrays that are shown, the longest ones.
const ARRAYS_MAX: usize = 8;
/// Items of an array that are looked at.
const SAMPLED_MAX: usize = 3;
/// Of a sample: levels, keys, items, bytes of strings and of keys.
const SAMPLE_LEVELS_MAX: usize = 2;
const SAMPLE_KEYS_MAX: usize = 6;
const SAMPLE_ITEMS_MAX: usize = 2;
const SAMPLE_STRING_BYTES_MAX: usize = 48;
const SAMPLE_KEY_BYTES_MAX: usize = 40;
/// Scalar fields of the outermost object that are shown beside arrays.
const FIELDS_MAX: usize = 4;
const FIELD_BYTES_MAX: usize = 96;
/// Bytes of a shape, less and less of them until everything fits.
const SHAPE_BYTES_MAX: [usize; 4] = [320, 160, 64, 0];
const CUT: &str = "…";

/// What is known about a saved value.
#[derive(Debug)]
pub struct Descriptor<'a> {
    id: &'a str,
    value: &'a str,
    count: usize,
    survey: Survey,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    id: &'a str,
    bytes: usize,
    count: usize,
    shape: &'a str,
    preview: &'a str,
    preview_truncated: bool,
}

impl<'a> Descriptor<'a> {
    /// Looks at a value. Takes time in proportion to its bytes: each is read some six times at most.
    ///
    /// ```
    /// use codemode_core::descriptor::{DESCRIPTOR_BYTES_MAX, Descriptor};
    /// let value = serde_json::value::RawValue::from_string(r#"{"n":1}"#.into()).unwrap();
    /// assert_eq!(
    ///     Descriptor::of("result_7", &value).to_json(DESCRIPTOR_BYTES_MAX).unwrap().get(),
    ///     r#"{"id":"result_7","bytes":7,"count":1,"shape":"{\"n\":number}","preview":"{\"n\":1}","previewTruncated":false}"#
    /// );
    /// ```
    pub fn of(id: &'a str, value: &'a RawValue) -> Self {
        let (count, survey) = Survey::of(value.get());
        Self { id, value: value.get(), count, survey }
    }

    /// The descriptor in at most `bytes_max` bytes of JSON: shape and preview get smaller until it fits. `None` when not
    /// even the id, the size and the count do.
    pub fn to_json(&self, bytes_max: usize) -> Option<Box<RawValue>> {
        // Written here, so it is JSON.
        RawValue::from_string(self.fitting(bytes_max)?).ok()
    }

    fn fitting(&self, bytes_max: usize) -> Option<String> {
        let whole = (self.value.len() <= WHOLE_BYTES_MAX).then(|| self.value.to_owned());
        for shape_bytes_max in SHAPE_BYTES_MAX {
            let shape = cut(&self.survey.shape, shape_bytes_max);
            let previews = whole.iter().cloned().map(|whole| (whole, false));
            for (preview, preview_truncated) in previews.chain(self.survey.previews().map(|preview| (preview, true))) {
                let json = self.with(&shape, &preview, preview_truncated);
                if json.len() <= bytes_max {
                    return Some(json);
                }
            }
        }
        let least = self.with("", "", true);
        (least.len() <= bytes_max).then_some(least)
    }

    fn with(&self, shape: &str, preview: &str, preview_truncated: bool) -> String {
        let bytes = self.value.len();
        json(&Fields { id: self.id, bytes, count: self.count, shape, preview, preview_truncated })
    }
}

/// What was found in a value.
#[derive(Debug)]
struct Survey {
    /// The longest arrays, longest first.
    arrays: Vec<Array>,
    /// Scalar fields of the outermost object, as a JSON member with a comma before it.
    fields: String,
    /// Whether something wasn't looked at.
    is_limited: bool,
    /// What stands for a value without arrays.
    sample: String,
    shape: String,
}

/// An array that is shown.
#[derive(Debug)]
struct Array {
    path: String,
    count: usize,
    /// Of each item that was looked at, its index, its kind and a sample.
    items: Vec<(usize, String, String)>,
}

/// An array that was found.
struct Found<'a> {
    path: String,
    count: usize,
    items: Vec<(usize, &'a str)>,
}

impl Survey {
    /// Breadth first: of an array its first, middle and last item, of an object its first keys.
    /// Gives the count of the outermost value as well.
    fn of(value: &str) -> (usize, Self) {
        let mut reader = Reader::of(value);
        let (mut count_of_all, mut found, mut fields, mut is_limited) = (1, Vec::new(), String::new(), false);
        let mut queue = VecDeque::from([(String::from("$"), value, 1)]);
        let mut nodes = 1;
        while let Some((path, text, level)) = queue.pop_front() {
            let node = reader.read(text);
            if let (1, Node::Array { count, .. } | Node::Object { count, .. }) = (level, &node) {
                count_of_all = *count;
            }
            let children: Vec<(String, &str)> = match node {
                Node::Scalar => continue,
                Node::Opaque => {
                    is_limited = true;
                    continue;
                }
                Node::Array { count, items } => {
                    let below = items.iter().map(|(index, item)| (format!("{path}[{index}]"), *item)).collect();
                    found.push(Found { path, count, items });
                    below
                }
                Node::Object { count, members } => {
                    is_limited |= count > members.len();
                    if level == 1 {
                        fields = scalar_fields(&members);
                    }
                    members.iter().map(|(key, member)| (format!("{path}{}", Step(key)), *member)).collect()
                }
            };
            for (path, child) in children.into_iter().filter(|(_, child)| is_container(child)) {
                if level == LEVELS_MAX || nodes == NODES_MAX || path.len() > PATH_BYTES_MAX {
                    is_limited = true;
                    continue;
                }
                nodes += 1;
                queue.push_back((path, child, level + 1));
            }
        }
        found.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.path.cmp(&b.path)));
        is_limited |= found.len() > ARRAYS_MAX;
        found.truncate(ARRAYS_MAX);
        let arrays: Vec<Array> = found.into_iter().map(|found| Array::of(found, &mut reader)).collect();
        let shapes: Vec<String> = arrays.iter().map(Array::shape).collect();
        let shape = if arrays.is_empty() { reader.kind(value) } else { shapes.join("; ") };
        let limited = if is_limited { "limited traversal; " } else { "" };
        let sample = if arrays.is_empty() { reader.sample(value, SAMPLE_LEVELS_MAX) } else { String::new() };
        (count_of_all, Self { arrays, fields, is_limited, sample, shape: format!("{limited}{shape}") })
    }

    /// Previews, the most telling first.
    fn previews(&self) -> impl Iterator<Item = String> {
        let head = format!(r#"{{"sampled":true,"traversalLimited":{}"#, self.is_limited);
        let least = format!("{head}}}");
        let sample = self.arrays.is_empty().then(|| format!("{head},\"value\":{}}}", self.sample));
        let sizes =
            (1..=self.arrays.len()).rev().flat_map(|arrays| (0..=SAMPLED_MAX).rev().map(move |items| (arrays, items)));
        let telling = sizes.flat_map(move |(arrays, items)| {
            let shown: Vec<String> = self.arrays.iter().take(arrays).map(|array| array.preview(items)).collect();
            let arrays = format!(",\"arrays\":[{}]}}", shown.join(","));
            [format!("{head}{}{arrays}", self.fields), format!("{head}{arrays}")]
        });
        sample.into_iter().chain(telling).chain([least])
    }
}

impl Array {
    fn of(found: Found<'_>, reader: &mut Reader) -> Self {
        let Found { path, count, items } = found;
        let items = items.into_iter();
        let items = items.map(|(index, item)| (index, reader.kind(item), reader.sample(item, SAMPLE_LEVELS_MAX)));
        Self { path, count, items: items.collect() }
    }

    /// `$.rows: 200 items, sampled 3/200: {"n":number}`.
    fn shape(&self) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for (_, kind, _) in &self.items {
            if !kinds.contains(&kind.as_str()) {
                kinds.push(kind);
            }
        }
        let (path, count, sampled) = (&self.path, self.count, self.items.len());
        let mixed = if kinds.len() > 1 { " heterogeneous" } else { "" };
        let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(" | ")) };
        format!("{path}: {count} items, sampled {sampled}/{count}{mixed}{kinds}")
    }

    fn preview(&self, items_max: usize) -> String {
        let items = self.items.iter().take(items_max);
        let items: Vec<String> =
            items.map(|(index, _, sample)| format!(r#"{{"index":{index},"value":{sample}}}"#)).collect();
        let (path, count) = (json(&self.path), self.count);
        format!(r#"{{"path":{path},"count":{count},"items":[{}]}}"#, items.join(","))
    }
}

/// Short scalar fields as a JSON member; what isn't a string first, because it tells more per byte.
fn scalar_fields(members: &[(String, &str)]) -> String {
    let mut scalars: Vec<(bool, String)> = members
        .iter()
        .filter(|(_, member)| !is_container(member))
        .map(|(key, member)| (member.starts_with('"'), format!("{}:{member}", json(key))))
        .filter(|(_, field)| field.len() <= FIELD_BYTES_MAX)
        .collect();
    scalars.sort_by_key(|(is_string, _)| *is_string);
    let shown: Vec<String> = scalars.into_iter().take(FIELDS_MAX).map(|(_, field)| field).collect();
    if shown.is_empty() { String::new() } else { format!(",\"fields\":{{{}}}", shown.join(",")) }
}

/// A key as a step of a path: `.name` or `["odd name"]`.
struct Step<'a>(&'a str);

impl fmt::Display for Step<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters = self.0.chars();
        let is_start = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || letter == '$';
        let is_name = letters.next().is_some_and(is_start) && letters.all(|c| is_start(c) || c.is_ascii_digit());
        if is_name { write!(formatter, ".{}", self.0) } else { write!(formatter, "[{}]", json(&self.0)) }
    }
}

fn kind_name(text: &str) -> &'static str {
    match text.bytes().next() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

fn is_container(text: &str) -> bool {
    text.starts_with(['{', '['])
}

/// The beginning of a scalar as JSON.
fn scalar_sample(text: &str) -> String {
    if text.starts_with('"') {
        json(&cut(&string_start(text), SAMPLE_STRING_BYTES_MAX))
    } else if text.len() <= SAMPLE_STRING_BYTES_MAX {
        text.to_owned()
    } else {
        json(&cut(text, SAMPLE_STRING_BYTES_MAX))
    }
}

/// What a JSON string says, or enough of it for a sample.
fn string_start(text: &str) -> String {
    /// Of one byte of text, and of one letter.
    const ESCAPED_BYTES_MAX: usize = 6;
    const ESCAPED_LETTER_BYTES_MAX: usize = 12;
    let mut end = text.floor_char_boundary((SAMPLE_STRING_BYTES_MAX + 2) * ESCAPED_BYTES_MAX);
    if end == text.len() {
        return serde_json::from_str(text).unwrap_or_else(|_| CUT.to_owned());
    }
    // Not within an escape, or between the halves of a letter.
    for _ in 0..ESCAPED_LETTER_BYTES_MAX {
        if let Ok(start) = serde_json::from_str(&format!("{}\"", text.get(..end).unwrap_or_default())) {
            return start;
        }
        end = text.floor_char_boundary(end.saturating_sub(1));
    }
    CUT.to_owned()
}

/// The beginning of a text, and a mark when that isn't all of it.
fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mark = if bytes_max == 0 { "" } else { CUT };
    format!("{}{mark}", text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default())
}

#[expect(clippy::expect_used, reason = "strings and numbers always serialise")]
fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("strings and numbers serialise")
}

/// One level of a value. Texts are slices of the original.
enum Node<'a> {
    Scalar,
    /// A container that isn't looked into.
    Opaque,
    /// Its first, middle and last item.
    Array {
        count: usize,
        items: Vec<(usize, &'a str)>,
    },
    /// Its first members.
    Object {
        count: usize,
        members: Vec<(String, &'a str)>,
    },
}

/// Reads levels of valid JSON, as long as the bytes that it may read last.
struct Reader {
    bytes_left: usize,
}

impl Reader {
    fn of(value: &str) -> Self {
        const SMALL_BYTES: usize = 1 << 20;
        const LARGE_BYTES: usize = 64 << 20;
        let bytes = value.len();
        Self {
            bytes_left: bytes.saturating_mul(6).min(bytes.saturating_mul(2).saturating_add(LARGE_BYTES)) + SMALL_BYTES,
        }
    }

    fn read<'a>(&mut self, text: &'a str) -> Node<'a> {
        let passes = match text.bytes().next() {
            Some(b'[') => 2,
            Some(b'{') => 1,
            _ => return Node::Scalar,
        };
        let Some(left) = self.bytes_left.checked_sub(text.len().saturating_mul(passes)) else { return Node::Opaque };
        self.bytes_left = left;
        let mut parser = serde_json::Deserializer::from_str(text);
        let read = if passes == 2 {
            parser.deserialize_seq(Count).and_then(|count| {
                let wanted = [0, count / 2, count.saturating_sub(1)];
                let mut parser = serde_json::Deserializer::from_str(text);
                let items = parser.deserialize_seq(Pick(wanted, PhantomData))?;
                Ok(Node::Array { count, items })
            })
        } else {
            parser.deserialize_map(Members(PhantomData))
        };
        // Half a letter in a key can't be read as text.
        read.unwrap_or(Node::Opaque)
    }

    /// The kind of a value; of an object with the kinds of its first members.
    fn kind(&mut self, text: &str) -> String {
        let node = if text.starts_with('{') { self.read(text) } else { Node::Scalar };
        let Node::Object { count, members } = node else { return kind_name(text).to_owned() };
        let mut kind = String::from("{");
        for (place, (key, member)) in members.iter().take(SAMPLE_KEYS_MAX).enumerate() {
            let comma = if place > 0 { "," } else { "" };
            // Writing to a string can't fail.
            let _ = write!(kind, "{comma}{}:{}", json(&cut(key, SAMPLE_KEY_BYTES_MAX)), kind_name(member));
        }
        if count > SAMPLE_KEYS_MAX {
            kind.push_str(CUT);
        }
        kind + "}"
    }

    /// A value as JSON with the beginning of everything in it.
    fn sample(&mut self, text: &str, levels: usize) -> String {
        let node = if levels > 0 || !is_container(text) { self.read(text) } else { Node::Opaque };
        match node {
            Node::Scalar => scalar_sample(text),
            Node::Opaque => json(if text.starts_with('[') { "[…]" } else { "{…}" }),
            Node::Array { count, items } => {
                let shown = items.iter().take(SAMPLE_ITEMS_MAX).map(|(_, item)| self.sample(item, levels - 1));
                let rest = (count > SAMPLE_ITEMS_MAX).then(|| json(CUT));
                format!("[{}]", shown.chain(rest).collect::<Vec<_>>().join(","))
            }
            Node::Object { count, members } => {
                let shown = members.iter().take(SAMPLE_KEYS_MAX).map(|(key, member)| {
                    format!("{}:{}", json(&cut(key, SAMPLE_KEY_BYTES_MAX)), self.sample(member, levels - 1))
                });
                let rest = (count > SAMPLE_KEYS_MAX).then(|| format!("{}:{}", json(CUT), json(CUT)));
                format!("{{{}}}", shown.chain(rest).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Counts the items of an array.
struct Count;

impl<'de> Visitor<'de> for Count {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// Picks items of an array by index.
struct Pick<'a>([usize; SAMPLED_MAX], PhantomData<&'a str>);

impl<'a> Visitor<'a> for Pick<'a> {
    type Value = Vec<(usize, &'a str)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut picked = Vec::new();
        for index in 0.. {
            if !self.0.contains(&index) {
                if items.next_element::<IgnoredAny>()?.is_none() {
                    break;
                }
                continue;
            }
            let Some(item) = items.next_element::<&RawValue>()? else { break };
            picked.push((index, item.get()));
        }
        Ok(picked)
    }
}

/// Reads the first members of an object and counts the rest.
struct Members<'a>(PhantomData<&'a str>);

impl<'a> Visitor<'a> for Members<'a> {
    type Value = Node<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut entries: A) -> Result<Node<'a>, A::Error> {
        let mut members: Vec<(String, &str)> = Vec::new();
        while members.len() < KEYS_MAX
            && let Some((key, member)) = entries.next_entry::<String, &RawValue>()?
        {
            members.push((key, member.get()));
        }
        let mut count = members.len();
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Node::Object { count, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(value: &Value, bytes_max: usize) -> Option<Value> {
        let value = RawValue::from_string(value.to_string()).unwrap();
        let json = Descriptor::of("result_1", &value).to_json(bytes_max)?;
        assert!(json.get().len() <= bytes_max, "{} of {bytes_max}", json.get().len());
        Some(serde_json::from_str(json.get()).unwrap())
    }

    fn preview(descriptor: &Value) -> Value {
        serde_json::from_str(descriptor["preview"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn a_small_value_is_its_own_preview_and_one_byte_more_is_sampled() {
        for (letters, is_whole) in [(WHOLE_BYTES_MAX - 2, true), (WHOLE_BYTES_MAX - 1, false)] {
            let descriptor = of(&json!("x".repeat(letters)), DESCRIPTOR_BYTES_MAX).unwrap();
            assert_eq!(descriptor["previewTruncated"], !is_whole);
            assert_eq!((descriptor["count"].clone(), descriptor["shape"].clone()), (json!(1), json!("string")));
            if !is_whole {
                let value = format!("{}{CUT}", "x".repeat(SAMPLE_STRING_BYTES_MAX));
                assert_eq!(preview(&descriptor), json!({"sampled": true, "traversalLimited": false, "value": value}));
            }
        }
    }

    #[test]
    fn rows_are_sampled_at_both_ends_and_in_the_middle() {
        let rows: Vec<Value> = (0..200).map(|n| json!({"n": n, "name": format!("row {n}")})).collect();
        let descriptor = of(&json!({"total": 200, "note": "n", "rows": rows}), DESCRIPTOR_BYTES_MAX).unwrap();
        assert_eq!(descriptor["count"], 3);
        assert_eq!(descriptor["shape"], r#"$.rows: 200 items, sampled 3/200: {"n":number,"name":string}"#);
        let item = |n: u64| json!({"index": n, "value": {"n": n, "name": format!("row {n}")}});
        let arrays = json!([{"path": "$.rows", "count": 200, "items": [item(0), item(100), item(199)]}]);
        let expected = json!({
            "sampled": true, "traversalLimited": false, "fields": {"total": 200, "note": "n"}, "arrays": arrays
        });
        assert_eq!(preview(&descriptor), expected);
    }

    #[test]
    fn it_shrinks_before_it_gives_up_and_keeps_its_identity() {
        let value: Vec<Value> = (0..50).map(|n| json!([n, "x".repeat(60), {"deep": [[[[[[n]]]]]]}])).collect();
        let value = json!({"odd key": value, "b": value.clone(), "c": value});
        let mut last = usize::MAX;
        for bytes_max in (90..=DESCRIPTOR_BYTES_MAX).rev().step_by(7) {
            let Some(descriptor) = of(&value, bytes_max) else {
                assert!(bytes_max < 120, "identity alone fits into {bytes_max}");
                continue;
            };
            assert_eq!((&descriptor["id"], &descriptor["count"]), (&json!("result_1"), &json!(3)));
            let shown = descriptor["preview"].as_str().unwrap().len();
            assert!(shown <= last.saturating_add(200), "it gets smaller");
            last = shown;
        }
        assert!(
            of(&value, DESCRIPTOR_BYTES_MAX).unwrap()["shape"].as_str().unwrap().starts_with("limited traversal; ")
        );
        assert_eq!(of(&value, 60), None);
    }

    #[test]
    fn mixed_items_odd_keys_and_many_keys_are_told() {
        let many: Value = (0..20).map(|n| (format!("k{n:02}"), json!([n]))).collect::<serde_json::Map<_, _>>().into();
        let descriptor = of(&json!({"a b": [1, "x", null], "m": many}), DESCRIPTOR_BYTES_MAX).unwrap();
        let shape = descriptor["shape"].as_str().unwrap();
        let start = r#"limited traversal; $["a b"]: 3 items, sampled 3/3 heterogeneous: number | string | null; $.m.k00: 1 items, sampled 1/1: number"#;
        assert!(shape.starts_with(start), "{shape}");
    }

    #[test]
    fn many_nodes_and_deep_ones_are_left_alone() {
        let wide: Vec<Value> = (0..40).map(|n| json!(vec![vec![vec![n; 3]; 3]; 3])).collect();
        assert!(Survey::of(&json!(wide).to_string()).1.arrays.len() == ARRAYS_MAX);
        let deep = format!("{}{}", "[".repeat(900), "]".repeat(900));
        let (_, survey) = Survey::of(&deep);
        assert_eq!((survey.arrays.len(), survey.is_limited), (LEVELS_MAX, true));
    }

    #[test]
    fn nothing_that_is_long_gets_into_a_sample() {
        let long = |text: String| RawValue::from_string(text).unwrap();
        let number = "1".repeat(1 << 20);
        let escaped = "\\ud83d\\ude00".repeat(1 << 16);
        let blob = "x".repeat(1 << 20);
        for value in [
            long(number.clone()),
            long(format!("[{number}]")),
            long(format!(r#"{{"\ud800":{number}}}"#)),
            long(format!("[\"{escaped}\"]")),
            long(format!("[\"\\ud800{escaped}\"]")),
            long(format!(r#"[[{{"{blob}":["{blob}"]}}]]"#)),
        ] {
            let (_, survey) = Survey::of(value.get());
            let longest = survey.previews().map(|preview| preview.len()).max().unwrap();
            assert!(longest < 2_000, "{longest} bytes for {:.20}", value.get());
            assert!(Descriptor::of("result_1", &value).to_json(DESCRIPTOR_BYTES_MAX).is_some());
        }
        let (_, survey) = Survey::of(&format!("[\"{escaped}\"]"));
        let sampled = format!("{}{CUT}", "😀".repeat(SAMPLE_STRING_BYTES_MAX / 4));
        assert!(survey.previews().next().unwrap().contains(&sampled));
    }

    #[test]
    fn however_a_value_is_nested_it_is_read_a_few_times() {
        let rows = format!("[{}1]", "1,".repeat(1 << 20));
        let nested = (0..9).fold(rows, |inner, _| format!("[{inner}]"));
        let mut reader = Reader::of(&nested);
        let before = reader.bytes_left;
        assert!(before < nested.len() * 7, "{before}");
        let reads = (0..100).take_while(|_| !matches!(reader.read(&nested), Node::Opaque)).count();
        assert!((1..4).contains(&reads), "{reads} reads");
        assert_eq!(reader.kind(&nested), "array");
        assert_eq!(reader.sample(&nested, SAMPLE_LEVELS_MAX), "\"[…]\"");
        let (count, survey) = Survey::of(&nested);
        assert!(count == 1 && survey.is_limited && survey.arrays.len() <= 3, "{} arrays", survey.arrays.len());
    }
}
