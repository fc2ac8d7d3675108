//! Which values lead to which image: values are marked, and the marks are looked for in the rendered images.

use std::collections::{BTreeMap, BTreeSet};

use super::places::{Place, is_made_up, places};
use super::reference::Part;
use super::subject::{Overrides, Subject};
use crate::rbac::matrix::Combination;

/// A render that has images which the ones before it do not have.
pub(super) struct Case {
    pub(super) combination: Combination,
    pub(super) places: Vec<Place>,
}

/// An image, and the values that lead to it.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) image: String,
    /// The paths, each with what it may hold.
    pub(super) paths: BTreeMap<String, Vec<Part>>,
    /// Case and index of its places.
    pub(super) at: BTreeSet<(usize, usize)>,
    /// The first of its places.
    pub(super) place: Place,
}

/// A value that may be a part of an image.
struct Candidate {
    path: String,
    text: String,
}

impl Candidate {
    /// Returns the value with a mark, which stays valid in a tag, a name and a version.
    fn marked(&self, mark: &str) -> String {
        // An action would be one of overrideValues.
        match self.text.as_str() {
            text if text.is_empty() || text.contains("{{") => mark.to_owned(),
            text => format!("{text}-{mark}"),
        }
    }
}

/// Returns the cases that reach every image of a chart.
pub(super) fn cases(subject: &Subject<'_>, combinations: &[&Combination]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut seen = BTreeSet::new();
    for combination in combinations {
        let Ok(found) = subject.render(combination, &Overrides::new(), false) else {
            continue;
        };
        let places = places(&found);
        let key = |place: &Place| (place.at.clone(), place.image.clone());
        let wanted = places.iter().filter(|place| !is_made_up(&place.image));
        let new: Vec<_> = wanted.map(key).filter(|key| !seen.contains(key)).collect();
        if !new.is_empty() {
            seen.extend(new);
            cases.push(Case {
                combination: (*combination).clone(),
                places,
            });
        }
    }
    cases
}

/// Finds the values that lead to each image.
pub(super) fn feeds(subject: &Subject<'_>, cases: &[Case]) -> Vec<Feed> {
    let mut feeds: BTreeMap<(String, BTreeMap<String, Vec<Part>>), Feed> = BTreeMap::new();
    for (number, case) in cases.iter().enumerate() {
        let mut led: BTreeMap<usize, BTreeMap<String, Vec<Part>>> = BTreeMap::new();
        for group in candidates(subject, case) {
            let group: Vec<&Candidate> = group.iter().collect();
            learn(subject, case, &group, &mut led);
        }
        for (index, place) in case.places.iter().enumerate() {
            if is_made_up(&place.image) {
                continue;
            }
            let paths = led.remove(&index).unwrap_or_default();
            let feed = feeds
                .entry((place.image.clone(), paths.clone()))
                .or_insert_with(|| Feed {
                    image: place.image.clone(),
                    paths,
                    at: BTreeSet::new(),
                    place: place.clone(),
                });
            feed.at.insert((number, index));
        }
    }
    feeds.into_values().collect()
}

/// Returns groups of values to mark together: those that are not empty, digests and tags. A digest takes the place of
/// a tag, so that a mark in one would hide the other.
fn candidates(subject: &Subject<'_>, case: &Case) -> [Vec<Candidate>; 3] {
    let (mut filled, mut digests, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    let images: BTreeSet<&str> = case
        .places
        .iter()
        .map(|place| place.image.as_str())
        .collect();
    let mut leaves = subject.leaves(&case.combination.values);
    // Values that a chart reads although its values.yaml does not have them.
    let repositories: Vec<String> = leaves
        .keys()
        .filter_map(|path| Some(path.strip_suffix("repository")?.to_owned()))
        .collect();
    for above in repositories {
        for name in ["tag", "digest"] {
            leaves.entry(format!("{above}{name}")).or_default();
        }
    }
    for (path, text) in leaves {
        let key = path.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| key.contains(word));
        let is_tag = has(&["tag", "version", "image", "release"]);
        let is_part = || {
            images.iter().any(|image| {
                let parts = Part::of(&text, image);
                let is_plain = |part: &Part| *part != Part::Tag || is_tag;
                parts.iter().any(is_plain)
            })
        };
        let candidate = Candidate {
            path: path.clone(),
            text: text.clone(),
        };
        if text.is_empty() {
            if has(&["digest", "sha"]) {
                digests.push(candidate);
            } else if has(&["tag", "version"]) {
                tags.push(candidate);
            }
        } else if is_part() || (text.contains("{{") && has(&["image", "repository", "tag"])) {
            filled.push(candidate);
        }
    }
    [filled, digests, tags]
}

/// Marks values, and records the images that have the marks. If the chart does not render with all marks, halves are
/// marked.
fn learn(
    subject: &Subject<'_>,
    case: &Case,
    candidates: &[&Candidate],
    led: &mut BTreeMap<usize, BTreeMap<String, Vec<Part>>>,
) {
    if candidates.is_empty() {
        return;
    }
    let mark = |number: usize| format!("x{number}x");
    let marked = candidates.iter().enumerate();
    let overrides = marked
        .map(|(number, candidate)| (candidate.path.clone(), candidate.marked(&mark(number))))
        .collect();
    let rendered = subject.render(&case.combination, &overrides, false);
    let found = rendered.map(|found| places(&found));
    let Some(found) = found.ok().filter(|found| found.len() == case.places.len()) else {
        if candidates.len() > 1 {
            let (one, other) = candidates.split_at(candidates.len() / 2);
            learn(subject, case, one, led);
            learn(subject, case, other, led);
        }
        return;
    };
    for (index, (before, after)) in case.places.iter().zip(&found).enumerate() {
        for (number, candidate) in candidates.iter().enumerate() {
            if after.image.contains(&mark(number)) {
                let parts = parts(candidate, &before.image, &after.image, &mark(number));
                let paths = led.entry(index).or_default();
                paths.entry(candidate.path.clone()).or_insert(parts);
            }
        }
    }
}

/// Returns what a value may hold of an image in which its mark was found.
fn parts(candidate: &Candidate, before: &str, after: &str, mark: &str) -> Vec<Part> {
    let key = candidate.path.to_ascii_lowercase();
    if !candidate.text.is_empty() && !candidate.text.contains("{{") {
        return Part::of(&candidate.text, before);
    }
    if after.contains(&format!(":{mark}")) && (key.contains("digest") || key.contains("sha")) {
        return vec![Part::Hex, Part::Digest];
    }
    if key.contains("digest") || key.contains("sha") {
        return vec![Part::Digest];
    }
    if key.ends_with("tag") || key.ends_with("version") {
        return vec![Part::Tag];
    }
    vec![Part::Whole]
}
