//! How the camera was held, by what a file notes beside its image.
//!
//! Pillow's `ImageOps.exif_transpose` is followed: the tag Orientation (0x0112) of the first
//! directory of the Exif data (CIPA DC-008, a TIFF file; Adobe, "TIFF Revision 6.0"), and without
//! such a tag `tiff:Orientation` of the XMP packet. Of a JPEG these are its APP1 segments, of a PNG
//! the chunks "eXIf" and an uncompressed "iTXt" by the keyword XML:com.adobe.xmp, of a WebP the
//! chunks "EXIF" and "XMP ". Of several notes of a kind that one counts which counts in Pillow 12 and 13: the
//! last of a PNG, the last XMP and the first Exif data of a JPEG, the first of a WebP. ImageMagick's
//! "Raw profile type exif" of a PNG is not read, which Pillow reads. Nothing is copied, and lengths that the file does not have are not
//! believed.

use crate::media::{MediaError, Work};

/// 1 to 8; 1 is upright.
pub(super) type Orientation = u8;

/// The notes of a file.
#[derive(Clone, Copy, Default)]
struct Notes<'a> {
    exif: Option<&'a [u8]>,
    xmp: Option<&'a [u8]>,
}

impl<'a> Notes<'a> {
    /// The first counts.
    fn first_exif(&mut self, exif: &'a [u8]) {
        self.exif.get_or_insert(exif);
    }

    /// The first counts.
    fn first_xmp(&mut self, xmp: &'a [u8]) {
        self.xmp.get_or_insert(xmp);
    }

    fn orientation(self, work: &Work) -> Result<Orientation, MediaError> {
        if let Some(noted) = self.exif.and_then(of_exif) {
            return Ok(noted);
        }
        let noted = self.xmp.map(|xmp| of_xmp(xmp, work)).transpose()?;
        Ok(noted.flatten().unwrap_or(1))
    }
}

const EXIF_HEADER: &[u8] = b"Exif\0\0";

