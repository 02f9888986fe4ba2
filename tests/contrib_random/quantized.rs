//! The operators on tensors of int8 and uint8 that ONNX Runtime's quantiser writes.

use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, INT8, INT16, INT32, UINT8, UINT16};
use proptest::prelude::*;

use crate::harness::{Case, Float, Found, Numbers, Value, check_all, compare};

/// Of whole numbers, no farther apart than 1: where a quotient falls between two of them, ONNX
/// Runtime, which multiplies by the reciprocal in some kernels and looks up a table in others, may
/// be on the other side.
fn within_a_step(case: &Case) -> Result<(), String> {
    let (ours, theirs) = (case.native(Float::F32)?, case.ort(Float::F32)?);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        if ours.dims != theirs.dims {
            return Err(format!(
                "{case:?}: dims {:?}, expected {:?}",
                ours.dims, theirs.dims
            ));
        }
        let apart: Vec<f64> = ours
            .values
            .iter()
            .zip(&theirs.values)
            .map(|(x, y)| (x - y).abs())
            .collect();
        let other = apart.iter().filter(|&&apart| apart > 0.0).count();
        if apart.iter().any(|&apart| apart > 1.0) || other > 1 + apart.len() / 20 {
            return Err(format!(
                "{case:?}: {:?}, expected {:?}",
                ours.values, theirs.values
            ));
        }
    }
    Ok(())
}

/// What a case is made from.
struct Maker {
    numbers: Numbers,
    signed: bool,
}

impl Maker {
    fn new(signed: bool, seed: u64) -> Self {
        Maker {
            numbers: Numbers::new(seed),
            signed,
        }
    }

    fn ty(&self) -> i32 {
        if self.signed { INT8 } else { UINT8 }
    }

    fn bytes(&mut self, dims: &[usize]) -> Value {
        let count = dims.iter().product();
        Value::raw(self.ty(), dims, self.numbers.bytes(count))
    }

    /// Between 0.01 and 0.05.
    fn scale(&mut self) -> Value {
        scales(&mut self.numbers, &[])
    }

    fn zero(&mut self) -> Value {
        self.bytes(&[])
    }

    /// Adds a tensor, its scale and its zero point.
    fn quantized(&mut self, case: Case, dims: &[usize]) -> Case {
        case.input(self.bytes(dims))
            .input(self.scale().constant())
            .input(self.zero().constant())
    }

    /// Adds the scale and the zero point of Y.
    fn y(&mut self, case: Case) -> Case {
        let case = case.input(self.scale().constant());
        case.input(self.zero().constant()).output_of(self.ty())
    }
}

fn scales(numbers: &mut Numbers, dims: &[usize]) -> Value {
    let values = numbers.floats(dims.iter().product(), 0.02);
    f32s(dims, values.into_iter().map(|x| x + 0.03).collect())
}

fn f32s(dims: &[usize], values: Vec<f32>) -> Value {
    Value::raw(FLOAT, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
}

fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..6, 1..4)
}

#[test]
fn of_two_tensors() {
    let cases = (shape(), any::<[bool; 4]>(), any::<u64>());
    check_all(
        40,
        150,
        cases,
        |(dims, [mul, signed, broadcast, scalar], seed)| {
            let mut maker = Maker::new(signed, seed);
            let mut other = dims.clone();
            if broadcast {
                other[0] = 1;
            }
            if scalar {
                other.drain(..dims.len() - 1);
            }
            let case = Case::new(if mul { "QLinearMul" } else { "QLinearAdd" });
            let case = maker.quantized(case, &dims);
            let case = maker.quantized(case, &other);
            within_a_step(&maker.y(case))
        },
    );
}

#[test]
fn of_one_tensor() {
    let cases = (shape(), any::<[bool; 2]>(), any::<u64>());
    check_all(41, 120, cases, |(dims, [leaky, signed], seed)| {
        let mut maker = Maker::new(signed, seed);
        let mut case = Case::new(if leaky {
            "QLinearLeakyRelu"
        } else {
            "QLinearSigmoid"
        });
        if leaky {
            case = case.float("alpha", 0.3);
        }
        let case = maker.quantized(case, &dims);
        within_a_step(&maker.y(case))
    });
}

