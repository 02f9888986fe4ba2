//! The bytes of a saved run: one list of fields, which is counted, written and read by the same code.
//!
//! Numbers are little-endian. A list is its count (u64) and its items; a tensor is one byte that is
//! 1, its type's `TensorProto.DataType` code (u32), its rank (u32), its dims (i64 each) and its dense
//! bytes, or one byte that is 0 where there is none. What is read may be anything: a count is held
//! against the bytes that are left before any memory is asked for.

use crate::component::{DataType, MAX_RANK, Shape, TensorView, byte_len};

use crate::pipeline::cache::Cache;
use crate::pipeline::value::Value;

/// Why bytes are no saved run, or not one for this pipeline.
#[derive(Debug)]
pub(in crate::pipeline) struct Problem(pub String);

pub(in crate::pipeline) type Result<T> = std::result::Result<T, Problem>;

pub(in crate::pipeline) fn wrong<T>(message: impl Into<String>) -> Result<T> {
    Err(Problem(message.into()))
}

/// What becomes of the fields.
pub(in crate::pipeline) enum Wire<'b> {
    /// How many bytes they would take.
    Count(usize),
    Write {
        room: &'b mut [u8],
        at: usize,
    },
    Read {
        bytes: &'b [u8],
        at: usize,
    },
}

impl<'b> Wire<'b> {
    pub fn reads(&self) -> bool {
        matches!(self, Wire::Read { .. })
    }

    /// Where the next field is.
    pub fn at(&self) -> usize {
        match self {
            Wire::Count(at) | Wire::Write { at, .. } | Wire::Read { at, .. } => *at,
        }
    }

    /// Bytes that are yet to be read.
    pub fn left(&self) -> usize {
        match self {
            Wire::Read { bytes, at } => bytes.len().saturating_sub(*at),
            Wire::Count(_) | Wire::Write { .. } => 0,
        }
    }

