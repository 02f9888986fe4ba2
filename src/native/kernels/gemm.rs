//! Y = A B for dense matrices: A [M, K], B [K, N], Y [M, N].
//!
//! Each y[m, n] is a sum over k in the wide type of the elements (f32 for f16 and bf16) in an
//! order that the shapes alone fix, rounded once: it depends neither on the number of threads
//! nor on how rows and columns are shared out among them.
//!
//! [`float`] has the loops for f32, f16 and bf16, with [`few_rows`] for decode, [`generic`] those
//! for all other types.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_few_rows;
mod few_rows;
mod float;
mod generic;
mod unit;

use super::columns::Columns;
use super::number::{Floats, Number};
use crate::native::workers::{MIN_PART, Workers};

/// A dense matrix, stored by its rows, or by its columns.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    pub elements: &'a [T],
    /// Stored by its columns: the rows are those of the transpose.
    pub transposed: bool,
}

impl<'a, T> Matrix<'a, T> {
    pub fn rows(elements: &'a [T]) -> Self {
        Matrix {
            elements,
            transposed: false,
        }
    }
}

/// Writes every element of `y`. The lengths are `m * k`, `k * n` and `m * n`.
pub(super) fn gemm<T: Number>(
    workers: &Workers,
    sizes: (usize, usize, usize),
    a: &[T],
    b: &[T],
    y: &mut [T],
) {
    let (a, b) = (Matrix::rows(a), Matrix::rows(b));
    gemm_rows(workers, sizes, a, b, y, |_, _, sums, y| T::narrow_all(sums, y));
}

/// Takes the sums of a row: its number, its first column, and as many sums as follow there.
/// Behind a pointer, so that the loops exist once for each type of elements, whatever becomes of
/// the sums.
type Write<'a, W> = &'a (dyn Fn(usize, usize, &[W]) + Sync);

/// The first `len` elements of memory that is kept from product to product, whatever they were. It
/// only grows: what is there already is not cleared again.
fn reuse(room: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if room.len() < len {
        room.resize(len, 0.0);
    }
    &mut room[..len]
}

/// As [`gemm`], and each y is what `finish` makes of its row, its column and its sum. Only
/// [`has_transposed`] types may be transposed.
pub(super) fn gemm_to<T: Number, Y: Send>(
    workers: &Workers,
    sizes: (usize, usize, usize),
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    y: &mut [Y],
    finish: impl Fn(usize, usize, T::Wide) -> Y + Sync,
) {
    gemm_rows(workers, sizes, a, b, y, |row, first, sums, y| {
        for ((y, column), &sum) in y.iter_mut().zip(first..).zip(sums) {
            *y = finish(row, column, sum);
        }
    });
}

/// As [`gemm_to`], but `finish` makes several y of a row from a column on.
pub(super) fn gemm_rows<T: Number, Y: Send>(
    workers: &Workers,
    sizes: (usize, usize, usize),
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    y: &mut [Y],
    finish: impl Fn(usize, usize, &[T::Wide], &mut [Y]) + Sync,
) {
    let (m, k, n) = sizes;
    debug_assert!(a.elements.len() == m * k && b.elements.len() == k * n && y.len() == m * n);
    if y.is_empty() {
        return;
    }
    let target = Columns::new(y, n);
    let write = |row: usize, first: usize, sums: &[T::Wide]| {
        // SAFETY: each sum is given once, and a call's piece is not kept.
        let y = unsafe { target.piece(row, first, sums.len()) };
        finish(row, first, sums, y);
    };
    multiply(workers, sizes, a, b, &write);
}

/// Gives the sums of every row and column to `write`, each once.
fn multiply<T: Number>(
    workers: &Workers,
    sizes: (usize, usize, usize),
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    write: Write<'_, T::Wide>,
) {
    let write_float = |row: usize, column: usize, sums: &[f32]| {
        if let Some(sums) = T::wide_floats(sums) {
            write(row, column, sums);
        }
    };
    let like = |matrix: Matrix<'_, T>| matrix.transposed;
    match (T::as_floats(a.elements), T::as_floats(b.elements)) {
        (Some(Floats::F32(left)), Some(Floats::F32(right))) => {
            let (a, b) = (as_stored(left, like(a)), as_stored(right, like(b)));
            float::multiply(workers, sizes, a, b, &write_float);
        }
        (Some(Floats::F16(left)), Some(Floats::F16(right))) => {
            let (a, b) = (as_stored(left, like(a)), as_stored(right, like(b)));
            float::multiply(workers, sizes, a, b, &write_float);
        }
        (Some(Floats::Bf16(left)), Some(Floats::Bf16(right))) => {
            let (a, b) = (as_stored(left, like(a)), as_stored(right, like(b)));
            float::multiply_bf16(workers, sizes, a, b, &write_float);
        }
        _ => generic_parts(workers, sizes, a.elements, b.elements, write),
    }
}

fn as_stored<T>(elements: &[T], transposed: bool) -> Matrix<'_, T> {
    Matrix { elements, transposed }
}

