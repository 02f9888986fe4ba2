//! Sound of the host.

use oxpipe::component::RunControl;
use oxpipe::media::Work;
use oxpipe::media::audio::Sound;
use oxpipe::pipeline::{ErrorKind, PipelineError, Run, RunSettings};
use oxpipe_test_support::wav::wav;

use super::fake::{DECODER_OUTPUTS, Fake, continuation, decoder_body, float_tensor, floats, io, open};

#[test]
fn a_wav_in_and_tokens_out() {
    let yaml = "
preprocessing:
  audio:
    transforms:
      - {op: decode}
      - {op: downmix}
      - {op: resample, sample_rate: 8000}
      - {op: pad, mode: fixed_window, target_length: 6}
    outputs:
      - {name: encoder.wave, content: waveform, dtype: float32}
      - {name: encoder.count, content: valid_samples, dtype: int64}
pipeline:
  models:
    encoder: {filename: e.onnx, type: audio_encoder}
    decoder:
      filename: d.onnx
      type: decoder
      io: {token_input: input_ids, logits_output: logits, kv_inputs: [past], kv_outputs: [present]}
  dataflow:
    - {from: encoder.features, to: decoder.features}
";
    let encoder = Fake::new(
        io(
            &["wave:float32[1,6]", "count:int64[1]"],
            &["features:float32[1,2]"],
        ),
        |call| {
            let largest = call.floats("wave").into_iter().fold(0.0, f32::max);
            let count = call.ints("count")[0] as f32;
            Ok(vec![("features", float_tensor(&[1, 2], &[largest * 8.0, count]))])
        },
    );
    let inputs = [
        "input_ids:int64[1,s]",
        "features:float32[1,2]",
        "past:float32[1,2,p,1]",
    ];
    let decoder = Fake::new(
        io(&inputs, &DECODER_OUTPUTS),
        decoder_body(|call| call.floats("features").iter().sum::<f32>() as i64),
    );
    let watch = encoder.watch();
    let pipeline = open(yaml, vec![("encoder", encoder), ("decoder", decoder)]).unwrap();
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    // 0.25 * 8 and 4 samples.
    run.set_audio_file(&wav(8000, &[0, 8192, -8192, 100]), &control)
        .unwrap();
    assert_eq!(
        floats(run.get_tensor("encoder.wave").unwrap()),
        [0.0, 0.25, -0.25, 100.0 / 32768.0, 0.0, 0.0]
    );
    run.append_tokens(&[5, 2]).unwrap();
    let first = run.step(&control).unwrap().token.unwrap();
    assert_eq!(first, continuation(&[5, 2], 1, 6)[0]);
    // The same sound again changes nothing, and a longer one is cut: 0.5 * 8 and 6 samples.
    run.set_audio_file(&wav(8000, &[0, 8192, -8192, 100]), &control)
        .unwrap();
    let second = run.step(&control).unwrap().token.unwrap();
    assert_eq!(second, continuation(&[5, 2, first], 1, 6)[0]);
    assert_eq!(watch.runs(), 1);
    let long = Sound::from_raw(8000, 2, &[0.25f32, 0.75].repeat(9), &Work::default()).unwrap();
    run.set_audio(&long, &control).unwrap();
    let third = run.step(&control).unwrap().token.unwrap();
    assert_eq!(third, continuation(&[5, 2, first, second], 1, 10)[0]);
    let error = run
        .set_audio_file(&wav(8000, &[1, 2, 3])[..47], &control)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadMedia);
    run.clear_audio().unwrap();
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::MissingInput);
    // Images are another matter.
    assert_eq!(run.clear_images().unwrap_err().kind(), ErrorKind::Unsupported);
}

/// A run of a component with one input.
fn single(port: &str, program: &str) -> Result<Run, PipelineError> {
    let fake = Fake::new(io(&[port], &["y:float32[1]"]), |_| {
        Ok(vec![("y", float_tensor(&[1], &[0.0]))])
    });
    let yaml = format!(
        "
pipeline: {{models: {{m: {{filename: m.onnx}}}}, strategy: {{kind: single_pass, model: m}}}}
preprocessing:
  audio:
{program}"
    );
    let pipeline = open(&yaml, vec![("m", fake)])?;
    Run::new(&pipeline, &RunSettings::default())
}

const WHISPER: &str = "
    transforms:
      - {op: decode, outputs: [samples]}
      - {op: resample, inputs: [samples], outputs: [resampled], sample_rate: 16000}
      - {op: pad, inputs: [resampled], outputs: [window], mode: fixed_window, target_length: 1600}
      - {op: log_mel, inputs: [window], outputs: [mel], num_mel_bins: 80, n_fft: 400, hop_length: 160, sample_rate: 16000}
      - {op: normalize, inputs: [mel], outputs: [features], mode: whisper_log_mel}
    outputs:
      - {source: features, name: m.x, content: audio_features, dtype: float32}
";

#[test]
fn a_program_says_whispers_features() {
    let mut run = single("x:float32[1,80,f]", WHISPER).unwrap();
    let control = RunControl::default();
    run.set_audio_file(&wav(16000, &[]), &control).unwrap();
    let features = run.get_tensor("m.x").unwrap();
    assert_eq!(features.shape(), [1, 80, 10]);
    // Silence: log10(1e-10), and (-10 + 4) / 4.
    assert!(floats(features).iter().all(|&x| x == -1.5));
}

#[test]
fn what_is_wrong_with_a_program_has_a_line_and_a_key() {
    for (from, to, line, key, words) in [
        ("op: resample", "op: rewind", 8, "transforms[1].op", "log_mel"),
        (
            "sample_rate: 16000}\n      - {op: pad",
            "sample_rate: 8000}\n      - {op: pad",
            10,
            "transforms[3]",
            "8000 Hz",
        ),
        (
            "target_length: 1600",
            "target: 1600",
            9,
            "transforms[2].target_length",
            "missing",
        ),
        (
            "mode: fixed_window",
            "mode: center",
            9,
            "transforms[2].mode",
            "fixed_window",
        ),
        (
            "num_mel_bins: 80",
            "mel_scale: slaney",
            10,
            "transforms[3].num_mel_bins",
            "missing",
        ),
        (
            "hop_length: 160,",
            "hop_length: 0,",
            10,
            "transforms[3].hop_length",
            "from 1 to 65536",
        ),
        (
            "mode: whisper_log_mel",
            "mode: other",
            11,
            "transforms[4].mode",
            "whisper_log_mel",
        ),
        (
            "inputs: [mel]",
            "inputs: [window]",
            11,
            "transforms[4]",
            "samples",
        ),
        ("source: features", "source: window", 13, "outputs[0]", "features"),
        ("dtype: float32", "dtype: int32", 13, "outputs[0]", "int32"),
        ("name: m.x", "name: m.y", 13, "outputs[0].name", "x"),
    ] {
        assert!(WHISPER.contains(from), "{from}");
        let error = single("x:float32[1,80,f]", &WHISPER.replacen(from, to, 1)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{text}");
        assert!(
            text.contains(&format!(":{line}")) && text.contains(key) && text.contains(words),
            "{from} as {to}: {text}"
        );
    }
}
