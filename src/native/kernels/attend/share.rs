//! What the queries of a block have of a span of keys, and how those of several become one.
//!
//!   largest = max over j of s[j]
//!   total   = sum over j of e^(s[j] - largest)
//!   sums[d] = sum over j of e^(s[j] - largest) * v[j, d]
//!
//! Of two, a and b, with largest = max(largest_a, largest_b):
//!
//!   total   = e^(largest_a - largest) * total_a   + e^(largest_b - largest) * total_b
//!   sums[d] = e^(largest_a - largest) * sums_a[d] + e^(largest_b - largest) * sums_b[d]
//!
//! Nothing is there where `total` is 0. The result is sums / total.

use super::softmax::Exponentials;
use crate::native::kernels::number::Real;

pub(super) struct Share<'a, W> {
    /// A row for each query.
    pub sums: &'a mut [W],
    largest: &'a mut [W],
    total: &'a mut [W],
}

impl<'a, W: Real> Share<'a, W> {
    /// Elements of one for so many queries, and values of `width`.
    pub fn len(queries: usize, width: usize) -> Option<usize> {
        queries.checked_mul(width.checked_add(2)?)
    }

    pub fn new(memory: &'a mut [W], queries: usize) -> Self {
        let (largest, memory) = memory.split_at_mut(queries);
        let (total, sums) = memory.split_at_mut(queries);
        Share { sums, largest, total }
    }

    pub fn clear(&mut self) {
        self.sums.fill(W::ZERO);
        self.largest.fill(W::LOWEST);
        self.total.fill(W::ZERO);
    }

    pub fn set(&mut self, query: usize, of: Exponentials<W>) {
        self.largest[query] = of.largest;
        self.total[query] = of.sum;
    }

    fn width(&self) -> usize {
        self.sums.len() / self.total.len().max(1)
    }

    /// Adds what other keys have for the first `queries`.
    pub fn add(&mut self, other: &Share<'_, W>, queries: usize) {
        let width = self.width();
        for q in 0..queries {
            if other.total[q] == W::ZERO {
                continue;
            }
            let sums = &mut self.sums[q * width..][..width];
            let others = &other.sums[q * width..][..width];
            if self.total[q] == W::ZERO {
                sums.copy_from_slice(others);
                (self.largest[q], self.total[q]) = (other.largest[q], other.total[q]);
                continue;
            }
            let largest = self.largest[q].max(other.largest[q]);
            let (a, b) = (
                self.largest[q].sub(largest).exp(),
                other.largest[q].sub(largest).exp(),
            );
            for (sum, &other) in sums.iter_mut().zip(others) {
                *sum = sum.mul(a).add(other.mul(b));
            }
            self.largest[q] = largest;
            self.total[q] = self.total[q].mul(a).add(other.total[q].mul(b));
        }
    }

    /// The results of a query; zeros if it has seen nothing.
    pub fn results(&self, query: usize) -> impl Iterator<Item = W> {
        let width = self.width();
        let total = match self.total[query] {
            none if none == W::ZERO => W::ONE,
            total => total,
        };
        self.sums[query * width..][..width]
            .iter()
            .map(move |sum| sum.div(total))
    }
}
