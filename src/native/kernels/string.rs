//! Strings:
//!
//!   StringConcat(x, y)     one after the other, broadcast                        ai.onnx 20
//!   StringSplit(x)         the parts between delimiters along a new last axis, filled up with
//!                          empty strings, and how many there are. Without a delimiter runs of
//!                          white space are one; at most `maxsplit` times, if it is given
//!                                                                                ai.onnx 20
//!   StringNormalizer(x)    x of dims [n] or [1, n] without stop words, in upper or lower case;
//!                          one empty string if nothing is left                   ai.onnx 10
//!   RegexFullMatch(x)      whether all of a string matches `pattern`, in RE2's syntax, which is
//!                          that of the crate `regex`                             ai.onnx 20

use std::collections::HashSet;

use regex::Regex;
use smallvec::SmallVec;

use super::infer::{broadcast_inputs, input_dims};
use super::moves::string_room;
use super::{Built, broadcast};
use crate::native::element::{Bool, ElementType};
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::strings::Strings;
use crate::native::tensor::{Dims, element_count};

/// Elements that a short string costs as many as, whatever is done to it.
const COST: usize = 16;

/// Strings, each of which is [counted](ending) by its length as it is given.
fn costly(strings: &[String]) -> impl Iterator<Item = &String> {
    strings.iter().inspect(|text| ending::count(COST + text.len()))
}

#[derive(Debug)]
struct Concat;

pub(in crate::native) fn concat(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Concat))
}

impl Operator for Concat {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        broadcast_inputs(cx, 0..2, Some(ElementType::String))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, y) = (cx.required(0)?, cx.required(1)?);
        let dims = broadcast(x.dims(), y.dims())?;
        let (a, b) = (x.strings()?, y.strings()?);
        let count = element_count(&dims)?;
        let mut joined = string_room(&dims)?;
        let (a_at, b_at) = (Positions::new(x.dims(), &dims), Positions::new(y.dims(), &dims));
        for i in 0..count {
            ending::count(COST);
            if let (Some(a), Some(b)) = (a.get(a_at.of(i)), b.get(b_at.of(i))) {
                joined.push_joined(&[a.as_str(), b.as_str()])?;
            }
        }
        cx.output_strings(0, &dims, joined)
    }
}

/// Where the elements of a broadcast result are in an operand.
struct Positions {
    /// Size of the result, and step in the operand, from the last dim to the first.
    steps: SmallVec<[(usize, usize); 6]>,
}

impl Positions {
    fn new(from: &[usize], to: &[usize]) -> Self {
        let mut stride = 1;
        let mut steps = SmallVec::new();
        let given = from.iter().rev().copied().chain(std::iter::repeat(1));
        for (&size, own) in to.iter().rev().zip(given) {
            steps.push((size, if own == 1 { 0 } else { stride }));
            stride *= own;
        }
        Positions { steps }
    }

    fn of(&self, mut index: usize) -> usize {
        let mut at = 0;
        for &(size, step) in &self.steps {
            at += index % size * step;
            index /= size;
        }
        at
    }
}

#[derive(Debug)]
struct Split {
    /// `None` for white space.
    delimiter: Option<String>,
    at_most: Option<usize>,
}

pub(in crate::native) fn split(node: &NodeInfo<'_>) -> Built {
    let delimiter = node.string_or("delimiter", "")?;
    Ok(Box::new(Split {
        delimiter: (!delimiter.is_empty()).then(|| delimiter.to_owned()),
        at_most: node
            .int("maxsplit")?
            .and_then(|times| usize::try_from(times).ok()),
    }))
}

impl Split {
    /// They are looked for again wherever they are wanted: a list of them is many times as long as the
    /// text.
    fn parts<'s>(&'s self, text: &'s str) -> impl Iterator<Item = &'s str> {
        let parts = self.at_most.map_or(usize::MAX, |times| times.saturating_add(1));
        let mut delimited = self
            .delimiter
            .as_deref()
            .map(|delimiter| text.splitn(parts, delimiter));
        let (mut rest, mut found) = (text.trim_start(), 0);
        std::iter::from_fn(move || {
            if let Some(delimited) = &mut delimited {
                return delimited.next();
            }
            if rest.is_empty() {
                return None;
            }
            found += 1;
            let end = rest.find(char::is_whitespace).filter(|_| found < parts);
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            rest = after.trim_start();
            Some(part)
        })
    }
}

