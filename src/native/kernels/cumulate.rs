//! Running sums and products along one axis, which input 1 names:
//!
//!   CumSum     y[i] = x[0] + ... + x[i]    ai.onnx 11, 14
//!   CumProd    y[i] = x[0] * ... * x[i]    ai.onnx 26
//!
//! `exclusive` leaves x[i] itself out, `reverse` runs from the end. Any number; integers wrap,
//! f16 and bf16 run in f32, each y rounded once.

use super::Built;
use super::dims::{Lanes, axis, one_int};
use super::dispatch::{with_integer, with_number};
use super::infer::like_first_input;
use super::number::{Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::Looks;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct Cumulate {
    product: bool,
    exclusive: bool,
    reverse: bool,
}

fn build(node: &NodeInfo<'_>, product: bool) -> Built {
    Ok(Box::new(Cumulate {
        product,
        exclusive: node.flag_or("exclusive", false)?,
        reverse: node.flag_or("reverse", false)?,
    }))
}

pub(in crate::native) fn cum_sum(node: &NodeInfo<'_>) -> Built {
    build(node, false)
}

pub(in crate::native) fn cum_prod(node: &NodeInfo<'_>) -> Built {
    build(node, true)
}

impl Operator for Cumulate {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let axis = axis(one_int(&cx.required(1)?, 1)?, x.rank())?;
        let lanes = Lanes::along(x.dims(), axis);
        with_number!(x.element_type(), T => self.run_as::<T>(cx, &x, lanes))
    }
}

impl Cumulate {
    fn run_as<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        lanes: Lanes,
    ) -> Result<(), OpError> {
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        let x = x.slice::<T>()?;
        match self.product {
            false => self.scan(lanes, x, y, T::Wide::ZERO, Scalar::add),
            true => self.scan(lanes, x, y, T::Wide::ONE, Scalar::mul),
        }
        Ok(())
    }

    fn scan<T: Number>(
        &self,
        lanes: Lanes,
        x: &[T],
        y: &mut [T],
        neutral: T::Wide,
        step: impl Fn(T::Wide, T::Wide) -> T::Wide,
    ) {
        let mut looks = Looks::default();
        for start in lanes.starts() {
            let mut so_far = neutral;
            for i in 0..lanes.len {
                looks.count(1);
                let i = if self.reverse { lanes.len - 1 - i } else { i };
                let at = start + i * lanes.inner;
                let next = step(so_far, x[at].widen());
                y[at] = T::narrow(if self.exclusive { so_far } else { next });
                so_far = next;
            }
        }
    }
}
