//! TfIdfVectorizer: how often each n-gram of a pool is in a row of tokens.         ai.onnx 9
//!
//!   x [c] or [b, c], of int32, int64 or strings     y [size] or [b, size] of float, where
//!   size = max(ngram_indexes) + 1
//!
//!   y[ngram_indexes[i]] is the sum, over the n-grams i with that index, of
//!     TF      count(i)
//!     IDF     weights[i] where count(i) > 0
//!     TFIDF   count(i) weights[i]
//!
//! count(i) is the number of places where the n-gram is found with its tokens next to each
//! other, and with 1, 2, ... `max_skip_count` tokens left out between each two of them; a
//! single token is counted once. The pool has all 1-grams, then all 2-grams and so on, and
//! `ngram_counts` says where each size begins.

use std::collections::HashMap;

use super::infer::{input_dims, input_type};
use super::{Built, required_attribute, wrong_attribute};
use crate::native::element::ElementType;
use crate::native::ending::{self, counted};
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};
use crate::native::working::Working;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Tf,
    Idf,
    TfIdf,
}

#[derive(Debug)]
struct TfIdfVectorizer {
    mode: Mode,
    vocabulary: Vocabulary,
    trie: Trie,
    min_length: usize,
    max_skips: usize,
    /// For each n-gram, where it is in the result.
    indexes: Vec<usize>,
    /// For each n-gram, 1 where the node gives none.
    weights: Vec<f32>,
    size: usize,
}

pub(in crate::native) fn tf_idf_vectorizer(node: &NodeInfo<'_>) -> Built {
    let mode = match required_attribute("mode", node.string("mode")?)? {
        "TF" => Mode::Tf,
        "IDF" => Mode::Idf,
        "TFIDF" => Mode::TfIdf,
        other => {
            return Err(wrong_attribute(
                "mode",
                format!("is \"{other}\", expected TF, IDF or TFIDF"),
            ));
        }
    };
    let indexes = indexes(required_attribute("ngram_indexes", node.ints("ngram_indexes")?)?)?;
    let weights = match node.floats("weights")?.filter(|weights| !weights.is_empty()) {
        Some(weights) if weights.len() == indexes.len() => weights.to_vec(),
        Some(weights) => {
            let message = format!("has {} elements, ngram_indexes {}", weights.len(), indexes.len());
            return Err(wrong_attribute("weights", message));
        }
        None => vec![1.0; indexes.len()],
    };
    let (vocabulary, pool) = pool(node)?;
    let starts = required_attribute("ngram_counts", node.ints("ngram_counts")?)?;
    let levels = levels(starts, pool.len(), indexes.len())?;
    let length = |name: &'static str, at_least: usize, at_most: usize| {
        let given = required_attribute(name, node.int(name)?)?;
        let fits = usize::try_from(given).ok();
        fits.filter(|length| (at_least..=at_most).contains(length))
            .ok_or_else(|| {
                wrong_attribute(
                    name,
                    format!("is {given}, expected {at_least} to {at_most} (the sizes of ngram_counts)"),
                )
            })
    };
    let min_length = length("min_gram_length", 1, levels.len())?;
    let max_length = length("max_gram_length", min_length, levels.len())?;
    let skips = required_attribute("max_skip_count", node.int("max_skip_count")?)?;
    let max_skips = usize::try_from(skips)
        .map_err(|_| wrong_attribute("max_skip_count", format!("is {skips}, expected 0 or more")))?;
    // Single tokens have nothing to skip.
    let max_skips = if max_length == 1 { 0 } else { max_skips };
    Ok(Box::new(TfIdfVectorizer {
        mode,
        vocabulary,
        trie: Trie::new(&pool, &levels, min_length..=max_length)?,
        min_length,
        max_skips,
        size: indexes.iter().max().map_or(0, |largest| largest + 1),
        indexes,
        weights,
    }))
}

fn indexes(given: &[i64]) -> Result<Vec<usize>, OpError> {
    // One more than the largest is a dim.
    let index = |&index: &i64| {
        let fits = usize::try_from(index).ok();
        fits.filter(|&index| index < isize::MAX as usize)
            .ok_or_else(|| wrong_attribute("ngram_indexes", format!("has {index}, which is no index")))
    };
    match given.is_empty() {
        true => Err(wrong_attribute("ngram_indexes", "is empty")),
        false => given.iter().map(index).collect(),
    }
}

