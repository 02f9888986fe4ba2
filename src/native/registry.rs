//! Which operators the runtime has: one table, a line each.

use std::fmt;

use super::kernels::*;
use super::node::NodeInfo;
use super::operator::{OpError, Operator};

/// One operator: all versions of its definition that the constructor covers.
pub struct OperatorEntry {
    /// `""` is ONNX's own.
    pub domain: &'static str,
    pub op_type: &'static str,
    /// The versions in which the definition changed, ascending. A model of a version
    /// before the first is refused; every later change up to
    /// [`NEWEST_ONNX_OPSET`] is listed, or it is in `not_yet`.
    pub since: &'static [i64],
    /// The first version whose changed definition is not covered, if there is one.
    pub not_yet: Option<i64>,
    pub build: fn(&NodeInfo<'_>) -> Result<Box<dyn Operator>, OpError>,
}

/// The newest version of ONNX's own operators that the table was checked against.
pub const NEWEST_ONNX_OPSET: i64 = 27;

const MS: &str = "com.microsoft";

const fn op(
    domain: &'static str,
    op_type: &'static str,
    since: &'static [i64],
    build: fn(&NodeInfo<'_>) -> Result<Box<dyn Operator>, OpError>,
) -> OperatorEntry {
    OperatorEntry {
        domain,
        op_type,
        since,
        not_yet: None,
        build,
    }
}

/// Sorted by domain and name.
pub static OPERATORS: &[OperatorEntry] = &[op(
    "",
    "Identity",
    &[1, 13, 14, 16, 19, 21, 23, 24, 25],
    identity::identity,
)];

/// The entry of an operator and the version of its definition in force, or why there is none.
pub(super) fn find(
    domain: &str,
    op_type: &str,
    opset: i64,
) -> Result<(&'static OperatorEntry, i64), Missing> {
    let entry = OPERATORS
        .iter()
        .find(|entry| entry.op_type == op_type && entry.domain == domain)
        .ok_or(Missing::Operator)?;
    if domain.is_empty() && opset > NEWEST_ONNX_OPSET {
        return Err(Missing::NewerThan(NEWEST_ONNX_OPSET));
    }
    if let Some(not_yet) = entry.not_yet.filter(|&not_yet| opset >= not_yet) {
        return Err(Missing::NewerThan(not_yet - 1));
    }
    match entry.since.iter().rev().find(|&&since| since <= opset) {
        Some(&since) => Ok((entry, since)),
        None => Err(Missing::OlderThan(entry.since.first().copied().unwrap_or(1))),
    }
}

/// Why the table has no entry for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Operator,
    /// Only versions up to this one are covered.
    NewerThan(i64),
    /// Only versions from this one on are covered.
    OlderThan(i64),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Operator => f.write_str("no such operator"),
            Missing::NewerThan(version) => write!(f, "only up to version {version}"),
            Missing::OlderThan(version) => write!(f, "only from version {version} on"),
        }
    }
}
