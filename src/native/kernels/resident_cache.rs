//! Caches of GroupQueryAttention that are not just the keys and values of all steps:
//!
//! Quantised, with `k_quant_type` and `v_quant_type` PER_TENSOR or PER_CHANNEL. An element is code * scale,
//! its code round(x / scale), ties to even, saturated: int8 or float8e4m3fn [batch, kv_num_heads, rows,
//! size] with `kv_cache_bit_width` 8, and with 4 uint8 [..., size / 2], two codes of -8 to 7, each plus 8,
//! a byte, the first in the low bits.
//!   k_scale, v_scale   float, one element, or [1, kv_num_heads, 1, size]
//! With PER_ROW, which the definition does not have and the option `native.kv_cache_dtype` makes of float
//! caches, a row is `size` codes of int8 and behind them its own scale, a float: max |x| / 127. It is
//! [batch, kv_num_heads, rows, size + 4].
//! New keys and values are used as what their codes stand for. Attention reads the codes where they lie,
//! and a cache that the caller has memory for is made longer there.
//!
//! Of the size of the window, with `sliding_window_cache`: of T keys in all, a cache of C rows (at least
//! the window W) holds the last L in its first rows, L = T as long as they fit, and then
//! T - G ceil((T - C) / G), G = C - W + 1. Rows after them are zero.

use super::attend::{Attend, Cache, Code, CodeRows, DECODED, Heads, Layout, Scales};
use super::group_query_attention::{
    GroupQueryAttention, Lengths, PAST_KEY, PAST_VALUE, PRESENT_KEY, PRESENT_VALUE, Projected,
};
use super::number::{Float, Number};
use super::prepared_heads::Prepare;
use crate::component::count_cache_write;
use crate::native::element::ElementType;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, RunContext};
use crate::native::tensor::{TensorRef, as_bytes, element_count};

const K_SCALE: usize = 12;
const V_SCALE: usize = 13;

/// The largest heads that a quantised cache can be of.
pub(in crate::native) const MAX_SIZE: usize = DECODED;

/// Bytes of the scale that a row of such a cache ends in.
pub(in crate::native) const ROW_SCALE_BYTES: usize = size_of::<f32>();

/// What `k_quant_type` and `v_quant_type` are for a cache whose rows have a scale each.
pub(in crate::native) const PER_ROW: &str = "PER_ROW";

#[derive(Clone, Copy, Debug)]
pub(super) struct Quantization {
    /// 8, or 4: two codes a byte.
    bits: usize,
    /// Of keys and of values.
    scales: [ScaleOf; 2],
}

/// What has a scale of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ScaleOf {
    Tensor,
    /// Each channel of each head.
    Channel,
    /// Each row, in which it is kept.
    Row,
}