/// Where the n-grams of each size, from 1 on, are in the pool.
fn levels(starts: &[i64], pool: usize, indexes: usize) -> Result<Vec<std::ops::Range<usize>>, OpError> {
    let wrong = |message: String| wrong_attribute("ngram_counts", message);
    let mut levels = Vec::with_capacity(starts.len());
    let mut ngrams = 0;
    let ends = starts.iter().skip(1).copied().map(Some).chain([None]);
    for (length, (&start, end)) in (1..).zip(starts.iter().zip(ends)) {
        let start = usize::try_from(start).map_err(|_| wrong(format!("has {start}")))?;
        let end = match end {
            Some(end) => usize::try_from(end).map_err(|_| wrong(format!("has {end}")))?,
            None => pool,
        };
        if start > end || end > pool {
            return Err(wrong(format!(
                "has {length}-grams from {start} to {end} in a pool of {pool}"
            )));
        }
        if !(end - start).is_multiple_of(length) {
            return Err(wrong(format!(
                "leaves {} elements of the pool to {length}-grams",
                end - start
            )));
        }
        ngrams += (end - start) / length;
        levels.push(start..end);
    }
    match ngrams <= indexes {
        true => Ok(levels),
        false => Err(wrong_attribute(
            "ngram_indexes",
            format!("has {indexes} elements for {ngrams} n-grams"),
        )),
    }
}

/// What the tokens of a row are to the trie.
#[derive(Debug)]
enum Vocabulary {
    /// Themselves.
    Ints,
    /// Numbers of their own.
    Strings(HashMap<String, i64>),
}

/// The pool, its tokens as the vocabulary has them.
fn pool(node: &NodeInfo<'_>) -> Result<(Vocabulary, Vec<i64>), OpError> {
    match (node.ints("pool_int64s")?, node.strings("pool_strings")?) {
        (Some(pool), None) => Ok((Vocabulary::Ints, pool.to_vec())),
        (None, Some(pool)) => {
            let mut numbers = HashMap::new();
            let numbered = pool.into_iter().map(|token| {
                let next = numbers.len() as i64;
                *numbers.entry(token.to_owned()).or_insert(next)
            });
            let pool = numbered.collect();
            Ok((Vocabulary::Strings(numbers), pool))
        }
        _ => Err(OpError::Message(
            "one of the attributes pool_int64s and pool_strings is expected, and only one".into(),
        )),
    }
}

impl Vocabulary {
    fn check(&self, ty: ElementType) -> Result<(), OpError> {
        let expected = match (self, ty) {
            (Vocabulary::Ints, ElementType::Int32 | ElementType::Int64) => return Ok(()),
            (Vocabulary::Strings(_), ElementType::String) => return Ok(()),
            (Vocabulary::Ints, _) => "int32 or int64, like the pool",
            (Vocabulary::Strings(_), _) => "string, like the pool",
        };
        Err(super::unsupported(ty, expected))
    }

    /// The tokens; `None` for one that no n-gram has.
    fn tokens(&self, x: &TensorRef<'_>) -> Result<Working<Option<i64>>, OpError> {
        let mut tokens = Working::with_room(x.len())?;
        match self {
            Vocabulary::Ints => tokens.extend(x.to_ints()?.into_iter().map(Some)),
            Vocabulary::Strings(numbers) => {
                tokens.extend(counted(x.strings()?).map(|token| numbers.get(token).copied()));
            }
        }
        Ok(tokens)
    }
}

/// The n-grams by their tokens. State 0 is that of no tokens.
#[derive(Debug)]
struct Trie {
    steps: HashMap<(usize, i64), usize>,
    /// The n-gram that each state is.
    ngrams: Vec<Option<usize>>,
}

