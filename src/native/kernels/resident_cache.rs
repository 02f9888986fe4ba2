//! Caches of GroupQueryAttention that are not just the keys and values of all steps:
//!
//! Quantised, with `k_quant_type` and `v_quant_type` PER_TENSOR or PER_CHANNEL. An element is code * scale,
//! its code round(x / scale), ties to even, saturated: int8 or float8e4m3fn [batch, kv_num_heads, rows,
//! size] with `kv_cache_bit_width` 8, and with 4 uint8 [..., size / 2], two codes of -8 to 7, each plus 8,
//! a byte, the first in the low bits.
//!   k_scale, v_scale   float, one element, or [1, kv_num_heads, 1, size]
//! New keys and values are used as what their codes stand for.
//!
//! Of the size of the window, with `sliding_window_cache`: of T keys in all, a cache of C rows (at least
//! the window W) holds the last L in its first rows, L = T as long as they fit, and then
//! T - G ceil((T - C) / G), G = C - W + 1. Rows after them are zero.

use super::attend::{Attend, Cache, Heads, Layout};
use super::group_query_attention::{
    GroupQueryAttention, Lengths, PAST_KEY, PAST_VALUE, PRESENT_KEY, PRESENT_VALUE, Projected, wrong_dims,
};
use super::number::{Float, Scalar};
use super::prepared_heads::Prepare;
use super::quantized::Quantized;
use crate::native::element::{ElementType, F8E4M3FN};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, RunContext};
use crate::native::tensor::{TensorRef, as_bytes, element_count};

const K_SCALE: usize = 12;
const V_SCALE: usize = 13;

#[derive(Clone, Copy, Debug)]
pub(super) struct Quantization {
    /// 8, or 4: two codes a byte.
    bits: usize,
    /// Of keys and of values: whether each channel of each head has a scale of its own.
    per_channel: [bool; 2],
}

/// What the attributes say of the cache; `None` if it is not quantised.
pub(super) fn quantization(node: &NodeInfo<'_>) -> Result<Option<Quantization>, OpError> {
    let kind = |name: &str| match node.string_or(name, "NONE")? {
        "NONE" => Ok(None),
        "PER_TENSOR" => Ok(Some(false)),
        "PER_CHANNEL" => Ok(Some(true)),
        other => {
            let message = format!("is \"{other}\", expected NONE, PER_TENSOR or PER_CHANNEL");
            Err(super::wrong_attribute(name, message))
        }
    };
    let kinds = (kind("k_quant_type")?, kind("v_quant_type")?);
    let bits = node.int_or("kv_cache_bit_width", 0)?;
    match (kinds, bits) {
        ((None, None), _) => Ok(None),
        ((Some(k), Some(v)), 8 | 4) => Ok(Some(Quantization {
            bits: bits as usize,
            per_channel: [k, v],
        })),
        ((Some(_), Some(_)), bits) => {
            let message = format!("is {bits}, expected 4 or 8");
            Err(super::wrong_attribute("kv_cache_bit_width", message))
        }
        _ => Err(OpError::Unsupported(
            "a cache of which only the keys or the values are quantised".into(),
        )),
    }
}

impl Quantization {
    /// The type of a cache where no past says it.
    pub fn default_type(&self) -> ElementType {
        match self.bits {
            4 => ElementType::Uint8,
            _ => ElementType::Int8,
        }
    }

