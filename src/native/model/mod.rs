//! Reading an ONNX model: files, protobuf, tensors.
//!
//! [`Model::open`] maps or borrows the bytes and decodes them; [`Model::tensor`] turns a
//! `TensorProto` into a [`Tensor`](super::tensor::Tensor), in place where it can. Nothing
//! in a file can make this panic or allocate more than in proportion to the file.

mod file;
pub(super) mod onnx;
mod tensor_proto;

use std::path::PathBuf;

use bytes::Bytes;
use prost::Message;

use self::file::ExternalFiles;
use self::onnx::{ModelProto, TensorProto};
use super::tensor::Tensor;
use crate::component::{ComponentErrorKind, ModelSource};

/// The IR versions that are read.
const IR_VERSIONS: std::ops::RangeInclusive<i64> = 1..=13;

/// A decoded model and the files that belong to it.
pub(super) struct Model {
    pub(super) proto: ModelProto,
    path: Option<PathBuf>,
    external: ExternalFiles,
}

impl Model {
    pub(super) fn open(source: &ModelSource) -> Result<Model, ComponentErrorKind> {
        let bytes = match source {
            ModelSource::File { path, .. } => file::map_model(path)?,
            ModelSource::Memory { model, .. } => Bytes::from_owner(file::Shared(model.clone())),
        };
        let path = source.path().map(PathBuf::from);
        let invalid = |message| ComponentErrorKind::InvalidModel {
            path: path.clone(),
            message,
        };
        if bytes.is_empty() {
            return Err(invalid("is empty, not an ONNX model".into()));
        }
        let proto = ModelProto::decode(bytes)
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
        Ok(Model {
            proto,
            external: ExternalFiles::new(source),
            path,
        })
    }

    /// An error about this model.
    pub(super) fn invalid(&self, message: impl Into<String>) -> ComponentErrorKind {
        ComponentErrorKind::InvalidModel {
            path: self.path.clone(),
            message: message.into(),
        }
    }

    /// What a node's error means when the model is only being loaded.
    pub(super) fn invalid_node(&self, error: ComponentErrorKind) -> ComponentErrorKind {
        match error {
            ComponentErrorKind::Node { node, op, message } => ComponentErrorKind::InvalidNode {
                path: self.path.clone(),
                node,
                op,
                message,
            },
            error => error,
        }
    }

    /// The value of a tensor of this model; `what` names it in errors.
    pub(super) fn tensor(&mut self, proto: &TensorProto, what: &str) -> Result<Tensor, ComponentErrorKind> {
        let external = &mut self.external;
        tensor_proto::read(proto, &mut |entries| external.find(entries)).map_err(|error| {
            use tensor_proto::TensorProtoError as E;
            match error {
                E::OutOfMemory { bytes } => ComponentErrorKind::OutOfMemory {
                    bytes: bytes as u64,
                    what: what.to_owned(),
                },
                E::Io { path, source } => ComponentErrorKind::Io { path, source },
                E::Invalid(message) => ComponentErrorKind::InvalidModel {
                    path: self.path.clone(),
                    message: format!("{what}: {message}"),
                },
            }
        })
    }
}

/// Reads a serialized `TensorProto` that keeps its data inside, for tests that compare
/// with the values of ONNX's own suites.
///
/// The message says what is wrong with it.
pub fn read_tensor_proto(bytes: &[u8]) -> Result<(String, Tensor), String> {
    let proto = TensorProto::decode(Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string())?;
    let tensor = tensor_proto::read(&proto, &mut |_| {
        Err(tensor_proto::TensorProtoError::Invalid(
            "its data lies in another file".into(),
        ))
    });
    match tensor {
        Ok(tensor) => Ok((proto.name, tensor)),
        Err(error) => Err(error.to_string()),
    }
}