/// ONNX Runtime's shape inference does not survive it.
#[test]
fn zero_points_may_be_left_out() {
    let case = Case::new("QLinearLeakyRelu")
        .float("alpha", 0.5)
        .input(Value::raw(INT8, &[3], vec![4, 0, (-6i8) as u8]))
        .input(f32s(&[], vec![0.5]).constant())
        .input(None)
        .input(f32s(&[], vec![0.25]).constant())
        .output_of(INT8);
    let expected = Found {
        dims: vec![3],
        values: vec![8.0, 0.0, -6.0],
    };
    compare(&case, &case.native(Float::F32).unwrap(), &[expected], 0.0).unwrap();
}

#[test]
fn softmax() {
    let cases = (shape(), any::<[bool; 2]>(), 0usize..4, any::<u64>());
    check_all(42, 120, cases, |(mut dims, [signed, old], axis, seed)| {
        // Of a single element ONNX Runtime says 0.
        dims.iter_mut().for_each(|dim| *dim += 1);
        let mut maker = Maker::new(signed, seed);
        let case = Case::new("QLinearSoftmax")
            .int("axis", (axis % dims.len()) as i64)
            .int("opset", if old { 12 } else { 13 });
        let case = maker.quantized(case, &dims);
        let y_scale = f32s(&[], vec![0.005]);
        let zero = Value::raw(maker.ty(), &[], vec![if signed { 0x80 } else { 0 }]);
        let case = case.input(y_scale.constant()).input(zero.constant());
        within_a_step(&case.output_of(maker.ty()))
    });
}

#[test]
fn where_and_concat() {
    let cases = (shape(), any::<[bool; 3]>(), 1usize..4, any::<u64>());
    check_all(
        43,
        120,
        cases,
        |(dims, [is_where, signed, broadcast], parts, seed)| {
            let mut maker = Maker::new(signed, seed);
            if is_where {
                let mut other = dims.clone();
                if broadcast {
                    other[0] = 1;
                }
                let count = dims.iter().product();
                let condition = maker.numbers.bytes(count).iter().map(|x| x & 1).collect();
                let case = Case::new("QLinearWhere").input(Value::raw(BOOL, &dims, condition));
                let case = maker.quantized(case, &dims);
                let case = maker.quantized(case, &other);
                return within_a_step(&maker.y(case));
            }
            let axis = seed as usize % dims.len();
            let mut case = Case::new("QLinearConcat")
                .int("axis", axis as i64)
                .input(maker.scale().constant())
                .input(maker.zero().constant())
                .output_of(maker.ty());
            for part in 0..parts {
                let mut dims = dims.clone();
                dims[axis] += part;
                case = maker.quantized(case, &dims);
            }
            within_a_step(&case)
        },
    );
}

#[test]
fn pools() {
    let cases = (
        (1usize..3, 1usize..5, 3usize..8, 3usize..8),
        any::<[bool; 5]>(),
        (1i64..4, 1i64..3, 0i64..2),
        any::<u64>(),
    );
    check_all(
        44,
        150,
        cases,
        |((n, c, h, w), flags, (kernel, stride, pad), seed)| {
            let [global, last, signed, include, ceil] = flags;
            let mut maker = Maker::new(signed, seed);
            let pad = pad.min(kernel - 1);
            // ONNX Runtime still counts, as ai.onnx did before version 19, what is beyond the padding.
            let include = include && !ceil;
            let dims = if last { [n, h, w, c] } else { [n, c, h, w] };
            let name = if global {
                "QLinearGlobalAveragePool"
            } else {
                "QLinearAveragePool"
            };
            let mut case = Case::new(name).int("channels_last", last);
            if !global {
                case = case
                    .ints("kernel_shape", &[kernel, kernel])
                    .ints("strides", &[stride, 1])
                    .ints("pads", &[pad, 0, 0, pad])
                    .int("count_include_pad", include)
                    .int("ceil_mode", ceil);
            }
            let case = maker.quantized(case, &dims);
            within_a_step(&maker.y(case))
        },
    );
}

