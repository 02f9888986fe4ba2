use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::component::{CALL, MemoryAccount, RunControl, TensorView, TraceSpan};
use crate::generation::{
    BeamSequence, Beams, FinishReason, HostSampler, LogitsHook, Logprobs, Sampler, StopConditions,
    log_probability,
};
use crate::package::{ComponentSpec, InputSource, OutputRef, Phase, PipelineSpec, TokenLoop};
use crate::text::StopStrings;

use super::constrain::Constrained;
use super::execute::check_control;
use super::loop_steps::Steps;
use super::media::Media;
use super::nested::Frames;
use super::open::vocabulary;
use super::pool::{Pool, at_port};
use super::request::{self, Activity};
use super::settings::{RunSettings, check_settings, sampler};
use super::speculate::{Ahead, check_speculation, refuse_beams};
use super::step::follows_tokens;
use super::transcript::{Piece, Transcript};
use super::{Event, Pipeline, PipelineError, RequestError, Timings};

/// The port that the loop publishes on the decoder, unless the graph has one of that name.
pub(super) const OUTPUT_IDS: &str = "output_ids";
/// The same where its steps are frames of codes.
pub(super) const OUTPUT_CODES: &str = "output_codes";

/// What a run has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    /// Times a component was run, all together.
    pub component_runs: u64,
    /// Time in steps that fed more than one token.
    pub prefill: Duration,
    /// Time in steps that fed one token.
    pub decode: Duration,
    /// Bytes that the KV buffers take, in use or reserved, those that forks share and those of a draft or a
    /// head included.
    pub kv_bytes: u64,
    /// Tokens that did not run because another run of the pipeline had begun with them.
    pub reused_tokens: u64,
    /// Tokens that speculation has proposed, and those of them that were chosen.
    pub proposed_tokens: u64,
    pub accepted_tokens: u64,
    /// Passes of the decoder.
    pub passes: u64,
}

/// One request's state: tokens, the pool of values, KV. Serial: one call at a time.
///
/// A call that fails leaves the run as it was, and usable.
pub struct Run {
    pub(super) pipeline: Pipeline,
    pub(super) settings: RunSettings,
    pub(super) stop: StopConditions,
    pub(super) transcript: Transcript,
    pub(super) constrained: Option<Constrained>,
    pub(super) pool: Pool,
    pub(super) activity: Activity,
    pub(super) media: Media,
    /// How many of the tokens the caches hold.
    pub(super) ran: usize,
    /// Whether the decoder keeps a cache, so that a step needs only the new tokens.
    pub(super) keeps_cache: bool,
    /// Whether nobody looks at the logits of positions before the last of a pass.
    pub(super) last_logits_only: bool,
    /// The caches depend on something that has changed.
    pub(super) restart: bool,
    /// Whether its KV is fit for other runs: neither of bytes that may come from anywhere, nor of a
    /// beam that nobody goes on from.
    pub(super) shares: bool,
    /// Of the last position that ran.
    pub(super) logits: Vec<f32>,
    /// Memory for those of the step under way.
    pub(super) next_logits: Vec<f32>,
    /// `logits` are those of the tokens that there are now.
    pub(super) has_logits: bool,
    /// The last token was chosen from the current logits.
    pub(super) logits_are_used: bool,
    pub(super) sampler: Sampler,
    /// How beams are searched, if they are.
    pub(super) beams: Option<Beams>,
    /// What the last search found.
    pub(super) sequences: Vec<BeamSequence>,
    /// The frames, in a nested package.
    pub(super) frames: Frames,
    /// Tokens that the last pass fed.
    pub(super) last_span: usize,
    pub(super) stats: RunStats,
    /// The steps of each loop, in an iterative package.
    pub(super) steps: Vec<Steps>,
    /// The step that comes next of the loop whose steps are the run's; `None` when it begins anew.
    pub(super) next_step: Option<usize>,
    pub(super) finished: Option<FinishReason>,
    /// What speculation has computed of tokens that are yet to be chosen.
    pub(super) ahead: Ahead,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("settings", &self.settings)
            .field("tokens", &self.transcript.len())
            .field("ran", &self.ran)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

impl Run {
    pub fn new(pipeline: &Pipeline, settings: &RunSettings) -> Result<Self, PipelineError> {
        Run::for_account(pipeline, settings, settings.memory_account())
    }

