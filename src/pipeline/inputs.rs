//! What the host sets, and what becomes of values that were made of something else.

use crate::component::{ComponentError, TensorView, check_value};
use crate::generation::FinishReason;
use crate::package::Phase;

use super::PipelineError;
use super::request;
use super::run::Run;

impl Run {
    /// Sets a request input, `vision_encoder.pixel_values`; the value is copied and checked
    /// against the declared port at once. `denoiser.PORT.uncond` sets what stands at an input of
    /// a denoiser with guidance where that leaves the conditioning out (a negative prompt);
    /// zeros do at the conditioning itself if nothing is set. Where the package has positions from
    /// a processor's coordinates, the decoder's input for them takes those of the first tokens.
    /// Another value than before makes the components that depend on it run again, and drops KV
    /// that depended on them.
    pub fn set_input(&mut self, address: &str, value: TensorView<'_>) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        let found = request::find(spec, address)?;
        let at = request::settable(&found, spec)?;
        let in_component = |kind| ComponentError::new(found.component.name.as_str(), kind);
        if let Some(port) = found.component.io.inputs.get(at.input) {
            check_value(port, value.dtype(), value.shape()).map_err(in_component)?;
        }
        let before = self.pool.given(at);
        if before.is_some_and(|before| request::same(before, value)) {
            return Ok(());
        }
        let _entered = self.pool.enter();
        let mut copy = super::value::Value::default();
        copy.copy_from(value).map_err(|source| {
            let kind = crate::component::ComponentErrorKind::BadTensor {
                port: found.port.to_owned(),
                source,
            };
            self.pool.explained(in_component(kind).into())
        })?;
        if let Some(slot) = self.pool.given_mut(at) {
            *slot = copy;
        }
        self.value_changed(found.index);
        Ok(())
    }

    /// Takes a request input back.
    pub fn clear_input(&mut self, address: &str) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        let found = request::find(spec, address)?;
        let at = request::settable(&found, spec)?;
        if self.pool.given(at).is_some() {
            if let Some(slot) = self.pool.given_mut(at) {
                slot.clear();
            }
            self.value_changed(found.index);
        }
        Ok(())
    }

    /// A value that the request brings for a component has changed.
    pub(super) fn value_changed(&mut self, component: usize) {
        self.spoil(component);
        if self.finished == Some(FinishReason::Completed) {
            self.finished = None;
        }
    }

    /// Something that a component reads has changed.
    pub(super) fn spoil(&mut self, component: usize) {
        let spec = &self.pipeline.shared().spec;
        let spoiled = self.activity.spoil(spec, component);
        let is_spoiled = |index: usize| spoiled.get(index) == Some(&true);
        self.restart |= spec
            .components
            .iter()
            .enumerate()
            .any(|(index, component)| component.phase == Phase::EveryStep && is_spoiled(index));
        let own = spec.own_loop();
        for (of, iteration) in spec.iterations.iter().enumerate() {
            if is_spoiled(iteration.denoiser) {
                self.pool.states.forget(iteration);
                self.next_step = self.next_step.filter(|_| own != Some(of));
            }
        }
    }
}
