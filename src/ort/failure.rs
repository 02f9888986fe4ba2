//! What ONNX Runtime's messages say, as data.
//!
//! The library's errors are a code, nearly always "fail", and a text. The texts that matter
//! are taken apart here; one that changes in a later version loses detail, not the error.

use super::api::Failure;
use crate::component::{ComponentErrorKind, Shape};

pub(super) fn backend(message: String) -> ComponentErrorKind {
    ComponentErrorKind::Backend {
        backend: "ONNX Runtime",
        message,
    }
}

/// A run's error: that of a node, of memory, or just the library's words.
pub(super) fn run_error(failure: Failure) -> ComponentErrorKind {
    let message = failure.message;
    if let Some(bytes) = failed_allocation(&message) {
        return ComponentErrorKind::OutOfMemory {
            bytes,
            what: format!("a value in ONNX Runtime ({message})"),
        };
    }
    if let Some(error) = node_error(&message) {
        return error;
    }
    backend(message)
}

/// "... while running MatMul node. Name:'/layer/MatMul' Status Message: ..."
fn node_error(message: &str) -> Option<ComponentErrorKind> {
    let (_, rest) = message.split_once("while running ")?;
    let (op, rest) = rest.split_once(" node. Name:'")?;
    let (node, rest) = rest.split_once("' Status Message: ")?;
    Some(ComponentErrorKind::Node {
        node: node.to_owned(),
        op: op.to_owned(),
        message: format!("ONNX Runtime: {}", rest.trim_end()),
    })
}

/// "Failed to allocate memory for requested buffer of size 123"
fn failed_allocation(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("Failed to allocate memory for requested buffer of size ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// An output was given memory for one shape and came out with another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShapeClash {
    pub given: Shape,
    pub actual: Shape,
}

impl ShapeClash {
    /// What stands before each of the two shapes, in the versions of the library.
    const WORDING: [[&str; 2]; 2] = [
        // 1.31
        ["has shape ", "computed output shape for this run is "],
        // 1.17
        ["shape verification failed. Current shape:", "Requested shape:"],
    ];

    pub fn parse(message: &str) -> Option<Self> {
        Self::WORDING.iter().find_map(|[before_given, before_actual]| {
            let (_, rest) = message.split_once(before_given)?;
            let (given, rest) = braced(rest)?;
            let (_, rest) = rest.split_once(before_actual)?;
            let (actual, _) = braced(rest)?;
            Some(ShapeClash { given, actual })
        })
    }
}

/// `{1,2}` at the beginning of a text, and the rest of it.
fn braced(text: &str) -> Option<(Shape, &str)> {
    let (inside, rest) = text.strip_prefix('{')?.split_once('}')?;
    let dims = inside.split(',').filter(|dim| !dim.is_empty());
    Some((dims.map(|dim| dim.parse().ok()).collect::<Option<_>>()?, rest))
}
