//! MoE and QMoE: each token goes through the k experts of E that its router chooses.
//!
//!   p = softmax(router_probs[t])          over all experts; the k largest are chosen, of equal
//!                                         ones the last; with `normalize_routing_weights`, and
//!                                         in QMoE always, they are divided by their sum
//!   y[t] = sum over chosen e of p[e] (W2[e] act(W1[e] x[t] + b1[e]) + b2[e])
//!
//! act is relu, gelu (with tanh, as ONNX Runtime's CPU has it), silu or identity, and where W3 is
//! given its result is multiplied by W3[e] x[t] + b3[e]. swiglu takes g from W1 and l from W3, or
//! with `swiglu_fusion` 1 both from W1, a row each by turns, with 2 one half each:
//!
//!   G = min(g, limit), L = min(max(l, -limit), limit), G sigmoid(alpha G) (L + beta)
//!
//!   input         [tokens, hidden] or [batch, positions, hidden], and so is Y
//!   router_probs  [tokens, E]; router_weights [tokens, E] (QMoE): in place of p for the sum, and
//!                 divided by theirs with `normalize_routing_weights` only
//!   W1, W3        [E, inter, hidden], W1 twice as many rows where fused; W2 [E, hidden, inter]
//!   b1, b3        [E, inter] likewise, b2 [E, hidden]
//!
//! QMoE has its weights as in `block_quantized`, in uint8 of 2, 4 or 8 bits, with scales of a row,
//! [E, rows], or of a block, [E, rows, blocks]; zero points packed along rows or blocks likewise.
//! Its quantisation to floats (`quant_type` other than "int") is for GPUs and not done.
//!
//! com.microsoft 1: float, float16, bfloat16 (and double). Sums are in the wide type. Constant weights
//! of QMoE are packed at load, see `packed_weights`: the experts one behind the other, each filled up
//! to whole panels.

mod projection;

use half::{bf16, f16};

