//! The loop of a denoiser: steps over what the steps before have made.
//!
//! A denoiser's edges to itself carry the loop's states ("latents"). They start from what the
//! host sets at the inputs that the edges lead to, or as noise, where a scheduler says of which
//! variance. A step feeds them, and the step's timestep, to the denoiser. Without a scheduler
//! each state then becomes the output that its edge comes from; with one it becomes what the
//! scheduler makes of the state and the output. Of a masked diffusion the states are tokens, see
//! `unmask`.
//!
//! With guidance (Ho, Salimans, "Classifier-free diffusion guidance", 2022) the denoiser runs
//! twice, the second time without its conditioning, and its output is taken to be
//! `without + scale · (with - without)`. Of a masked diffusion the conditioning may be the prompt:
//! without it every token that the loop began with is the mask (Nie et al., arXiv:2502.09992,
//! "unsupervised classifier-free guidance", whose w is `scale - 1`).
//!
//! In a package without a token loop each step of the run is one of these, with the
//! every_step components around it; of several loops those of the last one. Elsewhere a denoiser is
//! one component among others, and running it means all of its steps.

use std::time::Instant;

use crate::component::{DataType, RunControl, Shape, TensorError, TensorView};
use crate::generation::{MaskedDiffusion, Noise, Schedule, Step};
use crate::package::{ComponentSpec, Iteration, LoopState, Phase, PipelineSpec};

use super::convert::{read_floats, write_floats, write_integers};
use super::event::Progress;
use super::execute::check_control;
use super::loop_steps::Steps;
use super::pool::{Pool, Span, at_port};
use super::run::Run;
use super::unmask::{Unmasking, check_blocks, masked_positions};
use super::value::Value;
use super::{PipelineError, RequestError, Timings};

impl Run {
    /// Takes one step of the loop that the run is made of, after what has to run before it.
    pub(super) fn iterate(
        &mut self,
        of: usize,
        control: &RunControl,
    ) -> Result<(Progress, Timings), PipelineError> {
        let started = Instant::now();
        self.check_request()?;
        let ran_before = self.stats.component_runs;
        let prompt = self.run_stale(&[Phase::PromptOnly], |_| true, control);
        self.settle(prompt)?;
        let mut timings = Timings::default();
        if self.stats.component_runs > ran_before {
            timings.prompt_components = started.elapsed();
        }
        let outcome = self.iteration_pass(of, control, &mut timings);
        self.settle(outcome)?;
        let (start, count) = self
            .steps
            .get(of)
            .map_or((0, 0), |steps| (steps.start, steps.timesteps.len()));
        let done = (self.next_step.unwrap_or(start) + 1).min(count);
        self.next_step = Some(done);
        timings.total = started.elapsed();
        Ok((Progress { done, count }, timings))
    }

