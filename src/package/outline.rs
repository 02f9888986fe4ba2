use std::collections::{BTreeSet, HashSet};
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::component::{
    Charge, ComponentError, ComponentErrorKind, ComponentIo, DataType, Dim, FileIdentity, LocationError,
    MemoryAccount, ModelSource, Port, PortType, locate, open_regular,
};

/// What can be told of a model file without loading it: its size, its external data and
/// its ports. Weights are skipped over, not read.
///
/// Field numbers are those of `onnx.proto`: ModelProto.graph 7; GraphProto.initializer 5,
/// input 11, output 12; TensorProto.name 8, external_data 13; StringStringEntryProto.key
/// 1, value 2; ValueInfoProto.name 1, type 2; TypeProto.tensor_type 1; Tensor.elem_type 1,
/// shape 2; TensorShapeProto.dim 1; Dimension.dim_value 1, dim_param 2.
#[derive(Debug)]
pub(crate) struct ModelOutline {
    /// Bytes of the model file and of the files its weights lie in.
    pub bytes: u64,
    /// The same of each.
    files: Vec<(FileId, u64)>,
    pub io: ComponentIo,
}

/// What tells a file from others; of one in memory, where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileId {
    Disk(FileIdentity),
    Memory(usize),
}

impl ModelOutline {
    /// The names of a model's external data, in their order.
    pub fn external_names(source: &ModelSource) -> io::Result<Vec<String>> {
        let scan = match source {
            ModelSource::File { path, .. } => {
                let file = open_regular(path)?;
                let len = file.metadata()?.len();
                scan_model(&mut BufReader::with_capacity(1 << 16, file), len)?
            }
            ModelSource::Memory { model, .. } => {
                let model = (**model).as_ref();
                scan_model(&mut Cursor::new(model), model.len() as u64)?
            }
        };
        Ok(scan.external.into_iter().collect())
    }

    /// The files that a model's external data lies in.
    pub fn external_files(source: &ModelSource) -> io::Result<Vec<PathBuf>> {
        let ModelSource::File { path, root } = source else {
            return Ok(Vec::new());
        };
        let external = Self::external_names(source)?.into_iter().collect();
        external_files(&external, path, root)
    }

    /// As [`read`](Self::read), with the error of a component.
    pub fn of_component(name: &str, source: &ModelSource) -> Result<Self, ComponentError> {
        Self::read(source).map_err(|error| outline_error(name, source, error))
    }

    /// Takes the sizes of the model's files off what an account may take, before they are opened; but
    /// of those that are in `counted` already, to which the others come.
    pub fn charge(
        account: &MemoryAccount,
        counted: &mut HashSet<FileId>,
        name: &str,
        source: &ModelSource,
    ) -> Result<Charge, ComponentError> {
        let files = Self::of_component(name, source)?.files;
        let fresh = files.iter().filter(|(file, _)| counted.insert(*file));
        let bytes = fresh.fold(0u64, |all, (_, bytes)| all.saturating_add(*bytes));
        account.charge(bytes).map_err(|_| {
            let kind = account.over_limit(bytes, "its model".to_owned());
            ComponentError::new(name, kind)
        })
    }

    pub fn read(source: &ModelSource) -> io::Result<Self> {
        match source {
            ModelSource::File { path, root } => {
                let file = open_regular(path)?;
                let metadata = file.metadata()?;
                let (id, len) = (FileId::Disk(FileIdentity::of(&metadata)), metadata.len());
                let scan = scan_model(&mut BufReader::with_capacity(1 << 16, file), len)?;
                let mut files = vec![(id, len)];
                for found in external_files(&scan.external, path, root)? {
                    let metadata = open_regular(&found)?.metadata()?;
                    files.push((FileId::Disk(FileIdentity::of(&metadata)), metadata.len()));
                }
                Ok(scan.outline(files))
            }
            ModelSource::Memory { model, external, .. } => {
                let model = (**model).as_ref();
                let len = model.len() as u64;
                let scan = scan_model(&mut Cursor::new(model), len)?;
                let mut files = vec![(FileId::Memory(model.as_ptr().addr()), len)];
                for location in &scan.external {
                    let found = external.iter().find(|(name, _)| name == location);
                    let (_, data) = found.ok_or_else(|| {
                        io::Error::new(
                            io::ErrorKind::NotFound,
                            format!("no external data \"{location}\""),
                        )
                    })?;
                    let data = (**data).as_ref();
                    files.push((FileId::Memory(data.as_ptr().addr()), data.len() as u64));
                }
                Ok(scan.outline(files))
            }
        }
    }
}

