//! `TextEncoder` and `TextDecoder` for UTF-8 and UTF-16, as WHATWG has them. A decoder that holds half a character keeps it
//! across a park, because its state is part of the cell's memory.

use crate::engine::{self, Attributes, Call, Class, ElementType, Key, Kind, Result, Value, class};

/// The encodings that a decoder knows, with their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf16Le,
    Utf16Be,
}

const LABELS: &[(Encoding, &[&str])] = &[
    (Encoding::Utf8, &["unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "utf-8", "utf8", "x-unicode20utf8"]),
    (Encoding::Utf16Le, &["csunicode", "iso-10646-ucs-2", "ucs-2", "unicode", "unicodefeff", "utf-16", "utf-16le"]),
    (Encoding::Utf16Be, &["unicodefffe", "utf-16be"]),
];

impl Encoding {
    fn of_label(label: &str) -> Option<Self> {
        let label = label.trim_matches(['\t', '\n', '\x0C', '\r', ' ']).to_ascii_lowercase();
        LABELS.iter().find(|(_, labels)| labels.contains(&label.as_str())).map(|(encoding, _)| *encoding)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
        }
    }
}

struct Encoder;

struct Decoder {
    encoding: Encoding,
    is_fatal: bool,
    keeps_mark: bool,
    /// Whether the last call said that more follows.
    is_streaming: bool,
    /// Whether the start of the text, where a byte order mark may stand, is behind.
    is_past_start: bool,
    /// The bytes of a character that has begun.
    pending: Vec<u8>,
}

/// Bytes that aren't text, and the decoder is a fatal one.
struct Malformed;

impl Decoder {
    fn decode(&mut self, bytes: &[u8], streams_on: bool) -> core::result::Result<String, Malformed> {
        if !self.is_streaming {
            self.pending.clear();
            self.is_past_start = false;
        }
        self.is_streaming = streams_on;
        let mut input = core::mem::take(&mut self.pending);
        input.extend_from_slice(bytes);
        let mut text = String::with_capacity(input.len());
        let decoded = match self.encoding {
            Encoding::Utf8 => self.utf8(&input, &mut text),
            Encoding::Utf16Le => self.utf16(&input, &mut text, u16::from_le_bytes),
            Encoding::Utf16Be => self.utf16(&input, &mut text, u16::from_be_bytes),
        };
        if decoded.is_err() {
            self.is_streaming = false;
        }
        decoded?;
        if !self.is_past_start && !text.is_empty() {
            self.is_past_start = true;
            if !self.keeps_mark && text.starts_with('\u{FEFF}') {
                text.remove(0);
            }
        }
        Ok(text)
    }

    fn replace(&self, text: &mut String) -> core::result::Result<(), Malformed> {
        if self.is_fatal {
            return Err(Malformed);
        }
        text.push(char::REPLACEMENT_CHARACTER);
        Ok(())
    }

    /// What has begun and isn't complete: kept when more follows, else malformed.
    fn end(&mut self, rest: &[u8], text: &mut String) -> core::result::Result<(), Malformed> {
        if self.is_streaming {
            self.pending = rest.to_vec();
            return Ok(());
        }
        self.replace(text)
    }

    fn utf8(&mut self, mut rest: &[u8], text: &mut String) -> core::result::Result<(), Malformed> {
        loop {
            let error = match core::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return Ok(());
                }
                Err(error) => error,
            };
            let (valid, broken) = rest.split_at(error.valid_up_to());
            text.push_str(core::str::from_utf8(valid).unwrap_or_default());
            match error.error_len() {
                None => return self.end(broken, text),
                Some(length) => {
                    self.replace(text)?;
                    rest = broken.get(length..).unwrap_or_default();
                }
            }
        }
    }

    fn utf16(
        &mut self,
        input: &[u8],
        text: &mut String,
        unit: fn([u8; 2]) -> u16,
    ) -> core::result::Result<(), Malformed> {
        const UNIT_BYTES: usize = 2;
        let (pairs, odd) = input.as_chunks::<UNIT_BYTES>();
        let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        let ends_in_half = units.last().is_some_and(|last| (0xD800..0xDC00).contains(last));
        let whole = units.len() - usize::from(ends_in_half);
        for letter in char::decode_utf16(units.iter().take(whole).copied()) {
            match letter {
                Ok(letter) => text.push(letter),
                Err(_) => self.replace(text)?,
            }
        }
        let rest = input.get(whole * UNIT_BYTES..).unwrap_or_default();
        if ends_in_half || !odd.is_empty() { self.end(rest, text) } else { Ok(()) }
    }
}

fn wrong_receiver() -> engine::Thrown {
    engine::throw_type_error("this method belongs to another class")
}

/// `new TextEncoder()`
pub fn new_encoder(call: &Call<'_>, _: i32) -> Result<Value> {
    class::instance(c"TextEncoder", &call.this(), Encoder)
}

fn check_encoder(call: &Call<'_>) -> Result<()> {
    class::with_state(&call.this(), |_: &mut Encoder| ()).ok_or_else(wrong_receiver)
}

