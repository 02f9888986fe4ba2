//! Positions on one axis and on three, counted, and those that the host gives and what is behind
//! them. The next token is the sum of what all tokens say, modulo 11: a token's id and 1, times its
//! positions, of which those of the second axis count double and those of the third fourfold.

use oxpipe::component::{ComponentTensor, DataType};
use oxpipe::pipeline::{Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, INT64, Model, Node, Tensor};
use serde_json::{Value, json};

use super::mixes::{TestPackage, steps};

const WEIGHTS: [i32; 3] = [1, 2, 4];

/// A program of positions, and what comes of it.
struct Program {
    name: &'static str,
    /// The decoder's port.
    dtype: i32,
    dims: &'static str,
    /// The rest of `positions`.
    fields: &'static str,
    prompt: Vec<i32>,
    /// How many of the positions the host gives.
    given: usize,
    /// Those of the prompt's tokens and of three that are chosen, axis by axis.
    positions: Vec<Vec<i32>>,
}

/// A token, the tokens of an image in two rows of three, and a token behind it; and tokens that
/// are chosen.
fn behind_an_image(behind: [[i32; 4]; 3]) -> Vec<Vec<i32>> {
    let image = [
        [0, 1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 2, 2, 2],
        [0, 1, 2, 3, 1, 2, 3],
    ];
    let axes = image.iter().zip(behind);
    axes.map(|(image, behind)| [&image[..], &behind].concat())
        .collect()
}

fn programs() -> Vec<Program> {
    let with_image = |name, fields, given, behind| Program {
        name,
        dtype: INT64,
        dims: "[3, 1, n]",
        fields,
        prompt: vec![1, 7, 7, 7, 7, 7, 7, 2],
        given,
        positions: behind_an_image(behind),
    };
    let counted: Vec<i32> = (0..6).collect();
    vec![
        with_image(
            "carry-max",
            "rank: 3, generation: processor_coordinates, continuation: carry_max, processor_summaries: [grid]",
            7,
            [[4, 5, 6, 7]; 3],
        ),
        with_image(
            "from-grid",
            "rank: 3, generation: processor_coordinates, continuation: from_grid, processor_summaries: [grid]",
            8,
            [[9, 10, 11, 12], [4, 10, 11, 12], [5, 10, 11, 12]],
        ),
        with_image(
            "linear-increment",
            "rank: 3, generation: processor_coordinates, continuation: linear_increment",
            7,
            [[2, 3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7]],
        ),
        Program {
            name: "three-axes",
            dtype: INT32,
            dims: "[3, 1, n]",
            fields: "rank: 3, generation: linear, continuation: carry_max",
            prompt: vec![3, 0, 5],
            given: 0,
            positions: vec![counted.clone(); 3],
        },
        Program {
            name: "one-axis",
            dtype: INT64,
            dims: "[1, n]",
            fields: "rank: 1, generation: linear",
            prompt: vec![3, 0, 5],
            given: 0,
            positions: vec![counted],
        },
        Program {
            name: "one-axis-given",
            dtype: INT32,
            dims: "[1, n]",
            fields: "rank: 1, generation: processor_coordinates, continuation: carry_max",
            prompt: vec![3, 0, 5],
            given: 2,
            positions: vec![vec![5, 1, 6, 7, 8, 9]],
        },
    ]
}

impl Program {
    fn package(&self) -> TestPackage {
        let metadata = format!(
            "
pipeline:
  models:
    decoder:
      filename: decoder.onnx
      type: decoder
      io:
        token_input: ids
        logits_output: logits
        state_pairs: [{{input: total, output: new_total}}]
  positions: {{input: where, {}}}
",
            self.fields
        );
        TestPackage::new(&metadata, vec![("decoder", self.model())])
    }

