//! Sound as libsndfile decodes it, torchaudio resamples it, and transformers makes features of it.

use oxpipe::component::DataType;
use oxpipe::media::audio::{
    AudioContent, AudioOp, AudioOutput, AudioProgram, AudioTransform, LogMel, MelScale, Sound,
};
use oxpipe::media::{MediaError, Work};
use serde_json::{Value, json};

fn document() -> Value {
    serde_json::from_str(include_str!("audio.json")).unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// The sound of audio.py, interleaved.
fn sound(count: usize, rate: u32, channels: u32, seed: usize) -> Vec<f32> {
    let mut samples = Vec::new();
    for index in 0..count {
        for channel in 0..channels {
            let time = index as f64 / f64::from(rate);
            let tone = 0.4
                * (2.0
                    * std::f64::consts::PI
                    * (220.0 + 37.0 * seed as f64 + 200.0 * time)
                    * time
                    * (1.0 + f64::from(channel) / 3.0))
                    .sin();
            let mixed = (index * 7919 + channel as usize * 104_729 + seed * 31) as u64;
            let noise = (mixed.wrapping_mul(2_654_435_761) % (1 << 32)) as f64 / 2f64.powi(31) - 1.0;
            samples.push((tone + 0.1 * noise) as f32);
        }
    }
    samples
}

fn check(shown: &Value, elements: &[f32], tolerance: f64, label: &str) {
    let shape = shown["shape"].as_array().unwrap();
    let count: u64 = shape.iter().map(|dim| dim.as_u64().unwrap()).product();
    assert_eq!(elements.len() as u64, count, "{label}");
    let mut most = 0.0f64;
    let places = shown["at"].as_array().unwrap().iter();
    for (place, element) in places.zip(shown["elements"].as_array().unwrap()) {
        let found = f64::from(elements[place.as_u64().unwrap() as usize]);
        most = most.max((found - element.as_f64().unwrap()).abs());
    }
    assert!(most <= tolerance, "{label}: off by {most}");
    let absolute: f64 = elements.iter().map(|&x| f64::from(x).abs()).sum();
    let off = (absolute - shown["absolute"].as_f64().unwrap()).abs() / count.max(1) as f64;
    assert!(off <= tolerance, "{label}: on average off by {off}");
}

fn waveform(rate: u32) -> AudioProgram {
    let transform = |op| AudioTransform {
        op,
        inputs: None,
        outputs: None,
    };
    AudioProgram::new(
        vec![transform(AudioOp::Decode), transform(AudioOp::Resample { rate })],
        vec![AudioOutput {
            source: None,
            name: "m.x".to_owned(),
            content: AudioContent::Waveform,
            dtype: DataType::Float32,
        }],
    )
    .unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.as_chunks::<4>().0.iter();
    chunks.map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

#[test]
fn files_are_decoded_as_libsndfile_decodes_them() {
    for case in document()["files"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let sound = Sound::decode(&bytes(&case["file"]), &Work::default())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(u64::from(sound.rate()), case["rate"].as_u64().unwrap(), "{name}");
        check(
            &case["mono"],
            sound.samples(),
            case["tolerance"].as_f64().unwrap(),
            name,
        );
    }
}

#[test]
fn other_rates_are_those_of_torchaudio() {
    for case in document()["resamples"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap();
        let (count, from, to) = (
            number("count") as usize,
            number("from") as u32,
            number("to") as u32,
        );
        let raw = Sound::from_raw(from, 1, &sound(count, from, 1, count), &Work::default()).unwrap();
        let tensors = waveform(to).run(&raw, &[], &Work::default()).unwrap();
        check(
            &case["result"],
            &floats(&tensors[0].bytes),
            1e-6,
            &format!("{count}: {from} to {to}"),
        );
    }
}

#[test]
fn a_tone_stays_one_at_a_rate_of_many_phases() {
    let tone = |rate: u32, count: usize| -> Vec<f32> {
        let step = 2.0 * std::f64::consts::PI * 440.0 / f64::from(rate);
        (0..count).map(|n| (step * n as f64).sin() as f32).collect()
    };
    let raw = Sound::from_raw(47_999, 1, &tone(47_999, 6000), &Work::default()).unwrap();
    for rate in [16_000, 191_997] {
        let tensors = waveform(rate).run(&raw, &[], &Work::default()).unwrap();
        let found = floats(&tensors[0].bytes);
        assert_eq!(found.len() as u64, (6000 * u64::from(rate)).div_ceil(47_999));
        let expected = tone(rate, found.len());
        let inside = found.len() / 10..found.len() * 9 / 10;
        for index in inside {
            assert!(
                (found[index] - expected[index]).abs() < 2e-3,
                "{rate} Hz, {index}"
            );
        }
    }
}

#[test]
fn log_mel_features_are_those_of_whisper() {
    for case in document()["features"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap();
        let (rate, channels) = (number("rate") as u32, number("channels") as u32);
        let samples = sound(number("count") as usize, rate, channels, 3);
        let raw = Sound::from_raw(rate, channels, &samples, &Work::default()).unwrap();
        let port = ("encoder.input_features".to_owned(), DataType::Float32);
        let program = AudioProgram::from_preprocessor_config(&case["config"], port).unwrap();
        let tensors = program.run(&raw, &[], &Work::default()).unwrap();
        let shape: Vec<u64> = tensors[0].shape.iter().map(|&dim| dim as u64).collect();
        assert_eq!(json!(shape), case["features"]["shape"]);
        check(
            &case["features"],
            &floats(&tensors[0].bytes),
            1e-5,
            case["name"].as_str().unwrap(),
        );
    }
}

#[test]
fn waveforms_are_those_of_wav2vec2() {
    let cases: Value = serde_json::from_str(include_str!("waveforms.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let count = case["count"].as_u64().unwrap() as usize;
        let raw = Sound::from_raw(16_000, 1, &sound(count, 16_000, 1, count), &Work::default()).unwrap();
        let port = ("model.input_values".to_owned(), DataType::Float32);
        let program = AudioProgram::from_preprocessor_config(&case["config"], port).unwrap();
        let tensors = program.run(&raw, &[], &Work::default()).unwrap();
        assert_eq!(tensors[0].shape, [1, count as i64]);
        let elements = floats(&tensors[0].bytes);
        check(
            &case["input_values"],
            &elements,
            1e-5,
            &format!("{count} samples"),
        );
    }
}

#[test]
fn truncated_and_spoilt_files_are_errors() {
    let document = document();
    for case in document["files"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let file = bytes(&case["file"]);
        for length in (0..file.len()).step_by(1 + file.len() / 60) {
            let outcome = Sound::decode(&file[..length], &Work::default());
            // MP3 is a stream of frames, and any number of whole ones is a file.
            assert!(
                outcome.is_err() || name.starts_with("MP3"),
                "{name} of {length} bytes"
            );
        }
        for at in (0..file.len()).step_by(1 + file.len() / 300) {
            for mask in [0xff, 0x80, 0x01] {
                let mut spoilt = file.clone();
                spoilt[at] ^= mask;
                let _ = Sound::decode(&spoilt, &Work::default());
            }
        }
    }
}

#[test]
fn an_mp3_that_is_cut_off_has_the_sound_of_its_whole_frames() {
    let document = document();
    let files = document["files"].as_array().unwrap().iter();
    let mut most = 0;
    for case in files.filter(|case| case["name"].as_str().unwrap().starts_with("MP3")) {
        let name = case["name"].as_str().unwrap();
        let file = bytes(&case["file"]);
        let whole = Sound::decode(&file, &Work::default()).unwrap();
        let mut before = 0;
        for length in (0..file.len()).step_by(5) {
            let outcome = Sound::decode(&file[..length], &Work::default());
            // Until there is a frame behind the tag, there is no sound.
            let Ok(cut) = outcome else {
                assert_eq!(before, 0, "{name} of {length} bytes: {outcome:?}");
                continue;
            };
            let count = cut.samples().len();
            assert!(count >= before, "{name} of {length} bytes");
            // Never less than the frames that are whole: behind one of at most so many bytes the
            // next has begun.
            most = most.max(count - before);
            before = count;
            assert_eq!(
                cut.samples(),
                &whole.samples()[..count],
                "{name} of {length} bytes"
            );
        }
        assert!(most <= 1152, "{name}: {most} samples at once");
        assert!(whole.samples().len() - before <= 2 * 1152, "{name}");
    }
    assert!(most > 0);
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(matches!(
        Sound::decode(b"OggS and more", &Work::default()).unwrap_err(),
        MediaError::UnknownFormat { .. }
    ));
    assert!(Sound::decode(b"", &Work::default()).is_err());
    for (rate, channels, count) in [
        (0, 1, 4),
        (2_000_000, 1, 4),
        (8000, 0, 4),
        (8000, 3, 4),
        (8000, 1000, 0),
    ] {
        assert!(
            Sound::from_raw(rate, channels, &vec![0.0; count], &Work::default()).is_err(),
            "{rate} {channels} {count}"
        );
    }
    // A WAV header that says 4 GiB - 2, and one whose frames have no bytes.
    let document = document();
    let mut file = bytes(&document["files"][1]["file"]);
    file[40..44].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    assert!(
        Sound::decode(&file, &Work::default())
            .unwrap_err()
            .to_string()
            .contains("cut off")
    );
    file[22..24].copy_from_slice(&[0, 0]);
    file[32..34].copy_from_slice(&[0, 0]);
    assert!(Sound::decode(&file, &Work::default()).is_err());
    // A writer that could not go back.
    let mut file = bytes(&document["files"][1]["file"]);
    file[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        Sound::decode(&file, &Work::default()).unwrap().samples().len(),
        101
    );
    // One sample a second to a million is more than there is room for.
    let long = Sound::from_raw(1, 1, &[0.0; 1000], &Work::default()).unwrap();
    assert!(matches!(
        waveform(1_000_000).run(&long, &[], &Work::default()).unwrap_err(),
        MediaError::TooLarge { .. }
    ));
    let port = || ("m.x".to_owned(), DataType::Float32);
    for config in [
        json!({}),
        json!({"feature_extractor_type": "EncodecFeatureExtractor"}),
        json!({"feature_extractor_type": "WhisperFeatureExtractor", "hop_length": 0}),
        json!({"feature_extractor_type": "WhisperFeatureExtractor", "n_fft": "400"}),
    ] {
        assert!(
            AudioProgram::from_preprocessor_config(&config, port()).is_err(),
            "{config}"
        );
    }
}

#[test]
fn features_of_any_frame_size_are_sums_of_a_transform() {
    // A frame of 15 = 3 * 5 samples of a cosine of frequency 3 / 15: its power is at line 3.
    let mel = LogMel {
        size: 15,
        hop: 15,
        bins: 4,
        rate: 15,
        highest: 7.0,
        scale: MelScale::Htk,
    };
    let transform = |op| AudioTransform {
        op,
        inputs: None,
        outputs: None,
    };
    let output = |content, dtype| AudioOutput {
        source: None,
        name: "m.x".to_owned(),
        content,
        dtype,
    };
    let program = AudioProgram::new(
        vec![transform(AudioOp::Decode), transform(AudioOp::LogMel(mel))],
        vec![
            output(AudioContent::Features, DataType::Float32),
            output(AudioContent::Length, DataType::Int64),
            output(AudioContent::ValidityMask, DataType::Bool),
        ],
    )
    .unwrap();
    let samples: Vec<f32> = (0..45)
        .map(|n| (2.0 * std::f64::consts::PI * 3.0 * f64::from(n) / 15.0).cos() as f32)
        .collect();
    let tensors = program
        .run(
            &Sound::from_raw(15, 1, &samples, &Work::default()).unwrap(),
            &[],
            &Work::default(),
        )
        .unwrap();
    assert_eq!(tensors[0].shape, [1, 4, 3]);
    let features = floats(&tensors[0].bytes);
    // Lines 2, 3 and 4 have (N / 4)^2 and twice (N / 8)^2 of a Hann window's; the bins ascend, so
    // that 3 Hz is in the second and third.
    let row = |bin: usize| &features[bin * 3..bin * 3 + 3];
    assert!(row(1)[1] > row(0)[1] && row(1)[1] > row(3)[1], "{features:?}");
    assert_eq!(tensors[1].bytes, 3i64.to_ne_bytes());
    assert_eq!(tensors[2].bytes, [1, 1, 1]);
    // At another rate it cannot be done.
    let error = program
        .run(
            &Sound::from_raw(16, 1, &samples, &Work::default()).unwrap(),
            &[],
            &Work::default(),
        )
        .unwrap_err();
    assert!(error.to_string().contains("does not resample"), "{error}");
}
