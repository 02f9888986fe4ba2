//! What runs of a pipeline have computed of the tokens that they began with, kept for others that
//! begin so: a system prompt, a document that many questions are about.
//!
//! An entry is a sequence of tokens, the inputs of the run that it was of, and KV and states behind
//! the last token. A run whose tokens begin as the entry's do, and that has the same inputs byte by
//! byte, takes the KV of those tokens that both have, but for its last token, whose logits it needs.
//! A recurrent state is that of its last token alone: an entry with one serves runs that begin with
//! all of its tokens. The least recently used entries go when there are more bytes than may be.

use parking_lot::Mutex;

use crate::component::TensorError;
use crate::package::{ComponentSpec, OutputRole, Phase, PipelineSpec};

use super::cache::Cache;
use super::pictures::Picture;
use super::pool::Pool;
use super::request::same;
use super::step::follows_tokens;
use super::value::Value;
use super::{PipelineError, Run};

/// The prefixes of a pipeline.
pub(super) struct Prefixes {
    /// Bytes that all entries may have together; 0 keeps none.
    budget: u64,
    /// The least recently used first.
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    tokens: Vec<i32>,
    inputs: Inputs,
    carried: Vec<Carried>,
    bytes: u64,
}

/// What KV depends on beside tokens.
struct Inputs {
    /// Component, input, value.
    values: Vec<(usize, usize, Value)>,
    pictures: Vec<Picture>,
}

/// What an output of a component carries from step to step: component, output, value.
struct Carried(usize, usize, Kept);

enum Kept {
    InPlace(Cache),
    /// With the axis of its rows.
    Rows(Value, usize),
    /// As a whole or not at all: of all the tokens.
    State(Value),
    /// Of the first pass, whatever came after.
    Held(Value),
}

impl Entry {
    fn needs_all(&self) -> bool {
        self.carried
            .iter()
            .any(|Carried(_, _, kept)| matches!(kept, Kept::State(_)))
    }

    /// How many of a run's tokens it has KV for.
    fn serves(&self, tokens: &[i32], pool: &Pool) -> usize {
        let alike = self.tokens.iter().zip(tokens);
        let alike = alike.take_while(|(a, b)| a == b).count();
        let usable = alike.min(tokens.len().saturating_sub(1));
        match self.needs_all() && usable < self.tokens.len() || !self.inputs.are_those_of(pool) {
            true => 0,
            false => usable,
        }
    }
}

impl Inputs {
    fn are_those_of(&self, pool: &Pool) -> bool {
        let mut own = self.values.iter();
        let alike = pool.requests().all(|(component, input, value)| {
            own.next().is_some_and(|(of, at, kept)| {
                (*of, *at) == (component, input) && kept.view().is_some_and(|kept| same(kept, value))
            })
        });
        alike && own.next().is_none() && self.pictures == pool.pictures
    }
}

impl Prefixes {
    pub fn new(budget: u64) -> Self {
        Prefixes {
            budget,
            entries: Mutex::new(Vec::new()),
        }
    }

    pub fn are_kept(&self) -> bool {
        self.budget > 0
    }

    /// Puts an entry behind all others; those that it makes useless go, and those that there is no
    /// room for.
    fn insert(&self, entry: Entry, pool: &Pool) {
        if entry.bytes > self.budget {
            return;
        }
        let mut entries = self.entries.lock();
        entries.retain(|other| {
            let is_part = !other.needs_all() && entry.tokens.starts_with(&other.tokens);
            let is_same = other.tokens == entry.tokens;
            !((is_part || is_same) && other.inputs.are_those_of(pool))
        });
        entries.push(entry);
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut gone = 0;
        for entry in entries.iter() {
            if bytes <= self.budget {
                break;
            }
            bytes -= entry.bytes;
            gone += 1;
        }
        entries.drain(..gone);
    }

    /// Whether an entry has all of these tokens; it is then the latest used.
    fn has(&self, tokens: &[i32], pool: &Pool) -> bool {
        let mut entries = self.entries.lock();
        let found = entries.iter().position(|entry| {
            let whole = match entry.needs_all() {
                true => entry.tokens == tokens,
                false => entry.tokens.starts_with(tokens),
            };
            whole && entry.inputs.are_those_of(pool)
        });
        let Some(found) = found else { return false };
        let entry = entries.remove(found);
        entries.push(entry);
        true
    }

    /// Puts KV of the first tokens of a run into its pool, and says of how many.
    fn take(
        &self,
        tokens: &[i32],
        pool: &mut Pool,
        fits: impl Fn(usize) -> bool,
    ) -> Result<usize, TensorError> {
        let mut entries = self.entries.lock();
        let mut best = (0, 0);
        for (index, entry) in entries.iter().enumerate() {
            let count = entry.serves(tokens, pool);
            if count > best.1 && fits(count) {
                best = (index, count);
            }
        }
        let (index, count) = best;
        if count == 0 {
            return Ok(0);
        }
        let mut entry = entries.remove(index);
        let taken = entry
            .carried
            .iter_mut()
            .try_for_each(|carried| pool.carry(carried, count));
        entries.push(entry);
        taken.map(|()| count)
    }
}

