//! Decoding and resizing as Pillow has them, and processors as transformers has them.

use oxpipe::component::{DataType, Dim};
use oxpipe::media::image::{Filter, ImageProgram, ProcessorPorts, RgbImage};
use oxpipe::media::{MediaError, PortLayout, Work};
use serde_json::{Value, json};

fn document() -> Value {
    serde_json::from_str(include_str!("images.json")).unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn pair(value: &Value) -> (usize, usize) {
    let at = |index: usize| value[index].as_u64().unwrap() as usize;
    (at(0), at(1))
}

/// The pattern of images.py.
pub fn pattern(width: usize, height: usize, seed: usize) -> RgbImage {
    let mut bytes = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let (fx, fy, fs) = (x as f64, y as f64, seed as f64);
                let smooth = 90.0 * (fx / (3.1 + channel as f64) + fs).sin()
                    + 60.0 * (fy / (5.7 - channel as f64) - fs).cos();
                let mixed = (x * 7919 + y * 104_729 + seed * 31 + channel * 17) as u64;
                let noise = (mixed.wrapping_mul(2_654_435_761) % (1 << 32)) >> 26;
                bytes.push((128.0 + smooth + noise as f64 - 32.0).clamp(0.0, 255.0) as u8);
            }
        }
    }
    RgbImage::from_raw(width as u64, height as u64, &bytes).unwrap()
}