/// The products of two stacks of matrices; `operands` gives those of an index. As [`gemm_to`].
pub(super) fn stack<'a, T: Number, Y: Send>(
    workers: &Workers,
    sizes: (usize, usize, usize),
    operands: impl Fn(usize) -> (Matrix<'a, T>, Matrix<'a, T>) + Sync,
    y: &mut [Y],
    finish: impl Fn(usize, usize, T::Wide) -> Y + Sync,
) {
    let (m, k, n) = sizes;
    let each = m.saturating_mul(n);
    if each == 0 {
        return;
    }
    // Either the stack is shared out, and what is asked for inside stays on the thread, or each
    // product is.
    let least = MIN_PART.div_ceil((each / 16).saturating_mul(k).max(1));
    let count = y.len() / each;
    let several = count.div_ceil(workers.threads() * 2).max(least);
    let part = |first: usize, y: &mut [Y]| {
        for (index, y) in (first..).zip(y.chunks_exact_mut(each)) {
            let (a, b) = operands(index);
            gemm_to(workers, sizes, a, b, y, &finish);
        }
    };
    match count >= 2 * workers.threads() {
        true => workers.split_mut(y, several.saturating_mul(each), |index, y| {
            part(index * several, y)
        }),
        false => part(0, y),
    }
}

/// Whether operands may be stored by their columns.
pub(super) fn has_transposed<T: Number>() -> bool {
    T::as_floats(&[]).is_some()
}

