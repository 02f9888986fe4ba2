//! Reading an ONNX model: files, protobuf, tensors.
//!
//! [`Model::open`] maps or borrows the bytes and decodes them ([`Model::read`] does so again); [`Model::tensor`] turns a
//! `TensorProto` into a [`Tensor`](super::tensor::Tensor), in place where it can. Nothing
//! in a file can make this panic or allocate more than in proportion to the file.

mod file;
pub(super) mod onnx;
mod parts;
mod tensor_proto;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use self::file::{ExternalFiles, MappedFiles};
pub use self::file::{ModelFiles, UnknownModelFiles};
use self::onnx::{ModelProto, OptionalProto, SequenceProto, TensorProto};
use super::element::ElementType;
use super::tensor::Tensor;
use super::value::{Sequence, Value};
use super::working::Working;
use crate::component::{ComponentErrorKind, ModelSource, PortType};

/// The IR versions that are read.
const IR_VERSIONS: std::ops::RangeInclusive<i64> = 1..=14;

/// A decoded model and the files that belong to it.
pub(super) struct Model {
    pub(super) proto: ModelProto,
    sources: Sources,
}

/// Where a model comes from: what it takes to read the same model again, whatever happened to its
/// files.
#[derive(Clone)]
pub(super) struct Sources {
    bytes: Bytes,
    path: Option<PathBuf>,
    external: ExternalFiles,
    files: MappedFiles,
}

impl Sources {
    /// An error if a file of the model has been changed since it was mapped.
    pub(super) fn check_unchanged(&self) -> Result<(), ComponentErrorKind> {
        self.files.check_unchanged()
    }
}

impl Model {
    pub(super) fn open(source: &ModelSource, how: ModelFiles) -> Result<Model, ComponentErrorKind> {
        let mut files = MappedFiles::new(how);
        let bytes = match source {
            ModelSource::File { path, .. } => files.map_model(path)?,
            ModelSource::Memory { model, .. } => Bytes::from_owner(file::Shared(model.clone())),
        };
        Model::read(Sources {
            bytes,
            path: source.path().map(PathBuf::from),
            external: ExternalFiles::new(source),
            files,
        })
    }

    pub(super) fn read(sources: Sources) -> Result<Model, ComponentErrorKind> {
        let invalid = |message| ComponentErrorKind::InvalidModel {
            path: sources.path.clone(),
            message,
        };
        if sources.bytes.is_empty() {
            return Err(invalid("is empty, not an ONNX model".into()));
        }
        parts::check(&sources.bytes).map_err(invalid)?;
        let proto = ModelProto::decode(sources.bytes.clone())
            .map_err(|error| invalid(format!("is not an ONNX model, or a truncated one: {error}")))?;
        if proto.graph.is_none() {
            return Err(invalid("is not an ONNX model: it has no graph".into()));
        }
        match proto.ir_version {
            Some(version) if IR_VERSIONS.contains(&version) => {}
            Some(version) => {
                let newest = IR_VERSIONS.end();
                return Err(invalid(format!(
                    "has IR version {version}; versions up to {newest} are read"
                )));
            }
            None => return Err(invalid("is not an ONNX model: it has no IR version".into())),
        }
        Ok(Model { proto, sources })
    }

    /// What it takes to read this model again, unless that would keep memory of the caller which
    /// may not be needed any more.
    pub(super) fn sources(&self) -> Option<Sources> {
        let are_files = self.sources.path.is_some();
        are_files.then(|| self.sources.clone())
    }

    /// Lets the system take back the memory of a weight of which a copy is used.
    pub(super) fn give_back(&self, weight: &[u8]) {
        self.sources.files.give_back(weight);
    }

    /// An error about this model.
    pub(super) fn invalid(&self, message: impl Into<String>) -> ComponentErrorKind {
        ComponentErrorKind::InvalidModel {
            path: self.sources.path.clone(),
            message: message.into(),
        }
    }

    /// What a node's error means when the model is only being loaded.
    pub(super) fn invalid_node(&self, error: ComponentErrorKind) -> ComponentErrorKind {
        match error {
            ComponentErrorKind::Node { node, op, message } => ComponentErrorKind::InvalidNode {
                path: self.sources.path.clone(),
                node,
                op,
                message,
            },
            error => error,
        }
    }

    /// The value of a tensor of this model; `what` names it in errors.
    pub(super) fn tensor(&mut self, proto: &TensorProto, what: &str) -> Result<Tensor, ComponentErrorKind> {
        let Sources { external, files, .. } = &mut self.sources;
        tensor_proto::read(proto, &mut |entries| external.find(files, entries)).map_err(|error| {
            use tensor_proto::TensorProtoError as E;
            match error {
                E::OutOfMemory { bytes } => ComponentErrorKind::OutOfMemory {
                    bytes: bytes as u64,
                    what: what.to_owned(),
                },
                E::Io { path, source } => ComponentErrorKind::Io { path, source },
                E::Invalid(message) => ComponentErrorKind::InvalidModel {
                    path: self.sources.path.clone(),
                    message: format!("{what}: {message}"),
                },
            }
        })
    }
}

/// Reads a serialized `TensorProto`, `SequenceProto` or `OptionalProto`, whichever the declared
/// type of a graph's input or output asks for: for the same tests.
pub fn read_value_proto(bytes: &[u8], ty: &PortType) -> Result<Value, String> {
    let PortType::Other(name) = ty else {
        return read_tensor_proto(bytes).map(|(_, tensor)| tensor.into());
    };
    let bytes = Bytes::copy_from_slice(bytes);
    let element = |name: &str| {
        let name = name.rsplit('(').next().unwrap_or_default().trim_end_matches(')');
        ElementType::ALL.into_iter().find(|ty| ty.name() == name)
    };
    let sequence = |proto: &SequenceProto| {
        let tensors = proto
            .tensor_values
            .iter()
            .map(inline_tensor)
            .collect::<Result<Vec<_>, _>>()?;
        let ty = element(name).ok_or_else(|| format!("{name} is of no known element type"))?;
        Working::of(tensors)
            .and_then(|tensors| Sequence::new(ty, tensors))
            .map(Value::from)
            .map_err(|error| error.to_string())
    };
    if name.starts_with("seq(") {
        let proto = SequenceProto::decode(bytes).map_err(|error| error.to_string())?;
        return sequence(&proto);
    }
    if name.starts_with("optional(") {
        let proto = OptionalProto::decode(bytes).map_err(|error| error.to_string())?;
        let content = match (&proto.tensor_value, &proto.sequence_value) {
            (Some(tensor), _) => Some(inline_tensor(tensor)?.into()),
            (None, Some(proto)) => Some(sequence(proto)?),
            (None, None) => None,
        };
        return Ok(Value::Optional(content.map(Arc::new)));
    }
    let proto = TensorProto::decode(bytes).map_err(|error| error.to_string())?;
    inline_tensor(&proto).map(Value::from)
}

/// Reads a serialized `TensorProto` that keeps its data inside, for tests that compare
/// with the values of ONNX's own suites.
///
/// The message says what is wrong with it.
pub fn read_tensor_proto(bytes: &[u8]) -> Result<(String, Tensor), String> {
    let proto = TensorProto::decode(Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string())?;
    let tensor = inline_tensor(&proto)?;
    Ok((proto.name, tensor))
}

fn inline_tensor(proto: &TensorProto) -> Result<Tensor, String> {
    let tensor = tensor_proto::read(proto, &mut |_| {
        Err(tensor_proto::TensorProtoError::Invalid(
            "its data lies in another file".into(),
        ))
    });
    tensor.map_err(|error| error.to_string())
}
