//! Output dims from input dims, by the names that a graph gives them.
//!
//! Exporters name dims: an input `[batch, sequence]`, an output `[batch, past + sequence]`.
//! Names bind to sizes where they stand alone in an input; an output dim is then a size, a
//! bound name, or a sum, difference or product of such.

use smallvec::SmallVec;

use crate::component::{Dim, Shape};

/// The sizes that names stand for in one call; names of different size in two places stand
/// for nothing.
#[derive(Default)]
pub(super) struct Symbols<'a>(SmallVec<[(&'a str, Option<i64>); 8]>);

impl<'a> Symbols<'a> {
    /// Binds the names of an input's dims to the sizes of its value.
    pub fn bind(&mut self, dims: &'a [Dim], shape: &[i64]) {
        for (dim, &size) in dims.iter().zip(shape) {
            let Dim::Symbol(Some(name)) = dim else { continue };
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, bound)) if *bound != Some(size) => *bound = None,
                Some(_) => {}
                None => self.0.push((name, Some(size))),
            }
        }
    }

    /// The shape that dims come to, if every one of them does.
    pub fn resolve(&self, dims: &[Dim]) -> Option<Shape> {
        dims.iter()
            .map(|dim| match dim {
                Dim::Fixed(size) => Some(*size),
                Dim::Symbol(Some(expression)) => self.evaluate(expression),
                Dim::Symbol(None) => None,
            })
            .collect()
    }

    fn size(&self, name: &str) -> Option<i64> {
        self.0.iter().find(|(known, _)| *known == name)?.1
    }

    fn evaluate(&self, expression: &str) -> Option<i64> {
        // First as a name: one may hold any character.
        if self.0.iter().any(|(known, _)| *known == expression) {
            return self.size(expression);
        }
        let mut parser = Parser {
            symbols: self,
            rest: expression,
        };
        let size = parser.sum(0)?;
        (parser.rest.trim_start().is_empty() && size >= 0).then_some(size)
    }
}

/// sum := product (('+' | '-') product)*
/// product := factor ('*' factor)*
/// factor := number | name | '(' sum ')'
struct Parser<'p, 's> {
    symbols: &'p Symbols<'s>,
    rest: &'p str,
}

impl Parser<'_, '_> {
    /// The text comes from a file: nesting must not use up the stack.
    const MAX_DEPTH: usize = 16;

    fn sum(&mut self, depth: usize) -> Option<i64> {
        let mut total = self.product(depth)?;
        loop {
            if self.take('+') {
                total = total.checked_add(self.product(depth)?)?;
            } else if self.take('-') {
                total = total.checked_sub(self.product(depth)?)?;
            } else {
                return Some(total);
            }
        }
    }

    fn product(&mut self, depth: usize) -> Option<i64> {
        let mut total = self.factor(depth)?;
        while self.take('*') {
            total = total.checked_mul(self.factor(depth)?)?;
        }
        Some(total)
    }

    fn factor(&mut self, depth: usize) -> Option<i64> {
        if self.take('(') {
            let total = (depth < Self::MAX_DEPTH).then(|| self.sum(depth + 1))??;
            return self.take(')').then_some(total);
        }
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .find(|c: char| "+-*()".contains(c) || c.is_whitespace())
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.parse().ok().or_else(|| self.symbols.size(word))
    }

    fn take(&mut self, operator: char) -> bool {
        let trimmed = self.rest.trim_start();
        match trimmed.strip_prefix(operator) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str) -> Dim {
        Dim::Symbol(Some(name.into()))
    }

    fn evaluate(expression: &str) -> Option<i64> {
        let dims = [symbol("batch"), symbol("past"), symbol("odd name + 1")];
        let mut symbols = Symbols::default();
        symbols.bind(&dims, &[2, 5, 77]);
        symbols.resolve(&[symbol(expression)]).map(|shape| shape[0])
    }

    #[test]
    fn expressions_of_names() {
        assert_eq!(evaluate("past"), Some(5));
        assert_eq!(evaluate("past + 1"), Some(6));
        assert_eq!(evaluate("1+past"), Some(6));
        assert_eq!(evaluate("batch*past - 3"), Some(7));
        assert_eq!(evaluate("2*(past + batch)"), Some(14));
        assert_eq!(evaluate("odd name + 1"), Some(77));
    }

    #[test]
    fn what_cannot_be_told_is_none() {
        for expression in [
            "other",
            "past +",
            "past past",
            "+",
            "",
            "past - 9",
            "floor(past/2)",
            "(past",
            "past * 9223372036854775807",
        ] {
            assert_eq!(evaluate(expression), None, "{expression}");
        }
        assert_eq!(evaluate(&"(".repeat(100_000)), None);
    }

    #[test]
    fn a_name_with_two_sizes_stands_for_nothing() {
        let dims = [symbol("a"), symbol("a")];
        let mut symbols = Symbols::default();
        symbols.bind(&dims, &[1, 2]);
        assert_eq!(symbols.resolve(&[symbol("a")]), None);
        assert_eq!(symbols.resolve(&[Dim::Fixed(3)]).as_deref(), Some(&[3][..]));
        assert_eq!(symbols.resolve(&[Dim::Symbol(None)]), None);
    }
}
