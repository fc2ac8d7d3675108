//! The patterns of `.Files.Glob`: those of the Go package `gobwas/glob` with `/` as separator.

/// A pattern. An invalid one matches every path.
#[derive(Debug)]
pub(crate) struct Glob(Vec<Term>);

#[derive(Debug)]
enum Term {
    Text(Vec<char>),
    /// `*`: anything without a separator.
    Any,
    /// `**`: anything.
    Super,
    /// `?`: one character other than the separator.
    Single,
    Range {
        low: char,
        high: char,
        negated: bool,
    },
    List {
        chars: Vec<char>,
        negated: bool,
    },
    /// `{a,b}`.
    Alternatives(Vec<Vec<Term>>),
}

const SEPARATOR: char = '/';

impl Glob {
    pub(crate) fn new(pattern: &str) -> Self {
        let chars: Vec<char> = pattern.chars().take_while(|c| *c != '\0').collect();
        let mut parser = GlobParser {
            rest: &chars,
            depth: 0,
        };
        Self(parser.sequence().unwrap_or_else(|| vec![Term::Super]))
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let text: Vec<char> = path.chars().collect();
        let mut at = vec![false; text.len() + 1];
        if let Some(first) = at.first_mut() {
            *first = true;
        }
        sequence_ends(&self.0, at, &text).last() == Some(&true)
    }
}

struct GlobParser<'p> {
    rest: &'p [char],
    depth: usize,
}

/// Limit on the depth of braces.
const MAX_DEPTH: usize = 50;

impl GlobParser<'_> {
    fn next(&mut self) -> Option<char> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Parses terms up to the end or, inside braces, up to a comma or closing brace, which is not
    /// consumed.
    fn sequence(&mut self) -> Option<Vec<Term>> {
        let mut terms = Vec::new();
        while let Some(first) = self.rest.first() {
            match first {
                ',' | '}' if self.depth > 0 => break,
                '{' => {
                    self.next();
                    terms.push(self.alternatives()?);
                }
                '[' => {
                    self.next();
                    terms.push(self.class()?);
                }
                '?' => {
                    self.next();
                    terms.push(Term::Single);
                }
                '*' => {
                    self.next();
                    if self.rest.first() == Some(&'*') {
                        self.next();
                        terms.push(Term::Super);
                    } else {
                        terms.push(Term::Any);
                    }
                }
                _ => {
                    let stops: &[char] = if self.depth > 0 {
                        &['?', '*', '[', '{', '}', ',']
                    } else {
                        &['?', '*', '[', '{']
                    };
                    terms.push(Term::Text(self.text(stops)));
                }
            }
        }
        Some(terms)
    }

    /// Parses what follows `{`. An unclosed brace ends with the pattern.
    fn alternatives(&mut self) -> Option<Term> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut alternatives = Vec::new();
        loop {
            alternatives.push(self.sequence()?);
            if self.next() != Some(',') {
                self.depth -= 1;
                return Some(Term::Alternatives(alternatives));
            }
        }
    }

    /// Parses what follows `[`. Returns `None` if it is malformed.
    fn class(&mut self) -> Option<Term> {
        let mut first = self.next()?;
        let negated = first == '!';
        if negated {
            first = self.next()?;
        }
        if self.rest.first() == Some(&'-') {
            self.next();
            let high = self.next()?;
            let well_formed = self.next()? == ']' && high >= first;
            return well_formed.then_some(Term::Range {
                low: first,
                high,
                negated,
            });
        }
        let mut chars = Vec::new();
        let mut next = Some(first);
        while let Some(c) = next {
            match c {
                ']' if chars.is_empty() => return None,
                ']' => return Some(Term::List { chars, negated }),
                '\\' => chars.extend(self.next()),
                c => chars.push(c),
            }
            next = self.next();
        }
        None
    }

    fn text(&mut self, stops: &[char]) -> Vec<char> {
        let mut text = Vec::new();
        while let Some(first) = self.rest.first() {
            if stops.contains(first) {
                break;
            }
            match self.next() {
                Some('\\') => text.extend(self.next()),
                other => text.extend(other),
            }
        }
        text
    }
}

/// Returns the positions in `text` where the terms can end if they begin where `at` is true.
fn sequence_ends(terms: &[Term], at: Vec<bool>, text: &[char]) -> Vec<bool> {
    terms.iter().fold(at, |at, term| ends(term, &at, text))
}

fn ends(term: &Term, at: &[bool], text: &[char]) -> Vec<bool> {
    let one = |fits: &dyn Fn(char) -> bool| {
        let mut ends = vec![false; at.len()];
        for ((begins, c), end) in at.iter().zip(text).zip(ends.iter_mut().skip(1)) {
            *end = *begins && fits(*c);
        }
        ends
    };
    let many = |fits: &dyn Fn(char) -> bool| {
        let mut ends = at.to_vec();
        let mut open = false;
        for ((end, c), begins) in ends
            .iter_mut()
            .zip(std::iter::once(&SEPARATOR).chain(text))
            .zip(at)
        {
            open = (open && fits(*c)) || *begins;
            *end = open;
        }
        ends
    };
    match term {
        Term::Text(literal) => {
            let mut ends = vec![false; at.len()];
            for (start, _) in at.iter().enumerate().filter(|(_, begins)| **begins) {
                let fits = text
                    .get(start..)
                    .is_some_and(|rest| rest.starts_with(literal));
                if let Some(end) = ends.get_mut(start + literal.len()).filter(|_| fits) {
                    *end = true;
                }
            }
            ends
        }
        Term::Any => many(&|c| c != SEPARATOR),
        Term::Super => many(&|_| true),
        Term::Single => one(&|c| c != SEPARATOR),
        Term::Range { low, high, negated } => one(&|c| (*low..=*high).contains(&c) != *negated),
        Term::List { chars, negated } => one(&|c| chars.contains(&c) != *negated),
        Term::Alternatives(alternatives) => {
            let mut all = vec![false; at.len()];
            for alternative in alternatives {
                let ends = sequence_ends(alternative, at.to_vec(), text);
                all.iter_mut()
                    .zip(ends)
                    .for_each(|(end, found)| *end |= found);
            }
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, path, expected) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "d/a.txt", false),
            ("**.txt", "d/a.txt", true),
            ("d/**", "d/e/f", true),
            ("d/*", "d/e/f", false),
            ("d/{a,b*}.yaml", "d/bcd.yaml", true),
            ("d/{a,b*}.yaml", "d/c.yaml", false),
            ("{a,}x", "x", true),
            ("{a,{b,c}d}", "cd", true),
            ("{a,b", "b", true),
            ("a,b}", "a,b}", true),
            ("?.md", "é.md", true),
            ("?.md", "/.md", false),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("[xyz]", "y", true),
            ("[!xyz]", "a", true),
            ("[\\]]", "]", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[", "anything/at/all", true),
            ("[]", "anything", true),
            ("[c-a]", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("**/x", "a/b/x", true),
            ("**/x", "x", false),
        ] {
            assert_eq!(
                Glob::new(pattern).matches(path),
                expected,
                "{pattern} {path}"
            );
        }
    }
}
