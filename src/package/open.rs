use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::component::{ComponentIo, ModelSource, SharedBytes, TEXT_LIMIT, TOKENIZER_LIMIT, shown};
use crate::runtime::OrtSettings;

use super::declaration::{Declaration, Said};
use super::document::Document;
use super::files::{FoundFile, PackageFiles};
use super::genai_ports::GenaiPorts;
use super::hugging_face_ports::HuggingFacePorts;
use super::processor::{InputNames, Processor, ProcessorFiles};
use super::readout::{self, Readout};
use super::resolve::resolve;
use super::spec::PipelineSpec;
use super::speculator::{HeadPackage, PackageHead};
use super::structure::{self, Structure};
use super::write::{self, Beside};
use super::{Location, PackageError, PackageErrorKind, PackageSource, genai, hugging_face, metadata};

/// Names of the metadata file, first come first taken.
const METADATA: [&str; 3] = [
    "inference_metadata.yaml",
    "inference_metadata.yml",
    "inference_metadata.json",
];

/// onnxruntime-genai's.
const GENAI: &str = "genai_config.json";

/// Of a Hugging Face folder.
const HUGGING_FACE: &str = "config.json";

/// A package whose metadata is read, its graphs not yet.
#[derive(Debug)]
pub(crate) struct Package {
    pub format: &'static str,
    pub metadata_file: PathBuf,
    content: Content,
    /// What a person should know and that is no error.
    pub warnings: Vec<String>,
    /// What becomes of the output for a text, where the package says so.
    pub readout: Option<Readout>,
    /// What guesses tokens, where the package brings it.
    pub head: PackageHead,
    files: Arc<PackageFiles>,
}

#[derive(Debug)]
enum Content {
    /// All is said by the metadata, and checked.
    Said(Box<Structure>),
    /// Bindings and edges are those that the graphs have ports for.
    Ported(Box<Declaration>, Box<Ports>, Box<Processor>),
}

/// Names of ports that a format has.
#[derive(Debug)]
enum Ports {
    Genai(GenaiPorts),
    HuggingFace(HuggingFacePorts),
}

impl Ports {
    /// What inputs of pixels and of sound's features are called.
    fn input_names(&self) -> InputNames {
        match self {
            Ports::Genai(ports) => ports.input_names(),
            Ports::HuggingFace(_) => InputNames {
                pixels: vec!["pixel_values".to_owned()],
                features: ["input_features", "input_values"].map(str::to_owned).to_vec(),
            },
        }
    }
}

/// What a package comes to once the ports of its graphs are known.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub spec: PipelineSpec,
    /// What a person should know and that is no error.
    pub warnings: Vec<String>,
}

/// What a tokenizer is made from.
pub(crate) struct TokenizerFiles {
    /// What messages call `tokenizer.json`.
    pub label: String,
    pub tokenizer: SharedBytes,
    pub config: Option<SharedBytes>,
}

impl Package {
    /// `variant` chooses among files of one model, where the format has such.
    pub fn open(source: &PackageSource, variant: Option<&str>) -> Result<Self, PackageError> {
        let files = Arc::new(PackageFiles::open(source)?);
        for name in METADATA {
            let Some(found) = files.read_optional(name, TEXT_LIMIT)? else {
                continue;
            };
            let bytes = (*found.bytes).as_ref();
            let document = if name.ends_with(".json") {
                Document::from_json(&found.label, bytes)?
            } else {
                Document::from_yaml(&found.label, bytes)?
            };
            let (declaration, speculator) = metadata::read(&document)?;
            let structure = structure::check(declaration)?;
            refuse_variant(&found, variant)?;
            let readout = readout::of_metadata(&document)?;
            return Ok(Package {
                format: "inference_metadata",
                head: speculator.open("inference_metadata", &found.label, &files)?,
                readout,
                metadata_file: found.label,
                content: Content::Said(Box::new(structure)),
                warnings: document.into_warnings(),
                files,
            });
        }
        if let Some(found) = files.read_optional(GENAI, TEXT_LIMIT)? {
            let document = Document::from_json(&found.label, (*found.bytes).as_ref())?;
            let (declaration, ports, speculator) = genai::read(&document)?;
            let processor = Box::new(Processor::read(&files, &ports.processors, None)?);
            refuse_variant(&found, variant)?;
            return Ok(Package {
                format: "genai_config",
                head: speculator.open("genai_config", &found.label, &files)?,
                readout: None,
                metadata_file: found.label,
                content: Content::Ported(Box::new(declaration), Box::new(Ports::Genai(ports)), processor),
                warnings: document.into_warnings(),
                files,
            });
        }
        if let Some(found) = files.read_optional(HUGGING_FACE, TEXT_LIMIT)? {
            let bytes = (*found.bytes).as_ref();
            let read = hugging_face::read(&files, &found.label, bytes, variant)?;
            let processor = Processor::read(&files, &ProcessorFiles::default(), Some(bytes))?;
            let readout = readout::of_hugging_face(&files, &Document::from_json(&found.label, bytes)?)?;
            return Ok(Package {
                format: "huggingface",
                head: PackageHead::None,
                readout,
                metadata_file: found.label,
                content: Content::Ported(
                    Box::new(read.declaration),
                    Box::new(Ports::HuggingFace(read.ports)),
                    Box::new(processor),
                ),
                warnings: read.warnings,
                files,
            });
        }
        let location = Location {
            file: files.label(),
            ..Location::default()
        };
        let looked_for = METADATA
            .into_iter()
            .chain([GENAI, HUGGING_FACE])
            .map(str::to_owned)
            .collect();
        Err(PackageError::new(
            location,
            PackageErrorKind::NoMetadata { looked_for },
        ))
    }