    /// Elements of a row of the cache, for heads of `size`.
    pub fn row_bytes(&self, size: usize) -> usize {
        match self.bits {
            4 => size.div_ceil(2),
            _ => size,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WindowCache {
    pub window: usize,
}

impl WindowCache {
    /// How many of `total` keys a cache of so many rows holds; it has at least the window's.
    fn resident(self, total: usize, rows: usize) -> usize {
        let slack = rows - self.window + 1;
        match total.checked_sub(rows) {
            None | Some(0) => total,
            Some(over) => total - slack * over.div_ceil(slack),
        }
    }
}

/// How the elements of a cache lie in bytes.
#[derive(Clone, Copy)]
enum Code {
    Int8,
    Float8,
    Nibbles,
}

impl Code {
    fn of(ty: ElementType, quantization: Quantization) -> Result<Self, OpError> {
        match (ty, quantization.bits) {
            (ElementType::Int8, 8) => Ok(Code::Int8),
            (ElementType::Float8E4M3FN, 8) => Ok(Code::Float8),
            (ElementType::Uint8, 4) => Ok(Code::Nibbles),
            (other, _) => Err(super::unsupported(
                other,
                "a cache of int8 or float8e4m3fn with 8 bits, or of uint8 with 4",
            )),
        }
    }

    fn decode(self, row: &[u8], i: usize) -> f32 {
        match self {
            Code::Int8 => f32::from(row[i] as i8),
            Code::Float8 => F8E4M3FN(row[i]).to_f64() as f32,
            Code::Nibbles => f32::from(row[i / 2] >> (4 * (i % 2)) & 15) - 8.0,
        }
    }

    fn encode(self, value: f32) -> u8 {
        match self {
            Code::Int8 => <i8 as Quantized>::nearest(value.into(), true) as u8,
            Code::Float8 => F8E4M3FN::nearest(value.into(), true).0,
            Code::Nibbles => (value.round_ties_even().clamp(-8.0, 7.0) + 8.0) as u8,
        }
    }
}

/// The scales of keys or values.
struct Scales<'a> {
    code: Code,
    /// One, or one for each channel of each head.
    scales: &'a [f32],
    size: usize,
}

impl<'a> Scales<'a> {
    fn new(
        cx: &RunContext<'a>,
        index: usize,
        per_channel: bool,
        code: Code,
        [heads, size]: [usize; 2],
    ) -> Result<Self, OpError> {
        let tensor = cx.required(index)?;
        let expected = if per_channel {
            element_count(&[heads, size])?
        } else {
            1
        };
        if tensor.len() != expected {
            return Err(wrong_dims(index, &tensor, format!("{expected} elements in all")));
        }
        Ok(Scales {
            code,
            scales: tensor.slice()?,
            size,
        })
    }

    fn scale(&self, head: usize, i: usize) -> f32 {
        match self.scales {
            &[scale] => scale,
            scales => scales[head * self.size + i],
        }
    }

    fn decode<W: Scalar>(&self, head: usize, row: &[u8], to: &mut [W]) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = W::from_f64((self.code.decode(row, i) * self.scale(head, i)).into());
        }
    }

    /// The code of an element.
    fn code_of<W: Scalar>(&self, head: usize, i: usize, x: W) -> u8 {
        self.code.encode(x.to_f64() as f32 / self.scale(head, i))
    }

    fn encode<W: Scalar>(&self, head: usize, row: &[W], to: &mut [u8]) {
        match self.code {
            Code::Nibbles => {
                for (at, (to, pair)) in to.iter_mut().zip(row.chunks(2)).enumerate() {
                    let code = |i: usize| pair.get(i).map_or(8, |&x| self.code_of(head, 2 * at + i, x));
                    *to = code(0) | code(1) << 4;
                }
            }
            _ => {
                for (i, (to, &x)) in to.iter_mut().zip(row).enumerate() {
                    *to = self.code_of(head, i, x);
                }
            }
        }
    }

    /// What is left of a row when it is stored.
    fn round<W: Scalar>(&self, head: usize, row: &mut [W]) {
        for (i, x) in row.iter_mut().enumerate() {
            // A nibble is decoded from the low bits.
            let code = [self.code_of(head, i, *x)];
            let decoded = self.code.decode(&code, 0);
            *x = W::from_f64((decoded * self.scale(head, i)).into());
        }
    }
}

/// Which keys and values a run works on.
struct Rows {
    /// Rows of the past that a batch item has, and new ones.
    past: Vec<usize>,
    new: Vec<usize>,
    /// The largest sum of both.
    most: usize,
}

