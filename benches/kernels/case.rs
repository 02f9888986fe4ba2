//! A model of one node, its inputs, and room for its outputs.

use std::mem::MaybeUninit;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput};
use oxpipe::component::{
    ComponentSession, ComponentTensor, DataType, Input, ModelSource, Output, OutputResult, RunControl,
    byte_len,
};
use oxpipe::native::workers::Workers;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{Model, Node};

use super::values::Values;

/// The threads that each case is run on.
pub const THREADS: [usize; 2] = [1, 2];

pub struct Case {
    op_type: &'static str,
    domain: &'static str,
    attributes: Vec<Box<dyn Fn(Node) -> Node>>,
    inputs: Vec<Given>,
    outputs: Vec<(DataType, Vec<i64>)>,
    /// What is counted, where it is not the bytes of all inputs and outputs.
    counted: Option<Throughput>,
}

enum Given {
    Fed(Values),
    Constant(Values),
    LeftOut,
}

/// A node of ai.onnx; of com.microsoft with [`contrib`](Case::contrib).
pub fn case(op_type: &'static str) -> Case {
    Case {
        op_type,
        domain: "",
        attributes: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        counted: None,
    }
}

impl Case {
    pub fn contrib(mut self) -> Self {
        self.domain = "com.microsoft";
        self
    }

    /// The next input, which is one of the model's.
    pub fn fed(mut self, values: Values) -> Self {
        self.inputs.push(Given::Fed(values));
        self
    }

    /// The next input, which is a constant.
    pub fn constant(mut self, values: Values) -> Self {
        self.inputs.push(Given::Constant(values));
        self
    }

    /// As many inputs that are not given.
    pub fn left_out(mut self, count: usize) -> Self {
        self.inputs.extend((0..count).map(|_| Given::LeftOut));
        self
    }

    pub fn gives(mut self, dtype: DataType, dims: &[usize]) -> Self {
        self.outputs
            .push((dtype, dims.iter().map(|&dim| dim as i64).collect()));
        self
    }

    pub fn int(self, name: &'static str, value: i64) -> Self {
        self.attribute(move |node| node.int(name, value))
    }

    pub fn ints(self, name: &'static str, values: &'static [i64]) -> Self {
        self.attribute(move |node| node.ints(name, values))
    }

    pub fn string(self, name: &'static str, value: &'static str) -> Self {
        self.attribute(move |node| node.string(name, value))
    }

    fn attribute(mut self, add: impl Fn(Node) -> Node + 'static) -> Self {
        self.attributes.push(Box::new(add));
        self
    }

    /// Throughput counts these multiply-adds, not bytes.
    pub fn products(mut self, count: usize) -> Self {
        self.counted = Some(Throughput::Elements(count as u64));
        self
    }

    /// Throughput counts these bytes: not all of an input is read.
    pub fn bytes(mut self, count: usize) -> Self {
        self.counted = Some(Throughput::Bytes(count as u64));
        self
    }

    fn throughput(&self) -> Throughput {
        if let Some(counted) = &self.counted {
            return counted.clone();
        }
        let read: usize = self.inputs.iter().map(Given::byte_len).sum();
        let written: usize = self.outputs.iter().map(room).sum();
        Throughput::Bytes((read + written) as u64)
    }

    /// Runs it on 1 and on 2 threads, as `group/name/threads`.
    pub fn bench(&self, criterion: &mut Criterion, group: &str, name: &str) {
        let mut group = criterion.benchmark_group(group);
        group.throughput(self.throughput());
        for threads in THREADS {
            // Made only if the filter of the command line lets the bench run.
            let mut loaded = None;
            group.bench_function(BenchmarkId::new(name, threads), |bencher| {
                let loaded = loaded.get_or_insert_with(|| Loaded::new(self, threads));
                bencher.iter(|| loaded.run());
            });
        }
    }
}

impl Given {
    fn byte_len(&self) -> usize {
        match self {
            Given::Fed(values) | Given::Constant(values) => values.byte_len(),
            Given::LeftOut => 0,
        }
    }
}

fn room((dtype, dims): &(DataType, Vec<i64>)) -> usize {
    byte_len(*dtype, dims).expect("a small shape")
}

/// A case that is ready to run.
struct Loaded {
    session: Box<dyn ComponentSession>,
    inputs: Vec<(String, ComponentTensor)>,
    outputs: Vec<(String, Box<[MaybeUninit<u8>]>)>,
}

impl Loaded {
    fn new(case: &Case, threads: usize) -> Self {
        let mut model = Model::new().opset("", 24).opset("com.microsoft", 1);
        let mut names = Vec::new();
        let mut inputs = Vec::new();
        for (i, given) in case.inputs.iter().enumerate() {
            let name = match given {
                Given::LeftOut => String::new(),
                _ => format!("x{i}"),
            };
            match given {
                Given::LeftOut => {}
                Given::Fed(values) => {
                    model = model.input(&name, values.dtype.code() as i32, "[...]");
                    inputs.push((name.clone(), values.tensor()));
                }
                Given::Constant(values) => {
                    model = model.initializer(values.initializer(&name));
                }
            }
            names.push(name);
        }
        let mut outputs = Vec::new();
        for (i, output) in case.outputs.iter().enumerate() {
            let name = format!("y{i}");
            model = model.output(&name, output.0.code() as i32, "[...]");
            outputs.push((name, Box::new_uninit_slice(room(output))));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let results: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        let node = Node::new(case.op_type, &names, &results).domain(case.domain);
        let node = case.attributes.iter().fold(node, |node, add| add(node));
        let source = ModelSource::Memory {
            label: case.op_type.into(),
            model: Arc::new(model.node(node).encode()),
            external: Vec::new(),
        };
        let options = NativeOptions {
            workers: Workers::new(threads),
            ..NativeOptions::default()
        };
        let session = NativeSession::load(case.op_type, &source, &options).expect("the model is right");
        Loaded {
            session: Box::new(session),
            inputs,
            outputs,
        }
    }

    fn run(&mut self) {
        let inputs: Vec<_> = self
            .inputs
            .iter()
            .map(|(name, tensor)| Input {
                name,
                value: tensor.view(),
            })
            .collect();
        let mut outputs: Vec<_> = self
            .outputs
            .iter_mut()
            .map(|(name, memory)| Output::into_room(name, memory))
            .collect();
        self.session
            .run(&inputs, &mut outputs, &RunControl::default())
            .expect("the inputs are right");
        for output in &outputs {
            assert!(
                matches!(output.result, OutputResult::InRoom { .. }),
                "{:?}",
                output.result
            );
        }
    }
}
