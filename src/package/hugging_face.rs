//! Reader of Hugging Face folders: `config.json`, perhaps `generation_config.json`, and graphs that
//! are named as Optimum and transformers.js name them, beside these or in `onnx/`.
//!
//! The files tell the components, the ports what they do: names of ports are the exporters' own, and
//! `hugging_face_ports` binds those that the graphs have.

use std::collections::HashMap;
use std::path::Path;

use crate::component::{TEXT_LIMIT, shown};

use super::declaration::{
    ComponentDeclaration, Declaration, GenerationDefaults, MediaDeclaration, Said, StrategyDeclaration,
    StrategyKind, TOKEN_ROLES,
};
use super::document::{Cursor, Document};
use super::files::PackageFiles;
use super::generation_defaults::{read_defaults, token_ids};
use super::hugging_face_ports::{HuggingFacePorts, Part};
use super::io_bindings::MAX_CACHE_DIM;
use super::{Location, PackageError, PackageErrorKind};

/// Ends of file names for the ways in which exporters store weights. Any other word is looked for
/// too, if it is asked for by name.
const VARIANTS: [&str; 8] = ["fp16", "q4", "q4f16", "quantized", "int8", "uint8", "bnb4", "q8"];

/// Graphs that encode something, their component's name, its type, and the modality that brings them
/// to run.
const ENCODERS: [(&str, &str, &str, &str); 2] = [
    ("vision_encoder", "vision", "vision_encoder", "image"),
    ("audio_encoder", "audio", "audio_encoder", "audio"),
];

/// A package as read.
pub(super) struct Read {
    pub declaration: Declaration,
    pub ports: HuggingFacePorts,
    pub warnings: Vec<String>,
}

/// Reads the package of this `config.json`.
pub(super) fn read(
    files: &PackageFiles,
    config: &Path,
    bytes: &[u8],
    variant: Option<&str>,
) -> Result<Read, PackageError> {
    let config = Document::from_json(config, bytes)?;
    let generation = match files.read_optional("generation_config.json", TEXT_LIMIT)? {
        Some(found) => Some(Document::from_json(&found.label, (*found.bytes).as_ref())?),
        None => None,
    };
    let at = config.root().location();
    let mut parts = Parts {
        graphs: Graphs::find(files, at.clone(), variant)?,
        components: Vec::new(),
        parts: Vec::new(),
        at,
    };
    let settings = Settings::read(&config, generation.as_ref())?;
    parts.all()?;
    let mut warnings = config.into_warnings();
    warnings.extend(generation.into_iter().flat_map(Document::into_warnings));
    let by_name = parts.components.iter().enumerate();
    let by_name: HashMap<_, _> = by_name.map(|(index, one)| (one.name.clone(), index)).collect();
    let (at, components) = (parts.at, parts.components);
    Ok(Read {
        declaration: Declaration {
            components,
            by_name,
            edges: Vec::new(),
            strategy: StrategyDeclaration {
                kind: StrategyKind::Autoregressive,
                decoder: None,
                first_pass: None,
                model: None,
                staged: Vec::new(),
                iterative: Vec::new(),
                max_tokens: None,
                nested: None,
                at,
            },
            linear_positions: true,
            coordinates: None,
            media: MediaDeclaration::default(),
            positions_input: None,
            context_length: settings.context_length,
            generation: settings.generation,
            eos_token_ids: settings.eos,
            token_roles: settings.roles,
        },
        ports: HuggingFacePorts {
            parts: parts.parts,
            image_token: settings.image_token,
            audio_token: settings.audio_token,
            generates: settings.generates,
            heads: settings.heads,
            head_size: settings.head_size,
        },
        warnings,
    })
}

