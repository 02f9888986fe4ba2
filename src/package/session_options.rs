//! `session_options` of a component in `genai_config.json`: what ONNX Runtime is asked for.
//!
//! A package is not trusted, and ONNX Runtime takes options that load libraries, that read and
//! write files anywhere, or that hold addresses of memory. So a package may set what is listed
//! here and nothing else: the options that have a field of [`OrtSettings`], [`CONFIG_ENTRIES`], and
//! of execution providers [`provider_options`]. Whatever else is there is left out with a warning.
//!
//! Keys and their meaning: `onnxruntime_session_options_config_keys.h` of ONNX Runtime 1.24, and
//! its documentation of each execution provider.

use crate::runtime::{OrtOptimization, OrtProvider, OrtSettings};

use super::PackageError;
use super::document::{Cursor, Fields};

/// The most threads that a package may ask for.
const MAX_THREADS: u64 = 1024;

/// Entries of a session's configuration that change how a graph is optimized and computed, and
/// nothing beyond the session. `session.set_denormal_as_zero` is not among them: it also changes
/// how the thread computes that makes the session, which is the host's.
const CONFIG_ENTRIES: [&str; 18] = [
    "ep.nnapi.partitioning_stop_ops",
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
    "mlas.use_lut_gemm",
    "optimization.disable_specified_optimizers",
    "optimization.enable_cast_chain_elimination",
    "optimization.enable_gelu_approximation",
    "session.disable_aot_function_inlining",
    "session.disable_double_qdq_remover",
    "session.disable_prepacking",
    "session.disable_quant_qdq",
    "session.dynamic_block_base",
    "session.enable_quant_qdq_cleanup",
    "session.graph_optimizations_loop_level",
    "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning",
    "session.qdq_matmulnbits_accuracy_level",
    "session.qdqisint8allowed",
    "session.x64quantprecision",
];

/// What is said of every other option.
const LEFT_OUT: &str = "not done: options that may load code, read or write files, or reach beyond the session \
                        are not for a package to set";

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
            entry if CONFIG_ENTRIES.contains(&entry) => {
                settings.entries.push((entry.to_owned(), at.text()?.to_owned()));
            }
            _ => at.warn(LEFT_OUT),
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
            let known = provider_options(&provider.name);
            for (key, value) in options.entries()? {
                if known.contains(&key) {
                    provider.options.push((key.to_owned(), value.text()?.to_owned()));
                } else {
                    value.warn(LEFT_OUT);
                }
            }
            // The CPU is what runs everything else in any case.
            if provider.name != "CPU" {
                settings.providers.push(provider);
            }
        }
    }
    Ok(())
}

/// The options of an execution provider that a package may set: those that choose a device and
/// how it computes. Paths of libraries, caches, profiles and contexts are not among them, nor
/// addresses of streams, devices and allocators.
fn provider_options(provider: &str) -> &'static [&'static str] {
    match provider {
        "QNN" => &[
            "backend_type",
            "device_id",
            "enable_htp_fp16_precision",
            "enable_htp_shared_memory_allocator",
            "enable_htp_weight_sharing",
            "htp_arch",
            "htp_graph_finalization_optimization_mode",
            "htp_performance_mode",
            "offload_graph_io_quantization",
            "qnn_context_priority",
            "rpc_control_latency",
            "soc_model",
            "vtcm_mb",
        ],
        "WebGPU" => &[
            "enableGraphCapture",
            "forceCpuNodeNames",
            "powerPreference",
            "preferredLayout",
            "validationMode",
        ],
        "DML" => &["device_id", "disable_metacommands", "performance_preference"],
        "OpenVINO" => &[
            "device_type",
            "disable_dynamic_shapes",
            "enable_opencl_throttling",
            "enable_qdq_optimizer",
            "model_priority",
            "num_of_threads",
            "num_streams",
            "precision",
        ],
        "XNNPACK" => &["intra_op_num_threads"],
        "CoreML" => &[
            "AllowLowPrecisionAccumulationOnGPU",
            "EnableOnSubgraphs",
            "MLComputeUnits",
            "ModelFormat",
            "RequireStaticInputShapes",
            "SpecializationStrategy",
        ],
        "NvTensorRtRtx" => &[
            "device_id",
            "enable_cuda_graph",
            "nv_cuda_graph_enable",
            "nv_max_shared_mem_size",
            "nv_max_workspace_size",
            "nv_profile_max_shapes",
            "nv_profile_min_shapes",
            "nv_profile_opt_shapes",
        ],
        _ => &[],
    }
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
