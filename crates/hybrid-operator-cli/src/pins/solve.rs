//! Which lines of `overrideValues` make a chart render the wanted images: each is tried by a render.

use std::collections::{BTreeMap, BTreeSet};

use super::feeds::{Case, Feed};
use super::places::{Place, bad_label, places};
use super::reference::{DigestField, Part, Reference};
use super::subject::{Overrides, Subject, expand, variable_in};
use super::{Asked, Digests, Finding, Pins};

/// Most ways in which the values of one image are tried.
const TRIALS: usize = 8;

/// The search for a kind.
pub(super) struct Search<'a> {
    subject: &'a Subject<'a>,
    cases: &'a [Case],
    /// Labels that are invalid without pins, too.
    labels: Vec<bool>,
    /// Lines that hold.
    pub(super) accepted: Overrides,
    /// Image of each place with these lines, by case and index.
    wanted: BTreeMap<(usize, usize), Reference>,
    /// Places that hold what samples choose.
    ignored: BTreeSet<(usize, usize)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(subject: &'a Subject<'a>, cases: &'a [Case]) -> Self {
        let none = Overrides::new();
        let has_bad_label = |case: &Case| {
            let found = subject.render(&case.combination, &none, false);
            let found = found.unwrap_or_default();
            found
                .iter()
                .any(|one| bad_label(one.object.object()).is_some())
        };
        Self {
            subject,
            cases,
            labels: cases.iter().map(has_bad_label).collect(),
            accepted: Overrides::new(),
            wanted: BTreeMap::new(),
            ignored: BTreeSet::new(),
        }
    }

    /// Leaves open what the places of an image hold.
    pub(super) fn ignore(&mut self, feed: &Feed) {
        self.ignored.extend(&feed.at);
    }

    /// Pins an image, or says why not.
    pub(super) fn pin(&mut self, feed: &Feed, pins: &mut Pins, digests: &mut Digests<'_>) {
        let Some(own) = Reference::parse(&feed.image) else {
            return;
        };
        let present: Overrides = self
            .subject
            .present
            .iter()
            .filter(|(path, _)| feed.paths.contains_key(*path))
            // Other images may have them as well.
            .filter(|(path, _)| !self.accepted.contains_key(*path))
            .map(|(path, text)| (path.clone(), text.clone()))
            .collect();
        let known = present.values().find_map(|text| variable_in(text));
        let (variable, current) = match known {
            Some(variable) => {
                let key = own.qualified().to_string();
                pins.names.entry(key).or_insert_with(|| variable.to_owned());
                (variable.to_owned(), pins.variables.get(variable).cloned())
            }
            None => pins.variable_for(&own),
        };
        let (base, answered) = wanted(&own, current.as_deref(), digests);
        let mut tries = Vec::new();
        if let Ok(digest) = &answered {
            let digest = Some(digest.clone());
            tries.push(Reference {
                digest,
                ..base.clone()
            });
        }
        if tries.first() != Some(&base) {
            tries.push(base.clone());
        }
        let mut reason = None;
        for reference in tries {
            for option in options(feed, &variable, &present) {
                let new: Overrides = option
                    .into_iter()
                    .filter(|(path, _)| !self.accepted.contains_key(path))
                    .collect();
                match self.accept(feed, &variable, &reference, new, pins) {
                    Ok(()) => {
                        if reference.digest.is_none() {
                            let why = answered.err().or(reason).unwrap_or_default();
                            let image = reference.to_string();
                            pins.findings.insert(Finding::ByTag { image, why });
                        }
                        return;
                    }
                    Err(why) => drop(reason.get_or_insert(why)),
                }
            }
        }
        self.refuse(feed, &own, &present, &variable, reason, pins);
    }

    /// Adds lines if with them all images are as they should be.
    fn accept(
        &mut self,
        feed: &Feed,
        variable: &str,
        reference: &Reference,
        new: Overrides,
        pins: &mut Pins,
    ) -> Result<(), String> {
        let mut variables = pins.variables.clone();
        variables.insert(variable.to_owned(), reference.to_string());
        let mut lines = self.accepted.clone();
        lines.extend(new);
        let expanded = expand(&lines, &variables);
        for (number, case) in self.cases.iter().enumerate() {
            let found = self.subject.render(&case.combination, &expanded, true)?;
            let places = places(&found);
            if places.len() != case.places.len() {
                return Err("other objects are rendered then".to_owned());
            }
            let label = found.iter().find_map(|one| bad_label(one.object.object()));
            if let (Some(label), Some(false)) = (label, self.labels.get(number)) {
                return Err(format!("a label would be {label:?}"));
            }
            for (index, (before, after)) in case.places.iter().zip(&places).enumerate() {
                self.check(feed, reference, (number, index), before, after)?;
            }
        }
        self.accepted = lines;
        pins.variables = variables;
        pins.pinned += 1;
        let places = feed.at.iter();
        self.wanted
            .extend(places.map(|at| (*at, reference.clone())));
        Ok(())
    }

    /// Checks what a place holds with further lines.
    fn check(
        &self,
        feed: &Feed,
        reference: &Reference,
        at: (usize, usize),
        before: &Place,
        after: &Place,
    ) -> Result<(), String> {
        let now = Reference::parse(&after.image);
        let is = |wanted: &Reference| now.as_ref().is_some_and(|now| now.is_same(wanted));
        if feed.at.contains(&at) {
            return if is(reference) {
                Ok(())
            } else {
                Err(format!("the image would be {:?}", after.image))
            };
        }
        let holds = match self.wanted.get(&at) {
            _ if self.ignored.contains(&at) => true,
            Some(wanted) => is(wanted),
            None => {
                before.image == after.image
                    || Reference::parse(&before.image).is_some_and(|before| is(&before))
            }
        };
        if holds {
            return Ok(());
        }
        Err(format!(
            "{} would have the image {:?}, because it has a value of {} as well",
            after.object, after.image, feed.place.object
        ))
    }

    /// Leaves an image that no value leads to, or that others decide on.
    pub(super) fn leave(&self, feed: &Feed, pins: &mut Pins) {
        if let Some(own) = Reference::parse(&feed.image) {
            let (variable, _) = pins.variable_for(&own);
            self.refuse(feed, &own, &Overrides::new(), &variable, None, pins);
        }
    }

    /// Says what to write for an image that is not pinned.
    fn refuse(
        &self,
        feed: &Feed,
        own: &Reference,
        present: &Overrides,
        variable: &str,
        reason: Option<String>,
        pins: &mut Pins,
    ) {
        if own.digest.is_some() && feed.paths.is_empty() {
            pins.related.insert(own.to_string());
            return;
        }
        let fixed = feed
            .paths
            .keys()
            .find_map(|path| Some((path, self.subject.fixed(path)?)));
        let (why, line) = if let Some((path, text)) = fixed {
            let why = format!("overrideValues has {path}: {text}");
            (
                why,
                "name the variable RELATED_IMAGE_..., and set it in config/manager".to_owned(),
            )
        } else if present.is_empty() {
            let path = pins
                .chosen
                .iter()
                .find(|path| feed.paths.contains_key(*path));
            if let Some(path) = path {
                let why = format!("samples set {path}, so that it is chosen by custom resources");
                (
                    why,
                    format!("to fix it, {}", lines_to_write(feed, variable)),
                )
            } else {
                let why = reason.filter(|_| !feed.paths.is_empty());
                let why = why.unwrap_or_else(|| "no value of the chart leads to it".to_owned());
                let name = own.path.rsplit('/').next().unwrap_or_default();
                let value = name.replace(['-', '.'], "_");
                let line = format!(
                    "write image: {{{{ .Values.images.{value} | quote }}}} in {}, and images.{value}: {} in the values.yaml of its chart",
                    feed.place.template, feed.image
                );
                (why, line)
            }
        } else {
            let why = reason.unwrap_or_default();
            (
                why,
                format!(
                    "instead of {}, {}",
                    shown(present),
                    lines_to_write(feed, variable)
                ),
            )
        };
        pins.findings.insert(Finding::Left {
            image: feed.image.clone(),
            object: feed.place.object.clone(),
            template: feed.place.template.clone(),
            why,
            line,
        });
    }
}

