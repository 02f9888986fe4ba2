//! Recurrent networks over X [seq, batch, input], for each direction:
//!
//!   RNN    H = f(X Wi' + H Ri' + Wbi + Rbi)
//!   GRU    z = f(X Wz' + H Rz' + Wbz + Rbz)      r = f(X Wr' + H Rr' + Wbr + Rbr)
//!          h = g(X Wh' + (r H) Rh' + Rbh + Wbh), or with linear_before_reset
//!          h = g(X Wh' + r (H Rh' + Rbh) + Wbh)
//!          H = (1 - z) h + z H
//!   LSTM   i = f(X Wi' + H Ri' + Pi C + Wbi + Rbi)    F = f(X Wf' + H Rf' + Pf C + Wbf + Rbf),
//!          or with input_forget F = 1 - i             c = g(X Wc' + H Rc' + Wbc + Rbc)
//!          C = F C + i c                              o = f(X Wo' + H Ro' + Po C + Wbo + Rbo)
//!          H = o h(C)
//!
//!   W [directions, gates hidden, input]   R [directions, gates hidden, hidden]
//!   B [directions, 2 gates hidden]   P [directions, 3 hidden]; gates in the order zrh and iofc
//!   Y [seq, directions, batch, hidden]   Y_h, Y_c [directions, batch, hidden]
//!
//! `layout` 1 puts the batch first. `sequence_lens` ends each sequence of the batch: Y is zero
//! from there on, and the reverse direction starts there. `clip` bounds what goes into f and g.
//! ai.onnx 7, 14, 22 (GRU also 3). float16 and bfloat16 are computed in f32, states included.

use super::Built;
use super::dispatch::with_float;
use super::gate_function::{self, Activation};
use super::gemm::gemm;
use super::infer::{input_dims, input_type};
use super::number::{Float, Number, Real, Scalar};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};
use crate::native::workers::Workers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Rnn,
    Gru { linear_before_reset: bool },
    Lstm { input_forget: bool },
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Rnn => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm { .. } => 4,
        }
    }

    /// Functions of one direction.
    fn default_activations(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru { .. } => &["Sigmoid", "Tanh"],
            Cell::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

#[derive(Debug)]
struct Recurrent {
    cell: Cell,
    directions: Vec<Direction>,
    hidden: Option<i64>,
    clip: Option<f32>,
    batch_first: bool,
}

#[derive(Debug)]
struct Direction {
    reverse: bool,
    activations: Vec<Activation>,
}

fn build(node: &NodeInfo<'_>, cell: Cell) -> Built {
    let reverse: &[bool] = match node.string_or("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => {
            return Err(OpError::Attribute {
                name: "direction".into(),
                message: format!("is \"{other}\", expected forward, reverse or bidirectional"),
            });
        }
    };
    let default = cell.default_activations();
    let activations = gate_function::read(node, &default.repeat(reverse.len()))?;
    let directions = reverse.iter().zip(activations.chunks(default.len()));
    Ok(Box::new(Recurrent {
        cell,
        directions: directions
            .map(|(&reverse, activations)| Direction {
                reverse,
                activations: activations.to_vec(),
            })
            .collect(),
        hidden: node.int("hidden_size")?,
        clip: node.float("clip")?,
        batch_first: node.since >= 14 && node.flag_or("layout", false)?,
    }))
}

pub(in crate::native) fn rnn(node: &NodeInfo<'_>) -> Built {
    build(node, Cell::Rnn)
}

pub(in crate::native) fn gru(node: &NodeInfo<'_>) -> Built {
    let linear_before_reset = node.flag_or("linear_before_reset", false)?;
    build(node, Cell::Gru { linear_before_reset })
}

pub(in crate::native) fn lstm(node: &NodeInfo<'_>) -> Built {
    let input_forget = node.flag_or("input_forget", false)?;
    build(node, Cell::Lstm { input_forget })
}