/// The error of a component whose model cannot be outlined.
pub(crate) fn outline_error(component: &str, model: &ModelSource, error: io::Error) -> ComponentError {
    let path = model.path().map(PathBuf::from);
    let kind = match (path, error.kind()) {
        (Some(path), kind) if kind != io::ErrorKind::InvalidData => {
            ComponentErrorKind::Io { path, source: error }
        }
        (path, _) => ComponentErrorKind::InvalidModel {
            path,
            message: error.to_string(),
        },
    };
    ComponentError::new(component, kind)
}

fn external_files(external: &BTreeSet<String>, path: &Path, root: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let found = |location: &String| {
        locate(folder, root, location).map_err(|error| match error {
            LocationError::Io { source, .. } => source,
            LocationError::Outside => {
                let message = format!(
                    "external data \"{location}\" lies outside {}, where it must stay",
                    root.display()
                );
                io::Error::new(io::ErrorKind::InvalidData, message)
            }
        })
    };
    external.iter().map(found).collect()
}

#[derive(Default)]
struct Scan {
    external: BTreeSet<String>,
    initializers: BTreeSet<String>,
    io: ComponentIo,
}

impl Scan {
    fn outline(mut self, files: Vec<(FileId, u64)>) -> ModelOutline {
        // Old models list their weights among the inputs; an input with a default is one
        // that may be left out, and a weight is never fed.
        for port in &mut self.io.inputs {
            port.optional = self.initializers.contains(&port.name);
        }
        ModelOutline {
            bytes: files.iter().fold(0, |all, (_, bytes)| all.saturating_add(*bytes)),
            files,
            io: self.io,
        }
    }
}

/// One field of a protobuf message.
enum Field {
    Varint(u64),
    /// Length-delimited: where it ends. The reader stands at its start.
    Bytes {
        end: u64,
    },
    Other,
}

struct Wire<'r, R> {
    reader: &'r mut R,
    at: u64,
}

impl<R: Read + Seek> Wire<'_, R> {
    fn broken(message: &str) -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not an ONNX model: {message}"),
        )
    }

    fn varint(&mut self, end: u64) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            if self.at >= end {
                return Err(Self::broken("a number runs past its message"));
            }
            let mut byte = [0u8];
            self.reader.read_exact(&mut byte)?;
            self.at += 1;
            let [byte] = byte;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Self::broken("a number of more than 64 bits"))
    }

    /// The next field of a message that ends at `end`.
    fn field(&mut self, end: u64) -> io::Result<Option<(u64, Field)>> {
        if self.at >= end {
            return Ok(None);
        }
        let key = self.varint(end)?;
        let field = match key & 7 {
            0 => Field::Varint(self.varint(end)?),
            1 => self.skip_other(8, end)?,
            5 => self.skip_other(4, end)?,
            2 => {
                let len = self.varint(end)?;
                let stop = self
                    .at
                    .checked_add(len)
                    .filter(|&stop| stop <= end)
                    .ok_or_else(|| Self::broken("a field runs past its message"))?;
                Field::Bytes { end: stop }
            }
            _ => return Err(Self::broken("an unknown wire type")),
        };
        Ok(Some((key >> 3, field)))
    }

    fn skip_other(&mut self, len: u64, end: u64) -> io::Result<Field> {
        if self.at + len > end {
            return Err(Self::broken("a field runs past its message"));
        }
        self.skip_to(self.at + len)?;
        Ok(Field::Other)
    }

    fn skip_to(&mut self, to: u64) -> io::Result<()> {
        // Short hops stay within the buffer of a BufReader when they are read.
        let hop = to.saturating_sub(self.at);
        if hop < 1 << 12 {
            io::copy(&mut self.reader.by_ref().take(hop), &mut io::sink())?;
        } else {
            self.reader.seek(SeekFrom::Start(to))?;
        }
        self.at = to;
        Ok(())
    }

    fn text(&mut self, end: u64) -> io::Result<String> {
        let len = end.saturating_sub(self.at);
        if len > 1 << 20 {
            return Err(Self::broken("a name of more than a megabyte"));
        }
        let mut bytes = Vec::new();
        self.reader.by_ref().take(len).read_to_end(&mut bytes)?;
        self.at = end;
        String::from_utf8(bytes).map_err(|_| Self::broken("a name that is not UTF-8"))
    }
}

