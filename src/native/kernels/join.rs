//! Concat: the inputs one after the other along `axis`; their other dims are equal. Any element
//! type. ai.onnx 4, 11, 13.
//!
//! Split: the inverse, into parts of the sizes in `split` (an attribute before 13, then an
//! optional input), or into equal parts, of which the last may be smaller from 18 on. ai.onnx
//! 2, 11, 13, 18.

use std::ops::Range;

use smallvec::SmallVec;

use super::Built;
use super::dims::{Integers, axis, dims_from};
use super::infer::input_type;
use super::moves::string_room;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::output::Pool;
use crate::native::tensor::{Dims, Tensor, TensorRef};
use crate::native::value::ValueRef;

#[derive(Debug)]
struct Concat {
    axis: i64,
}

pub(in crate::native) fn concat(node: &NodeInfo<'_>) -> Built {
    let axis = node.int("axis")?.ok_or_else(|| OpError::Attribute {
        name: "axis".into(),
        message: "is missing".into(),
    })?;
    Ok(Box::new(Concat { axis }))
}

/// The sum of two dims, where it is known.
fn sum(a: SymDim, b: SymDim) -> SymDim {
    match (a, b) {
        (SymDim::Fixed(a), SymDim::Fixed(b)) => a.checked_add(b).map_or(SymDim::Unknown, SymDim::Fixed),
        (SymDim::Fixed(0), other) | (other, SymDim::Fixed(0)) => other,
        _ => SymDim::Unknown,
    }
}

impl Operator for Concat {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let mut joined: Option<SymDims> = None;
        for i in 0..cx.input_count() {
            let Some(dims) = &cx.required(i)?.dims else {
                joined = None;
                break;
            };
            let axis = axis(self.axis, dims.len())?;
            joined = Some(match joined {
                None => dims.clone(),
                Some(mut so_far) => {
                    if so_far.len() != dims.len() {
                        return Err(OpError::Message(format!(
                            "input {i} has rank {}, input 0 has rank {}",
                            dims.len(),
                            so_far.len()
                        )));
                    }
                    for (at, (to, &dim)) in so_far.iter_mut().zip(dims).enumerate() {
                        *to = match (*to, dim) {
                            (a, b) if at == axis => sum(a, b),
                            (SymDim::Fixed(a), SymDim::Fixed(b)) if a != b => {
                                return Err(OpError::Message(format!(
                                    "dim {at} of input {i} is {b}, of those before it {a}"
                                )));
                            }
                            (SymDim::Fixed(a), _) => SymDim::Fixed(a),
                            (SymDim::Unknown, b) => b,
                            (_, SymDim::Fixed(b)) => SymDim::Fixed(b),
                            (a, _) => a,
                        };
                    }
                    so_far
                }
            });
        }
        cx.set_output(0, input_type(cx, 0), joined);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let first = cx.required(0)?;
        let axis = axis(self.axis, first.rank())?;
        let count = cx.input_count();
        let inputs = cx.inputs;
        let part = |i: usize| {
            let input = inputs.get(i).copied().flatten().and_then(ValueRef::tensor);
            input.ok_or(OpError::MissingInput { index: i })
        };
        let dims = joined_dims(count, part, axis)?;
        match first.element_type().size() {
            None => {
                let mut joined = string_room(&dims)?;
                for_each_piece(count, part, axis, |x, from, len| {
                    joined.extend(&x.strings()?[from..][..len])
                })?;
                cx.output_strings(0, &dims, joined)
            }
            Some(size) => {
                let output = cx.output_bytes(0, first.element_type(), &dims)?;
                let row = dims[axis..].iter().product::<usize>() * size;
                if output.is_empty() {
                    return Ok(());
                }
                // However many others there are: they would be gone over for each line.
                let mut parts = SmallVec::<[(&[u8], usize); 8]>::new();
                for i in 0..count {
                    let x = part(i)?;
                    if !x.is_empty() {
                        parts.push((x.bytes()?, x.dims()[axis..].iter().product::<usize>() * size));
                    }
                }
                let chunk = output.copy_chunk(cx.workers(), size);
                output.fill(cx.workers(), chunk, |range, y| {
                    for line in range.start / row..range.end.div_ceil(row) {
                        let mut first = line * row;
                        for &(bytes, len) in &parts {
                            let own = range.start.max(first)..range.end.min(first + len);
                            if !own.is_empty() {
                                y.extend_from_slice(&bytes[line * len + own.start - first..][..own.len()]);
                            }
                            first += len;
                        }
                    }
                });
                Ok(())
            }
        }
    }
}