/// What the two configs say.
struct Settings {
    generation: GenerationDefaults,
    eos: Vec<Said<i32>>,
    roles: Vec<(&'static str, i32)>,
    context_length: Option<u64>,
    image_token: Option<i32>,
    audio_token: Option<i32>,
    /// Of caches.
    heads: Option<i64>,
    head_size: Option<i64>,
    /// Whether the architecture is one that makes text, as far as its name tells.
    generates: bool,
}

impl Settings {
    fn read(config: &Document, generation: Option<&Document>) -> Result<Self, PackageError> {
        let root = config.root();
        let mut fields = root.fields()?;
        let architectures = match fields.get("architectures") {
            Some(list) => list
                .items()?
                .map(|one| Ok(one.text()?.to_owned()))
                .collect::<Result<Vec<_>, PackageError>>()?,
            None => Vec::new(),
        };
        let generates = architectures.iter().any(|name| {
            name.ends_with("ForCausalLM")
                || name.ends_with("LMHeadModel")
                || name.ends_with("ForConditionalGeneration")
                || name.ends_with("ForSpeechSeq2Seq")
        });
        // Models of several parts have a config for the one that makes text.
        let text = fields.get("text_config");
        let within = text.as_ref().map(|at| at.fields()).transpose()?;
        let mut places: Vec<_> = [Some(fields), within].into_iter().flatten().collect();
        let mut first = |name: &'static str| places.iter_mut().find_map(|fields| fields.get(name));
        let mut context_length = None;
        for name in ["max_position_embeddings", "n_positions", "max_target_positions"] {
            if context_length.is_none() {
                context_length = first(name).map(|at| at.count(1)).transpose()?;
            }
        }
        let mut size = |name: &'static str| {
            let at = first(name);
            let size = at.map(|at| at.count_up_to(1, MAX_CACHE_DIM)).transpose()?;
            Ok::<_, PackageError>(size.and_then(|size| i64::try_from(size).ok()))
        };
        let attention_heads = size("num_attention_heads")?;
        let hidden = size("hidden_size")?;
        let heads = size("num_key_value_heads")?.or(attention_heads);
        let head_size = match (size("head_dim")?, hidden, attention_heads) {
            (Some(size), _, _) => Some(size),
            (None, Some(hidden), Some(heads)) => Some(hidden / heads),
            _ => None,
        };
        let id = |at: Option<Cursor<'_>>| at.map(|at| at.token_id()).transpose();
        let image_token = match id(first("image_token_id"))? {
            None => id(first("image_token_index"))?,
            found => found,
        };
        let audio_token = match id(first("audio_token_id"))? {
            None => id(first("audio_token_index"))?,
            found => found,
        };
        let mut eos = first("eos_token_id").map(|at| token_ids(&at)).transpose()?;
        let mut roles = Vec::new();
        for role in TOKEN_ROLES {
            // Some configs say -1 for none, or a list.
            if let Some(Ok(token)) = first(role).map(|at| at.token_id()) {
                roles.push((role, token));
            }
        }
        let mut defaults = GenerationDefaults::default();
        if let Some(generation) = generation {
            let root = generation.root();
            let mut fields = root.fields()?;
            defaults = read_defaults(&mut fields, 1)?;
            let own = fields.get("eos_token_id").map(|at| token_ids(&at)).transpose()?;
            eos = own.or(eos);
            for role in TOKEN_ROLES {
                if let Some(token) = id(fields.get(role))? {
                    roles.retain(|(known, _)| *known != role);
                    roles.push((role, token));
                }
            }
        }
        if let (Some(length), Some(limit)) = (defaults.max_length, context_length) {
            defaults.max_length = Some(length.min(limit));
        }
        Ok(Settings {
            generation: defaults,
            eos: eos.unwrap_or_default(),
            roles,
            context_length,
            image_token,
            audio_token,
            heads,
            head_size,
            generates,
        })
    }
}

/// The package's graphs and which of them are meant.
struct Graphs {
    at: Location,
    /// All of them, relative to the package.
    names: Vec<String>,
    folder: &'static str,
    /// With its underscore; empty for the plain ones.
    ending: String,
}

impl Graphs {
    fn find(files: &PackageFiles, at: Location, variant: Option<&str>) -> Result<Self, PackageError> {
        let names = files.graphs()?;
        let in_root = names.iter().any(|name| !name.contains('/'));
        let mut graphs = Graphs {
            at,
            folder: if in_root { "" } else { "onnx/" },
            names,
            ending: String::new(),
        };
        if graphs.names.is_empty() {
            return Err(graphs.error("there is no .onnx file beside it or in onnx/".to_owned()));
        }
        graphs.ending = match variant {
            Some("" | "fp32") => String::new(),
            Some(name) => format!("_{name}"),
            None => graphs.default_ending(),
        };
        Ok(graphs)
    }

    /// The plain graphs; where there are none, the only variant that there is.
    fn default_ending(&self) -> String {
        let has = |ending: &str| STEMS.iter().any(|stem| self.has(stem, ending));
        let endings = VARIANTS.iter().map(|variant| format!("_{variant}"));
        let there: Vec<String> = endings.filter(|ending| has(ending)).collect();
        match there.as_slice() {
            [only] if !has("") => only.clone(),
            _ => String::new(),
        }
    }

