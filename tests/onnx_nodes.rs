//! ONNX's own test cases, run by the native runtime: one test per case.
//!
//! A case is a folder with `model.onnx` and `test_data_set_*/{input,output}_*.pb`, as
//! tools/onnx_node_tests.py writes it for scripts/fetch-onnx-tests.sh. Cases of the suite `node`
//! go by their name, those of the others by `suite/name`. `OXP_ONNX_NODE_TESTS` names other
//! folders of suites or of cases of `node`, separated like `PATH`.
//!
//! Every case is in exactly one of two lists: onnx_nodes/pass.txt, which must pass, and
//! onnx_nodes/fail.txt, which must not, with the reason. A case that does not do what its list
//! says is a failure, and so is one that is in neither. `OXP_UPDATE_NODE_LIST=1` rewrites the
//! first list, and the lines of the second about operators that the runtime does not have; what
//! fails for another reason is for a person to say.
//!
//! onnx_nodes/ort_passes.txt has the cases that ONNX Runtime passes, for the counts at the end
//! (tools/onnxruntime_passes.py).

#[path = "onnx_nodes/case.rs"]
mod case;
#[path = "onnx_nodes/compare.rs"]
mod compare;
#[path = "onnx_nodes/lists.rs"]
mod lists;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use case::{Case, Verdict};
use lists::{Lists, MISSING};

const FETCH: &str = "scripts/fetch-onnx-tests.sh";
/// The suites of the onnx package; the cases of the first go by their name alone.
const SUITES: [&str; 4] = ["node", "simple", "pytorch-operator", "pytorch-converted"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("tests/onnx_nodes");
    let cases_and_lists = find_cases(here).and_then(|cases| Ok((Lists::read(&folder, &cases)?, cases)));
    let (lists, cases) = match cases_and_lists {
        Ok(found) => found,
        Err(message) => {
            eprintln!("onnx_nodes: {message}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::var_os("OXP_UPDATE_NODE_LIST").is_some() {
        return update(&folder, lists, &cases);
    }
    let counts = lists.counts();
    let trials = cases
        .into_values()
        .map(|case| {
            let expectation = match (lists.pass.contains(&case.name), lists.fail.get(&case.name)) {
                (true, _) => Expectation::Pass,
                (false, Some(reason)) => Expectation::Fail(reason.clone()),
                (false, None) => Expectation::Nothing,
            };
            Trial::test(case.name.clone(), move || judge(&case, &expectation))
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        println!("{counts}\n");
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
    let message = match (expectation, case.run()) {
        (Expectation::Pass, Verdict::Passed) => return Ok(()),
        (Expectation::Pass, Verdict::Failed(message)) => message,
        (Expectation::Pass, Verdict::Missing(operators)) => {
            format!("in pass.txt, but the runtime lacks {}", operators.join(", "))
        }
        (Expectation::Fail(reason), Verdict::Passed) => {
            format!("passes, although fail.txt says: {reason}. Move it to pass.txt")
        }
        (Expectation::Fail(reason), Verdict::Failed(message)) if reason.starts_with(MISSING) => {
            format!("fails, and not as fail.txt says ({reason}): {message}")
        }
        (Expectation::Fail(_), Verdict::Failed(_) | Verdict::Missing(_)) => return Ok(()),
        (Expectation::Nothing, Verdict::Passed) => {
            "passes, but is in no list. Add it to pass.txt (OXP_UPDATE_NODE_LIST=1 does)".into()
        }
        (Expectation::Nothing, Verdict::Failed(message)) => {
            format!("fails, and is in no list. Fix it, or give the reason in fail.txt: {message}")
        }
        (Expectation::Nothing, Verdict::Missing(operators)) => {
            format!("is in no list; the runtime lacks {}", operators.join(", "))
        }
    };
    Err(message.into())
}

/// All cases of all folders, by name.
fn find_cases(here: &Path) -> Result<BTreeMap<String, Case>, String> {
    let folders = match std::env::var_os("OXP_ONNX_NODE_TESTS") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => vec![here.join("third_party/onnx-node-tests")],
    };
    let mut cases = BTreeMap::new();
    for folder in folders {
        add_cases(&folder, "", &mut cases)?;
        for suite in SUITES {
            let prefix = match suite {
                "node" => String::new(),
                suite => format!("{suite}/"),
            };
            let folder = folder.join(suite);
            if folder.is_dir() {
                add_cases(&folder, &prefix, &mut cases)?;
            }
        }
    }
    match cases.is_empty() {
        true => Err(format!("there are no ONNX test cases; {FETCH} puts them there")),
        false => Ok(cases),
    }
}

fn add_cases(folder: &Path, prefix: &str, cases: &mut BTreeMap<String, Case>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        format!(
            "no ONNX test cases in {} ({error}); {FETCH} puts them there",
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
            let case = Case::new(&format!("{prefix}{name}"), &path);
            if let Some(other) = cases.insert(case.name.clone(), case) {
                return Err(format!("case {} is in two folders", other.name));
            }
        }
    }
    Ok(())
}

/// Writes the lists anew, from what each case does.
fn update(folder: &Path, mut lists: Lists, cases: &BTreeMap<String, Case>) -> ExitCode {
    lists.pass.clear();
    lists.fail.retain(|_, reason| !reason.starts_with(MISSING));
    let mut failed = 0;
    for case in cases.values() {
        let is_listed = lists.fail.contains_key(&case.name);
        match case.run() {
            Verdict::Passed => {
                lists.fail.remove(&case.name);
                lists.pass.insert(case.name.clone());
            }
            Verdict::Failed(_) | Verdict::Missing(_) if is_listed => {}
            Verdict::Failed(message) => {
                failed += 1;
                println!("{}: {message}", case.name);
            }
            Verdict::Missing(operators) => {
                let reason = format!("{MISSING}{}", lists::operators(&operators));
                lists.fail.insert(case.name.clone(), reason);
            }
        }
    }
    if let Err(error) = lists.write(folder) {
        eprintln!("onnx_nodes: {error}");
        return ExitCode::FAILURE;
    }
    println!("{failed} fail and are in no list\n{}", lists.counts());
    ExitCode::SUCCESS
}
