//! Loop(M, cond, carried...): runs `body` on (iteration, cond, carried...), which gives
//! (cond, carried..., scanned...), until `cond` is false or M iterations are done. Without M
//! there is no limit, without `cond` it starts as true. Outputs are the last carried values,
//! which may be of any kind and change their shape, then what was scanned of all iterations,
//! stacked along a new first axis. A body that takes an optional may give what is in it. ai.onnx 1, 11, 13, 16, 19, 21, 23 to 25.

use std::sync::Arc;

use smallvec::SmallVec;

use super::stack::{empty_stack, stack};
use super::{
    Built, Control, ControlContext, ControlEntry, ControlError, describe, is_used, only, output_fact, scalar,
    take, without_dims, wrong_body,
};
use crate::native::element::{Bool, ElementType};
use crate::native::graph::Body;
use crate::native::infer::{Fact, InferContext, Kind, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::OpError;
use crate::native::tensor::Tensor;
use crate::native::value::{Value, ValueRef};
use crate::native::working::Working;

pub(in crate::native) static LOOP: ControlEntry = ControlEntry {
    bodies: &["body"],
    formals,
    build,
};

/// The trip count and the condition, before the carried values among the inputs; iteration
/// and condition among those of the body.
const BEFORE_CARRIED: usize = 2;

#[derive(Debug)]
struct Loop {
    body: [Body; 1],
    carried: usize,
    scanned: usize,
}

fn formals(_: &NodeInfo<'_>, inputs: &[Option<&Fact>]) -> Vec<Fact> {
    let tensor = |ty| Fact {
        kind: Some(Kind::Tensor),
        ty: Some(ty),
        ..Fact::default()
    };
    let carried = inputs.iter().skip(BEFORE_CARRIED).map(|fact| without_dims(*fact));
    let fixed = [tensor(ElementType::Int64), tensor(ElementType::Bool)];
    fixed.into_iter().chain(carried).collect()
}

fn build(node: &NodeInfo<'_>, bodies: Vec<Body>) -> Built {
    let body: [Body; 1] = bodies
        .try_into()
        .map_err(|_| OpError::Message("it has not one body".into()))?;
    let carried = node.input_count().saturating_sub(BEFORE_CARRIED);
    let [graph] = body.each_ref().map(|body| &body.graph);
    let fits = body[0].formals == BEFORE_CARRIED + carried
        && graph.outputs.len() > carried
        && node.output_count() < graph.outputs.len();
    if !fits {
        return Err(wrong_body(
            "body",
            format!(
                "has {} inputs and {} outputs, expected {} and one more than the node's {}, at least {}",
                body[0].formals,
                graph.outputs.len(),
                BEFORE_CARRIED + carried,
                node.output_count(),
                carried + 1
            ),
        ));
    }
    let scanned = graph.outputs.len() - 1 - carried;
    for index in 0..carried {
        let Some(before) = graph.inputs.get(BEFORE_CARRIED + index).map(|input| &input.fact) else {
            continue;
        };
        let after = output_fact(&body[0], 1 + index);
        let differ = before
            .kind
            .zip(after.kind)
            .is_some_and(|(a, b)| a != b && a.content() != b)
            || before.ty.zip(after.ty).is_some_and(|(a, b)| a != b);
        if differ {
            return Err(wrong_body(
                "body",
                format!(
                    "takes carried value {index} as {} and gives it as {}",
                    describe(before),
                    describe(&after)
                ),
            ));
        }
    }
    Ok(Box::new(Loop {
        body,
        carried,
        scanned,
    }))
}

impl Control for Loop {
    fn bodies(&self) -> &[Body] {
        &self.body
    }

    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let [body] = &self.body;
        for index in 0..self.carried {
            let given = without_dims(cx.input(BEFORE_CARRIED + index));
            let made = without_dims(Some(&output_fact(body, 1 + index)));
            cx.set_fact(
                index,
                Fact {
                    kind: made.kind.or(given.kind),
                    ty: given.ty.or(made.ty),
                    ..Fact::default()
                },
            );
        }
        for index in self.carried..self.carried + self.scanned {
            let element = output_fact(body, 1 + index);
            let dims = element.dims.map(|dims| {
                let iterations = std::iter::once(SymDim::Unknown);
                iterations.chain(dims).collect::<SymDims>()
            });
            cx.set_output(index, element.ty, dims);
        }
        Ok(())
    }

    fn run(&self, cx: &mut ControlContext<'_>) -> Result<(), ControlError> {
        let [body] = &self.body;
        let limit: Option<i64> = match cx.value(0) {
            Some(value) => Some(only(value, "the trip count")?),
            None => None,
        };
        let mut condition = match cx.value(1) {
            Some(value) => only::<Bool>(value, "the condition")?.get(),
            None => true,
        };
        let mut carried: SmallVec<[Value; 4]> = SmallVec::new();
        for index in 0..self.carried {
            let value = cx.required(BEFORE_CARRIED + index)?.to_value()?;
            carried.push(fit(value, self.taken_kind(index))?);
        }
        let mut scanned: SmallVec<[Working<Tensor>; 2]> = SmallVec::new();
        for _ in 0..self.scanned {
            scanned.push(Working::with_room(0)?);
        }

        let first_scanned = self.carried;
        let used = cx.used;
        let asked = |output: usize| output <= first_scanned || is_used(used, output - 1);
        let mut iteration: i64 = 0;
        while condition && limit.is_none_or(|limit| iteration < limit) {
            cx.check()?;
            let counter = scalar(body, 0, iteration)?;
            let is_going = scalar(body, 1, Bool::from(condition))?;
            let mut results = {
                let mut inputs: SmallVec<[ValueRef<'_>; 8]> = SmallVec::new();
                inputs.push(ValueRef::Tensor(counter.view()));
                inputs.push(ValueRef::Tensor(is_going.view()));
                inputs.extend(carried.iter().map(Value::view));
                cx.run_body(0, body, &inputs, asked)?
            };
            condition = only::<Bool>(take(&mut results, 0)?.view(), "the body's condition")?.get();
            for (index, value) in carried.iter_mut().enumerate() {
                let after = fit(take(&mut results, 1 + index)?, self.taken_kind(index))?;
                let before = std::mem::replace(value, after);
                cx.workspace.recycle(before);
            }
            for (index, elements) in scanned.iter_mut().enumerate() {
                let output = first_scanned + index;
                if cx.is_used(output) {
                    match take(&mut results, 1 + output)? {
                        Value::Tensor(tensor) => elements.add(tensor)?,
                        other => return Err(not_scannable(index, &other).into()),
                    }
                }
            }
            iteration = iteration.saturating_add(1);
        }

        for (index, value) in carried.into_iter().enumerate() {
            let value = fit(value, output_fact(body, 1 + index).kind)?;
            cx.set_output(index, Some(value));
        }
        for (index, elements) in scanned.into_iter().enumerate() {
            let output = first_scanned + index;
            if cx.is_used(output) {
                let stacked = match elements.is_empty() {
                    true => empty_stack(&output_fact(body, 1 + output), body, 1 + output, 0)?,
                    false => stack(cx.workspace, elements, 0)?,
                };
                cx.set_output(output, Some(stacked.into()));
            }
        }
        Ok(())
    }
}

impl Loop {
    /// What the body takes a carried value as.
    fn taken_kind(&self, carried: usize) -> Option<Kind> {
        let [body] = &self.body;
        let input = body.graph.inputs.get(BEFORE_CARRIED + carried);
        input.and_then(|input| input.fact.kind)
    }
}

/// A value as one of this kind: wrapped as an optional, or taken out of one.
fn fit(value: Value, kind: Option<Kind>) -> Result<Value, OpError> {
    let Some(kind) = kind else { return Ok(value) };
    let takes_optional = kind.content() != kind;
    match value {
        Value::Optional(Some(content)) if !takes_optional => Ok(Arc::unwrap_or_clone(content)),
        Value::Optional(None) if !takes_optional => Err(OpError::Message(
            "a carried value is an empty optional to the end".into(),
        )),
        value @ (Value::Tensor(_) | Value::Sequence(_)) if takes_optional => {
            Ok(Value::Optional(Some(Arc::new(value))))
        }
        value => Ok(value),
    }
}

fn not_scannable(index: usize, value: &Value) -> OpError {
    OpError::Message(format!(
        "scan output {index} of the body is {value:?}, expected a tensor"
    ))
}
