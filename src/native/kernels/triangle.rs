//! Parts of matrices by their distance from the diagonal:
//!
//!   Trilu      y[..., i, j] = x[..., i, j] where j - i >= k (`upper`) or j - i <= k, else 0
//!              any type; k is an optional input, 0 without it           ai.onnx 14
//!   EyeLike    y[i, j] = 1 where j - i = k, else 0; the shape of X, the type `dtype` or that
//!              of X: numbers and booleans                               ai.onnx 9, 22

use super::Built;
use super::dims::one_int;
use super::dispatch::{with_integer, with_number};
use super::infer::{input_dims, input_type, like_first_input};
use super::moves::string_room;
use super::number::{Number, Scalar};
use crate::native::element::{Bool, ElementType};
use crate::native::ending::{self, counted};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

#[derive(Debug)]
struct Trilu {
    upper: bool,
}

pub(in crate::native) fn trilu(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Trilu {
        upper: node.flag_or("upper", true)?,
    }))
}

/// The column of row `row` that lies on diagonal `k`, held to 0..=columns.
fn diagonal(row: usize, k: i64, columns: usize) -> usize {
    let column = row as i128 + i128::from(k);
    column.clamp(0, columns as i128) as usize
}

impl Trilu {
    /// The columns of a row that are kept.
    fn kept(&self, row: usize, k: i64, columns: usize) -> std::ops::Range<usize> {
        match self.upper {
            true => diagonal(row, k, columns)..columns,
            false => 0..diagonal(row, k.saturating_add(1), columns),
        }
    }
}

impl Operator for Trilu {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let k = match cx.input(1) {
            Some(k) => one_int(&k, 1)?,
            None => 0,
        };
        let &[.., rows, columns] = x.dims() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: "rank 2 or more".into(),
            });
        };
        let kept_of = |index: usize| self.kept(index % rows.max(1), k, columns);
        let Some(size) = x.element_type().size() else {
            let mut y = string_room(x.dims())?;
            for (index, row) in x.strings()?.chunks_exact(columns.max(1)).enumerate() {
                let kept = kept_of(index);
                for (column, text) in counted(row).enumerate() {
                    y.push(if kept.contains(&column) { text.as_str() } else { "" })?;
                }
            }
            return cx.output_strings(0, x.dims(), y);
        };
        let y = cx.output_bytes(0, x.element_type(), x.dims())?.zeroed();
        let row_bytes = (columns * size).max(1);
        let rows = x
            .bytes()?
            .chunks_exact(row_bytes)
            .zip(y.chunks_exact_mut(row_bytes));
        for (index, (x, y)) in rows.enumerate() {
            ending::count(columns);
            let kept = kept_of(index);
            let kept = kept.start * size..kept.end * size;
            if let (Some(x), Some(y)) = (x.get(kept.clone()), y.get_mut(kept)) {
                y.copy_from_slice(x);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct EyeLike {
    /// `None` is the type of the input.
    ty: Option<ElementType>,
    k: i64,
}

pub(in crate::native) fn eye_like(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(EyeLike {
        ty: node.element_type("dtype")?,
        k: node.int_or("k", 0)?,
    }))
}

impl Operator for EyeLike {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (self.ty.or(input_type(cx, 0)), input_dims(cx, 0));
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let &[rows, columns] = x.dims() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: "rank 2".into(),
            });
        };
        let positions = (0..rows.min(x.len())).filter_map(|row| {
            let column = usize::try_from(row as i128 + i128::from(self.k)).ok()?;
            (column < columns).then(|| row * columns + column)
        });
        match self.ty.unwrap_or(x.element_type()) {
            ElementType::Bool => {
                let y = cx.output::<Bool>(0, x.dims())?.zeroed();
                positions.for_each(|at| y[at] = Bool::from(true));
                Ok(())
            }
            ty => with_number!(ty, T => {
                let y = cx.output::<T>(0, x.dims())?.zeroed();
                positions.for_each(|at| y[at] = one::<T>());
                Ok(())
            }),
        }
    }
}

fn one<T: Number>() -> T {
    T::narrow(T::Wide::ONE)
}