/// Some rows of Y in each part.
fn generic_parts<T: Number>(
    workers: &Workers,
    (m, k, n): (usize, usize, usize),
    a: &[T],
    b: &[T],
    write: Write<'_, T::Wide>,
) {
    let least = MIN_PART.div_ceil((k.saturating_mul(n) / 4).max(1)).max(8);
    let height = m.div_ceil(workers.threads()).max(least);
    workers.for_each(m.div_ceil(height), |part| {
        let first = part * height;
        let rows = height.min(m - first);
        let write = |row: usize, column: usize, sums: &[T::Wide]| write(first + row, column, sums);
        generic::multiply((rows, k, n), &a[first * k..][..rows * k], b, &write);
    });
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::super::number::Scalar;
    use super::super::simd::PORTABLE_ONLY;
    use super::*;

    /// Small integers, so that every sum is exact in every type.
    fn values<T: Number>(len: usize, seed: usize) -> Vec<T> {
        (0..len)
            .map(|i| T::narrow(T::Wide::from_f64(((i * 7 + seed * 3) % 5) as f64 - 2.0)))
            .collect()
    }

    fn transpose<T: Copy>(x: &[T], rows: usize, columns: usize) -> Vec<T> {
        (0..columns)
            .flat_map(|column| (0..rows).map(move |row| x[row * columns + column]))
            .collect()
    }

    fn check<T: Number>(workers: &Workers) {
        for m in [0, 1, 2, 4, 5, 6, 9, 65, 200] {
            for (k, n) in [
                (0, 3),
                (1, 1),
                (3, 0),
                (7, 1030),
                (300, 9),
                (257, 17),
                (9, 70),
                (33, 4),
                // Even depths, which bf16 may take in pairs.
                (10, 70),
                (258, 33),
                (514, 39),
            ] {
                let (a, b) = (values::<T>(m * k, 1), values::<T>(k * n, 2));
                let mut expected = vec![0.0; m * n];
                for row in 0..m {
                    for i in 0..k {
                        for column in 0..n {
                            expected[row * n + column] +=
                                a[row * k + i].widen().to_f64() * b[i * n + column].widen().to_f64();
                        }
                    }
                }
                let ways = if has_transposed::<T>() { 4 } else { 1 };
                for way in 0..ways {
                    let (at, bt) = (transpose(&a, m, k), transpose(&b, k, n));
                    let (a_way, b_way) = (way % 2 == 1, way / 2 == 1);
                    let mut y = vec![T::Wide::ONE; m * n];
                    gemm_to(
                        workers,
                        (m, k, n),
                        as_stored(if a_way { &at } else { &a }, a_way),
                        as_stored(if b_way { &bt } else { &b }, b_way),
                        &mut y,
                        |row, column, sum| {
                            assert!(row < m && column < n);
                            sum
                        },
                    );
                    let found: Vec<_> = y.into_iter().map(Scalar::to_f64).collect();
                    assert_eq!(found, expected, "{m}x{k}x{n}, stored {way}");
                }
            }
        }
    }

    #[test]
    fn matches_the_definition_in_every_blocking() {
        for threads in [1, 3] {
            let workers = Workers::new(threads);
            check::<f32>(&workers);
            check::<f64>(&workers);
            check::<f16>(&workers);
            check::<bf16>(&workers);
            check::<i32>(&workers);
            check::<i64>(&workers);
        }
    }

    #[test]
    fn the_portable_loops_match_the_definition() {
        PORTABLE_ONLY.set(true);
        check::<f32>(&Workers::alone());
        check::<f16>(&Workers::alone());
        check::<bf16>(&Workers::alone());
        PORTABLE_ONLY.set(false);
    }

    /// Numbers whose sums are rounded.
    fn noise(len: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    /// What lets rows of several runs be multiplied together.
    #[test]
    fn a_few_rows_are_what_each_is_alone() {
        fn check<T: Number>(narrow: impl Fn(f32) -> T, threads: usize) {
            for (k, n) in [(700, 200), (90, 4200), (30, 40), (600, 40), (17, 9)] {
                for transposed in [false, true] {
                    let b: Vec<T> = noise(k * n, 2).into_iter().map(&narrow).collect();
                    let a: Vec<T> = noise(8 * k, 1).into_iter().map(&narrow).collect();
                    let product = |m: usize, a: &[T]| {
                        let mut y = vec![T::Wide::ONE; m * n];
                        let (a, b) = (as_stored(a, false), as_stored(&b, transposed));
                        let workers = Workers::new(threads);
                        gemm_to(&workers, (m, k, n), a, b, &mut y, |_, _, sum| sum);
                        let bits = y.into_iter().map(|sum| sum.to_f64().to_bits());
                        bits.collect::<Vec<u64>>()
                    };
                    let alone: Vec<u64> = a.chunks(k).flat_map(|row| product(1, row)).collect();
                    for m in 2..=8 {
                        let together = product(m, &a[..m * k]);
                        assert!(
                            together == alone[..m * n],
                            "{m}x{k}x{n}, transposed: {transposed}"
                        );
                    }
                }
            }
        }
        check(|x| x, 3);
        check(f16::from_f32, 3);
        check(bf16::from_f32, 3);
        // On this thread alone.
        PORTABLE_ONLY.set(true);
        check(|x| x, 1);
        PORTABLE_ONLY.set(false);
    }

    /// Sums of bf16 take other loops than those of f32 where the CPU multiplies pairs of them.
    #[test]
    fn sums_of_bf16_do_not_depend_on_the_threads_and_are_near_the_exact_ones() {
        let narrow = |x: Vec<f32>| x.into_iter().map(bf16::from_f32).collect::<Vec<bf16>>();
        for (m, k, n) in [(9, 600, 333), (40, 1030, 70), (250, 260, 600), (37, 130, 33)] {
            let (a, b) = (narrow(noise(m * k, 1)), narrow(noise(k * n, 2)));
            for b_way in [false, true] {
                let stored = if b_way { transpose(&b, k, n) } else { b.clone() };
                let product = |threads: usize| {
                    let mut y = vec![0.0f32; m * n];
                    let (a, b) = (as_stored(&a[..], false), as_stored(&stored[..], b_way));
                    let workers = Workers::new(threads);
                    gemm_to(&workers, (m, k, n), a, b, &mut y, |_, _, sum| sum);
                    y
                };
                let alone = product(1);
                for threads in [2, 3, 4] {
                    let several = product(threads);
                    let same = alone
                        .iter()
                        .zip(&several)
                        .all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{m}x{k}x{n} on {threads} threads");
                }
                for row in 0..m {
                    for column in 0..n {
                        let terms = (0..k).map(|i| a[row * k + i].to_f64() * b[i * n + column].to_f64());
                        let (sum, size) = terms.fold((0.0, 0.0), |(s, a), x| (s + x, a + x.abs()));
                        let found = f64::from(alone[row * n + column]);
                        let tolerance = size * k as f64 * f64::from(f32::EPSILON);
                        assert!((found - sum).abs() <= tolerance, "{found} for {sum}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_the_threads_and_variants_agree_to_rounding() {
        for (m, k, n) in [
            (1, 700, 1500),
            (3, 300, 900),
            (40, 600, 333),
            (250, 260, 600),
            (37, 300, 130),
            (12, 40, 16),
            (7, 1000, 40),
        ] {
            for transposed in [false, true] {
                let (a, b) = (noise(m * k, 1), noise(k * n, 2));
                let product = |workers: &Workers| {
                    let mut y = vec![0.0f32; m * n];
                    let b = as_stored(&b, transposed);
                    gemm_to(
                        workers,
                        (m, k, n),
                        as_stored(&a, false),
                        b,
                        &mut y,
                        |_, _, sum| sum,
                    );
                    y
                };
                let alone = product(&Workers::alone());
                for threads in [2, 3, 4] {
                    let several = product(&Workers::new(threads));
                    let same = alone
                        .iter()
                        .zip(&several)
                        .all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{m}x{k}x{n} on {threads} threads");
                }
                #[cfg(target_arch = "x86_64")]
                {
                    avx512::NARROW_ONLY.set(true);
                    let narrow = product(&Workers::alone());
                    avx512::NARROW_ONLY.set(false);
                    let same = alone.iter().zip(&narrow).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{m}x{k}x{n}, in vectors of eight");
                }
                PORTABLE_ONLY.set(true);
                let portable = product(&Workers::alone());
                PORTABLE_ONLY.set(false);
                let tolerance = 1e-6 * k as f32;
                let near = alone
                    .iter()
                    .zip(&portable)
                    .all(|(a, b)| (a - b).abs() < tolerance);
                assert!(near, "{m}x{k}x{n}, portable");
            }
        }
    }
}
