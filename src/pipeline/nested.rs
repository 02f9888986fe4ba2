//! Frames of codes: what a step is where the package nests one decoder in another.
//!
//! The outer decoder goes over its sequence as any decoder does, and the last row of its hidden
//! state begins a frame: the inner decoder, its cache empty, reads that row, chooses the frame's
//! first code, reads its own embedding of it, chooses the next, and so on, as often as the frame
//! has codes. Then the outer decoder's token is chosen, which ends the step.
//!
//! Without a pre-embedder the outer decoder reads tokens, the prompt's and then its own. With one
//! it reads what that makes of the frame before: the outer token in the place of the first code,
//! then the other codes as the inner decoder chose them, and a row of text, zeros once there is
//! none left. What it reads first is the prefill embedder's sequence for the prompt, or, without
//! one, what the pre-embedder makes of a frame of zeros.

use std::ops::Range;
use std::time::Instant;

use crate::component::{ComponentErrorKind, DataType, RunControl, TensorError, TensorView};
use crate::package::{InputSource, Nested, NestedFeed, PipelineSpec, PreEmbedder, TokenLoop};

use super::convert::{last_row, write_integers};
use super::execute::check_control;
use super::pool::{Pool, Span, at_port};
use super::run::{OUTPUT_CODES, Run};
use super::step::choose;
use super::value::Value;
use super::{PipelineError, RequestError, Timings};

/// The frames of a run, one for each chosen token.
#[derive(Clone, Default)]
pub(super) struct Frames {
    /// All codes, one frame after the other.
    codes: Vec<i64>,
    /// Of each frame, whether its token ended the speech: then its codes are none of it.
    ends: Vec<bool>,
    /// Those of the frame whose token is yet to be chosen.
    next: Vec<i64>,
    /// `next` is of the hidden state that there is now.
    pub ready: bool,
    /// Rows that the outer decoder's cache has of the prompt, with a pre-embedder.
    prompt_rows: usize,
}

/// The parts of [`Frames`].
pub(super) type FrameParts<'f> = (
    &'f mut Vec<i64>,
    &'f mut Vec<bool>,
    &'f mut Vec<i64>,
    &'f mut bool,
    &'f mut usize,
);

impl Frames {
    /// All of it: codes, ends, those of the next frame, whether it is ready, rows of the prompt.
    pub fn parts(&mut self) -> FrameParts<'_> {
        (
            &mut self.codes,
            &mut self.ends,
            &mut self.next,
            &mut self.ready,
            &mut self.prompt_rows,
        )
    }

    /// Why these are no frames of a run with so many chosen tokens.
    pub fn check(&self, chosen: usize, groups: usize, most_rows: u64) -> Result<(), String> {
        let frames = if groups == 0 { 0 } else { chosen };
        let whole = self.ends.len() == frames && self.codes.len() == frames.saturating_mul(groups);
        if self.prompt_rows as u64 > most_rows {
            return Err(format!(
                "its prompt has {} rows; there can be {most_rows}",
                self.prompt_rows
            ));
        }
        match whole && [0, groups].contains(&self.next.len()) && (!self.ready || !self.next.is_empty()) {
            true => Ok(()),
            false => Err(format!(
                "it has {} codes and {} that wait, expected {frames} frames of {groups}",
                self.codes.len(),
                self.next.len()
            )),
        }
    }

    /// Takes the codes that wait, with the token that was chosen beside them.
    pub fn choose(&mut self, ends: bool, instead: bool) {
        if instead {
            if let Some(last) = self.ends.last_mut() {
                *last = ends;
            }
            return;
        }
        self.codes.extend_from_slice(&self.next);
        self.ends.push(ends);
    }

    pub fn truncate(&mut self, count: usize, groups: usize) {
        self.ends.truncate(count);
        self.codes.truncate(count.saturating_mul(groups));
    }

    /// Whether there is a frame that is no end.
    pub fn any(&self) -> bool {
        self.ends.contains(&false)
    }

    /// The codes of the last frame; none of one that ended.
    pub fn last(&self, groups: usize) -> &[i64] {
        match self.ends.last() {
            Some(false) => self.codes.get(self.codes.len().saturating_sub(groups)..),
            _ => None,
        }
        .unwrap_or_default()
    }

    fn frame(&self, index: usize, groups: usize) -> &[i64] {
        let start = index.saturating_mul(groups);
        self.codes
            .get(start..start.saturating_add(groups))
            .unwrap_or_default()
    }
}