impl Operator for Recurrent {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = input_type(cx, 0);
        cx.required(1)?;
        let hidden = match (input_dims(cx, 2).as_deref(), self.hidden) {
            (Some(&[_, _, hidden]), _) => hidden,
            (_, Some(hidden)) => usize::try_from(hidden).map_or(SymDim::Unknown, SymDim::Fixed),
            _ => SymDim::Unknown,
        };
        let directions = SymDim::Fixed(self.directions.len());
        let (first, second) = match input_dims(cx, 0).as_deref() {
            Some(&[first, second, _]) => (first, second),
            Some(dims) => return Err(OpError::Message(format!("X has dims {dims:?}, expected rank 3"))),
            None => (SymDim::Unknown, SymDim::Unknown),
        };
        let (y, state) = match self.batch_first {
            false => ([first, directions, second, hidden], [directions, second, hidden]),
            true => ([first, second, directions, hidden], [first, directions, hidden]),
        };
        cx.set_output(0, ty, Some(y.as_slice().into()));
        cx.set_output(1, ty, Some(state.as_slice().into()));
        cx.set_output(2, ty, Some(state.as_slice().into()));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

/// Elements of an input, which must have these dims.
fn checked<'a, T: Float>(tensor: &TensorRef<'a>, index: usize, dims: &[usize]) -> Result<&'a [T], OpError> {
    if tensor.dims() == dims {
        return tensor.slice::<T>();
    }
    Err(OpError::WrongDims {
        what: format!("input {index}"),
        found: tensor.dims().into(),
        expected: format!("{dims:?}"),
    })
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    gates: usize,
}

/// Memory of one direction, in wide type.
struct Room<'a, W> {
    workers: &'a Workers,
    /// W and R of the gates transposed: [input, gates hidden] and [hidden, gates hidden], of a
    /// GRU's R the two gates [hidden, 2 hidden] and then the third.
    w: &'a mut [W],
    r: &'a mut [W],
    /// Wb and Rb.
    bias: &'a mut [W],
    peepholes: &'a mut [W],
    /// X, and X W' of all steps.
    x: &'a mut [W],
    from_x: &'a mut [W],
    /// H R' of a step.
    from_h: &'a mut [W],
    h: &'a mut [W],
    c: &'a mut [W],
    /// z and r H of a GRU.
    reset: &'a mut [W],
}

/// The next `len` elements of a buffer.
fn cut<'a, W>(rest: &mut &'a mut [W], len: usize) -> &'a mut [W] {
    match std::mem::take(rest).split_at_mut_checked(len) {
        Some((first, others)) => {
            *rest = others;
            first
        }
        None => &mut [],
    }
}

impl Sizes {
    fn room(self) -> Result<[usize; 10], OpError> {
        let Sizes {
            steps,
            batch,
            input,
            hidden,
            gates,
        } = self;
        Ok([
            element_count(&[input, gates, hidden])?,
            element_count(&[hidden, gates, hidden])?,
            element_count(&[2, gates, hidden])?,
            element_count(&[3, hidden])?,
            element_count(&[steps, batch, input])?,
            element_count(&[steps, batch, gates, hidden])?,
            element_count(&[batch, gates, hidden])?,
            element_count(&[batch, hidden])?,
            element_count(&[batch, hidden])?,
            element_count(&[batch, hidden])?,
        ])
    }
}

/// `to` [columns, rows] takes the transpose of `from` [rows, columns].
fn transpose<T: Number>(from: &[T], rows: usize, columns: usize, to: &mut [T::Wide]) {
    for (row, from) in from.chunks_exact(columns.max(1)).take(rows).enumerate() {
        ending::count(from.len());
        for (column, from) in from.iter().enumerate() {
            to[column * rows + row] = from.widen();
        }
    }
}

fn widen_into<T: Number>(from: &[T], to: &mut [T::Wide]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.widen();
    }
}