/// The dims of `count` parts one after the other along `axis`.
fn joined_dims<'a>(
    count: usize,
    part: impl Fn(usize) -> Result<TensorRef<'a>, OpError>,
    axis: usize,
) -> Result<Dims, OpError> {
    let first = part(0)?;
    let mut dims: Dims = first.dims().into();
    for i in 1..count {
        let x = part(i)?;
        super::same_type(&first, &x, i)?;
        let others = |dims: &[usize]| -> Dims {
            dims.iter()
                .enumerate()
                .filter(|&(at, _)| at != axis)
                .map(|(_, &dim)| dim)
                .collect()
        };
        if x.rank() != first.rank() || others(x.dims()) != others(first.dims()) {
            return Err(OpError::WrongDims {
                what: format!("input {i}"),
                found: x.dims().into(),
                expected: format!("those of input 0, {:?}, but for axis {axis}", first.dims()),
            });
        }
        dims[axis] = dims[axis]
            .checked_add(x.dims()[axis])
            .ok_or_else(|| OpError::TooLarge {
                dims: x.dims().into(),
            })?;
    }
    Ok(dims)
}

/// Goes over the elements of parts that [`joined_dims`] has checked, in the order of the
/// result: `write` gets a part, the first element of a piece, and the piece's length.
fn for_each_piece<'a>(
    count: usize,
    part: impl Fn(usize) -> Result<TensorRef<'a>, OpError>,
    axis: usize,
    mut write: impl FnMut(TensorRef<'a>, usize, usize) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let outer: usize = part(0)?.dims()[..axis].iter().product();
    // A part without elements may be one of very many pieces of length zero.
    let mut is_empty = true;
    for i in 0..count {
        is_empty &= part(i)?.is_empty();
    }
    if is_empty {
        return Ok(());
    }
    for o in 0..outer {
        for i in 0..count {
            let x = part(i)?;
            let len = x.dims()[axis..].iter().product::<usize>();
            ending::count(len);
            write(x, o * len, len)?;
        }
    }
    Ok(())
}