fn fnv(bytes: &[u8]) -> String {
    let value = bytes.iter().fold(0xCBF2_9CE4_8422_2325u64, |value, &byte| {
        (value ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    format!("{value:016x}")
}

#[test]
fn files_are_decoded_as_pillow_decodes_them() {
    for case in document()["files"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let image = RgbImage::decode(&bytes(&case["file"]), &Work::default())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((image.width(), image.height()), pair(&case["size"]), "{name}");
        let expected = bytes(&case["pixels"]);
        let off = image.bytes().iter().zip(&expected).map(|(a, b)| a.abs_diff(*b));
        // Decoders of JPEG round and upsample colour each in its own way.
        let (most, sum) = off.fold((0, 0), |(most, sum), off| (most.max(off), sum + u64::from(off)));
        let mean = sum as f64 / expected.len() as f64;
        match name.contains("JPEG") {
            true => assert!(most <= 8 && mean < 0.5, "{name}: {most}, {mean}"),
            false => assert_eq!(most, 0, "{name}"),
        }
    }
}

#[test]
fn every_filter_gives_the_bytes_of_pillow() {
    for case in document()["resizes"].as_array().unwrap() {
        let (width, height) = pair(&case["from"]);
        let image = pattern(width, height, width);
        let (wide, high) = pair(&case["to"]);
        for (name, filter) in Filter::NAMES {
            if name == "lanczos3" {
                continue;
            }
            let resized = image.resize(wide, high, filter, &Work::default()).unwrap();
            assert_eq!((resized.width(), resized.height()), (wide, high));
            assert_eq!(
                fnv(resized.bytes()),
                case["hashes"][name].as_str().unwrap(),
                "{width} x {height} to {wide} x {high} by {name}"
            );
        }
    }
}

#[test]
fn truncated_and_spoilt_files_are_errors() {
    let document = document();
    let mut refused = 0;
    for case in document["files"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let file = bytes(&case["file"]);
        for length in (0..file.len()).step_by(1 + file.len() / 60) {
            let outcome = RgbImage::decode(&file[..length], &Work::default());
            // The end of a file may hold nothing that is needed.
            refused += usize::from(outcome.is_err());
            assert!(
                outcome.is_err() || length * 4 > file.len() * 3 || name.contains("orientation"),
                "{name} of {length} bytes"
            );
        }
        // Whatever is changed, the answer is an image or an error.
        for at in (0..file.len()).step_by(1 + file.len() / 200) {
            for mask in [0xff, 0x80, 0x01] {
                let mut spoilt = file.clone();
                spoilt[at] ^= mask;
                let _ = RgbImage::decode(&spoilt, &Work::default());
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn sizes_that_no_image_has_are_refused_before_memory_is_taken() {
    // A PNG header that says 2^31 - 1 x 2^31 - 1, and one of 60,000 x 60,000.
    let document = document();
    let one_pixel = bytes(&document["files"][0]["file"]);
    for (width, height) in [(0x7fff_ffffu32, 0x7fff_ffffu32), (60_000, 60_000), (0, 1)] {
        let mut file = one_pixel.clone();
        file[16..20].copy_from_slice(&width.to_be_bytes());
        file[20..24].copy_from_slice(&height.to_be_bytes());
        let crc = crc32(&file[12..29]);
        file[29..33].copy_from_slice(&crc.to_be_bytes());
        let error = RgbImage::decode(&file, &Work::default()).unwrap_err();
        assert!(
            matches!(error, MediaError::TooLarge { .. } | MediaError::Malformed { .. }),
            "{error}"
        );
    }
    assert!(matches!(
        RgbImage::decode(b"not an image", &Work::default()).unwrap_err(),
        MediaError::UnknownFormat { .. }
    ));
    assert!(RgbImage::decode(b"", &Work::default()).is_err());
    let error = RgbImage::from_raw(2, 2, &[0; 11]).unwrap_err().to_string();
    assert!(
        error.contains("11 bytes") && error.contains("12 bytes"),
        "{error}"
    );
    assert!(RgbImage::from_raw(0, 2, &[]).is_err());
    assert!(RgbImage::from_raw(u64::MAX, u64::MAX, &[]).is_err());
    let small = pattern(2, 2, 0);
    assert!(
        small
            .resize(60_000, 60_000, Filter::Bicubic, &Work::default())
            .is_err()
    );
    assert!(small.resize(0, 1, Filter::Box, &Work::default()).is_err());
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut value = u32::MAX;
    for &byte in bytes {
        value ^= u32::from(byte);
        for _ in 0..8 {
            value = (value >> 1) ^ (0xEDB8_8320 & (value & 1).wrapping_neg());
        }
    }
    !value
}

/// A port of as many dims as a result has, none of them known.
pub fn layout(shown: &Value) -> PortLayout {
    let rank = shown["shape"].as_array().unwrap().len();
    PortLayout::new(Some(&vec![Dim::Symbol(None); rank]))
}

pub fn floats(bytes: &[u8]) -> Vec<f64> {
    let chunks = bytes.as_chunks::<4>().0.iter();
    chunks.map(|bytes| f32::from_ne_bytes(*bytes).into()).collect()
}

pub fn integers(bytes: &[u8]) -> Vec<f64> {
    let chunks = bytes.as_chunks::<8>().0.iter();
    chunks.map(|bytes| i64::from_ne_bytes(*bytes) as f64).collect()
}

pub fn check(shown: &Value, shape: &[i64], elements: &[f64], label: &str) {
    let expected: Vec<i64> = shown["shape"]
        .as_array()
        .unwrap()
        .iter()
        .map(|dim| dim.as_i64().unwrap())
        .collect();
    assert_eq!(shape, expected, "{label}");
    let near = |found: f64, expected: &Value, size: f64| {
        let expected = expected.as_f64().unwrap();
        assert!(
            (found - expected).abs() <= 1e-6 * size.max(1.0),
            "{label}: {found}, expected {expected}"
        );
    };
    let absolute: f64 = elements.iter().map(|x| x.abs()).sum();
    near(absolute, &shown["absolute"], absolute);
    near(elements.iter().sum(), &shown["sum"], absolute);
    let places = shown["at"].as_array().unwrap().iter();
    for (place, element) in places.zip(shown["elements"].as_array().unwrap()) {
        near(elements[place.as_u64().unwrap() as usize], element, 1.0);
    }
}

#[test]
fn programs_of_processors_give_what_transformers_gives() {
    let document = document();
    let files = document["files"].as_array().unwrap();
    let (mut checked, mut refused) = (0, 0);
    for case in document["processors"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        let outputs = case["outputs"].as_array().unwrap();
        // Ports of the results that there are, with their ranks.
        let names = ["pixel_values", "image_grid_thw", "pixel_attention_mask"];
        let made = outputs
            .iter()
            .find(|output| output.get("error").is_none())
            .unwrap();
        let names: Vec<&str> = names
            .into_iter()
            .filter(|name| made.get(name).is_some())
            .collect();
        let layouts: Vec<PortLayout> = names.iter().map(|name| layout(&made[name])).collect();
        let port = |name: &str, dtype| {
            let has = names.contains(&name);
            has.then(|| (format!("vision.{name}"), dtype))
        };
        let ports = ProcessorPorts {
            pixels: port("pixel_values", DataType::Float32).unwrap(),
            grid: port("image_grid_thw", DataType::Int64),
            coordinates: None,
            mask: port("pixel_attention_mask", DataType::Int64),
        };
        let program = ImageProgram::from_preprocessor_config(&case["config"], &ports).unwrap();
        for output in outputs {
            let name = output["name"].as_str().unwrap();
            let file = files.iter().find(|file| file["name"] == name).unwrap();
            let work = Work::default();
            let image = RgbImage::decode(&bytes(&file["file"]), &work).unwrap();
            let label = format!("{kind} of {name}");
            let tensors = program
                .prepare(&image, &work)
                .and_then(|prepared| program.combine(&[&prepared], &layouts, &work));
            if output.get("error").is_some() {
                assert!(tensors.is_err(), "{label}");
                refused += 1;
                continue;
            }
            let tensors = tensors.unwrap_or_else(|error| panic!("{label}: {error}"));
            for (name, tensor) in names.iter().zip(&tensors) {
                let elements = match tensor.dtype {
                    DataType::Int64 => integers(&tensor.bytes),
                    _ => floats(&tensor.bytes),
                };
                check(&output[name], &tensor.shape, &elements, &label);
            }
            checked += 1;
        }
    }
    println!("{checked} results, {refused} images refused");
    assert!(checked >= 100, "{checked}");
}

#[test]
fn processors_that_are_not_known_are_named() {
    let ports = ProcessorPorts {
        pixels: ("v.p".to_owned(), DataType::Float32),
        grid: None,
        coordinates: None,
        mask: None,
    };
    for (config, words) in [
        (json!({}), "image_processor_type"),
        (json!({"image_processor_type": "MllamaImageProcessor"}), "Mllama"),
        (
            json!({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 0}}),
            "size",
        ),
        (
            json!({"image_processor_type": "CLIPImageProcessor", "resample": 9}),
            "resample",
        ),
        (
            json!({"image_processor_type": "CLIPImageProcessor", "image_std": [0, 1, 1]}),
            "image_std",
        ),
        (
            json!({"image_processor_type": "CLIPImageProcessor", "image_mean": [0.5]}),
            "image_mean",
        ),
        (
            json!({"image_processor_type": "ViTImageProcessor", "do_resize": 1}),
            "do_resize",
        ),
        (
            json!({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 90, "max_pixels": 80}),
            "min_pixels",
        ),
    ] {
        let error = ImageProgram::from_preprocessor_config(&config, &ports).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Which exchange red and blue, and that keep_aspect_ratio changes nothing, was tried with
/// onnxruntime-extensions 0.15.2.
#[test]
fn pipelines_of_extensions_end_with_red_green_and_blue() {
    let ports = ProcessorPorts {
        pixels: ("v.p".to_owned(), DataType::Float32),
        grid: None,
        coordinates: None,
        mask: None,
    };
    let program = |transforms: &[Value]| {
        let operations: Vec<Value> = transforms.iter().map(|one| json!({"operation": one})).collect();
        let config = json!({"processor": {"transforms": operations}});
        ImageProgram::from_extensions_config(&config, &ports)
    };
    let decode = |space: &str| json!({"type": "DecodeImage", "attrs": {"color_space": space}});
    let convert = json!({"type": "ConvertRGB"});
    let normalize = |flag: u8| json!({"type": "Normalize", "attrs": {"qwen2_5_vl": flag}});
    for (exchanges, transforms) in [
        (0, vec![decode("RGB"), normalize(0)]),
        (0, vec![json!({"type": "DecodeImage"})]),
        (1, vec![decode("BGR")]),
        (1, vec![decode("RGB"), convert.clone()]),
        (1, vec![decode("RGB"), normalize(1)]),
        (2, vec![decode("BGR"), convert.clone()]),
        (2, vec![decode("RGB"), convert.clone(), normalize(1)]),
        (3, vec![decode("BGR"), convert.clone(), normalize(1)]),
    ] {
        match (exchanges % 2, program(&transforms)) {
            (0, made) => assert!(made.is_ok(), "{transforms:?}"),
            (_, Ok(_)) => panic!("{transforms:?}"),
            (_, Err(error)) => assert!(error.unsupported && error.to_string().contains("blue"), "{error}"),
        }
    }
    let resize = |key: &str, value: Value| {
        let mut attributes = json!({"width": 30, "height": 20});
        attributes[key] = value;
        program(&[decode("RGB"), json!({"type": "Resize", "attrs": attributes})])
    };
    let plain = resize("keep_aspect_ratio", json!(0)).unwrap();
    assert_eq!(resize("keep_aspect_ratio", json!(1)).unwrap(), plain);
    // Its limits are 56 * 56 and 12,845,056 pixels where nothing is said.
    for (side, expected) in [(1400, 1400), (10_000, 3556), (9000, 3584), (28, 56)] {
        let attributes = json!({"width": side, "height": side, "smart_resize": 1});
        let smart = program(&[decode("RGB"), json!({"type": "Resize", "attrs": attributes})]);
        assert_eq!(smart.unwrap().size(), Some([expected; 2]));
    }
    for (key, value) in [("width", json!(0)), ("interpolation", json!("AREA"))] {
        let error = resize(key, value).unwrap_err();
        assert_eq!(error.key, "processor");
        let place = format!("transforms[1].{key}: it is no");
        assert!(error.message.starts_with(&place), "{error}");
    }
    let error = program(&[decode("RGB"), json!({"attrs": {}})]).unwrap_err();
    assert!(
        error.to_string().contains("transforms[1].type: it is missing"),
        "{error}"
    );
}