impl GroupQueryAttention {
    pub(super) fn run_resident<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        p: &Projected<'_, T>,
        lengths: &Lengths<'_>,
        prepare: &Prepare<'_, T>,
        attend: Attend,
    ) -> Result<(), OpError> {
        let capacity = lengths.past_rows;
        if let Some(cache) = self.window_cache.filter(|cache| capacity < cache.window) {
            return Err(OpError::Message(format!(
                "a cache of {capacity} rows is shorter than the window, {}",
                cache.window
            )));
        }
        let mut rows = Rows {
            past: Vec::new(),
            new: Vec::new(),
            most: 0,
        };
        for b in 0..p.batch {
            let past = lengths.past(b);
            // What follows a shorter prompt of a batch is padding.
            let (past, new) = match self.window_cache {
                Some(cache) => (cache.resident(past, capacity), lengths.of(b) - past),
                None => (past, p.new),
            };
            rows.past.push(past);
            rows.new.push(new);
            rows.most = rows.most.max(past + new);
        }
        let kept = element_count(&[p.batch, self.kv_heads, rows.most, p.size])?;
        let attend = Attend {
            total: if self.window_cache.is_some() {
                rows.most
            } else {
                lengths.total
            },
            ..attend
        };
        let scratch_len = attend
            .scratch_len(p.size, cx.workers())
            .and_then(|len| len.checked_add(kept.checked_mul(2)?));
        let scratch_len = scratch_len.ok_or_else(|| OpError::TooLarge {
            dims: [p.batch, self.kv_heads, rows.most, p.size].into_iter().collect(),
        })?;
        let (keys, scratch) = cx.scratch::<T::Wide>(scratch_len)?.split_at_mut(kept);
        let (values, scratch) = scratch.split_at_mut(kept);
        let copy = |x: &[T], _: usize, _: usize, row: &mut [T::Wide]| {
            for (to, x) in row.iter_mut().zip(x) {
                *to = x.widen();
            }
        };
        let key = |x: &[T], b: usize, i: usize, row: &mut [T::Wide]| prepare.key(x, b, i, row);
        self.fill(cx, p, &rows, (0, p.k, &key), keys)?;
        self.fill(cx, p, &rows, (1, p.v, &copy), values)?;
        let present_rows = match self.window_cache {
            Some(_) => capacity,
            None => capacity.max(lengths.total),
        };
        for (which, data) in [(0, &*keys), (1, &*values)] {
            self.write_present(cx, p, &rows, lengths, present_rows, (which, data))?;
        }
        let layout = Layout::heads_first(self.kv_heads, rows.most, p.size);
        let none = |_: usize| 0;
        let cache = |data| Cache::<'_, T, T::Wide> {
            past: None,
            past_len: &none,
            new: Heads { data, layout },
        };
        let (keys, values) = (cache(&*keys), cache(&*values));
        let first_of = |b: usize| match self.window_cache {
            Some(_) => lengths.of(b) - rows.past[b] - rows.new[b],
            None => 0,
        };
        self.finish::<T>(
            cx,
            p,
            lengths,
            prepare,
            &attend,
            (&keys, &values),
            &first_of,
            scratch,
        )
    }

    fn scales<'a, T>(
        &self,
        cx: &RunContext<'a>,
        p: &Projected<'_, T>,
        which: usize,
    ) -> Result<Option<Scales<'a>>, OpError> {
        let Some(quantization) = self.quantization else {
            return Ok(None);
        };
        let past = cx.input([PAST_KEY, PAST_VALUE][which]);
        let ty = past.map_or(quantization.default_type(), |past| past.element_type());
        let code = Code::of(ty, quantization)?;
        let sizes = [self.kv_heads, p.size];
        let (index, per_channel) = ([K_SCALE, V_SCALE][which], quantization.per_channel[which]);
        Scales::new(cx, index, per_channel, code, sizes).map(Some)
    }

    /// All keys (0) or values (1) that are used, as they are after they have been stored.
    #[expect(clippy::type_complexity, reason = "what is done to a new row")]
    fn fill<T: Float>(
        &self,
        cx: &RunContext<'_>,
        p: &Projected<'_, T>,
        rows: &Rows,
        (which, new, prepare): (usize, Heads<'_, T>, &dyn Fn(&[T], usize, usize, &mut [T::Wide])),
        to: &mut [T::Wide],
    ) -> Result<(), OpError> {
        let scales = self.scales(cx, p, which)?;
        if to.is_empty() {
            return Ok(());
        }
        let past = match cx.input([PAST_KEY, PAST_VALUE][which]) {
            Some(past) => Some((past, past.bytes()?)),
            None => None,
        };
        let layout = Layout::heads_first(self.kv_heads, rows.most, p.size);
        for b in 0..p.batch {
            for h in 0..self.kv_heads {
                for j in 0..rows.past[b] + rows.new[b] {
                    let row = &mut to[layout.start(b, h, j)..][..p.size];
                    let Some(i) = j.checked_sub(rows.past[b]) else {
                        let Some((past, bytes)) = &past else { continue };
                        let at = past_row(past, b * self.kv_heads + h, j);
                        match &scales {
                            Some(scales) => scales.decode(h, &bytes[at..], row),
                            None => {
                                for (to, x) in row.iter_mut().zip(&past.slice::<T>()?[at..]) {
                                    *to = x.widen();
                                }
                            }
                        }
                        continue;
                    };
                    prepare(new.row(b, h, i), b, i, row);
                    match &scales {
                        Some(scales) => scales.round(h, row),
                        None => row.iter_mut().for_each(|x| *x = T::narrow(*x).widen()),
                    }
                }
            }
        }
        Ok(())
    }

    /// The cache of the next step: what it keeps of `data`, and zeros.
    fn write_present<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        p: &Projected<'_, T>,
        rows: &Rows,
        lengths: &Lengths<'_>,
        present_rows: usize,
        (which, data): (usize, &[T::Wide]),
    ) -> Result<(), OpError> {
        let output = [PRESENT_KEY, PRESENT_VALUE][which];
        if !cx.output_used(output) {
            return Ok(());
        }
        let scales = self.scales(cx, p, which)?;
        let past = cx.input([PAST_KEY, PAST_VALUE][which]);
        let (ty, width) = match &self.quantization {
            None => (T::TYPE, p.size),
            Some(quantization) => (
                past.map_or(quantization.default_type(), |past| past.element_type()),
                quantization.row_bytes(p.size),
            ),
        };
        let size = ty.size().unwrap_or(1);
        let dims = [p.batch, self.kv_heads, present_rows, width];
        let y = cx.output_bytes(output, ty, &dims)?.zeroed();
        let row_bytes = width * size;
        let layout = Layout::heads_first(self.kv_heads, rows.most, p.size);
        if y.is_empty() {
            return Ok(());
        }
        for (at, y) in y.chunks_exact_mut(row_bytes * present_rows).enumerate() {
            let (b, h) = (at / self.kv_heads, at % self.kv_heads);
            let all = rows.past[b] + rows.new[b];
            let keeps = match self.window_cache {
                Some(cache) => cache.resident(lengths.of(b), present_rows),
                None => all.min(present_rows),
            };
            let first = match self.window_cache {
                Some(_) => all.saturating_sub(keeps),
                None => 0,
            };
            for (j, y) in (first..all).zip(y.chunks_exact_mut(row_bytes)) {
                // A stored row stays what it is to the bit.
                if let Some(past) = past.filter(|_| j < rows.past[b]) {
                    let from = past_row(&past, b * self.kv_heads + h, j) * size;
                    y.copy_from_slice(&past.bytes()?[from..][..row_bytes]);
                    continue;
                }
                let row = &data[layout.start(b, h, j)..][..p.size];
                match &scales {
                    Some(scales) => scales.encode(h, row, y),
                    None => {
                        for (y, &x) in y.chunks_exact_mut(size).zip(row) {
                            y.copy_from_slice(as_bytes(&[T::narrow(x)]));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Where a row of a cache [batch, heads, rows, width] begins, of a batch item and head counted as one.
fn past_row(past: &TensorRef<'_>, head: usize, row: usize) -> usize {
    match past.dims() {
        &[_, _, rows, width] => (head * rows + row) * width,
        _ => 0,
    }
}
