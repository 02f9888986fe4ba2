//! One thread that goes on, and the memory that the process takes meanwhile.

use std::time::{Duration, Instant};

use oxpipe::component::RunControl;
use oxpipe_test_support::counting_allocator::live_bytes;

use super::answers::{Failure, Way, questions};
use super::{Random, package};

/// What a process takes may be more than at the beginning by this part.
const GROWTH: f64 = 0.01;

pub fn run(time: Duration) -> Result<(), Failure> {
    let questions = questions()?;
    let files = package::files();
    let runtime = package::runtime(2);
    let pipeline = package::open(&runtime, &files)?;
    let mut random = Random(3);
    let start = Instant::now();
    // Until caches are full and the allocator knows what it is asked for.
    let warm_up = (time / 10).clamp(Duration::from_secs(1), Duration::from_secs(60));
    let interval = (time / 10).clamp(Duration::from_secs(1), Duration::from_secs(60));
    let (mut first, mut most, mut next, mut answers) = (None, 0, warm_up, 0u64);
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
            println!(
                "{:5} s: {all} KiB resident, {anonymous} of memory and {file} of files; {} bytes allocated; {answers} answers",
                start.elapsed().as_secs(),
                live_bytes()
            );
            first.get_or_insert(all);
            most = most.max(all);
        }
    }
    let first = first.ok_or("too short to tell")?;
    let growth = most as f64 / first as f64 - 1.0;
    println!("{answers} answers; memory grew by {:.2} %", growth * 100.0);
    match growth <= GROWTH {
        true => Ok(()),
        false => Err(format!("{first} KiB became {most}").into()),
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
