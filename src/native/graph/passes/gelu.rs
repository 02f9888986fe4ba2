//! GELU, as exporters write it out, becomes Gelu:
//!
//!   x/2 (1 + erf(x / sqrt 2))                                  approximate = none
//!   x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))              approximate = tanh
//!   x/2 (1 + tanh(sqrt(2/pi) x (1 + 0.044715 x^2)))            the same, factored
//!
//! Products in any order; a constant may divide; powers may be Pow or Mul; constants have one
//! element and the digits that the type of x keeps. Nothing else reads what is in between.
//!
//! The same function in exact arithmetic. It is computed in f32 or f64 and rounded once, where
//! the nodes round at every step: within 1e-6 of the largest output for f32, 2^-8 for f16 and
//! 2^-5 for bf16.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use super::super::ValueId;
use super::super::draft::{Draft, NewNode, NodeId};
use super::pattern::{element_type, factors, is_about, is_float, operand, power, with_scalar};
use crate::native::element::ElementType;
use crate::native::node::Attribute;

/// Of x^3 in the tanh form.
const CUBIC: f64 = 0.044715;

pub(super) fn gelu(draft: &mut Draft, id: NodeId) -> bool {
    let Some((x, y, approximate)) = find(draft, id) else {
        return false;
    };
    let name = draft.name(id);
    let new = NewNode {
        domain: "",
        op_type: "Gelu",
        version: 20,
        attributes: vec![("approximate", Attribute::String(approximate.into()))],
        inputs: [Some(x)].into_iter().collect(),
        outputs: [Some(y)].into_iter().collect(),
    };
    draft.replace(&name, vec![new])
}

fn find(draft: &Draft, id: NodeId) -> Option<(ValueId, ValueId, &'static str)> {
    let node = draft.node(id).filter(|node| node.is("Mul") || node.is("Div"))?;
    let y = node.output(0)?;
    let ty = element_type(draft, y).filter(|_| is_float(draft, y))?;
    let product = factors(draft, y)?;
    let &[a, b] = product.values.as_slice() else {
        return None;
    };
    if product.constant != 0.5 {
        return None;
    }
    for (x, sum) in [(a, b), (b, a)] {
        let Some((inner, 1.0)) = with_scalar(draft, sum, "Add") else {
            continue;
        };
        if !draft.is_read_once(sum) || !draft.is_read_once(inner) {
            continue;
        }
        if let Some(argument) = operand(draft, inner, "Erf")
            && is_scaled(draft, argument, x, ty)
        {
            return Some((x, y, "none"));
        }
        if let Some(argument) = operand(draft, inner, "Tanh")
            && draft.is_read_once(argument)
            && is_cubic(draft, argument, x, ty)
        {
            return Some((x, y, "tanh"));
        }
    }
    None
}

/// x / sqrt 2
fn is_scaled(draft: &Draft, value: ValueId, x: ValueId, ty: ElementType) -> bool {
    let Some(product) = factors(draft, value).filter(|_| draft.is_read_once(value)) else {
        return false;
    };
    product.values.as_slice() == [x] && is_about(ty, product.constant, FRAC_1_SQRT_2)
}

/// sqrt(2/pi) (x + 0.044715 x^3) or sqrt(2/pi) x (1 + 0.044715 x^2)
fn is_cubic(draft: &Draft, value: ValueId, x: ValueId, ty: ElementType) -> bool {
    let Some(product) = factors(draft, value) else {
        return false;
    };
    if !is_about(ty, product.constant, FRAC_2_PI.sqrt()) {
        return false;
    }
    match *product.values.as_slice() {
        [sum] => {
            let Some([a, b]) = super::pattern::operands(draft, sum, "Add") else {
                return false;
            };
            let cube = if a == x { b } else { a };
            (a == x || b == x) && draft.is_read_once(sum) && is_power(draft, cube, x, 3, ty)
        }
        [a, b] => {
            let sum = if a == x { b } else { a };
            let square = with_scalar(draft, sum, "Add").filter(|&(_, one)| one == 1.0);
            (a == x || b == x)
                && draft.is_read_once(sum)
                && square.is_some_and(|(square, _)| is_power(draft, square, x, 2, ty))
        }
        _ => false,
    }
}

/// 0.044715 x^n
fn is_power(draft: &Draft, value: ValueId, x: ValueId, n: usize, ty: ElementType) -> bool {
    if !draft.is_read_once(value) {
        return false;
    }
    let Some(product) = factors(draft, value).filter(|product| is_about(ty, product.constant, CUBIC)) else {
        return false;
    };
    let mut found = 0;
    for &factor in &product.values {
        if factor == x {
            found += 1;
        } else if power(draft, factor, 3.0) == Some(x) {
            found += 3;
        } else if power(draft, factor, 2.0) == Some(x) {
            found += 2;
        } else {
            return false;
        }
    }
    found == n
}