/// ONNX Runtime's CPU has no kernel: against the definition.
#[test]
fn reduce_mean() {
    for (signed, keep) in [(false, 1), (true, 0)] {
        let dims = [3usize, 4, 5];
        let mut maker = Maker::new(signed, 7);
        let bytes = maker.numbers.bytes(60);
        let number = |x: u8| if signed { f64::from(x as i8) } else { f64::from(x) };
        let zero = |x: u8| Value::raw(if signed { INT8 } else { UINT8 }, &[], vec![x]).constant();
        let case = Case::new("QLinearReduceMean")
            .ints("axes", &[0, -1])
            .int("keepdims", keep)
            .input(Value::raw(maker.ty(), &dims, bytes.clone()))
            .input(f32s(&[], vec![0.5]).constant())
            .input(zero(3))
            .input(f32s(&[], vec![0.25]).constant())
            .input(zero(9))
            .output_of(maker.ty());
        let mean = |j: usize| {
            let all = (0..3).flat_map(|i| (0..5).map(move |k| (i * 4 + j) * 5 + k));
            let sum: f64 = all.map(|at| (number(bytes[at]) - 3.0) * 0.5).sum();
            let (low, high) = if signed { (-128.0, 127.0) } else { (0.0, 255.0) };
            ((sum / 15.0 / 0.25).round_ties_even() + 9.0).clamp(low, high)
        };
        let expected = Found {
            dims: if keep == 1 { vec![1, 4, 1] } else { vec![4] },
            values: (0..4).map(mean).collect(),
        };
        let found = case.native(Float::F32).unwrap();
        compare(&case, &found, &[expected], 0.0).unwrap();
    }
}

/// Bytes whose sums of two products of weights do not leave int16, which ONNX Runtime's older
/// kernels saturate to.
fn small(numbers: &mut Numbers, ty: i32, dims: &[usize]) -> Value {
    let bytes = numbers.bytes(dims.iter().product());
    let bytes = bytes.iter().map(|x| {
        if ty == INT8 {
            (x % 128).wrapping_sub(64)
        } else {
            x % 128
        }
    });
    Value::raw(ty, dims, bytes.collect())
}

#[test]
fn integer_products() {
    let cases = (
        (1usize..6, 1usize..20, 1usize..9),
        prop::collection::vec(1usize..3, 0..2),
        any::<[bool; 6]>(),
        any::<u64>(),
    );
    check_all(45, 150, cases, |((m, k, n), batch, flags, seed)| {
        let [dynamic, a_signed, b_signed, column, zeros, bias] = flags;
        let mut numbers = Numbers::new(seed);
        let a_dims = [batch, vec![m, k]].concat();
        let (a_ty, b_ty) = (
            if a_signed { INT8 } else { UINT8 },
            if b_signed || a_signed { INT8 } else { UINT8 },
        );
        let b_ty = if dynamic && !b_signed { UINT8 } else { b_ty };
        let per_column: &[usize] = if column { &[n] } else { &[] };
        let b = small(&mut numbers, b_ty, &[k, n]).constant();
        let b_scale = scales(&mut numbers, per_column).constant();
        let b_zero = zeros.then(|| small(&mut numbers, b_ty, per_column).constant());
        let bias = bias.then(|| f32s(&[n], numbers.floats(n, 1.0)).constant());
        let case = if dynamic {
            Case::new("DynamicQuantizeMatMul")
                .input(numbers.value(&a_dims, 2.0))
                .input(b)
                .input(b_scale)
                .input(b_zero)
                .input(bias)
        } else {
            Case::new("MatMulIntegerToFloat")
                .input(small(&mut numbers, a_ty, &a_dims))
                .input(b)
                .input(scales(&mut numbers, &[]))
                .input(b_scale)
                .input(zeros.then(|| small(&mut numbers, a_ty, &[])))
                .input(b_zero)
                .input(bias)
        };
        case.output_of(FLOAT).check(Float::F32)
    });
}

#[test]
fn quantized_gemm() {
    let cases = (
        (1usize..6, 1usize..20, 1usize..9),
        any::<[bool; 5]>(),
        prop::option::of(0usize..3),
        any::<bool>(),
        any::<u64>(),
    );
    check_all(46, 150, cases, |((m, k, n), flags, c, to_float, seed)| {
        let [a_t, b_t, a_signed, b_signed, column] = flags;
        let mut numbers = Numbers::new(seed);
        let (a_ty, b_ty) = (
            if a_signed { INT8 } else { UINT8 },
            if b_signed || a_signed { INT8 } else { UINT8 },
        );
        let per_column: &[usize] = if column { &[n] } else { &[] };
        let c_dims = [vec![n], vec![m, n], vec![m, 1]];
        let c = c.map(|c| {
            let count = c_dims[c].iter().product();
            let values: Vec<i32> = (0..count).map(|_| numbers.below(2000) as i32 - 1000).collect();
            Value::i32s(&c_dims[c], &values)
        });
        let case = Case::new("QGemm")
            .int("transA", a_t)
            .int("transB", b_t)
            .float("alpha", 0.5)
            .input(small(&mut numbers, a_ty, &if a_t { [k, m] } else { [m, k] }))
            .input(scales(&mut numbers, &[]).constant())
            .input(small(&mut numbers, a_ty, &[]).constant())
            .input(small(&mut numbers, b_ty, &if b_t { [n, k] } else { [k, n] }))
            .input(scales(&mut numbers, per_column).constant())
            .input(small(&mut numbers, b_ty, per_column).constant())
            .input(c);
        if to_float {
            return case.output_of(FLOAT).check(Float::F32);
        }
        let case = case
            .input(f32s(&[], vec![0.3]).constant())
            .input(small(&mut numbers, a_ty, &[]).constant());
        within_a_step(&case.output_of(a_ty))
    });
}