    /// The same, whose memory counts for an account.
    pub(super) fn for_account(
        pipeline: &Pipeline,
        settings: &RunSettings,
        account: Option<MemoryAccount>,
    ) -> Result<Self, PipelineError> {
        let spec = &pipeline.shared().spec;
        let decoder = spec
            .token_loop
            .and_then(|token_loop| spec.components.get(token_loop.decoder));
        // A decoder may be the last of several components, of which one has the caches.
        let mut stages = spec
            .components
            .iter()
            .filter(|component| spec.nested.is_none() && component.phase == Phase::EveryStep);
        let keeps_cache =
            decoder.is_some_and(|decoder| decoder.has_cache() || stages.any(ComponentSpec::has_cache));
        let embeds = spec.nested.is_some_and(|nested| nested.pre_embedder.is_some());
        // The tokens of frames are no text.
        let tokenizer = pipeline
            .tokenizer()
            .filter(|_| decoder.is_some() && spec.nested.is_none());
        check_settings(settings, decoder, keeps_cache, embeds, tokenizer.is_some())?;
        if let Some(size) = vocabulary(spec, pipeline.tokenizer().map(|tokenizer| &**tokenizer)) {
            let known = |id: i32| usize::try_from(id).is_ok_and(|id| id < size);
            if let Some(id) = settings.stop_tokens.iter().flatten().find(|id| !known(**id)) {
                return Err(RequestError::InvalidSetting {
                    what: "stop_tokens",
                    message: format!("token id {id} is outside of the vocabulary of {size} tokens"),
                }
                .into());
            }
        }
        check_speculation(settings, pipeline.shared(), keeps_cache)?;
        let steps = Steps::of_all(spec, settings)?;
        let (sampler, beams) = sampler(settings, spec)?;
        refuse_beams(settings.speculation, beams.as_ref())?;
        let max_tokens = settings.max_tokens.or(spec.max_tokens);
        let mut pool = Pool::new(spec, account)?;
        for (iteration, steps) in spec.iterations.iter().zip(&steps) {
            pool.states.start_as_noise(iteration, steps.starts_as_noise());
        }
        let ahead = Ahead::new(pipeline, settings, pool.account())?;
        Ok(Run {
            pipeline: pipeline.clone(),
            settings: settings.clone(),
            stop: StopConditions {
                end_tokens: if settings.stop_on_eos {
                    spec.eos_token_ids.clone()
                } else {
                    Vec::new()
                },
                sequences: settings.stop_tokens.clone(),
                max_tokens,
                max_length: settings
                    .max_length
                    .or(spec.generation.max_length.filter(|_| max_tokens.is_none())),
                context_length: spec.context_length,
            },
            transcript: Transcript::new(
                tokenizer,
                settings.skip_special_tokens,
                &StopStrings::new(&settings.stop_strings, settings.keep_stop_string),
            ),
            constrained: None,
            pool,
            activity: Activity::new(spec),
            media: Media::default(),
            ran: 0,
            keeps_cache,
            last_logits_only: !settings.all_logits && !feeds_logits(spec),
            restart: false,
            shares: true,
            logits: Vec::new(),
            next_logits: Vec::new(),
            has_logits: false,
            logits_are_used: false,
            sampler,
            beams,
            sequences: Vec::new(),
            frames: Frames::default(),
            last_span: 0,
            stats: RunStats::default(),
            steps,
            next_step: None,
            finished: None,
            ahead,
        })
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Appends prompt tokens. After a finished answer this starts the next turn. Placeholders of
    /// images that were added become the tokens of these.
    pub fn append_tokens(&mut self, ids: &[i32]) -> Result<(), PipelineError> {
        self.need_tokens_read("append_tokens")?;
        let (ids, images) = self.place_images(ids)?;
        let shared = self.pipeline.shared();
        if let Some(size) = vocabulary(&shared.spec, shared.tokenizer.as_deref()) {
            for &id in ids.iter() {
                if !usize::try_from(id).is_ok_and(|id| id < size) {
                    return Err(RequestError::TokenOutOfRange { id, size }.into());
                }
            }
        }
        if let Some(limit) = self
            .stop
            .context_length
            .and_then(|limit| usize::try_from(limit).ok())
            // How many rows an embedder makes of them is not known yet.
            && shared.spec.nested.is_none_or(|nested| nested.pre_embedder.is_none())
            && self.transcript.len().saturating_add(ids.len()) > limit
        {
            return Err(RequestError::ContextFull {
                have: self.transcript.len(),
                more: ids.len(),
                limit,
            }
            .into());
        }
        if !ids.is_empty() {
            let pre_embedder = shared.spec.nested.and_then(|nested| nested.pre_embedder);
            if pre_embedder.is_some() && self.transcript.chosen().next().is_some() {
                return Err(RequestError::PromptEnded.into());
            }
            self.media.place(self.transcript.len(), &images);
            self.pool.pictures = self.media.pictures();
            self.sampler.forget_from(self.transcript.len());
            self.transcript.append(&ids);
            if let Some(constrained) = &mut self.constrained {
                constrained.restart(self.transcript.len());
            }
            self.tokens_changed();
        }
        Ok(())
    }

    /// Appended or removed tokens: components that read them run again, unless each step brings
    /// them the new ones.
    fn tokens_changed(&mut self) {
        self.finished = None;
        self.logits_are_used = false;
        self.pool.output_ids.clear();
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        for (index, component) in spec.components.iter().enumerate() {
            let reads_tokens = component.inputs.iter().any(|input| follows_tokens(input.source));
            let ran = self.activity.fresh.get(index) == Some(&true);
            let spoiled = match component.phase {
                Phase::PromptOnly => ran,
                Phase::EveryStep => spec.token_loop.is_none(),
                Phase::FinalOnly | Phase::OnDemand => false,
            };
            if reads_tokens && spoiled {
                self.spoil(index);
            }
        }
    }

    /// Encodes and appends text, with the tokenizer's own special tokens if `add_special`
    /// (a rendered chat template has them already). Returns how many tokens it became.
    pub fn append_text(&mut self, text: &str, add_special: bool) -> Result<usize, PipelineError> {
        let tokenizer = self.pipeline.tokenizer().ok_or(RequestError::NoTokenizer)?;
        let ids = tokenizer.encode(text, add_special)?;
        let before = self.transcript.len();
        self.append_tokens(&ids)?;
        Ok(self.transcript.len() - before)
    }

    /// Feeds what has not run yet, chooses a token and appends it. An iterative package takes
    /// one step of its loop instead, and gives [`FinishReason::Completed`] with the last; a
    /// package without a loop runs once and gives that.
    pub fn step(&mut self, control: &RunControl) -> Result<Event, PipelineError> {
        let _traced = self.traced("step");
        self.refuse_finished()?;
        self.refuse_waiting_images()?;
        let Some(token_loop) = self.token_loop() else {
            let pipeline = self.pipeline.clone();
            let (progress, timings) = match pipeline.shared().spec.own_loop() {
                Some(of) => {
                    let (progress, timings) = self.iterate(of, control)?;
                    (Some(progress), timings)
                }
                None => (None, self.run_once(control)?),
            };
            if progress.is_none_or(|progress| progress.done >= progress.count) {
                self.finished = Some(FinishReason::Completed);
            }
            return Ok(Event {
                progress,
                ..self.event(None, Piece::default(), 0.0, timings)
            });
        };
        if let Some(beams) = self.beams {
            return Err(RequestError::InvalidSetting {
                what: "num_beams",
                message: format!(
                    "{} beams are searched as a whole, by generate; to step, make the run with num_beams 1",
                    beams.count
                ),
            }
            .into());
        }
        if let Some(event) = self.step_without_model(control)? {
            return Ok(event);
        }
        let timings = self.feed(token_loop, control)?;
        self.choose_next(token_loop, timings)
    }

    /// Takes the step of a run whose constraint leaves no choice; `None` where the model has one.
    pub(super) fn step_without_model(
        &mut self,
        control: &RunControl,
    ) -> Result<Option<Event>, PipelineError> {
        self.refuse_full()?;
        let Some(id) = self.forced_token()? else {
            return Ok(None);
        };
        check_control(control)?;
        self.accept_forced(id).map(Some)
    }

    /// Chooses a token of the current logits and appends it.
    pub(super) fn choose_next(
        &mut self,
        token_loop: TokenLoop,
        timings: Timings,
    ) -> Result<Event, PipelineError> {
        let choice = self.choose(token_loop)?;
        let id = i32::try_from(choice.index).map_err(|_| RequestError::TokenOutOfRange {
            id: i32::MAX,
            size: self.logits.len(),
        })?;
        self.accept(id, choice.logprob, timings)
    }

    /// Appends a token of a beam, which is no step of the run.
    pub(super) fn take(&mut self, token: i32) -> Result<(), PipelineError> {
        self.transcript.choose(token, false)?;
        self.logits_are_used = true;
        self.pool.output_ids.clear();
        Ok(())
    }

    /// What a call is written down as, until the end of it, where the runtime has a trace.
    pub(super) fn traced(&self, call: &'static str) -> Option<TraceSpan> {
        let trace = self.pipeline.shared().trace.as_ref();
        trace.map(|trace| trace.span(CALL, call))
    }

    /// Steps until the run is finished or `on_event` breaks; `None` in that case. With the option
    /// `num_beams` above 1 it searches as many beams instead, and then tells the tokens of the best
    /// [sequence](Self::sequences). `on_event` may
    /// look at the run, at an iterative package's [`latents`](Self::latents) for one.
    pub fn generate(
        &mut self,
        control: &RunControl,
        on_event: &mut dyn FnMut(&Run, &Event) -> ControlFlow<()>,
    ) -> Result<Option<FinishReason>, PipelineError> {
        if let Some(beams) = self.beams {
            self.refuse_finished()?;
            self.refuse_full()?;
            return self.generate_beams(beams, control, on_event);
        }
        loop {
            let event = self.step(control)?;
            let go_on = on_event(self, &event);
            if event.finish.is_some() {
                return Ok(event.finish);
            }
            if go_on.is_break() {
                return Ok(None);
            }
        }
    }

    /// Feeds what has not run yet and stops before a token is chosen: the host looks at
    /// [`logits`](Self::logits) and calls [`force_token`](Self::force_token).
    pub fn forward(&mut self, control: &RunControl) -> Result<(), PipelineError> {
        let _traced = self.traced("forward");
        self.refuse_finished()?;
        let token_loop = self.need_token_loop("forward")?;
        self.refuse_waiting_images()?;
        self.feed(token_loop, control)?;
        Ok(())
    }

    /// Logits of the last position that ran, one for each token of the vocabulary: what the
    /// last step chose from.
    pub fn logits(&self) -> Result<&[f32], PipelineError> {
        self.need_token_loop("logits")?;
        if !self.has_logits {
            return Err(RequestError::NoLogits.into());
        }
        Ok(&self.logits)
    }

    /// Draws from another seed's numbers from now on, as a run does that was made with it: what tells
    /// forks of one run apart.
    pub fn set_seed(&mut self, seed: u64) -> Result<(), PipelineError> {
        self.need_token_loop("set_seed")?;
        self.settings.seed = Some(seed);
        self.sampler.set_seed(seed);
        Ok(())
    }

    /// Sets the host's own processor of logits; `None` takes it away. See [`LogitsHook`].
    pub fn set_logits_hook(&mut self, hook: Option<LogitsHook>) {
        self.sampler.set_logits_hook(hook);
    }

    /// Sets the host's own choice of tokens; `None` takes it away. See [`HostSampler`].
    pub fn set_host_sampler(&mut self, sampler: Option<HostSampler>) {
        self.sampler.set_host_sampler(sampler);
    }

    /// What the last token was chosen by, where the option `logprobs` is given and the run has just chosen
    /// it: neither appended, nor forced, nor uncovered by a rewind.
    pub fn logprobs(&self) -> Option<&Logprobs> {
        self.sampler.logprobs()
    }

    /// Makes `id` the choice from the current logits. After [`forward`](Self::forward) it is
    /// appended; after a step it takes the place of the token that the step chose.
    pub fn force_token(&mut self, id: i32) -> Result<Event, PipelineError> {
        self.need_token_loop("force_token")?;
        // The codes beside the token may be yet to come.
        let no_frame =
            self.pipeline.shared().spec.nested.is_some() && !self.logits_are_used && !self.frames.ready;
        if !self.has_logits
            || self.restart
            || no_frame
            || self.ran + usize::from(self.logits_are_used) != self.transcript.len()
        {
            return Err(RequestError::NoLogits.into());
        }
        let logit = usize::try_from(id)
            .ok()
            .and_then(|index| self.logits.get(index).copied());
        let Some(logit) = logit else {
            return Err(RequestError::TokenOutOfRange {
                id,
                size: self.logits.len(),
            }
            .into());
        };
        let logprob = log_probability(&self.logits, logit);
        if !self.logits_are_used {
            self.refuse_finished()?;
            self.refuse_full()?;
        }
        let place = self.transcript.len() - usize::from(self.logits_are_used);
        let event = self.accept(id, logprob, Timings::default())?;
        self.sampler.forget_from(place);
        Ok(event)
    }

    /// Appends a token that no logits were asked about.
    pub(super) fn accept_forced(&mut self, id: i32) -> Result<Event, PipelineError> {
        // It does not take the place of the token before.
        let before = std::mem::replace(&mut self.logits_are_used, false);
        let place = self.transcript.len();
        match self.accept(id, 0.0, Timings::default()) {
            Ok(event) => {
                self.sampler.forget_from(place);
                self.has_logits = false;
                self.logits_are_used = false;
                Ok(Event {
                    forced: true,
                    ..event
                })
            }
            Err(error) => {
                self.logits_are_used = before;
                Err(error)
            }
        }
    }

    /// Appends the chosen token, or puts it in the place of the one that has been chosen from
    /// the same logits, and says what that means.
    pub(super) fn accept(&mut self, id: i32, logprob: f32, timings: Timings) -> Result<Event, PipelineError> {
        let instead = self.logits_are_used;
        let more = u64::from(!instead);
        let turn = self.transcript.turn();
        let turn = match (instead, turn) {
            (true, [before @ .., _]) => before,
            _ => turn,
        };
        let finish = self.stop.check(turn, id, self.sequence_len() as u64 + more);
        let place = self.transcript.len() - usize::from(instead);
        let last = instead
            .then(|| self.transcript.tokens().last().copied())
            .flatten();
        let start = self.constrained_from();
        let complete = match self.follow_constraint(id, place) {
            Ok(complete) => complete,
            Err(error) => {
                self.constrain_again(last, place, start);
                return Err(error);
            }
        };
        let finish = finish.or(complete.then_some(FinishReason::ConstraintEnd));
        let piece = if instead {
            self.transcript.choose_instead(id, finish.is_some())
        } else {
            self.transcript.choose(id, finish.is_some())
        };
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                self.constrain_again(last, place, start);
                return Err(error.into());
            }
        };
        // The text ends there, whatever the tokens say.
        let finish = piece
            .stop
            .map(|index| FinishReason::StopString { index })
            .or(finish);
        self.finished = finish;
        self.logits_are_used = true;
        self.pool.output_ids.clear();
        let mut event = self.event(Some(id), piece, logprob, timings);
        if let Some(nested) = self.pipeline.shared().spec.nested {
            let ends = matches!(finish, Some(FinishReason::EndOfText { .. }));
            self.frames.choose(ends, instead);
            self.publish_codes(nested)?;
            event.codes = self.frames.last(nested.groups).to_vec();
        }
        Ok(event)
    }

