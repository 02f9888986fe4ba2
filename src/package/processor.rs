//! What becomes of images and sound in folders that say it in the words of Hugging Face's processors,
//! `preprocessor_config.json`, or in those of onnxruntime-extensions, `processor_config.json` and, for
//! Whisper, `audio_processor_config.json`.
//!
//! A processor that is not done here is no error: the host sets the tensors then.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::component::{ComponentIo, DataType, TEXT_LIMIT, TOKENIZER_LIMIT};
use crate::media::audio::AudioProgram;
use crate::media::image::{Content, ImageProgram, ProcessorPorts, Thumbnail};
use crate::media::{ConfigError, ImagePlaceholders, TileTokens, TokenCount};

use super::declaration::{Address, Continuation, Declaration, OutputPort, ProgramDeclaration, Said};
use super::document::Document;
use super::files::{FoundFile, PackageFiles};
use super::{Location, PackageError, PackageErrorKind};

/// The most tokens that an image may come to.
const MOST_TOKENS: u64 = 1 << 24;

#[derive(Debug)]
pub(super) struct Processor {
    image: Option<Config>,
    audio: Option<Config>,
    /// The token that stands for an image in the prompt, and for what it comes to in the model.
    image_token: Option<i32>,
    /// How many tokens an image comes to, where that is the same for all.
    image_tokens: Option<usize>,
    /// What is written around an image, where there is something.
    marks: Option<ImageMarks>,
    /// What is written around the tiles of an image.
    tile_tokens: Option<TileTokens>,
}

/// Tokens around an image, as the processors of Gemma write them.
#[derive(Debug)]
struct ImageMarks {
    /// What stands for the image in the prompt, where that is not its own token.
    placeholder: Option<i32>,
    before: Vec<i32>,
    after: Vec<i32>,
}

/// One file.
#[derive(Clone, Debug)]
struct Config {
    at: Location,
    keys: HashMap<String, Location>,
    value: Value,
}

/// Files that the package names for what goes by a name of our choice elsewhere.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessorFiles {
    pub image: Option<Said<String>>,
    pub audio: Option<Said<String>>,
}

/// What the inputs are called that processors' results are for.
pub(super) struct InputNames {
    pub pixels: Vec<String>,
    pub features: Vec<String>,
}

const GRIDS: [&str; 2] = ["image_grid_thw", "grid_thw"];
const COORDINATES: [&str; 2] = ["image_position_ids", "pixel_position_ids"];
const MASKS: [&str; 1] = ["pixel_attention_mask"];