#[test]
fn convolution_and_maximum_of_images_with_channels_last() {
    let cases = (
        (1usize..3, 1usize..4, 3usize..7, 3usize..7),
        any::<[bool; 4]>(),
        1usize..4,
        any::<u64>(),
    );
    check_all(
        47,
        120,
        cases,
        |((n, c, h, w), [pool, signed, last, bias], kernel, seed)| {
            let mut maker = Maker::new(signed, seed);
            let k = kernel as i64;
            if pool {
                let case = Case::new("NhwcMaxPool")
                    .ints("kernel_shape", &[k, k])
                    .ints("pads", &[k / 2, 0, 0, k / 2])
                    .ints("strides", &[1, 2])
                    .input(maker.bytes(&[n, h, w, c]))
                    .output_of(maker.ty());
                return within_a_step(&case);
            }
            let outputs = 3;
            let dims = if last { [n, h, w, c] } else { [n, c, h, w] };
            let case = Case::new("QLinearConv")
                .int("channels_last", last)
                .ints("pads", &[1, 0, 0, 1])
                .ints("strides", &[2, 1]);
            let case = maker.quantized(case, &dims);
            let (ty, numbers) = (maker.ty(), &mut maker.numbers);
            let case = case
                .input(small(numbers, ty, &[outputs, c, kernel, kernel]).constant())
                .input(scales(numbers, &[outputs]).constant())
                .input(Value::raw(ty, &[outputs], vec![0; outputs]).constant())
                .input(f32s(&[], vec![0.5]).constant())
                .input(small(numbers, ty, &[]).constant())
                .input(bias.then(|| Value::i32s(&[outputs], &[100, -50, 7]).constant()));
            within_a_step(&case.output_of(ty))
        },
    );
}

#[test]
fn quantize_and_dequantize() {
    let types = prop::sample::select(vec![(INT8, 1usize), (UINT8, 1), (INT16, 2), (UINT16, 2)]);
    let cases = (shape(), types, any::<[bool; 3]>(), any::<u64>());
    check_all(48, 150, cases, |(dims, (ty, size), [back, axis, zeros], seed)| {
        let mut numbers = Numbers::new(seed);
        let (count, at) = (dims.iter().product::<usize>(), seed as usize % dims.len());
        let of_scale = if axis { vec![dims[at]] } else { vec![] };
        let zero_count: usize = of_scale.iter().product();
        let zero = Value::raw(ty, &of_scale, numbers.bytes(zero_count * size)).constant();
        let scale = scales(&mut numbers, &of_scale).constant();
        let mut case = match back {
            true => Case::new("DequantizeLinear")
                .input(Value::raw(ty, &dims, numbers.bytes(count * size)))
                .input(scale)
                .input(zeros.then_some(zero))
                .output(),
            false => Case::new("QuantizeLinear")
                .input(numbers.value(&dims, 4.0))
                .input(scale)
                .input(zero)
                .output_of(ty),
        };
        if axis {
            case = case.int("axis", at as i64);
        }
        case.check(Float::F32)
    });
}

