//! KV caches that a component makes longer, or overwrites in part, where they lie.

use super::tensor::{AlignedBytes, ComponentTensor, Shape, TensorError, byte_len, check_byte_len};
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
    /// Whether past and present are both the memory as a whole.
    whole: bool,
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
        check_byte_len(dtype, shape, memory.len(), expected)?;
        Ok(CacheRoom {
            past,
            dtype,
            shape,
            axis,
            capacity,
            whole: false,
            memory,
        })
    }

    /// Past and present of one buffer: `memory` is a dense tensor of `shape`, which is the shape
    /// of both. A run overwrites what it will of it, and says
    /// [`OutputResult::InCache`](super::OutputResult::InCache) with that shape. Only for pairs
    /// that a session says it [overwrites](ComponentSession::overwrites).
    pub fn whole(
        past: &'a str,
        dtype: DataType,
        shape: &'a [i64],
        memory: &'a mut [u8],
    ) -> Result<Self, TensorError> {
        check_byte_len(dtype, shape, memory.len(), byte_len(dtype, shape)?)?;
        Ok(CacheRoom {
            past,
            dtype,
            shape,
            axis: 0,
            capacity: shape
                .first()
                .map_or(1, |&rows| usize::try_from(rows).unwrap_or(0)),
            whole: true,
            memory,
        })
    }

    pub fn is_whole(&self) -> bool {
        self.whole
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

    /// A copy of the past, without the gaps that the room leaves: for backends that cannot read it
    /// where it lies.
    pub fn copy_past(&self) -> Result<ComponentTensor, TensorError> {
        let mut dense = AlignedBytes::try_zeroed(byte_len(self.dtype, self.shape)?)?;
        let rows = self.shape.get(self.axis).copied().unwrap_or(0);
        let rows = usize::try_from(rows).unwrap_or(0);
        copy_rows(
            row_bytes(self.dtype, self.shape, self.axis),
            rows,
            (self.memory, self.capacity),
            (&mut dense, rows),
        );
        ComponentTensor::from_bytes(self.dtype, self.shape, dense)
    }

    /// Rows after those of the past may be written, of one buffer any; what they hold is only of
    /// use when the run says [`OutputResult::InCache`](super::OutputResult::InCache).
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

/// Bytes of a row in one of the blocks that lie behind each other along an axis.
pub(crate) fn row_bytes(dtype: DataType, shape: &[i64], axis: usize) -> usize {
    let inner = shape.get(axis + 1..).unwrap_or_default().iter();
    inner.fold(dtype.size(), |bytes, &dim| {
        bytes.saturating_mul(usize::try_from(dim).unwrap_or(0))
    })
}

/// Copies the first `count` rows of each block of one memory to those of another; each says how
/// many rows its blocks have.
pub(crate) fn copy_rows(
    row_bytes: usize,
    count: usize,
    (from, from_rows): (&[u8], usize),
    (to, to_rows): (&mut [u8], usize),
) {
    let len = row_bytes * count;
    if len == 0 {
        return;
    }
    let blocks = from.chunks_exact(row_bytes * from_rows);
    for (from, to) in blocks.zip(to.chunks_exact_mut(row_bytes * to_rows)) {
        to[..len].copy_from_slice(&from[..len]);
    }
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
        if cache.whole {
            let past = io.inputs.iter().position(|port| port.name == cache.past);
            let present = io.outputs.iter().position(|port| port.name == output.name);
            if past
                .zip(present)
                .is_some_and(|(past, present)| session.overwrites(past, present))
            {
                continue;
            }
            let kind = ComponentErrorKind::NoSuchCache {
                past: cache.past.to_owned(),
                present: output.name.to_owned(),
            };
            return Err(ComponentError::new(session.name(), kind));
        }
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
