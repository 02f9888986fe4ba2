use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::component::shown;

use super::{Location, PackageError, PackageErrorKind, json};

/// The most values in a document, aliases expanded.
pub(super) const MAX_NODES: usize = 250_000;
/// The most lists and mappings inside of each other: more than any section has, and little
/// enough for a thread with a small stack, since readers recurse.
pub(super) const MAX_DEPTH: usize = 24;

/// A metadata file as a tree that remembers lines.
#[derive(Debug)]
pub(super) struct Document {
    file: PathBuf,
    text: String,
    root: Node,
    warnings: RefCell<Vec<String>>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub line: Option<u64>,
    /// Where in the text it was written.
    pub span: Option<Range<usize>>,
    pub value: NodeValue,
}

#[derive(Clone, Debug)]
pub(super) enum NodeValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Document {
    /// Parses YAML. Anchors and aliases expand within the parser's budget.
    pub fn from_yaml(file: &Path, bytes: &[u8]) -> Result<Self, PackageError> {
        let text = utf8(file, bytes)?;
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: MAX_NODES,
                max_depth: MAX_DEPTH,
            },
        };
        let root = serde_saphyr::from_str_with_options::<Node>(text, options)
            .map_err(|error| yaml_error(file, &error))?;
        Ok(Self::new(file, text, root))
    }

    /// Parses JSON.
    pub fn from_json(file: &Path, bytes: &[u8]) -> Result<Self, PackageError> {
        let text = utf8(file, bytes)?;
        let root = json::read(text).map_err(|error| {
            let good = text.as_bytes().get(..error.at).unwrap_or_default();
            syntax(file, Some(line_after(good)), error.message)
        })?;
        Ok(Self::new(file, text, root))
    }

    fn new(file: &Path, text: &str, root: Node) -> Self {
        Document {
            file: file.to_owned(),
            text: text.to_owned(),
            root,
            warnings: RefCell::default(),
        }
    }

    pub fn root(&self) -> Cursor<'_> {
        Cursor {
            document: self,
            node: &self.root,
            key: String::new(),
        }
    }

    pub fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }

    pub fn warn(&self, message: String) {
        self.warnings.borrow_mut().push(message);
    }
}

fn utf8<'a>(file: &Path, bytes: &'a [u8]) -> Result<&'a str, PackageError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        syntax(file, Some(line_after(good)), format!("not UTF-8: {error}"))
    })
}

fn line_after(bytes: &[u8]) -> u64 {
    1 + bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

fn syntax(file: &Path, line: Option<u64>, message: String) -> PackageError {
    let location = Location {
        file: file.to_owned(),
        line,
        key: String::new(),
    };
    PackageError::new(location, PackageErrorKind::Syntax { message })
}

/// What the YAML reader says, in words for whoever wrote the file and not for its callers.
fn yaml_error(file: &Path, error: &serde_saphyr::Error) -> PackageError {
    use serde_saphyr::Error as E;
    let line = error.location().map(|location| location.line());
    let mut plain = error.without_snippet();
    while let E::AliasError { error, .. } = plain {
        plain = error.without_snippet();
    }
    let message = match plain {
        E::MultipleDocuments { .. } => "a second document starts (---), expected one".to_owned(),
        E::DuplicateMappingKey { key: Some(key), .. } => {
            format!("\"{}\" comes twice in one mapping; give it once", shown(key))
        }
        E::DuplicateMappingKey { key: None, .. } => {
            "a key comes twice in one mapping; give it once".to_owned()
        }
        E::NullIntoString { .. } => "a key is empty, expected a text".to_owned(),
        E::NonFiniteFloat { value, .. } => format!("\"{}\" is no finite number", shown(value)),
        E::Budget { .. } => format!(
            "it is too large: at most {MAX_NODES} values, {MAX_DEPTH} deep, counting what aliases and merges repeat"
        ),
        other => {
            // The rendered error shows an excerpt of the file; its first line is the message,
            // which begins or ends with a place that is in ours.
            let rendered = other.to_string();
            let message = rendered.lines().next().unwrap_or("not YAML");
            let message = message.trim_start_matches("error: ");
            let message = match message.split_once(": ") {
                Some((place, message)) if place.starts_with("line ") => message,
                _ => message,
            };
            let end = message.rfind(" at line ").unwrap_or(message.len());
            message.get(..end).unwrap_or(message).to_owned()
        }
    };
    syntax(file, line, shown(&message).to_string())
}

/// A place in a document: a value and the keys that lead to it.
#[derive(Clone)]
pub(super) struct Cursor<'d> {
    document: &'d Document,
    node: &'d Node,
    key: String,
}

impl<'d> Cursor<'d> {
    pub fn location(&self) -> Location {
        Location {
            file: self.document.file.clone(),
            line: self.node.line,
            key: self.key.clone(),
        }
    }

