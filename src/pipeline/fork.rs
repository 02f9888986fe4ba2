//! Another run that goes on from where one is.

use super::PipelineError;
use super::run::Run;
use crate::component::MemoryAccount;

impl Run {
    /// A run with the same tokens, inputs, values and settings, which goes its own way from here on,
    /// by the same tokens as this one would, unless it is given [another seed](Self::set_seed).
    ///
    /// It takes next to no time and no memory: KV, states, inputs and outputs are shared. Whichever
    /// run first writes to a cache copies the rows of it then, and gets memory of its own; the other
    /// keeps what there was. So of n runs that go on from one, n - 1 copy, and those that only wait
    /// copy nothing.
    ///
    /// A host's own hook and sampler are this run's alone: the fork has none until it is given some.
    ///
    /// Fails only where memory does.
    pub fn fork(&mut self) -> Result<Run, PipelineError> {
        self.fork_for(self.settings.memory_account())
    }

    /// The same, whose memory counts for an account.
    pub(super) fn fork_for(&mut self, account: Option<MemoryAccount>) -> Result<Run, PipelineError> {
        self.forget_ahead()?;
        Ok(Run {
            pipeline: self.pipeline.clone(),
            settings: self.settings.clone(),
            stop: self.stop.clone(),
            transcript: self.transcript.clone(),
            constrained: self.constrained.clone(),
            pool: self.pool.fork(account.clone()),
            activity: self.activity.clone(),
            media: self.media.clone(),
            ran: self.ran,
            keeps_cache: self.keeps_cache,
            last_logits_only: self.last_logits_only,
            restart: self.restart,
            shares: self.shares,
            logits: self.logits.clone(),
            next_logits: Vec::new(),
            has_logits: self.has_logits,
            logits_are_used: self.logits_are_used,
            frames: self.frames.clone(),
            last_span: self.last_span,
            stats: self.stats,
            steps: self.steps.clone(),
            next_step: self.next_step,
            finished: self.finished,
            sampler: self.sampler.fork(),
            beams: self.beams,
            sequences: self.sequences.clone(),
            ahead: self.ahead.fork(account)?,
        })
    }
}
