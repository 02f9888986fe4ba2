//! ImageDecoder against Pillow, on native_images/ (write.py there), and on images that lie: cut
//! off anywhere, with bytes that are not theirs, and with headers that promise pixels without end.
//!
//! The allocator of this test refuses what is absurdly large, which ends the process where memory
//! is taken without a way to refuse.
#![cfg(feature = "native")]

use std::path::PathBuf;
use std::sync::Arc;

use oxpipe::component::ModelSource;
use oxpipe::native::tensor::Tensor;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::bounded_allocator::Bounded;
use oxpipe_test_support::onnx_writer::{Model, Node};

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

const UINT8: i32 = 2;

struct Decoder(NativeSession);

impl Decoder {
    fn new(format: &str) -> Self {
        let node = Node::new("ImageDecoder", &["encoded"], &["image"]).string("pixel_format", format);
        let model = Model::new()
            .ir_version(10)
            .opset("", 20)
            .input("encoded", UINT8, "[bytes]")
            .output("image", UINT8, "[height, width, channels]")
            .node(node);
        let source = ModelSource::Memory {
            label: "test".into(),
            model: Arc::new(model.encode()),
            external: Vec::new(),
        };
        Decoder(NativeSession::load("", &source, &NativeOptions::default()).unwrap())
    }

    fn decode(&mut self, encoded: &[u8]) -> (Vec<usize>, Vec<u8>) {
        let encoded = Tensor::from_slice(&[encoded.len()], encoded).unwrap();
        let inputs = [("encoded", encoded.view())];
        let image = self.0.run_tensors(&inputs, &["image"]).unwrap().remove(0);
        (
            image.dims().to_vec(),
            image.view().slice::<u8>().unwrap().to_vec(),
        )
    }
}

struct Image {
    name: String,
    encoded: Vec<u8>,
    dims: [usize; 2],
    rgb: Vec<u8>,
    gray: Vec<u8>,
}

fn images() -> Vec<Image> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/native_images");
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        let pairs = digits.map(|pair| str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let expected = std::fs::read_to_string(folder.join("expected.txt")).unwrap();
    let image = |line: &str| {
        let [name, height, width, rgb, gray] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        Image {
            name: name.to_owned(),
            encoded: std::fs::read(folder.join(name)).unwrap(),
            dims: [height.parse().unwrap(), width.parse().unwrap()],
            rgb: bytes(rgb),
            gray: bytes(gray),
        }
    };
    expected.lines().map(image).collect()
}

fn assert_close(found: &(Vec<usize>, Vec<u8>), dims: &[usize], expected: &[u8], by: u8, name: &str) {
    assert_eq!(found.0, dims, "{name}");
    let differences = found.1.iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
    let largest = differences.max().unwrap();
    assert!(largest <= by, "{name}: a sample is {largest} off");
}

#[test]
fn images_are_what_pillow_decodes_them_to() {
    let [mut rgb, mut bgr, mut gray] = ["RGB", "BGR", "Grayscale"].map(Decoder::new);
    for image in images() {
        let [height, width] = image.dims;
        // Decoders of JPEG may round and interpolate as they like.
        let by = if image.name.ends_with(".jpg") { 3 } else { 0 };
        let swapped: Vec<u8> = image.rgb.chunks(3).flat_map(|c| [c[2], c[1], c[0]]).collect();
        let check = |decoder: &mut Decoder, channels, expected: &[u8]| {
            let found = decoder.decode(&image.encoded);
            assert_close(&found, &[height, width, channels], expected, by, &image.name);
        };
        check(&mut rgb, 3, &image.rgb);
        check(&mut bgr, 3, &swapped);
        check(&mut gray, 1, &image.gray);
    }
}

#[test]
fn what_is_no_image_gives_an_empty_one() {
    for (format, channels) in [("RGB", 3), ("BGR", 3), ("Grayscale", 1)] {
        let mut decoder = Decoder::new(format);
        for encoded in [&b""[..], b"P", b"GIF89a, which is not on the list", &[0; 100]] {
            assert_eq!(decoder.decode(encoded), (vec![0, 0, channels], vec![]));
        }
    }
}

#[test]
fn images_that_are_cut_off_or_damaged_decode_or_do_not() {
    let mut decoder = Decoder::new("RGB");
    let mut state = 1u64;
    let mut random = |end: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % end
    };
    for image in images() {
        for end in 0..image.encoded.len() {
            decoder.decode(&image.encoded[..end]);
        }
        for _ in 0..200 {
            let mut damaged = image.encoded.clone();
            for _ in 0..=random(3) {
                let at = random(damaged.len());
                damaged[at] = [0, 255, damaged[at] ^ (1 << random(8)), random(256) as u8][random(4)];
            }
            decoder.decode(&damaged);
        }
    }
}

/// The image with other bytes at some places.
fn patched(name: &str, patches: &[(usize, &[u8])]) -> Vec<u8> {
    let image = images().into_iter().find(|image| image.name == name).unwrap();
    let mut encoded = image.encoded;
    for (at, bytes) in patches {
        encoded[*at..][..bytes.len()].copy_from_slice(bytes);
    }
    encoded
}

#[test]
fn headers_that_promise_too_much_get_nothing() {
    let mut decoder = Decoder::new("RGB");
    // Where the marker SOF0 or SOF2 is: height and width, of 2 bytes each, are 5 behind it.
    let frame = |name: &str| {
        let encoded = patched(name, &[]);
        let at = encoded
            .windows(2)
            .position(|pair| matches!(pair, [0xff, 0xc0 | 0xc2]));
        at.unwrap() + 5
    };
    let large = &[0xff; 4][..];
    for encoded in [
        patched("420.jpg", &[(frame("420.jpg"), large)]),
        patched("progressive.jpg", &[(frame("progressive.jpg"), large)]),
        patched(
            "rgb.bmp",
            &[(18, &[0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f])],
        ),
        patched("rgb.bmp", &[(18, &[0, 0x80, 0, 0, 0, 0x80, 0, 0])]),
        // The header's checksum is behind it.
        patched(
            "rgb.png",
            &[
                (16, &[0, 0, 0x80, 0, 0, 0, 0x80, 0]),
                (29, &[0x4b, 0x1e, 0x34, 0x28]),
            ],
        ),
        b"P6 4000000000 4000000000 255 ".to_vec(),
        b"P6 65536 65536 255 abc".to_vec(),
        b"P4 99999999999999999999 1 ".to_vec(),
        b"P7\nWIDTH 100000\nHEIGHT 100000\nDEPTH 4\nMAXVAL 65535\nTUPLTYPE RGB_ALPHA\nENDHDR\n".to_vec(),
        // VP8L: 14 bits each of width - 1 and height - 1.
        patched("lossless.webp", &[(21, &[0xff, 0xff, 0xff, 0x0f])]),
    ] {
        assert_eq!(decoder.decode(&encoded), (vec![0, 0, 3], vec![]));
    }
    // Larger than what is there, but not too large to try.
    for encoded in [
        patched("420.jpg", &[(frame("420.jpg"), &[16, 0, 16, 0])]),
        patched("progressive.jpg", &[(frame("progressive.jpg"), &[16, 0, 16, 0])]),
        b"P6 4096 4096 255 abc".to_vec(),
    ] {
        decoder.decode(&encoded);
    }
}