    fn put(&mut self, from: &[u8]) -> Result<()> {
        match self {
            Wire::Count(count) => *count = count.saturating_add(from.len()),
            Wire::Write { room, at } => {
                let to = room.get_mut(*at..at.saturating_add(from.len()));
                let Some(to) = to else {
                    return wrong("there is less room than was counted");
                };
                to.copy_from_slice(from);
                *at += from.len();
            }
            Wire::Read { .. } => {}
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8]> {
        let Wire::Read { bytes, at } = self else {
            return Ok(&[]);
        };
        let found = bytes.get(*at..at.saturating_add(len));
        let Some(found) = found else {
            return wrong(format!(
                "it ends after {} bytes, in the middle of a field",
                bytes.len()
            ));
        };
        *at += len;
        Ok(found)
    }

    /// A field of a fixed size.
    fn fixed<const N: usize>(&mut self, bytes: &mut [u8; N]) -> Result<()> {
        match self.reads() {
            true => bytes.copy_from_slice(self.take(N)?),
            false => self.put(bytes)?,
        }
        Ok(())
    }

    pub fn u64(&mut self, value: &mut u64) -> Result<()> {
        let mut bytes = value.to_le_bytes();
        self.fixed(&mut bytes)?;
        *value = u64::from_le_bytes(bytes);
        Ok(())
    }

    pub fn u128(&mut self, value: &mut u128) -> Result<()> {
        let mut bytes = value.to_le_bytes();
        self.fixed(&mut bytes)?;
        *value = u128::from_le_bytes(bytes);
        Ok(())
    }

    pub fn u32(&mut self, value: &mut u32) -> Result<()> {
        let mut bytes = value.to_le_bytes();
        self.fixed(&mut bytes)?;
        *value = u32::from_le_bytes(bytes);
        Ok(())
    }

    pub fn usize(&mut self, value: &mut usize) -> Result<()> {
        let mut wide = *value as u64;
        self.u64(&mut wide)?;
        match usize::try_from(wide) {
            Ok(narrow) => *value = narrow,
            Err(_) => return wrong(format!("{wide} is no count")),
        }
        Ok(())
    }

    pub fn f64(&mut self, value: &mut f64) -> Result<()> {
        let mut bits = value.to_bits();
        self.u64(&mut bits)?;
        *value = f64::from_bits(bits);
        Ok(())
    }

    pub fn flag(&mut self, value: &mut bool) -> Result<()> {
        let mut byte = [u8::from(*value)];
        self.fixed(&mut byte)?;
        match byte {
            [0] => *value = false,
            [1] => *value = true,
            [other] => return wrong(format!("{other} is neither 0 nor 1")),
        }
        Ok(())
    }

    /// The count of a list whose items take at least so many bytes each.
    pub fn count(&mut self, count: usize, least: usize) -> Result<usize> {
        let mut count = count;
        self.usize(&mut count)?;
        match self.reads()
            && count
                .checked_mul(least.max(1))
                .is_none_or(|len| len > self.left())
        {
            true => wrong(format!(
                "it says {count} items of at least {least} bytes where {} bytes are left",
                self.left()
            )),
            false => Ok(count),
        }
    }

    /// A list of which there must be as many as there are.
    pub fn same_count(&mut self, what: &str, count: usize) -> Result<()> {
        let found = self.count(count, 0)?;
        match found == count {
            true => Ok(()),
            false => wrong(format!("it has {found} {what}, and this pipeline {count}")),
        }
    }

    pub fn list<T: Copy + Default>(
        &mut self,
        list: &mut Vec<T>,
        least: usize,
        mut item: impl FnMut(&mut Self, &mut T) -> Result<()>,
    ) -> Result<()> {
        let count = self.count(list.len(), least)?;
        if self.reads() {
            list.clear();
            list.resize(count, T::default());
        }
        list.iter_mut().try_for_each(|each| item(self, each))
    }

    pub fn i32s(&mut self, list: &mut Vec<i32>) -> Result<()> {
        self.list(list, 4, |wire, value| {
            let mut bits = value.cast_unsigned();
            wire.u32(&mut bits)?;
            *value = bits.cast_signed();
            Ok(())
        })
    }

    pub fn i64s(&mut self, list: &mut Vec<i64>) -> Result<()> {
        self.list(list, 8, |wire, value| {
            let mut bits = value.cast_unsigned();
            wire.u64(&mut bits)?;
            *value = bits.cast_signed();
            Ok(())
        })
    }

    pub fn f32s(&mut self, list: &mut Vec<f32>) -> Result<()> {
        self.list(list, 4, |wire, value| {
            let mut bits = value.to_bits();
            wire.u32(&mut bits)?;
            *value = f32::from_bits(bits);
            Ok(())
        })
    }

    pub fn usizes(&mut self, list: &mut Vec<usize>) -> Result<()> {
        self.list(list, 8, Self::usize)
    }

    pub fn flags(&mut self, list: &mut Vec<bool>) -> Result<()> {
        self.list(list, 1, Self::flag)
    }

    pub fn bytes(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let len = self.count(bytes.len(), 1)?;
        self.put(bytes)?;
        if self.reads() {
            *bytes = self.take(len)?.to_vec();
        }
        Ok(())
    }

    pub fn text(&mut self, text: &mut String) -> Result<()> {
        let len = self.count(text.len(), 1)?;
        self.put(text.as_bytes())?;
        if self.reads() {
            let Ok(found) = std::str::from_utf8(self.take(len)?) else {
                return wrong("a text is not UTF-8");
            };
            found.clone_into(text);
        }
        Ok(())
    }

    /// Type, shape and length of a tensor, or none.
    fn tensor_head(&mut self, head: Option<(DataType, &[i64])>) -> Result<Option<(DataType, Shape, usize)>> {
        let mut there = head.is_some();
        self.flag(&mut there)?;
        if !there {
            return Ok(None);
        }
        let (dtype, shape) = head.unwrap_or((DataType::Uint8, &[]));
        let mut code = dtype.code();
        self.u32(&mut code)?;
        let Some(dtype) = DataType::from_code(code) else {
            return wrong(format!("{code} is the code of no type of elements"));
        };
        let mut rank = shape.len() as u32;
        self.u32(&mut rank)?;
        if rank as usize > MAX_RANK {
            return wrong(format!("a tensor of rank {rank}; the limit is {MAX_RANK}"));
        }
        let mut shape = Shape::from_slice(shape);
        shape.resize(rank as usize, 0);
        for dim in &mut shape {
            let mut bits = dim.cast_unsigned();
            self.u64(&mut bits)?;
            *dim = bits.cast_signed();
        }
        let len = byte_len(dtype, &shape).map_err(|error| Problem(error.to_string()))?;
        if self.reads() && len > self.left() {
            return wrong(format!(
                "a tensor of {len} bytes where {} bytes are left",
                self.left()
            ));
        }
        Ok(Some((dtype, shape, len)))
    }

    /// A value; `check` is asked whether what is read may stand there.
    pub fn value(
        &mut self,
        value: &mut Value,
        check: impl FnOnce(DataType, &[i64]) -> Result<()>,
    ) -> Result<()> {
        if let Wire::Read { .. } = self {
            let Some((dtype, shape, len)) = self.tensor_head(None)? else {
                value.clear();
                return Ok(());
            };
            check(dtype, &shape)?;
            let bytes = self.take(len)?;
            let copied = TensorView::new(dtype, &shape, bytes).and_then(|view| value.copy_from(view));
            return copied.map_err(|error| Problem(error.to_string()));
        }
        let view = value.view();
        self.tensor_head(view.map(|view| (view.dtype(), view.shape())))?;
        view.map_or(Ok(()), |view| self.put(view.bytes()))
    }

    /// The rows of a cache, which may be at most `most`; when they are read there will be memory for
    /// `spare`.
    pub fn cache(&mut self, cache: &mut Cache, most: usize, spare: impl Fn(usize) -> usize) -> Result<()> {
        if let Wire::Read { .. } = self {
            let Some((dtype, shape, len)) = self.tensor_head(None)? else {
                return wrong("a cache is missing");
            };
            let bytes = self.take(len)?;
            let view = TensorView::new(dtype, &shape, bytes).map_err(|error| Problem(error.to_string()))?;
            let rows = cache.fits(view).map_err(Problem)?;
            if rows > most {
                return wrong(format!("a cache of {rows} rows; at most {most} tokens have run"));
            }
            return cache
                .restore(view, spare(rows))
                .map_err(|error| Problem(error.to_string()));
        }
        let (dtype, shape) = cache.rows_shape();
        self.tensor_head(Some((dtype, shape)))?;
        cache.blocks().try_for_each(|block| self.put(block))
    }
}