    fn event(&self, token: Option<i32>, piece: Piece, logprob: f32, timings: Timings) -> Event {
        Event {
            token,
            text: piece.text,
            text_offset: piece.offset,
            forced: false,
            logprob,
            progress: None,
            codes: Vec::new(),
            finish: self.finished,
            usage: self.transcript.usage(),
            timings,
        }
    }

    /// Brings the text of a run that was loaded to where it was.
    pub(super) fn replay_text(&mut self) -> Result<(), PipelineError> {
        Ok(self.transcript.replay(self.finished.is_some())?)
    }

    /// Undoes what a call that ended in a panic has left half-done, for callers that catch
    /// one: the run is then as it was before that call, and usable. After calls that return
    /// there is nothing to undo.
    pub fn roll_back(&mut self) {
        self.pool.roll_back();
        self.ahead.roll_back();
        self.activity.checked = false;
    }

    /// Keeps the first `len` tokens. 0 starts over, inputs stay set.
    pub fn rewind(&mut self, len: usize) -> Result<(), PipelineError> {
        self.need_tokens_read("rewind")?;
        let have = self.transcript.len();
        if len > have {
            return Err(RequestError::RewindBeyond { to: len, have }.into());
        }
        if len == have {
            // Nothing goes, so nothing changes: a finished answer stays finished.
            return Ok(());
        }
        self.media.check_rewind(len)?;
        self.forget_ahead()?;
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        // The last token runs again, for its logits.
        let keep = self.ran.min(len.saturating_sub(1));
        if keep < self.ran {
            // An inner decoder begins each frame with an empty cache and state.
            let inner = spec.nested.map(|nested| nested.inner);
            let mut others = spec.components.iter().enumerate();
            let recurrent =
                others.any(|(index, component)| Some(index) != inner && component.has_recurrent_state());
            let embedded = spec.nested.is_some_and(|nested| nested.pre_embedder.is_some());
            let in_prompt = embedded && keep < self.transcript.prompt_len();
            if recurrent || in_prompt || keep == 0 {
                // A recurrent state has no way back; the tokens run again from the first.
                self.restart_cache()?;
            } else {
                self.pool.truncate_caches(spec, self.outer_rows(keep))?;
                self.ran = keep;
            }
            self.has_logits = false;
        }
        self.transcript.truncate(len);
        self.sampler.forget_from(len);
        if let Some(constrained) = &mut self.constrained {
            constrained.rewind(len);
        }
        if let Some(nested) = spec.nested {
            self.frames
                .truncate(self.transcript.chosen().count(), nested.groups);
            self.publish_codes(nested)?;
        }
        self.media.truncate(len);
        self.pool.pictures = self.media.pictures();
        self.tokens_changed();
        Ok(())
    }

