//! Writes small ONNX models, so that no test needs a binary file in the repository.
//!
//! ```ignore
//! let model = Model::new()
//!     .input("x", FLOAT, "[batch, 4]")
//!     .output("y", FLOAT, "[batch, 4]")
//!     .node(Node::new("Add", &["x", "bias"], &["y"]))
//!     .initializer(Tensor::floats("bias", &[4], &[1.0, 2.0, 3.0, 4.0]))
//!     .encode();
//! ```
//!
//! Field numbers are those of onnx.proto (ModelProto, GraphProto, NodeProto,
//! AttributeProto, TensorProto, ValueInfoProto, TypeProto). Only what tests need is here.

// TensorProto.DataType
pub const FLOAT: i32 = 1;
pub const UINT8: i32 = 2;
pub const INT8: i32 = 3;
pub const UINT16: i32 = 4;
pub const INT16: i32 = 5;
pub const INT32: i32 = 6;
pub const INT64: i32 = 7;
pub const STRING: i32 = 8;
pub const BOOL: i32 = 9;
pub const FLOAT16: i32 = 10;
pub const DOUBLE: i32 = 11;
pub const UINT32: i32 = 12;
pub const UINT64: i32 = 13;
pub const BFLOAT16: i32 = 16;
pub const FLOAT8E4M3FN: i32 = 17;
pub const FLOAT8E5M2: i32 = 19;

/// A protobuf message under construction.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn new() -> Self {
        Self::default()
    }

    /// An integer field (wire type 0); negative values take ten bytes, as protobuf has it.
    pub fn int(mut self, field: u32, value: i64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(value as u64);
        self
    }

    /// A float field (wire type 5).
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.varint(u64::from(field) << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A bytes or string field (wire type 2).
    pub fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A nested message.
    pub fn message(self, field: u32, value: Message) -> Self {
        self.bytes(field, value.0)
    }

    /// One field of this number for each message.
    pub fn messages(self, field: u32, values: impl IntoIterator<Item = Message>) -> Self {
        values
            .into_iter()
            .fold(self, |all, value| all.message(field, value))
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// TensorProto.
#[derive(Clone, Debug)]
pub struct Tensor(Message);

impl Tensor {
    /// Any TensorProto.
    pub fn of(tensor: Message) -> Self {
        Tensor(tensor)
    }

    /// Elements in `raw_data`: dense, little-endian.
    pub fn raw(name: &str, data_type: i32, dims: &[i64], data: &[u8]) -> Self {
        Tensor(Self::header(name, data_type, dims).bytes(9, data))
    }

    pub fn floats(name: &str, dims: &[i64], values: &[f32]) -> Self {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::raw(name, FLOAT, dims, &data)
    }

    pub fn ints(name: &str, dims: &[i64], values: &[i64]) -> Self {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::raw(name, INT64, dims, &data)
    }

    /// Elements in another file; `range` is offset and length in bytes, where given.
    pub fn external(
        name: &str,
        data_type: i32,
        dims: &[i64],
        location: &str,
        range: Option<(u64, u64)>,
    ) -> Self {
        let entry = |key: &str, value: String| Message::new().bytes(1, key).bytes(2, value);
        let mut entries = vec![entry("location", location.into())];
        if let Some((offset, length)) = range {
            entries.push(entry("offset", offset.to_string()));
            entries.push(entry("length", length.to_string()));
        }
        let external = 1;
        Tensor(
            Self::header(name, data_type, dims)
                .messages(13, entries)
                .int(14, external),
        )
    }

    fn header(name: &str, data_type: i32, dims: &[i64]) -> Message {
        dims.iter()
            .fold(Message::new(), |tensor, &dim| tensor.int(1, dim))
            .int(2, data_type.into())
            .bytes(8, name)
    }
}

/// A TensorProto that was put together field by field.
impl From<Message> for Tensor {
    fn from(tensor: Message) -> Self {
        Tensor(tensor)
    }
}

/// NodeProto.
#[derive(Clone, Debug)]
pub struct Node(Message);

impl Node {
    /// A node of the default domain. An empty input or output name stands for "not there".
    pub fn new(op_type: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        let node = inputs
            .iter()
            .fold(Message::new(), |node, name| node.bytes(1, name));
        let node = outputs.iter().fold(node, |node, name| node.bytes(2, name));
        Node(node.bytes(4, op_type))
    }

    pub fn name(self, name: &str) -> Self {
        Node(self.0.bytes(3, name))
    }

    pub fn domain(self, domain: &str) -> Self {
        Node(self.0.bytes(7, domain))
    }

    pub fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, 2, |attribute| attribute.int(3, value))
    }

    pub fn float(self, name: &str, value: f32) -> Self {
        self.attribute(name, 1, |attribute| attribute.float(2, value))
    }

    pub fn string(self, name: &str, value: &str) -> Self {
        self.attribute(name, 3, |attribute| attribute.bytes(4, value))
    }

    pub fn ints(self, name: &str, values: &[i64]) -> Self {
        self.attribute(name, 7, |attribute| {
            values.iter().fold(attribute, |all, &value| all.int(8, value))
        })
    }

    pub fn floats(self, name: &str, values: &[f32]) -> Self {
        self.attribute(name, 6, |attribute| {
            values.iter().fold(attribute, |all, &value| all.float(7, value))
        })
    }

    pub fn strings(self, name: &str, values: &[&str]) -> Self {
        self.attribute(name, 8, |attribute| {
            values.iter().fold(attribute, |all, value| all.bytes(9, value))
        })
    }

    pub fn tensor(self, name: &str, value: Tensor) -> Self {
        self.attribute(name, 4, |attribute| attribute.message(5, value.0))
    }

    pub fn graph(self, name: &str, value: Graph) -> Self {
        self.attribute(name, 5, |attribute| attribute.message(6, value.encode(name)))
    }

    fn attribute(self, name: &str, kind: i64, value: impl FnOnce(Message) -> Message) -> Self {
        let attribute = value(Message::new().bytes(1, name)).int(20, kind);
        Node(self.0.message(5, attribute))
    }
}

