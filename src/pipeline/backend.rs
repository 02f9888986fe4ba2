use crate::runtime::{BackendChoice, Runtime};

use super::{PipelineOptions, RequestError};

/// The backend that was asked for, and by whom.
pub(super) struct Asked {
    pub choice: BackendChoice,
    pub by: String,
}

/// What is asked for each component: its own option, then the pipeline's, then the
/// environment variable, then `auto`.
pub(super) fn choose(
    runtime: &Runtime,
    options: &PipelineOptions,
    names: &[String],
) -> Result<Vec<Asked>, RequestError> {
    for (name, _) in &options.component_backends {
        if !names.contains(name) {
            return Err(RequestError::UnknownComponent {
                found: name.clone(),
                known: names.to_vec(),
            });
        }
    }
    let variable = runtime
        .environment()
        .native_step_components
        .as_ref()
        .filter(|_| options.backend.is_none());
    if let Some(variable) = variable
        && let Some(unknown) = variable.names.iter().find(|name| !names.contains(name))
    {
        return Err(RequestError::UnknownVariableComponent {
            variable: variable.variable,
            found: unknown.clone(),
            known: names.to_vec(),
        });
    }
    Ok(names
        .iter()
        .map(|name| {
            let own = options
                .component_backends
                .iter()
                .rev()
                .find(|(component, _)| component == name);
            if let Some((_, choice)) = own {
                return Asked {
                    choice: *choice,
                    by: "asked for by the component's option".to_owned(),
                };
            }
            if let Some(choice) = options.backend {
                return Asked {
                    choice,
                    by: "asked for by the pipeline's option".to_owned(),
                };
            }
            match variable {
                Some(variable) if variable.names.contains(name) => Asked {
                    choice: BackendChoice::Native,
                    by: format!("listed in {}", variable.variable),
                },
                Some(variable) => Asked {
                    choice: BackendChoice::Ort,
                    by: format!("not listed in {}", variable.variable),
                },
                None => Asked {
                    choice: BackendChoice::Auto,
                    by: "nothing was asked for".to_owned(),
                },
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use crate::runtime::{Environment, NATIVE_COMPONENTS_VARIABLE, RuntimeSettings, StepComponents};

    use super::*;

    fn choices(variable: &[&str], options: &PipelineOptions) -> Result<Vec<BackendChoice>, RequestError> {
        let environment = Environment {
            native_step_components: (!variable.is_empty()).then(|| StepComponents {
                variable: NATIVE_COMPONENTS_VARIABLE,
                names: variable.iter().map(|&name| name.to_owned()).collect(),
            }),
            ..Environment::default()
        };
        let runtime = Runtime::with_environment(RuntimeSettings::default(), environment);
        let names = ["a", "b", "c"].map(str::to_owned);
        let asked = choose(&runtime, options, &names)?;
        Ok(asked.iter().map(|asked| asked.choice).collect())
    }

    #[test]
    fn component_then_pipeline_then_variable_then_auto() {
        use BackendChoice::{Auto, Native, Ort};
        let mut options = PipelineOptions::default();
        assert_eq!(choices(&[], &options).unwrap(), [Auto, Auto, Auto]);
        assert_eq!(choices(&["b"], &options).unwrap(), [Ort, Native, Ort]);
        options.component_backends = vec![("c".to_owned(), Auto)];
        assert_eq!(choices(&["b"], &options).unwrap(), [Ort, Native, Auto]);
        options.backend = Some(Native);
        assert_eq!(choices(&["nobody"], &options).unwrap(), [Native, Native, Auto]);
    }

    #[test]
    fn unknown_names_are_errors() {
        let options = PipelineOptions::default();
        assert!(matches!(
            choices(&["b", "nobody"], &options),
            Err(RequestError::UnknownVariableComponent { found, .. }) if found == "nobody"
        ));
        let options = PipelineOptions {
            component_backends: vec![("nobody".to_owned(), BackendChoice::Native)],
            ..options
        };
        assert!(matches!(
            choices(&[], &options),
            Err(RequestError::UnknownComponent { found, known }) if found == "nobody" && known.len() == 3
        ));
    }
}