fn scan_model<R: Read + Seek>(reader: &mut R, len: u64) -> io::Result<Scan> {
    let mut wire = Wire { reader, at: 0 };
    let mut scan = Scan::default();
    while let Some((number, field)) = wire.field(len)? {
        let Field::Bytes { end } = field else { continue };
        if number == 7 {
            scan_graph(&mut wire, end, &mut scan)?;
        }
        wire.skip_to(end)?;
    }
    Ok(scan)
}

fn scan_graph<R: Read + Seek>(wire: &mut Wire<'_, R>, end: u64, scan: &mut Scan) -> io::Result<()> {
    while let Some((number, field)) = wire.field(end)? {
        let Field::Bytes { end } = field else { continue };
        match number {
            5 => scan_initializer(wire, end, scan)?,
            11 => scan.io.inputs.push(scan_value_info(wire, end)?),
            12 => scan.io.outputs.push(scan_value_info(wire, end)?),
            _ => {}
        }
        wire.skip_to(end)?;
    }
    Ok(())
}

fn scan_initializer<R: Read + Seek>(wire: &mut Wire<'_, R>, end: u64, scan: &mut Scan) -> io::Result<()> {
    while let Some((number, field)) = wire.field(end)? {
        let Field::Bytes { end } = field else { continue };
        if number == 8 {
            scan.initializers.insert(wire.text(end)?);
        } else if number == 13 {
            let (mut key, mut value) = (String::new(), String::new());
            while let Some((number, field)) = wire.field(end)? {
                let Field::Bytes { end } = field else { continue };
                match number {
                    1 => key = wire.text(end)?,
                    2 => value = wire.text(end)?,
                    _ => wire.skip_to(end)?,
                }
            }
            if key == "location" {
                scan.external.insert(value);
            }
        }
        wire.skip_to(end)?;
    }
    Ok(())
}

fn scan_value_info<R: Read + Seek>(wire: &mut Wire<'_, R>, end: u64) -> io::Result<Port> {
    let mut port = Port {
        name: String::new(),
        ty: PortType::Other("a type that is no tensor".to_owned()),
        dims: None,
        optional: false,
    };
    while let Some((number, field)) = wire.field(end)? {
        let Field::Bytes { end } = field else { continue };
        match number {
            1 => port.name = wire.text(end)?,
            2 => scan_type(wire, end, &mut port)?,
            _ => {}
        }
        wire.skip_to(end)?;
    }
    Ok(port)
}

fn scan_type<R: Read + Seek>(wire: &mut Wire<'_, R>, end: u64, port: &mut Port) -> io::Result<()> {
    while let Some((number, field)) = wire.field(end)? {
        let Field::Bytes { end } = field else { continue };
        if number == 1 {
            while let Some((number, field)) = wire.field(end)? {
                match (number, field) {
                    (1, Field::Varint(code)) => {
                        let dtype = u32::try_from(code).ok().and_then(DataType::from_code);
                        port.ty = match dtype {
                            Some(dtype) => PortType::Tensor(dtype),
                            None => PortType::Other(format!("tensor of type {code}")),
                        };
                    }
                    (2, Field::Bytes { end }) => port.dims = Some(scan_shape(wire, end)?),
                    (_, Field::Bytes { end }) => wire.skip_to(end)?,
                    _ => {}
                }
            }
        }
        wire.skip_to(end)?;
    }
    Ok(())
}

fn scan_shape<R: Read + Seek>(wire: &mut Wire<'_, R>, end: u64) -> io::Result<Vec<Dim>> {
    let mut dims = Vec::new();
    while let Some((number, field)) = wire.field(end)? {
        let Field::Bytes { end } = field else { continue };
        if number == 1 {
            let mut dim = Dim::Symbol(None);
            while let Some((number, field)) = wire.field(end)? {
                match (number, field) {
                    (1, Field::Varint(size)) => dim = Dim::Fixed(size as i64),
                    (2, Field::Bytes { end }) => dim = Dim::Symbol(Some(wire.text(end)?)),
                    (_, Field::Bytes { end }) => wire.skip_to(end)?,
                    _ => {}
                }
            }
            dims.push(dim);
        }
        wire.skip_to(end)?;
    }
    Ok(dims)
}
