//! Axes and shapes as kernels read them: checked, and with an error that says what was there.

use smallvec::SmallVec;

use crate::native::operator::OpError;
use crate::native::tensor::Dims;

/// A list of axes, sizes or positions.
pub(super) type Integers = SmallVec<[i64; 6]>;

/// An axis of a tensor of this rank; negative ones count from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let from_start = if axis < 0 {
        axis.checked_add(rank as i64)
    } else {
        Some(axis)
    };
    from_start
        .and_then(|at| usize::try_from(at).ok())
        .filter(|&at| at < rank)
        .ok_or_else(|| OpError::Message(format!("axis {axis} is out of range for rank {rank}")))
}

/// Several axes as flags, one per dim; none may be given twice.
pub(super) fn axis_flags(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 8]>, OpError> {
    let mut flags = SmallVec::from_elem(false, rank);
    for &given in axes {
        let flag = &mut flags[axis(given, rank)?];
        if *flag {
            return Err(OpError::Message(format!(
                "axis {given} is given twice in {axes:?}"
            )));
        }
        *flag = true;
    }
    Ok(flags)
}

/// Dims from the values of a tensor, none of them negative.
pub(super) fn dims_from(values: &[i64]) -> Result<Dims, OpError> {
    values
        .iter()
        .map(|&dim| {
            usize::try_from(dim).map_err(|_| OpError::Message(format!("shape {values:?} has a negative dim")))
        })
        .collect()
}