impl Trie {
    /// Of the n-grams of these lengths.
    fn new(
        pool: &[i64],
        levels: &[std::ops::Range<usize>],
        lengths: std::ops::RangeInclusive<usize>,
    ) -> Result<Self, OpError> {
        let mut trie = Trie {
            steps: HashMap::new(),
            ngrams: vec![None],
        };
        let mut ngram = 0;
        for (length, level) in (1..).zip(levels) {
            let tokens = pool.get(level.clone()).unwrap_or_default();
            for tokens in tokens.chunks_exact(length) {
                if lengths.contains(&length) && trie.insert(tokens, ngram).is_some() {
                    let message = format!("has the {length}-gram {ngram} twice");
                    return Err(wrong_attribute("pool", message));
                }
                ngram += 1;
            }
        }
        Ok(trie)
    }

    /// The n-gram that was there before.
    fn insert(&mut self, tokens: &[i64], ngram: usize) -> Option<usize> {
        let mut state = 0;
        for &token in tokens {
            let next = self.ngrams.len();
            state = *self.steps.entry((state, token)).or_insert(next);
            if state == next {
                self.ngrams.push(None);
            }
        }
        self.ngrams.get_mut(state).and_then(|slot| slot.replace(ngram))
    }

    /// Visits the n-grams that are the first ones of these tokens, with their lengths.
    fn prefixes(&self, tokens: impl Iterator<Item = Option<i64>>, mut visit: impl FnMut(usize, usize)) {
        let mut state = 0;
        for (length, token) in (1..).zip(counted(tokens)) {
            let next = token.and_then(|token| self.steps.get(&(state, token)));
            let Some(&next) = next else { return };
            state = next;
            if let Some(ngram) = self.ngrams.get(state).copied().flatten() {
                visit(ngram, length);
            }
        }
    }
}

impl TfIdfVectorizer {
    /// How often each n-gram is in a row.
    fn count(&self, row: &[Option<i64>], counts: &mut [u64]) {
        ending::count(counts.len());
        counts.fill(0);
        for skips in 0..=self.max_skips {
            // Single tokens are counted once.
            let shortest = match skips {
                0 => self.min_length,
                _ => self.min_length.max(2),
            };
            // Where the shortest do not fit, those further apart do not either.
            let reach = (shortest - 1).saturating_mul(skips.saturating_add(1));
            if reach >= row.len() {
                break;
            }
            for start in counted(0..row.len() - reach) {
                let tokens = row[start..].iter().step_by(skips + 1).copied();
                self.trie.prefixes(tokens, |ngram, length| {
                    if let Some(count) = counts.get_mut(ngram).filter(|_| length >= shortest) {
                        *count += 1;
                    }
                });
            }
        }
    }
}

impl Operator for TfIdfVectorizer {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(ty) = input_type(cx, 0) {
            self.vocabulary.check(ty)?;
        }
        let dims = match input_dims(cx, 0) {
            Some(mut dims) => {
                dims.truncate(dims.len().saturating_sub(1));
                dims.push(SymDim::Fixed(self.size));
                Some(dims)
            }
            None => None,
        };
        cx.set_output(0, Some(ElementType::Float32), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        self.vocabulary.check(x.element_type())?;
        let (rows, columns) = match *x.dims() {
            [] => (None, 1),
            [columns] => (None, columns),
            [rows, columns] => (Some(rows), columns),
            _ => {
                return Err(OpError::WrongDims {
                    what: "input 0".into(),
                    found: x.dims().into(),
                    expected: "[c] or [b, c]".into(),
                });
            }
        };
        let dims: Dims = rows.into_iter().chain([self.size]).collect();
        let y = cx.output::<f32>(0, &dims)?.zeroed();
        let tokens = self.vocabulary.tokens(&x)?;
        let mut counts = vec![0; self.indexes.len()];
        let rows = tokens.chunks_exact(columns.max(1));
        for (row, y) in rows.zip(y.chunks_exact_mut(self.size)) {
            self.count(row, &mut counts);
            let ngrams = counts.iter().zip(&self.weights).zip(&self.indexes);
            for ((&count, &weight), &index) in ngrams.filter(|((count, _), _)| **count > 0) {
                if let Some(y) = y.get_mut(index) {
                    *y += match self.mode {
                        Mode::Tf => count as f32,
                        Mode::Idf => weight,
                        Mode::TfIdf => count as f32 * weight,
                    };
                }
            }
        }
        Ok(())
    }
}
