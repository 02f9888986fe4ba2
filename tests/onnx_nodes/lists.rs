//! The committed lists: which cases pass, which do not and why, and which ONNX Runtime passes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::case::Case;

/// How the reason of a case begins whose operators the runtime does not have.
pub const MISSING: &str = "the runtime lacks ";

pub struct Lists {
    pub pass: BTreeSet<String>,
    /// With the reason.
    pub fail: BTreeMap<String, String>,
    ort: BTreeSet<String>,
}

impl Lists {
    /// A name must be in one of the first two lists only, and be a case.
    pub fn read(folder: &Path, cases: &BTreeMap<String, Case>) -> Result<Lists, String> {
        let pass: BTreeSet<String> = lines(&folder.join("pass.txt"))?.into_iter().collect();
        let ort: BTreeSet<String> = lines(&folder.join("ort_passes.txt"))?.into_iter().collect();
        let mut fail = BTreeMap::new();
        for line in lines(&folder.join("fail.txt"))? {
            let (name, reason) = line
                .split_once(": ")
                .ok_or_else(|| format!("fail.txt gives no reason in \"{line}\" (NAME: REASON)"))?;
            if pass.contains(name) {
                return Err(format!("{name} is both in pass.txt and in fail.txt"));
            }
            fail.insert(name.to_owned(), reason.to_owned());
        }
        let mut listed = pass.iter().chain(fail.keys()).chain(&ort);
        match listed.find(|name| !cases.contains_key(*name)) {
            Some(name) => Err(format!("{name} is in a list, but there is no such case")),
            None => Ok(Lists { pass, fail, ort }),
        }
    }

    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let mut pass = String::from(
            "# Cases that must pass, written by OXP_UPDATE_NODE_LIST=1 cargo test --test onnx_nodes\n",
        );
        for name in &self.pass {
            pass += name;
            pass.push('\n');
        }
        let mut fail = format!(
            "# Cases that do not pass (NAME: REASON). The lines that begin with \"{MISSING}\" are\n\
             # written by OXP_UPDATE_NODE_LIST=1 cargo test --test onnx_nodes\n"
        );
        for (name, reason) in &self.fail {
            let _ = writeln!(fail, "{name}: {reason}");
        }
        for (name, text) in [("pass.txt", pass), ("fail.txt", fail)] {
            fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }

    /// How many cases are in each list, the missing operators with their cases each, and which
    /// cases ONNX Runtime passes and this runtime does not.
    pub fn counts(&self) -> String {
        let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
        let reasons = self
            .fail
            .values()
            .filter_map(|reason| reason.strip_prefix(MISSING));
        let lacking = reasons.clone().count();
        for operator in reasons.flat_map(|operators| operators.split(", ")) {
            *missing.entry(operator).or_default() += 1;
        }
        let mut missing: Vec<_> = missing.into_iter().collect();
        missing.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        let missing: Vec<_> = missing
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let behind: Vec<&str> = self
            .ort
            .iter()
            .filter(|name| !self.pass.contains(*name))
            .map(String::as_str)
            .collect();
        format!(
            "{} cases pass; {} do not for a reason of their own; {lacking} for an operator that is missing\n  \
             {}\n{} cases pass with ONNX Runtime; of those {} do not here\n  {}",
            self.pass.len(),
            self.fail.len() - lacking,
            missing.join(", "),
            self.ort.len(),
            behind.len(),
            behind.join(", ")
        )
    }
}

/// `ai.onnx.Resize version 19` of `ai.onnx.Resize version 19 (float), node "y"`, each once.
pub fn operators(missing: &[String]) -> String {
    let names: BTreeSet<&str> = missing
        .iter()
        .map(|missing| missing.split(" (").next().unwrap_or(missing))
        .collect();
    Vec::from_iter(names).join(", ")
}

fn lines(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
