//! Normalisation over the last dim.

use super::Array;
use crate::harness::Case;

/// Mean and 1 / sqrt(variance + epsilon) of each row.
struct Rows {
    mean: Vec<f64>,
    inverse: Vec<f64>,
}

fn rows(x: &Array, epsilon: f64, centered: bool) -> Rows {
    let n = x.last();
    let mean_of = |row: &[f64]| {
        if centered {
            row.iter().sum::<f64>() / n as f64
        } else {
            0.0
        }
    };
    let mean: Vec<f64> = x.values.chunks(n).map(mean_of).collect();
    let inverse = x.values.chunks(n).zip(&mean).map(|(row, mean)| {
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        1.0 / (variance + epsilon).sqrt()
    });
    Rows {
        inverse: inverse.collect(),
        mean,
    }
}

fn apply(x: &Array, rows: &Rows, scale: &Array, bias: Option<&Array>) -> Array {
    let n = x.last();
    let values = x.values.iter().enumerate().map(|(at, x)| {
        let (row, e) = (at / n, at % n);
        let bias = bias.map_or(0.0, |bias| bias.at(&[e]));
        (x - rows.mean[row]) * rows.inverse[row] * scale.at(&[e]) + bias
    });
    Array {
        dims: x.dims.clone(),
        values: values.collect(),
    }
}

pub fn root_mean_square(x: &Array, scale: &Array, epsilon: f64) -> Array {
    apply(x, &rows(x, epsilon, false), scale, None)
}

fn per_row(x: &Array, values: &[f64]) -> Array {
    let mut dims = x.dims.clone();
    *dims.last_mut().unwrap() = 1;
    Array {
        dims,
        values: values.into(),
    }
}

pub fn simplified(case: &Case) -> Vec<Array> {
    let (x, scale) = (case.array(0).unwrap(), case.array(1).unwrap());
    let rows = rows(&x, case.float_of("epsilon", 1e-5), false);
    vec![apply(&x, &rows, &scale, None), per_row(&x, &rows.inverse)]
}

pub fn skip(case: &Case) -> Vec<Array> {
    let centered = case.op_type == "SkipLayerNormalization";
    let (x, skip, gamma) = (
        case.array(0).unwrap(),
        case.array(1).unwrap(),
        case.array(2).unwrap(),
    );
    let beta = if centered { case.array(3) } else { None };
    let bias = case.array(if centered { 4 } else { 3 });
    let sum = Array::of(&x.dims, |i| {
        let bias = bias.as_ref().map_or(0.0, |bias| bias.at(&i[i.len() - 1..]));
        x.at(i) + skip.broadcast_at(i) + bias
    });
    let rows = rows(&sum, case.float_of("epsilon", 1e-12), centered);
    let y = apply(&sum, &rows, &gamma, beta.as_ref());
    vec![y, per_row(&x, &rows.mean), per_row(&x, &rows.inverse), sum]
}

pub fn embed(case: &Case) -> Vec<Array> {
    let (ids, segments) = (case.array(0).unwrap(), case.array(1));
    let [word, position, segment, gamma, beta] = [2, 3, 4, 5, 6].map(|i| case.array(i));
    let (word, position) = (word.unwrap(), position.unwrap());
    let (mask, position_ids) = (case.array(7), case.array(8));
    let [b, s] = ids.dims[..] else { panic!() };
    let sum = Array::of(&[b, s, word.last()], |i| {
        let at = &i[..2];
        let row = position_ids
            .as_ref()
            .map_or(i[1], |ids| ids.broadcast_at(at) as usize);
        let segment = segment.as_ref().zip(segments.as_ref());
        let segment = segment.map_or(0.0, |(segment, ids)| segment.at(&[ids.at(at) as usize, i[2]]));
        word.at(&[ids.at(at) as usize, i[2]]) + position.at(&[row, i[2]]) + segment
    });
    let rows = rows(&sum, case.float_of("epsilon", 1e-12), true);
    let counts = Array::of(&[b], |i| {
        mask.as_ref()
            .map_or(0.0, |mask| (0..s).map(|s| mask.at(&[i[0], s])).sum())
    });
    vec![apply(&sum, &rows, &gamma.unwrap(), beta.as_ref()), counts, sum]
}