    /// Some components of a package, as one.
    pub(super) fn part(
        format: &'static str,
        metadata_file: &Path,
        structure: Structure,
        files: &Arc<PackageFiles>,
    ) -> Self {
        Package {
            format,
            metadata_file: metadata_file.to_owned(),
            content: Content::Said(Box::new(structure)),
            warnings: Vec::new(),
            readout: None,
            head: PackageHead::None,
            files: Arc::clone(files),
        }
    }

    /// The head that guesses tokens, if there is one that can be run.
    pub fn head(&self) -> Option<&HeadPackage> {
        match &self.head {
            PackageHead::Head(head) => Some(head),
            PackageHead::None | PackageHead::Unused(_) => None,
        }
    }

    /// What the metadata says; in some formats, bindings and edges come with the ports.
    pub fn declaration(&self) -> &Declaration {
        match &self.content {
            Content::Said(structure) => &structure.declaration,
            Content::Ported(declaration, ..) => declaration,
        }
    }

    /// Turns names into indices, given the ports of every component, in the same order.
    pub fn resolve(&self, ios: &[ComponentIo]) -> Result<Resolved, PackageError> {
        match &self.content {
            Content::Said(structure) => Ok(Resolved {
                spec: resolve(structure, ios)?,
                warnings: Vec::new(),
            }),
            Content::Ported(declaration, ports, processor) => {
                let (declaration, warnings) = bind(declaration, ports, processor, ios)?;
                let structure = structure::check(declaration)?;
                Ok(Resolved {
                    spec: resolve(&structure, ios)?,
                    warnings,
                })
            }
        }
    }

    /// The package as `inference_metadata.yaml` would say it, given the ports of every component.
    pub fn to_metadata(
        &self,
        ios: &[ComponentIo],
        head_io: Option<&ComponentIo>,
    ) -> Result<String, PackageError> {
        match &self.content {
            Content::Said(_) => Err(PackageError::new(
                Location {
                    file: self.metadata_file.clone(),
                    ..Location::default()
                },
                PackageErrorKind::Invalid {
                    message: "the package is in that format already".to_owned(),
                },
            )),
            Content::Ported(declaration, ports, processor) => {
                let (declaration, _) = bind(declaration, ports, processor, ios)?;
                // What cannot be run is not written.
                let structure = structure::check(declaration)?;
                let spec = resolve(&structure, ios)?;
                let mut beside = Beside {
                    readout: self.readout.as_ref(),
                    ..Beside::default()
                };
                match (&self.head, head_io) {
                    (PackageHead::Unused(why), _) => beside.no_head = Some(why.clone()),
                    (PackageHead::Head(head), Some(io)) => match head.section(&spec, io) {
                        Ok(section) => beside.head = Some(section),
                        Err(error) => beside.no_head = Some(error.to_string()),
                    },
                    (PackageHead::None, _) | (_, None) => {}
                }
                let name = self.metadata_file.file_name().unwrap_or_default();
                Ok(write::write(
                    &structure.declaration,
                    &beside,
                    &name.to_string_lossy(),
                ))
            }
        }
    }

    /// Every file that the metadata names is there and inside the package.
    pub fn check_files(&self) -> Result<(), PackageError> {
        for component in &self.declaration().components {
            self.files.check(&component.file.value, &component.file.at)?;
            if let Some(tokenizer) = &component.tokenizer {
                self.files.check(&tokenizer.value, &tokenizer.at)?;
            }
        }
        self.head().map_or(Ok(()), |head| head.package.check_files())
    }

