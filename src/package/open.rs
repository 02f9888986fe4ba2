use std::path::PathBuf;

use serde_json::Value;

use crate::component::{ModelSource, SharedBytes, TEXT_LIMIT, TOKENIZER_LIMIT};

use super::declaration::Said;
use super::document::Document;
use super::files::{FoundFile, PackageFiles};
use super::structure::{self, Structure};
use super::{Location, PackageError, PackageErrorKind, PackageSource, metadata};

/// Names of the metadata file, first come first taken.
const METADATA: [&str; 3] = [
    "inference_metadata.yaml",
    "inference_metadata.yml",
    "inference_metadata.json",
];

/// Files of formats that a later version reads: saying so beats "no package here".
const LATER_FORMATS: [(&str, &str); 2] = [
    ("genai_config.json", "onnxruntime-genai's genai_config.json"),
    (
        "config.json",
        "a Hugging Face export (config.json beside .onnx files)",
    ),
];

/// A package whose metadata is read and checked, its graphs not yet.
#[derive(Debug)]
pub(crate) struct Package {
    pub format: &'static str,
    pub metadata_file: PathBuf,
    pub structure: Structure,
    /// What a person should know and that is no error.
    pub warnings: Vec<String>,
    files: PackageFiles,
}

/// What a tokenizer is made from.
pub(crate) struct TokenizerFiles {
    /// What messages call `tokenizer.json`.
    pub label: String,
    pub tokenizer: SharedBytes,
    pub config: Option<SharedBytes>,
}

impl Package {
    pub fn open(source: &PackageSource) -> Result<Self, PackageError> {
        let files = PackageFiles::open(source)?;
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
            let structure = structure::check(metadata::read(&document)?)?;
            return Ok(Package {
                format: "inference_metadata",
                metadata_file: found.label,
                structure,
                warnings: document.into_warnings(),
                files,
            });
        }
        for (name, format) in LATER_FORMATS {
            if let Some(found) = files.read_optional(name, TEXT_LIMIT)? {
                let location = Location {
                    file: found.label,
                    ..Location::default()
                };
                let what = format!(
                    "{format} is not read by this version, and there is no {}: the format",
                    METADATA.join(", ")
                );
                return Err(PackageError::new(
                    location,
                    PackageErrorKind::Unsupported { what },
                ));
            }
        }
        let location = Location {
            file: files.label(),
            ..Location::default()
        };
        let looked_for = METADATA
            .into_iter()
            .chain(LATER_FORMATS.into_iter().map(|(name, _)| name))
            .map(str::to_owned)
            .collect();
        Err(PackageError::new(
            location,
            PackageErrorKind::NoMetadata { looked_for },
        ))
    }

    /// Every file that the metadata names is there and inside the package.
    pub fn check_files(&self) -> Result<(), PackageError> {
        for component in &self.structure.declaration.components {
            self.files.check(&component.file.value, &component.file.at)?;
            if let Some(tokenizer) = &component.tokenizer {
                self.files.check(&tokenizer.value, &tokenizer.at)?;
            }
        }
        Ok(())
    }

    pub fn model(&self, component: usize) -> Result<ModelSource, PackageError> {
        let file = self
            .structure
            .declaration
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

    /// The tokenizer that a component names, the decoder's first; else `tokenizer.json`, if
    /// the package has one.
    pub fn tokenizer_files(&self) -> Result<Option<TokenizerFiles>, PackageError> {
        let components = &self.structure.declaration.components;
        let decoder = self.structure.decoder.and_then(|index| components.get(index));
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

fn syntax(found: &FoundFile, message: String) -> PackageError {
    let location = Location {
        file: found.label.clone(),
        ..Location::default()
    };
    PackageError::new(location, PackageErrorKind::Syntax { message })
}
