//! SparseAttention: GroupQueryAttention in which a head sees blocks of keys only.
//!
//!   query, key, value, past_key, past_value    as there; the caches are as long as what they can hold
//!   block_row_indices  [layouts, blocks + 1], block_col_indices [layouts, entries] of int32: for each
//!                      layout the blocks of keys that a block of queries sees, those from
//!                      row_indices[q] on, before row_indices[q + 1]
//!   total_sequence_length, key_total_sequence_lengths  the most keys, and those of each batch item
//!   cos_cache, sin_cache   with `do_rotary`
//!
//! Head h has layout h mod layouts; a block is `sparse_block_size` positions. A query sees no key after
//! it. com.microsoft 1: float, float16, bfloat16 (and double).

use std::borrow::Cow;
use std::ops::Range;

use super::group_query_attention::{GroupQueryAttention, wrong_dims};
use super::number::Scalar;
use super::{Built, inner};
use crate::native::element::ElementType;
use crate::native::ending::{self, counted};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

const ROWS: usize = 5;
const COLUMNS: usize = 6;
const TOTAL: usize = 7;
const LENGTHS: usize = 8;
const COS: usize = 9;
const SIN: usize = 10;

/// Where GroupQueryAttention, of which these are not, finds rows and columns.
pub(super) const MASK_ROWS: usize = 16;
pub(super) const MASK_COLUMNS: usize = 17;

#[derive(Debug)]
struct SparseAttention(GroupQueryAttention);

pub(in crate::native) fn sparse_attention(node: &NodeInfo<'_>) -> Built {
    let size = super::required_attribute("sparse_block_size", node.int("sparse_block_size")?)?;
    let block_size = match usize::try_from(size) {
        Ok(size @ 1..) => size,
        _ => {
            let message = format!("is {size}, expected at least 1");
            return Err(super::wrong_attribute("sparse_block_size", message));
        }
    };
    let attention = GroupQueryAttention::read(node)?;
    Ok(Box::new(SparseAttention(attention.with_blocks(block_size))))
}

impl Operator for SparseAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        // The inputs that this reads come first in both.
        self.0.infer(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let lengths = cx.required(LENGTHS)?;
        let totals = lengths.slice::<i32>()?;
        let last = cx.pool.tensor(ElementType::Int32, lengths.dims(), |bytes| {
            for (to, &total) in bytes.chunks_exact_mut(size_of::<i32>()).zip(totals) {
                to.copy_from_slice(&total.saturating_sub(1).to_ne_bytes());
            }
        })?;
        let mut inputs = [None; MASK_COLUMNS + 1];
        for (index, input) in inputs.iter_mut().enumerate().take(ROWS) {
            *input = cx.input(index);
        }
        inputs[5] = Some(last.view());
        inputs[6] = cx.input(TOTAL);
        inputs[7] = cx.input(COS);
        inputs[8] = cx.input(SIN);
        inputs[MASK_ROWS] = cx.input(ROWS);
        inputs[MASK_COLUMNS] = cx.input(COLUMNS);
        inner::run_last(cx, &self.0, &inputs, |_| true)?;
        inner::recycle(cx, [last]);
        Ok(())
    }
}

/// Which blocks of keys each block of queries sees.
pub(super) struct BlockMask<'a> {
    rows: &'a [i32],
    /// Ascending for each block of queries.
    columns: Cow<'a, [i32]>,
    layouts: usize,
    blocks: usize,
    entries: usize,
    size: usize,
}

impl<'a> BlockMask<'a> {
    pub fn new(
        rows: TensorRef<'a>,
        columns: TensorRef<'a>,
        size: usize,
        total: usize,
    ) -> Result<Self, OpError> {
        let (&[layouts, ends], &[column_layouts, entries]) = (rows.dims(), columns.dims()) else {
            return Err(wrong_dims(ROWS, &rows, "rank 2, and the columns too"));
        };
        let blocks = ends.saturating_sub(1);
        if ends == 0 || layouts == 0 || layouts != column_layouts || total.div_ceil(size) > blocks {
            return Err(wrong_dims(
                ROWS,
                &rows,
                format!(
                    "those of {column_layouts} layouts, with {} blocks or more",
                    total.div_ceil(size)
                ),
            ));
        }
        let mut mask = BlockMask {
            rows: rows.slice()?,
            columns: Cow::Borrowed(columns.slice()?),
            layouts,
            blocks,
            entries,
            size,
        };
        mask.sort()?;
        Ok(mask)
    }

    /// Sorts the columns of each block that are not.
    fn sort(&mut self) -> Result<(), OpError> {
        for (layout, block) in counted((0..self.layouts).flat_map(|l| (0..self.blocks).map(move |b| (l, b))))
        {
            let seen = self.seen(layout, block);
            ending::count(seen.len());
            if self.columns[seen.clone()].is_sorted() {
                continue;
            }
            if let Cow::Borrowed(columns) = self.columns {
                let mut own = Vec::new();
                own.try_reserve_exact(columns.len())
                    .map_err(|_| OpError::OutOfMemory {
                        bytes: size_of_val(columns),
                    })?;
                own.extend_from_slice(columns);
                self.columns = Cow::Owned(own);
            }
            self.columns.to_mut()[seen].sort_unstable();
        }
        Ok(())
    }

    /// Where the columns are that a block of queries sees.
    fn seen(&self, layout: usize, block: usize) -> Range<usize> {
        let of_layout = &self.rows[layout * (self.blocks + 1)..][..self.blocks + 1];
        let end = |at: usize| of_layout.get(at).and_then(|&end| usize::try_from(end).ok());
        let first = layout * self.entries;
        match (end(block), end(block + 1)) {
            (Some(start), Some(end)) if start <= end && end <= self.entries => first + start..first + end,
            _ => first..first,
        }
    }

    /// Hides the keys from position `first` on that a query does not see.
    pub fn hide<W: Scalar>(&self, head: usize, query: usize, first: usize, scores: &mut [W]) {
        let seen = &self.columns[self.seen(head % self.layouts, query / self.size)];
        let mut done = 0;
        while done < scores.len() {
            let key = first + done;
            let in_block = (self.size - key % self.size).min(scores.len() - done);
            let sees = i32::try_from(key / self.size).is_ok_and(|block| seen.binary_search(&block).is_ok());
            if !sees {
                scores[done..done + in_block].fill(W::LOWEST);
            }
            done += in_block;
        }
    }
}