/// What the loop over frames feeds.
#[derive(Default)]
pub(super) struct Feeds {
    outer_embeds: Value,
    inner_embeds: Value,
    frame_codes: Value,
    text_embed: Value,
}

impl Feeds {
    pub fn fork(&mut self) -> Feeds {
        Feeds {
            outer_embeds: self.outer_embeds.fork(),
            inner_embeds: self.inner_embeds.fork(),
            frame_codes: self.frame_codes.fork(),
            text_embed: self.text_embed.fork(),
        }
    }

    pub fn view(&self, feed: NestedFeed) -> Option<TensorView<'_>> {
        match feed {
            NestedFeed::OuterEmbeds => &self.outer_embeds,
            NestedFeed::InnerEmbeds => &self.inner_embeds,
            NestedFeed::FrameCodes => &self.frame_codes,
            NestedFeed::TextEmbed => &self.text_embed,
        }
        .view()
    }

    pub fn values(&mut self) -> [&mut Value; 4] {
        [
            &mut self.outer_embeds,
            &mut self.inner_embeds,
            &mut self.frame_codes,
            &mut self.text_embed,
        ]
    }

    fn value(&mut self, feed: NestedFeed) -> &mut Value {
        match feed {
            NestedFeed::OuterEmbeds => &mut self.outer_embeds,
            NestedFeed::InnerEmbeds => &mut self.inner_embeds,
            NestedFeed::FrameCodes => &mut self.frame_codes,
            NestedFeed::TextEmbed => &mut self.text_embed,
        }
    }
}

impl Run {
    /// Feeds the outer decoder what has not run yet, where it reads a pre-embedder's embeddings.
    pub(super) fn feed_embeddings(
        &mut self,
        token_loop: TokenLoop,
        nested: Nested,
        pre: PreEmbedder,
        control: &RunControl,
        timings: &mut Timings,
    ) -> Result<(), PipelineError> {
        let prompt = self.transcript.prompt_len();
        if self.ran > 0 && self.ran < prompt {
            // Tokens came to a prompt that has run.
            self.restart_cache()?;
        }
        while self.ran < self.transcript.len() {
            let range = match self.ran {
                0 => 0..prompt,
                ran => ran..ran + 1,
            };
            let outcome = self.embed(token_loop, nested, pre, &range, control, timings);
            let outcome = outcome.and_then(|rows| {
                let past = self.outer_rows(self.ran);
                self.refuse_rows(past.saturating_add(rows))?;
                self.pass(token_loop, range.clone(), (past, rows), control, timings)?;
                Ok(rows)
            });
            let rows = self.settle(outcome)?;
            if range.start == 0 {
                self.frames.prompt_rows = rows;
            }
            self.ran = range.end;
            self.has_logits = true;
            self.logits_are_used = false;
        }
        Ok(())
    }

