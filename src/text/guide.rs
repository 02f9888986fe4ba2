//! A vocabulary as constraints need it, and grammars compiled for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};

use crate::panics::contain;

use super::constraint::Constraint;
use super::own_stack::with_own_stack;
use super::token_bytes::{self, TokenBytes};
use super::{TextError, Tokenizer};

/// Bytes of a grammar. A schema of a large API has some 100,000.
const MOST_SOURCE: usize = 1 << 20;
/// Bytes of a token: the trie is no deeper. Longer ones are never chosen.
const MOST_TOKEN: usize = 1000;
/// Ids: the trie has 24 bits for them, of which one means none.
const MOST_TOKENS: usize = (1 << 24) - 1;
/// White-space characters that a constraint allows in a row between the parts of JSON: a line's end
/// and an indent.
pub const DEFAULT_JSON_WHITESPACE: u32 = 32;

/// What an answer is made to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConstraintKind {
    /// A JSON object.
    Json,
    /// JSON that a JSON Schema describes.
    JsonSchema,
    /// What a regular expression matches as a whole.
    Regex,
    /// A context-free grammar in Lark's notation, as llguidance reads it.
    Lark,
}

impl ConstraintKind {
    /// What messages call it.
    pub fn name(self) -> &'static str {
        match self {
            ConstraintKind::Json => "JSON",
            ConstraintKind::JsonSchema => "JSON Schema",
            ConstraintKind::Regex => "regular expression",
            ConstraintKind::Lark => "Lark grammar",
        }
    }
}

/// A tokenizer's vocabulary, ready for constraints. Shared.
pub struct Guide {
    factory: ParserFactory,
    end_tokens: Vec<i32>,
    /// Tokens of the same bytes as another, and that other, which stands for them in the trie.
    twins: Vec<(u32, u32)>,
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide")
            .field("end_tokens", &self.end_tokens)
            .finish_non_exhaustive()
    }
}

impl Guide {
    /// For a tokenizer and the tokens that end an answer. Takes some tenths of a second with a
    /// vocabulary of 150,000.
    pub fn new(tokenizer: &Arc<Tokenizer>, end_tokens: &[i32]) -> Result<Arc<Self>, TextError> {
        let tokens = token_bytes::of_all(tokenizer)?;
        if tokens.len() > MOST_TOKENS {
            return Err(TextError::BadConstraint {
                message: format!(
                    "the vocabulary has {} ids; at most {MOST_TOKENS} work here",
                    tokens.len()
                ),
            });
        }
        let size = tokens.len();
        let known = |id: &&i32| usize::try_from(**id).is_ok_and(|id| id < size);
        let end_tokens: Vec<i32> = end_tokens.iter().filter(known).copied().collect();
        let ends: Vec<TokenId> = end_tokens
            .iter()
            .filter_map(|&id| u32::try_from(id).ok())
            .collect();
        let (words, twins) = words(&tokens, &ends);
        let factory = guarded(|| {
            let vocabulary = Vocabulary::new(tokenizer, &tokens, &words, &ends);
            let environment: TokEnv = Arc::new(vocabulary);
            let mut factory = ParserFactory::new_simple(&environment)?;
            factory.quiet();
            factory.limits_mut().verbose_errors = false;
            Ok(factory)
        })?;
        Ok(Arc::new(Guide {
            factory,
            end_tokens,
            twins,
        }))
    }

    /// The tokens that end an answer, which a constraint allows where it may end.
    pub fn end_tokens(&self) -> &[i32] {
        &self.end_tokens
    }

    /// Allows tokens whose twins are allowed.
    pub(super) fn allow_twins(&self, mask: &mut [u32]) {
        for &(twin, of) in &self.twins {
            let allowed = mask
                .get(of as usize / 32)
                .is_some_and(|word| word >> (of % 32) & 1 == 1);
            if let Some(word) = mask.get_mut(twin as usize / 32).filter(|_| allowed) {
                *word |= 1 << (twin % 32);
            }
        }
    }

    /// The token that stands for one in the trie; `None` for what is no token.
    pub(super) fn in_trie(&self, id: i32) -> Option<u32> {
        let id = u32::try_from(id).ok()?;
        let twin = self.twins.binary_search_by_key(&id, |(twin, _)| *twin).ok();
        let twin = twin.and_then(|at| self.twins.get(at));
        Some(twin.map_or(id, |(_, of)| *of))
    }

