//! One thread that goes on, and the memory that the process takes meanwhile.

use std::time::{Duration, Instant};

use oxpipe::component::RunControl;

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
            let now = resident()?;
            println!(
                "{:5} s: {now} KiB resident, {answers} answers",
                start.elapsed().as_secs()
            );
            first.get_or_insert(now);
            most = most.max(now);
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

/// KiB of memory that the process has in use.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number
        .ok_or("the system does not say how much memory is in use")?
        .parse()?)
}
