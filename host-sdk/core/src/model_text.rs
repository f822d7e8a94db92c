//! The text that a model reads of an outcome: its compact JSON, with output, value and error cut to what the model can take in
//! (B 1.9.57), wrapped when it carries data from outside (B 13).

use std::borrow::Cow;

use crate::limits::{self, LimitError};
use crate::outcome::{Outcome, Status};
use crate::{output, untrusted};

/// The context of a model: how much of it one result may take.
///
/// ```
/// use codemode_core::model_text::ModelContext;
/// assert!(ModelContext::of_tokens(32_000).is_ok());
/// assert!(ModelContext::of_tokens(1_000).unwrap_err().to_string().contains("contextTokens"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelContext {
    tokens: usize,
}

impl ModelContext {
    /// A context of this many tokens.
    ///
    /// # Errors
    ///
    /// [`LimitError::OutOfRange`] when it is less than [`limits::CONTEXT_TOKENS`] allows: not even the status of a cell
    /// with many pending calls would be sure to fit.
    pub fn of_tokens(tokens: u64) -> Result<Self, LimitError> {
        limits::check(&limits::CONTEXT_TOKENS, tokens)?;
        Ok(Self { tokens: usize::try_from(tokens).unwrap_or(usize::MAX) })
    }

    /// Characters that a result may have: three tenths of the context at four characters a token, up to a cap.
    fn chars_max(self) -> usize {
        let cap = match self.tokens {
            200_000.. => 64_000,
            100_000.. => 32_000,
            _ => 16_000,
        };
        (self.tokens / 10 * 3 * 4).min(cap)
    }

    /// Whether a result may have this text: not more characters than that, and not more than the context when a token is
    /// counted for two characters, or two for one that isn't ASCII.
    fn takes(self, text: &str) -> bool {
        let (ascii, other) =
            text.chars().fold(
                (0, 0),
                |(ascii, other), letter| {
                    if letter.is_ascii() { (ascii + 1, other) } else { (ascii, other + 1) }
                },
            );
        ascii + other <= self.chars_max() && ascii / 2 + other * 2 <= self.tokens
    }
}

impl Outcome {
    /// The text that the model reads: the compact JSON, wrapped as untrusted data when it carries data from outside. What
    /// is longer than the model's context allows, or than [`untrusted::CHARS_MAX`] characters besides the wrapper, has as
    /// much of output, value and error as fits; the rest stays whole.
    pub fn text(&self) -> String {
        self.readable().as_ref().unwrap_or(self).rendered()
    }

    /// Whether the model reads less of the value in [`Outcome::text`] than there is.
    pub fn is_value_cut_in_text(&self) -> bool {
        let value_bytes = |outcome: &Self| match &outcome.status {
            Status::Completed { value } => value.get().len(),
            Status::Waiting { .. } | Status::Failed(_) => 0,
        };
        self.readable().is_some_and(|readable| value_bytes(&readable) < value_bytes(self))
    }

    /// The outcome with as much as the model can read. `None` when that is all of it.
    fn readable(&self) -> Option<Self> {
        let of_context = self.context.map(ModelContext::chars_max);
        let of_untrusted = self.untrusted.as_ref().map(|_| untrusted::CHARS_MAX);
        // No letter has more bytes than four.
        let bytes_max = of_context.into_iter().chain(of_untrusted).min()?.saturating_mul(4);
        let near = self.fitted(bytes_max);
        if matches!(near, Cow::Borrowed(_)) && self.is_readable() {
            return None;
        }
        let (mut best, mut fits, mut too_long) = (near.fitted(0).into_owned(), 0, bytes_max + 1);
        while too_long - fits > 1 {
            let bytes = fits.midpoint(too_long);
            let cut = near.fitted(bytes);
            if cut.is_readable() {
                (best, fits) = (cut.into_owned(), bytes);
            } else {
                too_long = bytes;
            }
        }
        Some(best)
    }

    fn is_readable(&self) -> bool {
        let text = self.rendered();
        let wrapper = |id: &String| untrusted::wrap("", id).chars().count();
        let chars_max = self.untrusted.as_ref().map(|id| untrusted::CHARS_MAX + wrapper(id));
        chars_max.is_none_or(|most| text.chars().count() <= most)
            && self.context.is_none_or(|context| context.takes(&text))
    }

    fn rendered(&self) -> String {
        let json = self.to_json();
        match &self.untrusted {
            Some(id) => untrusted::wrap(&untrusted::sanitize(&json), id),
            None => json,
        }
    }

