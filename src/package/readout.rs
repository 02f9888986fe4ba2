//! What becomes of the output of a package that runs once over a text: a vector, or classes.
//!
//! A sentence-transformers folder says how in `modules.json`, which lists a Transformer and then
//! perhaps a Pooling, with its `config.json`, and a Normalize; `sentence_bert_config.json` has the
//! `max_seq_length` that texts are cut off at. A classifier's `config.json` names its
//! classes in `id2label` and how they exclude each other in `problem_type`. Our own format says it in
//! the sections `embedding` (`pooling`, `normalize`, `max_seq_length`) and `classifier` (`labels`, `activation`).

use crate::component::TEXT_LIMIT;

use super::document::{Cursor, Document, Fields};
use super::files::PackageFiles;
use super::{PackageError, PackageErrorKind};

/// What is made of the output for a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readout {
    Embedding {
        pooling: Pooling,
        normalize: bool,
        /// Tokens that are read of a text, special ones included, if the package says it.
        max_tokens: Option<usize>,
    },
    Classes {
        /// Empty where they have no names.
        labels: Vec<String>,
        activation: Activation,
    },
}

/// How the vectors of a text's tokens become one: over those that are no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The output has one vector a text already.
    None,
    /// That of the first token.
    Cls,
    /// That of the last token.
    LastToken,
    /// Their mean.
    Mean,
    /// Their sum over the square root of their number.
    MeanSqrtLength,
    /// The largest of each element.
    Max,
}

impl Pooling {
    const NAMES: [(&'static str, Pooling); 6] = [
        ("none", Pooling::None),
        ("cls", Pooling::Cls),
        ("last_token", Pooling::LastToken),
        ("mean", Pooling::Mean),
        ("mean_sqrt_len", Pooling::MeanSqrtLength),
        ("max", Pooling::Max),
    ];

    pub fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names
            .find(|(_, pooling)| *pooling == self)
            .map_or("", |(name, _)| name)
    }
}

/// What makes scores of the logits of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// One class of all.
    Softmax,
    /// Any number of classes.
    Sigmoid,
    /// Numbers that are what they are.
    None,
}

