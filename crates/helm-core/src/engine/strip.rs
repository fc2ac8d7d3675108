//! Removes `<no value>` from the output of templates, as Helm does at the end of a file or `tpl`.

use bounded::Buffer;

const NO_VALUE: &[u8] = b"<no value>";

/// Removes every `<no value>` from `out` after `start`.
pub(crate) fn no_values(out: &mut Buffer, start: usize) {
    let Some(first) = find(out, start) else {
        return;
    };
    // The text only becomes shorter, so that it is moved within the buffer.
    let mut to = first;
    let mut from = first + NO_VALUE.len();
    while let Some(next) = find(out, from) {
        out.copy_within(from..next, to);
        to += next - from;
        from = next + NO_VALUE.len();
    }
    let end = out.len();
    out.copy_within(from..end, to);
    out.truncate(to + end - from);
}

fn find(out: &[u8], from: usize) -> Option<usize> {
    // Angle brackets are rare in manifests, so search for the bracket.
    let out = out.get(from..)?;
    memchr::memchr_iter(b'<', out)
        .find(|at| out.get(*at..).is_some_and(|out| out.starts_with(NO_VALUE)))
        .map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use bounded::Buffer;

    use super::no_values;

    #[test]
    fn no_value_after_the_start_is_removed() {
        for (start, text, expected) in [
            (0, "a<no value>b", "ab"),
            (0, "<no value><no value>", ""),
            (0, "<no <no value>value>", "<no value>"),
            (11, "<no value>x<no value>y", "<no value>xy"),
            (0, "<no valu", "<no valu"),
        ] {
            let mut out = Buffer::new();
            out.extend_from_slice(text.as_bytes());
            no_values(&mut out, start);
            assert_eq!(&*out, expected.as_bytes(), "{text}");
        }
    }
}
