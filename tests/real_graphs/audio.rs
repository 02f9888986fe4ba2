//! Voice activity detection (silero-vad): every graph of the package, state carried through a
//! whole recording.

use super::harness::*;

const RATE: usize = 16_000;

/// Two seconds of speech-like sound between silences: a buzz at 120 Hz through three formants
/// that glide from one vowel to another, with breaks as between words, over a little noise.
fn recording(rate: usize) -> Vec<f32> {
    let mut noise = 0x2545_F491u32;
    let mut states = [[0.0f64; 2]; 3];
    let mut samples = Vec::new();
    let length = rate * 5 / 2;
    for at in 0..length {
        let time = at as f64 / rate as f64;
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        let hiss = f64::from(noise) / f64::from(u32::MAX) - 0.5;
        let voiced = (0.3..2.2).contains(&time) && time % 0.45 < 0.33;
        let pitch = rate / (110 + (time * 12.0) as usize);
        let pulse = if voiced && at % pitch == 0 { 1.0 } else { 0.0 };
        let glide = (time * 3.0).sin() * 0.5 + 0.5;
        let mut sound = 0.0;
        let formants = [
            (700.0, 300.0, 90.0),
            (1200.0, 2200.0, 110.0),
            (2500.0, 3000.0, 160.0),
        ];
        for (state, (from, to, width)) in states.iter_mut().zip(formants) {
            // A two-pole resonator.
            let radius = (-std::f64::consts::PI * width / rate as f64).exp();
            let angle = 2.0 * std::f64::consts::PI * (from + (to - from) * glide) / rate as f64;
            let next =
                pulse + 0.01 * hiss + 2.0 * radius * angle.cos() * state[0] - radius * radius * state[1];
            *state = [next, state[0]];
            sound += next;
        }
        samples.push((0.15 * sound + 0.002 * hiss) as f32);
    }
    samples
}

/// Windows of `window` samples, each after the last `context` of the one before.
fn windows(samples: &[f32], window: usize, context: usize) -> Vec<Vec<f32>> {
    let mut padded = vec![0.0; context];
    padded.extend_from_slice(samples);
    (0..samples.len() / window)
        .map(|index| padded[index * window..(index + 1) * window + context].to_vec())
        .collect()
}

/// Runs a graph whose state is one tensor over the recording, and gives the probabilities.
fn listen(path: &str, rate: usize, takes_rate: bool) -> Vec<f32> {
    let (window, context) = if rate == RATE { (512, 64) } else { (256, 32) };
    let mut graph = Graph::open(path);
    let start = floats(&[2, 1, 128], &[0.0; 256]);
    let mut states = [copy(&start), start];
    let mut probabilities = Vec::new();
    for samples in windows(&recording(rate), window, context) {
        let [native, ort] = states.map(|state| {
            let mut inputs = vec![
                ("input", floats(&[1, samples.len() as i64], &samples)),
                ("state", state),
            ];
            if takes_rate {
                inputs.push(("sr", ints(&[], &[rate as i64])));
            }
            inputs
        });
        let mut both = graph.run_each(&native, &ort);
        let state = |outputs: &mut Vec<_>| outputs.swap_remove(1);
        states = [state(&mut both.native), state(&mut both.ort)];
        probabilities.push(values(&both.native[0])[0]);
    }
    probabilities
}

/// The recording has something in it that the models tell apart.
#[track_caller]
fn assert_heard(probabilities: &[f32]) {
    let most = probabilities.iter().fold(0.0f32, |a, &b| a.max(b));
    let least = probabilities.iter().fold(1.0f32, |a, &b| a.min(b));
    println!("probabilities from {least} to {most}");
    assert!(most > least + 0.05, "from {least} to {most}");
}

#[test]
fn silero_vad() {
    assert_heard(&listen("silero-vad/silero_vad.onnx", RATE, true));
}

#[test]
fn silero_vad_at_8_khz() {
    assert_heard(&listen("silero-vad/silero_vad.onnx", 8_000, true));
}

#[test]
fn silero_vad_opset_15() {
    assert_heard(&listen("silero-vad/silero_vad_16k_op15.onnx", RATE, true));
}

#[test]
fn silero_vad_without_if() {
    assert_heard(&listen("silero-vad/silero_vad_op18_ifless.onnx", RATE, true));
}

#[test]
fn silero_vad_half() {
    assert_heard(&listen("silero-vad/silero_vad_half.onnx", RATE, false));
}

#[test]
fn silero_vad_for_openvino() {
    assert_heard(&listen("silero-vad/silero_vad_openvino_16k.onnx", RATE, false));
}

/// The same network over all windows in one call.
#[test]
fn silero_vad_sequence() {
    let all = windows(&recording(RATE), 512, 64);
    let count = all.len() as i64;
    let mut graph = Graph::open("silero-vad/silero_vad_16k_sequence.onnx");
    let both = graph.run(&[
        ("input", floats(&[count, 576], &all.concat())),
        ("h", floats(&[1, 1, 128], &[0.0; 128])),
        ("c", floats(&[1, 1, 128], &[0.0; 128])),
    ]);
    assert_heard(&values(&both.native[0]));
}
