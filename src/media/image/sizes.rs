//! The sizes that images are resized to.

use crate::media::MediaError;

/// Width and height when the shorter side becomes `edge`; the longer one is
/// `floor(edge * longer / shorter)`, as transformers' `get_resize_output_image_size` has it.
pub(super) fn shortest_edge(width: usize, height: usize, edge: usize) -> (usize, usize) {
    let longer = |long: usize, short: usize| (edge as f64 * long as f64 / short as f64) as usize;
    match width <= height {
        true => (edge, longer(height, width)),
        false => (longer(width, height), edge),
    }
}

/// The largest size of the image's proportions inside of `width` x `height`, as Pillow's
/// `ImageOps.contain` has it.
pub(super) fn contained(size: (usize, usize), within: (usize, usize)) -> (usize, usize) {
    let (width, height) = (size.0 as f64, size.1 as f64);
    let (most_wide, most_high) = (within.0 as f64, within.1 as f64);
    let (ratio, wanted) = (width / height, most_wide / most_high);
    let whole = |value: f64| (value.round_ties_even() as usize).max(1);
    if ratio > wanted {
        (within.0, whole(height / width * most_wide))
    } else if ratio < wanted {
        (whole(width / height * most_high), within.1)
    } else {
        within
    }
}

/// The smallest size of the image's proportions that covers `width` x `height`; for a square one
/// the same as [`shortest_edge`].
pub(super) fn covering(size: (usize, usize), over: (usize, usize)) -> (usize, usize) {
    if over.0 == over.1 {
        return shortest_edge(size.0, size.1, over.0);
    }
    // Which side is reached first, without dividing.
    let by_width = over.0 as u128 * size.1 as u128 >= over.1 as u128 * size.0 as u128;
    match by_width {
        true => {
            let height = (over.0 as f64 * size.1 as f64 / size.0 as f64) as usize;
            (over.0, height.max(over.1))
        }
        false => {
            let width = (over.1 as f64 * size.0 as f64 / size.1 as f64) as usize;
            (width.max(over.0), over.1)
        }
    }
}

/// Both sides multiples of `multiple`, the area within the limits, the proportions about the
/// same: `smart_resize` of transformers' Qwen2VLImageProcessor.
pub(super) fn pixel_area(
    (width, height): (usize, usize),
    least: u64,
    most: u64,
    multiple: usize,
) -> Result<(usize, usize), MediaError> {
    let (w, h, unit) = (width as f64, height as f64, multiple as f64);
    check_proportions(width, height)?;
    let rounded = |side: f64| (side / unit).round_ties_even() * unit;
    let (mut wide, mut high) = (rounded(w), rounded(h));
    if wide * high > most as f64 {
        let shrink = (w * h / most as f64).sqrt();
        let floor = |side: f64| ((side / shrink / unit).floor() * unit).max(unit);
        (wide, high) = (floor(w), floor(h));
    } else if wide * high < least as f64 {
        let grow = (least as f64 / (w * h)).sqrt();
        let ceil = |side: f64| (side * grow / unit).ceil() * unit;
        (wide, high) = (ceil(w), ceil(h));
    }
    Ok((wide as usize, high as usize))
}

/// The same as onnxruntime-extensions' `Resize` does it: halves are rounded up, neither side is less than
/// one multiple before the area is looked at, and sides are cut to whole pixels before they are
/// rounded again.
pub(super) fn smart_resize(
    (width, height): (usize, usize),
    least: u64,
    most: u64,
    multiple: usize,
) -> Result<(usize, usize), MediaError> {
    check_proportions(width, height)?;
    let (w, h, unit) = (width as f64, height as f64, multiple as f64);
    let rounded = |side: f64| ((side / unit).round() * unit).max(unit);
    let (mut wide, mut high) = (rounded(w), rounded(h));
    if wide * high > most as f64 {
        let shrink = (w * h / most as f64).sqrt();
        let floor = |side: f64| ((side / shrink).trunc() / unit).floor() * unit;
        (wide, high) = (floor(w), floor(h));
    } else if wide * high < least as f64 {
        let grow = (least as f64 / (w * h)).sqrt();
        let ceil = |side: f64| ((side * grow).trunc() / unit).ceil() * unit;
        (wide, high) = (ceil(w), ceil(h));
    }
    match wide > 0.0 && high > 0.0 {
        true => Ok((wide as usize, high as usize)),
        false => Err(MediaError::unfit(format!(
            "{width} x {height} has no multiples of {multiple} with so few pixels as {most}"
        ))),
    }
}

