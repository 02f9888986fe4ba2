//! Rotation of pairs of elements: (a, b) -> (cos a - sin b, sin a + cos b).

use super::Array;
use crate::harness::Case;

pub struct Rotation {
    /// [positions, half]
    pub cos: Array,
    pub sin: Array,
    /// Pairs are neighbours instead of halves.
    pub interleaved: bool,
}

impl Rotation {
    /// Element `e` of the head whose elements are `at`, rotated.
    pub fn element(&self, at: &dyn Fn(usize) -> f64, position: usize, e: usize) -> f64 {
        let half = self.cos.dims[1];
        if e >= 2 * half {
            return at(e);
        }
        let (pair, second) = match self.interleaved {
            true => (e / 2, e % 2 == 1),
            false => (e % half, e >= half),
        };
        let (a, b) = match self.interleaved {
            true => (at(2 * pair), at(2 * pair + 1)),
            false => (at(pair), at(pair + half)),
        };
        let (cos, sin) = (self.cos.at(&[position, pair]), self.sin.at(&[position, pair]));
        match second {
            false => cos * a - sin * b,
            true => sin * a + cos * b,
        }
    }
}

pub fn embedding(case: &Case) -> Vec<Array> {
    let (x, ids) = (case.array(0).unwrap(), case.array(1).unwrap());
    let rotation = Rotation {
        cos: case.array(2).unwrap(),
        sin: case.array(3).unwrap(),
        interleaved: case.int_of("interleaved", 0) != 0,
    };
    let position = |b: usize, s: usize| match ids.dims.len() {
        1 => ids.values[0] as usize + s,
        _ => ids.at(&[b, s]) as usize,
    };
    let y = match x.dims[..] {
        [_, _, _, _] => Array::of(&x.dims, |i| {
            let at = |e: usize| x.at(&[i[0], i[1], i[2], e]);
            rotation.element(&at, position(i[0], i[2]), i[3])
        }),
        _ => {
            let size = match case.int_of("num_heads", 0) as usize {
                0 => 2 * rotation.cos.dims[1],
                heads => x.last() / heads,
            };
            Array::of(&x.dims, |i| {
                let first = i[2] / size * size;
                let at = |e: usize| x.at(&[i[0], i[1], first + e]);
                rotation.element(&at, position(i[0], i[1]), i[2] - first)
            })
        }
    };
    vec![y]
}