impl Processor {
    /// Reads the files that there are. `model` is the model's `config.json`, where the format has it.
    pub fn read(
        files: &PackageFiles,
        named: &ProcessorFiles,
        model: Option<&[u8]>,
    ) -> Result<Self, PackageError> {
        let processor = Config::named(files, named.image.as_ref(), "processor_config.json")?;
        // Newer folders have one file for all.
        let within = |key: &str| processor.as_ref().and_then(|config| config.within(key));
        let config = Config::read(files, "preprocessor_config.json")?.or_else(|| within("image_processor"));
        let has = |config: &Config, key: &str| config.value.get(key).is_some();
        let sound = |config: &&Config| {
            let kind = config.value.get("feature_extractor_type").and_then(Value::as_str);
            let image = has(config, "image_processor_type");
            kind.is_some_and(|kind| !image && !kind.contains("Image") && !ImageProgram::knows(kind))
        };
        let audio = match config.as_ref().filter(sound) {
            Some(config) => Some(config.clone()),
            None => match within("feature_extractor") {
                Some(config) => Some(config),
                None => Config::named(files, named.audio.as_ref(), "audio_processor_config.json")?
                    .and_then(Config::of_extensions),
            },
        };
        let image = config.filter(|config| !sound(&config));
        // onnxruntime-extensions' words for it, if there are no others.
        let image = image.or_else(|| processor.clone().filter(|config| has(config, "processor")));
        let model: Option<Value> = model.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64);
        let mut tokens = processor.as_ref().and_then(|config| {
            let names = ["image_seq_length", "image_seq_len"];
            names.into_iter().find_map(|name| number(&config.value, name))
        });
        let mut token = None;
        let mut ends = None;
        if let Some(model) = &model {
            let text = model.get("text_config").unwrap_or(&Value::Null);
            let named = ["image_seq_length", "mm_tokens_per_image"];
            let own = named.into_iter().find_map(|key| number(model, key));
            let merged = || squares_of(model.get("vision_config")?, number(model, "scale_factor")?);
            let named = || number(text, "num_image_tokens");
            tokens = own.or(tokens).or_else(named).or_else(merged);
            let ids = ["image_token_id", "image_token_index"];
            token = ids.into_iter().find_map(|key| number(model, key));
            let id = |names: [&str; 2]| {
                let found = names.into_iter().find_map(|key| number(model, key))?;
                i32::try_from(found).ok()
            };
            ends = id(["boi_token_id", "boi_token_index"]).zip(id(["eoi_token_id", "eoi_token_index"]));
        }
        let is_of = |words: &[&str]| image.as_ref().is_some_and(|config| config.is_of(words));
        let marks = match ends {
            Some((begin, end)) if is_of(&GEMMA3) => {
                let line = tokenizer(files)?.as_ref().and_then(empty_line);
                line.map(|line| ImageMarks {
                    placeholder: Some(begin),
                    before: vec![line, begin],
                    after: vec![end, line],
                })
            }
            Some((begin, end)) if is_of(&GEMMA4) => Some(ImageMarks {
                placeholder: None,
                before: vec![begin],
                after: vec![end],
            }),
            _ => None,
        };
        let tile_tokens = match is_of(&TILED) {
            true => tokenizer(files)?.as_ref().and_then(tile_tokens_of),
            false => None,
        };
        Ok(Processor {
            image,
            audio,
            marks,
            tile_tokens,
            image_token: token.and_then(|token| i32::try_from(token).ok()),
            image_tokens: tokens
                .filter(|tokens| (1..=MOST_TOKENS).contains(tokens))
                .and_then(|tokens| usize::try_from(tokens).ok()),
        })
    }

    /// Declares programs for the inputs that the graphs have. Gives what a person should know.
    pub fn bind(
        &self,
        declaration: &mut Declaration,
        ios: &[ComponentIo],
        names: &InputNames,
    ) -> Result<Vec<String>, PackageError> {
        let mut warnings = Vec::new();
        if let Some(config) = self.image.as_ref().or_else(|| self.unknown(ios, names))
            && let Some((component, input)) = find(declaration, ios, &names.pixels)
            && let Some(pixels) = float_port(declaration, ios, component, &input)
        {
            let other = |names: &[&str]| {
                let io = ios.get(component)?;
                let mut inputs = io.inputs.iter();
                let port = inputs.find(|port| names.contains(&port.name.as_str()))?;
                Some((address(declaration, component, &port.name)?, port.dtype()?))
            };
            let [grid, coordinates, mask] = [&GRIDS[..], &COORDINATES, &MASKS].map(other);
            let said =
                |port: &Option<(Address, DataType)>| port.as_ref().map(|(at, dtype)| (text(at), *dtype));
            let grid = grid.filter(|_| config.is_of(&["Qwen"]) || config.has_patches());
            let coordinates = coordinates.filter(|_| config.is_of(&GEMMA4));
            let mask = mask.filter(|_| config.is_of(&TILED));
            let ports = ProcessorPorts {
                pixels: (text(&pixels.0), pixels.1),
                grid: said(&grid),
                coordinates: said(&coordinates),
                mask: said(&mask),
            };
            let others = [grid, coordinates, mask].into_iter().flatten();
            let addresses = std::iter::once(pixels.0).chain(others.map(|(address, _)| address));
            let program = match config.value.get("processor") {
                Some(_) => ImageProgram::from_extensions_config(&config.value, &ports),
                None => ImageProgram::from_preprocessor_config(&config.value, &ports),
            };
            match program {
                Ok(program) => {
                    warnings.extend(self.place(declaration, component, &program, config));
                    declaration.media.image = Some(ProgramDeclaration {
                        program,
                        ports: config.ports(addresses),
                    });
                }
                Err(error) => warnings.push(config.problem(error, "oxp_run_add_image")?),
            }
        }
        if let Some(config) = &self.audio
            && let Some((component, input)) = find(declaration, ios, &names.features)
            && let Some((address, dtype)) = float_port(declaration, ios, component, &input)
        {
            match AudioProgram::from_preprocessor_config(&config.value, (text(&address), dtype)) {
                Ok(program) => {
                    declaration.media.audio = Some(ProgramDeclaration {
                        program,
                        ports: config.ports([address]),
                    });
                }
                Err(error) => warnings.push(config.problem(error, "oxp_run_set_audio")?),
            }
        }
        Ok(warnings)
    }

    /// A feature extractor that nothing here knows, where nothing takes features: of images, then.
    fn unknown(&self, ios: &[ComponentIo], names: &InputNames) -> Option<&Config> {
        let config = self.audio.as_ref()?;
        let kind = config.value.get("feature_extractor_type").and_then(Value::as_str);
        let mut features = names.features.iter();
        let takes = |name: &String| ios.iter().any(|io| io.input(name).is_some());
        let unknown = !kind.is_some_and(AudioProgram::knows) && !features.any(takes);
        unknown.then_some(config)
    }

    /// Where images stand in a prompt, if the component encodes them for a decoder.
    fn place(
        &self,
        declaration: &mut Declaration,
        component: usize,
        program: &ImageProgram,
        config: &Config,
    ) -> Option<String> {
        let at = &config.at;
        let one = declaration.components.get(component)?;
        if one.when_present.as_ref()?.value != "image" {
            return None;
        }
        let mut roles = declaration.token_roles.iter();
        let role = roles.find(|(role, _)| *role == "image_token_id");
        let token = self.image_token.or(role.map(|(_, token)| *token))?;
        let count = match program.makes_patches() {
            true => TokenCount::FromGrid,
            false => match self.image_tokens {
                Some(tokens) => TokenCount::PerTile(tokens),
                None => {
                    return Some(format!(
                        "{at}: nothing says how many tokens an image is (image_seq_length in config.json or \
                         processor_config.json would); prompts are taken as they are, with these in them"
                    ));
                }
            },
        };
        let mut outputs = program.outputs();
        if outputs.any(|output| output.content == Content::GridDimensions) {
            declaration.coordinates = Some(Continuation::FromGrid);
        }
        let thumbnail = program.thumbnail();
        if thumbnail != Thumbnail::None && self.tile_tokens.is_none() {
            return Some(format!(
                "{at}: tokenizer.json does not have the tokens that are written around the tiles of an image; prompts \
                 are taken as they are, with these in them"
            ));
        }
        if self.marks.is_none() && (config.is_of(&GEMMA3) || config.is_of(&GEMMA4)) {
            return Some(format!(
                "{at}: the tokens that are written around an image are not known (boi_token_index and eoi_token_index \
                 of config.json, and for Gemma 3 an empty line of tokenizer.json); prompts are taken as they are, \
                 with these in them"
            ));
        }
        let marks = self.marks.as_ref();
        let around = |side: fn(&ImageMarks) -> &Vec<i32>| marks.map(side).cloned().unwrap_or_default();
        declaration.media.vision = Some(Said {
            value: ImagePlaceholders {
                placeholder: marks.and_then(|marks| marks.placeholder).unwrap_or(token),
                token,
                count,
                before: around(|marks| &marks.before),
                after: around(|marks| &marks.after),
                row_separator: None,
                column_separator: None,
                thumbnail,
                tiles: self.tile_tokens.clone().filter(|_| thumbnail != Thumbnail::None),
            },
            at: at.clone(),
        });
        None
    }
}