fn check_proportions(width: usize, height: usize) -> Result<(), MediaError> {
    let (long, short) = (width.max(height), width.min(height));
    match long as f64 / short as f64 > 200.0 {
        true => Err(MediaError::unfit(format!(
            "an image of {width} x {height} is more than 200 times as long as it is wide"
        ))),
        false => Ok(()),
    }
}

/// The longest side that [`longest_edge`] makes, whatever is asked for.
const MOST_LONGEST: usize = 4096;

/// The longer side becomes `edge`, 4096 at most, and the shorter one even where it was not bounded:
/// `get_resize_output_image_size` of transformers' Idefics3ImageProcessor.
pub(super) fn longest_edge((width, height): (usize, usize), edge: usize) -> (usize, usize) {
    let even = |side: f64| {
        let side = side as usize;
        (side + side % 2).max(1)
    };
    let ratio = width as f64 / height as f64;
    let (wide, high) = match width >= height {
        true => (edge, even(edge as f64 / ratio)),
        false => (even(edge as f64 * ratio), edge),
    };
    let ratio = wide as f64 / high as f64;
    let most = MOST_LONGEST as f64;
    if wide >= high && wide > MOST_LONGEST {
        (MOST_LONGEST, ((most / ratio) as usize).max(1))
    } else if high > wide && high > MOST_LONGEST {
        (((most * ratio) as usize).max(1), MOST_LONGEST)
    } else {
        (wide, high)
    }
}

/// Multiples of `unit`, the longer side first and the shorter one by the proportions:
/// `resize_for_vision_encoder` of the same.
pub(super) fn multiples((width, height): (usize, usize), unit: usize) -> (usize, usize) {
    let up = |side: usize| side.div_ceil(unit) * unit;
    let ratio = width as f64 / height as f64;
    match width >= height {
        true => {
            let wide = up(width);
            (wide, up((wide as f64 / ratio) as usize))
        }
        false => {
            let high = up(height);
            (up((high as f64 * ratio) as usize), high)
        }
    }
}

/// As large as `most` patches allow, both sides multiples of what one pooled token covers:
/// `get_aspect_ratio_preserving_size` of transformers' Gemma4ImageProcessor.
pub(super) fn patch_budget(
    (width, height): (usize, usize),
    patch: usize,
    most: usize,
    pooling: usize,
) -> Result<(usize, usize), MediaError> {
    let unit = patch as f64 * pooling as f64;
    let area = most as f64 * patch as f64 * patch as f64;
    let (w, h) = (width as f64, height as f64);
    let factor = (area / (w * h)).sqrt();
    let sides = |side: f64| (side * factor / unit).floor() * unit;
    let (mut wide, mut high) = (sides(w), sides(h));
    let longest = (most / (pooling * pooling)) as f64 * unit;
    match (wide == 0.0, high == 0.0) {
        (true, true) => {
            return Err(MediaError::unfit(format!(
                "{most} patches of {patch} pixels are not one pooled token of {pooling} x {pooling}"
            )));
        }
        (false, true) => (wide, high) = (((w / h).floor() * unit).min(longest), unit),
        (true, false) => (wide, high) = (unit, ((h / w).floor() * unit).min(longest)),
        (false, false) => {}
    }
    match wide * high <= area && wide > 0.0 && high > 0.0 {
        true => Ok((wide as usize, high as usize)),
        false => Err(MediaError::unfit(format!(
            "an image of {width} x {height} does not fit into {most} patches of {patch} pixels"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of results of onnxruntime-extensions 0.15.2, with patches of 14 and 2 of them merged.
    #[test]
    fn sizes_of_extensions() {
        for (size, least, expected) in [
            ((100, 100), 12_600, (112, 112)),
            ((1000, 10), 3136, (1008, 28)),
            ((10, 1000), 3136, (28, 1008)),
            ((30, 30), 3136, (56, 56)),
        ] {
            let sides = smart_resize(size, least, 10_000_000, 28);
            assert_eq!(sides, Ok(expected), "{size:?}");
        }
        assert!(smart_resize((1000, 10), 1, 20_000, 28).is_err());
        assert!(smart_resize((1001, 5), 1, 20_000, 28).is_err());
    }
}
