//! One thread that goes on, and the memory that the process takes meanwhile.

use std::time::{Duration, Instant};

use oxpipe::component::RunControl;
use oxpipe_test_support::counting_allocator::live_bytes;

use super::answers::{Failure, Way, questions};
use super::{Random, package};

/// What a process takes, and what of that is allocated, may be more than behind the warm-up by this part.
const GROWTH: f64 = 0.01;

pub fn run(time: Duration) -> Result<(), Failure> {
    let questions = questions()?;
    let files = package::files();
    let runtime = package::runtime(2);
    let pipeline = package::open(&runtime, &files)?;
    let mut random = Random(3);
    let start = Instant::now();
    // Until caches are full and the allocator knows what it is asked for: glibc, for one, learns from what is
    // freed which sizes it takes from its heap, and how much of that it keeps.
    let warm_up = (time / 10).max(Duration::from_secs(1));
    let interval = (time / 10).clamp(Duration::from_secs(1), Duration::from_secs(60));
    let (mut first, mut most, mut next, mut answers) = (None, (0, 0), interval, 0u64);
    while start.elapsed() < time {
        let question = &questions[random.below(questions.len())];
        let way = Way::ALL[random.below(Way::ALL.len())];
        question.answer(&pipeline, way, &RunControl::default(), &|| {})?;
        if answers.is_multiple_of(16) {
            let other = package::open(&runtime, &files)?;
            question.answer(&other, way, &RunControl::default(), &|| {})?;
        }
        answers += 1;
        if start.elapsed() >= next {
            next += interval;
            let Resident { all, anonymous, file } = Resident::now()?;
            let allocated = live_bytes();
            println!(
                "{:5} s: {all} KiB resident, {anonymous} of memory and {file} of files; {allocated} bytes allocated; \
                 {answers} answers",
                start.elapsed().as_secs(),
            );
            if start.elapsed() >= warm_up {
                first.get_or_insert((all, allocated));
                most = (most.0.max(all), most.1.max(allocated));
            }
        }
    }
    let first = first.ok_or("too short to tell")?;
    let grew = |most: f64, first: f64| most / first - 1.0;
    let resident = grew(most.0 as f64, first.0 as f64);
    let allocated = grew(most.1 as f64, first.1 as f64);
    println!(
        "{answers} answers; behind the first {} s resident memory grew by {:.2} % and what is allocated by {:.2} %",
        warm_up.as_secs(),
        resident * 100.0,
        allocated * 100.0
    );
    match resident <= GROWTH && allocated <= GROWTH {
        true => Ok(()),
        false => Err(format!("{first:?} (KiB resident, bytes allocated) became {most:?}").into()),
    }
}

/// KiB of memory that the process has in use, by what it is.
struct Resident {
    /// All of it.
    all: u64,
    /// What was asked of the system: heap and stacks.
    anonymous: u64,
    /// Pages of files: the program, libraries and models. The system takes and brings them as it likes.
    file: u64,
}

impl Resident {
    fn now() -> Result<Self, Failure> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| -> Result<u64, Failure> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            Ok(number
                .ok_or_else(|| format!("the system does not say how much {name} is in use"))?
                .parse()?)
        };
        Ok(Self {
            all: field("VmRSS:")?,
            anonymous: field("RssAnon:")?,
            file: field("RssFile:")?,
        })
    }
}
