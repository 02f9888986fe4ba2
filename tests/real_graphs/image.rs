//! Text in pictures (rapidocr): detector, orientation classifier, recogniser, on pictures of
//! printed text that are drawn here (the package ships none).

use super::harness::*;

/// Capital letters, 5 by 7 dots, a byte for each row.
const FONT: [(char, [u8; 7]); 12] = [
    ('A', [0x0E, 0x11, 0x11, 0x1F, 0x11, 0x11, 0x11]),
    ('E', [0x1F, 0x10, 0x10, 0x1E, 0x10, 0x10, 0x1F]),
    ('H', [0x11, 0x11, 0x11, 0x1F, 0x11, 0x11, 0x11]),
    ('I', [0x0E, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0E]),
    ('L', [0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x1F]),
    ('N', [0x11, 0x19, 0x15, 0x15, 0x13, 0x11, 0x11]),
    ('O', [0x0E, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0E]),
    ('P', [0x1E, 0x11, 0x11, 0x1E, 0x10, 0x10, 0x10]),
    ('R', [0x1E, 0x11, 0x11, 0x1E, 0x14, 0x12, 0x11]),
    ('S', [0x0F, 0x10, 0x10, 0x0E, 0x01, 0x01, 0x1E]),
    ('T', [0x1F, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04]),
    (' ', [0; 7]),
];

/// Dark text on a light page, as the models take it: [1, 3, height, width], each channel
/// (v - 0.5) / 0.5.
fn page(width: usize, height: usize, lines: &[(usize, usize, usize, &str)]) -> Vec<f32> {
    let mut grey = vec![0.9f32; width * height];
    for &(left, top, scale, text) in lines {
        for (index, letter) in text.chars().enumerate() {
            let (_, rows) = FONT
                .iter()
                .find(|(known, _)| *known == letter)
                .expect("a letter of the font");
            for y in 0..7 * scale {
                for x in 0..5 * scale {
                    let is_ink = rows[y / scale] >> (4 - x / scale) & 1 == 1;
                    let at = (top + y) * width + left + index * 6 * scale + x;
                    if is_ink && left + index * 6 * scale + x < width {
                        grey[at] = 0.1;
                    }
                }
            }
        }
    }
    let channel: Vec<f32> = grey.iter().map(|value| (value - 0.5) / 0.5).collect();
    channel.repeat(3)
}

#[test]
fn detector() {
    let (width, height) = (256, 160);
    let lines = [
        (20, 20, 3, "PARIS"),
        (30, 60, 2, "THE RAIN"),
        (16, 110, 4, "ONION"),
    ];
    let page = page(width, height, &lines);
    let mut graph = Graph::open("rapidocr/PP-OCRv6_det_small.onnx");
    let both = graph.run(&[("x", floats(&[1, 3, height as i64, width as i64], &page))]);
    let map = values(&both.native[0]);
    let inked = map.iter().filter(|&&value| value > 0.3).count();
    println!("{inked} of {} points are text", map.len());
    assert!(inked > 500 && inked < map.len() / 2, "{inked} points are text");
}

#[test]
fn classifier() {
    let page = page(192, 48, &[(10, 10, 4, "PARIS")]);
    let mut graph = Graph::open("rapidocr/ch_ppocr_mobile_v2.0_cls_mobile.onnx");
    let upright = values(&graph.run(&[("x", floats(&[1, 3, 48, 192], &page))]).native[0]);
    assert!(upright[0] > upright[1], "{upright:?}: not taken for upright");
    let turned: Vec<f32> = page
        .chunks(48 * 192)
        .flat_map(|plane| plane.iter().rev().copied())
        .collect();
    let turned = values(&graph.run(&[("x", floats(&[1, 3, 48, 192], &turned))]).native[0]);
    assert!(turned[1] > turned[0], "{turned:?}: not taken for turned");
}

#[test]
fn recogniser() {
    let page = page(320, 48, &[(12, 6, 5, "THE RAIN")]);
    let mut graph = Graph::open("rapidocr/PP-OCRv6_rec_small.onnx");
    let both = graph.run(&[("x", floats(&[1, 3, 48, 320], &page))]);
    let classes = both.native[0].shape()[2] as usize;
    let best = |tensor| -> Vec<usize> {
        values(tensor)
            .chunks(classes)
            .map(|row| (0..classes).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap())
            .collect()
    };
    let found = best(&both.native[0]);
    assert_eq!(found, best(&both.ort[0]));
    // The blank is class 0; eight signs, or seven where the space is not seen.
    let signs = found
        .windows(2)
        .filter(|pair| pair[1] != 0 && pair[0] != pair[1])
        .count();
    println!("{found:?}");
    assert!((6..=9).contains(&signs), "{signs} signs in {found:?}");
}