/// The parts one after the other along `axis`, as a tensor of its own. There is at least one.
pub(in crate::native) fn join(
    pool: &mut Pool,
    parts: &[TensorRef<'_>],
    axis: usize,
) -> Result<Tensor, OpError> {
    let part = |i: usize| parts.get(i).copied().ok_or(OpError::MissingInput { index: i });
    let first = part(0)?;
    if axis >= first.rank() {
        return Err(OpError::Message(format!("{first:?} has no axis {axis}")));
    }
    let dims = joined_dims(parts.len(), part, axis)?;
    let Some(size) = first.element_type().size() else {
        let mut joined = string_room(&dims)?;
        for_each_piece(parts.len(), part, axis, |x, from, len| {
            joined.extend(&x.strings()?[from..][..len])
        })?;
        return Tensor::of_strings(&dims, joined);
    };
    let mut result = Ok(());
    let joined = pool.tensor(first.element_type(), &dims, |bytes| {
        let mut at = 0;
        result = for_each_piece(parts.len(), part, axis, |x, from, len| {
            let len = len * size;
            bytes[at..][..len].copy_from_slice(&x.bytes()?[from * size..][..len]);
            at += len;
            Ok(())
        });
    })?;
    result.map(|()| joined)
}

/// A range of positions of an axis, as a tensor of its own.
pub(in crate::native) fn cut(
    pool: &mut Pool,
    x: TensorRef<'_>,
    axis: usize,
    range: Range<usize>,
) -> Result<Tensor, OpError> {
    let mut dims: Dims = x.dims().into();
    let size = dims.get(axis).copied().unwrap_or_default();
    if range.start > range.end || range.end > size {
        return Err(OpError::Message(format!("axis {axis} of {x:?} has no {range:?}")));
    }
    dims[axis] = range.len();
    let inner: usize = x.dims()[axis + 1..].iter().product();
    let (stride, first, len) = (size * inner, range.start * inner, range.len() * inner);
    let outer = match dims.contains(&0) {
        true => 0,
        false => dims[..axis].iter().product(),
    };
    let Some(width) = x.element_type().size() else {
        let strings = x.strings()?;
        let mut part = string_room(&dims)?;
        for o in 0..outer {
            part.extend(&strings[o * stride + first..][..len])?;
        }
        return Tensor::of_strings(&dims, part);
    };
    let from = x.bytes()?;
    pool.tensor(x.element_type(), &dims, |bytes| {
        for o in 0..outer {
            ending::count(len);
            let piece = &from[(o * stride + first) * width..][..len * width];
            bytes[o * len * width..][..len * width].copy_from_slice(piece);
        }
    })
}

#[derive(Debug)]
struct Split {
    axis: i64,
    /// The attribute, before version 13.
    sizes: Option<Vec<i64>>,
    parts: usize,
    /// Equal parts may leave a smaller last one.
    smaller_last: bool,
}

pub(in crate::native) fn split(node: &NodeInfo<'_>) -> Built {
    let sizes = if node.since < 13 {
        node.ints("split")?.map(Into::into)
    } else {
        None
    };
    let parts = node.output_count();
    if node.since >= 18
        && let Some(declared) = node.int("num_outputs")?
        && declared != parts as i64
    {
        return Err(OpError::Attribute {
            name: "num_outputs".into(),
            message: format!("is {declared}, the node has {parts} outputs"),
        });
    }
    Ok(Box::new(Split {
        axis: node.int_or("axis", 0)?,
        sizes,
        parts,
        smaller_last: node.since >= 18,
    }))
}

impl Split {
    /// The sizes of the parts of a dim of `size`.
    fn sizes(&self, size: usize, given: Option<&[i64]>) -> Result<Dims, OpError> {
        let Some(given) = given else {
            let part = size.div_ceil(self.parts.max(1));
            let sizes: Dims = (0..self.parts)
                .map(|i| part.min(size.saturating_sub(i * part)))
                .collect();
            if !self.smaller_last && !size.is_multiple_of(self.parts.max(1)) {
                return Err(OpError::Message(format!(
                    "a dim of {size} has no {} equal parts",
                    self.parts
                )));
            }
            return Ok(sizes);
        };
        let sizes = dims_from(given)?;
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if sizes.len() != self.parts || total != Some(size) {
            return Err(OpError::Message(format!(
                "sizes {given:?} do not split a dim of {size} into {} parts",
                self.parts
            )));
        }
        Ok(sizes)
    }
}

impl Operator for Split {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (input_type(cx, 0), cx.required(0)?.dims.clone());
        let given: Option<Option<Integers>> = match (&self.sizes, cx.input(1)) {
            (Some(sizes), _) => Some(Some(sizes.as_slice().into())),
            (None, None) => Some(None),
            (None, Some(_)) => cx.known_ints(1)?.map(Some),
        };
        let Some(dims) = dims else {
            for i in 0..self.parts {
                cx.set_output(i, ty, None);
            }
            return Ok(());
        };
        let axis = axis(self.axis, dims.len())?;
        let sizes = match (dims[axis], given) {
            (SymDim::Fixed(size), Some(given)) => Some(self.sizes(size, given.as_deref())?),
            _ => None,
        };
        for i in 0..self.parts {
            let mut part = dims.clone();
            part[axis] = match &sizes {
                Some(sizes) => SymDim::Fixed(sizes[i]),
                None => SymDim::Unknown,
            };
            cx.set_output(i, ty, Some(part));
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let axis = axis(self.axis, x.rank())?;
        let given: Option<Integers> = match (&self.sizes, cx.input(1)) {
            (Some(sizes), _) => Some(sizes.as_slice().into()),
            (None, Some(sizes)) => Some(sizes.to_ints()?),
            (None, None) => None,
        };
        let sizes = self.sizes(x.dims()[axis], given.as_deref())?;
        let outer: usize = x.dims()[..axis].iter().product();
        let inner: usize = x.dims()[axis + 1..].iter().product();
        let stride = x.dims()[axis] * inner;
        let mut start = 0;
        for (i, &size) in sizes.iter().enumerate() {
            let (first, len) = (start * inner, size * inner);
            start += size;
            if !cx.output_used(i) {
                continue;
            }
            let mut dims: Dims = x.dims().into();
            dims[axis] = size;
            match x.element_type().size() {
                None => {
                    let strings = x.strings()?;
                    let outer = if dims.contains(&0) { 0 } else { outer };
                    let mut part = string_room(&dims)?;
                    for o in 0..outer {
                        part.extend(&strings[o * stride + first..][..len])?;
                    }
                    cx.output_strings(i, &dims, part)?;
                }
                Some(width) => {
                    let bytes = x.bytes()?;
                    let output = cx.output_bytes(i, x.element_type(), &dims)?;
                    if output.is_empty() {
                        continue;
                    }
                    let (row, from) = (len * width, first * width);
                    let chunk = output.copy_chunk(cx.workers(), width);
                    output.fill(cx.workers(), chunk, |range, y| {
                        for line in range.start / row..range.end.div_ceil(row) {
                            let start = range.start.max(line * row) - line * row;
                            let end = range.end.min((line + 1) * row) - line * row;
                            y.extend_from_slice(&bytes[line * stride * width + from..][start..end]);
                        }
                    });
                }
            }
        }
        Ok(())
    }
}