use self::projection::{Projection, Rows};
use super::Built;
use super::block_quantized::{BlockQuantized, ZeroPoints, packed_len, unpack};
use super::dispatch::with_float;
use super::group_query_attention::wrong_dims;
use super::infer::like_first_input;
use super::number::{Float, Real, Scalar};
use super::order::by_value;
use super::packed_weights::{self, Arithmetic, COLUMNS, PackedWeights, Source, SourceCodes, SourcePoints};
use super::unary::{gelu_tanh_of, sigmoid_of};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, PrepareContext, Prepared, RunContext};
use crate::native::tensor::{TensorRef, element_count};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Activation {
    Relu,
    Gelu,
    Silu,
    Identity,
    SwiGlu { alpha: f32, beta: f32, limit: f32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fusion {
    None,
    Interleaved,
    Halves,
}

/// Inputs of one projection.
#[derive(Debug)]
struct Places {
    weights: usize,
    scales: usize,
    bias: usize,
    zero_points: usize,
}

/// How weights are quantised, of each projection.
#[derive(Debug)]
struct Quantized {
    bits: [usize; 3],
    /// `None` for one block a row.
    block_size: Option<usize>,
}

#[derive(Debug)]
struct MoE {
    chosen: usize,
    normalize: bool,
    activation: Activation,
    fusion: Fusion,
    quantized: Option<Quantized>,
    places: [Places; 3],
    router_weights: Option<usize>,
    /// Of each projection, if its weights are constant.
    packed: [Option<PackedWeights>; 3],
}

fn build(node: &NodeInfo<'_>, quantized: Option<Quantized>) -> Built {
    let chosen = node.int_or("k", 1)?;
    let Some(chosen) = usize::try_from(chosen).ok().filter(|&chosen| chosen > 0) else {
        return Err(OpError::Attribute {
            name: "k".into(),
            message: format!("is {chosen}, expected at least 1"),
        });
    };
    let (alpha, beta) = (
        node.float_or("activation_alpha", 1.0)?,
        node.float_or("activation_beta", 0.0)?,
    );
    let limit = node.float("swiglu_limit")?.unwrap_or(f32::INFINITY);
    let activation = match node.string_or("activation_type", "relu")? {
        "relu" => Activation::Relu,
        "gelu" => Activation::Gelu,
        "silu" => Activation::Silu,
        "identity" => Activation::Identity,
        "swiglu" => Activation::SwiGlu { alpha, beta, limit },
        other => {
            return Err(OpError::Attribute {
                name: "activation_type".into(),
                message: format!("is \"{other}\", expected relu, gelu, silu, swiglu or identity"),
            });
        }
    };
    let fused = matches!(activation, Activation::SwiGlu { .. });
    let fusion = match node.int_or("swiglu_fusion", 0)? {
        1 if fused => Fusion::Interleaved,
        2 if fused => Fusion::Halves,
        0..=2 => Fusion::None,
        other => {
            return Err(OpError::Attribute {
                name: "swiglu_fusion".into(),
                message: format!("is {other}, expected 0 to 2"),
            });
        }
    };
    // ONNX Runtime's CPU does not read it.
    node.int("use_sparse_mixer")?;
    let places = match quantized {
        None => [2, 4, 6].map(|weights| Places {
            weights,
            scales: usize::MAX,
            bias: weights + 1,
            zero_points: usize::MAX,
        }),
        Some(_) => [(2, 11), (5, 12), (8, 13)].map(|(weights, zero_points)| Places {
            weights,
            scales: weights + 1,
            bias: weights + 2,
            zero_points,
        }),
    };
    Ok(Box::new(MoE {
        chosen,
        normalize: node.flag_or("normalize_routing_weights", false)?,
        activation,
        fusion,
        router_weights: quantized.is_some().then_some(14),
        quantized,
        places,
        packed: [None, None, None],
    }))
}

pub(in crate::native) fn moe(node: &NodeInfo<'_>) -> Built {
    build(node, None)
}

pub(in crate::native) fn quantized_moe(node: &NodeInfo<'_>) -> Built {
    let kind = node.string_or("quant_type", "int")?;
    if kind != "int" {
        return Err(OpError::Unsupported(format!(
            "experts quantised for a GPU ({kind})"
        )));
    }
    if node.int_or("weights_prepacked", -1)? == 1 {
        return Err(OpError::Unsupported(
            "experts packed for a GPU (weights_prepacked)".into(),
        ));
    }
    node.int("accuracy_level")?;
    let bits = |name: &str, default: i64| match node.int_or(name, default)? {
        bits @ (2 | 4 | 8) => Ok(bits),
        other => Err(OpError::Attribute {
            name: name.into(),
            message: format!("is {other}, expected 2, 4 or 8"),
        }),
    };
    let all = bits("expert_weight_bits", 4)?;
    let of = |name: &str| bits(name, all).map(|bits| bits as usize);
    let block_size = node.int_or("block_size", 0)?;
    let quantized = Quantized {
        bits: [
            of("fc1_expert_weight_bits")?,
            of("fc2_expert_weight_bits")?,
            of("fc3_expert_weight_bits")?,
        ],
        block_size: usize::try_from(block_size).ok().filter(|&size| size > 0),
    };
    build(node, Some(quantized))
}

impl Operator for MoE {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn prepare(
        &mut self,
        constants: &[Option<TensorRef<'_>>],
        cx: &mut PrepareContext<'_>,
    ) -> Result<Prepared, OpError> {
        let constant = |index: usize| constants.get(index).copied().flatten();
        let rows = |which: usize| {
            let places: &Places = self.places.get(which)?;
            constant(places.weights)?.dims().get(1).copied()
        };
        let (Some(_), Some(first), Some(hidden)) = (&self.quantized, rows(0), rows(1)) else {
            return Ok(Prepared::AsGiven);
        };
        let inter = if self.fusion == Fusion::None {
            first
        } else {
            first / 2
        };
        for (which, depth) in [hidden, inter, hidden].into_iter().enumerate() {
            let scales = constant(self.places[which].scales).map(|scales| scales.element_type());
            self.packed[which] = match scales {
                Some(ElementType::Float32) => self.pack::<f32>(&constant, which, depth, cx)?,
                Some(ElementType::Float16) => self.pack::<f16>(&constant, which, depth, cx)?,
                Some(ElementType::Bfloat16) => self.pack::<bf16>(&constant, which, depth, cx)?,
                _ => None,
            };
        }
        let any = self.packed.iter().flatten().next();
        Ok(Prepared::of(&any))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl MoE {
    /// The weights of a projection, `None` where a run is to say what is wrong with them, or where
    /// blocks are so small that they would be mostly padding.
    fn pack<'a, T: Float>(
        &self,
        constant: &dyn Fn(usize) -> Option<TensorRef<'a>>,
        which: usize,
        depth: usize,
        cx: &mut PrepareContext<'_>,
    ) -> Result<Option<PackedWeights>, OpError> {
        let places = &self.places[which];
        let Ok(projection) = self.projection::<T>(constant, which, depth) else {
            return Ok(None);
        };
        let Projection {
            experts,
            rows,
            weights,
            ..
        } = projection;
        let Rows::Quantized { blocks, row_points } = weights else {
            return Ok(None);
        };
        let padded = rows.checked_next_multiple_of(COLUMNS);
        let Some((padded, n)) = padded.and_then(|padded| Some((padded, padded.checked_mul(experts)?))) else {
            return Ok(None);
        };
        if n == 0 || depth == 0 || blocks.block_size < depth.clamp(1, 16) {
            return Ok(None);
        }
        // The expert and the row in it, if it has that row.
        let place = |at: usize| Some((at / padded, at % padded)).filter(|&(_, row)| row < rows);
        let stored = |at: usize| place(at).map(|(expert, row)| expert * rows + row);
        let points_of_row = |at: usize, _: usize, to: &mut [u8]| match (place(at), row_points) {
            (Some((expert, row)), Some((points, bytes))) => {
                to.fill(unpack(&points[expert * bytes..], blocks.bits, row));
            }
            _ => to.fill(0),
        };
        let points_of_blocks = |at: usize, block: usize, to: &mut [u8]| match (stored(at), blocks.zero_points)
        {
            (Some(at), ZeroPoints::Packed(points)) => blocks.packed_points(points, at, block, to),
            _ => to.fill(0),
        };
        let give_back = cx.give_back();
        let source = Source {
            bits: blocks.bits,
            n,
            k: depth,
            block_size: blocks.block_size,
            codes: SourceCodes::Rows(&|at, to| match stored(at) {
                Some(at) => blocks.codes(at, 0, to),
                None => to.fill(0),
            }),
            scales: &|at, block, to| match stored(at) {
                Some(at) => blocks.floats(blocks.scales, at, block, to),
                None => to.fill(0.0),
            },
            points: match (row_points, blocks.zero_points) {
                (Some(_), _) => SourcePoints::Whole(&points_of_row),
                (None, ZeroPoints::Packed(_)) => SourcePoints::Whole(&points_of_blocks),
                (None, _) => SourcePoints::Middle,
            },
            groups: None,
            done: &|range| {
                let row = |at: usize| at / padded * rows + (at % padded).min(rows);
                give_back(blocks.rows(row(range.start)..row(range.end)));
            },
        };
        let constants = [places.weights, places.scales, places.zero_points].map(constant);
        packed_weights::prepare(cx, &source, Arithmetic::Float, &constants).map(Some)
    }

    /// Projection 0, 1 or 2, for W1, W2 or W3, from what is packed if that is what a run reads.
    fn of_run<'s, 'r: 's, T: Float>(
        &'s self,
        cx: &RunContext<'r>,
        which: usize,
        depth: usize,
    ) -> Result<Projection<'s, T>, OpError> {
        let projection = self.projection::<T>(&|index| cx.input(index), which, depth)?;
        Ok(match &self.packed[which] {
            Some(packed) if packed.k == depth => Projection {
                weights: Rows::Packed(packed),
                ..projection
            },
            _ => projection,
        })
    }

    /// Projection 0, 1 or 2, for W1, W2 or W3.
    fn projection<'a, T: Float>(
        &self,
        input: &dyn Fn(usize) -> Option<TensorRef<'a>>,
        which: usize,
        depth: usize,
    ) -> Result<Projection<'a, T>, OpError> {
        let required = |index: usize| input(index).ok_or(OpError::MissingInput { index });
        let places = &self.places[which];
        let weights = required(places.weights)?;
        let &[experts, rows, stored] = weights.dims() else {
            return Err(wrong_dims(places.weights, &weights, "rank 3"));
        };
        let all_rows = element_count(&[experts, rows])?;
        let bias = match input(places.bias) {
            Some(bias) if bias.dims() == [experts, rows] => Some(bias.slice::<T>()?),
            Some(bias) => return Err(wrong_dims(places.bias, &bias, format!("[{experts}, {rows}]"))),
            None => None,
        };
        let wrong_depth = || wrong_dims(places.weights, &weights, format!("rows of {depth} elements"));
        let Some(quantized) = &self.quantized else {
            if stored != depth {
                return Err(wrong_depth());
            }
            return Ok(Projection {
                experts,
                rows,
                depth,
                weights: Rows::Plain(weights.slice()?),
                bias,
            });
        };
        let bits = quantized.bits[which];
        if Some(stored) != packed_len(depth, bits) {
            return Err(wrong_depth());
        }
        let block_size = quantized.block_size.unwrap_or(depth).max(1);
        let blocks = depth.div_ceil(block_size);
        let scales = required(places.scales)?;
        if Some(scales.len()) != all_rows.checked_mul(blocks) {
            let expected = format!("[{experts}, {rows}, {blocks}]");
            return Err(wrong_dims(places.scales, &scales, expected));
        }
        let per_row = quantized.block_size.is_none();
        let point_bytes = match per_row {
            true => packed_len(rows, bits),
            false => packed_len(blocks, bits).and_then(|row| row.checked_mul(rows)),
        };
        let mut row_points = None;
        let zero_points = match input(places.zero_points) {
            None => ZeroPoints::Middle,
            Some(points) => {
                if Some(points.len()) != point_bytes.and_then(|bytes| bytes.checked_mul(experts)) {
                    let expected = format!("{point_bytes:?} bytes for each of {experts} experts");
                    return Err(wrong_dims(places.zero_points, &points, expected));
                }
                let points = points.slice::<u8>()?;
                match per_row {
                    true => {
                        row_points = point_bytes.map(|bytes| (points, bytes));
                        ZeroPoints::Zero
                    }
                    false => ZeroPoints::Packed(points),
                }
            }
        };
        Ok(Projection {
            experts,
            rows,
            depth,
            weights: Rows::Quantized {
                blocks: BlockQuantized {
                    bits,
                    block_size,
                    blocks,
                    row_bytes: stored,
                    data: weights.slice()?,
                    scales: scales.slice()?,
                    zero_points,
                    groups: None,
                },
                row_points,
            },
            bias,
        })
    }

    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (Some(&hidden), 2 | 3) = (x.dims().last(), x.rank()) else {
            return Err(wrong_dims(0, x, "rank 2 or 3"));
        };
        let tokens = x.len().checked_div(hidden).unwrap_or(0);
        let first = self.of_run::<T>(cx, 0, hidden)?;
        let inter = match self.fusion {
            Fusion::None => first.rows,
            _ if first.rows.is_multiple_of(2) => first.rows / 2,
            _ => {
                return Err(OpError::Message(format!(
                    "{} fused rows are not pairs",
                    first.rows
                )));
            }
        };
        let second = self.of_run::<T>(cx, 1, inter)?;
        let third = match cx.input(self.places[2].weights) {
            Some(_) => Some(self.of_run::<T>(cx, 2, hidden)?),
            None => None,
        };
        let needs_third = matches!(self.activation, Activation::SwiGlu { .. }) && self.fusion == Fusion::None;
        let third_rows = third.as_ref().map_or(0, |third| third.rows);
        let experts = first.experts;
        let agree = third
            .as_ref()
            .is_none_or(|third| (third.experts, third.rows) == (experts, inter));
        if second.experts != experts || second.rows != hidden || !agree || needs_third && third.is_none() {
            return Err(OpError::Message(format!(
                "the projections of {experts} experts, {} by {hidden}, {} by {inter} and {third_rows}, do not fit",
                first.rows, second.rows
            )));
        }
        let router = cx.required(1)?;
        if router.dims() != [tokens, experts] || self.chosen > experts {
            let expected = format!("[{tokens}, {experts}], and at least {} experts", self.chosen);
            return Err(wrong_dims(1, &router, expected));
        }
        let mixing = match self
            .router_weights
            .and_then(|index| Some((index, cx.input(index)?)))
        {
            Some((_, mixing)) if mixing.dims() == router.dims() => Some(mixing.slice::<T>()?),
            Some((index, mixing)) => {
                return Err(wrong_dims(index, &mixing, format!("[{tokens}, {experts}]")));
            }
            None => None,
        };

        let sizes = [experts, hidden, first.rows, third_rows, hidden, hidden];
        let per_token = sizes.iter().fold(0usize, |sum, &size| sum.saturating_add(size));
        let projections = [Some(&first), Some(&second), third.as_ref()];
        let room = projections
            .into_iter()
            .flatten()
            .map(|projection| projection.room(tokens));
        let room = room.max().unwrap_or(0);
        let scratch_len = element_count(&[tokens, per_token])?
            .saturating_add(room)
            .saturating_add(experts);
        let workers = cx.workers();
        let scratch = cx.scratch::<T::Wide>(scratch_len)?;
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let (sorted, rest) = scratch.split_at_mut(experts);
        let (shares, rest) = rest.split_at_mut(tokens * experts);
        let (sums, rest) = rest.split_at_mut(tokens * hidden);
        let (firsts, rest) = rest.split_at_mut(tokens * first.rows);
        let (thirds, rest) = rest.split_at_mut(tokens * third_rows);
        let (seconds, rest) = rest.split_at_mut(tokens * hidden);
        let (gathered, room) = rest.split_at_mut(tokens * hidden);
        let router = router.slice::<T>()?;
        for (t, shares) in shares.chunks_exact_mut(experts).enumerate() {
            let row = t * experts..(t + 1) * experts;
            self.route(
                &router[row.clone()],
                mixing.map(|mixing| &mixing[row]),
                shares,
                sorted,
            );
        }
        sums.fill(T::Wide::ZERO);
        let x = x.slice::<T>()?;
        for e in 0..experts {
            ending::count(tokens);
            // The tokens of this expert, as rows 0, 1, ... of what is computed for it.
            let routed = || (0..tokens).filter(|t| !shares[t * experts + e].is_nan());
            let count = routed().count();
            if count == 0 {
                continue;
            }
            for (row, t) in gathered.chunks_exact_mut(hidden).zip(routed()) {
                for (to, x) in row.iter_mut().zip(&x[t * hidden..]) {
                    *to = x.widen();
                }
            }
            let input = |i: usize| &gathered[i * hidden..][..hidden];
            first.apply(workers, e, (&input, count), room, firsts);
            if let Some(third) = &third {
                third.apply(workers, e, (&input, count), room, thirds);
            }
            for i in 0..count {
                let others = &thirds[i * third_rows..][..third_rows];
                self.activate(&mut firsts[i * first.rows..][..first.rows], others, inter);
            }
            let activated = |i: usize| &firsts[i * first.rows..][..inter];
            second.apply(workers, e, (&activated, count), room, seconds);
            for (i, t) in routed().enumerate() {
                let share = shares[t * experts + e];
                let sums = &mut sums[t * hidden..][..hidden];
                for (sum, &x) in sums.iter_mut().zip(&seconds[i * hidden..]) {
                    *sum = Scalar::multiply_add(share, x, *sum);
                }
            }
        }
        for (y, &sum) in y.iter_mut().zip(sums.iter()) {
            *y = T::narrow(sum);
        }
        Ok(())
    }

    /// The share of each expert in the sum, NaN where it is not chosen. `sorted` is room for as many.
    fn route<T: Float>(
        &self,
        router: &[T],
        mixing: Option<&[T]>,
        shares: &mut [T::Wide],
        sorted: &mut [T::Wide],
    ) {
        for (to, x) in shares.iter_mut().zip(router) {
            *to = x.widen();
        }
        let max = shares.iter().copied().fold(T::Wide::LOWEST, Scalar::max);
        for piece in shares.chunks_mut(ending::PIECE) {
            ending::count(piece.len());
            piece.iter_mut().for_each(|x| *x = x.sub(max).exp());
        }
        let sum = shares.iter().copied().fold(T::Wide::ZERO, Scalar::add);
        shares.iter_mut().for_each(|x| *x = x.div(sum));
        sorted.copy_from_slice(shares);
        let Some(last) = last_chosen(shares, sorted, self.chosen) else {
            return;
        };
        let threshold = shares[last];
        for (e, share) in shares.iter_mut().enumerate() {
            let chosen = *share > threshold || *share == threshold && e >= last;
            *share = match (chosen, mixing) {
                (false, _) => T::Wide::ZERO.div(T::Wide::ZERO),
                (true, Some(mixing)) => mixing[e].widen(),
                (true, None) => *share,
            };
        }
        if self.normalize || self.quantized.is_some() && mixing.is_none() {
            let chosen = shares.iter().copied().filter(|share| !share.is_nan());
            let sum = chosen.fold(T::Wide::ZERO, Scalar::add);
            shares.iter_mut().for_each(|share| *share = share.div(sum));
        }
    }

    /// Leaves what goes into the second projection in the first `inter` of `firsts`.
    fn activate<W: Real>(&self, firsts: &mut [W], thirds: &[W], inter: usize) {
        for i in 0..inter {
            let (x, other) = match self.fusion {
                Fusion::None => (firsts[i], thirds.get(i).copied()),
                Fusion::Interleaved => (firsts[2 * i], Some(firsts[2 * i + 1])),
                Fusion::Halves => (firsts[i], Some(firsts[inter + i])),
            };
            let activated = match self.activation {
                Activation::Relu => Scalar::max(x, W::ZERO),
                Activation::Gelu => gelu_tanh_of(x),
                Activation::Silu => x.mul(sigmoid_of(x)),
                Activation::Identity => x,
                Activation::SwiGlu { alpha, limit, .. } => {
                    let gate = Scalar::min(x, W::from_f64(limit.into()));
                    gate.mul(sigmoid_of(W::from_f64(alpha.into()).mul(gate)))
                }
            };
            // Row 2i is read before row i is written, and never again.
            firsts[i] = match (other, self.activation) {
                (Some(linear), Activation::SwiGlu { beta, limit, .. }) => {
                    let limit = W::from_f64(limit.into());
                    let linear = Scalar::max(Scalar::min(linear, limit), limit.neg());
                    activated.mul(linear.add(W::from_f64(beta.into())))
                }
                (Some(other), _) => activated.mul(other),
                (None, _) => activated,
            };
        }
    }
}

/// The one that is chosen last of the `chosen` largest shares, which are at least one: all of a larger
/// share, and of the same one all behind it, are chosen too. `sorted` holds the shares in any order.
fn last_chosen<W: Scalar>(shares: &[W], sorted: &mut [W], chosen: usize) -> Option<usize> {
    let at = chosen.checked_sub(1).filter(|&at| at < sorted.len())?;
    let (larger, &mut threshold, _) = sorted.select_nth_unstable_by(at, |a, b| by_value(*b, *a));
    let larger = larger.iter().filter(|&&share| share > threshold).count();
    let mut equal = (0..shares.len()).rev().filter(|&e| shares[e] == threshold);
    // None is equal to a share that is not a number, where all of them are not.
    Some(equal.nth(at - larger).unwrap_or(0))
}
