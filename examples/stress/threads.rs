//! Threads that share a pipeline.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oxpipe::component::{CancelToken, RunControl};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::Pipeline;

use super::answers::{Failure, Question, Way, questions};
use super::{Random, package};

struct Shared {
    questions: Vec<Question>,
    files: PackageSource,
    pipeline: Pipeline,
    tokens: Vec<CancelToken>,
    failure: Mutex<Option<String>>,
    over: AtomicBool,
    answers: AtomicU64,
    cancelled: AtomicU64,
    opened: AtomicU64,
}

pub fn run(time: Duration, threads: usize) -> Result<(), Failure> {
    let files = package::files();
    let shared = Shared {
        questions: questions()?,
        pipeline: package::open(&package::runtime(4), &files)?,
        files,
        tokens: (0..threads).map(|_| CancelToken::new()).collect(),
        failure: Mutex::new(None),
        over: AtomicBool::new(false),
        answers: AtomicU64::new(0),
        cancelled: AtomicU64::new(0),
        opened: AtomicU64::new(0),
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let start_one = |thread: usize| {
            let shared = &shared;
            scope.spawn(move || {
                let mut random = Random(1000 + thread as u64);
                while start.elapsed() < time && !shared.over.load(Ordering::Relaxed) {
                    if let Err(failure) = shared.work(thread, &mut random) {
                        shared.over.store(true, Ordering::Relaxed);
                        if let Ok(mut first) = shared.failure.lock() {
                            first.get_or_insert(failure.to_string());
                        }
                    }
                }
            })
        };
        let working: Vec<_> = (0..threads).map(start_one).collect();
        for thread in working {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{threads} threads, {} s: {} answers, all those of one thread; {} calls cancelled, {} pipelines opened",
        start.elapsed().as_secs(),
        count(&shared.answers),
        count(&shared.cancelled),
        count(&shared.opened),
    );
    match shared.failure.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(failure)) => Err(failure.into()),
        Err(_) => Err("a thread panicked".into()),
    }
}

impl Shared {
    /// One thing that a host does.
    fn work(&self, thread: usize, random: &mut Random) -> Result<(), Failure> {
        let question = &self.questions[random.below(self.questions.len())];
        let way = Way::ALL[random.below(Way::ALL.len())];
        // Somebody else's call.
        if random.below(2) == 0 {
            self.tokens[random.below(self.tokens.len())].request();
        }
        let token = &self.tokens[thread];
        let control = RunControl {
            cancel: Some(token.clone()),
            deadline: None,
        };
        let again = || {
            self.cancelled.fetch_add(1, Ordering::Relaxed);
            token.reset();
        };
        let own;
        let pipeline = match random.below(16) {
            0 => {
                own = package::open(&package::runtime(1 + random.below(3)), &self.files)?;
                self.opened.fetch_add(1, Ordering::Relaxed);
                &own
            }
            _ => &self.pipeline,
        };
        question.answer(pipeline, way, &control, &again)?;
        self.answers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
