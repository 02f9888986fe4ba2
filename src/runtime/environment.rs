use std::ffi::OsString;
use std::path::PathBuf;

/// Comma list of the components that run natively; every other one runs on ONNX Runtime.
pub const NATIVE_COMPONENTS_VARIABLE: &str = "OXP_NATIVE_STEP_COMPONENTS";
/// The name that an older runtime of the field gave to the same variable.
pub const NATIVE_COMPONENTS_ALIAS: &str = "ONNX_GENAI_PIPELINE_NATIVE_STEP_COMPONENTS";

/// The environment variables that matter, as they were when a runtime was made. Nothing
/// looks at the process's environment later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `ORT_DYLIB_PATH`.
    pub ort_dylib_path: Option<PathBuf>,
    pub native_step_components: Option<StepComponents>,
}

/// The components that a variable asks to run natively.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepComponents {
    /// Which of the two names was set.
    pub variable: &'static str,
    pub names: Vec<String>,
}

impl Environment {
    pub fn from_process() -> Self {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// Reads the variables through `lookup`. One that is set to nothing counts as unset.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let native_step_components = [NATIVE_COMPONENTS_VARIABLE, NATIVE_COMPONENTS_ALIAS]
            .into_iter()
            .find_map(|variable| {
                let value = set(variable)?.to_string_lossy().into_owned();
                let names: Vec<String> = value
                    .split(',')
                    .map(|name| name.trim().to_owned())
                    .filter(|name| !name.is_empty())
                    .collect();
                (!names.is_empty()).then_some(StepComponents { variable, names })
            });
        Environment {
            ort_dylib_path: set("ORT_DYLIB_PATH").map(PathBuf::from),
            native_step_components,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_lookup(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name)?;
            Some(OsString::from(found.1))
        })
    }

    #[test]
    fn own_name_wins_over_the_alias_and_blanks_are_trimmed() {
        let both = environment(&[
            (NATIVE_COMPONENTS_ALIAS, "x"),
            (NATIVE_COMPONENTS_VARIABLE, " a , b,"),
        ]);
        let found = both.native_step_components.unwrap();
        assert_eq!(found.variable, NATIVE_COMPONENTS_VARIABLE);
        assert_eq!(found.names, ["a", "b"]);
        let alias = environment(&[(NATIVE_COMPONENTS_ALIAS, "x")]);
        assert_eq!(
            alias.native_step_components.unwrap().variable,
            NATIVE_COMPONENTS_ALIAS
        );
    }

    #[test]
    fn set_to_nothing_is_unset() {
        let empty = environment(&[(NATIVE_COMPONENTS_VARIABLE, ""), ("ORT_DYLIB_PATH", "")]);
        assert_eq!(empty, Environment::default());
    }
}
