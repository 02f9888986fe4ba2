//! The step loop: what runs, in which order, over which tokens.

use std::ops::Range;
use std::time::Instant;

use crate::component::RunControl;
use crate::generation::{Choice, SampleError, greedy};
use crate::package::{ComponentSpec, InputSource, Phase, PipelineSpec, TokenLoop};

use super::convert::last_row;
use super::execute::check_control;
use super::pool::{Span, ids};
use super::run::Run;
use super::{PipelineError, RequestError, Timings};

/// The phases that run before a token can be chosen.
const STEP_PHASES: [Phase; 2] = [Phase::PromptOnly, Phase::EveryStep];

impl Run {
    /// Runs everything over all tokens once: a package without a token loop.
    pub(super) fn run_once(&mut self, control: &RunControl) -> Result<Timings, PipelineError> {
        let started = Instant::now();
        self.check_request()?;
        let mut timings = Timings::default();
        let outcome = self.run_stale(&STEP_PHASES, |_| true, control);
        self.settle(outcome)?;
        timings.prompt_components = started.elapsed();
        timings.total = timings.prompt_components;
        Ok(timings)
    }

    /// Feeds the tokens that have not run yet, in chunks. Afterwards `logits` holds those of
    /// the last position.
    ///
    /// A chunk that has run stays run: if a later one fails, the next attempt goes on there.
    pub(super) fn feed(
        &mut self,
        token_loop: TokenLoop,
        control: &RunControl,
    ) -> Result<Timings, PipelineError> {
        self.feed_up_to(self.transcript.len(), token_loop, control)
    }

    /// The same of the first `count` tokens.
    pub(super) fn feed_up_to(
        &mut self,
        count: usize,
        token_loop: TokenLoop,
        control: &RunControl,
    ) -> Result<Timings, PipelineError> {
        let started = Instant::now();
        let mut timings = Timings::default();
        self.prepare_feed(control, &mut timings)?;
        let mut fed_several = false;
        let nested = self.pipeline.shared().spec.nested;
        if let Some(nested) = nested
            && let Some(pre) = nested.pre_embedder
        {
            self.feed_embeddings(token_loop, nested, pre, control, &mut timings)?;
        }
        while self.ran < count {
            let start = if self.keeps_cache { self.ran } else { 0 };
            let end = match self.settings.chunk_size {
                // What only the first pass gets belongs to all of the prompt.
                Some(_) if start == 0 && self.feeds_first_pass() => count,
                Some(chunk) => count.min(start.saturating_add(chunk)),
                None => count,
            };
            if self.feed_ahead(token_loop, control, &mut timings)? {
                continue;
            }
            let singly = token_loop.one_at_a_time;
            let end = if singly && start > 0 { start + 1 } else { end };
            if !self.keeps_cache {
                self.pool.reset_caches(&self.pipeline.shared().spec)?;
            }
            let rows = (start, end - start);
            let outcome = self.pass(token_loop, start..end, rows, control, &mut timings);
            self.settle(outcome)?;
            self.ran = end;
            self.has_logits = true;
            self.logits_are_used = false;
            self.show_head(token_loop, rows, control)?;
            fed_several |= rows.1 > 1;
        }
        if fed_several {
            self.keep_prefix();
        }
        if let Some(nested) = nested
            && !self.frames.ready
        {
            self.make_frame(token_loop, nested, control, &mut timings)?;
        }
        timings.total = started.elapsed();
        let fed_one = timings.total.saturating_sub(timings.prompt_components);
        if self.last_span == 1 {
            self.stats.decode += fed_one;
        } else {
            self.stats.prefill += timings.total;
        }
        Ok(timings)
    }

    /// Runs what comes before a pass over tokens.
    pub(super) fn prepare_feed(
        &mut self,
        control: &RunControl,
        timings: &mut Timings,
    ) -> Result<(), PipelineError> {
        let started = Instant::now();
        self.check_request()?;
        if self.transcript.len() == 0 {
            return Err(RequestError::NoTokens.into());
        }
        if self.restart {
            self.restart_cache()?;
        }
        let ran_before = self.stats.component_runs;
        let prompt = self.run_stale(&[Phase::PromptOnly], |_| true, control);
        self.settle(prompt)?;
        if self.stats.component_runs > ran_before {
            timings.prompt_components = started.elapsed();
        }
        self.take_prefix()?;
        self.use_ahead()
    }

