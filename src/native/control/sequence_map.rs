//! SequenceMap(sequence, others...): runs `body` on the tensors at each position of the
//! sequences, and on the other inputs as they are, and gives a sequence of each of its
//! outputs. ai.onnx 17.

use smallvec::SmallVec;

use super::{
    Built, Control, ControlContext, ControlEntry, ControlError, is_used, output_fact, take, wrong_body,
};
use crate::native::graph::Body;
use crate::native::infer::{Fact, InferContext, Kind};
use crate::native::node::NodeInfo;
use crate::native::operator::OpError;
use crate::native::tensor::Tensor;
use crate::native::value::{Sequence, Value, ValueRef};
use crate::native::working::Working;

pub(in crate::native) static SEQUENCE_MAP: ControlEntry = ControlEntry {
    bodies: &["body"],
    formals: |_, inputs| inputs.iter().map(|fact| element(*fact)).collect(),
    build,
};

#[derive(Debug)]
struct SequenceMap {
    body: [Body; 1],
    inputs: usize,
}

/// What the body gets of an input.
fn element(fact: Option<&Fact>) -> Fact {
    Fact {
        kind: fact.and_then(|fact| fact.kind).map(|_| Kind::Tensor),
        ty: fact.and_then(|fact| fact.ty),
        ..Fact::default()
    }
}

fn build(node: &NodeInfo<'_>, bodies: Vec<Body>) -> Built {
    let body: [Body; 1] = bodies
        .try_into()
        .map_err(|_| OpError::Message("it has not one body".into()))?;
    let (inputs, outputs) = (node.input_count(), node.output_count());
    if body[0].formals != inputs || body[0].graph.outputs.len() < outputs || inputs == 0 {
        return Err(wrong_body(
            "body",
            format!(
                "has {} inputs and {} outputs, expected {inputs} and {outputs}",
                body[0].formals,
                body[0].graph.outputs.len()
            ),
        ));
    }
    Ok(Box::new(SequenceMap { body, inputs }))
}

impl Control for SequenceMap {
    fn bodies(&self) -> &[Body] {
        &self.body
    }

    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let [body] = &self.body;
        for index in 0..cx.output_count() {
            cx.set_kind(index, Some(Kind::Sequence), output_fact(body, index).ty);
        }
        Ok(())
    }

    fn run(&self, cx: &mut ControlContext<'_>) -> Result<(), ControlError> {
        let [body] = &self.body;
        let mut inputs: SmallVec<[ValueRef<'_>; 4]> = SmallVec::new();
        for index in 0..self.inputs {
            inputs.push(cx.required(index)?);
        }
        let length = match inputs.first() {
            Some(ValueRef::Sequence(first)) => first.tensors().len(),
            other => {
                return Err(OpError::Message(format!("input 0 is {other:?}, expected a sequence")).into());
            }
        };
        let used = cx.used;
        let mut made: SmallVec<[Working<Tensor>; 2]> = SmallVec::new();
        for _ in &body.graph.outputs {
            made.push(Working::with_room(0)?);
        }
        for at in 0..length {
            cx.check()?;
            let mut given: SmallVec<[ValueRef<'_>; 4]> = SmallVec::new();
            for (index, input) in inputs.iter().enumerate() {
                given.push(match *input {
                    ValueRef::Sequence(sequence) => {
                        let tensor = sequence.tensors().get(at).ok_or_else(|| {
                            OpError::Message(format!("input {index} is {input:?}, input 0 has {length}"))
                        })?;
                        ValueRef::Tensor(tensor.view())
                    }
                    other => other,
                });
            }
            let mut results = cx.run_body(0, body, &given, |output| is_used(used, output))?;
            for (index, made) in made
                .iter_mut()
                .enumerate()
                .filter(|(index, _)| is_used(used, *index))
            {
                match take(&mut results, index)? {
                    Value::Tensor(tensor) => made.add(tensor)?,
                    other => {
                        return Err(
                            OpError::Message(format!("the body gave {other:?}, expected a tensor")).into(),
                        );
                    }
                }
            }
        }
        for (index, tensors) in made
            .into_iter()
            .enumerate()
            .filter(|(index, _)| is_used(used, *index))
        {
            let ty = tensors
                .first()
                .map(Tensor::element_type)
                .or(output_fact(body, index).ty);
            let ty =
                ty.ok_or_else(|| OpError::Message(format!("the type of output {index} is not known")))?;
            cx.set_output(index, Some(Sequence::new(ty, tensors)?.into()));
        }
        Ok(())
    }
}
