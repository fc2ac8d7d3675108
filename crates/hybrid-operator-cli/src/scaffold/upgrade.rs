//! `charts upgrade`: another version of a chart, merged into the copy that a project has of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str;

use super::merge::{self, merge};
use super::{ChartSource, ScaffoldError};
use crate::files;

/// Changes of the copy of a chart, and conflicts.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    /// The files that change, with their paths in the chart; `None` is one that is removed.
    pub(crate) changes: BTreeMap<String, Option<Vec<u8>>>,
    /// The files that have changes of the project and of the new version.
    pub(crate) merged: Vec<String>,
    /// The files that cannot have both, and why.
    pub(crate) conflicts: Vec<(String, Conflict)>,
}

/// Reason why a file cannot have the changes of the project and those of the new version.
#[derive(Debug)]
pub(crate) enum Conflict {
    /// Both have changed these places.
    Places(Vec<merge::Conflict>),
    /// The file as a whole.
    File(&'static str),
}

/// Merges what changed between two versions of a chart into a copy of the first.
pub(crate) fn merge_chart(
    copy: &Path,
    old: &ChartSource,
    new: &ChartSource,
) -> Result<Merge, ScaffoldError> {
    let [old, new] = [old, new].map(|chart| chart.own_files().collect::<BTreeMap<_, _>>());
    let mut merge = Merge::default();
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let name = (*name).to_owned();
        let local = files::read(&copy.join(&name))?;
        let (old, new) = (old.get(&*name).copied(), new.get(&*name).copied());
        match outcome(old, local.as_deref(), new) {
            Outcome::Kept => {}
            Outcome::New => {
                merge.changes.insert(name, new.map(<[u8]>::to_vec));
            }
            Outcome::Merged(text) => {
                merge.merged.push(name.clone());
                merge.changes.insert(name, Some(text.into_bytes()));
            }
            Outcome::Conflict(why) => merge.conflicts.push((name, why)),
        }
    }
    Ok(merge)
}

/// Result of the merge for one file of the copy.
enum Outcome {
    Kept,
    New,
    Merged(String),
    Conflict(Conflict),
}

fn outcome(old: Option<&[u8]>, local: Option<&[u8]>, new: Option<&[u8]>) -> Outcome {
    if new == old || new == local {
        return Outcome::Kept;
    }
    if local == old {
        return Outcome::New;
    }
    let why = match [old, local, new].map(|file| file.map(str::from_utf8)) {
        [Some(Ok(old)), Some(Ok(local)), Some(Ok(new))] => {
            return match merge(old, local, new) {
                Ok(text) => Outcome::Merged(text),
                Err(places) => Outcome::Conflict(Conflict::Places(places)),
            };
        }
        [_, None, _] => "removed here, and changed there",
        [_, _, None] => "changed here, and removed there",
        [None, ..] => "added here and there",
        _ => "not a text",
    };
    Outcome::Conflict(Conflict::File(why))
}

#[cfg(test)]
mod tests {
    use super::{Conflict, Outcome, outcome};

    #[test]
    fn a_file_has_the_changes_of_both_or_is_a_conflict() {
        let text = "a\nb\nc\n";
        for (old, local, new, expected) in [
            (Some(text), Some(text), Some("a\n"), "new"),
            (Some(text), Some("b\n"), Some(text), "kept"),
            (Some(text), Some("b\n"), Some("b\n"), "kept"),
            (Some(text), None, Some(text), "kept"),
            (Some(text), None, None, "kept"),
            (Some(text), Some(text), None, "new"),
            (None, None, Some(text), "new"),
            (None, Some(text), Some(text), "kept"),
            (
                Some(text),
                Some("A\nb\nc\n"),
                Some("a\nb\nC\n"),
                "A\nb\nC\n",
            ),
            (Some(text), Some("A\nb\nc\n"), Some("B\nb\nc\n"), "at 1"),
            (
                Some(text),
                Some("b\n"),
                None,
                "changed here, and removed there",
            ),
            (
                Some(text),
                None,
                Some("b\n"),
                "removed here, and changed there",
            ),
            (None, Some("b\n"), Some(text), "added here and there"),
        ] {
            let [old, local, new] = [old, local, new].map(|text| text.map(str::as_bytes));
            let found = match outcome(old, local, new) {
                Outcome::Kept => "kept".to_owned(),
                Outcome::New => "new".to_owned(),
                Outcome::Merged(text) => text,
                Outcome::Conflict(Conflict::Places(places)) => format!("at {}", places[0].line),
                Outcome::Conflict(Conflict::File(why)) => why.to_owned(),
            };
            assert_eq!(found, expected);
        }
        let why = outcome(Some(b"\xff"), Some(b"\xfe"), Some(b"\xfd"));
        assert!(matches!(
            why,
            Outcome::Conflict(Conflict::File("not a text"))
        ));
    }
}
