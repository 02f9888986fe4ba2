use std::ops::ControlFlow;
use std::time::Duration;

use crate::component::{RunControl, TensorView};
use crate::generation::FinishReason;

use super::{Event, Pipeline, PipelineError};

/// How a run generates.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Tokens to choose after each append; wins over the package's own limit. `None` takes
    /// the package's, or none at all.
    pub max_tokens: Option<u64>,
    /// Whether an end token of the package finishes the run.
    pub stop_on_eos: bool,
    /// The most tokens that one pass feeds; `None` feeds a whole prompt at once.
    pub chunk_size: Option<usize>,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            max_tokens: None,
            stop_on_eos: true,
            chunk_size: None,
        }
    }
}

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
    /// Bytes that the KV buffers take, in use or reserved.
    pub kv_bytes: u64,
}

/// One request's state: tokens, the pool of values, KV. Serial: one call at a time.
///
/// A call that fails leaves the run as it was, and usable.
#[derive(Debug)]
pub struct Run {
    pipeline: Pipeline,
}

impl Run {
    pub fn new(pipeline: &Pipeline, settings: &RunSettings) -> Result<Self, PipelineError> {
        let _ = settings;
        Ok(Run {
            pipeline: pipeline.clone(),
        })
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Sets a request input, `vision_encoder.pixel_values`; the value is copied and checked
    /// against the declared port at once. Another value than before makes the components
    /// that depend on it run again, and drops KV that depended on them.
    pub fn set_input(&mut self, address: &str, value: TensorView<'_>) -> Result<(), PipelineError> {
        let _ = (address, value);
        todo!()
    }

    /// Takes a request input back.
    pub fn clear_input(&mut self, address: &str) -> Result<(), PipelineError> {
        let _ = address;
        todo!()
    }

    /// Appends prompt tokens. After a finished answer this starts the next turn.
    pub fn append_tokens(&mut self, ids: &[i32]) -> Result<(), PipelineError> {
        let _ = ids;
        todo!()
    }

    /// Encodes and appends text, with the tokenizer's own special tokens if `add_special`
    /// (a rendered chat template has them already). Returns how many tokens it became.
    pub fn append_text(&mut self, text: &str, add_special: bool) -> Result<usize, PipelineError> {
        let _ = (text, add_special);
        todo!()
    }

    /// Feeds what has not run yet, chooses a token and appends it. A package without a
    /// token loop runs once and gives [`FinishReason::Completed`].
    pub fn step(&mut self, control: &RunControl) -> Result<Event, PipelineError> {
        let _ = control;
        todo!()
    }

    /// Steps until the run is finished or `on_event` breaks; `None` in that case.
    pub fn generate(
        &mut self,
        control: &RunControl,
        on_event: &mut dyn FnMut(&Event) -> ControlFlow<()>,
    ) -> Result<Option<FinishReason>, PipelineError> {
        let _ = (control, on_event);
        todo!()
    }

    /// Feeds what has not run yet and stops before a token is chosen: the host looks at
    /// [`logits`](Self::logits) and calls [`force_token`](Self::force_token).
    pub fn forward(&mut self, control: &RunControl) -> Result<(), PipelineError> {
        let _ = control;
        todo!()
    }

    /// Logits of the last position that ran, one for each token of the vocabulary: what the
    /// last step chose from.
    pub fn logits(&self) -> Result<&[f32], PipelineError> {
        todo!()
    }

    /// Makes `id` the choice from the current logits. After [`forward`](Self::forward) it is
    /// appended; after a step it takes the place of the token that the step chose.
    pub fn force_token(&mut self, id: i32) -> Result<Event, PipelineError> {
        let _ = id;
        todo!()
    }

    /// Keeps the first `len` tokens. 0 starts over, inputs stay set.
    pub fn rewind(&mut self, len: usize) -> Result<(), PipelineError> {
        let _ = len;
        todo!()
    }

    /// Runs the final_only components; their outputs are then in the pool.
    pub fn finish(&mut self, control: &RunControl) -> Result<(), PipelineError> {
        let _ = control;
        todo!()
    }

    /// Runs one on_demand component.
    pub fn run_component(&mut self, name: &str, control: &RunControl) -> Result<(), PipelineError> {
        let _ = (name, control);
        todo!()
    }

    /// A value of the pool, `component.port`: an output as it was last computed, or a
    /// request input. Borrowed until the next call that changes the run.
    pub fn get_tensor(&self, address: &str) -> Result<TensorView<'_>, PipelineError> {
        let _ = address;
        todo!()
    }

    /// All tokens, appended and chosen.
    pub fn tokens(&self) -> &[i32] {
        &[]
    }

    /// Why the run is finished, if it is.
    pub fn finished(&self) -> Option<FinishReason> {
        None
    }

    pub fn stats(&self) -> RunStats {
        RunStats::default()
    }
}
