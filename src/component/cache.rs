//! KV caches that a component makes longer where they lie.

use super::tensor::{Shape, TensorError, byte_len};
use super::{ComponentError, ComponentErrorKind, ComponentSession, DataType, Output};

/// An input and an output of a component, by index, of which the output is the input and rows
/// of this run behind it: past and present of a cache. A run that is given a [`CacheRoom`] for
/// the pair writes those rows alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlaceCache {
    pub past: usize,
    pub present: usize,
    /// The dim along which the rows are.
    pub axis: usize,
}

/// The past of a cache, with room for rows behind it: what an output, the present, may be
/// written into. The input is then not given in any other way.
#[derive(Debug)]
pub struct CacheRoom<'a> {
    past: &'a str,
    dtype: DataType,
    shape: &'a [i64],
    axis: usize,
    capacity: usize,
    memory: &'a mut [u8],
}

impl<'a> CacheRoom<'a> {
    /// `memory` is a dense tensor of `shape`, the past's, but with `capacity` rows along `axis`,
    /// of which the first are the past's.
    pub fn new(
        past: &'a str,
        dtype: DataType,
        shape: &'a [i64],
        axis: usize,
        capacity: usize,
        memory: &'a mut [u8],
    ) -> Result<Self, TensorError> {
        let expected = room_len(dtype, shape, axis, capacity)?;
        if memory.len() != expected {
            return Err(TensorError::ByteLength {
                dtype,
                shape: shape.into(),
                found: memory.len() as u64,
                expected: expected as u64,
            });
        }
        Ok(CacheRoom {
            past,
            dtype,
            shape,
            axis,
            capacity,
            memory,
        })
    }

    /// The name of the input.
    pub fn past(&self) -> &'a str {
        self.past
    }

    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The shape of the past.
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }

    /// Rows along the axis that there is memory for, those of the past included.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Rows after those of the past may be written; what they hold is only of use when the run
    /// says [`OutputResult::InCache`](super::OutputResult::InCache).
    pub fn memory(&mut self) -> &mut [u8] {
        self.memory
    }
}

/// Bytes of a tensor of `shape` with `capacity` rows along `axis`, which are no fewer than its own.
pub(crate) fn room_len(
    dtype: DataType,
    shape: &[i64],
    axis: usize,
    capacity: usize,
) -> Result<usize, TensorError> {
    byte_len(dtype, shape)?;
    let mut with_room = Shape::from_slice(shape);
    match (with_room.get_mut(axis), i64::try_from(capacity)) {
        (Some(rows), Ok(capacity)) if *rows <= capacity => *rows = capacity,
        _ => {
            return Err(TensorError::CacheRoom {
                shape: shape.into(),
                axis,
                capacity,
            });
        }
    }
    byte_len(dtype, &with_room)
}

/// Caches may only be given to a session that says that it takes them so.
pub(super) fn check_caches(
    session: &(impl ComponentSession + ?Sized),
    outputs: &[Output<'_>],
) -> Result<(), ComponentError> {
    let io = session.io();
    // Callers mostly give them in the session's order.
    let mut expected = session.in_place_caches().iter().cycle();
    let count = session.in_place_caches().len();
    for output in outputs {
        let Some(cache) = &output.cache else { continue };
        let is_it = |known: &InPlaceCache| {
            known.axis == cache.axis
                && io
                    .inputs
                    .get(known.past)
                    .is_some_and(|port| port.name == cache.past)
                && io
                    .outputs
                    .get(known.present)
                    .is_some_and(|port| port.name == output.name)
        };
        if !expected.by_ref().take(count).any(is_it) {
            let kind = ComponentErrorKind::NoSuchCache {
                past: cache.past.to_owned(),
                present: output.name.to_owned(),
            };
            return Err(ComponentError::new(session.name(), kind));
        }
    }
    Ok(())
}
