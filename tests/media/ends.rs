//! Work that the caller ends, and work that is not begun.

use std::time::{Duration, Instant};

use oxpipe::component::{CancelToken, DataType, RunControl};
use oxpipe::media::audio::{
    AudioContent, AudioOp, AudioOutput, AudioProgram, AudioTransform, LogMel, MelScale, Sound,
};
use oxpipe::media::image::{
    Content, FeatureOrder, Filter, Fit, ImageOp, ImageOutput, ImageProgram, ImageTransform, PatchOrder,
    Patchify, RgbImage, Thumbnail, Tiling, TilingMode,
};
use oxpipe::media::{MediaError, PortLayout, Work};

/// Work that is over already.
fn over() -> Work {
    let token = CancelToken::new();
    token.request();
    Work::new(&RunControl {
        cancel: Some(token),
        deadline: None,
    })
}

/// A FLAC file of silence: 65,535 samples in each of `blocks` frames of 14 bytes, and a last one that
/// is spoilt.
fn silence(blocks: u32) -> Vec<u8> {
    fn crc(bytes: &[u8], width: u32, polynomial: u32) -> u32 {
        let top = 1 << (width - 1);
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte) << (width - 8), |crc, _| {
                let shifted = crc << 1;
                let next = if crc & top != 0 {
                    shifted ^ polynomial
                } else {
                    shifted
                };
                next & (2 * top - 1)
            })
        })
    }
    let mut file = b"fLaC".to_vec();
    file.extend([0x80, 0, 0, 34, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0]);
    // 16,000 Hz in 20 bits, 1 channel, 16 bits, an unknown number of samples.
    file.extend([0x03, 0xE8, 0x00, 0xF0, 0, 0, 0, 0]);
    file.extend([0; 16]);
    for block in 0..=blocks {
        let mut frame = vec![0xFF, 0xF8, 0x70, 0x08];
        let number = char::from_u32(block).unwrap();
        frame.extend(number.encode_utf8(&mut [0; 4]).as_bytes());
        frame.extend([0xFF, 0xFE]);
        frame.push(crc(&frame, 8, 0x07) as u8);
        frame.extend([0, 0, 0]);
        let sum = crc(&frame, 16, 0x8005) as u16;
        let sum = if block == blocks { !sum } else { sum };
        frame.extend(sum.to_be_bytes());
        file.extend(frame);
    }
    file
}

#[test]
fn a_deadline_ends_the_decoding_of_a_small_file_with_much_in_it() {
    let file = silence(3);
    let error = Sound::decode(&file, &Work::default()).unwrap_err();
    assert!(matches!(error, MediaError::Malformed { .. }), "{error}");
    // Whoever went to the end would find that it is spoilt.
    let file = silence(4000);
    assert!(file.len() < 70_000);
    let work = Work::new(&RunControl {
        cancel: None,
        deadline: Some(Instant::now() + Duration::from_millis(30)),
    });
    assert_eq!(Sound::decode(&file, &work), Err(MediaError::DeadlineExceeded));
}

/// A JPEG file of a gray square: two bits a block, one for no change and one for nothing else.
fn gray_jpeg(side: u16) -> Vec<u8> {
    let mut file = vec![0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0];
    file.extend([1; 64]);
    file.extend([0xFF, 0xC0, 0, 11, 8]);
    file.extend(side.to_be_bytes());
    file.extend(side.to_be_bytes());
    file.extend([1, 1, 0x11, 0]);
    for table in [0x00, 0x10] {
        file.extend([0xFF, 0xC4, 0, 20, table, 1]);
        file.extend([0; 16]);
    }
    file.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0]);
    let blocks = usize::from(side / 8).pow(2);
    file.extend(vec![0; blocks / 4]);
    file.extend([0xFF, 0xD9]);
    file
}

#[test]
fn a_deadline_ends_the_decoding_of_a_jpeg() {
    let small = RgbImage::decode(&gray_jpeg(16), &Work::default()).unwrap();
    assert_eq!((small.width(), small.bytes()[0]), (16, 128));
    let file = gray_jpeg(8000);
    assert!(file.len() < 260_000);
    let work = Work::new(&RunControl {
        cancel: None,
        deadline: Some(Instant::now() + Duration::from_millis(20)),
    });
    assert_eq!(RgbImage::decode(&file, &work), Err(MediaError::DeadlineExceeded));
}