    /// Makes what the outer decoder reads for a span: the prompt, or one chosen token. Gives its
    /// rows.
    fn embed(
        &mut self,
        token_loop: TokenLoop,
        nested: Nested,
        pre: PreEmbedder,
        range: &Range<usize>,
        control: &RunControl,
        timings: &mut Timings,
    ) -> Result<usize, PipelineError> {
        let pipeline = self.pipeline.clone();
        let shared = pipeline.shared();
        let spec = &shared.spec;
        let (component, output) = match (range.start, pre.prefill) {
            (0, Some(prefill)) => (prefill.component, prefill.prefill),
            (start, _) => {
                check_control(control)?;
                let started = Instant::now();
                let frame = start
                    .checked_sub(self.transcript.prompt_len())
                    .filter(|_| start > 0);
                let token = frame.and_then(|_| self.transcript.tokens().get(start).copied());
                let codes = frame.map_or(&[][..], |frame| self.frames.frame(frame, nested.groups));
                self.pool.write_frame(spec, nested, pre, (frame, token), codes)?;
                let span = Span {
                    ids: &[],
                    len: 1,
                    past: 0,
                    last_row: None,
                    tokens: &[],
                };
                self.pool
                    .execute(spec, &shared.sessions, pre.component, span, control)?;
                self.stats.component_runs += 1;
                timings.step_components += started.elapsed();
                (pre.component, pre.output)
            }
        };
        self.pool
            .write_outer_embeds(spec, token_loop.decoder, (component, output))
    }

    /// Rows of the outer decoder's cache that tokens before `ran` have.
    pub(super) fn outer_rows(&self, ran: usize) -> usize {
        let nested = self.pipeline.shared().spec.nested;
        let prompt = self.transcript.prompt_len();
        match nested.and_then(|nested| nested.pre_embedder) {
            Some(_) if ran > 0 => self.frames.prompt_rows + ran.saturating_sub(prompt),
            _ => ran,
        }
    }

    /// How long the outer decoder's sequence is, in what it reads: tokens, or rows of embeddings, of
    /// which it is not known how many the prompt becomes until it has run.
    pub(super) fn sequence_len(&self) -> usize {
        let nested = self.pipeline.shared().spec.nested;
        match nested.and_then(|nested| nested.pre_embedder) {
            Some(_) if self.ran == 0 => 0,
            Some(_) => self.outer_rows(self.transcript.len()),
            None => self.transcript.len(),
        }
    }

    /// Makes the codes of the frame that the outer decoder's hidden state begins.
    pub(super) fn make_frame(
        &mut self,
        token_loop: TokenLoop,
        nested: Nested,
        control: &RunControl,
        timings: &mut Timings,
    ) -> Result<(), PipelineError> {
        let started = Instant::now();
        let outcome = self.inner_loop(token_loop, nested, control);
        self.settle(outcome)?;
        self.frames.ready = true;
        timings.step_components += started.elapsed();
        Ok(())
    }

    fn inner_loop(
        &mut self,
        token_loop: TokenLoop,
        nested: Nested,
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let shared = pipeline.shared();
        let spec = &shared.spec;
        self.frames.next.clear();
        let Some(inner) = spec.components.get(nested.inner) else {
            return Ok(());
        };
        let keeps_cache = inner.has_cache();
        self.pool.reset_caches_of(spec, nested.inner)?;
        self.pool
            .write_inner_embeds(spec, nested, (token_loop.decoder, nested.seed), false)?;
        let mut logits = Vec::new();
        for step in 0..nested.groups {
            check_control(control)?;
            let (past, len) = match keeps_cache {
                true => (step, 1),
                false => (0, step + 1),
            };
            let span = Span {
                ids: &[],
                len,
                past,
                last_row: None,
                tokens: &[],
            };
            self.pool
                .execute(spec, &shared.sessions, nested.inner, span, control)?;
            self.stats.component_runs += 1;
            self.pool
                .output(nested.inner, nested.logits)
                .and_then(|row| last_row(row, &mut logits))
                .ok_or_else(|| RequestError::EmptyLogits {
                    component: inner.name.clone(),
                })?;
            let choice = choose(&logits, &inner.name)?;
            self.frames.next.push(choice.index as i64);
            self.pool
                .write_inner_embeds(spec, nested, (nested.inner, nested.embedding), !keeps_cache)?;
            // The next step reads what this one has put into the cache, which the frame is done
            // with at its end.
            self.pool.commit();
        }
        Ok(())
    }

