//! Several files as one input, which stays readable and takes well to splicing: a line `=== NAME`
//! begins each. What comes before the first such line is the first part, without a name.

pub fn split(data: &[u8]) -> (&[u8], Vec<(&str, &[u8])>) {
    const MARK: &[u8] = b"=== ";
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let rest = &data[at..];
        if rest.starts_with(MARK) {
            starts.push(at);
        }
        at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()) + 1;
    }
    let end_of_first = starts.first().copied().unwrap_or(data.len());
    let mut sections = Vec::new();
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(data.len());
        let section = &data[start + MARK.len()..end];
        let line = section
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(section.len());
        let name = std::str::from_utf8(&section[..line]).unwrap_or_default();
        sections.push((name, section.get(line + 1..).unwrap_or_default()));
    }
    (&data[..end_of_first], sections)
}

/// The section of a name, or nothing.
pub fn find<'a>(sections: &[(&str, &'a [u8])], name: &str) -> Option<&'a [u8]> {
    let mut sections = sections.iter();
    sections
        .find(|(found, _)| *found == name)
        .map(|(_, bytes)| *bytes)
}
