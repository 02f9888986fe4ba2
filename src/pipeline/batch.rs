//! Steps of many runs at once.
//!
//! Runs that each have one token to feed go through every component together. A session that can
//! ([`joins_calls`](crate::component::ComponentSession::joins_calls)) then reads its weights once for
//! all of them, while each run has its own caches, of its own length; other sessions run one call
//! after the other. Runs that have more to feed (a prompt), and packages whose steps are something
//! else, step by themselves. Either way a run's logits are, bit by bit, those that it has alone.

use std::time::{Duration, Instant};

use crate::component::RunControl;
use crate::package::{Phase, TokenLoop};

use super::execute::{check_control, execute_together};
use super::pool::{Span, ids};
use super::{Event, PipelineError, Run, Timings};

/// The most runs that go through a component together; more do in several groups.
const GROUP: usize = 8;

/// Where a run is in a step of several.
enum Place {
    /// It feeds one token with the others.
    Together(Timings),
    Done(Result<Event, PipelineError>),
}

/// A run that feeds one token with others.
struct Member<'a> {
    run: &'a mut Run,
    place: &'a mut Place,
    limit: Option<Duration>,
}

/// What ends something that begins now and may take so long.
fn within(all: &RunControl, limit: Option<Duration>) -> RunControl {
    // One beyond what clocks can say is none.
    let own = limit.and_then(|limit| Instant::now().checked_add(limit));
    RunControl {
        cancel: all.cancel.clone(),
        deadline: own.into_iter().chain(all.deadline).min(),
    }
}

impl Run {
    /// Takes a [`step`](Self::step) of each of these runs of one pipeline, and says of each how it
    /// went: one that fails, or is finished already, does not keep the others from theirs.
    ///
    /// They step without guesses ([`Speculation`](super::Speculation)): a pass of several runs has one token
    /// of each.
    pub fn step_together(runs: &mut [&mut Run], control: &RunControl) -> Vec<Result<Event, PipelineError>> {
        Run::step_each_together(runs, &[], control)
    }

    /// The same, where each run may have its own limit, at its place, of the time that its step takes,
    /// without what it waits for others; `all` ends the steps of all. A run's own is looked at inside of what
    /// it runs alone, a prompt for one, and before each component that runs over several; a pass over several
    /// is not ended by one of them.
    pub fn step_each_together(
        runs: &mut [&mut Run],
        limits: &[Option<Duration>],
        all: &RunControl,
    ) -> Vec<Result<Event, PipelineError>> {
        let started = Instant::now();
        let each = || limits.iter().copied().chain(std::iter::repeat(None));
        let mut places: Vec<Place> = runs
            .iter_mut()
            .zip(each())
            .map(|(run, limit)| run.begin_together(&within(all, limit)))
            .collect();
        let mut members: Vec<Member<'_>> = runs
            .iter_mut()
            .zip(&mut places)
            .zip(each())
            .filter(|((_, place), _)| matches!(place, Place::Together(_)))
            .map(|((run, place), limit)| Member { run, place, limit })
            .collect();
        // Of one pipeline each, so that a group has one set of sessions.
        members.sort_by_key(|member| std::ptr::from_ref(member.run.pipeline.shared()).addr());
        let mut rest = members.as_mut_slice();
        while let Some(first) = rest.first() {
            let pipeline = std::ptr::from_ref(first.run.pipeline.shared());
            let same = rest.iter().take(GROUP);
            let same = same.take_while(|member| std::ptr::eq(member.run.pipeline.shared(), pipeline));
            let (group, others) = rest.split_at_mut(same.count());
            pass_together(group, started, all);
            rest = others;
        }
        drop(members);
        places
            .into_iter()
            .zip(runs)
            .zip(each())
            .map(|((place, run), limit)| match place {
                Place::Done(outcome) => outcome,
                Place::Together(_) => run.step(&within(all, limit)),
            })
            .collect()
    }