    pub fn model(&self, component: usize) -> Result<ModelSource, PackageError> {
        let file = self
            .declaration()
            .components
            .get(component)
            .map(|component| &component.file);
        match file {
            Some(file) => self.files.model(&file.value, &file.at),
            None => Err(PackageError::new(
                Location {
                    file: self.metadata_file.clone(),
                    ..Location::default()
                },
                PackageErrorKind::Invalid {
                    message: format!("there is no component {component}"),
                },
            )),
        }
    }

    /// What the package asks of ONNX Runtime for a component.
    pub fn ort_settings(&self, component: usize) -> OrtSettings {
        let component = self.declaration().components.get(component);
        component
            .map(|component| component.ort.clone())
            .unwrap_or_default()
    }

    /// The tokenizer that a component names, the decoder's first; else `tokenizer.json`, if
    /// the package has one.
    pub fn tokenizer_files(&self) -> Result<Option<TokenizerFiles>, PackageError> {
        let components = &self.declaration().components;
        let decoder = match &self.content {
            Content::Said(structure) => structure.decoder.and_then(|index| components.get(index)),
            Content::Ported(..) => None,
        };
        let named: Option<&Said<String>> = decoder
            .into_iter()
            .chain(components)
            .find_map(|component| component.tokenizer.as_ref());
        let (found, path) = match named {
            Some(named) => (
                self.files.read(&named.value, TOKENIZER_LIMIT, &named.at)?,
                named.value.as_str(),
            ),
            None => match self.files.read_optional("tokenizer.json", TOKENIZER_LIMIT)? {
                Some(found) => (found, "tokenizer.json"),
                None => return Ok(None),
            },
        };
        let config_path = match path.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/tokenizer_config.json"),
            None => "tokenizer_config.json".to_owned(),
        };
        let config = self.files.read_optional(&config_path, TEXT_LIMIT)?;
        Ok(Some(TokenizerFiles {
            label: found.label.display().to_string(),
            tokenizer: found.bytes,
            config: config.map(|found| found.bytes),
        }))
    }

    /// The chat template and the name of the file it is from: `chat_template.jinja`, then
    /// `chat_template.json`, then `tokenizer_config.json`.
    pub fn chat_template(&self) -> Result<Option<(String, String)>, PackageError> {
        if let Some(found) = self.files.read_optional("chat_template.jinja", TEXT_LIMIT)? {
            let text = std::str::from_utf8((*found.bytes).as_ref())
                .map_err(|error| syntax(&found, format!("not UTF-8: {error}")))?;
            return Ok(Some((found.label.display().to_string(), text.to_owned())));
        }
        for name in ["chat_template.json", "tokenizer_config.json"] {
            let Some(found) = self.files.read_optional(name, TEXT_LIMIT)? else {
                continue;
            };
            let config: Value = serde_json::from_slice((*found.bytes).as_ref())
                .map_err(|error| syntax(&found, error.to_string()))?;
            if let Some(template) = template_in(&config) {
                return Ok(Some((found.label.display().to_string(), template.to_owned())));
            }
        }
        Ok(None)
    }
}

/// A template by itself, or the one called `default` of several.
fn template_in(config: &Value) -> Option<&str> {
    let template = config.get("chat_template")?;
    if let Some(text) = template.as_str() {
        return Some(text);
    }
    template
        .as_array()?
        .iter()
        .find(|one| one.get("name").and_then(Value::as_str) == Some("default"))?
        .get("template")?
        .as_str()
}

/// A declaration with what its ports come to, and what a person should know.
fn bind(
    declaration: &Declaration,
    ports: &Ports,
    processor: &Processor,
    ios: &[ComponentIo],
) -> Result<(Declaration, Vec<String>), PackageError> {
    let mut declaration = declaration.clone();
    // What pictures do to positions is known before these are bound.
    let mut warnings = processor.bind(&mut declaration, ios, &ports.input_names())?;
    match ports {
        Ports::Genai(ports) => warnings.extend(ports.bind(&mut declaration, ios)?),
        Ports::HuggingFace(ports) => ports.bind(&mut declaration, ios)?,
    }
    Ok((declaration, warnings))
}

/// Formats that name their files have nothing to choose from.
fn refuse_variant(found: &FoundFile, variant: Option<&str>) -> Result<(), PackageError> {
    let Some(variant) = variant else { return Ok(()) };
    let location = Location {
        file: found.label.clone(),
        ..Location::default()
    };
    let message = format!(
        "the option \"variant\" is \"{}\", but this file names the package's graphs; leave it out",
        shown(variant)
    );
    Err(PackageError::new(location, PackageErrorKind::Invalid { message }))
}

fn syntax(found: &FoundFile, message: String) -> PackageError {
    let location = Location {
        file: found.label.clone(),
        ..Location::default()
    };
    PackageError::new(location, PackageErrorKind::Syntax { message })
}