    /// Compiles a grammar; `text` is ignored for [`ConstraintKind::Json`]. `json_whitespace` is
    /// how many white-space characters JSON may have in a row between its parts; a schema's own
    /// `x-guidance` wins.
    pub fn compile(
        self: &Arc<Self>,
        kind: ConstraintKind,
        text: &str,
        json_whitespace: u32,
    ) -> Result<Constraint, TextError> {
        let refuse = |message: String| TextError::BadConstraint {
            message: format!("{}: {message}", kind.name()),
        };
        if text.len() > MOST_SOURCE {
            return Err(refuse(format!(
                "{} bytes are more than the {MOST_SOURCE} that are allowed",
                text.len()
            )));
        }
        // A grammar may be nested as deep as it is long.
        let compiled = with_own_stack(|| {
            let grammar = match kind {
                ConstraintKind::Json => schema(json!({"type": "object"}), json_whitespace),
                ConstraintKind::JsonSchema => schema(
                    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?,
                    json_whitespace,
                ),
                ConstraintKind::Regex => {
                    guarded_text(|| Ok::<_, fmt::Error>(TopLevelGrammar::from_regex(text)))
                }
                ConstraintKind::Lark => Ok(TopLevelGrammar::from_lark(text.to_owned())),
            }?;
            guarded_text(|| {
                let matcher = Matcher::new(self.factory.create_parser(grammar));
                match matcher.get_error() {
                    Some(error) => Err(llguidance_error(error)),
                    None => Ok(matcher),
                }
            })
        });
        let matcher = compiled.and_then(|matcher| matcher).map_err(refuse)?;
        Ok(Constraint::new(self.clone(), matcher))
    }
}

/// Carries a message through the error type of llguidance.
fn llguidance_error(message: String) -> Box<dyn std::error::Error + Send + Sync> {
    message.into()
}

/// A schema with our bounds, as llguidance takes options: under "x-guidance".
fn schema(schema: Value, whitespace: u32) -> Result<TopLevelGrammar, String> {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => return Err("the schema false allows nothing".to_owned()),
        other => return Err(format!("a schema is an object or a boolean, found {other}")),
    };
    let options = schema.entry("x-guidance").or_insert_with(|| json!({}));
    let Some(options) = options.as_object_mut() else {
        return Err("\"x-guidance\" is no object".to_owned());
    };
    if !options.contains_key("whitespace_pattern") && !options.contains_key("whitespace_flexible") {
        match whitespace {
            0 => options.insert("whitespace_flexible".to_owned(), json!(false)),
            most => options.insert(
                "whitespace_pattern".to_owned(),
                json!(format!(r"[\x20\x0A\x0D\x09]{{1,{most}}}")),
            ),
        };
    }
    Ok(TopLevelGrammar::from_json_schema(Value::Object(schema)))
}

/// Runs a call of llguidance: a panic in it and what it refuses are messages.
pub(super) fn guarded_text<R, E: fmt::Display>(call: impl FnOnce() -> Result<R, E>) -> Result<R, String> {
    match contain(call) {
        Ok(result) => result.map_err(|error| plain(&error.to_string())),
        Err(panic) => Err(format!("the llguidance library failed on it ({panic})")),
    }
}

fn guarded<R>(
    call: impl FnOnce() -> Result<R, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<R, TextError> {
    guarded_text(call).map_err(|message| TextError::BadConstraint {
        message: format!("the vocabulary: {message}"),
    })
}

/// The library's message without what is for its own developers.
fn plain(message: &str) -> String {
    /// Characters of a line, which may be a grammar's, and lines.
    const MOST: (usize, usize) = (160, 12);
    let end = ["\n<non-verbose/>", "\n<backtrace>", "\n<state>"]
        .into_iter()
        .filter_map(|mark| message.find(mark))
        .min();
    let lines = message
        .get(..end.unwrap_or(message.len()))
        .unwrap_or_default()
        .trim_end()
        .lines();
    let lines = lines.filter(|line| !line.trim().is_empty()).take(MOST.1);
    let short = |line: &str| match line.char_indices().nth(MOST.0) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    };
    lines.map(short).collect::<Vec<String>>().join("\n")
}

