//! Shell patterns for paths, as in Go's `filepath.Match`.

/// A malformed pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub struct PatternError;

/// Returns whether `pattern` matches the whole of `name`: `*` and `?` match anything but `/`,
/// `[a-z]` and `[^a-z]` match one character, `\` escapes the next character. A malformed pattern is
/// an error only if matching reaches the malformed part.
///
/// # Errors
/// If the pattern is malformed.
pub fn matches(pattern: &str, name: &str) -> Result<bool, PatternError> {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut pattern, mut name) = (pattern.as_slice(), name.as_slice());
    while !pattern.is_empty() {
        let (star, chunk, rest) = next_chunk(pattern);
        pattern = rest;
        if star && chunk.is_empty() {
            return Ok(!name.contains(&'/'));
        }
        match match_chunk(chunk, name)? {
            Some(after) if after.is_empty() || !pattern.is_empty() => {
                name = after;
                continue;
            }
            _ => {}
        }
        if star {
            let longest = name.iter().position(|c| *c == '/').unwrap_or(name.len());
            let mut found = None;
            for skip in 1..=longest {
                let Some(subject) = name.get(skip..) else {
                    break;
                };
                match match_chunk(chunk, subject)? {
                    Some(after) if pattern.is_empty() && !after.is_empty() => {}
                    Some(after) => {
                        found = Some(after);
                        break;
                    }
                    None => {}
                }
            }
            if let Some(after) = found {
                name = after;
                continue;
            }
        }
        return Ok(false);
    }
    Ok(name.is_empty())
}

/// Splits the pattern: whether it begins with stars, the text up to the next star, and the rest.
fn next_chunk(pattern: &[char]) -> (bool, &[char], &[char]) {
    let stars = pattern.iter().take_while(|c| **c == '*').count();
    let rest = pattern.get(stars..).unwrap_or_default();
    let mut in_class = false;
    let mut skip = false;
    let end = rest.iter().position(|c| {
        if std::mem::take(&mut skip) {
            return false;
        }
        match c {
            '\\' => skip = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '*' => return !in_class,
            _ => {}
        }
        false
    });
    let (chunk, rest) = rest
        .split_at_checked(end.unwrap_or(rest.len()))
        .unwrap_or((rest, &[]));
    (stars > 0, chunk, rest)
}

/// Returns the rest of `name` after `chunk`, which contains no star. A chunk that does not match is
/// still read to its end, so that errors in it are found.
fn match_chunk<'a>(
    mut chunk: &[char],
    mut name: &'a [char],
) -> Result<Option<&'a [char]>, PatternError> {
    let mut failed = false;
    while let Some((first, mut rest)) = chunk.split_first() {
        failed |= name.is_empty();
        let (head, tail) = name
            .split_first()
            .map_or((None, name), |(c, tail)| (Some(*c), tail));
        match first {
            '[' => {
                let matched = class(&mut rest, head)?;
                failed |= !matched;
                if !failed {
                    name = tail;
                }
            }
            '?' => {
                failed |= head == Some('/');
                name = tail;
            }
            literal => {
                let mut literal = *literal;
                if literal == '\\' {
                    let (escaped, after) = rest.split_first().ok_or(PatternError)?;
                    literal = *escaped;
                    rest = after;
                }
                failed |= head != Some(literal);
                name = tail;
            }
        }
        chunk = rest;
    }
    Ok((!failed).then_some(name))
}

/// Parses a character class after its `[` and returns whether it contains `subject`.
fn class(chunk: &mut &[char], subject: Option<char>) -> Result<bool, PatternError> {
    let negated = chunk.first() == Some(&'^');
    if negated {
        *chunk = chunk.get(1..).unwrap_or_default();
    }
    let mut matched = false;
    let mut ranges = 0;
    loop {
        if ranges > 0 && chunk.first() == Some(&']') {
            *chunk = chunk.get(1..).unwrap_or_default();
            return Ok(matched != negated);
        }
        let low = class_char(chunk)?;
        let mut high = low;
        if chunk.first() == Some(&'-') {
            *chunk = chunk.get(1..).unwrap_or_default();
            high = class_char(chunk)?;
        }
        matched |= subject.is_some_and(|c| (low..=high).contains(&c));
        ranges += 1;
    }
}

fn class_char(chunk: &mut &[char]) -> Result<char, PatternError> {
    let (first, mut rest) = chunk.split_first().ok_or(PatternError)?;
    let mut found = *first;
    if matches!(found, '-' | ']') {
        return Err(PatternError);
    }
    if found == '\\' {
        let (escaped, after) = rest.split_first().ok_or(PatternError)?;
        (found, rest) = (*escaped, after);
    }
    if rest.is_empty() {
        return Err(PatternError);
    }
    *chunk = rest;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, name, expected) in [
            ("abc", "abc", Ok(true)),
            ("*", "abc", Ok(true)),
            ("*c", "abc", Ok(true)),
            ("a*", "a", Ok(true)),
            ("a*", "ab/c", Ok(false)),
            ("a*/b", "abc/b", Ok(true)),
            ("a*/b", "a/c/b", Ok(false)),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f", Ok(true)),
            ("a*b?c*x", "abxbbxdbxebxczzx", Ok(true)),
            ("a*b?c*x", "abxbbxdbxebxczzy", Ok(false)),
            ("ab[c]", "abc", Ok(true)),
            ("ab[b-d]", "abc", Ok(true)),
            ("ab[^c]", "abc", Ok(false)),
            ("ab[^e-g]", "abc", Ok(true)),
            ("a\\*b", "a*b", Ok(true)),
            ("a?b", "a☺b", Ok(true)),
            ("a?b", "a/b", Ok(false)),
            ("[\\]a]", "]", Ok(true)),
            ("[x\\-]", "-", Ok(true)),
            ("[", "a", Err(PatternError)),
            ("[^", "a", Err(PatternError)),
            ("[a-b-c]", "a", Err(PatternError)),
            ("[]a]", "]", Err(PatternError)),
            ("a[", "ab", Err(PatternError)),
            ("a[", "x", Err(PatternError)),
            ("a/b[", "x", Err(PatternError)),
            ("*x", "xxx", Ok(true)),
            ("", "", Ok(true)),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
