//! The tensors that ports are given.

use half::{bf16, f16};

use super::{MediaError, Work};
use crate::component::{DataType, Dim};

/// What a port says about its shape, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct PortLayout {
    /// A number for each dim that has one; `None` without a declared rank.
    dims: Option<Vec<Option<usize>>>,
}

impl PortLayout {
    pub fn new(dims: Option<&[Dim]>) -> Self {
        let known = |dim: &Dim| match dim {
            Dim::Fixed(size) => usize::try_from(*size).ok(),
            Dim::Symbol(_) => None,
        };
        PortLayout {
            dims: dims.map(|dims| dims.iter().map(known).collect()),
        }
    }

    pub(super) fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(Vec::len)
    }

    /// A dim that has a number, counted from the last.
    pub(super) fn last_but(&self, index: usize) -> Option<usize> {
        let dims = self.dims.as_ref()?;
        *dims.get(dims.len().checked_sub(index + 1)?)?
    }

    /// Pixels are `[.., height, width, 3]`.
    pub(super) fn channels_last(&self) -> bool {
        self.last_but(0) == Some(3) && self.last_but(2) != Some(3)
    }
}

/// A result for a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DataType,
    pub shape: Vec<i64>,
    pub bytes: Vec<u8>,
}

/// Elements of a type, as they come.
pub(super) struct Sink<'w> {
    dtype: DataType,
    shape: Vec<i64>,
    bytes: Vec<u8>,
    work: &'w Work,
}

/// Elements between two looks at the control.
const BATCH: usize = 1 << 12;

impl<'w> Sink<'w> {
    /// For all elements of a shape.
    pub fn new(dtype: DataType, shape: &[usize], work: &'w Work) -> Result<Self, MediaError> {
        let bytes = shape
            .iter()
            .fold(dtype.size(), |all, &dim| all.saturating_mul(dim));
        Ok(Sink {
            dtype,
            shape: shape.iter().map(|&dim| dim as i64).collect(),
            bytes: work.room(bytes)?,
            work,
        })
    }

    fn float(&mut self, value: f32) {
        match self.dtype {
            DataType::Float16 => self.bytes.extend(f16::from_f32(value).to_ne_bytes()),
            DataType::Bfloat16 => self.bytes.extend(bf16::from_f32(value).to_ne_bytes()),
            DataType::Float32 => self.bytes.extend(value.to_ne_bytes()),
            // Bytes that were not scaled: whole numbers.
            _ => self.bytes.push(value as u8),
        }
    }

    pub fn floats(&mut self, values: impl Iterator<Item = f32>) -> Result<(), MediaError> {
        self.each(values, Self::float)
    }

    pub fn integers(&mut self, values: impl Iterator<Item = i64>) -> Result<(), MediaError> {
        self.each(values, Self::integer)
    }

    fn each<T>(
        &mut self,
        values: impl Iterator<Item = T>,
        put: impl Fn(&mut Self, T),
    ) -> Result<(), MediaError> {
        for (index, value) in values.enumerate() {
            if index % BATCH == 0 {
                self.work.count(BATCH)?;
            }
            put(self, value);
        }
        Ok(())
    }

    fn integer(&mut self, value: i64) {
        match self.dtype {
            DataType::Int64 => self.bytes.extend(value.to_ne_bytes()),
            DataType::Int32 => self.bytes.extend((value as i32).to_ne_bytes()),
            DataType::Bool | DataType::Uint8 => self.bytes.push(value as u8),
            _ => self.float(value as f32),
        }
    }

    pub fn done(self) -> Tensor {
        Tensor {
            dtype: self.dtype,
            shape: self.shape,
            bytes: self.bytes,
        }
    }
}

pub(super) fn no_rank(port: &PortLayout, found: &str) -> MediaError {
    MediaError::unfit(format!(
        "the input takes a tensor of rank {}, and {found}; give as many images as it takes at once, or set the \
         input by oxp_run_set_input",
        port.rank().unwrap_or(0)
    ))
}