    pub fn error(&self, kind: PackageErrorKind) -> PackageError {
        PackageError::new(self.location(), kind)
    }

    pub fn invalid(&self, message: impl Into<String>) -> PackageError {
        self.error(PackageErrorKind::Invalid {
            message: message.into(),
        })
    }

    pub fn unsupported(&self, what: impl Into<String>) -> PackageError {
        self.error(PackageErrorKind::Unsupported { what: what.into() })
    }

    /// Notes something that a person should know and that is no error.
    pub fn warn(&self, message: impl fmt::Display) {
        self.document.warn(format!("{}: {message}", self.location()));
    }

    fn wrong_type(&self, expected: &str) -> PackageError {
        let found = match &self.node.value {
            NodeValue::Null => "empty".to_owned(),
            NodeValue::Bool(value) => format!("{value}"),
            // As it is written: 020 and 1e3 are no integers, though 20 and 1000 are.
            NodeValue::Int(value) => format!("the number {}", self.written(value)),
            NodeValue::Float(value) => format!("the number {}", self.written(value)),
            NodeValue::Text(value) => format!("the text \"{}\"", shown(value)),
            NodeValue::List(_) => "a list".to_owned(),
            NodeValue::Map(_) => "a mapping".to_owned(),
        };
        self.error(PackageErrorKind::WrongType {
            found,
            expected: expected.to_owned(),
        })
    }

    /// A number as the file has it.
    fn written(&self, value: impl fmt::Display) -> String {
        let text = self
            .node
            .span
            .clone()
            .and_then(|span| self.document.text.get(span));
        match text.map(str::trim) {
            Some(text) if !text.is_empty() && text.len() <= 40 => text.to_owned(),
            _ => value.to_string(),
        }
    }

    pub fn text(&self) -> Result<&'d str, PackageError> {
        match &self.node.value {
            NodeValue::Text(text) => Ok(text),
            _ => Err(self.wrong_type("a text")),
        }
    }

    pub fn bool(&self) -> Result<bool, PackageError> {
        match self.node.value {
            NodeValue::Bool(value) => Ok(value),
            _ => Err(self.wrong_type("true or false")),
        }
    }

    pub fn integer(&self) -> Result<i64, PackageError> {
        match self.node.value {
            NodeValue::Int(value) => Ok(value),
            _ => Err(self.wrong_type("an integer")),
        }
    }

    /// An integer of at least `least`.
    pub fn count(&self, least: u64) -> Result<u64, PackageError> {
        match self.node.value {
            NodeValue::Int(value) => u64::try_from(value).ok().filter(|&value| value >= least),
            _ => None,
        }
        .ok_or_else(|| self.wrong_type(&format!("an integer of at least {least}")))
    }

    /// An integer of at least `least` and at most `most`.
    pub fn count_up_to(&self, least: u64, most: u64) -> Result<u64, PackageError> {
        match self.node.value {
            NodeValue::Int(value) => u64::try_from(value)
                .ok()
                .filter(|value| (least..=most).contains(value)),
            _ => None,
        }
        .ok_or_else(|| self.wrong_type(&format!("an integer from {least} to {most}")))
    }

    pub fn number(&self) -> Result<f64, PackageError> {
        match self.node.value {
            NodeValue::Int(value) => Ok(value as f64),
            NodeValue::Float(value) if value.is_finite() => Ok(value),
            _ => Err(self.wrong_type("a finite number")),
        }
    }

    /// A number that is `good`.
    pub fn number_where(&self, expected: &str, good: impl Fn(f64) -> bool) -> Result<f64, PackageError> {
        let number = match self.node.value {
            NodeValue::Int(value) => Some(value as f64),
            NodeValue::Float(value) => Some(value),
            _ => None,
        };
        let number = number.filter(|number| number.is_finite() && good(*number));
        number.ok_or_else(|| self.wrong_type(expected))
    }

    pub fn token_id(&self) -> Result<i32, PackageError> {
        let id = self.integer()?;
        i32::try_from(id)
            .ok()
            .filter(|&id| id >= 0)
            .ok_or_else(|| self.wrong_type("a token id (0 to 2^31 - 1)"))
    }

    /// One of the listed words, as its value.
    pub fn one_of<T: Copy>(&self, known: &[(&str, T)]) -> Result<T, PackageError> {
        let found = self.text()?;
        known
            .iter()
            .find(|(word, _)| *word == found)
            .map(|(_, value)| *value)
            .ok_or_else(|| {
                self.error(PackageErrorKind::UnknownValue {
                    found: found.to_owned(),
                    known: known.iter().map(|(word, _)| (*word).to_owned()).collect(),
                })
            })
    }

    /// The items of a list; an absent value (null) is an empty one.
    pub fn items(&self) -> Result<impl Iterator<Item = Cursor<'d>> + use<'d>, PackageError> {
        let items = match &self.node.value {
            NodeValue::List(items) => items.as_slice(),
            NodeValue::Null => &[],
            _ => return Err(self.wrong_type("a list")),
        };
        let (document, key) = (self.document, self.key.clone());
        Ok(items.iter().enumerate().map(move |(index, node)| Cursor {
            document,
            node,
            key: format!("{key}[{index}]"),
        }))
    }

    /// Whether the value is a list (and not a single value in its place).
    pub fn is_list(&self) -> bool {
        matches!(self.node.value, NodeValue::List(_))
    }

    pub fn is_map(&self) -> bool {
        matches!(self.node.value, NodeValue::Map(_))
    }

    /// The entries of a mapping whose keys are names that the author chose.
    pub fn entries(&self) -> Result<impl Iterator<Item = (&'d str, Cursor<'d>)> + use<'d>, PackageError> {
        let entries = match &self.node.value {
            NodeValue::Map(entries) => entries.as_slice(),
            NodeValue::Null => &[],
            _ => return Err(self.wrong_type("a mapping")),
        };
        let (document, parent) = (self.document, self.key.clone());
        Ok(entries.iter().map(move |(name, node)| {
            let cursor = Cursor {
                document,
                node,
                key: join(&parent, name),
            };
            (name.as_str(), cursor)
        }))
    }

    /// The mapping's fields, of which those that are never asked for are unknown.
    pub fn fields(&self) -> Result<Fields<'d>, PackageError> {
        match &self.node.value {
            NodeValue::Map(entries) => Ok(Fields {
                at: self.clone(),
                entries,
                asked: Vec::new(),
            }),
            _ => Err(self.wrong_type("a mapping")),
        }
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// A mapping with known fields. Call [`finish`](Self::finish) when all were asked for.
pub(super) struct Fields<'d> {
    at: Cursor<'d>,
    entries: &'d [(String, Node)],
    asked: Vec<&'static str>,
}

