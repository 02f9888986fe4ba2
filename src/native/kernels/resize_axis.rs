//! Resize along one axis: which elements of X an element of Y is made of, and their weights.
//!
//! Position o of the result lies at x of the input, with s the scale, n and m the sizes of
//! input and result, and [b, e] the region of interest:
//!
//!   half_pixel            (o + 1/2) / s - 1/2
//!   half_pixel_symmetric  the same, shifted by n/2 (1 - m / (n s)): the centres coincide
//!   pytorch_half_pixel    the same as half_pixel, 0 for m = 1
//!   align_corners         o (n - 1) / (m - 1), 0 for m = 1
//!   asymmetric            o / s
//!   tf_half_pixel_for_nn  (o + 1/2) / s
//!   tf_crop_and_resize    b (n - 1) + o (e - b) (n - 1) / (m - 1), (b + e) (n - 1) / 2 for m = 1
//!
//! linear weighs the 2 elements around x by 1 - |distance|, cubic the 4 around by Keys' cubic
//! of coefficient a. With antialias and s < 1, distances shrink by s and more elements take part.
//! Elements outside X are those at its ends, or have no part with exclude_outside; weights sum
//! to 1. Coordinates are computed in f32, as ONNX Runtime does.

use crate::native::node::NodeInfo;
use crate::native::operator::OpError;
use crate::native::working::Working;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNn,
    TfCropAndResize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nearest {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
    /// Ceil when it gets smaller, else floor: the rule of version 10 and of Upsample.
    Simple,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Nearest(Nearest),
    Linear,
    /// With coefficient a.
    Cubic(f32),
}

fn invalid(name: &str, found: &str) -> OpError {
    OpError::Attribute {
        name: name.into(),
        message: format!("is \"{found}\", which is no mode of this version"),
    }
}

/// How positions map and elements are weighed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub mode: Mode,
    pub coordinates: Coordinates,
    pub exclude_outside: bool,
    pub antialias: bool,
}

impl Rule {
    /// The attributes of Resize from version 11 on.
    pub fn read(node: &NodeInfo<'_>) -> Result<Self, OpError> {
        let coordinates = match node.string_or("coordinate_transformation_mode", "half_pixel")? {
            "half_pixel" => Coordinates::HalfPixel,
            "half_pixel_symmetric" if node.since >= 19 => Coordinates::HalfPixelSymmetric,
            "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
            "align_corners" => Coordinates::AlignCorners,
            "asymmetric" => Coordinates::Asymmetric,
            "tf_half_pixel_for_nn" if node.since < 13 => Coordinates::TfHalfPixelForNn,
            "tf_crop_and_resize" => Coordinates::TfCropAndResize,
            other => return Err(invalid("coordinate_transformation_mode", other)),
        };
        let nearest = match node.string_or("nearest_mode", "round_prefer_floor")? {
            "round_prefer_floor" => Nearest::RoundPreferFloor,
            "round_prefer_ceil" => Nearest::RoundPreferCeil,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => return Err(invalid("nearest_mode", other)),
        };
        let a = node.float_or("cubic_coeff_a", -0.75)?;
        let mode = match node.string_or("mode", "nearest")? {
            "nearest" => Mode::Nearest(nearest),
            "linear" => Mode::Linear,
            "cubic" => Mode::Cubic(a),
            other => return Err(invalid("mode", other)),
        };
        Ok(Rule {
            mode,
            coordinates,
            exclude_outside: node.flag_or("exclude_outside", false)?,
            antialias: node.since >= 18 && node.flag_or("antialias", false)?,
        })
    }

    /// The rule of Resize 10 and Upsample.
    pub fn read_simple(node: &NodeInfo<'_>) -> Result<Self, OpError> {
        let mode = match node.string_or("mode", "nearest")? {
            "nearest" => Mode::Nearest(Nearest::Simple),
            "linear" => Mode::Linear,
            other => return Err(invalid("mode", other)),
        };
        Ok(Rule {
            mode,
            coordinates: Coordinates::Asymmetric,
            exclude_outside: false,
            antialias: false,
        })
    }
}

/// One axis of a resize.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub input: usize,
    pub output: usize,
    pub scale: f32,
    pub roi: (f32, f32),
}