/// `encoder.encoding`
pub fn encoder_encoding(call: &Call<'_>, _: i32) -> Result<Value> {
    check_encoder(call)?;
    Value::string(Encoding::Utf8.name())
}

/// `encoder.encode(text = "")`
pub fn encode(call: &Call<'_>, _: i32) -> Result<Value> {
    check_encoder(call)?;
    let text = call.argument(0);
    if text.is_undefined() {
        return Value::bytes(&[]);
    }
    text.to_js_string()?.with_text(|text| Value::bytes(text.as_bytes()))?
}

/// `encoder.encodeInto(text, bytes)`: as many whole characters as fit.
pub fn encode_into(call: &Call<'_>, _: i32) -> Result<Value> {
    check_encoder(call)?;
    let text = call.argument(0).to_js_string()?;
    let into = call.argument(1);
    let is_bytes = into.is_object() && into.class() == Class::TypedArray && into.element_type() == ElementType::Uint8;
    let Some(view) = is_bytes.then(|| into.typed_array_bytes()).flatten() else {
        return Err(engine::throw_type_error("encodeInto writes into a Uint8Array"));
    };
    let (read, written) = text.with_text(|text| {
        into.with_bytes_mut(view, |bytes| {
            let end = text.floor_char_boundary(bytes.len());
            let fitting = text.get(..end).unwrap_or_default();
            if let Some(start) = bytes.get_mut(..fitting.len()) {
                start.copy_from_slice(fitting.as_bytes());
            }
            (fitting.encode_utf16().count(), fitting.len())
        })
    })??;
    let result = Value::object()?;
    #[expect(clippy::cast_precision_loss, reason = "sizes of memory are far below 2^53")]
    let number = |size: usize| Value::number(size as f64);
    result.define(&Key::named("read"), number(read), Attributes::Open)?;
    result.define(&Key::named("written"), number(written), Attributes::Open)?;
    Ok(result)
}

/// `new TextDecoder(label = "utf-8", { fatal, ignoreBOM })`
pub fn new_decoder(call: &Call<'_>, _: i32) -> Result<Value> {
    let label = call.argument(0);
    let label = if label.is_undefined() { String::from("utf-8") } else { label.to_js_string()?.to_text()? };
    let options = call.argument(1);
    let (is_fatal, keeps_mark) = (option(&options, "fatal")?, option(&options, "ignoreBOM")?);
    let Some(encoding) = Encoding::of_label(&label) else {
        let message = format!("TextDecoder knows UTF-8, UTF-16LE and UTF-16BE here, not {label:?}");
        return Err(engine::throw_range_error(&message));
    };
    let decoder =
        Decoder { encoding, is_fatal, keeps_mark, is_streaming: false, is_past_start: false, pending: Vec::new() };
    class::instance(c"TextDecoder", &call.this(), decoder)
}

fn option(options: &Value, name: &str) -> Result<bool> {
    match options.kind() {
        Kind::Undefined | Kind::Null => Ok(false),
        Kind::Object => options.get(&Key::named(name))?.is_truthy(),
        _ => Err(engine::throw_type_error("the options must be an object")),
    }
}

/// `decoder.encoding`, `decoder.fatal`, `decoder.ignoreBOM`, in that order.
pub fn decoder_property(call: &Call<'_>, which: i32) -> Result<Value> {
    let read = |decoder: &mut Decoder| match which {
        0 => Value::string(decoder.encoding.name()),
        1 => Ok(Value::boolean(decoder.is_fatal)),
        _ => Ok(Value::boolean(decoder.keeps_mark)),
    };
    class::with_state(&call.this(), read).ok_or_else(wrong_receiver)?
}

/// `decoder.decode(bytes, { stream })`
pub fn decode(call: &Call<'_>, _: i32) -> Result<Value> {
    let this = call.this();
    class::with_state(&this, |_: &mut Decoder| ()).ok_or_else(wrong_receiver)?;
    let streams_on = option(&call.argument(1), "stream")?;
    // The options come first: reading them may run guest code, which may change the bytes.
    let input = call.argument(0);
    let bytes = if input.is_undefined() { Vec::new() } else { bytes_of(&input)? };
    match class::with_state(&this, |decoder: &mut Decoder| decoder.decode(&bytes, streams_on)) {
        Some(Ok(text)) => Value::string(&text),
        Some(Err(Malformed)) => Err(engine::throw_type_error("the bytes aren't valid text of this encoding")),
        None => Err(wrong_receiver()),
    }
}

/// A copy of the bytes of a buffer or a view.
pub fn bytes_of(value: &Value) -> Result<Vec<u8>> {
    let not_bytes = || engine::throw_type_error("TextDecoder decodes an ArrayBuffer or a view of one");
    if !value.is_object() {
        return Err(not_bytes());
    }
    match value.class() {
        Class::TypedArray | Class::ArrayBuffer | Class::DataView => value.copied_bytes(),
        _ => Err(not_bytes()),
    }
}