impl<'d> Fields<'d> {
    /// The field's value; an explicit null counts as absent.
    pub fn get(&mut self, name: &'static str) -> Option<Cursor<'d>> {
        self.asked.push(name);
        let (_, node) = self.entries.iter().find(|(key, _)| key == name)?;
        (!matches!(node.value, NodeValue::Null)).then(|| Cursor {
            document: self.at.document,
            node,
            key: join(&self.at.key, name),
        })
    }

    pub fn required(&mut self, name: &'static str, expected: &str) -> Result<Cursor<'d>, PackageError> {
        self.get(name).ok_or_else(|| self.missing(name, expected))
    }

    /// The error of a field that is not there.
    pub fn missing(&self, name: &str, expected: &str) -> PackageError {
        let location = Location {
            key: join(&self.at.key, name),
            ..self.at.location()
        };
        let expected = expected.to_owned();
        PackageError::new(location, PackageErrorKind::MissingField { expected })
    }

    pub fn text(&mut self, name: &'static str) -> Result<Option<&'d str>, PackageError> {
        self.get(name).map(|value| value.text()).transpose()
    }

    /// Declares fields that are known and whose content does not change what runs.
    pub fn skip(&mut self, names: &[&'static str]) {
        self.asked.extend_from_slice(names);
    }

    /// Warns of every field that nobody asked for.
    pub fn finish(self) {
        for (name, node) in self.entries {
            if !self.asked.contains(&name.as_str()) {
                let cursor = Cursor {
                    document: self.at.document,
                    node,
                    key: join(&self.at.key, name),
                };
                cursor.warn("unknown field, ignored");
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<NodeValue>::deserialize(deserializer)?;
        let line = spanned.referenced.line();
        Ok(Node {
            line: (line > 0).then_some(line),
            span: byte_range(spanned.defined.span()),
            value: spanned.value,
        })
    }
}

fn byte_range(span: serde_saphyr::Span) -> Option<Range<usize>> {
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    Some(start..start.checked_add(length)?)
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = NodeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_none<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<NodeValue, E> {
        Ok(NodeValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<NodeValue, E> {
        Ok(NodeValue::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<NodeValue, E> {
        i64::try_from(value)
            .map(NodeValue::Int)
            .map_err(|_| E::custom(format!("the number {value} is above 2^63 - 1")))
    }

    fn visit_f64<E>(self, value: f64) -> Result<NodeValue, E> {
        Ok(NodeValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<NodeValue, E> {
        Ok(NodeValue::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<NodeValue, E> {
        Ok(NodeValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NodeValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(NodeValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(NodeValue::Map(entries))
    }
}
