//! If(cond): the outputs of `then_branch` when `cond` is true, else those of `else_branch`.
//! The branches take no inputs but what they capture. ai.onnx 1, 11, 13, 16, 19, 21, 23 to 25.

use super::{
    Built, Control, ControlContext, ControlEntry, ControlError, describe, is_used, only, output_fact,
    wrong_body,
};
use crate::native::element::{Bool, ElementType};
use crate::native::graph::Body;
use crate::native::infer::{Fact, InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::OpError;

pub(in crate::native) static IF: ControlEntry = ControlEntry {
    bodies: &["then_branch", "else_branch"],
    formals: |_, _| Vec::new(),
    build,
};

const THEN: usize = 0;
const ELSE: usize = 1;

#[derive(Debug)]
struct If {
    /// What holds for condition true and false.
    branches: [Body; 2],
}

fn build(node: &NodeInfo<'_>, bodies: Vec<Body>) -> Built {
    let branches: [Body; 2] = bodies
        .try_into()
        .map_err(|_| OpError::Message("it has not two branches".into()))?;
    for (body, name) in branches.iter().zip(IF.bodies) {
        if body.formals != 0 || body.graph.outputs.len() < node.output_count() {
            return Err(wrong_body(
                name,
                format!(
                    "has {} inputs and {} outputs, expected none and {}",
                    body.formals,
                    body.graph.outputs.len(),
                    node.output_count()
                ),
            ));
        }
    }
    Ok(Box::new(If { branches }))
}

impl Control for If {
    fn bodies(&self) -> &[Body] {
        &self.branches
    }

    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(ty) = cx.required(0)?.ty.filter(|&ty| ty != ElementType::Bool) {
            return Err(OpError::WrongType {
                what: "the condition".into(),
                found: ty,
                expected: "bool".into(),
            });
        }
        for index in 0..cx.output_count() {
            let [then, otherwise] = &self.branches;
            let (a, b) = (output_fact(then, index), output_fact(otherwise, index));
            cx.set_fact(index, either(a, b, index)?);
        }
        Ok(())
    }

    fn run(&self, cx: &mut ControlContext<'_>) -> Result<(), ControlError> {
        let condition: Bool = only(cx.required(0)?, "the condition")?;
        let index = if condition.get() { THEN } else { ELSE };
        let Some(branch) = self.branches.get(index) else {
            return Ok(());
        };
        let used = cx.used;
        let results = cx.run_body(index, branch, &[], |output| is_used(used, output))?;
        for (index, value) in results.into_iter().enumerate() {
            cx.set_output(index, value);
        }
        Ok(())
    }
}

/// What holds whichever branch runs.
fn either(a: Fact, b: Fact, index: usize) -> Result<Fact, OpError> {
    let differ =
        a.kind.zip(b.kind).is_some_and(|(a, b)| a != b) || a.ty.zip(b.ty).is_some_and(|(a, b)| a != b);
    if differ {
        return Err(OpError::Message(format!(
            "output {index} is {} by one branch and {} by the other",
            describe(&a),
            describe(&b)
        )));
    }
    let dims = match (a.dims, b.dims) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            let both = |(a, b): (&SymDim, &SymDim)| if a == b { *a } else { SymDim::Unknown };
            Some(a.iter().zip(&b).map(both).collect())
        }
        _ => None,
    };
    Ok(Fact {
        kind: a.kind.or(b.kind),
        ty: a.ty.or(b.ty),
        dims,
        value: None,
    })
}
