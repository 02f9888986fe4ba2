//! Images of the host: programs over sessions that show what they are fed.

use oxpipe::component::{CancelToken, DataType, RunControl};
use oxpipe::media::image::RgbImage;
use oxpipe::pipeline::{ErrorKind, Pipeline, Run, RunSettings};
use twox_hash::XxHash3_128;

use super::fake::{DECODER_OUTPUTS, Fake, Watch, continuation, decoder_body, float_tensor, floats, io, open};

const PLACEHOLDER: i32 = 6;
const IMAGE: i32 = 4;

/// The vision encoder gives the mean of each image; the decoder adds all of them and the number
/// of image tokens.
fn package(program: &str, vision: &str, pixels: &str) -> (Pipeline, Watch) {
    let yaml = format!(
        "
preprocessing:
  image:
{program}
pipeline:
  models:
    vision: {{filename: v.onnx, type: vision_encoder}}
    decoder:
      filename: d.onnx
      type: decoder
      io:
        token_input: input_ids
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
        optional_inputs: {{features: {{presence: image, absent: {{kind: zeros, shape: [1, 0]}}}}}}
  dataflow:
    - {{from: vision.features, to: decoder.features}}
  phases:
    vision: {{run_on: prompt_only, when_present: image}}
  vision: {vision}
"
    );
    let encoder = Fake::new(io(&[pixels], &["features:float32[1,n]"]), |call| {
        let images = call.tensor("pixels").shape()[0] as usize;
        let pixels = call.floats("pixels");
        let each = pixels.len() / images;
        let means: Vec<f32> = pixels
            .chunks(each)
            .map(|image| image.iter().sum::<f32>() / each as f32)
            .collect();
        Ok(vec![("features", float_tensor(&[1, images as i64], &means))])
    });
    let inputs = [
        "input_ids:int64[1,s]",
        "features:float32[1,n]",
        "past:float32[1,2,p,1]",
    ];
    let decoder = Fake::new(
        io(&inputs, &DECODER_OUTPUTS),
        decoder_body(|call| call.floats("features").iter().sum::<f32>() as i64),
    );
    let watch = encoder.watch();
    (
        open(&yaml, vec![("vision", encoder), ("decoder", decoder)]).unwrap(),
        watch,
    )
}

const SIMPLE: &str = "
    transforms:
      - {op: decode}
      - {op: resize, size: 2, interpolation: nearest}
      - {op: rescale, scale: 0.5}
    outputs:
      - {name: vision.pixels, content: pixels, dtype: float32}
";

fn gray(width: u64, height: u64, value: u8) -> RgbImage {
    RgbImage::from_raw(width, height, &vec![value; (width * height * 3) as usize]).unwrap()
}

fn step(run: &mut Run) -> i32 {
    run.step(&RunControl::default()).unwrap().token.unwrap()
}