impl Operator for Split {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0);
        let parts = dims.clone().map(|mut dims: SymDims| {
            dims.push(SymDim::Unknown);
            dims
        });
        cx.set_output(0, Some(ElementType::String), parts);
        cx.set_output(1, Some(ElementType::Int64), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let texts = x.strings()?;
        if cx.output_used(0) {
            let counts = costly(texts).map(|text| self.parts(text).count());
            let most = counts.max().unwrap_or(0);
            let mut dims: Dims = x.dims().into();
            dims.push(most);
            // One long string among many short ones must not ask for more than there is.
            let mut filled = string_room(&dims)?;
            for text in costly(texts) {
                ending::count(most.saturating_mul(COST));
                let padded = self.parts(text).chain(std::iter::repeat(""));
                padded.take(most).try_for_each(|part| filled.push(part))?;
            }
            cx.output_strings(0, &dims, filled)?;
        }
        if cx.output_used(1) {
            let counts = costly(texts).map(|text| self.parts(text).count() as i64);
            cx.output::<i64>(1, x.dims())?.extend(counts)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Case {
    Lower,
    Upper,
    AsIs,
}

impl Case {
    fn of(self, text: &str) -> String {
        match self {
            Case::Lower => text.to_lowercase(),
            Case::Upper => text.to_uppercase(),
            Case::AsIs => text.to_owned(),
        }
    }
}

#[derive(Debug)]
struct Normalize {
    case: Case,
    /// How words are compared with stop words.
    compared: Case,
    stop_words: HashSet<String>,
}

pub(in crate::native) fn normalize(node: &NodeInfo<'_>) -> Built {
    let case = match node.string_or("case_change_action", "NONE")? {
        "LOWER" => Case::Lower,
        "UPPER" => Case::Upper,
        "NONE" => Case::AsIs,
        other => {
            return Err(OpError::Attribute {
                name: "case_change_action".into(),
                message: format!("is \"{other}\", expected LOWER, UPPER or NONE"),
            });
        }
    };
    // Case is changed by Unicode's own rules, whatever the locale.
    node.string("locale")?;
    let compared = match node.flag_or("is_case_sensitive", false)? {
        true => Case::AsIs,
        false => Case::Lower,
    };
    let stop_words = node.strings("stopwords")?.unwrap_or_default();
    Ok(Box::new(Normalize {
        case,
        compared,
        stop_words: stop_words.into_iter().map(|word| compared.of(word)).collect(),
    }))
}

impl Operator for Normalize {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0).map(|dims| match dims.len() {
            2 => SymDims::from_iter([SymDim::Fixed(1), SymDim::Unknown]),
            _ => SymDims::from_iter([SymDim::Unknown]),
        });
        cx.set_output(0, Some(ElementType::String), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        if !matches!(*x.dims(), [_] | [1, _]) {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: "[n] or [1, n]".into(),
            });
        }
        let kept = costly(x.strings()?);
        let kept = kept.filter(|text| !self.stop_words.contains(&self.compared.of(text)));
        let mut changed = Strings::with_room(0)?;
        for text in kept {
            changed.push_own(self.case.of(text))?;
        }
        if changed.as_slice().is_empty() {
            changed.push("")?;
        }
        let mut dims: Dims = x.dims().into();
        if let Some(last) = dims.last_mut() {
            *last = changed.as_slice().len();
        }
        cx.output_strings(0, &dims, changed)
    }
}

#[derive(Debug)]
struct FullMatch(Regex);

pub(in crate::native) fn full_match(node: &NodeInfo<'_>) -> Built {
    let wrong = |message: String| OpError::Attribute {
        name: "pattern".into(),
        message,
    };
    let pattern = node
        .string("pattern")?
        .ok_or_else(|| wrong("is missing".into()))?;
    let whole = Regex::new(&format!(r"\A(?:{pattern})\z")).map_err(|error| wrong(error.to_string()))?;
    Ok(Box::new(FullMatch(whole)))
}

impl Operator for FullMatch {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0);
        cx.set_output(0, Some(ElementType::Bool), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let matches = costly(x.strings()?).map(|text| Bool::from(self.0.is_match(text)));
        cx.output::<Bool>(0, x.dims())?.extend(matches)
    }
}