impl Pool {
    /// What the components carry from step to step, without memory for more; and its bytes.
    fn carried(&mut self, spec: &PipelineSpec) -> Result<(Vec<Carried>, u64), TensorError> {
        let mut carried = Vec::new();
        let mut bytes = 0;
        for (index, component) in spec.components.iter().enumerate() {
            for (output, of) in component.outputs.iter().enumerate() {
                if let Some(cache) = self.cache(index, output) {
                    let kept = cache.compact()?;
                    bytes += kept.held_bytes();
                    carried.push(Carried(index, output, Kept::InPlace(kept)));
                    continue;
                }
                let slot = self.components.get_mut(index);
                let slot = slot.and_then(|values| values.outputs.get_mut(output));
                let Some(slot) = slot else { continue };
                let kept = match &of.role {
                    OutputRole::Plain => continue,
                    OutputRole::Present { axis, .. } => Kept::Rows(slot.front.copied()?, *axis),
                    OutputRole::State { .. } => Kept::State(slot.front.fork()),
                    OutputRole::Held => Kept::Held(slot.front.fork()),
                };
                let (Kept::Rows(value, _) | Kept::State(value) | Kept::Held(value)) = &kept else {
                    continue;
                };
                bytes += value.held_bytes();
                carried.push(Carried(index, output, kept));
            }
        }
        Ok((carried, bytes))
    }

    /// Takes the first `count` rows of what another run has carried.
    fn carry(
        &mut self,
        Carried(component, output, kept): &mut Carried,
        count: usize,
    ) -> Result<(), TensorError> {
        if let Kept::InPlace(kept) = kept {
            if let Some(cache) = self.cache_mut(*component, *output) {
                *cache = kept.fork();
                cache.truncate(count);
            }
            return Ok(());
        }
        let slot = self.components.get_mut(*component);
        let slot = slot.and_then(|values| values.outputs.get_mut(*output));
        let Some(slot) = slot else { return Ok(()) };
        match kept {
            Kept::InPlace(_) => {}
            Kept::Rows(value, axis) => {
                let mut value = value.fork();
                value.own()?;
                value.truncate(*axis, i64::try_from(count).unwrap_or(i64::MAX));
                slot.front = value;
            }
            Kept::State(value) | Kept::Held(value) => slot.front = value.fork(),
        }
        Ok(())
    }
}

impl Run {
    /// Whether other runs may go on from this one's KV, and it from theirs.
    fn shares_prefixes(&self) -> bool {
        let shared = self.pipeline.shared();
        // What is made of the whole prompt, or by a loop's own settings, is not of the first tokens.
        let of_prompt = |component: &ComponentSpec| {
            let mut inputs = component.inputs.iter();
            component.phase == Phase::PromptOnly && inputs.any(|input| follows_tokens(input.source))
        };
        shared.prefixes.are_kept()
            && self.shares
            && self.keeps_cache
            && !self.restart
            && shared.spec.token_loop.is_some()
            && shared.spec.nested.is_none()
            && shared.spec.iterations.is_empty()
            && !shared.spec.components.iter().any(of_prompt)
    }

    /// Takes KV of another run's for the first of the tokens, if there is any.
    pub(super) fn take_prefix(&mut self) -> Result<(), PipelineError> {
        // Who looks at the logits of all positions needs all of them to run.
        if self.ran > 0 || self.settings.all_logits || !self.shares_prefixes() {
            return Ok(());
        }
        let pipeline = self.pipeline.clone();
        let shared = pipeline.shared();
        let tokens = self.transcript.tokens();
        let features = self.features_of_first_pass();
        // What features stand for must all be among the tokens that do not run again.
        let fits = |count: usize| match &features {
            None => true,
            Some(places) => {
                let rest = tokens.get(count..).unwrap_or_default();
                !places.is_empty() && !rest.iter().any(|id| places.contains(id))
            }
        };
        let taken = shared.prefixes.take(tokens, &mut self.pool, fits);
        match taken {
            Ok(count) => {
                self.ran = count;
                self.stats.reused_tokens += count as u64;
                Ok(())
            }
            // Half of it may be there. The tokens run as if there had been none.
            Err(_) => self.restart_cache(),
        }
    }

    /// Keeps the KV of the tokens that have run for others.
    pub(super) fn keep_prefix(&mut self) {
        if self.ran == 0 || !self.shares_prefixes() || self.forget_ahead().is_err() {
            return;
        }
        let pipeline = self.pipeline.clone();
        let shared = pipeline.shared();
        let Some(tokens) = self.transcript.tokens().get(..self.ran) else {
            return;
        };
        if shared.prefixes.has(tokens, &self.pool) {
            return;
        }
        let tokens = tokens.to_vec();
        // A run that cannot be kept for others goes on as it is.
        let Ok((carried, mut bytes)) = self.pool.carried(&shared.spec) else {
            return;
        };
        let values = self.pool.fork_requests();
        bytes += values.iter().map(|(_, _, value)| value.held_bytes()).sum::<u64>();
        bytes += size_of_val(tokens.as_slice()) as u64;
        let entry = Entry {
            tokens,
            inputs: Inputs {
                values,
                pictures: self.pool.pictures.clone(),
            },
            carried,
            bytes,
        };
        shared.prefixes.insert(entry, &self.pool);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // What a panic has left half done is nothing to keep.
        if !std::thread::panicking() && self.pipeline.shared().prefixes.are_kept() {
            self.pool.roll_back();
            self.keep_prefix();
        }
    }
}