/// Processors that cut images into tiles with names.
const TILED: [&str; 2] = ["Idefics3", "SmolVLM"];
/// A processor that puts an image between lines of its own. In a text these come of the line ends that
/// it has there already; as tokens they are always two.
const GEMMA3: [&str; 1] = ["Gemma3Image"];
const GEMMA4: [&str; 1] = ["Gemma4Image"];
/// The most tiles on a side.
const MOST_TILES: usize = 64;

/// How many tokens a tile comes to whose patches are merged, squares of `merge` on a side.
fn squares_of(vision: &Value, merge: u64) -> Option<u64> {
    let number = |key: &str| vision.get(key).and_then(Value::as_u64);
    let side = number("image_size")?.checked_div(number("patch_size")?)?;
    side.checked_mul(side)?.checked_div(merge.checked_mul(merge)?)
}

/// tokenizer.json, if there is one; what is wrong with it is told where the tokenizer is made of it.
fn tokenizer(files: &PackageFiles) -> Result<Option<Value>, PackageError> {
    let found = files.read_optional("tokenizer.json", TOKENIZER_LIMIT)?;
    Ok(found.and_then(|found| serde_json::from_slice((*found.bytes).as_ref()).ok()))
}

fn token_id(id: &Value) -> Option<i32> {
    id.as_i64().and_then(|id| i32::try_from(id).ok())
}

