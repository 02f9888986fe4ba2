//! Small files that declare or hide huge things: refused, or decoded without what nobody asked for, in
//! bounded memory and time. The allocator of this binary says how much was taken at once.

use oxpipe::media::audio::Sound;
use oxpipe::media::image::RgbImage;
use oxpipe::media::{MediaError, Work};

use super::peak;

/// CRC-32 of ISO 3309, as PNG has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// A zlib stream of `len` zeros: one literal and then copies of 258, one bit for the length and one for
/// the distance each, in blocks of dynamic codes would be smaller still; stored codes will do.
fn zeros(len: usize) -> Vec<u8> {
    // RFC 1951, fixed codes: literal 0 is 00110000, length 258 is 11000101, distance 1 is 00000.
    let mut bits: Vec<bool> = vec![true, true, false];
    let mut push = |code: u32, width: u32| {
        (0..width).rev().for_each(|bit| bits.push(code >> bit & 1 == 1));
    };
    push(0b0011_0000, 8);
    for _ in 0..len / 258 {
        push(0b1100_0101, 8);
        push(0, 5);
    }
    push(0, 7);
    let mut bytes = vec![0x78, 0x01];
    for byte in bits.chunks(8) {
        bytes.push(byte.iter().rev().fold(0, |all, &bit| all << 1 | u8::from(bit)));
    }
    let count = 1 + len / 258 * 258;
    // Adler-32 of zeros.
    let (a, b) = (1u32, (count % 65_521) as u32);
    bytes.extend((b << 16 | a).to_be_bytes());
    bytes
}

fn png(width: u32, height: u32, chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |name: &[u8; 4], data: &[u8]| {
        file.extend((data.len() as u32).to_be_bytes());
        let named = [&name[..], data].concat();
        file.extend(&named);
        file.extend(crc32(&named).to_be_bytes());
    };
    let sizes = [width.to_be_bytes(), height.to_be_bytes()].concat();
    // Eight bits of gray.
    chunk(b"IHDR", &[&sizes[..], &[8, 0, 0, 0, 0]].concat());
    for (name, data) in chunks {
        chunk(name, data);
    }
    chunk(b"IEND", &[]);
    file
}

/// Decodes, and says what at most was taken beyond what there was.
fn decode(file: &[u8]) -> (Result<RgbImage, MediaError>, usize) {
    peak::of(|| RgbImage::decode(file, &Work::default()))
}

const MEGABYTE: usize = 1 << 20;

#[test]
fn images_that_declare_more_than_can_be() {
    let ten = |head: &[u8]| [head, &[0; 64]].concat();
    let bmp = |width: i32, height: i32| {
        let mut file = b"BM".to_vec();
        file.extend([0, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0]);
        file.extend(width.to_le_bytes());
        file.extend(height.to_le_bytes());
        file.extend([1, 0, 24, 0]);
        file.extend([0; 64]);
        file
    };
    let jpeg = |width: u16, height: u16| {
        let mut file = vec![0xFF, 0xD8, 0xFF, 0xC0, 0, 11, 8];
        file.extend(height.to_be_bytes());
        file.extend(width.to_be_bytes());
        file.extend([1, 1, 0x11, 0]);
        file.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0, 0xFF, 0xD9]);
        file
    };
    // VP8X with a canvas of 2^24 on a side, and VP8L with 2^14.
    let webp = |chunk: &[u8]| {
        let mut file = b"RIFF".to_vec();
        file.extend((chunk.len() as u32 + 4).to_le_bytes());
        file.extend(b"WEBP");
        file.extend(chunk);
        file
    };
    let canvas = [&b"VP8X"[..], &[10, 0, 0, 0, 0, 0, 0, 0], &[0xFF; 6]].concat();
    let lossless = [&b"VP8L"[..], &[8, 0, 0, 0, 0x2F, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0]].concat();
    for (what, file) in [
        ("png", png(65_535, 65_535, &[(b"IDAT", zeros(1000))])),
        (
            "png",
            png(u32::MAX >> 1, u32::MAX >> 1, &[(b"IDAT", zeros(1000))]),
        ),
        ("png", png(1 << 31, 1, &[(b"IDAT", zeros(1000))])),
        ("bmp", bmp(65_535, 65_535)),
        ("bmp", bmp(i32::MAX, i32::MIN)),
        ("bmp", bmp(i32::MAX, 1)),
        ("jpeg", jpeg(65_535, 65_535)),
        ("webp", ten(&webp(&canvas))),
        ("webp", ten(&webp(&lossless))),
    ] {
        let (decoded, taken) = decode(&file);
        assert!(decoded.is_err(), "{what}");
        assert!(taken < 4 * MEGABYTE, "{what} took {taken} bytes");
    }
}