#[test]
fn two_images_in_one_prompt() {
    let vision = "{image_placeholder_token_id: 6, image_token_id: 4, token_count_source: per_tile, tokens_per_tile: 3}";
    let (pipeline, encoder) = package(SIMPLE, vision, "pixels:float32[n,3,2,2]");
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.add_image(&gray(5, 3, 4), &control).unwrap();
    run.add_image(&gray(1, 9, 6), &control).unwrap();
    assert_eq!(run.get_tensor("vision.pixels").unwrap().shape(), [2, 3, 2, 2]);
    let prompt = [5, PLACEHOLDER, 2, PLACEHOLDER, 3];
    run.append_tokens(&prompt).unwrap();
    let expanded = [5, IMAGE, IMAGE, IMAGE, 2, IMAGE, IMAGE, IMAGE, 3];
    assert_eq!(run.tokens(), expanded);
    // 4 / 2 and 6 / 2.
    assert_eq!(step(&mut run), continuation(&expanded, 1, 5)[0]);
    assert_eq!(floats(run.get_tensor("vision.features").unwrap()), [2.0, 3.0]);
    assert_eq!(encoder.runs(), 1);
    // Inside of an image there is no way back, at its ends there is.
    assert_eq!(run.rewind(3).unwrap_err().kind(), ErrorKind::InvalidArgument);
    run.rewind(5).unwrap();
    let error = run.step(&control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert!(
        error
            .to_string()
            .contains("1 images have no placeholder (token 6)"),
        "{error}"
    );
    run.append_tokens(&[PLACEHOLDER, 3]).unwrap();
    assert_eq!(run.tokens(), expanded);
    assert_eq!(step(&mut run), continuation(&expanded, 1, 5)[0]);
    assert_eq!(encoder.runs(), 1);
    // A third placeholder has no image; nothing is appended.
    let before = run.tokens().to_vec();
    let error = run.append_tokens(&[1, PLACEHOLDER]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(run.tokens(), before);
    // Another turn with another image: all three are encoded.
    run.add_image(&gray(2, 2, 2), &control).unwrap();
    run.append_tokens(&[1, PLACEHOLDER]).unwrap();
    let whole = [&before[..], &[1, IMAGE, IMAGE, IMAGE]].concat();
    assert_eq!(run.tokens(), whole);
    assert_eq!(step(&mut run), continuation(&whole, 1, 6)[0]);
    assert_eq!(encoder.runs(), 2);
    run.clear_images().unwrap();
    assert!(run.get_tensor("vision.pixels").is_err());
    let whole = run.tokens().to_vec();
    assert_eq!(step(&mut run), continuation(&whole, 1, 0)[0]);
}

#[test]
fn prompts_without_images_are_taken_as_they_are() {
    let vision = "{image_placeholder_token_id: 6, image_token_id: 4, tokens_per_tile: 3}";
    let (pipeline, _) = package(SIMPLE, vision, "pixels:float32[n,3,2,2]");
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&[PLACEHOLDER, 1]).unwrap();
    assert_eq!(run.tokens(), [PLACEHOLDER, 1]);
    assert_eq!(step(&mut run), continuation(&[PLACEHOLDER, 1], 1, 0)[0]);
}

#[test]
fn an_image_that_does_not_fit_leaves_the_run_as_it_was() {
    let program = SIMPLE.replace(
        "resize, size: 2, interpolation: nearest",
        "resize, mode: pixel_area, min_pixels: 4, max_pixels: 400, size_multiple: 2",
    );
    let (pipeline, _) = package(&program, "{}", "pixels:float32[n,3,h,w]");
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.add_image(&gray(4, 4, 8), &control).unwrap();
    let error = run.add_image(&gray(8, 4, 8), &control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadMedia);
    assert!(error.to_string().contains("4 x 4 and 8 x 4"), "{error}");
    let error = run.add_image_file(b"GIF89a", &control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadMedia);
    assert_eq!(run.get_tensor("vision.pixels").unwrap().shape(), [1, 3, 4, 4]);
    run.add_image(&gray(4, 5, 4), &control).unwrap();
    assert_eq!(run.get_tensor("vision.pixels").unwrap().shape(), [2, 3, 4, 4]);
}

#[test]
fn a_package_without_a_program_says_so() {
    let fake = Fake::new(io(&["x:float32[1]"], &["y:float32[1]"]), |_| {
        Ok(vec![("y", float_tensor(&[1], &[0.0]))])
    });
    let yaml = "pipeline: {models: {m: {filename: m.onnx}}, strategy: {kind: single_pass, model: m}}";
    let pipeline = open(yaml, vec![("m", fake)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let error = run.add_image(&gray(1, 1, 0), &RunControl::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("preprocessing.image"), "{error}");
    assert!(run.clear_images().is_err());
}

/// What a single component is fed.
fn single(inputs: &[&str], program: &str) -> Result<Run, oxpipe::pipeline::PipelineError> {
    let fake = Fake::new(io(inputs, &["y:float32[1]"]), |_| {
        Ok(vec![("y", float_tensor(&[1], &[0.0]))])
    });
    let yaml = format!(
        "
pipeline: {{models: {{m: {{filename: m.onnx}}}}, strategy: {{kind: single_pass, model: m}}}}
preprocessing:
  image:
{program}"
    );
    let pipeline = open(&yaml, vec![("m", fake)])?;
    Run::new(&pipeline, &RunSettings::default())
}

#[test]
fn patches_coordinates_grids_and_masks() {
    let program = "
    transforms:
      - {op: decode, outputs: [image]}
      - {op: convert_rgb, inputs: [image], outputs: [rgb]}
      - {op: rescale, inputs: [rgb], outputs: [scaled], scale: 1}
      - {op: patchify, inputs: [scaled], outputs: [patches], patch_size: 1, merge_size: 2, flatten: false}
      - {op: flatten, inputs: [patches], outputs: [rows]}
      - {op: emit_patch_coordinates, inputs: [rows], outputs: [places]}
      - {op: emit_grid_coordinates, inputs: [rows], outputs: [grid]}
      - {op: emit_original_size, inputs: [image], outputs: [size]}
      - {op: pad, inputs: [rows, places], outputs: [padded, padded_places], target_length: 9, pad_value: -1}
      - {op: emit_validity_mask, inputs: [padded], outputs: [mask]}
    outputs:
      - {source: padded, name: m.pixels, content: pixels, dtype: float32}
      - {source: padded_places, name: m.places, content: patch_coordinates, dtype: int64, pad_value: -2}
      - {source: grid, name: m.grid, content: grid_dimensions, dtype: int32}
      - {source: size, name: m.size, content: original_size, dtype: int64}
      - {source: mask, name: m.mask, content: validity_mask, dtype: bool}
";
    let mut run = single(
        &[
            "pixels:float32[n,9,3]",
            "places:int64[n,9,2]",
            "grid:int32[n,3]",
            "size:int64[n,2]",
            "mask:bool[n,9]",
        ],
        program,
    )
    .unwrap();
    // Pixel (y, x) is (10 y + x, 0, 0).
    let mut bytes = Vec::new();
    for y in 0..2u8 {
        for x in 0..4u8 {
            bytes.extend([10 * y + x, 0, 0]);
        }
    }
    let image = RgbImage::from_raw(4, 2, &bytes).unwrap();
    run.add_image(&image, &RunControl::default()).unwrap();
    let red: Vec<f32> = floats(run.get_tensor("m.pixels").unwrap())
        .into_iter()
        .step_by(3)
        .collect();
    assert_eq!(red, [0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0, -1.0]);
    let longs = |run: &Run, port: &str| -> Vec<i64> {
        let tensor = run.get_tensor(port).unwrap();
        assert_eq!(tensor.dtype(), DataType::Int64);
        tensor
            .bytes()
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| i64::from_le_bytes(*bytes))
            .collect()
    };
    assert_eq!(
        longs(&run, "m.places"),
        [0, 0, 0, 1, 1, 0, 1, 1, 0, 2, 0, 3, 1, 2, 1, 3, -2, -2]
    );
    assert_eq!(longs(&run, "m.size"), [2, 4]);
    let grid = run.get_tensor("m.grid").unwrap();
    assert_eq!(grid.shape(), [1, 3]);
    assert_eq!(grid.bytes(), [1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(
        run.get_tensor("m.mask").unwrap().bytes(),
        [1, 1, 1, 1, 1, 1, 1, 1, 0]
    );
    // 3 x 3 is not made of squares of 2 patches.
    let error = run.add_image(&gray(3, 3, 0), &RunControl::default()).unwrap_err();
    assert!(error.to_string().contains("multiples of 2"), "{error}");
}

#[test]
fn tiles_with_a_thumbnail() {
    let program = "
    transforms:
      - {op: decode_rgb}
      - {op: resize, size: 2, interpolation: nearest}
      - {op: tile, tile_size: 2, max_tiles: 4, include_thumbnail: true, thumbnail_order: append}
      - {op: rescale, scale: 1}
    outputs:
      - {name: m.pixels, content: pixels, dtype: float16}
      - {name: m.size, content: transformed_size, dtype: int64}
";
    let mut run = single(&["pixels:float16[n,3,2,2]", "size:int64[n,2]"], program).unwrap();
    // Two squares of 1 and 3: two columns of tiles, and the nearest pixels as the thumbnail.
    let row = [1u8, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3];
    let image = RgbImage::from_raw(4, 2, &[row, row].concat()).unwrap();
    run.add_image(&image, &RunControl::default()).unwrap();
    let pixels = run.get_tensor("m.pixels").unwrap();
    assert_eq!(pixels.shape(), [3, 3, 2, 2]);
    let halves: Vec<u16> = pixels
        .bytes()
        .as_chunks::<2>()
        .0
        .iter()
        .map(|bytes| u16::from_le_bytes(*bytes))
        .collect();
    let (one, three) = (0x3c00, 0x4200);
    assert!(halves[..12].iter().all(|&half| half == one));
    assert!(halves[12..24].iter().all(|&half| half == three));
    assert_eq!(halves[24..28], [one, three, one, three]);
    assert_eq!(run.get_tensor("m.size").unwrap().bytes()[..2], [2, 0]);
}

/// A state says how many tiles an image has, and a number that no image has is refused.
#[test]
fn tiles_of_a_saved_state_are_looked_at() {
    let program = "
    transforms:
      - {op: decode_rgb}
      - {op: resize, size: 2, interpolation: nearest}
      - {op: tile, tile_size: 2, max_tiles: 4, include_thumbnail: false}
      - {op: rescale, scale: 0.5}
    outputs:
      - {name: vision.pixels, content: pixels, dtype: float32}
";
    let vision = "{image_placeholder_token_id: 6, image_token_id: 4, token_count_source: per_tile, tokens_per_tile: 3}";
    let (pipeline, _) = package(program, vision, "pixels:float32[n,3,2,2]");
    let settings = RunSettings::default();
    let mut run = Run::new(&pipeline, &settings).unwrap();
    // One row of three tiles.
    run.add_image(&gray(6, 2, 4), &RunControl::default()).unwrap();
    run.append_tokens(&[5, PLACEHOLDER, 3]).unwrap();
    let expanded = run.tokens().to_vec();
    assert_eq!(expanded.len(), 2 + 9);
    let next = step(&mut run);
    let bytes = run.save().unwrap();
    let mut loaded = Run::load(&pipeline, &settings, &bytes).unwrap();
    loaded.rewind(expanded.len()).unwrap();
    assert_eq!(step(&mut loaded), next);
    // The rows and the columns, no patches, and nothing of them.
    let numbers = [1u64, 3, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
    let places = bytes.windows(numbers.len()).enumerate();
    let mut places = places.filter(|(_, window)| *window == numbers);
    let (at, _) = places.next().unwrap();
    assert!(places.next().is_none());
    for sides in [[0, 3], [1, 0], [1 << 32, 1 << 32], [u64::MAX, 3], [1, 1 << 25]] {
        let mut written = bytes.clone();
        written[at..at + 16].copy_from_slice(&sides.map(u64::to_le_bytes).concat());
        // Made to fit, by somebody who knows how.
        let check = XxHash3_128::oneshot(&written[40..]).to_le_bytes();
        written[24..40].copy_from_slice(&check);
        let error = Run::load(&pipeline, &settings, &written).unwrap_err();
        assert!(error.to_string().contains("an image of ["), "{sides:?}: {error}");
    }
}

/// Tokens of images that were taken back are no place for others.
#[test]
fn other_images_need_other_tokens() {
    let vision = "{image_placeholder_token_id: 6, image_token_id: 4, tokens_per_tile: 2}";
    let (pipeline, _) = package(SIMPLE, vision, "pixels:float32[n,3,2,2]");
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.add_image(&gray(2, 2, 4), &control).unwrap();
    run.append_tokens(&[5, PLACEHOLDER, 3]).unwrap();
    step(&mut run);
    run.clear_images().unwrap();
    run.add_image(&gray(2, 2, 6), &control).unwrap();
    let whole = run.tokens().to_vec();
    for error in [
        run.append_tokens(&[PLACEHOLDER]).unwrap_err(),
        run.append_tokens(&[1]).unwrap_err(),
        run.step(&control).unwrap_err(),
        run.forward(&control).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        let message = error.to_string();
        assert!(
            message.contains("tokens 1 to 3") && message.contains("rewind to 1 "),
            "{error}"
        );
        assert_eq!(run.tokens(), whole);
    }
    // Without the new image the answer goes on, and before the tokens of the old one there is room.
    run.clear_images().unwrap();
    step(&mut run);
    run.add_image(&gray(2, 2, 6), &control).unwrap();
    run.rewind(1).unwrap();
    run.append_tokens(&[PLACEHOLDER, 3]).unwrap();
    assert_eq!(run.tokens(), [5, IMAGE, IMAGE, 3]);
    assert_eq!(step(&mut run), continuation(&[5, IMAGE, IMAGE, 3], 1, 3)[0]);
}

#[test]
fn outputs_are_for_one_input_each_and_may_be_optional() {
    let program = |outputs: &str| {
        format!(
            "
    transforms:
      - {{op: decode}}
      - {{op: resize, size: 2, interpolation: nearest}}
    outputs:
      - {{name: m.pixels, content: pixels, dtype: float32}}
{outputs}"
        )
    };
    let inputs = ["pixels:float32[n,3,2,2]", "again:float32[n,3,2,2]"];
    let both = program("      - {name: m.again, content: pixels, dtype: float32}\n");
    let mut run = single(&inputs, &both).unwrap();
    run.add_image(&gray(1, 1, 7), &RunControl::default()).unwrap();
    for port in ["m.pixels", "m.again"] {
        assert_eq!(floats(run.get_tensor(port).unwrap()), [7.0; 12], "{port}");
    }
    let twice = program("      - {name: m.pixels, content: pixels, dtype: float32}\n");
    let error = single(&inputs, &twice).err().unwrap().to_string();
    assert!(
        error.contains("outputs[1]") && error.contains("m.pixels too"),
        "{error}"
    );
    let size = "      - {name: m.size, content: original_size, dtype: int64, optional: OPTIONAL}\n";
    let optional = program(&size.replace("OPTIONAL", "true"));
    let mut run = single(&inputs[..1], &optional).unwrap();
    run.add_image(&gray(1, 1, 7), &RunControl::default()).unwrap();
    assert_eq!(floats(run.get_tensor("m.pixels").unwrap()), [7.0; 12]);
    let needed = program(&size.replace("OPTIONAL", "false"));
    let error = single(&inputs[..1], &needed).err().unwrap().to_string();
    assert!(error.contains("has no input \"size\""), "{error}");
    let there = ["pixels:float32[n,3,2,2]", "size:int64[n,2]"];
    let mut run = single(&there, &optional).unwrap();
    run.add_image(&gray(1, 1, 7), &RunControl::default()).unwrap();
    assert_eq!(run.get_tensor("m.size").unwrap().shape(), [1, 2]);
}

/// An image may be what a denoiser begins with: its loop adds one in each step.
#[test]
fn an_image_that_a_loop_begins_with() {
    let yaml = "
preprocessing:
  image:
    transforms:
      - {op: decode}
      - {op: resize, size: 2, interpolation: nearest}
    outputs:
      - {name: denoiser.x, content: pixels, dtype: float32}
pipeline:
  models: {denoiser: {filename: d.onnx, type: denoiser}}
  dataflow:
    - {from: denoiser.next, to: denoiser.x}
  strategy: {kind: iterative, denoiser: denoiser, num_steps: 2}
";
    let denoiser = Fake::new(io(&["x:float32[1,3,2,2]"], &["next:float32[1,3,2,2]"]), |call| {
        let next: Vec<f32> = call.floats("x").iter().map(|x| x + 1.0).collect();
        Ok(vec![("next", float_tensor(&[1, 3, 2, 2], &next))])
    });
    let pipeline = open(yaml, vec![("denoiser", denoiser)]).unwrap();
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    for value in [7, 3] {
        run.add_image(&gray(4, 4, value), &control).unwrap();
        run.step(&control).unwrap();
        run.step(&control).unwrap();
        let latent = run.latents().next().unwrap();
        assert_eq!(floats(latent), [f32::from(value) + 2.0; 12]);
        run.clear_images().unwrap();
    }
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::MissingInput);
}

#[test]
fn a_cancelled_image_leaves_the_run_as_it_was() {
    let (pipeline, _) = package(SIMPLE, "{}", "pixels:float32[n,3,2,2]");
    let token = CancelToken::new();
    let control = RunControl {
        cancel: Some(token.clone()),
        deadline: None,
    };
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.add_image(&gray(4, 4, 8), &control).unwrap();
    token.request();
    let error = run.add_image(&gray(4, 4, 6), &control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let late = RunControl {
        cancel: None,
        deadline: Some(std::time::Instant::now()),
    };
    let error = run.add_image(&gray(4, 4, 6), &late).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(run.get_tensor("vision.pixels").unwrap().shape(), [1, 3, 2, 2]);
    token.reset();
    run.add_image(&gray(4, 4, 6), &control).unwrap();
    assert_eq!(run.get_tensor("vision.pixels").unwrap().shape(), [2, 3, 2, 2]);
}

#[test]
fn what_is_wrong_with_a_program_has_a_line_and_a_key() {
    let good = "
    transforms:
      - {op: decode, outputs: [image]}
      - {op: resize, inputs: [image], outputs: [small], size: 2}
      - {op: rescale, inputs: [small], outputs: [scaled], scale: 0.5}
    outputs:
      - {source: scaled, name: m.pixels, content: pixels, dtype: float32}
";
    let inputs = ["pixels:float32[n,3,2,2]"];
    single(&inputs, good).unwrap();
    for (from, to, line, key, words) in [
        ("op: resize", "op: rezise", 8, "transforms[1].op", "center_crop"),
        (
            "inputs: [image]",
            "inputs: [picture]",
            8,
            "transforms[1]",
            "\"picture\"",
        ),
        (
            "outputs: [small]",
            "outputs: [image]",
            8,
            "transforms[1]",
            "\"image\"",
        ),
        (
            "outputs: [small]",
            "outputs: [small, more]",
            8,
            "transforms[1]",
            "makes 1 values",
        ),
        ("size: 2", "size: 0", 8, "transforms[1].size", "from 1 to"),
        ("size: 2", "mode: crop", 8, "transforms[1].size", "missing"),
        (
            "size: 2",
            "size: {width: 3}",
            8,
            "transforms[1].size.height",
            "missing",
        ),
        (
            "size: 2",
            "size: 2, interpolation: cubic",
            8,
            "transforms[1].interpolation",
            "lanczos",
        ),
        (
            "size: 2",
            "mode: pixel_area, size: 2",
            8,
            "transforms[1].size",
            "leave it out",
        ),
        ("op: rescale", "op: normalize", 9, "transforms[2].mean", "missing"),
        (
            "inputs: [small], outputs: [scaled], scale: 0.5",
            "inputs: [small], outputs: [scaled]",
            9,
            "transforms[2].scale",
            "missing",
        ),
        (
            "op: rescale",
            "op: emit_grid_coordinates",
            9,
            "transforms[2]",
            "an image of bytes",
        ),
        (
            "source: scaled",
            "source: nothing",
            11,
            "outputs[0]",
            "\"nothing\"",
        ),
        (
            "name: m.pixels",
            "name: pixels",
            11,
            "outputs[0].name",
            "component.port",
        ),
        ("name: m.pixels", "name: n.pixels", 11, "outputs[0].name", "\"n\""),
        ("name: m.pixels", "name: m.pics", 11, "outputs[0].name", "pixels"),
        (
            "content: pixels",
            "content: grid_dimensions",
            11,
            "outputs[0]",
            "grid_dimensions",
        ),
        (
            "dtype: float32",
            "dtype: float16",
            11,
            "outputs[0].name",
            "float16",
        ),
        ("dtype: float32", "dtype: int64", 11, "outputs[0]", "int64"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = single(&inputs, &good.replacen(from, to, 1)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{text}");
        assert!(
            text.contains(&format!(":{line}")) && text.contains(key) && text.contains(words),
            "{from} as {to}: {text}"
        );
    }
}
