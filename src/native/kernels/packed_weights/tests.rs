//! Every variant against the product in f64 of what was packed.

use super::*;
use crate::native::workers::Workers;

/// Numbers that are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From -0.5 to 0.5.
    fn float(&mut self) -> f32 {
        self.below(1 << 20) as f32 / (1 << 20) as f32 - 0.5
    }

    fn code(&mut self, bits: usize) -> u8 {
        self.below(1 << bits) as u8
    }
}

fn all_instructions() -> Vec<Instructions> {
    let mut all = vec![Instructions::Portable];
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    all.push(Instructions::Neon);
    let best = Instructions::detect();
    #[cfg(target_arch = "x86_64")]
    if best == Instructions::Avx512 {
        all.push(Instructions::Avx2);
    }
    if !all.contains(&best) {
        all.push(best);
    }
    all
}

/// The weights as they are given, and packed.
struct Case {
    bits: usize,
    n: usize,
    k: usize,
    block_size: usize,
    codes: Vec<u8>,
    scales: Vec<f32>,
    whole: Vec<u8>,
    float: Vec<f32>,
    /// 0: the middle, 1: whole numbers, 2: floats
    points: u8,
    groups: Option<Vec<i32>>,
}

/// [rows, blocks], as a [`Source`] gives them.
fn of_blocks<T: Copy + Sync>(values: &[T], blocks: usize) -> impl Fn(usize, usize, &mut [T]) + Sync {
    move |row, block, to| to.copy_from_slice(&values[row * blocks + block..][..to.len()])
}

impl Case {
    fn new((bits, n, k): (usize, usize, usize), block_size: usize, points: u8, grouped: bool) -> Case {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ (bits * 64 + n * 8 + k) as u64);
        let blocks = k.div_ceil(block_size);
        Case {
            bits,
            n,
            k,
            block_size,
            codes: (0..n * k).map(|_| numbers.code(bits)).collect(),
            scales: (0..n * blocks).map(|_| numbers.float()).collect(),
            whole: (0..n * blocks).map(|_| numbers.code(bits)).collect(),
            float: (0..n * blocks).map(|_| numbers.float() * 7.0).collect(),
            points,
            groups: grouped.then(|| (0..k).map(|_| numbers.below(blocks) as i32).collect()),
        }
    }

    /// Calls with the weights as they are packed from.
    fn with_source<R>(&self, call: impl FnOnce(&Source<'_>) -> R) -> R {
        let blocks = self.k.div_ceil(self.block_size);
        let codes = |row: usize, to: &mut [u8]| to.copy_from_slice(&self.codes[row * self.k..][..self.k]);
        let scales = of_blocks(&self.scales, blocks);
        let whole = of_blocks(&self.whole, blocks);
        let float = of_blocks(&self.float, blocks);
        call(&Source {
            bits: self.bits,
            n: self.n,
            k: self.k,
            block_size: self.block_size,
            codes: SourceCodes::Rows(&codes),
            scales: &scales,
            points: match self.points {
                0 => SourcePoints::Middle,
                1 => SourcePoints::Whole(&whole),
                _ => SourcePoints::Float(&float),
            },
            groups: self.groups.as_deref(),
            done: &|_| {},
        })
    }

    fn pack(&self, arithmetic: Arithmetic) -> PackedWeights {
        let packed = self.with_source(|source| PackedWeights::pack(source, arithmetic, &Workers::alone()));
        packed.expect("there is memory")
    }

    fn weight(&self, row: usize, i: usize) -> f64 {
        let block = match &self.groups {
            Some(groups) => groups[i] as usize,
            None => i / self.block_size,
        };
        let at = row * self.k.div_ceil(self.block_size) + block;
        let point = match self.points {
            0 => f64::from(1u32 << (self.bits - 1)),
            1 => f64::from(self.whole[at]),
            _ => f64::from(self.float[at]),
        };
        (f64::from(self.codes[row * self.k + i]) - point) * f64::from(self.scales[at])
    }

    /// Some rows of A, and the product.
    fn product(
        &self,
        arithmetic: Arithmetic,
        instructions: Instructions,
        rows: usize,
        in_place: bool,
    ) -> (Vec<f32>, Vec<f32>) {
        let mut numbers = Numbers(77);
        let a: Vec<f32> = (0..rows * self.k).map(|_| numbers.float()).collect();
        let weights = self.pack(arithmetic);
        let convert = |row: usize, to: &mut [f32]| to.copy_from_slice(&a[row * self.k..][..self.k]);
        let given = if in_place {
            Rows::Floats(&a)
        } else {
            Rows::Converted(&convert)
        };
        let records = Records::new(&weights, in_place);
        let mut room = vec![f32::NAN; records.room() * rows];
        if records.room() > 0 {
            for (row, record) in room.chunks_exact_mut(records.room()).enumerate() {
                records.fill(instructions, given, row, record);
            }
        }
        let view = records.view(given, rows, &room);
        let mut y = vec![f32::NAN; rows * self.n];
        // In two parts, as threads would.
        let half = weights.panels() / 2;
        for panels in [0..half, half..weights.panels()] {
            multiply(
                instructions,
                &weights,
                &view,
                panels,
                &mut |row, column, values| {
                    y[row * self.n + column..][..values.len()].copy_from_slice(values);
                },
            );
        }
        (a, y)
    }

    /// The largest error, in parts of the sum of the magnitudes that it can come from: of the terms,
    /// or, where A is quantised, of the weights times the largest |a|.
    fn error(&self, arithmetic: Arithmetic, instructions: Instructions, rows: usize, in_place: bool) -> f64 {
        let (a, y) = self.product(arithmetic, instructions, rows, in_place);
        let mut worst = 0.0f64;
        for (row, y) in y.chunks_exact(self.n.max(1)).enumerate() {
            for (column, &y) in y.iter().enumerate() {
                let terms = (0..self.k).map(|i| f64::from(a[row * self.k + i]) * self.weight(column, i));
                let (sum, mut size) = terms.fold((0.0, 1e-6), |(sum, size), x| (sum + x, size + x.abs()));
                if arithmetic == Arithmetic::Integer {
                    size += (0..self.k)
                        .map(|i| 0.5 * self.weight(column, i).abs())
                        .sum::<f64>();
                }
                worst = worst.max((sum - f64::from(y)).abs() / size);
                assert!(!y.is_nan());
            }
        }
        worst
    }
}

