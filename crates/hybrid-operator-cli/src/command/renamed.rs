//! Commands that have another spelling now. The former one is accepted for one version.

use std::ffi::OsString;

use super::UsageError;

/// Former beginnings of command lines, and what they are now.
const RENAMED: [(&[&str], &[&str]); 4] = [
    (&["generate", "bundle"], &["olm", "bundle"]),
    (&["generate", "catalog"], &["olm", "catalog"]),
    (&["bundle", "validate"], &["olm", "validate"]),
    (&["images"], &["template", "--images"]),
];

/// Commands that are gone, and what to use.
const GONE: [(&[&str], &str); 4] = [
    (
        &["create", "chart"],
        "use 'hybrid-operator create api', which has the same flags",
    ),
    (
        &["charts", "dependency", "update"],
        "use 'helm dependency update'",
    ),
    (
        &["charts", "dependency", "build"],
        "use 'helm dependency build'",
    ),
    (
        &["charts", "dependency"],
        "use 'helm dependency build' or 'helm dependency update'",
    ),
];

/// A command line of today.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) arguments: Vec<OsString>,
    /// Present spelling, if the given one is a former one.
    pub(crate) note: Option<String>,
}

/// Replaces a former spelling. Fails if the command is gone.
pub(crate) fn current(mut arguments: Vec<OsString>) -> Result<Current, UsageError> {
    let words = arguments.get(1..).unwrap_or_default();
    if let Some((gone, instead)) = GONE.iter().find(|(gone, _)| begins(words, gone)) {
        let gone = gone.join(" ");
        return Err(UsageError(format!(
            "'hybrid-operator {gone}' is gone: {instead}"
        )));
    }
    if let Some((former, now)) = RENAMED.iter().find(|(former, _)| begins(words, former)) {
        let end = former.len() + 1;
        arguments.splice(1..end, now.iter().map(OsString::from));
        let note = Some(note(&former.join(" "), &now.join(" ")));
        return Ok(Current { arguments, note });
    }
    if begins(words, &["diff"]) {
        return Ok(without_cr(arguments));
    }
    Ok(Current {
        arguments,
        note: None,
    })
}

fn begins(words: &[OsString], with: &[&str]) -> bool {
    words.len() >= with.len() && words.iter().zip(with).all(|(word, with)| word == with)
}

/// Replaces `diff --cr FILE` and `diff --cr=FILE` by `diff FILE`.
fn without_cr(arguments: Vec<OsString>) -> Current {
    let mut is_former = false;
    let mut now = Vec::new();
    for argument in arguments {
        let value = argument
            .to_str()
            .and_then(|text| text.strip_prefix("--cr="));
        is_former |= argument == "--cr" || value.is_some();
        match value {
            Some(file) => now.push(file.into()),
            None if argument == "--cr" => {}
            None => now.push(argument),
        }
    }
    Current {
        arguments: now,
        note: is_former.then(|| note("diff --cr FILE", "diff FILE")),
    }
}

fn note(former: &str, now: &str) -> String {
    format!(
        "note: 'hybrid-operator {former}' is now 'hybrid-operator {now}'; the next version does not know the former \
         spelling"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(line: &str) -> Result<(String, Option<String>), String> {
        let words = line.split(' ').map(OsString::from).collect();
        let current = current(words).map_err(|error| error.to_string())?;
        let words: Vec<&str> = current
            .arguments
            .iter()
            .filter_map(|word| word.to_str())
            .collect();
        Ok((words.join(" "), current.note))
    }

    #[test]
    fn former_spellings_are_replaced_and_named() {
        let cases = "
            generate bundle --version 1.0.0 => olm bundle --version 1.0.0: generate bundle -> olm bundle
            generate catalog bundle => olm catalog bundle: generate catalog -> olm catalog
            bundle validate bundle => olm validate bundle: bundle validate -> olm validate
            images --cr a.yaml => template --images --cr a.yaml: images -> template --images
            diff --cr a.yaml --live => diff a.yaml --live: diff --cr FILE -> diff FILE
            diff --cr=a.yaml --cr - => diff a.yaml -: diff --cr FILE -> diff FILE";
        for case in cases.trim().lines() {
            let (former, rest) = case.trim().split_once(" => ").unwrap();
            let (now, named) = rest.split_once(": ").unwrap();
            let (of, to) = named.split_once(" -> ").unwrap();
            let (line, note) = replaced(&format!("x {former}")).unwrap();
            assert_eq!(line, format!("x {now}"));
            let start = format!("note: 'hybrid-operator {of}' is now 'hybrid-operator {to}'");
            assert!(
                note.as_deref().is_some_and(|note| note.starts_with(&start)),
                "{note:?}"
            );
        }
    }

    #[test]
    fn other_command_lines_stay_as_they_are() {
        for line in [
            "x",
            "x generate crds",
            "x generate --check",
            "x template images --cr a.yaml",
            "x olm bundle",
            "x diff a.yaml --base HEAD",
        ] {
            assert_eq!(replaced(line), Ok((line.to_owned(), None)));
        }
    }

    #[test]
    fn commands_that_are_gone_say_what_to_use() {
        for (line, instead) in [
            ("x create chart --kind A", "'hybrid-operator create api'"),
            ("x charts dependency build web", "'helm dependency build'"),
            ("x charts dependency update", "'helm dependency update'"),
            ("x charts dependency --help", "'helm dependency build'"),
        ] {
            let error = replaced(line).unwrap_err();
            assert!(error.contains(instead), "{error}");
        }
    }
}