impl Activation {
    const NAMES: [(&'static str, Activation); 3] = [
        ("softmax", Activation::Softmax),
        ("sigmoid", Activation::Sigmoid),
        ("none", Activation::None),
    ];

    pub fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names.find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}

/// The most classes that a package may name.
const MOST_LABELS: u64 = 1 << 20;
/// The most tokens that a package may read of a text.
const MOST_TOKENS: u64 = 1 << 30;

/// What our own format's metadata says.
pub(super) fn of_metadata(document: &Document) -> Result<Option<Readout>, PackageError> {
    let root = document.root();
    let mut fields = root.fields()?;
    if let Some(at) = fields.get("embedding") {
        let mut fields = at.fields()?;
        let pooling = fields
            .required("pooling", "mean, cls, last_token, ...")?
            .one_of(&Pooling::NAMES)?;
        let normalize = fields.get("normalize").map(|at| at.bool()).transpose()?;
        let max_tokens = max_seq_length(&mut fields)?;
        fields.finish();
        return Ok(Some(Readout::Embedding {
            pooling,
            normalize: normalize.unwrap_or(false),
            max_tokens,
        }));
    }
    let Some(at) = fields.get("classifier") else {
        return Ok(None);
    };
    let mut fields = at.fields()?;
    let labels = match fields.get("labels") {
        Some(at) => texts(&at)?,
        None => Vec::new(),
    };
    let activation = match fields.get("activation") {
        Some(at) => at.one_of(&Activation::NAMES)?,
        None => usual_activation(labels.len()),
    };
    fields.finish();
    Ok(Some(Readout::Classes { labels, activation }))
}

fn texts(at: &Cursor<'_>) -> Result<Vec<String>, PackageError> {
    at.items()?.map(|one| Ok(one.text()?.to_owned())).collect()
}

/// What transformers' text-classification pipeline takes where the config does not say.
fn usual_activation(classes: usize) -> Activation {
    match classes {
        1 => Activation::Sigmoid,
        _ => Activation::Softmax,
    }
}

/// What the files of a Hugging Face folder say.
pub(super) fn of_hugging_face(
    files: &PackageFiles,
    config: &Document,
) -> Result<Option<Readout>, PackageError> {
    if let Some(found) = files.read_optional("modules.json", TEXT_LIMIT)? {
        let document = Document::from_json(&found.label, (*found.bytes).as_ref())?;
        return of_modules(files, &document).map(Some);
    }
    let root = config.root();
    let mut fields = root.fields()?;
    let classifies = match fields.get("architectures") {
        Some(at) => texts(&at)?
            .iter()
            .any(|name| name.ends_with("ForSequenceClassification")),
        None => false,
    };
    let named = fields.get("id2label");
    if !classifies {
        return Ok(None);
    }
    let mut labels: Vec<(u64, String)> = Vec::new();
    if let Some(at) = &named {
        for (id, label) in at.entries()? {
            let Some(id) = id.parse().ok().filter(|&id: &u64| id < MOST_LABELS) else {
                return Err(label.invalid(format!("is no class from 0 to {}", MOST_LABELS - 1)));
            };
            labels.push((id, label.text()?.to_owned()));
        }
        labels.sort();
        let gap = labels.iter().zip(0..).find(|((id, _), place)| id != place);
        if let Some(((id, _), place)) = gap {
            return Err(at.invalid(format!("has class {id} where class {place} should be")));
        }
    }
    let activation = match fields.get("problem_type") {
        Some(at) => at.one_of(&[
            ("single_label_classification", Activation::Softmax),
            ("multi_label_classification", Activation::Sigmoid),
            ("regression", Activation::None),
        ])?,
        None => usual_activation(labels.len()),
    };
    Ok(Some(Readout::Classes {
        labels: labels.into_iter().map(|(_, label)| label).collect(),
        activation,
    }))
}

/// The modules of a sentence-transformers model.
fn of_modules(files: &PackageFiles, document: &Document) -> Result<Readout, PackageError> {
    let mut pooling = Pooling::None;
    let mut normalize = false;
    let mut max_tokens = None;
    for module in document.root().items()? {
        let mut fields = module.fields()?;
        let kind = fields.required("type", "the name of a module's class")?;
        let path = fields.text("path")?.unwrap_or_default();
        fields.skip(&["idx", "name"]);
        match kind.text()?.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {
                let name = match path {
                    "" => "sentence_bert_config.json".to_owned(),
                    path => format!("{path}/sentence_bert_config.json"),
                };
                if let Some(found) = files.read_optional(&name, TEXT_LIMIT)? {
                    let config = Document::from_json(&found.label, (*found.bytes).as_ref())?;
                    max_tokens = max_seq_length(&mut config.root().fields()?)?;
                }
            }
            "Normalize" => normalize = true,
            "Pooling" => {
                let name = match path {
                    "" => "config.json".to_owned(),
                    path => format!("{path}/config.json"),
                };
                let Some(found) = files.read_optional(&name, TEXT_LIMIT)? else {
                    return Err(kind.invalid(format!("has no \"{name}\", which says how tokens are pooled")));
                };
                let config = Document::from_json(&found.label, (*found.bytes).as_ref())?;
                pooling = pooling_of(&config)?;
            }
            other => {
                return Err(kind.unsupported(format!("a module of class {other} behind the graph")));
            }
        }
    }
    Ok(Readout::Embedding {
        pooling,
        normalize,
        max_tokens,
    })
}

/// Where texts are cut off.
fn max_seq_length(fields: &mut Fields<'_>) -> Result<Option<usize>, PackageError> {
    let at = fields.get("max_seq_length");
    let most = at.map(|at| at.count_up_to(1, MOST_TOKENS)).transpose()?;
    Ok(most.and_then(|most| usize::try_from(most).ok()))
}

fn pooling_of(config: &Document) -> Result<Pooling, PackageError> {
    let root = config.root();
    let mut fields = root.fields()?;
    // One name in newer files, one flag each in older ones.
    if let Some(at) = fields.get("pooling_mode") {
        return at.one_of(&[
            ("cls", Pooling::Cls),
            ("lasttoken", Pooling::LastToken),
            ("mean", Pooling::Mean),
            ("mean_sqrt_len_tokens", Pooling::MeanSqrtLength),
            ("max", Pooling::Max),
        ]);
    }
    let mut found = None;
    for (name, pooling) in [
        ("pooling_mode_cls_token", Some(Pooling::Cls)),
        ("pooling_mode_lasttoken", Some(Pooling::LastToken)),
        ("pooling_mode_mean_tokens", Some(Pooling::Mean)),
        ("pooling_mode_mean_sqrt_len_tokens", Some(Pooling::MeanSqrtLength)),
        ("pooling_mode_max_tokens", Some(Pooling::Max)),
        ("pooling_mode_weightedmean_tokens", None),
    ] {
        let Some(at) = fields.get(name) else { continue };
        if !at.bool()? {
            continue;
        }
        match (pooling, found) {
            (Some(pooling), None) => found = Some(pooling),
            (None, _) => return Err(at.unsupported("this way to pool")),
            (Some(_), Some(_)) => return Err(at.unsupported("several ways to pool, side by side")),
        }
    }
    found.ok_or_else(|| {
        let message = "does not say how tokens are pooled (pooling_mode_mean_tokens: true, say)";
        root.error(PackageErrorKind::Invalid {
            message: message.to_owned(),
        })
    })
}
