//! A package of another format, written as `inference_metadata.yaml`, opens to the same spec.

use oxpipe::pipeline::Pipeline;
use serde_json::Value;

use super::tiny::{Files, open, source};

/// What a pipeline is, without what tells where that was said.
fn spec(pipeline: &Pipeline) -> Value {
    let mut description = pipeline.describe();
    for named in ["format", "metadata_file"] {
        description[named] = Value::Null;
    }
    description
}

/// Checks it for one package.
pub fn check(files: &Files) {
    let metadata = Pipeline::to_metadata(&source(files), None).unwrap();
    let mut written = files.clone();
    written.push((
        "inference_metadata.yaml".to_owned(),
        metadata.clone().into_bytes(),
    ));
    let (before, after) = (open(files).unwrap(), open(&written));
    let after = after.unwrap_or_else(|error| panic!("{error}\n{metadata}"));
    assert_eq!(after.package().format, "inference_metadata");
    assert_eq!(spec(&before), spec(&after), "{metadata}");
    // It is in that format then.
    let again = Pipeline::to_metadata(&source(&written), None)
        .unwrap_err()
        .to_string();
    assert!(again.contains("in that format already"), "{again}");
}