/// A progressive JPEG file of 2.4 KB: each scan has one byte for all blocks, and what is missing is taken
/// for zeros.
fn progressive_jpeg(side: u16, scans: usize) -> Vec<u8> {
    let mut file = vec![0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0];
    file.extend([1; 64]);
    file.extend([0xFF, 0xC2, 0, 17, 8]);
    file.extend(side.to_be_bytes());
    file.extend(side.to_be_bytes());
    file.extend([3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
    file.extend([0xFF, 0xC4, 0, 20, 0, 1]);
    file.extend([0; 16]);
    for _ in 0..scans {
        file.extend([0xFF, 0xDA, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0]);
    }
    file.extend([0xFF, 0xD9]);
    file
}

#[test]
fn a_deadline_ends_the_decoding_of_a_jpeg_between_its_scans() {
    let small = RgbImage::decode(&progressive_jpeg(16, 2), &Work::default()).unwrap();
    assert_eq!((small.width(), small.height()), (16, 16));
    let file = progressive_jpeg(3000, 90);
    assert!(file.len() < 4096);
    let work = Work::new(&RunControl {
        cancel: None,
        deadline: Some(Instant::now() + Duration::from_millis(20)),
    });
    assert_eq!(RgbImage::decode(&file, &work), Err(MediaError::DeadlineExceeded));
}

#[test]
fn a_cancel_ends_decoding_on_another_thread() {
    let file = silence(4000);
    let token = CancelToken::new();
    let control = RunControl {
        cancel: Some(token.clone()),
        deadline: None,
    };
    let outcome = std::thread::scope(|scope| {
        let decoding = scope.spawn(|| Sound::decode(&file, &Work::new(&control)));
        std::thread::sleep(Duration::from_millis(20));
        token.request();
        decoding.join().unwrap()
    });
    assert_eq!(outcome, Err(MediaError::Cancelled));
}

#[test]
fn every_decoder_looks_whether_to_go_on() {
    for document in [include_str!("images.json"), include_str!("audio.json")] {
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        for case in document["files"].as_array().unwrap() {
            let digits = case["file"].as_str().unwrap();
            let file: Vec<u8> = (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
                .collect();
            let error = match case.get("size") {
                Some(_) => RgbImage::decode(&file, &over()).unwrap_err(),
                None => Sound::decode(&file, &over()).unwrap_err(),
            };
            assert_eq!(error, MediaError::Cancelled, "{}", case["name"]);
        }
    }
}

fn image_program(ops: Vec<ImageOp>) -> ImageProgram {
    let transforms = [ImageOp::Decode].into_iter().chain(ops);
    let transforms = transforms.map(|op| ImageTransform {
        op,
        inputs: None,
        outputs: None,
    });
    let output = ImageOutput {
        source: None,
        name: "m.x".to_owned(),
        content: Content::Pixels,
        dtype: DataType::Float32,
        pad_value: None,
    };
    ImageProgram::new(transforms.collect(), vec![output]).unwrap()
}

fn audio_program(ops: Vec<AudioOp>, content: AudioContent) -> AudioProgram {
    let transforms = [AudioOp::Decode].into_iter().chain(ops);
    let transforms = transforms.map(|op| AudioTransform {
        op,
        inputs: None,
        outputs: None,
    });
    let output = AudioOutput {
        source: None,
        name: "m.x".to_owned(),
        content,
        dtype: DataType::Float32,
    };
    AudioProgram::new(transforms.collect(), vec![output]).unwrap()
}

fn patchify(size: usize, frames: usize) -> ImageOp {
    ImageOp::Patchify(Patchify {
        size,
        frames,
        merge: 1,
        features: FeatureOrder::ChannelsFirst,
        order: PatchOrder::Raster,
        xy: false,
        flatten: true,
    })
}

#[test]
fn every_transform_looks_whether_to_go_on() {
    let image = RgbImage::from_raw(64, 64, &[9; 64 * 64 * 3]).unwrap();
    for filter in [Filter::Nearest, Filter::Bicubic] {
        let resized = image.resize(300, 300, filter, &over());
        assert_eq!(resized.unwrap_err(), MediaError::Cancelled);
    }
    let program = image_program(vec![ImageOp::Rescale { scale: 0.5 }, patchify(8, 1)]);
    assert_eq!(
        program.prepare(&image, &over()).unwrap_err(),
        MediaError::Cancelled
    );
    let prepared = program.prepare(&image, &Work::default()).unwrap();
    let tensors = program.combine(&[&prepared], &[], &over());
    assert_eq!(tensors.unwrap_err(), MediaError::Cancelled);
    let samples = vec![0.5; 100_000];
    assert_eq!(
        Sound::from_raw(8000, 1, &samples, &over()),
        Err(MediaError::Cancelled)
    );
    let sound = Sound::from_raw(8000, 1, &samples, &Work::default()).unwrap();
    let program = audio_program(vec![AudioOp::Resample { rate: 7999 }], AudioContent::Waveform);
    assert_eq!(program.run(&sound, &[], &over()), Err(MediaError::Cancelled));
}

#[test]
fn what_is_too_large_is_refused_before_it_is_made() {
    let refused = |error: MediaError| {
        assert!(matches!(error, MediaError::TooLarge { .. }), "{error}");
        assert!(error.to_string().contains("the most is"), "{error}");
    };
    let image = RgbImage::from_raw(8, 8, &[9; 8 * 8 * 3]).unwrap();
    let large = 60_000;
    for op in [
        ImageOp::CenterCrop {
            width: large,
            height: large,
        },
        ImageOp::Resize {
            fit: Fit::Pad {
                width: large,
                height: large,
                value: 0,
            },
            filter: Filter::Nearest,
        },
        ImageOp::Resize {
            fit: Fit::ShortestEdge { edge: large },
            filter: Filter::Bicubic,
        },
        ImageOp::Tile(Tiling {
            size: 4000,
            most: 1024,
            mode: TilingMode::Grid {
                columns: 64,
                rows: 64,
            },
            thumbnail: Thumbnail::None,
            thumbnail_filter: Filter::Nearest,
            filter: Filter::Nearest,
        }),
    ] {
        refused(
            image_program(vec![op])
                .prepare(&image, &Work::default())
                .unwrap_err(),
        );
    }
    // 4096 rows of 82 tiles of one pixel, each of which is little.
    let one_pixel = ImageOp::Tile(Tiling {
        size: 1,
        most: 1024,
        mode: TilingMode::LongestEdge { longest: 4096 },
        thumbnail: Thumbnail::Append,
        thumbnail_filter: Filter::Nearest,
        filter: Filter::Nearest,
    });
    let tall = RgbImage::from_raw(2, 100, &[9; 2 * 100 * 3]).unwrap();
    let tiles = image_program(vec![one_pixel]);
    refused(tiles.prepare(&tall, &Work::default()).unwrap_err());
    // 3 * 2^30 numbers of one patch of 8 x 8.
    let frames = image_program(vec![patchify(8, 1 << 24)]);
    refused(frames.prepare(&image, &Work::default()).unwrap_err());
    for length in [1 << 24, usize::MAX] {
        let pad = ImageOp::Pad {
            length: Some(length),
            value: 0.0,
        };
        let program = image_program(vec![patchify(8, 1), pad]);
        let prepared = program.prepare(&image, &Work::default()).unwrap();
        let tensors = program.combine(&[&prepared], &[PortLayout::default()], &Work::default());
        refused(tensors.unwrap_err());
    }
    let sound = Sound::from_raw(16_000, 1, &[0.0; 64_000], &Work::default()).unwrap();
    let window = AudioOp::Window {
        length: usize::MAX,
        value: 0.0,
        cut: false,
        pad: true,
    };
    let program = audio_program(vec![window], AudioContent::Waveform);
    refused(program.run(&sound, &[], &Work::default()).unwrap_err());
    let mel = AudioOp::LogMel(LogMel {
        size: 400,
        hop: 1,
        bins: 1 << 20,
        rate: 16_000,
        highest: 8000.0,
        scale: MelScale::Slaney,
    });
    let program = audio_program(vec![mel], AudioContent::Features);
    refused(program.run(&sound, &[], &Work::default()).unwrap_err());
}