    /// One pass of the every_step components, the denoiser among them.
    fn iteration_pass(
        &mut self,
        of: usize,
        control: &RunControl,
        timings: &mut Timings,
    ) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        for &index in &spec.order {
            if !self.runs_in(spec, index, &[Phase::EveryStep]) {
                continue;
            }
            let started = Instant::now();
            if spec.loop_of(index) == Some(of) {
                let step = match self.next_step {
                    // All of them are taken; something else had to run again.
                    Some(step)
                        if self
                            .steps
                            .get(of)
                            .is_some_and(|steps| step >= steps.timesteps.len()) =>
                    {
                        continue;
                    }
                    Some(step) => step,
                    None => self.begin_loop(spec, of)?,
                };
                self.denoise(spec, of, step, control)?;
                timings.decoder += started.elapsed();
            } else {
                self.run_one(index, control)?;
                timings.step_components += started.elapsed();
            }
        }
        Ok(())
    }

    /// Runs all steps of a loop, from the first.
    pub(super) fn denoise_all(
        &mut self,
        spec: &PipelineSpec,
        of: usize,
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        let start = self.begin_loop(spec, of)?;
        let count = self.steps.get(of).map_or(0, |steps| steps.timesteps.len());
        (start..count).try_for_each(|step| self.denoise(spec, of, step, control))
    }

    /// Puts the states to what they start from, and gives the first step.
    fn begin_loop(&mut self, spec: &PipelineSpec, of: usize) -> Result<usize, PipelineError> {
        let (Some(steps), Some(iteration)) = (self.steps.get(of), spec.iterations.get(of)) else {
            return Ok(0);
        };
        let _entered = self.pool.enter();
        let seeded = self.pool.seed_states(spec, iteration, steps);
        seeded.map_err(|error| self.pool.explained(error))?;
        Ok(steps.start)
    }

    /// One step of the denoiser; what it made is not committed yet.
    fn denoise(
        &mut self,
        spec: &PipelineSpec,
        of: usize,
        step: usize,
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let sessions = &pipeline.shared().sessions;
        let (Some(steps), Some(iteration)) = (self.steps.get(of), spec.iterations.get(of)) else {
            return Ok(());
        };
        let Some(component) = spec.components.get(iteration.denoiser) else {
            return Ok(());
        };
        let span = Span {
            ids: self.transcript.tokens(),
            len: self.transcript.len(),
            past: 0,
            last_row: None,
            tokens: &[],
        };
        let update = steps
            .schedule
            .as_ref()
            .and_then(|schedule| schedule.steps.get(step));
        self.pool.states.timestep = steps.timesteps.get(step).copied().unwrap_or_default();
        self.pool.scale_states(component, iteration, update)?;
        check_control(control)?;
        self.pool
            .execute(spec, sessions, iteration.denoiser, span, control)?;
        self.stats.component_runs += 1;
        if steps.guidance_scale != 1.0 {
            check_control(control)?;
            self.pool.leave_out(component, iteration, steps.masked.as_ref())?;
            let passed = self
                .pool
                .execute(spec, sessions, iteration.denoiser, span, control);
            self.pool.states.leaving_out = None;
            passed?;
            self.stats.component_runs += 1;
            self.pool.guide(component, iteration, steps.guidance_scale)?;
        }
        if let Some(masked) = &steps.masked {
            let moment = Unmasking {
                masked,
                step: step.saturating_sub(steps.start),
                steps: steps.timesteps.len().saturating_sub(steps.start),
                draw: draw_of(step),
                seed: steps.seed,
                control,
            };
            return self.pool.unmask_states(component, iteration, moment);
        }
        match update {
            None => self.pool.carry_states(component, iteration, |_| true),
            Some(update) => {
                let looks_back = steps.schedule.as_ref().is_some_and(Schedule::looks_back);
                let moment = Moment {
                    update: *update,
                    draw: draw_of(step),
                    seed: steps.seed,
                    keeps_clean: looks_back,
                    has_clean: looks_back && step > steps.start,
                };
                self.pool.move_states(component, iteration, moment)
            }
        }
    }
}

/// A step of a scheduler, for all states.
#[derive(Clone, Copy)]
struct Moment {
    update: Step,
    draw: u32,
    seed: u64,
    /// Whether the next step looks back at this one.
    keeps_clean: bool,
    /// Whether a step of this loop came before.
    has_clean: bool,
}

impl Pool {
    /// Puts the states to the host's values, or to noise.
    fn seed_states(
        &mut self,
        spec: &PipelineSpec,
        iteration: &Iteration,
        steps: &Steps,
    ) -> Result<(), PipelineError> {
        let Some(component) = spec.components.get(iteration.denoiser) else {
            return Ok(());
        };
        for (index, state) in iteration.numbered() {
            let (Some(input), Some(port)) = (
                component.inputs.get(state.input),
                component.io.inputs.get(state.input),
            ) else {
                continue;
            };
            let mut next = self.states.take_spare(index);
            let noise = Noise {
                seed: steps.seed,
                stream: stream(index),
                draw: 0,
            };
            let first = steps
                .schedule
                .as_ref()
                .and_then(|schedule| schedule.steps.get(steps.start));
            let made = match (
                self.request(iteration.denoiser, state.input),
                &steps.schedule,
                &state.shape,
            ) {
                (Some(clean), Some(_), _) if steps.add_noise => add_noise(clean, first, noise, &mut next),
                (Some(seed), _, _) => next.copy_from(seed),
                (None, None, Some(shape)) if state.tokens => next.write(input.dtype, shape).map(|bytes| {
                    let mask = steps.masked.map_or(0, |masked| masked.mask_token_id.into());
                    write_integers(input.dtype, bytes, std::iter::repeat(mask));
                }),
                (None, Some(schedule), Some(shape)) => {
                    let scaled = |value: f32| (f64::from(value) * schedule.initial_scale) as f32;
                    next.write(input.dtype, shape)
                        .map(|bytes| write_floats(input.dtype, bytes, noise.values().map(scaled)))
                }
                // A run is checked for it before anything runs.
                _ => Ok(()),
            };
            let made = made.map(|()| match &steps.masked {
                Some(masked) if state.tokens => next.view().map(|ids| masked_positions(ids, masked)),
                _ => None,
            });
            self.states.put(index, next, made.is_ok());
            let positions = made.map_err(|error| at_port(component, port, error))?;
            if let (Some(positions), Some(masked)) = (positions, &steps.masked) {
                check_blocks(masked, &positions, steps)?;
                self.states.set_masked(index, positions);
            }
        }
        Ok(())
    }

