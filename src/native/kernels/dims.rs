//! Axes and shapes as kernels read them: checked, and with an error that says what was there.

use smallvec::SmallVec;

use crate::native::ending;
use crate::native::operator::OpError;
use crate::native::tensor::{Dims, TensorRef};

/// A list of axes, sizes or positions.
pub(super) type Integers = SmallVec<[i64; 6]>;

/// An axis of a tensor of this rank; negative ones count from the end.
pub(in crate::native) fn axis(axis: i64, rank: usize) -> Result<usize, OpError> {
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

/// Where an index into a dim of this size points; negative ones count from the end.
pub(super) fn position(index: i64, size: usize) -> Option<usize> {
    let from_start = if index < 0 {
        index.checked_add(i64::try_from(size).ok()?)?
    } else {
        index
    };
    usize::try_from(from_start).ok().filter(|&at| at < size)
}

/// The value of an `int64` or `int32` input of one element.
pub(super) fn one_int(tensor: &TensorRef<'_>, input: usize) -> Result<i64, OpError> {
    match tensor.to_ints()?.as_slice() {
        &[value] => Ok(value),
        _ => Err(not_one_element(tensor, input)),
    }
}

pub(super) fn not_one_element(tensor: &TensorRef<'_>, input: usize) -> OpError {
    OpError::WrongDims {
        what: format!("input {input}"),
        found: tensor.dims().into(),
        expected: "one element".into(),
    }
}

/// A tensor as `outer` blocks of `len` rows of `inner` elements, where `len` is the dim of one
/// axis. A lane is what lies along that axis: `len` elements, `inner` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lanes {
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
}

impl Lanes {
    /// The lanes along `axis`, which is less than the rank. A tensor without elements has no
    /// blocks, however large its other dims are.
    pub fn along(dims: &[usize], axis: usize) -> Self {
        let product = |dims: &[usize]| dims.iter().product::<usize>();
        let len = dims.get(axis).copied().unwrap_or(1);
        let inner = dims.get(axis + 1..).map_or(1, product);
        Lanes {
            outer: if dims.contains(&0) {
                0
            } else {
                dims.get(..axis).map_or(1, product)
            },
            len,
            inner,
        }
    }

    /// The position of the first element of each lane, in row-major order of the other dims. The
    /// elements of a lane are [counted](crate::native::ending) as it is given.
    pub fn starts(self) -> impl Iterator<Item = usize> {
        let Lanes { outer, len, inner } = self;
        let starts = (0..outer).flat_map(move |block| (0..inner).map(move |i| block * len * inner + i));
        starts.inspect(move |_| ending::count(len))
    }
}
