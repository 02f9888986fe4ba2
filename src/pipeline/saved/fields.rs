//! What of a run is saved.

use std::time::Duration;

use crate::component::check_value;
use crate::generation::{FinishReason, SamplerState};
use crate::package::{ComponentSpec, OutputRole, Phase, PipelineSpec};
use crate::text::ConstraintKind;

use crate::pipeline::Run;
use crate::pipeline::execute::spare_rows;
use crate::pipeline::open::vocabulary;
use crate::pipeline::pool::Pool;

use super::wire::{Problem, Result, Wire, wrong};

impl Run {
    /// Counts, writes or reads all fields.
    pub(super) fn fields(&mut self, wire: &mut Wire<'_>) -> Result<()> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        let Run {
            pipeline: _,
            settings: _,
            // Of the package and the settings.
            stop: _,
            transcript,
            constrained,
            pool,
            activity,
            media,
            ran,
            keeps_cache: _,
            last_logits_only: _,
            restart,
            shares: _,
            logits,
            // Memory only.
            next_logits: _,
            has_logits,
            logits_are_used,
            frames,
            last_span,
            stats,
            steps: _,
            next_step,
            finished,
            sampler,
            beams: _,
            // Of the last search, whose best is among the tokens.
            sequences: _,
            // What it has computed is computed again.
            ahead: _,
        } = self;
        let (tokens, chosen) = transcript.parts();
        wire.i32s(tokens)?;
        wire.flags(chosen)?;
        wire.usize(ran)?;
        wire.flag(restart)?;
        wire.flag(has_logits)?;
        wire.flag(logits_are_used)?;
        wire.f32s(logits)?;
        wire.usize(last_span)?;
        optional(wire, next_step)?;
        finish(wire, finished)?;
        let (codes, ends, next, ready, prompt_rows) = frames.parts();
        wire.i64s(codes)?;
        wire.flags(ends)?;
        wire.i64s(next)?;
        wire.flag(ready)?;
        wire.usize(prompt_rows)?;
        statistic(wire, &mut stats.component_runs)?;
        statistic(wire, &mut stats.reused_tokens)?;
        statistic(wire, &mut stats.proposed_tokens)?;
        statistic(wire, &mut stats.accepted_tokens)?;
        statistic(wire, &mut stats.passes)?;
        duration(wire, &mut stats.prefill)?;
        duration(wire, &mut stats.decode)?;
        let mut state = sampler.state().to_bytes();
        wire.bytes(&mut state)?;
        if wire.reads() {
            match SamplerState::from_bytes(&state) {
                Some(state) => sampler.set_state(state),
                None => return wrong(format!("{} bytes are no state of a sampler", state.len())),
            }
        }
        wire.same_count("components", activity.fresh.len())?;
        activity.fresh.iter_mut().try_for_each(|fresh| wire.flag(fresh))?;
        media.saved(wire)?;
        if wire.reads() {
            pool.pictures = media.pictures();
            activity.checked = false;
        }
        let most = prompt_rows.saturating_add(tokens.len());
        let followed = constrained.as_ref().map(|constrained| constrained.source());
        let followed = constraint(wire, followed)?;
        pool_fields(pool, spec, most, wire)?;
        match followed.filter(|_| wire.reads()) {
            Some((kind, text, start)) => self
                .follow_again(kind, &text, start)
                .map_err(|error| Problem(error.to_string())),
            None => Ok(()),
        }
    }

    /// Whether what was read fits together, as far as anything relies on it.
    pub(super) fn check_fields(&mut self) -> Result<()> {
        let pipeline = self.pipeline.clone();
        let shared = pipeline.shared();
        let spec = &shared.spec;
        let size = vocabulary(spec, shared.tokenizer.as_deref()).unwrap_or(usize::MAX);
        let count = self.transcript.recount().map_err(Problem)?;
        let known = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < size);
        if let Some(id) = self.transcript.tokens().iter().find(|id| !known(id)) {
            return wrong(format!(
                "token id {id} is outside of the vocabulary of {size} tokens"
            ));
        }
        let chosen = self.transcript.chosen().count();
        if self.logits.len() > size {
            return wrong(format!(
                "{} logits, and the vocabulary has {size} tokens",
                self.logits.len()
            ));
        }
        if self.ran > count
            || (self.has_logits && self.logits.is_empty())
            || (self.logits_are_used && (!self.has_logits || chosen == 0 || self.ran + 1 != count))
        {
            return wrong(format!(
                "{} of {count} tokens have run, which does not fit its other fields",
                self.ran
            ));
        }
        self.media.check(count).map_err(Problem)?;
        let groups = spec.nested.map_or(0, |nested| nested.groups);
        let most = self.stop.context_length.unwrap_or(u64::from(u32::MAX));
        self.frames.check(chosen, groups, most).map_err(Problem)?;
        let steps = spec.own_loop().and_then(|of| self.steps.get(of));
        let steps = steps.map_or(0, |steps| steps.timesteps.len());
        if self.next_step.is_some_and(|step| step > steps) {
            return wrong(format!("its next step is none of the {steps} of the loop"));
        }
        if let Some(FinishReason::EndOfText { index }) = self.finished
            && index >= self.stop.end_tokens.len()
        {
            return wrong(format!("end token {index} is none of the package's"));
        }
        // Caches are as long as what has run; those of an inner decoder begin anew with each frame.
        let rows = self.outer_rows(self.ran);
        let inner = spec.nested.map(|nested| nested.inner);
        let first = spec.first_pass.as_ref().map(|first| first.component);
        for (index, component) in spec.components.iter().enumerate() {
            // One that is not in every pass may not have run.
            let may_be_empty = component.when_present.is_some()
                || component.phase != Phase::EveryStep
                || Some(index) == first;
            for (output, port) in component.io.outputs.iter().enumerate() {
                let role = component.outputs.get(output).map(|output| &output.role);
                let is_cache = matches!(role, Some(OutputRole::Present { .. }));
                let found = self.pool.cache_rows(spec, index, output);
                let Some(found) = found.or(is_cache.then_some(0)) else {
                    continue;
                };
                if Some(index) != inner && found != rows && !(found == 0 && may_be_empty) {
                    return wrong(format!(
                        "{}.{} has {found} rows, and {rows} have run",
                        component.name, port.name
                    ));
                }
            }
        }
        Ok(())
    }
}

