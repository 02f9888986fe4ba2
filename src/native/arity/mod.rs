//! How many inputs and outputs a node may have, and which must be there.
//!
//! A letter each: `R` required, `o` optional, and at the end `v` for any number more.

mod contrib;
mod onnx;

use super::operator::OpError;
use super::registry::{ML, MS};

/// One version of an operator's definition, in force until the next one.
pub struct Arity {
    domain: &'static str,
    op_type: &'static str,
    since: i64,
    inputs: &'static str,
    outputs: &'static str,
}

const fn arity(
    domain: &'static str,
    op_type: &'static str,
    since: i64,
    inputs: &'static str,
    outputs: &'static str,
) -> Arity {
    Arity {
        domain,
        op_type,
        since,
        inputs,
        outputs,
    }
}

/// What the definition of an operator that came into force in version `since` says.
pub fn find(domain: &str, op_type: &str, since: i64) -> Option<&'static Arity> {
    let all = contrib::ARITIES.iter().chain(onnx::ARITIES).rev();
    let mut versions = all.filter(|arity| arity.op_type == op_type && arity.domain == domain);
    versions.find(|arity| arity.since <= since)
}

impl Arity {
    /// Which inputs and outputs of a node are there, the left-out ones in between included.
    pub(super) fn check(&self, inputs: &[bool], outputs: &[bool]) -> Result<(), OpError> {
        check_count("input", self.inputs, inputs)?;
        check_count("output", self.outputs, outputs)?;
        let required = self
            .inputs
            .bytes()
            .enumerate()
            .filter(|(_, letter)| *letter == b'R');
        for (index, _) in required {
            if inputs.get(index) != Some(&true) {
                return Err(OpError::MissingInput { index });
            }
        }
        Ok(())
    }

    /// The fewest and the most inputs, and the same of outputs.
    pub fn counts(&self) -> [(usize, Option<usize>); 2] {
        [self.inputs, self.outputs].map(counts)
    }
}

fn counts(letters: &str) -> (usize, Option<usize>) {
    let least = letters.rfind('R').map_or(0, |last| last + 1);
    (least, (!letters.ends_with('v')).then_some(letters.len()))
}

fn check_count(what: &str, letters: &str, found: &[bool]) -> Result<(), OpError> {
    let (least, most) = counts(letters);
    // Names left out at the end are as good as not listed.
    let used = found.iter().rposition(|&there| there).map_or(0, |last| last + 1);
    if found.len() >= least && most.is_none_or(|most| used <= most) {
        return Ok(());
    }
    let expected = match most {
        Some(most) if most == least => least.to_string(),
        Some(most) => format!("{least} to {most}"),
        None => format!("at least {least}"),
    };
    let plural = if found.len() == 1 { "" } else { "s" };
    Err(OpError::Message(format!(
        "has {} {what}{plural}, expected {expected}",
        found.len()
    )))
}
