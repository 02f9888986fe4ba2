//! A chat template's source, made ready for the engine.
//!
//! The engine parses operators, calls and filters that follow each other (`1+1+1`,
//! `{% elif %}`) by recursion that it does not bound, so their number in one tag is bounded
//! here. And it has no hook for assignments, so `{% set %}` is written anew with a filter
//! that looks at the value: a namespace that holds itself would be printed without an end.
//!
//! Tags are found as the engine finds them: strings hide a tag's end, brackets too, and
//! comments and `{% raw %}` blocks hide tags.

use std::ops::Range;

/// Bytes of a template. Those of published models take up to 32 KiB.
pub(super) const MAX_SOURCE: usize = 128 << 10;
/// Operators, names, numbers and strings in one tag.
pub(super) const MAX_TOKENS: usize = 4096;
/// `{% elif %}` in a template.
pub(super) const MAX_ELIFS: usize = 1000;

/// The filter that a value passes on its way into a variable.
pub(super) const INTO_VARIABLE: &str = "oxp_into_variable";
/// The filter that a value passes on its way into a namespace's attribute.
pub(super) const INTO_NAMESPACE: &str = "oxp_into_namespace";

/// The source as the engine gets it, with as many lines.
pub(super) fn prepare(source: &str) -> Result<String, String> {
    if source.len() > MAX_SOURCE {
        return Err(format!(
            "is {} bytes long, expected at most {MAX_SOURCE}; is it a chat template?",
            source.len()
        ));
    }
    let mut scan = Scan {
        source,
        at: 0,
        balance: 0,
        elifs: 0,
        out: String::with_capacity(source.len() + 256),
        copied: 0,
    };
    while let Some(found) = scan
        .rest()
        .find("{{")
        .into_iter()
        .chain(scan.rest().find("{%"))
        .chain(scan.rest().find("{#"))
        .min()
    {
        scan.at += found;
        let marker = scan.byte(1);
        scan.at += 2;
        if matches!(scan.byte(0), Some(b'-' | b'+')) {
            scan.at += 1;
        }
        match marker {
            Some(b'#') => scan.skip_past("#}"),
            Some(b'%') if scan.is_tag("raw").is_some() => scan.skip_raw(),
            Some(b'%') => {
                if let Some(word) = scan.is_tag("generation") {
                    scan.replace(word, "if true");
                } else if let Some(word) = scan.is_tag("endgeneration") {
                    scan.replace(word, "endif");
                }
                scan.tag("%}")?;
            }
            _ => scan.tag("}}")?,
        }
    }
    scan.copy_up_to(source.len());
    Ok(scan.out)
}

struct Scan<'a> {
    source: &'a str,
    at: usize,
    /// Brackets that are open, through all tags, as the engine counts them.
    balance: isize,
    elifs: usize,
    out: String,
    /// How much of the source is in `out`.
    copied: usize,
}

impl Scan<'_> {
    fn rest(&self) -> &str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    fn copy_up_to(&mut self, end: usize) {
        self.out
            .push_str(self.source.get(self.copied..end).unwrap_or_default());
        self.copied = end;
    }

    fn insert(&mut self, at: usize, text: &str) {
        self.copy_up_to(at);
        self.out.push_str(text);
    }

    fn replace(&mut self, range: Range<usize>, text: &str) {
        self.insert(range.start, text);
        self.copied = range.end;
    }

    fn skip_past(&mut self, end: &str) {
        let length = self.rest().find(end).map(|found| found + end.len());
        self.at += length.unwrap_or(self.rest().len());
    }

    /// Where `name` is, if it is all that the tag says whose inside begins here.
    fn is_tag(&self, name: &str) -> Option<Range<usize>> {
        let blank = |c: char| c.is_ascii_whitespace();
        let inside = self.rest().trim_start_matches(blank);
        let after = inside.strip_prefix(name)?.trim_start_matches(blank);
        let after = after.strip_prefix(['-', '+']).unwrap_or(after);
        let start = self.source.len() - inside.len();
        after.starts_with("%}").then_some(start..start + name.len())
    }

    fn skip_raw(&mut self) {
        self.skip_past("%}");
        while !self.rest().is_empty() {
            self.skip_past("{%");
            let marked = matches!(self.byte(0), Some(b'-' | b'+'));
            self.at += usize::from(marked);
            if self.is_tag("endraw").is_some() {
                return self.skip_past("%}");
            }
            self.at -= usize::from(marked);
        }
    }

    /// Goes past a tag whose inside begins here. One without an end is left to the engine.
    fn tag(&mut self, end: &str) -> Result<(), String> {
        let line = self
            .source
            .get(..self.at)
            .unwrap_or_default()
            .matches('\n')
            .count()
            + 1;
        let mut set = Set::default();
        let mut tokens = 0;
        let mut lowest = self.balance;
        while let Some(byte) = self.byte(0) {
            if byte.is_ascii_whitespace() {
                self.at += 1;
                continue;
            }
            if self.balance == 0 {
                let mark = usize::from(matches!(byte, b'-' | b'+'));
                if self.rest().get(mark..).is_some_and(|rest| rest.starts_with(end)) {
                    if lowest >= 0 && end == "%}" {
                        set.rewrite(self);
                    }
                    self.at += mark + end.len();
                    return Ok(());
                }
            }
            tokens += 1;
            if tokens > MAX_TOKENS {
                return Err(format!(
                    "the tag at line {line} has more than {MAX_TOKENS} operators, names and values; split it"
                ));
            }
            let start = self.at;
            self.at += match byte {
                b'\'' | b'"' => self.string_length(byte),
                b if b.is_ascii_alphanumeric() || b == b'_' => {
                    let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                    self.rest().bytes().take_while(word).count()
                }
                b'/' | b'*' | b'=' if self.byte(1) == Some(byte) => 2,
                b'!' | b'<' | b'>' if self.byte(1) == Some(b'=') => 2,
                _ => self.rest().chars().next().map_or(1, char::len_utf8),
            };
            match byte {
                b'(' | b'[' | b'{' => self.balance += 1,
                b')' | b']' | b'}' => self.balance -= 1,
                _ => {}
            }
            lowest = lowest.min(self.balance);
            let token = self.source.get(start..self.at).unwrap_or_default();
            if tokens == 1 {
                set.is = token == "set";
                self.elifs += usize::from(token == "elif" && end == "%}");
                if self.elifs > MAX_ELIFS {
                    return Err(format!("line {line}: more than {MAX_ELIFS} elif in one template"));
                }
            }
            set.see(token, self.at, self.balance);
        }
        Ok(())
    }

    fn string_length(&self, quote: u8) -> usize {
        let mut escaped = false;
        let inside = self.rest().bytes().skip(1).take_while(|&byte| {
            let more = escaped || byte != quote;
            escaped = !escaped && byte == b'\\';
            more
        });
        inside.count() + 2
    }
}