    /// What goes from step to step in an iterative package, one value for each edge of the
    /// denoiser to itself, in the order of the package, as the last step has made them. None
    /// before the first step. Of several loops it is the one that [`RunSettings`] are about.
    pub fn latents(&self) -> impl Iterator<Item = TensorView<'_>> {
        let spec = &self.pipeline.shared().spec;
        let iteration = spec.settings_loop().and_then(|of| spec.iterations.get(of));
        let states = iteration.into_iter().flat_map(|iteration| iteration.numbered());
        states.filter_map(|(state, _)| self.pool.states.current(state))
    }

    /// A value of the pool, `component.port`: an output as it was last computed, or a
    /// request input; at an input that a denoiser's edge to itself leads to, what its last step
    /// has made for it. Borrowed until the next call that changes the run.
    pub fn get_tensor(&self, address: &str) -> Result<TensorView<'_>, PipelineError> {
        let spec = &self.pipeline.shared().spec;
        let found = request::find(spec, address)?;
        let io = &found.component.io;
        let no_value = |advice| RequestError::NoValue {
            component: found.component.name.clone(),
            port: found.port.to_owned(),
            advice,
        };
        let mut outputs = io.outputs.iter().enumerate();
        if let Some((output, port)) = outputs.find(|(_, port)| port.name == found.port) {
            let advice = match found.component.phase {
                Phase::PromptOnly | Phase::EveryStep => "step first",
                Phase::FinalOnly => "finish the run first",
                Phase::OnDemand => "run the component first",
            };
            let value = self.pool.shown(found.index, output);
            let value = value.map_err(|error| at_port(found.component, port, error))?;
            return value.ok_or_else(|| no_value(advice).into());
        }
        if let Some(input) = io.inputs.iter().position(|port| port.name == found.port) {
            let source = found.component.inputs.get(input).map(|input| input.source);
            let looped = match source {
                Some(InputSource::Loop { state }) => self.pool.states.current(state),
                _ => None,
            };
            let value = looped.or_else(|| self.pool.request(found.index, input));
            return value.ok_or_else(|| no_value("only inputs that you set can be read").into());
        }
        if let Some(input) = request::uncond_input(&found, spec) {
            let value = self.pool.states.without(found.index, input);
            return value.ok_or_else(|| no_value("only inputs that you set can be read").into());
        }
        let decoder = self.token_loop().map(|token_loop| token_loop.decoder);
        if decoder == Some(found.index) && found.port == OUTPUT_IDS {
            let value = self.pool.output_ids.view();
            return value.ok_or_else(|| no_value("finish the run first").into());
        }
        if decoder == Some(found.index) && found.port == OUTPUT_CODES && spec.nested.is_some() {
            let value = self.pool.output_codes.view();
            return value.ok_or_else(|| no_value("step first").into());
        }
        let known = io.outputs.iter().chain(&io.inputs).map(|port| port.name.clone());
        Err(RequestError::UnknownPort {
            component: found.component.name.clone(),
            port: found.port.to_owned(),
            known: known.collect(),
        }
        .into())
    }

    /// All tokens, appended and chosen.
    pub fn tokens(&self) -> &[i32] {
        self.transcript.tokens()
    }

    /// Text of this turn's answer that no event has given out yet, because a stop string may have begun in it
    /// or a character is incomplete (U+FFFD stands for one). It stays held back: if the answer goes on, a
    /// later event has it, so this is for answers that end here, by a deadline for one. Empty once the run is
    /// finished, whose last event has had it.
    pub fn pending_text(&self) -> Result<String, PipelineError> {
        match self.finished {
            Some(_) => Ok(String::new()),
            None => Ok(self.transcript.pending()?),
        }
    }

    /// Why the run is finished, if it is.
    pub fn finished(&self) -> Option<FinishReason> {
        self.finished
    }

    pub fn stats(&self) -> RunStats {
        let usage = self.transcript.usage();
        RunStats {
            prompt_tokens: usage.prompt_tokens,
            generated_tokens: usage.generated_tokens,
            kv_bytes: self.cache_bytes(),
            ..self.stats
        }
    }

    /// Bytes of its caches, and of those of who guesses for it.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.pool.cache_bytes(&self.pipeline.shared().spec) + self.ahead.cache_bytes()
    }

    pub(super) fn token_loop(&self) -> Option<TokenLoop> {
        self.pipeline.shared().spec.token_loop
    }

    /// An error when there is no token loop and nothing else that reads tokens.
    fn need_tokens_read(&self, what: &'static str) -> Result<(), RequestError> {
        let components = &self.pipeline.shared().spec.components;
        let reads =
            |component: &ComponentSpec| component.inputs.iter().any(|input| follows_tokens(input.source));
        match components.iter().any(reads) {
            true => Ok(()),
            false => self.need_token_loop(what).map(|_| ()),
        }
    }

    pub(super) fn need_token_loop(&self, what: &'static str) -> Result<TokenLoop, RequestError> {
        self.token_loop().ok_or(RequestError::NoTokenLoop {
            what,
            strategy: self.pipeline.shared().spec.strategy,
        })
    }

    /// An error when there is no room for another token.
    pub(super) fn refuse_full(&self) -> Result<(), RequestError> {
        let length = self.sequence_len() as u64;
        match self.settings.max_length {
            Some(limit) if length >= limit => Err(RequestError::LengthReached { length, limit }),
            _ => self.refuse_rows(self.sequence_len()),
        }
    }

    /// The same for a sequence of so many tokens, or rows.
    pub(super) fn refuse_rows(&self, rows: usize) -> Result<(), RequestError> {
        match self.stop.context_length {
            Some(limit) if rows as u64 >= limit => Err(RequestError::SequenceFull { limit }),
            _ => Ok(()),
        }
    }

    pub(super) fn refuse_finished(&self) -> Result<(), RequestError> {
        match self.finished {
            None => Ok(()),
            Some(reason) => Err(RequestError::Finished {
                reason: reason.name(),
            }),
        }
    }
}

/// Whether a component reads the logits.
fn feeds_logits(spec: &PipelineSpec) -> bool {
    let logits = spec.token_loop.map(|token_loop| OutputRef {
        component: token_loop.decoder,
        output: token_loop.logits,
    });
    let mut inputs = spec.components.iter().flat_map(|component| &component.inputs);
    inputs.any(|input| matches!(input.source, InputSource::Edge(from) if Some(from) == logits))
}
