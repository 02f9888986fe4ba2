//! Products with packed weights on all threads.

use std::ops::Range;

use super::{COLUMNS, Instructions, Records, Rows, multiply};
use crate::native::workers::Workers;

/// Computes the columns of some panels for `rows` rows: `emit` gets a row, its first column of a
/// panel, and the values from there on; from several threads, each with panels of its own. `room` has
/// [`Records::room`] for each row.
pub fn product(
    workers: &Workers,
    records: &Records<'_>,
    (given, rows): (Rows<'_>, usize),
    panels: Range<usize>,
    room: &mut [f32],
    emit: &(dyn Fn(usize, usize, &[f32]) + Sync),
) {
    let instructions = Instructions::detect();
    let record = records.room();
    if record > 0 {
        workers.split_mut(room, record, |row, record| {
            records.fill(instructions, given, row, record);
        });
    }
    let view = records.view(given, rows, room);
    let weights = records.weights();
    // Some 16 products are worth a simple operation.
    let work = rows.saturating_mul(weights.depth()) * COLUMNS / 16;
    let chunk = workers.chunk(panels.len(), work);
    workers.for_each(panels.len().div_ceil(chunk), |part| {
        let first = panels.start + part * chunk;
        let panels = first..(first + chunk).min(panels.end);
        multiply(instructions, weights, &view, panels, &mut |row, column, sums| {
            emit(row, column, sums);
        });
    });
}