/// Returns the lines that fit an image, for a person to write.
fn lines_to_write(feed: &Feed, variable: &str) -> String {
    let lines = options(feed, variable, &Overrides::new());
    let lines = lines.first().cloned().unwrap_or_default();
    format!("write {}", shown(&lines))
}

fn shown(lines: &Overrides) -> String {
    let lines = lines.iter().map(|(path, text)| format!("{path}: '{text}'"));
    lines.collect::<Vec<_>>().join(", ")
}

/// Returns the reference to use without a digest that must be asked for, and the digest.
fn wanted(own: &Reference, current: Option<&str>, digests: &mut Digests<'_>) -> (Reference, Asked) {
    let own = own.qualified();
    let current = current.and_then(Reference::parse);
    // A variable with another image is the choice of the author; with another tag it is that of an older chart.
    let base = match current {
        Some(current)
            if current.qualified().name() != own.name()
                || current.tag.is_none()
                || current.tag == own.tag =>
        {
            current
        }
        _ => own,
    };
    let answered = match &base.digest {
        Some(digest) => Ok(digest.clone()),
        None => digests.of(&base),
    };
    (base, answered)
}

/// Returns the lines to try: those that are there, or what each value may hold.
fn options(feed: &Feed, variable: &str, present: &Overrides) -> Vec<Overrides> {
    if !present.is_empty() {
        return vec![present.clone()];
    }
    let is_digest = |part: &Part| matches!(part, Part::Digest | Part::Hex);
    let lines = |choice: &Choice<'_>, field| -> Overrides {
        let lines = choice.iter();
        lines
            .map(|(path, part)| ((*path).to_owned(), part.expression(variable, field)))
            .collect()
    };
    let choices = choices(feed);
    let mut options: Vec<Overrides> = choices
        .iter()
        .map(|choice| {
            let has_digest = choice.iter().any(|(_, part)| is_digest(part));
            let field = if has_digest {
                DigestField::Present
            } else {
                DigestField::Absent
            };
            lines(choice, field)
        })
        .collect();
    // Some charts use the digest only beside others.
    for mut choice in choices {
        choice.retain(|(_, part)| !is_digest(part));
        let without = lines(&choice, DigestField::Absent);
        if !without.is_empty() && !options.contains(&without) {
            options.push(without);
        }
    }
    options
}

/// A part for each path.
type Choice<'f> = Vec<(&'f str, Part)>;

/// Returns the combinations of what the values of an image may hold.
fn choices(feed: &Feed) -> Vec<Choice<'_>> {
    let mut choices: Vec<Choice<'_>> = vec![Vec::new()];
    for (path, parts) in &feed.paths {
        let mut next = Vec::new();
        for choice in &choices {
            for part in parts {
                let mut longer = choice.clone();
                longer.push((path, *part));
                next.push(longer);
            }
        }
        if !next.is_empty() {
            next.truncate(TRIALS);
            choices = next;
        }
    }
    choices.retain(|choice| !choice.is_empty());
    choices
}
