//! ONNX's own node tests, run by the native runtime: one test per case.
//!
//! A case is a folder with `model.onnx` and `test_data_set_*/{input,output}_*.pb`, as the onnx
//! package has them on disk (scripts/fetch-onnx-tests.sh) and as its newer versions write
//! them from code. `OXP_ONNX_NODE_TESTS` names other folders of cases, separated like `PATH`.
//!
//! Every case whose operators the runtime has is in exactly one of two lists:
//! onnx_nodes/pass.txt, which must pass, and onnx_nodes/fail.txt, which must not, with the
//! reason. A case that does not do what its list says is a failure, and so is one that
//! is in neither; `OXP_UPDATE_NODE_LIST=1` rewrites the first list. Cases of operators that
//! the runtime does not have are shown as ignored, and counted by operator at the end.

#[path = "onnx_nodes/case.rs"]
mod case;
#[path = "onnx_nodes/compare.rs"]
mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use case::{Case, Verdict};

const FETCH: &str = "scripts/fetch-onnx-tests.sh";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lists = here.join("tests/onnx_nodes");
    let cases = match find_cases(here) {
        Ok(cases) => cases,
        Err(message) => {
            eprintln!("onnx_nodes: {message}");
            return ExitCode::FAILURE;
        }
    };
    let (pass, fail) = match read_lists(&lists, &cases) {
        Ok(lists) => lists,
        Err(message) => {
            eprintln!("onnx_nodes: {message}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::var_os("OXP_UPDATE_NODE_LIST").is_some() {
        return update_list(&lists, &cases, &fail);
    }

    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    let mut not_covered = 0;
    let mut trials = Vec::new();
    for case in cases {
        let expectation = match (pass.contains(&case.name), fail.get(&case.name)) {
            (true, _) => Expectation::Pass,
            (false, Some(reason)) => Expectation::Fail(reason.clone()),
            (false, None) => Expectation::Nothing,
        };
        // Which operators are missing is known from a load, so that a case can be shown as
        // ignored; those that are expected to pass are loaded when their turn comes.
        let uncovered = match expectation {
            Expectation::Pass => Vec::new(),
            _ => case.missing_operators(),
        };
        let ignored = matches!(expectation, Expectation::Nothing) && !uncovered.is_empty();
        if ignored {
            not_covered += 1;
            let operators: BTreeSet<&str> = uncovered.iter().map(|missing| operator(missing)).collect();
            for operator in operators {
                *missing.entry(operator.to_owned()).or_default() += 1;
            }
        }
        let name = case.name.clone();
        let kind = if ignored { "operator missing" } else { "" };
        trials.push(
            Trial::test(name, move || judge(&case, &expectation))
                .with_kind(kind)
                .with_ignored_flag(ignored),
        );
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        report(not_covered, &missing);
    }
    conclusion.exit_code()
}

/// What the lists say about a case.
enum Expectation {
    Pass,
    Fail(String),
    Nothing,
}

fn judge(case: &Case, expectation: &Expectation) -> Result<(), Failed> {
    let verdict = case.run();
    match (expectation, verdict) {
        (Expectation::Pass, Verdict::Passed) => Ok(()),
        (Expectation::Pass, Verdict::Failed(message)) => Err(message.into()),
        (Expectation::Pass, Verdict::Missing(operators)) => {
            Err(format!("in pass.txt, but the runtime lacks {}", operators.join(", ")).into())
        }
        (Expectation::Fail(_), Verdict::Failed(_)) => Ok(()),
        (Expectation::Fail(reason), Verdict::Passed) => {
            Err(format!("passes, although fail.txt says: {reason}. Move it to pass.txt").into())
        }
        (Expectation::Fail(_), Verdict::Missing(operators)) => Err(format!(
            "in fail.txt, but the runtime lacks {}. Remove it from there",
            operators.join(", ")
        )
        .into()),
        (Expectation::Nothing, Verdict::Passed) => {
            Err("passes, but is in no list. Add it to pass.txt (OXP_UPDATE_NODE_LIST=1 does)".into())
        }
        (Expectation::Nothing, Verdict::Failed(message)) => {
            Err(format!("fails, and is in no list. Fix it, or give the reason in fail.txt: {message}").into())
        }
        // Only when ignored cases are asked for.
        (Expectation::Nothing, Verdict::Missing(operators)) => {
            Err(format!("the runtime lacks {}", operators.join(", ")).into())
        }
    }
}

/// `ai.onnx.Resize` of `ai.onnx.Resize version 19 (float), node "y"`.
fn operator(missing: &str) -> &str {
    missing.split(" version ").next().unwrap_or(missing)
}

fn report(not_covered: usize, missing: &BTreeMap<String, usize>) {
    let mut by_count: Vec<_> = missing.iter().collect();
    by_count.sort_by_key(|&(name, &count)| (std::cmp::Reverse(count), name));
    println!(
        "{not_covered} cases need {} operators that the runtime does not have (cases each):",
        missing.len()
    );
    let counts: Vec<_> = by_count
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("  {}\n", counts.join(", "));
}

/// All cases of all folders, by name.
fn find_cases(here: &Path) -> Result<Vec<Case>, String> {
    let folders = match std::env::var_os("OXP_ONNX_NODE_TESTS") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => vec![here.join("third_party/onnx-node-tests")],
    };
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for folder in folders {
        let entries = std::fs::read_dir(&folder).map_err(|error| {
            format!(
                "no ONNX node tests in {} ({error}); {FETCH} puts them there",
                folder.display()
            )
        })?;
        for entry in entries {
            let path: PathBuf = entry.map_err(|error| error.to_string())?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if let Some(name) = name.strip_prefix("test_")
                && path.join("model.onnx").is_file()
            {
                let case = Case::new(name, &path);
                if cases.insert(name.to_owned(), case).is_some() {
                    return Err(format!("case {name} is in two folders"));
                }
            }
        }
    }
    if cases.is_empty() {
        return Err(format!(
            "the folder of ONNX node tests is empty; {FETCH} fills it"
        ));
    }
    Ok(cases.into_values().collect())
}