    fn model(&self) -> Vec<u8> {
        let choices: Vec<f32> = (0..11u8).map(f32::from).collect();
        let axes = self.positions.len();
        let weights = WEIGHTS.map(|weight| weight as f32);
        Model::new()
            .input("ids", INT64, "[batch, n]")
            .input("where", self.dtype, self.dims)
            .input("total", FLOAT, "[1]")
            .output("logits", FLOAT, "[1, 1, 11]")
            .output("new_total", FLOAT, "[1]")
            .initializer(Tensor::floats("choices", &[1, 1, 11], &choices))
            .initializer(Tensor::floats("axes", &[axes as i64, 1, 1], &weights[..axes]))
            .initializer(Tensor::floats("one", &[], &[1.0]))
            .initializer(Tensor::floats("eleven", &[], &[11.0]))
            .node(Node::new("Cast", &["ids"], &["numbers"]).int("to", FLOAT.into()))
            .node(Node::new("Add", &["numbers", "one"], &["weights"]))
            .node(Node::new("Cast", &["where"], &["places"]).int("to", FLOAT.into()))
            .node(Node::new("Mul", &["places", "axes"], &["weighted"]))
            .node(Node::new("Mul", &["weighted", "weights"], &["products"]))
            .node(Node::new("ReduceSum", &["products"], &["added"]).int("keepdims", 0))
            .node(Node::new("Add", &["total", "added"], &["new_total"]))
            .node(Node::new("Mod", &["new_total", "eleven"], &["next"]).int("fmod", 1))
            .node(Node::new("Sub", &["next", "choices"], &["away"]))
            .node(Node::new("Abs", &["away"], &["distance"]))
            .node(Node::new("Neg", &["distance"], &["logits"]))
            .encode()
    }

    /// The tokens that are chosen, three behind the prompt and one behind those.
    fn expected(&self) -> Vec<i32> {
        let mut tokens = self.prompt.clone();
        let mut sum = 0;
        for at in 0..self.prompt.len() + 3 {
            let axes = self.positions.iter().zip(WEIGHTS);
            let place: i32 = axes.map(|(axis, weight)| weight * axis[at]).sum();
            sum += (tokens[at] + 1) * place;
            if at + 1 >= self.prompt.len() {
                tokens.push(sum % 11);
            }
        }
        tokens.split_off(self.prompt.len())
    }

    /// What the host gives, and its shape.
    fn given(&self) -> (Vec<i64>, Vec<i32>) {
        let axes = self.positions.iter();
        let values = axes.flat_map(|axis| &axis[..self.given]).copied().collect();
        let shape = match self.positions.len() {
            1 => vec![1, self.given as i64],
            axes => vec![axes as i64, 1, self.given as i64],
        };
        (shape, values)
    }

    fn case(&self) -> Value {
        let (shape, values) = self.given();
        let inputs = match self.given {
            0 => json!({}),
            _ => json!({"decoder.where": {"shape": shape, "values": values}}),
        };
        json!({"prompt": self.prompt, "tokens": self.expected(), "inputs": inputs})
    }

    fn give(&self, run: &mut Run) {
        if self.given == 0 {
            return;
        }
        let (shape, values) = self.given();
        let (dtype, bytes): (_, Vec<u8>) = match self.dtype {
            INT32 => (
                DataType::Int32,
                values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            ),
            _ => (
                DataType::Int64,
                values
                    .iter()
                    .flat_map(|&value| i64::from(value).to_le_bytes())
                    .collect(),
            ),
        };
        let tensor = ComponentTensor::from_raw(dtype, &shape, &bytes).unwrap();
        run.set_input("decoder.where", tensor.view()).unwrap();
    }
}

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    for program in programs() {
        let name = format!("positions-{}", program.name);
        program.package().write(&name, &json!([program.case()]));
    }
}

#[test]
fn positions_are_those_of_the_program() {
    for program in programs() {
        program.package().for_each_mix(|pipeline| {
            for chunk_size in [None, Some(1), Some(3)] {
                let settings = RunSettings {
                    chunk_size,
                    ..RunSettings::default()
                };
                let mut run = Run::new(pipeline, &settings).unwrap();
                program.give(&mut run);
                run.append_tokens(&program.prompt).unwrap();
                assert_eq!(steps(&mut run, 4), program.expected(), "{}", program.name);
                run.rewind(program.prompt.len()).unwrap();
                assert_eq!(steps(&mut run, 4), program.expected(), "{}", program.name);
            }
        });
    }
}