    /// Publishes the codes of all frames.
    pub(super) fn publish_codes(&mut self, nested: Nested) -> Result<(), PipelineError> {
        let frames = &self.frames;
        let count = frames.ends.iter().filter(|&&ends| !ends).count();
        let codes = &mut self.pool.output_codes;
        if count == 0 {
            codes.clear();
            return Ok(());
        }
        let shape = [1, count as i64, nested.groups as i64];
        let bytes = codes
            .write(DataType::Int64, &shape)
            .map_err(|source| ComponentErrorKind::BadTensor {
                port: OUTPUT_CODES.to_owned(),
                source,
            })?;
        let kept = frames.codes.chunks(nested.groups).zip(&frames.ends);
        let kept = kept.filter(|(_, ends)| !**ends).flat_map(|(codes, _)| codes);
        write_integers(DataType::Int64, bytes, kept.copied());
        Ok(())
    }
}

impl Pool {
    /// Writes the frame that the pre-embedder reads, zeros if there is none, and the row of text
    /// beside it.
    fn write_frame(
        &mut self,
        spec: &PipelineSpec,
        nested: Nested,
        pre: PreEmbedder,
        (frame, token): (Option<usize>, Option<i32>),
        codes: &[i64],
    ) -> Result<(), PipelineError> {
        let Some(component) = spec.components.get(pre.component) else {
            return Ok(());
        };
        for (index, input) in component.inputs.iter().enumerate() {
            let InputSource::Nested(feed) = input.source else {
                continue;
            };
            let mut value = std::mem::take(self.feeds.value(feed));
            let written = match feed {
                NestedFeed::FrameCodes => {
                    let first = token.map_or(0, i64::from);
                    let others = codes.iter().skip(1).copied();
                    let codes = std::iter::once(first).chain(others).chain(std::iter::repeat(0));
                    value
                        .write(input.dtype, &[1, nested.groups as i64])
                        .map(|bytes| write_integers(input.dtype, bytes, codes))
                }
                NestedFeed::TextEmbed => self.text_row(pre, frame, input.dtype, &mut value),
                _ => Ok(()),
            };
            *self.feeds.value(feed) = value;
            if let (Err(error), Some(port)) = (written, component.io.inputs.get(index)) {
                return Err(at_port(component, port, error));
            }
        }
        Ok(())
    }

    /// The row of text for a frame: one of the prefill embedder's, in turn, else zeros.
    fn text_row(
        &self,
        pre: PreEmbedder,
        frame: Option<usize>,
        dtype: DataType,
        value: &mut Value,
    ) -> Result<(), TensorError> {
        if let Some((prefill, frame)) = pre.prefill.zip(frame)
            && let Some(trailing) = self.output(prefill.component, prefill.trailing)
            && Rows::of(trailing).write(frame..frame + 1, dtype, value)?
        {
            return Ok(());
        }
        value.write_zeros(dtype, &[1, 1, pre.text_width.unwrap_or(0)])
    }

    /// Makes an output the embeddings that the outer decoder reads, and gives their rows.
    fn write_outer_embeds(
        &mut self,
        spec: &PipelineSpec,
        outer: usize,
        from: (usize, usize),
    ) -> Result<usize, PipelineError> {
        let feed = NestedFeed::OuterEmbeds;
        self.check_rows(spec, from, None)?;
        let mut rows = 0;
        self.write_embeds(spec, outer, feed, |pool, dtype, value| {
            let Some(output) = pool.output(from.0, from.1) else {
                return Ok(());
            };
            let all = Rows::of(output);
            rows = all.count;
            all.write(0..rows, dtype, value).map(|_| ())
        })?;
        Ok(rows)
    }