type Lists = (BTreeSet<String>, BTreeMap<String, String>);

/// pass.txt and fail.txt; a name must be in one of them only, and be a case.
fn read_lists(folder: &Path, cases: &[Case]) -> Result<Lists, String> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let lines = |text: &str| -> Vec<String> {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    let pass: BTreeSet<String> = lines(&read("pass.txt")?).into_iter().collect();
    let mut fail = BTreeMap::new();
    for line in lines(&read("fail.txt")?) {
        let (name, reason) = line
            .split_once(": ")
            .ok_or_else(|| format!("fail.txt gives no reason in \"{line}\" (NAME: REASON)"))?;
        if pass.contains(name) {
            return Err(format!("{name} is both in pass.txt and in fail.txt"));
        }
        fail.insert(name.to_owned(), reason.to_owned());
    }
    let known: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    match pass
        .iter()
        .chain(fail.keys())
        .find(|name| !known.contains(name.as_str()))
    {
        Some(name) => Err(format!("{name} is in a list, but there is no such case")),
        None => Ok((pass, fail)),
    }
}

/// Writes pass.txt anew: every case that passes and is not in fail.txt.
fn update_list(folder: &Path, cases: &[Case], fail: &BTreeMap<String, String>) -> ExitCode {
    let mut list = String::from(
        "# Node tests that must pass, written by OXP_UPDATE_NODE_LIST=1 cargo test --test onnx_nodes\n",
    );
    let (mut passed, mut failed) = (0, 0);
    for case in cases.iter().filter(|case| !fail.contains_key(&case.name)) {
        match case.run() {
            Verdict::Passed => {
                passed += 1;
                list.push_str(&case.name);
                list.push('\n');
            }
            Verdict::Failed(message) => {
                failed += 1;
                println!("{}: {message}", case.name);
            }
            Verdict::Missing(_) => {}
        }
    }
    if let Err(error) = std::fs::write(folder.join("pass.txt"), list) {
        eprintln!("pass.txt: {error}");
        return ExitCode::FAILURE;
    }
    println!(
        "pass.txt: {passed} cases; {failed} fail and are in no list; {} in fail.txt",
        fail.len()
    );
    ExitCode::SUCCESS
}
