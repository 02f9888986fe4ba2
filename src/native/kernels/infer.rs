//! Shapes before values: what most operators say about their outputs.

use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::operator::OpError;

/// The dims that two lists of dims broadcast to, as far as they are known. A pair that cannot
/// match is an error.
pub(in crate::native) fn broadcast(a: &[SymDim], b: &[SymDim]) -> Result<SymDims, OpError> {
    let rank = a.len().max(b.len());
    let one = SymDim::Fixed(1);
    let dim = |dims: &[SymDim], axis: usize| match (axis + dims.len()).checked_sub(rank) {
        Some(at) => dims.get(at).copied().unwrap_or(SymDim::Fixed(1)),
        None => SymDim::Fixed(1),
    };
    (0..rank)
        .map(|axis| match (dim(a, axis), dim(b, axis)) {
            (x, y) if x == y => Ok(x),
            (x, y) if x == one => Ok(y),
            (x, y) if y == one => Ok(x),
            (SymDim::Fixed(_), SymDim::Fixed(_)) => Err(OpError::Message(format!(
                "shapes {a:?} and {b:?} do not broadcast"
            ))),
            // A fixed size other than 1 wins over a dim that must then be 1 or equal to it.
            (SymDim::Fixed(size), _) | (_, SymDim::Fixed(size)) => Ok(SymDim::Fixed(size)),
            _ => Ok(SymDim::Unknown),
        })
        .collect()
}

/// Output `output` has this type and the shape that all inputs in `inputs` broadcast to.
pub(super) fn broadcast_inputs(
    cx: &mut InferContext<'_>,
    inputs: impl IntoIterator<Item = usize>,
    ty: Option<ElementType>,
) -> Result<(), OpError> {
    let mut dims = Some(SymDims::new());
    for i in inputs {
        let Some(fact) = cx.input(i) else { continue };
        dims = match (dims, &fact.dims) {
            (Some(so_far), Some(more)) => Some(broadcast(&so_far, more)?),
            _ => None,
        };
    }
    cx.set_output(0, ty, dims);
    Ok(())
}

/// Output 0 has the type and the shape of input 0.
pub(super) fn like_first_input(cx: &mut InferContext<'_>) -> Result<(), OpError> {
    let (ty, dims) = match cx.input(0) {
        Some(fact) => (fact.ty, fact.dims.clone()),
        None => (None, None),
    };
    cx.set_output(0, ty, dims);
    Ok(())
}

pub(super) fn input_type(cx: &InferContext<'_>, i: usize) -> Option<ElementType> {
    cx.input(i).and_then(|fact| fact.ty)
}

pub(super) fn input_dims(cx: &InferContext<'_>, i: usize) -> Option<SymDims> {
    cx.input(i).and_then(|fact| fact.dims.clone())
}