/// The token of two line ends.
fn empty_line(tokenizer: &Value) -> Option<i32> {
    token_id(tokenizer.get("model")?.get("vocab")?.get("\n\n")?)
}

/// The tokens around tiles by what they are called in the tokenizer's file; a line end is one of
/// bytes there (byte-level BPE). Nothing if any is missing.
fn tile_tokens_of(tokenizer: &Value) -> Option<TileTokens> {
    const LINE_END: &str = "\u{10a}";
    let added = tokenizer.get("added_tokens")?.as_array()?;
    let added: HashMap<&str, i32> = added
        .iter()
        .filter_map(|token| Some((token.get("content")?.as_str()?, token_id(token.get("id")?)?)))
        .collect();
    let vocabulary = tokenizer.get("model")?.get("vocab")?;
    let piece = |text: &str| vocabulary.get(text).and_then(token_id);
    let line_end = piece(LINE_END)?;
    let name = |row: usize, column: usize| {
        let text = format!("<row_{}_col_{}>", row + 1, column + 1);
        added.get(text.as_str()).copied()
    };
    let row = |row: usize| -> Vec<i32> { (0..MOST_TILES).map_while(|column| name(row, column)).collect() };
    let names: Vec<Vec<i32>> = (0..MOST_TILES)
        .map(row)
        .take_while(|row| !row.is_empty())
        .collect();
    (!names.is_empty()).then_some(())?;
    Some(TileTokens {
        around: *added.get("<fake_token_around_image>")?,
        names,
        row_end: vec![line_end],
        last_row_end: match piece(&LINE_END.repeat(2)) {
            Some(two) => vec![two],
            None => vec![line_end; 2],
        },
        whole: *added.get("<global-img>")?,
    })
}