    /// Makes the last row of an output what the inner decoder reads next, behind what it has read
    /// if it keeps no cache.
    fn write_inner_embeds(
        &mut self,
        spec: &PipelineSpec,
        nested: Nested,
        from: (usize, usize),
        behind: bool,
    ) -> Result<(), PipelineError> {
        let feed = NestedFeed::InnerEmbeds;
        let before = self.feeds.view(feed).filter(|_| behind);
        let width = before.and_then(|rows| rows.shape().last().copied());
        self.check_rows(spec, from, width)?;
        self.write_embeds(spec, nested.inner, feed, |pool, dtype, value| {
            let Some(rows) = pool.output(from.0, from.1).map(Rows::of) else {
                return Ok(());
            };
            let before = value.view().filter(|_| behind).map(|view| view.bytes().to_vec());
            rows.write(rows.count.saturating_sub(1)..rows.count, dtype, value)?;
            let (Some(mut all), Some(view)) = (before, value.view()) else {
                return Ok(());
            };
            let row = view.bytes().len();
            all.extend_from_slice(view.bytes());
            let count = all.len().checked_div(row).unwrap_or(1);
            let shape = [1, count as i64, rows.width];
            value.write(dtype, &shape)?.copy_from_slice(&all);
            Ok(())
        })
    }

    /// That an output has rows, as wide as those that they go behind.
    fn check_rows(
        &self,
        spec: &PipelineSpec,
        from: (usize, usize),
        width: Option<i64>,
    ) -> Result<(), PipelineError> {
        let component = spec.components.get(from.0);
        let port = component.and_then(|component| component.io.outputs.get(from.1));
        let (Some(component), Some(port), Some(made)) = (component, port, self.output(from.0, from.1)) else {
            return Ok(());
        };
        let rows = Rows::of(made);
        if rows.count > 0 && width.is_none_or(|width| width == rows.width) {
            return Ok(());
        }
        Err(RequestError::FrameRows {
            component: component.name.clone(),
            port: port.name.clone(),
            found: made.shape().to_vec(),
            width: width.unwrap_or(rows.width),
        }
        .into())
    }

    fn write_embeds(
        &mut self,
        spec: &PipelineSpec,
        reader: usize,
        feed: NestedFeed,
        write: impl FnOnce(&Pool, DataType, &mut Value) -> Result<(), TensorError>,
    ) -> Result<(), PipelineError> {
        let Some(component) = spec.components.get(reader) else {
            return Ok(());
        };
        let source = InputSource::Nested(feed);
        let mut inputs = component.inputs.iter().zip(&component.io.inputs);
        let Some((input, port)) = inputs.find(|(input, _)| input.source == source) else {
            return Ok(());
        };
        let mut value = std::mem::take(self.feeds.value(feed));
        let written = write(self, input.dtype, &mut value);
        *self.feeds.value(feed) = value;
        written.map_err(|error| at_port(component, port, error))
    }
}

/// A tensor as rows of its last dim, whatever its rank.
struct Rows<'t> {
    tensor: TensorView<'t>,
    count: usize,
    width: i64,
}

impl<'t> Rows<'t> {
    fn of(tensor: TensorView<'t>) -> Self {
        let (width, leading) = tensor
            .shape()
            .split_last()
            .map_or((1, &[][..]), |(width, leading)| (*width, leading));
        let count = leading
            .iter()
            .map(|&dim| usize::try_from(dim).unwrap_or(0))
            .fold(1, usize::saturating_mul);
        Rows { tensor, count, width }
    }

    /// Writes rows as `[1, rows, width]`, if there are so many.
    fn write(&self, range: Range<usize>, dtype: DataType, to: &mut Value) -> Result<bool, TensorError> {
        let row = usize::try_from(self.width).unwrap_or(0) * self.tensor.dtype().size();
        let bytes = self.tensor.bytes().get(range.start * row..range.end * row);
        let Some(bytes) = bytes.filter(|_| range.end <= self.count) else {
            return Ok(false);
        };
        let shape = [1, range.len() as i64, self.width];
        to.convert_from(TensorView::new(self.tensor.dtype(), &shape, bytes)?, dtype)?;
        Ok(true)
    }
}