/// An LSTM in f64, of one direction: Y [steps, batch, hidden] and the last states.
fn lstm(
    [steps, batch, input, hidden]: [usize; 4],
    x: &[f32],
    [w, r]: [&dyn Fn(usize, usize) -> f64; 2],
    bias: &[f32],
    reverse: bool,
) -> [Vec<f64>; 3] {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut y = vec![0.0; steps * batch * hidden];
    let mut h = vec![0.0; batch * hidden];
    let mut c = h.clone();
    for step in 0..steps {
        let step = if reverse { steps - 1 - step } else { step };
        let before = h.clone();
        for b in 0..batch {
            for unit in 0..hidden {
                let gate = |gate: usize| {
                    let column = gate * hidden + unit;
                    let from_x =
                        (0..input).map(|i| f64::from(x[(step * batch + b) * input + i]) * w(i, column));
                    let from_h = (0..hidden).map(|i| before[b * hidden + i] * r(i, column));
                    let bias = f64::from(bias[column]) + f64::from(bias[4 * hidden + column]);
                    from_x.sum::<f64>() + from_h.sum::<f64>() + bias
                };
                let at = b * hidden + unit;
                c[at] = sigmoid(gate(2)) * c[at] + sigmoid(gate(0)) * gate(3).tanh();
                h[at] = sigmoid(gate(1)) * c[at].tanh();
                y[step * batch * hidden + at] = h[at];
            }
        }
    }
    [y, h, c]
}

/// Against LSTM in f64 on the dequantised weights, and no farther from it than ONNX Runtime.
#[test]
fn dynamic_quantize_lstm() {
    let cases = (
        (1usize..5, 1usize..4, 1usize..6, 1usize..5),
        0usize..3,
        any::<[bool; 2]>(),
        any::<u64>(),
    );
    check_all(
        49,
        60,
        cases,
        |((steps, batch, input, hidden), which, [signed, column], seed)| {
            let mut numbers = Numbers::new(seed);
            let ty = if signed { INT8 } else { UINT8 };
            let directions: &[bool] = [&[false][..], &[true], &[false, true]][which];
            let d = directions.len();
            let gates = 4 * hidden;
            let mut bytes = |dims: &[usize]| -> Vec<u8> {
                let bytes = numbers.bytes(dims.iter().product());
                bytes
                    .iter()
                    .map(|x| {
                        if signed {
                            (x % 128).wrapping_sub(64)
                        } else {
                            x % 128
                        }
                    })
                    .collect()
            };
            let per = if column { d * gates } else { d };
            let (w, r) = (bytes(&[d, input, gates]), bytes(&[d, hidden, gates]));
            // Of columns with scales of their own ONNX Runtime takes no other.
            let mut zeros = || if column { vec![0; per] } else { bytes(&[per]) };
            let (w_zero, r_zero) = (zeros(), zeros());
            let mut scale = |count: usize| -> Vec<f32> {
                numbers.floats(count, 0.005).iter().map(|x| x + 0.01).collect()
            };
            let (w_scale, r_scale) = (scale(per), scale(per));
            let x = numbers.floats(steps * batch * input, 1.0);
            let bias = numbers.floats(d * 2 * gates, 0.5);
            let number = |x: u8| if signed { f64::from(x as i8) } else { f64::from(x) };
            let mut found = [Vec::new(), Vec::new(), Vec::new()];
            for (at, &reverse) in directions.iter().enumerate() {
                let place = |gate: usize| if column { at * gates + gate } else { at };
                let of = |codes: &[u8], zeros: &[u8], scales: &[f32], rows: usize, i: usize, gate: usize| {
                    let code = number(codes[(at * rows + i) * gates + gate]);
                    (code - number(zeros[place(gate)])) * f64::from(scales[place(gate)])
                };
                let w = |i: usize, gate: usize| of(&w, &w_zero, &w_scale, input, i, gate);
                let r = |i: usize, gate: usize| of(&r, &r_zero, &r_scale, hidden, i, gate);
                let bias = &bias[at * 2 * gates..][..2 * gates];
                let outputs = lstm([steps, batch, input, hidden], &x, [&w, &r], bias, reverse);
                for (found, output) in found.iter_mut().zip(outputs) {
                    found.push(output);
                }
            }
            let [y, h, c] = found;
            let row = batch * hidden;
            let expected = [
                Found {
                    dims: [steps, d, batch, hidden].map(|dim| dim as i64).to_vec(),
                    values: (0..steps)
                        .flat_map(|step| y.iter().flat_map(move |y| y[step * row..][..row].to_vec()))
                        .collect(),
                },
                Found {
                    dims: [d, batch, hidden].map(|dim| dim as i64).to_vec(),
                    values: h.concat(),
                },
                Found {
                    dims: [d, batch, hidden].map(|dim| dim as i64).to_vec(),
                    values: c.concat(),
                },
            ];
            let dims = if column { vec![d, gates] } else { vec![d] };
            let case = Case::new("DynamicQuantizeLSTM")
                .string("direction", ["forward", "reverse", "bidirectional"][which])
                .int("hidden_size", hidden as i64)
                .input(Value::floats(&[steps, batch, input], x.clone()))
                .input(Value::raw(ty, &[d, input, gates], w.clone()).constant())
                .input(Value::raw(ty, &[d, hidden, gates], r.clone()).constant())
                .input(Value::floats(&[d, 2 * gates], bias.clone()).constant())
                .input(None)
                .input(None)
                .input(None)
                .input(None)
                .input(f32s(&dims, w_scale.clone()).constant())
                .input(Value::raw(ty, &dims, w_zero.clone()).constant())
                .input(f32s(&dims, r_scale.clone()).constant())
                .input(Value::raw(ty, &dims, r_zero.clone()).constant())
                .output()
                .output()
                .output();
            let ours = case.native(Float::F32)?;
            compare(&case, &ours, &expected, 1e-5)?;
            let theirs = case.ort(Float::F32)?;
            compare(&case, &theirs, &expected, 0.05)
        },
    );
}

