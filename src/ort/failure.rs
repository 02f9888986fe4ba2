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
    /// "OrtValue shape verification failed. Current shape:{1,2} Requested shape:{1,3}"
    pub fn parse(message: &str) -> Option<Self> {
        let (_, rest) = message.split_once("shape verification failed. Current shape:")?;
        let (given, rest) = braced(rest)?;
        let (_, rest) = rest.split_once("Requested shape:")?;
        let (actual, _) = braced(rest)?;
        Some(ShapeClash { given, actual })
    }
}

fn braced(text: &str) -> Option<(Shape, &str)> {
    let (inside, rest) = text.strip_prefix('{')?.split_once('}')?;
    let dims = inside.split(',').filter(|dim| !dim.is_empty());
    Some((dims.map(|dim| dim.parse().ok()).collect::<Option<_>>()?, rest))
}