    fn has(&self, stem: &str, ending: &str) -> bool {
        let name = format!("{}{stem}{ending}.onnx", self.folder);
        self.names.contains(&name)
    }

    /// The file of this stem, in the variant that is meant.
    fn get(&self, stem: &str) -> Option<Said<String>> {
        self.has(stem, &self.ending).then(|| Said {
            value: format!("{}{stem}{}.onnx", self.folder, self.ending),
            at: self.at.clone(),
        })
    }

    /// Whether there is such a graph in some variant, though not in the one that is meant.
    fn lacks(&self, stem: &str) -> bool {
        let any = std::iter::once(String::new()).chain(VARIANTS.iter().map(|variant| format!("_{variant}")));
        !self.has(stem, &self.ending) && any.into_iter().any(|ending| self.has(stem, &ending))
    }

    fn error(&self, message: String) -> PackageError {
        PackageError::new(self.at.clone(), PackageErrorKind::Invalid { message })
    }

    /// A graph that is needed and not there; what there is instead.
    fn missing(&self, stem: &str) -> PackageError {
        let there: Vec<String> = self.names.iter().map(|name| shown(name).to_string()).collect();
        self.error(format!(
            "there is no graph \"{}{stem}{}.onnx\"; choose with the option \"variant\" among {}",
            self.folder,
            shown(&self.ending),
            there.join(", ")
        ))
    }
}

const STEMS: [&str; 8] = [
    "model",
    "decoder_model_merged",
    "decoder_model",
    "decoder_with_past_model",
    "encoder_model",
    "embed_tokens",
    "vision_encoder",
    "audio_encoder",
];

struct Parts {
    graphs: Graphs,
    components: Vec<ComponentDeclaration>,
    parts: Vec<Part>,
    at: Location,
}

impl Parts {
    /// The components that the files are.
    fn all(&mut self) -> Result<(), PackageError> {
        // A graph that is left out for its variant would leave a package that cannot run.
        let wanted = |graphs: &Graphs, stem: &str| match graphs.lacks(stem) {
            true => Err(graphs.missing(stem)),
            false => Ok(graphs.get(stem)),
        };
        for (stem, name, component_type, modality) in ENCODERS {
            if let Some(file) = wanted(&self.graphs, stem)? {
                self.push(name, component_type, file, Part::Features);
                if let Some(component) = self.components.last_mut() {
                    component.when_present = Some(Said {
                        value: modality.to_owned(),
                        at: self.at.clone(),
                    });
                }
            }
        }
        if let Some(file) = wanted(&self.graphs, "encoder_model")? {
            self.push("encoder", "encoder", file, Part::Encoder);
        }
        if let Some(file) = wanted(&self.graphs, "embed_tokens")? {
            self.push("embedding", "embedding", file, Part::Embedding);
        }
        if let Some(file) = self.graphs.get("decoder_model_merged") {
            self.push("decoder", "decoder", file, Part::Decoder);
            return Ok(());
        }
        let first = self.graphs.get("decoder_model");
        let later = self.graphs.get("decoder_with_past_model");
        match (first, later) {
            (Some(first), Some(later)) => {
                self.push("decoder_first", "decoder", first, Part::FirstPass);
                self.push("decoder", "decoder", later, Part::Decoder);
                Ok(())
            }
            (Some(only), None) | (None, Some(only)) => {
                self.push("decoder", "decoder", only, Part::Decoder);
                Ok(())
            }
            (None, None) => match self.graphs.get("model") {
                Some(file) => {
                    self.push("model", "", file, Part::Model);
                    Ok(())
                }
                None => Err(self.graphs.missing(self.meant())),
            },
        }
    }

    /// The graph that a package of these files would need.
    fn meant(&self) -> &'static str {
        let decoders = ["decoder_model_merged", "decoder_model"];
        let found = decoders.into_iter().find(|stem| self.graphs.lacks(stem));
        let alone = self.components.is_empty();
        found.unwrap_or(if alone { "model" } else { "decoder_model_merged" })
    }

    fn push(&mut self, name: &str, component_type: &str, file: Said<String>, part: Part) {
        self.components.push(ComponentDeclaration::new(
            name,
            component_type,
            self.at.clone(),
            file,
        ));
        self.parts.push(part);
    }
}