#[test]
fn quantized_attention() {
    let cases = (
        (1usize..3, 1usize..5, 1usize..8, 1usize..3, 1usize..4),
        any::<[bool; 5]>(),
        prop::option::of(1usize..4),
        any::<u64>(),
    );
    check_all(
        39,
        80,
        cases,
        |((batch, queries, width, heads, size), flags, past, seed)| {
            let [signed, column, causal, mask, zeros] = flags;
            let mut numbers = Numbers::new(seed);
            let hidden = heads * size;
            let columns = 3 * hidden;
            let per_column: &[usize] = if column { &[columns] } else { &[] };
            let ty = if signed { INT8 } else { UINT8 };
            let total = queries + past.unwrap_or(0);
            let ends: Vec<i32> = (0..batch).map(|_| 1 + numbers.below(total) as i32).collect();
            let case = Case::new("QAttention")
                .int("num_heads", heads as i64)
                .int("unidirectional", causal)
                .input(small(&mut numbers, UINT8, &[batch, queries, width]))
                .input(small(&mut numbers, ty, &[width, columns]).constant())
                .input(numbers.value(&[columns], 0.5).constant())
                .input(scales(&mut numbers, &[]).constant())
                .input(scales(&mut numbers, per_column).constant())
                .input(mask.then(|| Value::i32s(&[batch], &ends)))
                .input(zeros.then(|| small(&mut numbers, UINT8, &[]).constant()))
                .input(zeros.then(|| small(&mut numbers, ty, per_column).constant()))
                .input(past.map(|past| numbers.value(&[2, batch, heads, past, size], 1.0)))
                .output()
                .output_if(past.is_some());
            compare(&case, &case.native(Float::F32)?, &case.ort(Float::F32)?, 5e-5)
        },
    );
}

#[test]
fn quantized_embeddings() {
    let cases = (
        (1usize..4, 1usize..6, 2usize..9),
        any::<[bool; 3]>(),
        any::<u64>(),
    );
    check_all(
        37,
        60,
        cases,
        |((batch, length, hidden), [signed, segments, mask], seed)| {
            let mut maker = Maker::new(signed, seed);
            let mut ids = |rows: usize| {
                let ids: Vec<i32> = (0..batch * length)
                    .map(|_| maker.numbers.below(rows) as i32)
                    .collect();
                Value::i32s(&[batch, length], &ids)
            };
            let (words, kinds) = (ids(11), ids(2));
            let visible: Vec<i32> = (0..batch * length)
                .map(|_| maker.numbers.below(2) as i32)
                .collect();
            let mut case = Case::new("QEmbedLayerNormalization")
                .float("epsilon", 1e-3)
                .input(words)
                .input(segments.then_some(kinds));
            let tables = [
                vec![11, hidden],
                vec![7, hidden],
                vec![2, hidden],
                vec![hidden],
                vec![hidden],
            ];
            for (index, dims) in tables.iter().enumerate() {
                case = case.input((index != 2 || segments).then(|| maker.bytes(dims).constant()));
            }
            case = case.input(mask.then(|| Value::i32s(&[batch, length], &visible)));
            for index in 0..5 {
                case = case.input((index != 2 || segments).then(|| maker.scale().constant()));
            }
            for index in 0..5 {
                case = case.input((index != 2 || segments).then(|| maker.zero().constant()));
            }
            case.output().output_of(INT32).check(Float::F32)
        },
    );
}