/// What the attributes say of the cache; `None` if it is not quantised.
pub(super) fn quantization(node: &NodeInfo<'_>) -> Result<Option<Quantization>, OpError> {
    let kind = |name: &str| match node.string_or(name, "NONE")? {
        "NONE" => Ok(None),
        "PER_TENSOR" => Ok(Some(ScaleOf::Tensor)),
        "PER_CHANNEL" => Ok(Some(ScaleOf::Channel)),
        PER_ROW => Ok(Some(ScaleOf::Row)),
        other => {
            let message = format!("is \"{other}\", expected NONE, PER_TENSOR, PER_CHANNEL or {PER_ROW}");
            Err(super::wrong_attribute(name, message))
        }
    };
    let kinds = (kind("k_quant_type")?, kind("v_quant_type")?);
    let bits = node.int_or("kv_cache_bit_width", 0)?;
    match (kinds, bits) {
        ((None, None), _) => Ok(None),
        ((Some(k), Some(v)), _) if (k == ScaleOf::Row) != (v == ScaleOf::Row) => Err(OpError::Unsupported(
            format!("a cache of which only the keys or the values are {PER_ROW}"),
        )),
        ((Some(ScaleOf::Row), _), bits) if bits != 8 => {
            let message = format!("is {bits}, expected 8 with {PER_ROW}");
            Err(super::wrong_attribute("kv_cache_bit_width", message))
        }
        ((Some(k), Some(v)), 8 | 4) => Ok(Some(Quantization {
            bits: bits as usize,
            scales: [k, v],
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
        match (self.bits, self.scales) {
            (4, _) => size.div_ceil(2),
            (_, [ScaleOf::Row, _]) => size.saturating_add(ROW_SCALE_BYTES),
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

/// Keys (0) or values (1) of a step, and what is done to a row of them, of batch item and index,
/// before it is stored.
type NewRows<'a, T> = (
    usize,
    Heads<'a, T>,
    &'a dyn Fn(&[T], usize, usize, &mut [<T as Number>::Wide]),
);

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
        if self.window_cache.is_none() && cx.output_used(PRESENT_KEY) && cx.output_used(PRESENT_VALUE) {
            return self.run_on_codes(cx, p, lengths, prepare, &attend);
        }
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

    /// With a quantised cache of all steps: the new keys and values go into it, and attention reads
    /// it as it lies there.
    fn run_on_codes<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        p: &Projected<'_, T>,
        lengths: &Lengths<'_>,
        prepare: &Prepare<'_, T>,
        attend: &Attend,
    ) -> Result<(), OpError> {
        if p.size > MAX_SIZE {
            let message = format!("a quantised cache of heads of {}, more than {MAX_SIZE}", p.size);
            return Err(OpError::Unsupported(message));
        }
        let scratch_len = attend
            .scratch_len(p.size, cx.workers())
            .and_then(|len| len.checked_add(p.size));
        let scratch_len = scratch_len.ok_or_else(|| OpError::TooLarge {
            dims: [p.batch, self.kv_heads, lengths.total, p.size]
                .into_iter()
                .collect(),
        })?;
        let (row, scratch) = cx.scratch::<T::Wide>(scratch_len)?.split_at_mut(p.size);
        let key = |x: &[T], b: usize, i: usize, row: &mut [T::Wide]| prepare.key(x, b, i, row);
        let value = |x: &[T], _: usize, _: usize, row: &mut [T::Wide]| T::widen_all(x, row);
        let keys = self.grown_codes(cx, p, lengths, (0, p.k, &key), row)?;
        let values = self.grown_codes(cx, p, lengths, (1, p.v, &value), row)?;
        self.finish::<T>(cx, p, lengths, prepare, attend, (&keys, &values), &|_| 0, scratch)
    }

    /// The keys (0) or values (1) of the present, which is written: where the past lies, the rows
    /// behind it alone.
    fn grown_codes<'c, T: Float>(
        &self,
        cx: &mut RunContext<'c>,
        p: &Projected<'_, T>,
        lengths: &Lengths<'_>,
        (which, new, prepare): NewRows<'_, T>,
        row: &mut [T::Wide],
    ) -> Result<CodeRows<'c>, OpError> {
        let scales = self.scales(cx, p, which)?;
        let scales = scales.ok_or_else(|| OpError::Message("the cache is not quantised".into()))?;
        let (input, output) = ([PAST_KEY, PAST_VALUE][which], [PRESENT_KEY, PRESENT_VALUE][which]);
        let past = cx.input(input);
        let ty = match (past, &self.quantization) {
            (Some(past), _) => past.element_type(),
            (None, Some(quantization)) => quantization.default_type(),
            (None, None) => T::TYPE,
        };
        let width = scales.row_bytes();
        let layout = |rows| Layout::heads_first(self.kv_heads, rows, width);
        let (past_rows, present_rows) = (lengths.past_rows, lengths.past_rows.max(lengths.total));
        let dims = [p.batch, self.kv_heads, present_rows, width];
        let mut write_new = |to: &mut [u8], layout: Layout| {
            for b in 0..p.batch {
                // What is past a batch item's length is not kept, as in a prompt that is padded.
                let past = lengths.past(b);
                for h in 0..self.kv_heads {
                    for i in 0..p.new.min(present_rows.saturating_sub(past)) {
                        prepare(new.row(b, h, i), b, i, row);
                        let at = layout.start(b, h, past + i);
                        scales.encode(h, row, &mut to[at..][..width]);
                    }
                }
            }
        };
        let mut old: (&[u8], Layout) = (&[], layout(past_rows));
        if let Some(room) = cx.cache::<u8>(output)? {
            let all = element_count(&[p.batch, self.kv_heads, room.rows, width])?;
            if room.elements.len() != all || room.rows < past_rows {
                return Err(OpError::Message(format!(
                    "a cache of {} bytes is not {dims:?} with {} rows",
                    room.elements.len(),
                    room.rows
                )));
            }
            // Rows that some batch item does not use would have to be overwritten.
            let appends = past_rows.checked_add(p.new) == Some(present_rows)
                && present_rows <= room.rows
                && (0..p.batch).all(|b| lengths.past(b) == past_rows);
            if appends {
                if width > 0 {
                    write_new(room.elements, layout(room.rows));
                }
                count_cache_write(p.batch * self.kv_heads * p.new * width);
                cx.output_in_cache(output, ty, &dims)?;
                return Ok(CodeRows {
                    bytes: room.elements,
                    layout: layout(room.rows),
                    scales,
                });
            }
            old = (room.elements, layout(room.rows));
        } else if let Some(past) = past {
            old.0 = past.bytes()?;
        }
        let present = cx.output_bytes(output, ty, &dims)?.zeroed();
        let to = layout(present_rows);
        if !present.is_empty() {
            for b in 0..p.batch {
                let kept = lengths.past(b) * width;
                for h in 0..self.kv_heads {
                    let from = &old.0[old.1.start(b, h, 0)..][..kept];
                    present[to.start(b, h, 0)..][..kept].copy_from_slice(from);
                }
            }
            write_new(present, to);
        }
        count_cache_write(present.len());
        Ok(CodeRows {
            bytes: present,
            layout: to,
            scales,
        })
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
        let code = Code::of(ty, quantization.bits)?;
        let per_channel = match quantization.scales[which] {
            ScaleOf::Row => return Scales::in_rows(code, p.size).map(Some),
            scale => scale == ScaleOf::Channel,
        };
        let sizes = [self.kv_heads, p.size];
        let index = [K_SCALE, V_SCALE][which];
        Scales::new(cx, index, per_channel, code, sizes).map(Some)
    }

    /// All keys (0) or values (1) that are used, as they are after they have been stored.
    fn fill<T: Float>(
        &self,
        cx: &RunContext<'_>,
        p: &Projected<'_, T>,
        rows: &Rows,
        (which, new, prepare): NewRows<'_, T>,
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