    /// Makes what the denoiser reads of the states.
    fn scale_states(
        &mut self,
        component: &ComponentSpec,
        iteration: &Iteration,
        update: Option<&Step>,
    ) -> Result<(), PipelineError> {
        let factor = update.map_or(1.0, |update| update.input_scale);
        let mut scratch = Vec::new();
        for (index, state) in iteration.numbered() {
            let made = self.states.scale(index, factor, &mut scratch);
            if let (Err(error), Some(port)) = (made, component.io.inputs.get(state.input)) {
                return Err(at_port(component, port, error));
            }
        }
        Ok(())
    }

    /// Puts what the denoiser has made aside, and zeros in the place of its conditioning, or masks
    /// in that of the prompt.
    fn leave_out(
        &mut self,
        component: &ComponentSpec,
        iteration: &Iteration,
        masked: Option<&MaskedDiffusion>,
    ) -> Result<(), PipelineError> {
        let denoiser = iteration.denoiser;
        let conditioning = iteration.guidance.and_then(|guidance| guidance.input);
        if let (None, Some(masked)) = (conditioning, masked) {
            for (index, state) in iteration.numbered().filter(|(_, state)| state.tokens) {
                let made = self
                    .states
                    .leave_out_prompt(index, i64::from(masked.mask_token_id));
                if let (Err(error), Some(port)) = (made, component.io.inputs.get(state.input)) {
                    return Err(at_port(component, port, error));
                }
            }
        }
        if let Some(values) = self.components.get_mut(denoiser) {
            values.set_aside();
        }
        if let Some(conditioning) = conditioning
            && let Some(input) = component.inputs.get(conditioning)
            && let Some(given) = self.values().input(denoiser, conditioning, input)
        {
            let (dtype, shape) = (given.dtype(), Shape::from_slice(given.shape()));
            let made = self.states.write_zeros(dtype, &shape);
            if let (Err(error), Some(port)) = (made, component.io.inputs.get(conditioning)) {
                return Err(at_port(component, port, error));
            }
        }
        self.states.leaving_out = Some(denoiser);
        Ok(())
    }

    /// Takes back what was put aside, each output that a state comes from moved away from what
    /// it is without conditioning.
    fn guide(
        &mut self,
        component: &ComponentSpec,
        iteration: &Iteration,
        scale: f64,
    ) -> Result<(), PipelineError> {
        let Some(values) = self.components.get_mut(iteration.denoiser) else {
            return Ok(());
        };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (index, port) in component.io.outputs.iter().enumerate() {
            let looped = iteration.states.iter().any(|state| state.output == index);
            let outcome = values.take_back(index, |aside, made| {
                let (Some(conditioned), Some(plain), true) = (aside.view(), made.view(), looped) else {
                    return Ok(());
                };
                let (dtype, shape) = (conditioned.dtype(), Shape::from_slice(conditioned.shape()));
                read_floats(conditioned, &mut with)?;
                read_floats(plain, &mut without)?;
                let guided = with.iter().zip(&without).map(|(&with, &without)| {
                    let (with, without) = (f64::from(with), f64::from(without));
                    (without + scale * (with - without)) as f32
                });
                write_floats(dtype, aside.write(dtype, &shape)?, guided);
                Ok(())
            });
            outcome.map_err(|error| at_port(component, port, error))?;
        }
        Ok(())
    }

