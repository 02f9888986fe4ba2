//! What GroupQueryAttention does to queries and keys before it uses them: RMSNormalization of each head,
//! then its rotation by the angles of its position.

use super::group_query_attention::{
    COS, GroupQueryAttention, K_NORM, Lengths, POSITIONS, Projected, Q_NORM, SIN, wrong_dims,
};
use super::number::{Float, Real, Scalar};
use super::rotary::Rotation;
use crate::native::operator::{OpError, RunContext};

/// What happens to a query or a key before it is used.
pub(super) struct Prepare<'a, T> {
    norms: Option<(&'a [T], &'a [T])>,
    epsilon: f32,
    rotation: Option<Rotation<'a, T>>,
    /// [batch, queries], where the caller says it and they are read.
    positions: Option<&'a [i64]>,
    first_step: bool,
    queries: usize,
    starts: &'a [i32],
}

impl<'a, T: Float> Prepare<'a, T> {
    pub fn new(
        op: &GroupQueryAttention,
        cx: &RunContext<'a>,
        p: &Projected<'_, T>,
        lengths: &Lengths<'a>,
    ) -> Result<Self, OpError> {
        let norms = match (cx.input(Q_NORM), cx.input(K_NORM)) {
            (None, None) => None,
            (Some(q), Some(k)) => {
                for (index, tensor) in [(Q_NORM, &q), (K_NORM, &k)] {
                    if tensor.dims() != [p.size] {
                        return Err(wrong_dims(index, tensor, format!("[{}]", p.size)));
                    }
                }
                Some((q.slice()?, k.slice()?))
            }
            _ => {
                return Err(OpError::Message(
                    "q_norm_weight and k_norm_weight come together".into(),
                ));
            }
        };
        let mut prepare = Prepare {
            norms,
            epsilon: op.norm_epsilon,
            rotation: None,
            positions: None,
            first_step: lengths.first_step,
            queries: p.queries,
            starts: lengths.last,
        };
        if !op.rotary {
            return Ok(prepare);
        }
        let cos = cx.required(COS)?;
        let rotation = Rotation::new(cos, cx.required(SIN)?, op.interleaved)?;
        if cos.rank() != 2 || rotation.half > p.size / 2 {
            return Err(wrong_dims(
                COS,
                &cos,
                format!("[max position, at most {}]", p.size / 2),
            ));
        }
        prepare.rotation = Some(rotation);
        if let Some(positions) = cx.input(POSITIONS) {
            if positions.dims() != [p.batch, p.queries] {
                return Err(wrong_dims(
                    POSITIONS,
                    &positions,
                    format!("[{}, {}]", p.batch, p.queries),
                ));
            }
            prepare.positions = Some(positions.slice()?);
        }
        for b in 0..p.batch {
            for i in 0..p.queries {
                rotation.row(prepare.position(b, i))?;
            }
        }
        Ok(prepare)
    }

    pub fn changes_keys(&self) -> bool {
        self.norms.is_some() || self.rotation.is_some()
    }

    fn position(&self, b: usize, i: usize) -> i64 {
        let after = |start: i64| start.saturating_add(i as i64);
        match self.positions {
            Some(positions) if self.first_step => after(positions.first().copied().unwrap_or(0)),
            Some(positions) => positions[b * self.queries + i],
            None if self.first_step => after(0),
            None => after(i64::from(self.starts[b]) + 1 - self.queries as i64),
        }
    }

    fn prepare(&self, weight: Option<&[T]>, x: &[T], b: usize, i: usize, row: &mut [T::Wide]) {
        for (to, x) in row.iter_mut().zip(x) {
            *to = x.widen();
        }
        if let Some(weight) = weight {
            let squares = row.iter().fold(T::Wide::ZERO, |sum, &x| sum.add(x.mul(x)));
            let mean = squares.div(T::Wide::from_f64(row.len() as f64));
            let root = mean.add(T::Wide::from_f64(self.epsilon.into())).sqrt();
            for (x, weight) in row.iter_mut().zip(weight) {
                *x = x.div(root).mul(weight.widen());
            }
        }
        if let Some(rotation) = &self.rotation {
            // `new` has checked every position.
            rotation.turn(self.position(b, i) as usize, row);
        }
    }

    pub fn query(&self, x: &[T], b: usize, i: usize, row: &mut [T::Wide]) {
        self.prepare(self.norms.map(|norms| norms.0), x, b, i, row);
    }

    pub fn key(&self, x: &[T], b: usize, i: usize, row: &mut [T::Wide]) {
        self.prepare(self.norms.map(|norms| norms.1), x, b, i, row);
    }
}