fn pool_fields(pool: &mut Pool, spec: &PipelineSpec, most: usize, wire: &mut Wire<'_>) -> Result<()> {
    for (index, component) in spec.components.iter().enumerate() {
        wire.same_count("outputs of a component", component.outputs.len())?;
        for output in 0..component.outputs.len() {
            let at = |Problem(message)| {
                let port = component.io.outputs.get(output);
                let port = port.map_or("", |port| port.name.as_str());
                Problem(format!("{}.{port}: {message}", component.name))
            };
            match pool.cache_mut(index, output) {
                Some(cache) => wire.cache(cache, most, |rows| spare_rows(rows, spec.context_length)),
                None => output_field(pool, component, (index, output), most, wire),
            }
            .map_err(at)?;
        }
        wire.same_count("inputs of a component", component.inputs.len())?;
        for (input, port) in component.io.inputs.iter().enumerate() {
            let Some(value) = pool.request_mut(index, input) else {
                continue;
            };
            wire.value(value, |dtype, shape| {
                check_value(port, dtype, shape)
                    .map_err(|kind| Problem(format!("{}.{}: {kind}", component.name, port.name)))
            })?;
        }
    }
    // What is published of tokens, frames and steps is of the loop's own making.
    let any = |_, _: &[i64]| Ok(());
    wire.value(&mut pool.output_ids, any)?;
    wire.value(&mut pool.output_codes, any)?;
    pool.feeds
        .values()
        .into_iter()
        .try_for_each(|value| wire.value(value, any))?;
    pool.states.saved(spec, wire)
}

