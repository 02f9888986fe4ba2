//! Questions, what a single thread answers, and the ways to come to an answer.

use std::error::Error;
use std::ops::ControlFlow;

use oxpipe::component::RunControl;
use oxpipe::generation::SamplingOptions;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, Run, RunSettings};

use super::Random;
use super::package::{self, VOCABULARY};

pub type Failure = Box<dyn Error + Send + Sync>;

const QUESTIONS: usize = 24;
const TOKENS: u64 = 12;

pub struct Question {
    prompt: Vec<i32>,
    settings: RunSettings,
    answer: Vec<i32>,
}

/// Prompts of several lengths, half of them with drawn tokens; the answers are those of one thread
/// that has a pipeline for itself.
pub fn questions() -> Result<Vec<Question>, Failure> {
    let pipeline = package::open(&package::runtime(1), &package::files())?;
    let mut random = Random(1);
    let mut questions = Vec::new();
    for index in 0..QUESTIONS {
        // Some begin alike.
        let length = 1 + random.below(20);
        let mut prompt = vec![5, 6, 7, 8];
        prompt.truncate(random.below(5));
        prompt.extend((0..length).map(|_| 1 + random.below(VOCABULARY - 1) as i32));
        let settings = RunSettings {
            max_tokens: Some(TOKENS),
            stop_on_eos: false,
            seed: Some(index as u64),
            sampling: SamplingOptions {
                do_sample: Some(index % 2 == 1),
                top_k: (index % 2 == 1).then_some(40),
                ..SamplingOptions::default()
            },
            ..RunSettings::default()
        };
        let mut question = Question {
            prompt,
            settings,
            answer: Vec::new(),
        };
        let mut run = question.ask(&pipeline)?;
        run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))?;
        question.answer = question.said(&run);
        questions.push(question);
    }
    let different = questions
        .windows(2)
        .filter(|pair| pair[0].answer != pair[1].answer)
        .count();
    if different < QUESTIONS / 2 {
        return Err("the model gives the same answer to everything".into());
    }
    Ok(questions)
}

/// A way to come to an answer.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Straight,
    Rewound,
    Forked,
    Loaded,
    Together,
}

impl Way {
    pub const ALL: [Way; 5] = [
        Way::Straight,
        Way::Rewound,
        Way::Forked,
        Way::Loaded,
        Way::Together,
    ];
}

impl Question {
    fn ask(&self, pipeline: &Pipeline) -> Result<Run, PipelineError> {
        let mut run = Run::new(pipeline, &self.settings)?;
        run.append_tokens(&self.prompt)?;
        Ok(run)
    }

    fn said(&self, run: &Run) -> Vec<i32> {
        run.tokens().get(self.prompt.len()..).unwrap_or_default().to_vec()
    }

    fn check(&self, run: &Run, way: Way) -> Result<(), Failure> {
        let said = self.said(run);
        match said == self.answer {
            true => Ok(()),
            false => Err(format!(
                "{way:?}: {:?} was answered by {said:?}, and alone by {:?}",
                self.prompt, self.answer
            )
            .into()),
        }
    }

    /// Asks and checks the answer. Calls that are cancelled are made again, by `again`.
    pub fn answer(
        &self,
        pipeline: &Pipeline,
        way: Way,
        control: &RunControl,
        again: &dyn Fn(),
    ) -> Result<(), Failure> {
        let mut run = self.ask(pipeline)?;
        match way {
            Way::Straight => {}
            Way::Rewound => {
                let steps = TOKENS as usize / 2;
                (0..steps).try_for_each(|_| step(&mut run, control, again))?;
                run.rewind(self.prompt.len() - 1)?;
                run.append_tokens(&self.prompt[self.prompt.len() - 1..])?;
            }
            Way::Forked => {
                step(&mut run, control, again)?;
                let mut fork = run.fork()?;
                self.finish(&mut fork, control, again)?;
                self.check(&fork, way)?;
            }
            Way::Loaded => {
                step(&mut run, control, again)?;
                let saved = run.save()?;
                drop(run);
                run = Run::load(pipeline, &self.settings, &saved)?;
            }
            Way::Together => {
                let mut other = self.ask(pipeline)?;
                while run.finished().is_none() || other.finished().is_none() {
                    let results = Run::step_together(&mut [&mut run, &mut other], control);
                    for result in results {
                        match result {
                            Err(error) if is_cancelled(&error) => again(),
                            Err(error) => return Err(error.into()),
                            Ok(_) => {}
                        }
                    }
                    // One that was cancelled is behind the other.
                    if run.finished().is_some() || other.finished().is_some() {
                        break;
                    }
                }
                self.finish(&mut other, control, again)?;
                self.check(&other, way)?;
            }
        }
        self.finish(&mut run, control, again)?;
        self.check(&run, way)
    }

    fn finish(&self, run: &mut Run, control: &RunControl, again: &dyn Fn()) -> Result<(), Failure> {
        while run.finished().is_none() {
            match run.generate(control, &mut |_, _| ControlFlow::Continue(())) {
                Err(error) if is_cancelled(&error) => again(),
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

fn step(run: &mut Run, control: &RunControl, again: &dyn Fn()) -> Result<(), Failure> {
    loop {
        match run.step(control) {
            Err(error) if is_cancelled(&error) => again(),
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}

fn is_cancelled(error: &PipelineError) -> bool {
    matches!(error.kind(), ErrorKind::Cancelled)
}
