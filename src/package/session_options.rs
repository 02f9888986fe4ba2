//! `session_options` of a component in `genai_config.json`: what ONNX Runtime is asked for.

use crate::runtime::{OrtOptimization, OrtProvider, OrtSettings};

use super::PackageError;
use super::document::{Cursor, Fields};

/// The most threads that a package may ask for.
const MAX_THREADS: u64 = 1024;

/// Reads `session_options` of a component, and passes over its `run_options`.
pub(super) fn read_session_options(component: &mut Fields<'_>) -> Result<OrtSettings, PackageError> {
    let mut settings = OrtSettings::default();
    component.skip(&["run_options"]);
    let Some(section) = component.get("session_options") else {
        return Ok(settings);
    };
    for (key, at) in section.entries()? {
        match key {
            "intra_op_num_threads" => settings.threads = threads(&at)?,
            "inter_op_num_threads" => settings.inter_op_threads = threads(&at)?,
            "enable_cpu_mem_arena" => settings.memory_arena = Some(at.bool()?),
            "enable_mem_pattern" => settings.memory_pattern = Some(at.bool()?),
            "graph_optimization_level" => {
                settings.optimization = Some(at.one_of(&[
                    ("ORT_DISABLE_ALL", OrtOptimization::None),
                    ("ORT_ENABLE_BASIC", OrtOptimization::Basic),
                    ("ORT_ENABLE_EXTENDED", OrtOptimization::Extended),
                    ("ORT_ENABLE_ALL", OrtOptimization::All),
                ])?);
            }
            "provider_options" => read_providers(&at, &mut settings)?,
            // What is logged and how is the host's to say.
            "log_id" => {
                at.text()?;
            }
            "log_severity_level" | "log_verbosity_level" => {
                at.integer()?;
            }
            "custom_ops_library" | "enable_profiling" => {
                at.text()?;
                at.warn("not done: a package brings no code, and nothing is written beside it");
            }
            "use_env_allocators" => {
                at.bool()?;
            }
            entry if entry.starts_with("ep.context_") => {
                at.warn("not done: it makes ONNX Runtime write files beside the package");
            }
            entry => settings.entries.push((entry.to_owned(), at.text()?.to_owned())),
        }
    }
    Ok(settings)
}

fn threads(at: &Cursor<'_>) -> Result<Option<usize>, PackageError> {
    let count = at.count_up_to(0, MAX_THREADS)?;
    // 0 leaves it to the library, and here to the runtime.
    Ok(usize::try_from(count).ok().filter(|&count| count > 0))
}

/// A list of objects from provider to options.
fn read_providers(at: &Cursor<'_>, settings: &mut OrtSettings) -> Result<(), PackageError> {
    for object in at.items()? {
        for (name, options) in object.entries()? {
            let mut provider = OrtProvider {
                name: canonical(name).to_owned(),
                options: Vec::new(),
            };
            for (key, value) in options.entries()? {
                if key == "device_filtering_options" {
                    value.warn("not used by this version");
                    continue;
                }
                provider.options.push((key.to_owned(), value.text()?.to_owned()));
            }
            // The CPU is what runs everything else in any case.
            if provider.name != "CPU" {
                settings.providers.push(provider);
            }
        }
    }
    Ok(())
}

/// The name that ONNX Runtime has for a provider, from the ways in which files write it.
fn canonical(name: &str) -> &str {
    const NAMES: [&str; 10] = [
        "CPU",
        "QNN",
        "WebGPU",
        "DML",
        "OpenVINO",
        "VitisAI",
        "XNNPACK",
        "CoreML",
        "NvTensorRtRtx",
        "AMDGPU",
    ];
    const SUFFIX: &str = "ExecutionProvider";
    let split = name.len().saturating_sub(SUFFIX.len());
    let short = match (name.get(..split), name.get(split..)) {
        (Some(short), Some(end)) if end.eq_ignore_ascii_case(SUFFIX) && !short.is_empty() => short,
        _ => name,
    };
    let known = NAMES.iter().find(|known| known.eq_ignore_ascii_case(short));
    known.copied().unwrap_or(name)
}

/// Takes what `settings` does not say from those of the decoder as a whole.
pub(super) fn inherit(settings: &mut OrtSettings, whole: &OrtSettings) {
    settings.threads = settings.threads.or(whole.threads);
    settings.inter_op_threads = settings.inter_op_threads.or(whole.inter_op_threads);
    settings.memory_arena = settings.memory_arena.or(whole.memory_arena);
    settings.memory_pattern = settings.memory_pattern.or(whole.memory_pattern);
    settings.optimization = settings.optimization.or(whole.optimization);
    for entry in &whole.entries {
        if !settings.entries.iter().any(|(key, _)| *key == entry.0) {
            settings.entries.push(entry.clone());
        }
    }
    for provider in &whole.providers {
        if !settings.providers.iter().any(|own| own.name == provider.name) {
            settings.providers.push(provider.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_by_any_of_their_names() {
        for (written, name) in [
            ("cpu", "CPU"),
            ("CPUExecutionProvider", "CPU"),
            ("webgpu", "WebGPU"),
            ("qnn", "QNN"),
            ("cuda", "cuda"),
            ("ExecutionProvider", "ExecutionProvider"),
        ] {
            assert_eq!(canonical(written), name);
        }
    }
}
