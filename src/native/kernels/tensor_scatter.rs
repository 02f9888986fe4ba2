//! TensorScatter: a cache with a piece of its sequence dim (`axis`, -2 by default) overwritten.
//!
//!   past [batch, ..., max, ...]   update [batch, ..., n, ...]   write_indices [batch] (0 without)
//!
//!   present[b, ..., write_indices[b] + i, ...] = update[b, ..., i, ...]    for i in 0 .. n
//!
//! In `circular` mode positions are taken modulo max; in `linear` mode they must be below it.
//! ai.onnx 24: any type.

use super::Built;
use super::dims::{Lanes, axis};
use super::elementwise::copy;
use super::infer::like_first_input;
use super::moves::string_room;
use crate::component::count_cache_write;
use crate::native::ending::{self, counted};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct TensorScatter {
    axis: i64,
    circular: bool,
}

pub(in crate::native) fn tensor_scatter(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(TensorScatter {
        axis: node.int_or("axis", -2)?,
        circular: match node.string_or("mode", "linear")? {
            "linear" => false,
            "circular" => true,
            other => {
                return Err(OpError::Attribute {
                    name: "mode".into(),
                    message: format!("is \"{other}\", expected \"linear\" or \"circular\""),
                });
            }
        },
    }))
}

/// Where pieces go: for each (prefix, position in the update), a row of the cache.
struct Rows<'a> {
    past: Lanes,
    update: Lanes,
    /// One for each batch, or empty for zeros.
    write_indices: &'a [i64],
    /// Prefixes of each batch.
    prefixes: usize,
    circular: bool,
}

impl Rows<'_> {
    /// Checks that all rows are in the cache: to be asked before any is written, since a cache that is
    /// overwritten where it lies is the caller's.
    fn check(&self) -> Result<(), OpError> {
        let Lanes { outer, len, .. } = self.update;
        if self.circular || outer == 0 || len == 0 {
            // Modulo a length that is not less than that of the update.
            return Ok(());
        }
        let positions = self.past.len;
        let outside = self.write_indices.iter().find_map(|&first| {
            let row = usize::try_from(first).ok().filter(|&row| row < positions);
            match row.map(|row| positions - row) {
                None => Some((first, 0)),
                Some(room) if room < len => Some((first, room)),
                Some(_) => None,
            }
        });
        match outside {
            None => Ok(()),
            Some((first, i)) => Err(OpError::Message(format!(
                "write index {first} plus {i} is outside the cache's {positions} positions"
            ))),
        }
    }

    /// Calls `copy(to, from)` with the first elements of a row of the cache and of the update, of rows
    /// that have been [checked](Self::check).
    fn for_each(&self, mut copy: impl FnMut(usize, usize)) {
        let Lanes { outer, len, inner } = self.update;
        for prefix in 0..outer {
            let batch = prefix / self.prefixes.max(1);
            let first = self.write_indices.get(batch).copied().unwrap_or(0);
            let first = match self.circular {
                true => i128::from(first).rem_euclid(self.past.len.max(1) as i128) as usize,
                false => first as usize,
            };
            for i in 0..len {
                // Linear positions end before the wrap.
                let row = match first + i {
                    row if row < self.past.len => row,
                    row => row - self.past.len,
                };
                copy((prefix * self.past.len + row) * inner, (prefix * len + i) * inner);
            }
        }
    }
}

impl Operator for TensorScatter {
    fn overwrites(&self, output: usize) -> Option<usize> {
        (output == 0).then_some(0)
    }

    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (past, update) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&past, &update, 1)?;
        let axis = axis(self.axis, past.rank())?;
        if axis == 0 {
            return Err(OpError::Message(
                "the sequence dim cannot be the batch dim, 0".into(),
            ));
        }
        check_dims(&past, &update, axis)?;
        let batch = past.dims().first().copied().unwrap_or(1);
        let write_indices = match cx.input(2) {
            Some(indices) if indices.dims() == [batch] => indices.to_ints()?,
            Some(indices) => {
                return Err(OpError::WrongDims {
                    what: "input 2".into(),
                    found: indices.dims().into(),
                    expected: format!("[{batch}]"),
                });
            }
            None => Default::default(),
        };
        let rows = Rows {
            past: Lanes::along(past.dims(), axis),
            update: Lanes::along(update.dims(), axis),
            write_indices: &write_indices,
            prefixes: past.dims()[1..axis].iter().product(),
            circular: self.circular,
        };
        rows.check()?;
        let run = rows.update.inner;
        if let Some(present) = cx.buffer(0, past.element_type(), past.dims())? {
            let (size, update) = (past.element_type().size().unwrap_or(1), update.bytes()?);
            count_cache_write(update.len());
            // To its end: a run that ends in the middle would leave the caller half of it.
            rows.for_each(|to, from| {
                present[to * size..][..run * size].copy_from_slice(&update[from * size..][..run * size]);
            });
            return Ok(());
        }
        let Some(size) = past.element_type().size() else {
            let (mut present, update) = (string_room(past.dims())?, update.strings()?);
            present.extend(counted(past.strings()?))?;
            let mut result = Ok(());
            rows.for_each(|to, from| {
                ending::count(run);
                if result.is_ok() {
                    result = present.overwrite(to, &update[from..][..run]);
                }
            });
            result?;
            return cx.output_strings(0, past.dims(), present);
        };
        let update = update.bytes()?;
        let present = cx.output_bytes(0, past.element_type(), past.dims())?.into_mut();
        copy(past.bytes()?, present);
        rows.for_each(|to, from| {
            ending::count(run);
            present[to * size..][..run * size].copy_from_slice(&update[from * size..][..run * size]);
        });
        Ok(())
    }
}

/// The update has the cache's dims, but for fewer positions along the axis.
fn check_dims(past: &TensorRef<'_>, update: &TensorRef<'_>, axis: usize) -> Result<(), OpError> {
    let mut pairs = past.dims().iter().zip(update.dims()).enumerate();
    let fits = update.rank() == past.rank()
        && pairs.all(|(at, (past, update))| {
            if at == axis {
                update <= past
            } else {
                update == past
            }
        });
    match fits {
        true => Ok(()),
        false => Err(OpError::WrongDims {
            what: "input 1".into(),
            found: update.dims().into(),
            expected: format!("those of input 0, {:?}, or fewer along axis {axis}", past.dims()),
        }),
    }
}