impl Axis {
    /// Whether the result is the input.
    pub fn is_identity(&self, rule: &Rule) -> bool {
        let crops = rule.coordinates == Coordinates::TfCropAndResize && self.roi != (0.0, 1.0);
        let shifts = rule.coordinates == Coordinates::TfHalfPixelForNn;
        self.input == self.output && self.scale == 1.0 && !crops && !shifts
    }

    fn original(&self, coordinates: Coordinates, output: usize) -> f32 {
        let (at, scale) = (output as f32, self.scale);
        let (input, last) = (self.input as f32, self.input as f32 - 1.0);
        match coordinates {
            Coordinates::HalfPixel => (at + 0.5) / scale - 0.5,
            Coordinates::HalfPixelSymmetric => {
                let adjustment = self.output as f32 / (scale * input);
                input / 2.0 * (1.0 - adjustment) + (at + 0.5) / scale - 0.5
            }
            Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if self.output == 1 => 0.0,
            Coordinates::PytorchHalfPixel => (at + 0.5) / scale - 0.5,
            Coordinates::AlignCorners => at * last / (self.output as f32 - 1.0),
            Coordinates::Asymmetric => at / scale,
            Coordinates::TfHalfPixelForNn => (at + 0.5) / scale,
            Coordinates::TfCropAndResize => {
                let (begin, end) = self.roi;
                match self.output {
                    1 => 0.5 * (begin + end) * last,
                    _ => begin * last + at * (end - begin) * last / (self.output as f32 - 1.0),
                }
            }
        }
    }

    /// Whether position `output` is outside X, where tf_crop_and_resize extrapolates.
    pub fn is_outside(&self, rule: &Rule, output: usize) -> bool {
        let x = self.original(rule.coordinates, output);
        rule.coordinates == Coordinates::TfCropAndResize && !(0.0..=self.input as f32 - 1.0).contains(&x)
    }

    /// The nearest element.
    pub fn nearest(&self, rule: &Rule, nearest: Nearest, output: usize) -> usize {
        let x = match self.is_identity(rule) {
            true => output as f32,
            false => self.original(rule.coordinates, output),
        };
        let at = match nearest {
            Nearest::RoundPreferFloor if x - x.floor() == 0.5 => x.floor(),
            Nearest::RoundPreferFloor | Nearest::RoundPreferCeil => x.round(),
            Nearest::Ceil => x.ceil(),
            Nearest::Simple if self.scale < 1.0 => x.ceil(),
            Nearest::Floor | Nearest::Simple => x.floor(),
        };
        // Negative ones saturate to 0.
        (at as usize).min(self.input.saturating_sub(1))
    }

    /// Adds the elements that position `output` is made of, and their weights, to an empty list.
    pub fn taps(&self, rule: &Rule, output: usize, taps: &mut Working<(usize, f64)>) -> Result<(), OpError> {
        let x = f64::from(self.original(rule.coordinates, output));
        let shrink = match rule.antialias {
            true => f64::from(self.scale.min(1.0)),
            false => 1.0,
        };
        let (reach, cubic) = match rule.mode {
            Mode::Cubic(a) => (2.0, Some(f64::from(a))),
            _ => (1.0, None),
        };
        let weight = |distance: f64| match (cubic, distance.abs() * shrink) {
            (None, d) => (1.0 - d).max(0.0),
            (Some(a), d) if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            (Some(a), d) if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
            (Some(_), _) => 0.0,
        };
        let last = self.input.saturating_sub(1) as i64;
        // Elements further than this from the ends are all the same.
        let floor = x.floor().clamp(-1e9, last as f64 + 1e9) as i64;
        let steps = ((reach / shrink).ceil() as i64).clamp(1, last.saturating_add(2));
        let mut sum = 0.0;
        for at in floor + 1 - steps..=floor + steps {
            let weight = weight(at as f64 - x);
            if weight == 0.0 || (rule.exclude_outside && !(0..=last).contains(&at)) {
                continue;
            }
            sum += weight;
            taps.add((at.clamp(0, last) as usize, weight))?;
        }
        if taps.is_empty() || sum == 0.0 {
            taps.clear();
            return taps.add((floor.clamp(0, last) as usize, 1.0));
        }
        taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
        Ok(())
    }
}