#[test]
fn pngs_with_bombs_beside_and_in_their_pixels() {
    let bomb = zeros(512 * MEGABYTE);
    assert!(bomb.len() < 4 * MEGABYTE);
    let pixels = zeros(258);
    let named = |extra: &[u8]| [extra, &bomb].concat();
    for (what, chunk) in [
        ("profile", (b"iCCP", named(b"name\0\0"))),
        ("text", (b"zTXt", named(b"Comment\0\0"))),
        ("text", (b"iTXt", named(b"XML:com.adobe.xmp\0\x01\0\0\0"))),
        ("pixels", (b"IDAT", bomb.clone())),
    ] {
        let file = png(10, 10, &[chunk, (b"IDAT", pixels.clone())]);
        let (_, taken) = decode(&file);
        // The note of how it was held is read from a text of at most so much.
        assert!(taken < 40 * MEGABYTE, "{what} took {taken} bytes");
    }
}

#[test]
fn sounds_that_declare_more_than_there_is() {
    let mut wav = b"RIFF\xFF\xFF\xFF\xFFWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    wav.extend(16_000u32.to_le_bytes());
    wav.extend(32_000u32.to_le_bytes());
    wav.extend(b"\x02\0\x10\0data\xFF\xFF\xFF\xFF\x01\0\x02\0");
    let mut flac = b"fLaC\x80\0\0\x22\xFF\xFF\xFF\xFF\0\0\0\0\0\0".to_vec();
    // 16,000 Hz, 8 channels, 16 bits, 2^36 - 1 samples.
    flac.extend([0x03, 0xE8, 0x0E, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
    flac.extend([0; 16]);
    // A comment of 2^32 - 1 bytes in a block of 2^24 - 1.
    let mut comments = b"fLaC\0\0\0\x22\x10\0\x10\0\0\0\0\0\0\0".to_vec();
    comments.extend([0x03, 0xE8, 0x00, 0xF0, 0, 0, 0, 0]);
    comments.extend([0; 16]);
    comments.extend([
        0x84, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
    ]);
    // An MP3 whose ID3 tag is 256 MB, and one whose Xing header counts 2^32 - 1 frames.
    let tagged = b"ID3\x04\0\0\x7F\x7F\x7F\x7F\0\0\0\0".to_vec();
    let mut xing = vec![0xFF, 0xFB, 0x90, 0x00];
    xing.extend([0; 32]);
    xing.extend(b"Xing\0\0\0\x01\xFF\xFF\xFF\xFF");
    xing.resize(417, 0);
    xing.extend(xing.clone());
    for (what, file) in [
        ("wav", wav),
        ("flac", flac),
        ("flac comments", comments),
        ("mp3 tag", tagged),
        ("mp3 frames", xing),
    ] {
        let (decoded, taken) = peak::of(|| Sound::decode(&file, &Work::default()));
        assert!(taken < 4 * MEGABYTE, "{what} took {taken} bytes");
        if let Ok(sound) = decoded {
            assert!(sound.samples().len() < 5000, "{what}");
        }
    }
}