    /// One pass of the every_step components over a span: of these tokens, with so many rows
    /// before it and of it.
    pub(super) fn pass(
        &mut self,
        token_loop: TokenLoop,
        range: Range<usize>,
        (past, len): (usize, usize),
        control: &RunControl,
        timings: &mut Timings,
    ) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let shared = pipeline.shared();
        let spec = &shared.spec;
        self.last_span = len;
        self.frames.ready = false;
        // While there is nothing in the caches, another component may stand in for the decoder.
        let first_pass = spec.first_pass.as_ref();
        let (chooser, logits) = match first_pass.filter(|_| past == 0) {
            Some(first) => (first.component, first.logits),
            None => (token_loop.decoder, token_loop.logits),
        };
        let stands_by = |index: usize| {
            let either = [Some(token_loop.decoder), first_pass.map(|first| first.component)];
            index != chooser && either.contains(&Some(index))
        };
        for &index in &spec.order {
            let by_frame = spec.nested.is_some_and(|nested| nested.runs(index));
            if by_frame || stands_by(index) || !self.runs_in(spec, index, &[Phase::EveryStep]) {
                continue;
            }
            check_control(control)?;
            let started = Instant::now();
            let guessed = self.ahead.tokens();
            let tokens = guessed.unwrap_or(self.transcript.tokens());
            let last_only = self.last_logits_only && guessed.is_none();
            let span = Span {
                ids: ids(tokens, range.clone()),
                len,
                past,
                last_row: (index == chooser && last_only && len > 1).then_some(logits),
                tokens,
            };
            self.pool.execute(spec, &shared.sessions, index, span, control)?;
            if let Some(first) = first_pass.filter(|first| first.component == index) {
                self.pool.begin_caches(spec, first, token_loop.decoder, len)?;
            }
            self.stats.component_runs += 1;
            let took = started.elapsed();
            if index == chooser {
                self.stats.passes += 1;
                timings.decoder += took;
            } else {
                timings.step_components += took;
            }
        }
        self.take_logits(chooser, logits)
    }

    /// Makes the last row of what a component has made the logits.
    pub(super) fn take_logits(&mut self, chooser: usize, logits: usize) -> Result<(), PipelineError> {
        let made = self.pool.output(chooser, logits);
        made.and_then(|logits| last_row(logits, &mut self.next_logits))
            .filter(|()| !self.next_logits.is_empty())
            .ok_or_else(|| RequestError::EmptyLogits {
                component: component_name(&self.pipeline.shared().spec, chooser),
            })?;
        std::mem::swap(&mut self.logits, &mut self.next_logits);
        Ok(())
    }

    /// The tokens that features stand for which only the pass that begins a sequence gets; none where
    /// it is the graph that knows. `None` if there are no features.
    pub(super) fn features_of_first_pass(&self) -> Option<Vec<i32>> {
        if !self.feeds_first_pass() {
            return None;
        }
        let spec = &self.pipeline.shared().spec;
        let inputs = || spec.components.iter().flat_map(|component| &component.inputs);
        let by_graph = inputs().any(|input| {
            let only_first = input.absent.as_ref().is_some_and(|absent| absent.first_pass_only);
            only_first && input.merges.is_empty()
        });
        match by_graph {
            true => Some(Vec::new()),
            false => Some(
                inputs()
                    .flat_map(|input| &input.merges)
                    .map(|merge| merge.token)
                    .collect(),
            ),
        }
    }

    /// Whether there is a value that only the pass that begins a sequence gets.
    fn feeds_first_pass(&self) -> bool {
        let spec = &self.pipeline.shared().spec;
        spec.components.iter().any(|component| {
            component.inputs.iter().any(|input| {
                let only_first = input.absent.as_ref().is_some_and(|absent| absent.first_pass_only);
                let runs = |component: usize| self.activity.active.get(component) == Some(&true);
                let edge =
                    matches!(input.source, InputSource::Edge(from) if only_first && runs(from.component));
                edge || input.merges.iter().any(|merge| runs(merge.features.component))
            })
        })
    }

    /// Runs the components of these phases, those of them that are `wanted`, whose values are not
    /// there or no longer good.
    pub(super) fn run_stale(
        &mut self,
        phases: &[Phase],
        wanted: impl Fn(usize) -> bool,
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        for &index in &spec.order {
            let fresh = self.activity.fresh.get(index) == Some(&true);
            if fresh || !wanted(index) || !self.runs_in(spec, index, phases) {
                continue;
            }
            self.run_over_all(index, control)?;
            self.pool.commit();
            if let Some(fresh) = self.activity.fresh.get_mut(index) {
                *fresh = true;
            }
        }
        Ok(())
    }

    /// Runs one component over all tokens, a denoiser with all of its steps.
    pub(super) fn run_over_all(&mut self, index: usize, control: &RunControl) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        match spec.loop_of(index) {
            Some(of) => self.denoise_all(spec, of, control),
            None => self.run_one(index, control),
        }
    }

    /// Runs one component over all tokens, once.
    pub(super) fn run_one(&mut self, index: usize, control: &RunControl) -> Result<(), PipelineError> {
        check_control(control)?;
        let pipeline = self.pipeline.clone();
        let shared = pipeline.shared();
        let reads_tokens = shared
            .spec
            .components
            .get(index)
            .is_some_and(|component| component.inputs.iter().any(|input| follows_tokens(input.source)));
        if reads_tokens && self.transcript.len() == 0 {
            return Err(RequestError::NoTokens.into());
        }
        let tokens = match shared.spec.nested.and_then(|nested| nested.pre_embedder?.prefill) {
            Some(prefill) if prefill.component == index => self.transcript.prompt(),
            _ => self.transcript.tokens(),
        };
        let span = Span {
            ids: tokens,
            len: tokens.len(),
            past: 0,
            last_row: None,
            tokens: self.transcript.tokens(),
        };
        self.pool
            .execute(&shared.spec, &shared.sessions, index, span, control)?;
        self.stats.component_runs += 1;
        Ok(())
    }

    pub(super) fn runs_in(&self, spec: &PipelineSpec, index: usize, phases: &[Phase]) -> bool {
        let active = self.activity.active.get(index) == Some(&true);
        let component = spec.components.get(index);
        active && component.is_some_and(|component| phases.contains(&component.phase))
    }

    pub(super) fn check_request(&mut self) -> Result<(), PipelineError> {
        if self.activity.checked {
            return Ok(());
        }
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        let in_step = |_, component: &ComponentSpec| STEP_PHASES.contains(&component.phase);
        self.activity.check(spec, &self.pool, in_step)?;
        self.forget_inactive();
        Ok(())
    }

    /// Nothing reads what components have left behind whose modality has gone.
    pub(super) fn forget_inactive(&mut self) {
        for (index, active) in self.activity.active.iter().enumerate() {
            if !active {
                self.pool.forget_outputs(index);
            }
        }
    }

    /// Keeps what a pass wrote, or forgets it.
    pub(super) fn settle<T>(&mut self, outcome: Result<T, PipelineError>) -> Result<T, PipelineError> {
        match outcome {
            Ok(_) => self.pool.commit(),
            Err(_) => self.pool.roll_back(),
        }
        outcome
    }

    /// Drops all KV and state: the tokens run again from the first.
    pub(super) fn restart_cache(&mut self) -> Result<(), PipelineError> {
        self.ahead.forget();
        self.pool.reset_caches(&self.pipeline.shared().spec)?;
        self.ran = 0;
        self.has_logits = false;
        self.logits_are_used = false;
        self.restart = false;
        Ok(())
    }

    /// Chooses a token from the current logits, of those that the constraint allows.
    pub(super) fn choose(&mut self, token_loop: TokenLoop) -> Result<Choice, PipelineError> {
        let tokens = self.transcript.tokens();
        let prompt_len = tokens.len() - self.transcript.turn().len();
        let allowed = match &mut self.constrained {
            Some(constrained) => Some(constrained.mask(self.logits.len())?),
            None => None,
        };
        let choice = self.sampler.choose(&self.logits, tokens, prompt_len, allowed);
        choice.map_err(|error| {
            let spec = &self.pipeline.shared().spec;
            no_choice(component_name(spec, token_loop.decoder), error).into()
        })
    }
}

/// The error of logits of a component that no token was chosen from.
pub(super) fn no_choice(component: String, error: SampleError) -> RequestError {
    match error {
        SampleError::Nan { index } => RequestError::NanLogits { component, index },
        SampleError::Empty => RequestError::EmptyLogits { component },
        error => RequestError::NoChoice { component, error },
    }
}

/// The most probable of these logits of a component.
pub(super) fn choose(logits: &[f32], component: &str) -> Result<Choice, PipelineError> {
    greedy(logits).map_err(|error| no_choice(component.to_owned(), error).into())
}

/// Whether an input changes when tokens are appended.
pub(super) fn follows_tokens(source: InputSource) -> bool {
    matches!(
        source,
        InputSource::Tokens
            | InputSource::AttentionMask
            | InputSource::Positions { .. }
            | InputSource::Length { .. }
    )
}

fn component_name(spec: &PipelineSpec, index: usize) -> String {
    spec.components
        .get(index)
        .map_or(String::new(), |component| component.name.clone())
}