impl Recurrent {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let r = cx.required(2)?;
        let (&[first, second, input], &[_, _, hidden]) = (x.dims(), r.dims()) else {
            return Err(OpError::Message(format!(
                "X is {x:?} and R is {r:?}, expected rank 3"
            )));
        };
        let (steps, batch) = if self.batch_first {
            (second, first)
        } else {
            (first, second)
        };
        let sizes = Sizes {
            steps,
            batch,
            input,
            hidden,
            gates: self.cell.gates(),
        };
        let directions = self.directions.len();
        let gates = element_count(&[sizes.gates, hidden])?;
        let lens = sizes.room()?;
        let state_dims = match self.batch_first {
            false => [directions, batch, hidden],
            true => [batch, directions, hidden],
        };
        let w = checked::<T>(&cx.required(1)?, 1, &[directions, gates, input])?;
        let r = checked::<T>(&r, 2, &[directions, gates, hidden])?;
        let optional = |index: usize, dims: &[usize]| match cx.input(index) {
            Some(tensor) => checked::<T>(&tensor, index, dims).map(Some),
            None => Ok(None),
        };
        let bias = optional(3, &[directions, 2 * gates])?;
        let initial_h = optional(5, &state_dims)?;
        let (initial_c, peepholes) = match self.cell {
            Cell::Lstm { .. } => (optional(6, &state_dims)?, optional(7, &[directions, 3 * hidden])?),
            _ => (None, None),
        };
        let lengths = cx.input(4).map(|lengths| lengths.to_ints()).transpose()?;
        if let Some(lengths) = &lengths {
            let valid = |&length: &i64| usize::try_from(length).is_ok_and(|length| length <= steps);
            if lengths.len() != batch || !lengths.iter().all(valid) {
                return Err(OpError::Message(format!(
                    "sequence_lens is {lengths:?}, expected {batch} values of at most {steps}"
                )));
            }
        }
        let length = |b: usize| lengths.as_ref().map_or(steps, |lengths| lengths[b] as usize);
        let total = lens.iter().fold(0usize, |sum, &len| sum.saturating_add(len));
        let mut rest = cx.scratch::<T::Wide>(total)?;
        let mut room = Room {
            workers: cx.workers(),
            w: cut(&mut rest, lens[0]),
            r: cut(&mut rest, lens[1]),
            bias: cut(&mut rest, lens[2]),
            peepholes: cut(&mut rest, lens[3]),
            x: cut(&mut rest, lens[4]),
            from_x: cut(&mut rest, lens[5]),
            from_h: cut(&mut rest, lens[6]),
            h: cut(&mut rest, lens[7]),
            c: cut(&mut rest, lens[8]),
            reset: cut(&mut rest, lens[9]),
        };
        let y_dims = match self.batch_first {
            false => [steps, directions, batch, hidden],
            true => [batch, steps, directions, hidden],
        };
        let mut y = match cx.output_used(0) {
            true => Some(cx.output::<T>(0, &y_dims)?.zeroed()),
            false => None,
        };
        let mut state = |index: usize| match cx.output_used(index) {
            true => Ok::<_, OpError>(Some(cx.output::<T>(index, &state_dims)?.into_mut())),
            false => Ok(None),
        };
        let (mut last_h, mut last_c) = (state(1)?, state(2)?);
        if batch == 0 || hidden == 0 {
            // However many steps there are, or members of the batch, of nothing.
            return Ok(());
        }
        // X, step after step.
        let x = x.slice::<T>()?;
        for (row, to) in room.x.chunks_exact_mut(input.max(1)).enumerate() {
            ending::count(to.len());
            let row = match self.batch_first {
                false => row,
                true => row % batch * steps + row / batch,
            };
            widen_into(&x[row * input..][..input], to);
        }
        // Where H of a direction and a member of the batch is in Y (of a step) and in a state.
        let in_y = |d: usize, b: usize, step: usize| match self.batch_first {
            false => ((step * directions + d) * batch + b) * hidden,
            true => ((b * steps + step) * directions + d) * hidden,
        };
        let in_state = |d: usize, b: usize| match self.batch_first {
            false => (d * batch + b) * hidden,
            true => (b * directions + d) * hidden,
        };
        for (d, direction) in self.directions.iter().enumerate() {
            self.load(
                sizes,
                &w[d * gates * input..],
                &r[d * gates * hidden..],
                &mut room,
            );
            room.bias.fill(Scalar::ZERO);
            room.peepholes.fill(Scalar::ZERO);
            room.h.fill(Scalar::ZERO);
            room.c.fill(Scalar::ZERO);
            if let Some(bias) = bias {
                widen_into(&bias[d * 2 * gates..], room.bias);
            }
            if let Some(peepholes) = peepholes {
                widen_into(&peepholes[d * 3 * hidden..], room.peepholes);
            }
            for b in 0..batch {
                let at = in_state(d, b);
                let members = b * hidden..(b + 1) * hidden;
                if let Some(initial) = initial_h {
                    widen_into(&initial[at..], &mut room.h[members.clone()]);
                }
                if let Some(initial) = initial_c {
                    widen_into(&initial[at..], &mut room.c[members]);
                }
            }
            gemm(
                room.workers,
                (steps * batch, input, gates),
                room.x,
                room.w,
                room.from_x,
            );
            for step in 0..steps {
                ending::look();
                // The step of each sequence, `None` when it has ended.
                let at = |b: usize| match length(b) {
                    length if step >= length => None,
                    length if direction.reverse => Some(length - 1 - step),
                    _ => Some(step),
                };
                self.step(sizes, &direction.activations, &at, &mut room);
                let Some(y) = &mut y else { continue };
                for (b, h) in room.h.chunks_exact(hidden.max(1)).enumerate() {
                    if let Some(step) = at(b) {
                        narrow_into(h, &mut y[in_y(d, b, step)..]);
                    }
                }
            }
            for (last, from) in [(&mut last_h, &*room.h), (&mut last_c, &*room.c)] {
                let Some(last) = last else { continue };
                for (b, from) in from.chunks_exact(hidden.max(1)).enumerate() {
                    narrow_into(from, &mut last[in_state(d, b)..]);
                }
            }
        }
        Ok(())
    }

    /// W and R of a direction, transposed.
    fn load<T: Float>(&self, sizes: Sizes, w: &[T], r: &[T], room: &mut Room<'_, T::Wide>) {
        let (hidden, gates) = (sizes.hidden, sizes.gates * sizes.hidden);
        transpose(w, gates, sizes.input, room.w);
        match self.cell {
            Cell::Gru { .. } => {
                let (two, third) = room.r.split_at_mut(2 * hidden * hidden);
                transpose(r, 2 * hidden, hidden, two);
                transpose(&r[2 * hidden * hidden..], hidden, hidden, third);
            }
            _ => transpose(r, gates, hidden, room.r),
        }
    }

    /// Advances the states of the sequences that have not ended.
    fn step<W: Real + Number<Wide = W>>(
        &self,
        sizes: Sizes,
        activations: &[Activation],
        at: &dyn Fn(usize) -> Option<usize>,
        room: &mut Room<'_, W>,
    ) {
        let (hidden, gates) = (sizes.hidden, sizes.gates * sizes.hidden);
        let clip = |x: W| match self.clip {
            Some(clip) => {
                let clip = W::from_f64(clip.into());
                Scalar::max(Scalar::min(x, clip), clip.neg())
            }
            None => x,
        };
        let apply = |which: usize, x: W| match activations.get(which) {
            Some(activation) => activation.apply(clip(x)),
            None => x,
        };
        let (wb, rb) = room.bias.split_at(gates);
        let members = |b: usize| b * hidden..(b + 1) * hidden;
        let of_step = |step: usize, b: usize| (step * sizes.batch + b) * gates;
        match self.cell {
            Cell::Rnn => {
                gemm(
                    room.workers,
                    (sizes.batch, hidden, hidden),
                    room.h,
                    room.r,
                    room.from_h,
                );
                for b in 0..sizes.batch {
                    let Some(step) = at(b) else { continue };
                    let from_x = &room.from_x[of_step(step, b)..][..gates];
                    let from_h = &room.from_h[members(b)];
                    for (i, h) in room.h[members(b)].iter_mut().enumerate() {
                        *h = apply(0, from_x[i].add(from_h[i]).add(wb[i].add(rb[i])));
                    }
                }
            }
            Cell::Gru { linear_before_reset } => {
                let (two, third) = room.r.split_at(2 * hidden * hidden);
                let (zr, last) = room.from_h.split_at_mut(sizes.batch * 2 * hidden);
                gemm(room.workers, (sizes.batch, hidden, 2 * hidden), room.h, two, zr);
                for b in 0..sizes.batch {
                    let from_x = match at(b) {
                        Some(step) => &room.from_x[of_step(step, b)..][..gates],
                        None => continue,
                    };
                    for (i, zr) in zr[b * 2 * hidden..][..2 * hidden].iter_mut().enumerate() {
                        *zr = apply(0, from_x[i].add(*zr).add(wb[i].add(rb[i])));
                    }
                    let (_, r) = zr[b * 2 * hidden..][..2 * hidden].split_at(hidden);
                    for ((reset, r), h) in room.reset[members(b)].iter_mut().zip(r).zip(&room.h[members(b)]) {
                        *reset = if linear_before_reset { *h } else { r.mul(*h) };
                    }
                }
                gemm(
                    room.workers,
                    (sizes.batch, hidden, hidden),
                    room.reset,
                    third,
                    last,
                );
                for b in 0..sizes.batch {
                    let Some(step) = at(b) else { continue };
                    let from_x = &room.from_x[of_step(step, b)..][..gates][2 * hidden..];
                    let (z, r) = zr[b * 2 * hidden..][..2 * hidden].split_at(hidden);
                    let (wb, rb) = (&wb[2 * hidden..], &rb[2 * hidden..]);
                    let last = &last[members(b)];
                    for (i, h) in room.h[members(b)].iter_mut().enumerate() {
                        let from_h = last[i].add(rb[i]);
                        let from_h = if linear_before_reset {
                            r[i].mul(from_h)
                        } else {
                            from_h
                        };
                        let candidate = apply(1, from_x[i].add(from_h).add(wb[i]));
                        *h = W::ONE.sub(z[i]).mul(candidate).add(z[i].mul(*h));
                    }
                }
            }
            Cell::Lstm { input_forget } => {
                gemm(
                    room.workers,
                    (sizes.batch, hidden, gates),
                    room.h,
                    room.r,
                    room.from_h,
                );
                for b in 0..sizes.batch {
                    let Some(step) = at(b) else { continue };
                    let from_x = &room.from_x[of_step(step, b)..][..gates];
                    let from_h = &room.from_h[b * gates..][..gates];
                    let states = room.h[members(b)].iter_mut().zip(&mut room.c[members(b)]);
                    for (unit, (h, c)) in states.enumerate() {
                        let sum = |gate: usize| {
                            let i = gate * hidden + unit;
                            from_x[i].add(from_h[i]).add(wb[i].add(rb[i]))
                        };
                        let peephole = |gate: usize, c: W| room.peepholes[gate * hidden + unit].mul(c);
                        let i = apply(0, sum(0).add(peephole(0, *c)));
                        let forget = match input_forget {
                            true => W::ONE.sub(i),
                            false => apply(0, sum(2).add(peephole(2, *c))),
                        };
                        let candidate = apply(1, sum(3));
                        *c = forget.mul(*c).add(i.mul(candidate));
                        let o = apply(0, sum(1).add(peephole(1, *c)));
                        let shown = activations.get(2).map_or(*c, |h| h.apply(*c));
                        *h = o.mul(shown);
                    }
                }
            }
        }
    }
}

fn narrow_into<T: Number>(from: &[T::Wide], to: &mut [T]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = T::narrow(from);
    }
}