    /// Makes each of these states what the denoiser has put out.
    pub(super) fn carry_states(
        &mut self,
        component: &ComponentSpec,
        iteration: &Iteration,
        these: impl Fn(&LoopState) -> bool,
    ) -> Result<(), PipelineError> {
        for (index, state) in iteration.numbered().filter(|(_, state)| these(state)) {
            let (Some(input), Some(port)) = (
                component.inputs.get(state.input),
                component.io.outputs.get(state.output),
            ) else {
                continue;
            };
            let mut next = self.states.take_spare(index);
            let made = match self.output(iteration.denoiser, state.output) {
                Some(output) => next.convert_from(output, input.dtype),
                None => Ok(()),
            };
            self.states.put(index, next, made.is_ok());
            made.map_err(|error| at_port(component, port, error))?;
        }
        Ok(())
    }

    /// Makes each state what the scheduler makes of it and of what the denoiser has put out.
    fn move_states(
        &mut self,
        component: &ComponentSpec,
        iteration: &Iteration,
        moment: Moment,
    ) -> Result<(), PipelineError> {
        for (index, state) in iteration.numbered() {
            let mut next = self.states.take_spare(index);
            let mut clean = self.states.take_spare_clean(index);
            let made = self.move_state(
                component,
                iteration,
                (index, state),
                moment,
                &mut next,
                &mut clean,
            );
            self.states.put(index, next, made.is_ok());
            self.states
                .put_clean(index, clean, made.is_ok() && moment.keeps_clean);
            made?;
        }
        Ok(())
    }

    fn move_state(
        &self,
        component: &ComponentSpec,
        iteration: &Iteration,
        (index, state): (usize, &LoopState),
        moment: Moment,
        next: &mut Value,
        clean: &mut Value,
    ) -> Result<(), PipelineError> {
        let (Some(port), Some(current), Some(output)) = (
            component.io.outputs.get(state.output),
            self.states.current(index),
            self.output(iteration.denoiser, state.output),
        ) else {
            return Ok(());
        };
        if output.shape() != current.shape() {
            return Err(RequestError::LoopShape {
                component: component.name.clone(),
                port: port.name.clone(),
                found: output.shape().to_vec(),
                expected: current.shape().to_vec(),
            }
            .into());
        }
        let noise = Noise {
            seed: moment.seed,
            stream: stream(index),
            draw: moment.draw,
        };
        let mut made = || -> Result<(), TensorError> {
            let (mut samples, mut outputs, mut before) = (Vec::new(), Vec::new(), Vec::new());
            read_floats(current, &mut samples)?;
            read_floats(output, &mut outputs)?;
            if let (true, Some(clean)) = (moment.has_clean, self.states.clean(index)) {
                read_floats(clean, &mut before)?;
            }
            let mut noise = noise.values();
            let mut fresh = || match moment.update.noise == 0.0 {
                true => 0.0,
                false => noise.next().unwrap_or_default(),
            };
            for (place, (sample, output)) in samples.iter_mut().zip(&mut outputs).enumerate() {
                let before = before.get(place).copied();
                (*sample, *output) = moment.update.next(*sample, *output, before, fresh());
            }
            let shape = current.shape();
            write_floats(
                current.dtype(),
                next.write(current.dtype(), shape)?,
                samples.into_iter(),
            );
            if moment.keeps_clean {
                let bytes = clean.write(DataType::Float32, shape)?;
                write_floats(DataType::Float32, bytes, outputs.into_iter());
            }
            Ok(())
        };
        made().map_err(|error| at_port(component, port, error))
    }
}

/// Makes of a clean sample the one that a step begins with.
fn add_noise(
    clean: TensorView<'_>,
    step: Option<&Step>,
    noise: Noise,
    next: &mut Value,
) -> Result<(), TensorError> {
    let mut samples = Vec::new();
    read_floats(clean, &mut samples)?;
    let noised = samples
        .iter()
        .zip(noise.values())
        .map(|(&sample, noise)| match step {
            Some(step) => step.noised(sample, noise),
            None => sample,
        });
    write_floats(clean.dtype(), next.write(clean.dtype(), clean.shape())?, noised);
    Ok(())
}

/// The draw of noise of a step; 0 is what the loop starts from.
fn draw_of(step: usize) -> u32 {
    u32::try_from(step + 1).unwrap_or(u32::MAX)
}

/// The stream of noise of a state.
pub(super) fn stream(state: usize) -> u32 {
    u32::try_from(state).unwrap_or(u32::MAX)
}