/// Half a level of A, and rounding.
fn tolerance(weights: &PackedWeights) -> f64 {
    let levels = match weights.arithmetic {
        Arithmetic::Float => f64::INFINITY,
        _ => 127.0,
    };
    0.5 / levels + 1e-6
}

#[test]
fn products_are_close_to_those_in_f64() {
    let sizes = [
        (1, 1),
        (1, 16),
        (3, 5),
        (15, 31),
        (16, 32),
        (17, 33),
        (37, 200),
        (33, 301),
        (5, 0),
        (0, 40),
    ];
    for instructions in all_instructions() {
        for arithmetic in [Arithmetic::Float, Arithmetic::Integer] {
            for bits in 2..=8 {
                for (i, (n, k)) in sizes.into_iter().enumerate() {
                    for (j, block_size) in [16, 32, 128].into_iter().enumerate() {
                        for points in [(i + j) % 3, (i + j + 1) % 3].map(|points| points as u8) {
                            let case = Case::new((bits, n, k), block_size, points, (i + bits) % 3 == 0);
                            let allowed = tolerance(&case.pack(arithmetic));
                            let rows = [1, 2, 3, 4, 5, 6, 7, 8, 9, 18][(i + points as usize) % 10];
                            let error = case.error(arithmetic, instructions, rows, i % 2 == 0);
                            assert!(
                                error <= allowed,
                                "{instructions:?} {arithmetic:?}, {bits} bits, {rows} x {k} x {n}, blocks of \
                                 {block_size}, points {points}: {error}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn many_rows_and_odd_blocks_are_close_too() {
    for instructions in all_instructions() {
        for (bits, block_size) in [(4, 32), (4, 300), (2, 20), (8, 128), (8, 700)] {
            for points in 0..3 {
                let case = Case::new((bits, 35, 600), block_size, points, false);
                for (arithmetic, rows) in [
                    (Arithmetic::Float, 13),
                    (Arithmetic::Float, 59),
                    (Arithmetic::Float, 101),
                    (Arithmetic::Integer, 40),
                ] {
                    let allowed = tolerance(&case.pack(arithmetic));
                    let error = case.error(arithmetic, instructions, rows, true);
                    assert!(
                        error <= allowed,
                        "{instructions:?} {arithmetic:?} {bits} {block_size} {points}: {error}"
                    );
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn vectors_of_either_width_give_the_same_bits() {
    if Instructions::detect() != Instructions::Avx512 {
        return;
    }
    for arithmetic in [Arithmetic::Float, Arithmetic::Integer] {
        for bits in [2, 4, 8] {
            for (rows, points) in [(1, 0), (5, 1), (11, 2), (31, 1)] {
                let case = Case::new((bits, 45, 300), 32, points, false);
                let [narrow, wide] = [Instructions::Avx2, Instructions::Avx512].map(|instructions| {
                    let (_, y) = case.product(arithmetic, instructions, rows, true);
                    y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                });
                assert_eq!(
                    narrow, wide,
                    "{arithmetic:?}, {bits} bits, {rows} rows, points {points}"
                );
            }
        }
    }
}

/// A group may have more elements than a block, or none.
#[test]
fn groups_of_any_size() {
    let mut case = Case::new((4, 20, 100), 16, 1, true);
    case.groups = Some((0..100).map(|i| if i % 10 == 0 { 6 } else { 2 }).collect());
    for instructions in all_instructions() {
        assert!(case.error(Arithmetic::Float, instructions, 3, true) < 1e-6);
    }
}

/// Columns of a run with an infinity or a NaN are NaN, the others are not.
#[test]
fn nothing_finite_comes_of_what_is_not() {
    let case = Case::new((4, 3, 64), 32, 0, false);
    let weights = case.pack(Arithmetic::Integer);
    for instructions in all_instructions() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut a = vec![1.0f32; 128];
            a[70] = bad;
            let records = Records::new(&weights, true);
            let mut room = vec![0.0; records.room() * 2];
            for (row, record) in room.chunks_exact_mut(records.room()).enumerate() {
                records.fill(instructions, Rows::Floats(&a), row, record);
            }
            let view = records.view(Rows::Floats(&a), 2, &room);
            multiply(instructions, &weights, &view, 0..1, &mut |row, _, values| {
                assert!(values.iter().all(|y| y.is_nan() == (row == 1)), "{values:?}");
            });
        }
    }
}

/// Codes at both ends of their range, and the largest A: no sum saturates.
#[test]
fn the_largest_products_do_not_saturate() {
    for instructions in all_instructions() {
        for (bits, arithmetic, relative) in [
            (2, Arithmetic::Integer, 1e-6),
            (4, Arithmetic::Integer, 1e-6),
            (8, Arithmetic::Integer, 1e-6),
            (8, Arithmetic::Float, 1e-6),
        ] {
            for code in [0, ((1u16 << bits) - 1) as u8] {
                for sign in [1.0f32, -1.0] {
                    let mut case = Case::new((bits, 16, 256), 128, 1, false);
                    case.codes.fill(code);
                    case.whole.fill(if code == 0 { 1 } else { 0 });
                    case.scales.fill(1.0);
                    let weights = case.pack(arithmetic);
                    let a = vec![3.0 * sign; 256];
                    let records = Records::new(&weights, true);
                    let mut room = vec![0.0; records.room()];
                    records.fill(instructions, Rows::Floats(&a), 0, &mut room);
                    let view = records.view(Rows::Floats(&a), 1, &room);
                    let expected =
                        f64::from(3.0 * sign) * 256.0 * (f64::from(code) - f64::from(case.whole[0]));
                    multiply(instructions, &weights, &view, 0..1, &mut |_, _, values| {
                        for &y in values {
                            let error = (f64::from(y) - expected).abs() / expected.abs();
                            assert!(error < relative, "{bits} bits: {y} for {expected}");
                        }
                    });
                }
            }
        }
    }
}

#[test]
fn sums_of_words_are_exact() {
    let mut numbers = Numbers(5);
    for instructions in all_instructions() {
        for (m, k, n) in [
            (1, 1, 1),
            (2, 33, 17),
            (9, 64, 16),
            (23, 40, 30),
            (4, 100, 40),
            (3, 0, 5),
            (0, 4, 4),
            (2, 5, 0),
        ] {
            for signed in [false, true] {
                let b: Vec<u8> = (0..k * n)
                    .map(|_| [0, 255, 128, 127, numbers.code(8)][numbers.below(5)])
                    .collect();
                let source = Source::of_words(&b, if signed { 128 } else { 0 }, k, n);
                let workers = Workers::alone();
                let weights = PackedWeights::pack(&source, Arithmetic::Words, &workers).expect("memory");
                let stride = weights.depth() + 2;
                let mut a = vec![0i16; m * stride];
                for row in a.chunks_exact_mut(stride) {
                    row[..k].fill_with(|| [-255, 255, numbers.below(511) as i16 - 255][numbers.below(3)]);
                }
                let mut y = vec![i32::MIN; m * n];
                multiply_words(
                    instructions,
                    &weights,
                    (&a, m, stride),
                    0..weights.panels(),
                    &mut |row, column, sums| {
                        y[row * n + column..][..sums.len()].copy_from_slice(sums);
                    },
                );
                for (i, y) in y.iter().enumerate() {
                    let (row, column) = (i / n, i % n);
                    let code = |at: usize| match signed {
                        true => i32::from(b[at * n + column] as i8),
                        false => i32::from(b[at * n + column]) - 128,
                    };
                    let expected: i32 = (0..k).map(|at| i32::from(a[row * stride + at]) * code(at)).sum();
                    assert_eq!(*y, expected, "{m} x {k} x {n}, signed: {signed}");
                }
            }
        }
    }
}

#[test]
fn weights_are_their_arrays_again() {
    for (bits, points, grouped) in [(4, 0, false), (8, 1, true), (2, 2, false)] {
        let case = Case::new((bits, 50, 70), 16, points, grouped);
        case.with_source(|source| {
            for arithmetic in [Arithmetic::Float, Arithmetic::Integer] {
                let alone = PackedWeights::pack(source, arithmetic, &Workers::alone()).expect("memory");
                let shared = PackedWeights::pack(source, arithmetic, &Workers::new(3)).expect("memory");
                let arrays = alone.arrays();
                assert_eq!(shared.arrays(), arrays);
                let again = PackedWeights::of_arrays(source, arithmetic, arrays.clone()).expect("memory");
                let again = again.expect("they fit");
                assert_eq!(again.arrays(), arrays);
                assert_eq!(again.order, alone.order);
                assert_eq!(again.panel(1), alone.panel(1));
                for wrong in 0..3 {
                    let mut arrays = arrays.clone();
                    let array = &mut arrays[wrong];
                    *array = match array.is_empty() {
                        true => bytes::Bytes::from_static(&[0; 4]),
                        false => array.slice(..array.len() - 4),
                    };
                    let none = PackedWeights::of_arrays(source, arithmetic, arrays).expect("memory");
                    assert!(none.is_none(), "array {wrong}");
                }
            }
        });
    }
}

/// `codes` of `bits` bits each, from the lowest bit on.
fn stored(codes: &[u8], bits: usize) -> Vec<u8> {
    let mut bytes = vec![0; (codes.len() * bits).div_ceil(8)];
    for (i, code) in codes.iter().enumerate() {
        for bit in 0..bits {
            bytes[(i * bits + bit) / 8] |= (code >> bit & 1) << ((i * bits + bit) % 8);
        }
    }
    bytes
}

#[test]
fn stored_codes_are_packed_as_codes_of_rows_are() {
    for bits in 2..=8 {
        for (n, k, block_size) in [
            (16, 32, 32),
            (50, 96, 32),
            (33, 144, 16),
            (35, 200, 64),
            (20, 77, 32),
            (16, 8, 32),
            (16, 24, 32),
        ] {
            let case = Case::new((bits, n, k), block_size, 0, false);
            let row_bytes = k.div_ceil(block_size) * block_size / 8 * bits;
            let mut data = Vec::new();
            for row in case.codes.chunks_exact(k) {
                let mut row = stored(row, bits);
                // What is behind the last of a row is not to be read.
                row.resize(row_bytes, 0xff);
                data.extend(row);
            }
            for arithmetic in [Arithmetic::Float, Arithmetic::Integer] {
                let of_rows = case.pack(arithmetic);
                let packed = case.with_source(|source| {
                    let source = Source {
                        codes: SourceCodes::Stored(&data, row_bytes),
                        ..*source
                    };
                    PackedWeights::pack(&source, arithmetic, &Workers::alone()).expect("memory")
                });
                assert_eq!(
                    packed.arrays(),
                    of_rows.arrays(),
                    "{bits} bits, {n} by {k}, {arithmetic:?}"
                );
            }
        }
    }
}