    /// Takes the whole step of a run that cannot take it with others; of one that can, what comes
    /// before the pass.
    fn begin_together(&mut self, control: &RunControl) -> Place {
        let Some(token_loop) = self.steps_with_others() else {
            return Place::Done(self.step(control));
        };
        let mut timings = Timings::default();
        let ready = self
            .refuse_finished()
            .and_then(|()| self.refuse_waiting_images())
            .map_err(PipelineError::from);
        match ready.and_then(|()| self.step_without_model(control)) {
            Ok(Some(event)) => return Place::Done(Ok(event)),
            Ok(None) => {}
            Err(error) => return Place::Done(Err(error)),
        }
        let ready = self.prepare_feed(control, &mut timings);
        if let Err(error) = ready {
            return Place::Done(Err(error));
        }
        match self.transcript.len() - self.ran {
            // The logits are there: only a token is to be chosen.
            0 => Place::Done(self.choose_next(token_loop, timings)),
            1 if self.ran > 0 => match self.forget_ahead() {
                Ok(()) => Place::Together(timings),
                Err(error) => Place::Done(Err(error)),
            },
            _ => Place::Done(self.step(control)),
        }
    }

    fn steps_with_others(&self) -> Option<TokenLoop> {
        let spec = &self.pipeline.shared().spec;
        // Beams are no steps: that is said by `step`.
        let steps = spec.nested.is_none() && self.keeps_cache && self.beams.is_none();
        spec.token_loop.filter(|_| steps)
    }
}

/// Feeds the last token of each run of a group, and chooses the next.
fn pass_together(group: &mut [Member<'_>], started: Instant, all: &RunControl) {
    let Some(first) = group.first() else { return };
    let pipeline = first.run.pipeline.clone();
    let shared = pipeline.shared();
    let spec = &shared.spec;
    let Some(token_loop) = spec.token_loop else { return };
    let first_pass = spec.first_pass.as_ref().map(|first| first.component);
    let mut controls = Vec::with_capacity(group.len());
    for member in group.iter_mut() {
        member.run.last_span = 1;
        member.run.frames.ready = false;
        controls.push(within(all, member.limit));
    }
    for &index in &spec.order {
        // It stands in for the decoder where there is no cache yet.
        if first_pass == Some(index) && index != token_loop.decoder {
            continue;
        }
        let began = Instant::now();
        let mut places = Vec::with_capacity(group.len());
        let mut members = Vec::with_capacity(group.len());
        for (Member { run, place, .. }, control) in group.iter_mut().zip(&controls) {
            if !matches!(place, Place::Together(_)) || !run.runs_in(spec, index, &[Phase::EveryStep]) {
                continue;
            }
            if let Err(kind) = check_control(control) {
                run.pool.roll_back();
                **place = Place::Done(Err(kind.into()));
                continue;
            }
            let Run {
                pool,
                transcript,
                ran,
                stats,
                ..
            } = &mut **run;
            let tokens = transcript.tokens();
            let span = Span {
                ids: ids(tokens, *ran..*ran + 1),
                len: 1,
                past: *ran,
                last_row: None,
                tokens,
            };
            members.push((pool, span));
            places.push((&mut **place, stats));
        }
        if members.is_empty() {
            continue;
        }
        let outcomes = execute_together(spec, &shared.sessions, index, &mut members, all);
        // All of it is each run's: they wait for each other.
        let took = began.elapsed();
        for (((pool, _), (place, stats)), outcome) in members.into_iter().zip(places).zip(outcomes) {
            match (outcome, &mut *place) {
                (Ok(()), Place::Together(timings)) => {
                    stats.component_runs += 1;
                    if index == token_loop.decoder {
                        stats.passes += 1;
                        timings.decoder += took;
                    } else {
                        timings.step_components += took;
                    }
                }
                (Ok(()), Place::Done(_)) => {}
                (Err(error), _) => {
                    pool.roll_back();
                    *place = Place::Done(Err(error));
                }
            }
        }
    }
    for Member { run, place, .. } in group.iter_mut() {
        if let Place::Together(mut timings) = **place {
            let taken = run.take_logits(token_loop.decoder, token_loop.logits);
            let outcome = run.settle(taken).and_then(|()| {
                run.ran += 1;
                run.has_logits = true;
                run.logits_are_used = false;
                timings.total = started.elapsed();
                run.stats.decode += timings.total;
                run.choose_next(token_loop, timings)
            });
            **place = Place::Done(outcome);
        }
    }
}
