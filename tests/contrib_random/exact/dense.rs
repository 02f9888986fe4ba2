//! Products of matrices, and a convolution, as they are fused with what follows.

use super::gelu::activation;
use super::{Array, dot};
use crate::harness::Case;

/// `(transBatch, trans)` undone: an operand as [batch..., rows, columns].
fn operand(x: Array, first: bool, last: bool) -> Array {
    let rank = x.dims.len();
    // Which axis of x each axis of the result is.
    let mut axes: Vec<usize> = (0..rank).collect();
    if first {
        axes[..rank - 1].rotate_left(1);
    }
    if last {
        axes.swap(rank - 2, rank - 1);
    }
    let dims: Vec<usize> = axes.iter().map(|&axis| x.dims[axis]).collect();
    Array::of(&dims, |i| {
        let mut from = vec![0; rank];
        for (&axis, &i) in axes.iter().zip(i) {
            from[axis] = i;
        }
        x.at(&from)
    })
}

pub fn matmul(case: &Case) -> Vec<Array> {
    let flag = |name: &str| case.int_of(name, 0) != 0;
    let a = operand(case.array(0).unwrap(), flag("transBatchA"), flag("transA"));
    let b = operand(case.array(1).unwrap(), flag("transBatchB"), flag("transB"));
    let alpha = case.float_of("alpha", 1.0);
    let (a_rank, b_rank) = (a.dims.len(), b.dims.len());
    let depth = a.last();
    // The tests have the batch dims in full, or none.
    let batch = if a_rank > b_rank {
        &a.dims[..a_rank - 2]
    } else {
        &b.dims[..b_rank - 2]
    };
    let dims = [batch, &[a.dims[a_rank - 2], b.last()]].concat();
    let rank = dims.len();
    vec![Array::of(&dims, |i| {
        let with = |row: usize, column: usize| [&i[..rank - 2], &[row, column]].concat();
        let product =
            |k: usize| a.broadcast_at(&with(i[rank - 2], k)) * b.broadcast_at(&with(k, i[rank - 1]));
        alpha * dot(depth, product)
    })]
}

pub fn gemm(case: &Case) -> Vec<Array> {
    let flag = |name: &str| case.int_of(name, 0) != 0;
    let a = operand(case.array(0).unwrap(), false, flag("transA"));
    let b = operand(case.array(1).unwrap(), false, flag("transB"));
    let c = case.array(2);
    let (alpha, beta) = (case.float_of("alpha", 1.0), case.float_of("beta", 1.0));
    let then = activation(
        case.string_of("activation"),
        case.float_of("activation_alpha", 0.0),
        case.float_of("activation_beta", 0.0),
    );
    vec![Array::of(&[a.dims[0], b.last()], |i| {
        let product = dot(a.last(), |k| a.at(&[i[0], k]) * b.at(&[k, i[1]]));
        let c = c.as_ref().map_or(0.0, |c| c.broadcast_at(i));
        then(alpha * product + beta * c)
    })]
}

/// Of two dims, padded by one on every side.
pub fn conv(case: &Case) -> Vec<Array> {
    let (x, w) = (case.array(0).unwrap(), case.array(1).unwrap());
    let (bias, addend) = (case.array(2), case.array(3));
    assert_eq!(case.ints_of("pads"), [1; 4]);
    let params = case.floats_of("activation_params");
    let param = |i: usize| params.get(i).copied().unwrap_or(0.0);
    let then = activation(case.string_of("activation"), param(0), param(1));
    let [batch, channels, height, width] = x.dims[..] else {
        panic!()
    };
    let [outputs, _, kernel, _] = w.dims[..] else {
        panic!()
    };
    let dims = [batch, outputs, height + 3 - kernel, width + 3 - kernel];
    vec![Array::of(&dims, |i| {
        let sum = dot(channels * kernel * kernel, |t| {
            let (c, row, column) = (t / kernel / kernel, t / kernel % kernel, t % kernel);
            let (at_row, at_column) = (i[2] + row, i[3] + column);
            let inside = (1..=height).contains(&at_row) && (1..=width).contains(&at_column);
            match inside {
                true => x.at(&[i[0], c, at_row - 1, at_column - 1]) * w.at(&[i[1], c, row, column]),
                false => 0.0,
            }
        });
        let bias = bias.as_ref().map_or(0.0, |bias| bias.at(&[i[1]]));
        then(sum + bias + addend.as_ref().map_or(0.0, |addend| addend.at(i)))
    })]
}
