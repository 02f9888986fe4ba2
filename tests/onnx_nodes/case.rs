//! One case: a model, and data sets of inputs with the outputs that they must give.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use oxpipe::component::{ComponentErrorKind, ComponentSession, ModelSource, Port};
use oxpipe::native::{NativeOptions, NativeSession, read_value_proto, value::Value};

use crate::compare::compare;

pub struct Case {
    /// The folder's name without `test_`.
    pub name: String,
    folder: PathBuf,
}

pub enum Verdict {
    Passed,
    /// Why not.
    Failed(String),
    /// Operators that the runtime does not have.
    Missing(Vec<String>),
}

impl Case {
    pub fn new(name: &str, folder: &Path) -> Self {
        Case {
            name: name.to_owned(),
            folder: folder.to_owned(),
        }
    }

    fn load(&self) -> Result<NativeSession, Verdict> {
        let source = ModelSource::file(self.folder.join("model.onnx"));
        NativeSession::load("", &source, &NativeOptions::default()).map_err(|error| match error.kind() {
            ComponentErrorKind::MissingOperators { missing } => Verdict::Missing(missing.clone()),
            _ => Verdict::Failed(format!("does not load: {error}")),
        })
    }

    pub fn run(&self) -> Verdict {
        // A panic of the runtime is this case's failure, not the end of the program.
        match catch_unwind(AssertUnwindSafe(|| self.run_sets())) {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(verdict)) => verdict,
            Err(_) => Verdict::Failed("the runtime panicked".into()),
        }
    }

    fn run_sets(&self) -> Result<(), Verdict> {
        let mut session = self.load()?;
        let mut sets = 0;
        while let set = self.folder.join(format!("test_data_set_{sets}"))
            && set.is_dir()
        {
            run_set(&mut session, &set).map_err(Verdict::Failed)?;
            sets += 1;
        }
        match sets {
            0 => Err(Verdict::Failed("the case has no data".into())),
            _ => Ok(()),
        }
    }
}

fn run_set(session: &mut NativeSession, set: &Path) -> Result<(), String> {
    let io = session.io().clone();
    let inputs = read_numbered(set, "input", &io.inputs)?;
    let expected = read_numbered(set, "output", &io.outputs)?;
    if expected.len() != io.outputs.len() {
        return Err(format!(
            "{} outputs in the data, {} in the model",
            expected.len(),
            io.outputs.len()
        ));
    }
    let inputs: Vec<_> = io
        .inputs
        .iter()
        .map(|port| port.name.as_str())
        .zip(inputs.iter().map(Value::view))
        .collect();
    let outputs: Vec<&str> = io.outputs.iter().map(|port| port.name.as_str()).collect();
    let found = session
        .run_values(&inputs, &outputs)
        .map_err(|error| error.to_string())?;
    for ((name, found), expected) in outputs.iter().zip(&found).zip(&expected) {
        compare(found.view(), expected.view()).map_err(|message| format!("output {name}: {message}"))?;
    }
    Ok(())
}

/// `{kind}_0.pb`, `{kind}_1.pb`, ...: a value for each port, of its type.
fn read_numbered(set: &Path, kind: &str, ports: &[Port]) -> Result<Vec<Value>, String> {
    let mut values = Vec::new();
    while let path = set.join(format!("{kind}_{}.pb", values.len()))
        && path.is_file()
    {
        let at = values.len();
        let port = ports
            .get(at)
            .ok_or_else(|| format!("there is {kind}_{at}.pb, but the model has {at} {kind}s"))?;
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let value = read_value_proto(&bytes, &port.ty).map_err(|error| format!("{kind}_{at}: {error}"))?;
        values.push(value);
    }
    Ok(values)
}