pub(super) fn of_jpeg(file: &[u8], work: &Work) -> Result<Orientation, MediaError> {
    const XMP_HEADER: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
    let mut notes = Notes::default();
    let mut rest = file.get(2..).unwrap_or_default();
    // Up to the first scan.
    while let [0xFF, marker, high, low, ..] = *rest {
        if matches!(marker, 0xD9 | 0xDA) {
            break;
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some(body) = rest.get(4..2 + length) else {
            break;
        };
        if marker == 0xE1 {
            if body.starts_with(EXIF_HEADER) {
                notes.first_exif(body);
            } else if let Some(xmp) = body.strip_prefix(XMP_HEADER) {
                notes.xmp = Some(xmp);
            }
        }
        rest = rest.get(2 + length..).unwrap_or_default();
        // Bytes between segments are skipped, as decoders do.
        let next = rest.iter().position(|&byte| byte == 0xFF).unwrap_or(rest.len());
        rest = rest.get(next..).unwrap_or_default();
        while let [0xFF, 0xFF, ..] = rest {
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    notes.orientation(work)
}

pub(super) fn of_png(file: &[u8], work: &Work) -> Result<Orientation, MediaError> {
    let mut notes = Notes::default();
    let mut rest = file.get(8..).unwrap_or_default();
    while let Some((&[a, b, c, d, ref name @ ..], tail)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some(body) = tail.get(..length) else { break };
        match name {
            b"eXIf" => notes.exif = Some(body),
            b"iTXt" => {
                // Keyword, 0, not compressed, method, language, 0, translated keyword, 0, text.
                if let Some(text) = body.strip_prefix(b"XML:com.adobe.xmp\0\0") {
                    notes.xmp = Some(text);
                }
            }
            b"IEND" => break,
            _ => {}
        }
        rest = tail.get(length + 4..).unwrap_or_default();
    }
    notes.orientation(work)
}

pub(super) fn of_webp(file: &[u8], work: &Work) -> Result<Orientation, MediaError> {
    let mut notes = Notes::default();
    let mut rest = file.get(12..).unwrap_or_default();
    while let Some((&[ref name @ .., a, b, c, d], tail)) = rest.split_first_chunk::<8>() {
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let Some(body) = tail.get(..length) else { break };
        match name {
            b"EXIF" => notes.first_exif(body),
            b"XMP " => notes.first_xmp(body),
            _ => {}
        }
        rest = tail.get(length + length % 2..).unwrap_or_default();
    }
    notes.orientation(work)
}

fn of_exif(exif: &[u8]) -> Option<Orientation> {
    const TAG: u16 = 0x0112;
    const ENTRY: usize = 12;
    let tiff = exif.strip_prefix(EXIF_HEADER).unwrap_or(exif);
    let big = match tiff {
        [b'M', b'M', 0, 42, ..] => true,
        [b'I', b'I', 42, 0, ..] => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = tiff.get(at..)?.first_chunk::<2>()?;
        Some(match big {
            true => u16::from_be_bytes(*bytes),
            false => u16::from_le_bytes(*bytes),
        })
    };
    let long = |at: usize| {
        let bytes = tiff.get(at..)?.first_chunk::<4>()?;
        Some(match big {
            true => u32::from_be_bytes(*bytes),
            false => u32::from_le_bytes(*bytes),
        })
    };
    let directory = usize::try_from(long(4)?).ok()?;
    let count = usize::from(short(directory)?);
    let first = directory.checked_add(2)?;
    let entry = (0..count)
        .map(|index| first.saturating_add(index * ENTRY))
        .find(|&entry| short(entry) == Some(TAG))?;
    let value = match (short(entry + 2)?, long(entry + 4)?) {
        // One BYTE, SHORT or LONG lies in the entry itself.
        (1, 1) => u32::from(*tiff.get(entry + 8)?),
        (3, 1) => short(entry + 8)?.into(),
        (4, 1) => long(entry + 8)?,
        _ => return None,
    };
    // The tag is there, whatever it says.
    Some(valid(value))
}

fn of_xmp(xmp: &[u8], work: &Work) -> Result<Option<Orientation>, MediaError> {
    const NAME: &[u8] = b"tiff:Orientation";
    let mut rest = xmp;
    loop {
        let Some(at) = work.position(rest, NAME.len(), |window| window == NAME)? else {
            return Ok(None);
        };
        rest = rest.get(at + NAME.len()..).unwrap_or_default();
        if let [b'=', b'"', digit @ b'0'..=b'9', ..] | [b'>', digit @ b'0'..=b'9', ..] = rest {
            return Ok(Some(valid(u32::from(digit - b'0'))));
        }
    }
}

fn valid(value: u32) -> Orientation {
    match value {
        2..=8 => value as u8,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(big: bool, entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let short = |value: u16| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let long = |value: u32| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let mut bytes = if big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        bytes.extend(long(8));
        bytes.extend(short(entries.len() as u16));
        for &(tag, kind, value) in entries {
            bytes.extend(short(tag));
            bytes.extend(short(kind));
            bytes.extend(long(1));
            match kind {
                1 => bytes.extend([value as u8, 0, 0, 0]),
                3 => bytes.extend([short(value as u16), [0; 2]].concat()),
                _ => bytes.extend(long(value)),
            }
        }
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn the_tag_is_found_in_either_byte_order_and_in_every_integer_type() {
        for big in [false, true] {
            for kind in [1, 3, 4] {
                let bytes = exif(big, &[(0x0100, 4, 9), (0x0112, kind, 6)]);
                assert_eq!(of_exif(&bytes), Some(6));
                assert_eq!(of_exif(&[EXIF_HEADER, &bytes].concat()), Some(6));
                // Cut anywhere, there is an answer.
                for end in 0..bytes.len() {
                    let _ = of_exif(&bytes[..end]);
                }
            }
            assert_eq!(of_exif(&exif(big, &[(0x0112, 3, 9)])), Some(1));
            assert_eq!(of_exif(&exif(big, &[(0x0100, 3, 6)])), None);
        }
        let mut far = exif(true, &[(0x0112, 3, 6)]);
        far[4..8].copy_from_slice(&[0xFF; 4]);
        assert_eq!(of_exif(&far), None);
    }

    /// Pillow 13 keeps the last XMP packet of a JPEG, and both notes that are last in a PNG.
    #[test]
    fn of_several_notes_that_of_pillow_counts() {
        let work = Work::default();
        let xmp = |digit: char| format!("<x tiff:Orientation=\"{digit}\"/>").into_bytes();
        let segment = |header: &[u8], body: &[u8]| {
            let length = (2 + header.len() + body.len()) as u16;
            [&[0xFF, 0xE1], &length.to_be_bytes()[..], header, body].concat()
        };
        let in_jpeg = |digit| segment(b"http://ns.adobe.com/xap/1.0/\0", &xmp(digit));
        let jpeg = [&[0xFF, 0xD8], &in_jpeg('6')[..], &in_jpeg('3')].concat();
        assert_eq!(of_jpeg(&jpeg, &work), Ok(3));
        let turned = |value| exif(true, &[(0x0112, 3, value)]);
        let exif_of = |value| segment(EXIF_HEADER, &turned(value));
        let jpeg = [&[0xFF, 0xD8], &exif_of(6)[..], &exif_of(3)].concat();
        assert_eq!(of_jpeg(&jpeg, &work), Ok(6));
        let chunk =
            |name: &[u8], body: &[u8]| [&(body.len() as u32).to_be_bytes()[..], name, body, &[0; 4]].concat();
        let png = [
            &[0; 8],
            &chunk(b"eXIf", &turned(6))[..],
            &chunk(b"eXIf", &turned(3)),
        ]
        .concat();
        assert_eq!(of_png(&png, &work), Ok(3));
        let text = |digit| [&b"XML:com.adobe.xmp\0\0\0\0\0"[..], &xmp(digit)].concat();
        let png = [
            &[0; 8],
            &chunk(b"iTXt", &text('6'))[..],
            &chunk(b"iTXt", &text('8')),
        ]
        .concat();
        assert_eq!(of_png(&png, &work), Ok(8));
    }

    #[test]
    fn xmp_counts_where_exif_has_no_such_tag() {
        let xmp = b"<x tiff:Orientation='x' tiff:Orientation=\"8\"/>";
        let work = Work::default();
        assert_eq!(of_xmp(xmp, &work).unwrap(), Some(8));
        assert_eq!(
            of_xmp(b"<tiff:Orientation>3</tiff:Orientation>", &work).unwrap(),
            Some(3)
        );
        assert_eq!(of_xmp(b"tiff:Orientation", &work).unwrap(), None);
        let webp = |chunks: &[(&[u8; 4], &[u8])]| {
            let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
            for (name, body) in chunks {
                file.extend(*name);
                file.extend((body.len() as u32).to_le_bytes());
                file.extend(*body);
                file.extend(&[0][..body.len() % 2]);
            }
            file
        };
        let plain = exif(false, &[(0x0100, 3, 1)]);
        let turned = exif(false, &[(0x0112, 3, 5)]);
        assert_eq!(
            of_webp(&webp(&[(b"XMP ", xmp), (b"EXIF", &plain)]), &work).unwrap(),
            8
        );
        assert_eq!(
            of_webp(&webp(&[(b"XMP ", xmp), (b"EXIF", &turned)]), &work).unwrap(),
            5
        );
        assert_eq!(of_webp(&webp(&[]), &work).unwrap(), 1);
        // 4 GiB of notes are not there.
        let mut claim = webp(&[(b"EXIF", &turned)]);
        claim[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(of_webp(&claim, &work).unwrap(), 1);
    }
}