/// The words of the trie by token, empty for those that are never chosen, and the twins among them,
/// which are empty too, by id. Pieces come before tokens of bytes, which no tokenizer writes for what
/// a piece has.
fn words(tokens: &[TokenBytes], ends: &[TokenId]) -> (Vec<Vec<u8>>, Vec<(u32, u32)>) {
    const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
    let mut words: Vec<Vec<u8>> = tokens
        .iter()
        .map(|token| match token {
            // The marker begins no character: a token of it would be taken for an added one.
            TokenBytes::Text(bytes) if bytes.first() != Some(&MARKER) => bytes.clone(),
            TokenBytes::Byte(byte) if *byte != MARKER => vec![*byte],
            // Never part of a text; a Lark grammar may name it.
            TokenBytes::Added(name) => [&[MARKER], name.as_bytes()].concat(),
            TokenBytes::None | TokenBytes::Text(_) | TokenBytes::Byte(_) => Vec::new(),
        })
        .map(|word| if word.len() > MOST_TOKEN { Vec::new() } else { word })
        .collect();
    // What ends an answer is no text of it, whatever the vocabulary says.
    for &end in ends {
        let is_added = matches!(tokens.get(end as usize), Some(TokenBytes::Added(_)));
        if let Some(word) = words.get_mut(end as usize).filter(|_| !is_added) {
            *word = [&[MARKER], format!("<|end {end}|>").as_bytes()].concat();
        }
    }
    let mut first: HashMap<Vec<u8>, usize> = HashMap::with_capacity(words.len());
    let is_byte = |at: &usize| matches!(tokens.get(*at), Some(TokenBytes::Byte(_)));
    let mut order: Vec<usize> = (0..words.len()).collect();
    order.sort_by_key(is_byte);
    let mut twins = Vec::new();
    for at in order {
        let Some(word) = words.get_mut(at).filter(|word| !word.is_empty()) else {
            continue;
        };
        match first.entry(word.clone()) {
            Entry::Vacant(place) => {
                place.insert(at);
            }
            Entry::Occupied(of) => {
                word.clear();
                // Ids are below 2^24.
                twins.push((at as u32, *of.get() as u32));
            }
        }
    }
    twins.sort_unstable();
    (words, twins)
}

/// The vocabulary as llguidance asks for it.
struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    added: Vec<bool>,
    /// Whether the tokens of a text, one after the other, are the text.
    exact: bool,
}

impl Vocabulary {
    fn new(tokenizer: &Arc<Tokenizer>, tokens: &[TokenBytes], words: &[Vec<u8>], ends: &[TokenId]) -> Self {
        let size = u32::try_from(words.len()).unwrap_or(0);
        let info = TokRxInfo::new(size, ends.first().copied().unwrap_or(INVALID_TOKEN));
        let mut trie = TokTrie::from(&info, words);
        if ends.len() > 1 {
            trie = trie.with_eos_tokens(ends);
        }
        let mut vocabulary = Vocabulary {
            tokenizer: tokenizer.clone(),
            trie,
            added: tokens
                .iter()
                .map(|token| matches!(token, TokenBytes::Added(_)))
                .collect(),
            exact: true,
        };
        let samples = ["{\"name\": [1, true]}", "word", " \n two words", ".5"];
        vocabulary.exact = samples
            .iter()
            .all(|sample| vocabulary.own_tokens(sample).is_some());
        vocabulary
    }

    /// The tokens that the tokenizer makes of a text, if they are that text and no added ones.
    fn own_tokens(&self, text: &str) -> Option<Vec<TokenId>> {
        let ids = self.tokenizer.encode(text, false).ok()?;
        let mut tokens = Vec::with_capacity(ids.len());
        let mut rest = text.as_bytes();
        for id in ids {
            let id = u32::try_from(id).ok()?;
            let is_added = self.added.get(id as usize).copied().unwrap_or(true);
            rest = rest.strip_prefix(self.trie.token(id)).filter(|_| !is_added)?;
            tokens.push(id);
        }
        rest.is_empty().then_some(tokens)
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// As the tokenizer would; where its tokens are not those bytes, the longest ones that fit.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let whole = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let whole = bytes.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(whole).unwrap_or_default()
            }
        };
        let rest = bytes.get(whole.len()..).unwrap_or_default();
        let mut tokens = self
            .own_tokens(whole)
            .unwrap_or_else(|| self.trie.greedy_tokenize(whole.as_bytes()));
        if !rest.is_empty() {
            tokens.extend(self.trie.greedy_tokenize(rest));
        }
        tokens
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.exact
    }
}