/// GraphProto: of a model, or of a node's attribute.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Message>,
    initializers: Vec<Message>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
}

impl Graph {
    pub fn new() -> Self {
        Self::default()
    }

    /// A tensor input; see [`value`] for how `dims` are written.
    pub fn input(mut self, name: &str, data_type: i32, dims: &str) -> Self {
        self.inputs.push(value(name, data_type, dims));
        self
    }

    /// A tensor output; see [`value`] for how `dims` are written.
    pub fn output(mut self, name: &str, data_type: i32, dims: &str) -> Self {
        self.outputs.push(value(name, data_type, dims));
        self
    }

    /// An output whose type is left to inference.
    pub fn untyped_output(mut self, name: &str) -> Self {
        self.outputs.push(Message::new().bytes(1, name));
        self
    }

    /// An output that is a sequence of tensors.
    pub fn sequence_output(mut self, name: &str, data_type: i32) -> Self {
        let element = Message::new().message(1, Message::new().int(1, data_type.into()));
        let ty = Message::new().message(4, Message::new().message(1, element));
        self.outputs.push(Message::new().bytes(1, name).message(2, ty));
        self
    }

    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node.0);
        self
    }

    pub fn initializer(mut self, tensor: Tensor) -> Self {
        self.initializers.push(tensor.0);
        self
    }

    fn encode(self, name: &str) -> Message {
        Message::new()
            .messages(1, self.nodes)
            .bytes(2, name)
            .messages(5, self.initializers)
            .messages(11, self.inputs)
            .messages(12, self.outputs)
    }
}

