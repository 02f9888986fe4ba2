//! What goes from token to token, and with a sequence wherever that goes.

/// What a sampler remembers from token to token: mirostat's μ after each place of the sequence.
///
/// A sequence that is rewound or forked goes on with what was so at its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplerState {
    /// Places, ascending, and μ after the token there.
    mu: Vec<(u64, f64)>,
}

impl SamplerState {
    const ENTRY: usize = 16;
    /// Places that there is room for from the first on.
    const AHEAD: usize = 1024;

    /// μ for the token at this place.
    pub(super) fn before(&self, place: u64) -> Option<f64> {
        let earlier = self.mu.partition_point(|&(at, _)| at < place);
        earlier
            .checked_sub(1)
            .and_then(|at| self.mu.get(at))
            .map(|&(_, mu)| mu)
    }

    /// Sets μ after the token at this place, and forgets later ones.
    pub(super) fn set(&mut self, place: u64, mu: f64) {
        self.truncate(place);
        if self.mu.len() == self.mu.capacity() {
            // Rarely, and not for a few tokens each.
            self.mu.reserve(Self::AHEAD.max(self.mu.len()));
        }
        self.mu.push((place, mu));
    }

    /// Forgets μ from this place on: the tokens there are gone, or are others that were not chosen by it.
    pub fn truncate(&mut self, place: u64) {
        self.mu.truncate(self.mu.partition_point(|&(at, _)| at < place));
    }

    /// The state as bytes: for each place its number as a u64 and μ as a float64, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let entries = self.mu.iter();
        entries
            .flat_map(|(place, mu)| [place.to_le_bytes(), mu.to_le_bytes()])
            .flatten()
            .collect()
    }

    /// The state that these bytes are of; `None` if they are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (entries, []) = bytes.as_chunks::<{ Self::ENTRY }>() else {
            return None;
        };
        let read = |entry: &[u8; Self::ENTRY]| {
            let (place, mu) = entry.split_first_chunk::<8>()?;
            Some((
                u64::from_le_bytes(*place),
                f64::from_le_bytes(mu.try_into().ok()?),
            ))
        };
        let mu = entries.iter().map(read).collect::<Option<Vec<_>>>()?;
        let ascending = mu.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let finite = mu.iter().all(|(_, mu)| mu.is_finite());
        (ascending && finite).then_some(SamplerState { mu })
    }
}
