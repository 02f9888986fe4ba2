//! NonMaxSuppression: of each class of each image, the boxes of the highest scores, without those
//! that overlap a chosen one.
//!
//!   boxes [B, N, 4], two corners (y, x, y, x) or with center_point_box (x, y, width, height)
//!   scores [B, C, N] -> selected [count, 3] of (image, class, box)
//!
//! Boxes go in order of falling score, equal ones in order of index. A box is left out when its
//! score is not above `score_threshold` (if given), or when intersection / union with a chosen box is
//! above `iou_threshold` (0); at most `max_output_boxes_per_class` (0) are chosen. ai.onnx 10, 11.

use super::Built;
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

#[derive(Debug)]
struct NonMaxSuppression {
    center_point_box: bool,
}

pub(in crate::native) fn non_max_suppression(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(NonMaxSuppression {
        center_point_box: node.flag_or("center_point_box", false)?,
    }))
}

/// The lower and the upper corner.
#[derive(Clone, Copy)]
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

impl Corners {
    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    fn overlaps(&self, other: &Corners, threshold: f32) -> bool {
        let side = |i: usize| (self.high[i].min(other.high[i]) - self.low[i].max(other.low[i])).max(0.0);
        let intersection = side(0) * side(1);
        let union = self.area() + other.area() - intersection;
        // Nothing overlaps a box without area.
        intersection > 0.0 && union > 0.0 && intersection / union > threshold
    }
}

impl NonMaxSuppression {
    fn corners(&self, sides: &[f32]) -> Corners {
        let (a, b) = match (self.center_point_box, sides) {
            (true, &[x, y, width, height]) => {
                let (w, h) = (width / 2.0, height / 2.0);
                ([y - h, x - w], [y + h, x + w])
            }
            (false, &[y1, x1, y2, x2]) => ([y1, x1], [y2, x2]),
            _ => ([0.0; 2], [0.0; 2]),
        };
        Corners {
            low: [a[0].min(b[0]), a[1].min(b[1])],
            high: [a[0].max(b[0]), a[1].max(b[1])],
        }
    }
}

impl Operator for NonMaxSuppression {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.required(1)?;
        let dims = SymDims::from_slice(&[SymDim::Unknown, SymDim::Fixed(3)]);
        cx.set_output(0, Some(ElementType::Int64), Some(dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (boxes, scores) = (cx.required(0)?, cx.required(1)?);
        let (&[batch, count, 4], &[score_batch, classes, score_count]) = (boxes.dims(), scores.dims()) else {
            return Err(OpError::Message(format!(
                "boxes are {boxes:?} and scores {scores:?}, expected [B, N, 4] and [B, C, N]"
            )));
        };
        if (batch, count) != (score_batch, score_count) {
            return Err(OpError::Message(format!(
                "boxes are {boxes:?} and scores {scores:?}"
            )));
        }
        let most = match cx.input(2) {
            Some(most) => most.to_ints()?.first().copied().unwrap_or(0),
            None => 0,
        };
        let threshold = |index: usize| match cx.input(index) {
            Some(threshold) => Ok(threshold.slice::<f32>()?.first().copied()),
            None => Ok::<_, OpError>(None),
        };
        let (overlap, least) = (threshold(3)?.unwrap_or(0.0), threshold(4)?);
        let (boxes, scores) = (boxes.slice::<f32>()?, scores.slice::<f32>()?);
        let most = usize::try_from(most).unwrap_or(0);
        let mut selected: Vec<i64> = Vec::new();
        let mut order: Vec<usize> = Vec::new();
        let mut chosen: Vec<Corners> = Vec::new();
        for row in 0..if count == 0 { 0 } else { batch * classes } {
            let (image, class) = (row / classes, row % classes);
            let scores = &scores[row * count..][..count];
            let boxes = &boxes[image * count * 4..][..count * 4];
            order.clear();
            order.extend((0..count).filter(|&at| least.is_none_or(|least| scores[at] > least)));
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
            chosen.clear();
            for &at in &order {
                ending::look();
                if chosen.len() >= most {
                    break;
                }
                let corners = self.corners(&boxes[at * 4..][..4]);
                if chosen.iter().any(|other| corners.overlaps(other, overlap)) {
                    continue;
                }
                chosen.push(corners);
                selected.extend([image as i64, class as i64, at as i64]);
            }
        }
        cx.output::<i64>(0, &[selected.len() / 3, 3])?
            .copy_from(&selected)
    }
}
