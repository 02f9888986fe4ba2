//! Broadcasting before opset 7: where `broadcast` says so, the second operand repeats along the first
//! one, of which its dims are some in a row: those from `axis` on, or without it the last ones.
//!
//!   A [2, 3, 4, 5], B [3, 4] with axis 1: as B [3, 4, 1] of later opsets
//!
//! An operand of one element goes with anything, and a dim of one with any other.

use crate::native::node::NodeInfo;
use crate::native::operator::OpError;
use crate::native::tensor::Dims;

#[derive(Debug)]
pub(super) struct LegacyBroadcast {
    broadcast: bool,
    axis: Option<i64>,
}

impl LegacyBroadcast {
    /// That of a node whose definition is older than opset 7.
    pub fn new(node: &NodeInfo<'_>) -> Result<Option<Self>, OpError> {
        if node.since >= 7 {
            return Ok(None);
        }
        Ok(Some(LegacyBroadcast {
            broadcast: node.flag_or("broadcast", false)?,
            axis: node.int("axis")?,
        }))
    }

    /// The dims under which `b` broadcasts to `a` by the rules of later opsets.
    pub fn dims(&self, a: &[usize], b: &[usize]) -> Result<Dims, OpError> {
        let wrong = || {
            OpError::Message(format!(
                "shapes {a:?} and {b:?} do not broadcast with broadcast {} and axis {:?}",
                i64::from(self.broadcast),
                self.axis
            ))
        };
        if a == b {
            return Ok(b.into());
        }
        if !self.broadcast {
            return Err(wrong());
        }
        if b.iter().all(|&dim| dim == 1) {
            return Ok(Dims::new());
        }
        let behind = match self.axis {
            None => 0,
            Some(axis) => {
                let axis = if axis < 0 {
                    axis.saturating_add(a.len() as i64)
                } else {
                    axis
                };
                let end = usize::try_from(axis)
                    .ok()
                    .and_then(|axis| axis.checked_add(b.len()));
                end.and_then(|end| a.len().checked_sub(end)).ok_or_else(wrong)?
            }
        };
        let first = a.len().checked_sub(behind + b.len()).ok_or_else(wrong)?;
        if !a.iter().skip(first).zip(b).all(|(&a, &b)| a == b || b == 1) {
            return Err(wrong());
        }
        Ok(b.iter().copied().chain(std::iter::repeat_n(1, behind)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::LegacyBroadcast;

    #[test]
    fn the_second_operand_lies_along_the_first() {
        let dims = |axis, b: &[usize]| {
            let legacy = LegacyBroadcast {
                broadcast: true,
                axis,
            };
            legacy.dims(&[2, 3, 4, 5], b).map(|dims| dims.to_vec()).ok()
        };
        // The examples of the definition.
        assert_eq!(dims(None, &[]), Some(vec![]));
        assert_eq!(dims(None, &[1, 1]), Some(vec![]));
        assert_eq!(dims(None, &[5]), Some(vec![5]));
        assert_eq!(dims(None, &[4, 5]), Some(vec![4, 5]));
        assert_eq!(dims(Some(1), &[3, 4]), Some(vec![3, 4, 1]));
        assert_eq!(dims(Some(0), &[2]), Some(vec![2, 1, 1, 1]));
        assert_eq!(dims(Some(-3), &[3]), Some(vec![3, 1, 1]));
        for (axis, b) in [
            (None, &[3][..]),
            (Some(1), &[2]),
            (Some(3), &[5, 2]),
            (Some(i64::MAX), &[5]),
        ] {
            assert_eq!(dims(axis, b), None, "{axis:?} {b:?}");
        }
        let without = LegacyBroadcast {
            broadcast: false,
            axis: None,
        };
        assert!(without.dims(&[2, 3], &[3]).is_err());
        assert!(without.dims(&[2, 3], &[2, 3]).is_ok());
    }
}