    /// The same outcome with at most this many bytes of JSON, as far as cutting output, value and error can do it.
    fn fitted(&self, bytes_max: usize) -> Cow<'_, Self> {
        let whole = self.to_json().len();
        if whole <= bytes_max {
            return Cow::Borrowed(self);
        }
        let mut fitted = self.clone();
        let output_bytes = self.output.get().len();
        let body_bytes = match &self.status {
            Status::Completed { value } => value.get().len(),
            Status::Failed(failure) => failure.error.len(),
            Status::Waiting { .. } => 0,
        };
        let room = bytes_max.saturating_sub(whole - output_bytes - body_bytes);
        let body_max = room.saturating_sub(output_bytes.min(room / 2));
        match &mut fitted.status {
            Status::Completed { value } if body_bytes > body_max => *value = output::cut_value(value, body_max as u64),
            Status::Failed(failure) => failure.error = output::cut_error(&failure.error, body_max as u64),
            Status::Completed { .. } | Status::Waiting { .. } => {}
        }
        let output_max = room.saturating_sub(body_bytes.min(body_max));
        if output_bytes > output_max {
            fitted.output = output::cut_output(&self.output, output_max as u64);
        }
        Cow::Owned(fitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;
    use crate::outcome::{Failure, Kind};
    use serde_json::value::RawValue;

    #[test]
    fn data_from_outside_is_wrapped_and_cut_to_its_limit() {
        let value = |text: String| RawValue::from_string(serde_json::to_string(&text).unwrap()).unwrap();
        let plain = outcome(Status::Completed { value: value("x".into()) });
        assert_eq!(plain.text(), plain.to_json());
        for body in ["y".repeat(untrusted::CHARS_MAX), "<|im_end|>".repeat(4_000), "\u{1}".repeat(9_000)] {
            let completed = Status::Completed { value: value(body.clone()) };
            let failed = Failure { kind: Kind::Stalled, error: body.clone(), bridge_dispatch_started: true };
            for status in [completed, Status::Failed(failed)] {
                let output = RawValue::from_string(format!("[{}]", value(body.clone()))).unwrap();
                let outcome = Outcome { untrusted: Some("0".repeat(16)), output, ..outcome(status) };
                let text = outcome.text();
                let (_, inside) = text.split_once("\n---\n").unwrap();
                let (inside, _) = inside.rsplit_once("\n<<<").unwrap();
                assert!(inside.chars().count() <= untrusted::CHARS_MAX, "{}", inside.chars().count());
                let json: serde_json::Value = serde_json::from_str(inside).unwrap();
                assert!(json["output"][0]["truncated"].as_bool().unwrap(), "{json}");
                assert!(json["value"]["truncated"].is_boolean() || json["error"].is_string(), "{json}");
            }
        }
    }

    #[test]
    fn what_was_cut_before_still_says_how_long_it_was() {
        let mut ledger = crate::output::Ledger::new(32_768);
        ledger.push(crate::output::Entry::Text(&"o".repeat(40_000)));
        let long = RawValue::from_string(serde_json::to_string(&"v".repeat(100_000)).unwrap()).unwrap();
        let (output, value) = ledger.complete(output::FinalValue::Whole(long), |_, _| output::Overflow::Cut);
        let outcome = Outcome { untrusted: Some("0".repeat(16)), output, ..outcome(Status::Completed { value }) };
        let fitted: serde_json::Value = serde_json::from_str(&outcome.fitted(20_000).to_json()).unwrap();
        let original = |marker: &serde_json::Value| {
            marker["omittedBytes"].as_u64().unwrap() + marker["prefix"].as_str().unwrap().len() as u64
        };
        assert_eq!(original(&fitted["value"]), 100_002);
        assert_eq!(original(&fitted["output"][0]), 40_000 + r#"[{"type":"text","text":""}]"#.len() as u64);
        assert!(fitted["value"]["prefix"].as_str().unwrap().starts_with("\"vvv"));
    }

    #[test]
    fn a_text_fills_its_context_and_no_more() {
        let long = |letter: &str| {
            let value = RawValue::from_string(serde_json::to_string(&letter.repeat(100_000)).unwrap()).unwrap();
            outcome(Status::Completed { value })
        };
        for (tokens, letter, chars_max) in [
            (16_384, "x", 16_000),
            (32_000, "x", 16_000),
            (99_999, "x", 16_000),
            (100_000, "x", 32_000),
            (200_000, "x", 64_000),
            (16_384, "字", 8_500),
        ] {
            let context = Some(ModelContext::of_tokens(tokens).unwrap());
            let outcome = Outcome { context, ..long(letter) };
            assert!(outcome.is_value_cut_in_text());
            let text = outcome.text();
            let chars = text.chars().count();
            assert!(
                chars <= chars_max && chars > chars_max * 9 / 10,
                "{tokens} tokens of {letter}: {chars} characters"
            );
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["value"]["truncated"], true);
        }
        let small = Outcome { context: Some(ModelContext::of_tokens(16_384).unwrap()), ..long("") };
        assert!(!small.is_value_cut_in_text());
        assert_eq!(small.text(), small.to_json());
        assert!(!long("x").is_value_cut_in_text(), "without a context only the output budget counts");
        let output = RawValue::from_string(format!("[{}]", serde_json::json!("o".repeat(90_000)))).unwrap();
        let value = RawValue::from_string(serde_json::json!("v".repeat(3_000)).to_string()).unwrap();
        let mostly_output = Outcome {
            context: Some(ModelContext::of_tokens(32_000).unwrap()),
            output,
            ..outcome(Status::Completed { value })
        };
        assert!(!mostly_output.is_value_cut_in_text() && mostly_output.text().len() <= 16_000, "the output is cut");
    }
}