/// What there is to know of a `{% set %}` tag.
#[derive(Default)]
struct Set {
    is: bool,
    /// Whether an attribute is assigned to.
    dotted: bool,
    /// Where the value begins; none if the tag opens a block.
    value: Option<usize>,
    /// Whether the block's content goes through filters.
    filtered: bool,
}

impl Set {
    fn see(&mut self, token: &str, end: usize, balance: isize) {
        if self.value.is_some() {
            return;
        }
        match token {
            "=" if balance == 0 => self.value = Some(end),
            "." => self.dotted = true,
            "|" => self.filtered = true,
            _ => {}
        }
    }

    /// `scan` is at the tag's end.
    fn rewrite(&self, scan: &mut Scan<'_>) {
        let filter = if self.dotted {
            INTO_NAMESPACE
        } else {
            INTO_VARIABLE
        };
        let end = scan.at;
        match self.value {
            _ if !self.is => {}
            Some(value) if !scan.source.get(value..end).unwrap_or_default().trim().is_empty() => {
                scan.insert(value, " (");
                scan.insert(end, &format!(")|{filter} "));
            }
            None if self.filtered => scan.insert(end, &format!("|{filter} ")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_blocks_that_hold() {
        for (source, expected) in [
            (
                "{% generation %}x{%- endgeneration -%}",
                "{% if true %}x{%- endif -%}",
            ),
            ("{%generation%}", "{%if true%}"),
            (
                "{% raw %}{% generation %}{% endraw %}",
                "{% raw %}{% generation %}{% endraw %}",
            ),
            (
                "{%- raw -%}{% generation %}{%- endraw %}{% generation %}",
                "{%- raw -%}{% generation %}{%- endraw %}{% if true %}",
            ),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            (
                "{{ {'a': {'}}': \"\\\"%}\"}} }}{% generation %}",
                "{{ {'a': {'}}': \"\\\"%}\"}} }}{% if true %}",
            ),
            ("{% generation", "{% generation"),
            ("{{", "{{"),
            ("\u{e9}{{ '\u{e9}", "\u{e9}{{ '\u{e9}"),
        ] {
            assert_eq!(prepare(source).unwrap(), expected);
        }
    }

    #[test]
    fn values_pass_a_filter_on_their_way_into_variables() {
        for (source, expected) in [
            (
                "{% set a = b == c %}",
                "{% set a = ( b == c )|oxp_into_variable %}",
            ),
            ("{%- set n.a=[b]-%}", "{%- set n.a= ([b])|oxp_into_namespace -%}"),
            (
                "{% set a, n.b = c, d %}",
                "{% set a, n.b = ( c, d )|oxp_into_namespace %}",
            ),
            ("{% set a %}{% endset %}", "{% set a %}{% endset %}"),
            ("{% set n.a | f %}", "{% set n.a | f |oxp_into_namespace %}"),
            ("{% set a = %}", "{% set a = %}"),
            ("{% set a = b), (c %}", "{% set a = b), (c %}"),
            ("{% if a %}", "{% if a %}"),
        ] {
            assert_eq!(prepare(source).unwrap(), expected);
        }
    }
}