/// ValueInfoProto of a tensor. `dims` is written as messages show it: `"[1, sequence, 4]"`;
/// `?` is a dim without a name, `"[]"` a scalar, `"[...]"` declares no rank.
pub fn value(name: &str, data_type: i32, dims: &str) -> Message {
    let inner = dims
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or_else(|| panic!("dims of {name} should be in brackets, found {dims}"));
    let mut tensor = Message::new().int(1, data_type.into());
    if inner != "..." {
        let dims = inner.split(',').map(str::trim).filter(|dim| !dim.is_empty());
        let dims = dims.map(|dim| match (dim.parse::<i64>(), dim) {
            (Ok(size), _) => Message::new().int(1, size),
            (Err(_), "?") => Message::new(),
            (Err(_), symbol) => Message::new().bytes(2, symbol),
        });
        tensor = tensor.message(2, Message::new().messages(1, dims));
    }
    Message::new()
        .bytes(1, name)
        .message(2, Message::new().message(1, tensor))
}

/// ModelProto: IR version 8, opset 17, one graph.
#[derive(Clone, Debug)]
pub struct Model {
    ir_version: i64,
    opsets: Vec<(String, i64)>,
    metadata: Vec<(String, String)>,
    producer: Option<(String, String)>,
    graph: Graph,
    functions: Vec<Message>,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            ir_version: 8,
            opsets: vec![(String::new(), 17)],
            metadata: Vec::new(),
            producer: None,
            graph: Graph::new(),
            functions: Vec::new(),
        }
    }
}

impl Model {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn ir_version(mut self, version: i64) -> Self {
        self.ir_version = version;
        self
    }

    /// Sets the version of a domain; `""` is ONNX's own.
    pub fn opset(mut self, domain: &str, version: i64) -> Self {
        self.opsets.retain(|(known, _)| known != domain);
        self.opsets.push((domain.into(), version));
        self
    }

    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    pub fn producer(mut self, name: &str, version: &str) -> Self {
        self.producer = Some((name.into(), version.into()));
        self
    }

    /// A model-local function of domain `local`, whose nodes are of ONNX's opset 17.
    pub fn function(mut self, name: &str, inputs: &[&str], outputs: &[&str], nodes: Vec<Node>) -> Self {
        let function = Message::new().bytes(1, name);
        let function = inputs.iter().fold(function, |all, input| all.bytes(4, input));
        let function = outputs.iter().fold(function, |all, output| all.bytes(5, output));
        let function = function
            .messages(7, nodes.into_iter().map(|node| node.0))
            .message(9, Message::new().bytes(1, "").int(2, 17))
            .message(9, Message::new().bytes(1, "local").int(2, 1))
            .bytes(10, "local");
        self.functions.push(function);
        self
    }

    /// Changes the graph.
    pub fn graph(mut self, change: impl FnOnce(Graph) -> Graph) -> Self {
        self.graph = change(self.graph);
        self
    }

    pub fn input(self, name: &str, data_type: i32, dims: &str) -> Self {
        self.graph(|graph| graph.input(name, data_type, dims))
    }

    pub fn output(self, name: &str, data_type: i32, dims: &str) -> Self {
        self.graph(|graph| graph.output(name, data_type, dims))
    }

    pub fn node(self, node: Node) -> Self {
        self.graph(|graph| graph.node(node))
    }

    pub fn initializer(self, tensor: Tensor) -> Self {
        self.graph(|graph| graph.initializer(tensor))
    }

    pub fn encode(self) -> Vec<u8> {
        let mut model = Message::new().int(1, self.ir_version);
        if let Some((name, version)) = self.producer {
            model = model.bytes(2, name).bytes(3, version);
        }
        let metadata = self.metadata.into_iter();
        let metadata = metadata.map(|(key, value)| Message::new().bytes(1, key).bytes(2, value));
        let opsets = self.opsets.into_iter();
        let opsets = opsets.map(|(domain, version)| Message::new().bytes(1, domain).int(2, version));
        model
            .message(7, self.graph.encode("graph"))
            .messages(8, opsets)
            .messages(14, metadata)
            .messages(25, self.functions)
            .into_bytes()
    }
}