fn output_field(
    pool: &mut Pool,
    component: &ComponentSpec,
    (index, output): (usize, usize),
    most: usize,
    wire: &mut Wire<'_>,
) -> Result<()> {
    let slot = pool.components.get_mut(index);
    let slot = slot.and_then(|values| values.outputs.get_mut(output));
    let (Some(slot), Some(port), Some(spec)) = (
        slot,
        component.io.outputs.get(output),
        component.outputs.get(output),
    ) else {
        return Ok(());
    };
    wire.value(&mut slot.front, |dtype, shape| {
        check_value(port, dtype, shape).map_err(|kind| Problem(kind.to_string()))?;
        let mut expected = match &spec.role {
            OutputRole::Present { empty, .. } => empty.clone(),
            OutputRole::State { shape } => shape.clone(),
            OutputRole::Held | OutputRole::Plain => return Ok(()),
        };
        if let OutputRole::Present { axis, .. } = &spec.role
            && let (Some(&rows), Some(dim)) = (shape.get(*axis), expected.get_mut(*axis))
        {
            if usize::try_from(rows).is_ok_and(|rows| rows > most) {
                return wrong(format!("a cache of {rows} rows; at most {most} tokens have run"));
            }
            *dim = rows;
        }
        match expected.as_slice() == shape {
            true => Ok(()),
            false => wrong(format!("has shape {shape:?}, expected {:?}", expected.as_slice())),
        }
    })
}

/// What answers are made to follow: the kind of grammar, its text, where the answer begins.
fn constraint(
    wire: &mut Wire<'_>,
    source: Option<(ConstraintKind, &str, usize)>,
) -> Result<Option<(ConstraintKind, String, usize)>> {
    const KINDS: [ConstraintKind; 4] = [
        ConstraintKind::Json,
        ConstraintKind::JsonSchema,
        ConstraintKind::Regex,
        ConstraintKind::Lark,
    ];
    let mut there = source.is_some();
    wire.flag(&mut there)?;
    if !there {
        return Ok(None);
    }
    let (kind, text, mut start) = source.unwrap_or((ConstraintKind::Json, "", 0));
    let mut code = KINDS.iter().position(|one| *one == kind).unwrap_or(0) as u32;
    let mut text = text.to_owned();
    wire.u32(&mut code)?;
    wire.text(&mut text)?;
    wire.usize(&mut start)?;
    match KINDS.get(code as usize) {
        Some(kind) => Ok(Some((*kind, text, start))),
        None => wrong(format!("{code} is no kind of constraint")),
    }
}

fn optional(wire: &mut Wire<'_>, value: &mut Option<usize>) -> Result<()> {
    let mut there = value.is_some();
    wire.flag(&mut there)?;
    let mut number = value.unwrap_or_default();
    wire.usize(&mut number)?;
    *value = there.then_some(number);
    Ok(())
}

/// What only ever grows, so no run has half of what there is room for; a number beside that would overflow.
fn statistic(wire: &mut Wire<'_>, value: &mut u64) -> Result<()> {
    wire.u64(value)?;
    match *value <= u64::MAX / 2 {
        true => Ok(()),
        false => wrong(format!("a statistic of {value} is more than a run comes to")),
    }
}

fn duration(wire: &mut Wire<'_>, value: &mut Duration) -> Result<()> {
    let mut nanoseconds = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX / 2);
    statistic(wire, &mut nanoseconds)?;
    *value = Duration::from_nanos(nanoseconds);
    Ok(())
}

fn finish(wire: &mut Wire<'_>, reason: &mut Option<FinishReason>) -> Result<()> {
    let (mut code, mut at) = match *reason {
        None => (0, 0),
        Some(FinishReason::EndOfText { index }) => (1, index),
        Some(FinishReason::MaxTokens) => (2, 0),
        Some(FinishReason::ContextFull) => (3, 0),
        Some(FinishReason::Completed) => (4, 0),
        Some(FinishReason::StopString { index }) => (5, index),
        Some(FinishReason::StopTokens { index }) => (6, index),
        Some(FinishReason::MaxLength) => (7, 0),
        Some(FinishReason::ConstraintEnd) => (8, 0),
    };
    wire.u32(&mut code)?;
    wire.usize(&mut at)?;
    *reason = match code {
        0 => None,
        1 => Some(FinishReason::EndOfText { index: at }),
        2 => Some(FinishReason::MaxTokens),
        3 => Some(FinishReason::ContextFull),
        4 => Some(FinishReason::Completed),
        5 => Some(FinishReason::StopString { index: at }),
        6 => Some(FinishReason::StopTokens { index: at }),
        7 => Some(FinishReason::MaxLength),
        8 => Some(FinishReason::ConstraintEnd),
        other => return wrong(format!("{other} is no reason to be finished")),
    };
    Ok(())
}