impl Config {
    /// The file that the package names, or the one of this name; nothing where it is not there.
    fn named(
        files: &PackageFiles,
        named: Option<&Said<String>>,
        default: &str,
    ) -> Result<Option<Self>, PackageError> {
        let Some(said) = named.filter(|said| !said.value.is_empty()) else {
            return Config::read(files, default);
        };
        match files.read(&said.value, TEXT_LIMIT, &said.at) {
            Ok(found) => Config::of(&found).map(Some),
            Err(error) if matches!(error.kind(), PackageErrorKind::MissingFile { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(files: &PackageFiles, name: &str) -> Result<Option<Self>, PackageError> {
        let found = files.read_optional(name, TEXT_LIMIT)?;
        found.as_ref().map(Config::of).transpose()
    }

    fn of(FoundFile { label, bytes }: &FoundFile) -> Result<Self, PackageError> {
        let bytes = (**bytes).as_ref();
        let document = Document::from_json(label, bytes)?;
        let root = document.root();
        let keys = root.entries()?;
        let keys = keys.map(|(key, at)| (key.to_owned(), at.location())).collect();
        let at = root.location();
        let value = serde_json::from_slice(bytes).map_err(|error| {
            let message = error.to_string();
            PackageError::new(at.clone(), PackageErrorKind::Syntax { message })
        })?;
        Ok(Config { at, keys, value })
    }

    /// The configuration that is the value of a key.
    fn within(&self, key: &str) -> Option<Self> {
        Some(Config {
            at: self.keys.get(key)?.clone(),
            keys: HashMap::new(),
            value: self.value.get(key).filter(|value| value.is_object())?.clone(),
        })
    }

    /// The extraction of Whisper's features as onnxruntime-extensions has it, in Hugging Face's
    /// words; nothing if it is another one.
    fn of_extensions(mut self) -> Option<Self> {
        let steps = self
            .value
            .get("feature_extraction")?
            .get("sequence")?
            .as_array()?;
        let operations = steps.iter().filter_map(|step| step.get("operation"));
        let is_mel = |operation: &&Value| operation.get("type").is_some_and(|kind| kind == "LogMelSpectrum");
        let attributes = operations.into_iter().find(is_mel)?.get("attrs");
        let attribute = |name: &str| attributes.and_then(|attributes| attributes.get(name)).cloned();
        self.value = json!({
            "feature_extractor_type": "WhisperFeatureExtractor",
            "chunk_length": attribute("chunk_size"),
            "hop_length": attribute("hop_length"),
            "n_fft": attribute("n_fft"),
            "feature_size": attribute("n_mel"),
        });
        Some(self)
    }

    /// Whether it is a pipeline of onnxruntime-extensions that cuts images into patches.
    fn has_patches(&self) -> bool {
        let transforms = self
            .value
            .get("processor")
            .and_then(|processor| processor.get("transforms"));
        let mut transforms = transforms.and_then(Value::as_array).into_iter().flatten();
        transforms.any(|transform| {
            let operation = transform.get("operation");
            operation.and_then(|operation| operation.get("type")) == Some(&json!("PatchImage"))
        })
    }

    /// Whether the image processor's name has one of these words.
    fn is_of(&self, words: &[&str]) -> bool {
        let kind = self.value.get("image_processor_type").and_then(Value::as_str);
        kind.is_some_and(|kind| words.iter().any(|word| kind.contains(word)))
    }

    fn ports(&self, addresses: impl IntoIterator<Item = Address>) -> Vec<OutputPort> {
        let ports = addresses.into_iter().map(|value| OutputPort {
            address: Said {
                value,
                at: self.at.clone(),
            },
            optional: false,
        });
        ports.collect()
    }

    /// An error for what is wrong; for what is not done here, a note of the call that is missing.
    fn problem(&self, error: ConfigError, call: &str) -> Result<String, PackageError> {
        let at = self.keys.get(&error.key).cloned().unwrap_or_else(|| Location {
            key: match self.at.key.as_str() {
                "" => error.key.clone(),
                within => format!("{within}.{}", error.key),
            },
            ..self.at.clone()
        });
        match error.unsupported {
            true => Ok(format!(
                "{at}: {}; {call} cannot be used, and the host sets the tensors",
                error.message
            )),
            false => {
                let message = error.message;
                Err(PackageError::new(at, PackageErrorKind::Invalid { message }))
            }
        }
    }
}

fn text(address: &Address) -> String {
    format!("{}.{}", address.component, address.port)
}

fn address(declaration: &Declaration, component: usize, port: &str) -> Option<Address> {
    Some(Address {
        component: declaration.components.get(component)?.name.clone(),
        port: port.to_owned(),
    })
}

/// The first component that has an input of one of these names, and which.
fn find(declaration: &Declaration, ios: &[ComponentIo], names: &[String]) -> Option<(usize, String)> {
    let components = ios.iter().take(declaration.components.len()).enumerate();
    components.into_iter().find_map(|(index, io)| {
        let name = names.iter().find(|name| io.input(name).is_some())?;
        Some((index, name.clone()))
    })
}

/// The input, if it takes numbers.
fn float_port(
    declaration: &Declaration,
    ios: &[ComponentIo],
    component: usize,
    name: &str,
) -> Option<(Address, DataType)> {
    let dtype = ios.get(component)?.input(name)?.dtype()?;
    let address = address(declaration, component, name)?;
    dtype.is_float32_or_smaller().then_some((address, dtype))
}
