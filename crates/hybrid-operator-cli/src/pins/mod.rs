//! Pins of images: the variables `RELATED_IMAGE_*` of the operator, and the lines of `overrideValues` that give them to
//! charts.
//!
//! 1. [`feeds`] renders a chart with marked values, to learn which values lead to which image.
//! 2. [`solve`] renders it with lines of `overrideValues`, and keeps those with which the image is the wanted one.
//! 3. [`edit`] writes the lines and variables into files that people edit.
//!
//! An image that a variable holds already, with a digest, is not asked for again.

pub(crate) mod edit;
mod feeds;
mod places;
mod reference;
mod solve;
pub(crate) mod subject;

use std::collections::{BTreeMap, BTreeSet};

use helm_core::Values;

use crate::rbac::survey::Survey;
pub(crate) use reference::Reference;
use solve::Search;
use subject::{Overrides, PREFIX, Subject, variable_in};

/// The digest of an image, or why there is none.
pub(crate) type Asked = Result<String, String>;

/// The digests of images, which registries are asked for once.
pub(crate) struct Digests<'a> {
    known: BTreeMap<String, Asked>,
    ask: &'a mut dyn FnMut(&Reference) -> Asked,
}

impl<'a> Digests<'a> {
    pub(crate) fn new(ask: &'a mut dyn FnMut(&Reference) -> Asked) -> Self {
        Self {
            known: BTreeMap::new(),
            ask,
        }
    }

    fn of(&mut self, image: &Reference) -> Asked {
        let key = image.to_string();
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let asked = (self.ask)(image);
        self.known.insert(key, asked.clone());
        asked
    }
}

/// Something that a person should know or do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    /// An image is pinned without a digest.
    ByTag { image: String, why: String },
    /// An image is not pinned.
    Left {
        image: String,
        object: String,
        template: String,
        why: String,
        /// Line to add.
        line: String,
    },
}

/// The pins of a project.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// The variables of the operator, with images.
    pub(crate) variables: BTreeMap<String, String>,
    /// Images that templates name by their digest.
    pub(crate) related: BTreeSet<String>,
    pub(crate) findings: BTreeSet<Finding>,
    /// Number of images that are pinned, each with the values that lead to it.
    pub(crate) pinned: usize,
    /// Paths of values of the kind that samples set to something else than its chart.
    chosen: BTreeSet<String>,
    /// Variables of images, by the reference in the chart.
    names: BTreeMap<String, String>,
    /// Variables in lines that were there before.
    mentioned: BTreeSet<String>,
}

impl Pins {
    /// Creates pins with the variables of the operator, and the text of the watches file.
    pub(crate) fn new(variables: BTreeMap<String, String>, watches: &str) -> Self {
        let places = watches.match_indices(PREFIX);
        let names = places.filter_map(|(at, _)| variable_in(watches.get(at..)?));
        Self {
            mentioned: names.map(str::to_owned).collect(),
            variables,
            ..Self::default()
        }
    }

    /// Pins the images of a kind. Returns the new lines of `overrideValues`.
    pub(crate) fn add(
        &mut self,
        subject: &Subject<'_>,
        survey: &Survey,
        chosen: BTreeSet<String>,
        digests: &mut Digests<'_>,
    ) -> Overrides {
        let renders = survey.renders.iter().map(|render| &render.combination);
        let renders: Vec<_> = renders.filter(|render| !render.is_upgrade).collect();
        let cases = feeds::cases(subject, &renders);
        let feeds = feeds::feeds(subject, &cases);
        let defaults = subject.leaves(&Values::new());
        let leaves: Vec<_> = cases
            .iter()
            .map(|case| subject.leaves(&case.combination.values))
            .collect();
        let mut search = Search::new(subject, &cases);
        let mut own = Vec::new();
        for feed in &feeds {
            let has_line = feed
                .paths
                .keys()
                .any(|path| subject.present.contains_key(path));
            let mut cases = feed.at.iter().filter_map(|(case, _)| leaves.get(*case));
            let is_of_sample = cases.any(|leaves| {
                let mut paths = feed.paths.keys().filter(|path| chosen.contains(*path));
                paths.any(|path| leaves.get(path) != defaults.get(path))
            });
            // A line that is there goes before what a sample chooses.
            if has_line && is_of_sample {
                search.ignore(feed);
            } else {
                own.push((feed, has_line));
            }
        }
        self.chosen = chosen;
        for (feed, has_line) in own {
            let is_fixed = feed.paths.keys().any(|path| subject.fixed(path).is_some());
            let is_chosen = feed.paths.keys().any(|path| self.chosen.contains(path));
            if feed.paths.is_empty() || is_fixed || (is_chosen && !has_line) {
                search.leave(feed, self);
            } else {
                search.pin(feed, self, digests);
            }
        }
        let mut new = search.accepted;
        new.retain(|path, _| !subject.present.contains_key(path));
        new
    }

    /// Returns the variable for an image, and what it holds.
    fn variable_for(&mut self, image: &Reference) -> (String, Option<String>) {
        let whole = image.qualified();
        let key = whole.to_string();
        if let Some(name) = self.names.get(&key) {
            return (name.clone(), self.variables.get(name).cloned());
        }
        let is_used = |name: &String| self.names.values().any(|used| used == name);
        let mut known: Vec<(&String, Reference)> = self
            .variables
            .iter()
            .filter(|(name, _)| name.starts_with(PREFIX) && !is_used(name))
            .filter_map(|(name, text)| Some((name, Reference::parse(text)?.qualified())))
            .filter(|(_, held)| held.name() == whole.name())
            .filter(|(name, held)| held.tag == whole.tag || !self.mentioned.contains(*name))
            .collect();
        known.sort_by_key(|(_, held)| held.tag != whole.tag);
        if let Some((name, _)) = known.first() {
            let name = (*name).clone();
            self.names.insert(key, name.clone());
            let held = self.variables.get(&name).cloned();
            return (name, held);
        }
        let upper = |text: &str| -> String {
            let upper = text.chars().map(|c| c.to_ascii_uppercase());
            upper
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect()
        };
        let last = image.path.rsplit('/').next().unwrap_or_default();
        let tag = image.tag.as_deref().unwrap_or("latest");
        let names = [last.to_owned(), format!("{last}_{tag}"), key.clone()];
        let names = names.map(|name| format!("{PREFIX}{}", upper(&name)));
        let is_free = |name: &&String| !is_used(name) && !self.variables.contains_key(*name);
        let name = names.iter().find(is_free).unwrap_or(&names[2]).clone();
        self.names.insert(key, name.clone());
        (name, None)
    }
}
