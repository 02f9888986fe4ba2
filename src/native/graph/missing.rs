use crate::component::ComponentErrorKind;

/// What a model needs and the runtime lacks: one line for each operator, version and
/// combination of input types, with the first node and how many more there are.
#[derive(Default)]
pub(super) struct MissingList(Vec<Entry>);

struct Entry {
    what: String,
    reason: Option<String>,
    first_node: Option<String>,
    nodes: usize,
}

impl MissingList {
    /// Something that is not a node.
    pub(super) fn add(&mut self, what: String) {
        self.0.push(Entry {
            what,
            reason: None,
            first_node: None,
            nodes: 0,
        });
    }

    /// A node whose operator is missing, or is there but does not do this.
    pub(super) fn add_node(&mut self, node: &str, what: String, reason: Option<String>) {
        let same = self
            .0
            .iter_mut()
            .find(|entry| entry.what == what && entry.reason == reason);
        match same {
            Some(entry) => entry.nodes += 1,
            None => self.0.push(Entry {
                what,
                reason,
                first_node: Some(node.to_owned()),
                nodes: 1,
            }),
        }
    }

    /// The error, if anything is missing.
    pub(super) fn finish(self) -> Option<ComponentErrorKind> {
        if self.0.is_empty() {
            return None;
        }
        let missing = self.0.into_iter().map(|entry| {
            let mut line = entry.what;
            if let Some(node) = entry.first_node {
                line.push_str(&format!(", node \"{node}\""));
            }
            if entry.nodes > 1 {
                line.push_str(&format!(" and {} more", entry.nodes - 1));
            }
            if let Some(reason) = entry.reason {
                line.push_str(&format!(": {reason}"));
            }
            line
        });
        Some(ComponentErrorKind::MissingOperators {
            missing: missing.collect(),
        })
    }
}
