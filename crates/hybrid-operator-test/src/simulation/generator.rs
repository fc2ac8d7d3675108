//! Draws histories from seeds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::history::{Action, After, Helm, History, Named, Propagation, Requests, Step};
use super::people::holds;
use super::project::{Custom, Project};
use super::snapshot::RECORDS;
use crate::fault::Fault;

/// Number of steps after which a history gets no more.
const MAX_STEPS: usize = 12;

/// Objects that the program makes for a custom resource.
pub(super) struct Made {
    /// Objects of the first values of all fields.
    pub(super) always: Vec<Named>,
    /// Objects that a field adds or changes with another value, by field and value.
    pub(super) by_value: BTreeMap<(usize, usize), Vec<Named>>,
}

/// Draws a history. `made` has what the program makes for each custom resource.
pub(super) fn history(seed: u64, project: &Project, made: &[Made]) -> History {
    let mut random = fastrand::Rng::with_seed(seed);
    let is_focused = random.u8(0..4) > 0;
    let users: Vec<User> = project
        .resources
        .iter()
        .zip(made)
        .map(|(custom, made)| User::new(custom, made, &mut random))
        .collect();
    let mut drawing = Drawing {
        main: random.usize(0..users.len().max(1)),
        is_focused,
        random,
        project,
        users,
    };
    let mut steps = Vec::new();
    if is_focused && drawing.random.u8(0..3) == 0 {
        let version = drawing.version();
        steps.push(Step::new(After::Time(0), Action::Deploy(version)));
    }
    for (index, user) in drawing.users.iter().enumerate() {
        if index == drawing.main || !is_focused && drawing.random.u8(0..3) == 0 {
            steps.push(Step::new(After::Time(0), Action::Apply(user.object())));
        }
    }
    let count = drawing.random.usize(1..=MAX_STEPS);
    while steps.len() < count {
        match drawing.random.u8(0..16) {
            0..=11 if is_focused => steps.extend(drawing.change()),
            12..=13 if is_focused => steps.extend(drawing.disturbance()),
            14 if is_focused => steps.extend(drawing.use_by_others()),
            0..=7 => steps.extend(drawing.change()),
            8 => steps.extend(drawing.use_by_others()),
            9..=10 => steps.extend(drawing.disturbance()),
            _ => {
                let action = drawing.action();
                let after = drawing.after();
                steps.push(Step { after, action });
            }
        }
    }
    if is_focused && drawing.random.u8(0..4) == 0 {
        let named = Named::of(&drawing.wish(drawing.main, false));
        steps.push(Step {
            after: drawing.after(),
            action: Action::Delete(named, drawing.propagation()),
        });
    }
    let elects = project.elects && drawing.random.u8(0..4) == 0;
    History {
        seed,
        replicas: if elects { 2 } else { 1 },
        steps,
    }
}

struct Drawing<'a> {
    random: fastrand::Rng,
    project: &'a Project,
    users: Vec<User<'a>>,
    /// The user who does most.
    main: usize,
    /// Whether one user changes one custom resource, and little else happens.
    is_focused: bool,
}

/// Somebody who changes one custom resource.
struct User<'a> {
    custom: &'a Custom,
    made: &'a Made,
    /// The values that the fields have.
    choice: Vec<usize>,
    /// The values that they had before.
    former: Vec<usize>,
    /// The fields that vary in this history.
    varying: Vec<usize>,
    annotation: Option<usize>,
}

impl<'a> User<'a> {
    fn new(custom: &'a Custom, made: &'a Made, random: &mut fastrand::Rng) -> Self {
        // A field with more values varies more often.
        let values = custom.variations().map(|(field, ..)| field);
        let values: Vec<usize> = values.collect();
        let count = random.usize(1..=3);
        let varying = random.choose_multiple(values, count);
        let annotation = (random.u8(0..6) == 0 && !custom.annotations.is_empty())
            .then(|| random.usize(0..custom.annotations.len()));
        Self {
            custom,
            made,
            choice: vec![0; custom.fields.len()],
            former: vec![0; custom.fields.len()],
            varying,
            annotation,
        }
    }

    fn object(&self) -> Value {
        let mut object = self.custom.with(&self.choice);
        let annotations = &self.custom.annotations;
        if let Some((name, value)) = self.annotation.and_then(|index| annotations.get(index))
            && let Some(metadata) = object.pointer_mut("/metadata")
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.insert("annotations".to_owned(), json!({name: value}));
        }
        object
    }

    /// Returns the objects that the program makes for the present choice.
    fn targets(&self) -> Vec<&'a Named> {
        self.made.always.iter().chain(self.varied()).collect()
    }

    /// Returns those of them that the present values add or change.
    fn varied(&self) -> impl Iterator<Item = &'a Named> {
        let chosen = self.choice.iter().copied().enumerate();
        let varied = chosen.filter_map(|chosen| self.made.by_value.get(&chosen));
        varied.flatten()
    }

    /// Returns the field, and its value, that makes the namespace or the definition in which an object is.
    fn value_that_makes_place_for(&self, other: &Named) -> Option<(usize, usize)> {
        let makes = |names: &Vec<Named>| names.iter().any(|made| holds(made, other));
        let mut values = self.made.by_value.iter();
        let found = values.find(|(_, names)| makes(names));
        found.map(|(place, _)| *place)
    }

    /// Changes one field or annotation, or takes the last change of a field back.
    fn vary(&mut self, random: &mut fastrand::Rng) {
        if !self.custom.annotations.is_empty() && random.u8(0..10) == 0 {
            let index = random.usize(0..self.custom.annotations.len());
            self.annotation = self.annotation.is_none().then_some(index);
            return;
        }
        if self.former != self.choice && random.u8(0..3) == 0 {
            std::mem::swap(&mut self.former, &mut self.choice);
            return;
        }
        self.former.clone_from(&self.choice);
        if let Some(index) = random.choice(&self.varying).copied()
            && let Some(field) = self.custom.fields.get(index)
            && let Some(chosen) = self.choice.get_mut(index)
        {
            let count = field.values.len();
            *chosen = (*chosen + random.usize(1..count.max(2))) % count.max(1);
        }
    }
}

impl Drawing<'_> {
    fn after(&mut self) -> After {
        match self.random.u8(0..10) {
            0..=3 => After::Rest,
            4..=7 => After::Requests(self.random.u32(0..30)),
            _ => After::Time(self.random.u64(0..30_000)),
        }
    }

    /// Draws a time during a change, most often one of its first requests.
    fn during(&mut self) -> After {
        let requests = if self.random.bool() { 8 } else { 30 };
        After::Requests(self.random.u32(0..requests))
    }

    /// Draws somebody.
    fn user(&mut self) -> usize {
        if self.is_focused || self.random.bool() {
            return self.main;
        }
        self.random.usize(0..self.users.len().max(1))
    }

    /// Returns a custom resource as its user wants it next.
    fn wish(&mut self, user: usize, varies: bool) -> Value {
        let Some(user) = self.users.get_mut(user) else {
            return Value::Null;
        };
        if varies {
            user.vary(&mut self.random);
        }
        user.object()
    }

    /// Draws an object that the program makes for a custom resource as it is wanted now.
    fn target(&mut self) -> Option<Named> {
        let user = self.user();
        self.target_of(user)
    }

    fn target_of(&mut self, user: usize) -> Option<Named> {
        let user = self.users.get(user)?;
        let varied: Vec<&Named> = user.varied().collect();
        let targets = if varied.is_empty() || self.random.bool() {
            user.targets()
        } else {
            varied
        };
        self.random.choice(targets).cloned()
    }

    fn version(&mut self) -> usize {
        self.random.usize(0..self.project.versions.len().max(1))
    }

    /// Returns the object of which an autoscaler of a release sets the number of replicas.
    fn autoscaled(&self, user: usize) -> Option<Named> {
        let targets = self.users.get(user)?.targets();
        let named = |is_scaled: &dyn Fn(&str) -> bool| {
            let mut targets = targets.iter();
            targets.find(|target| is_scaled(&target.kind)).copied()
        };
        named(&|kind| kind == "HorizontalPodAutoscaler")?;
        named(&|kind| matches!(kind, "Deployment" | "StatefulSet" | "ReplicaSet")).cloned()
    }

    /// Draws the record of one of the first revisions of a release.
    fn record(&mut self, user: usize) -> Option<Named> {
        let revision = self.random.u8(1..5);
        let mut made = self.users.get(user)?.made.always.iter();
        let (first, name) = made.find_map(|made| {
            let name = made.name.strip_suffix(".v1")?;
            name.starts_with(RECORDS).then_some((made, name))
        })?;
        Some(Named {
            name: format!("{name}.v{revision}"),
            ..first.clone()
        })
    }

    /// Returns a change of a custom resource, with what happens before, during and after it.
    fn change(&mut self) -> Vec<Step> {
        let user = self.user();
        let mut steps = Vec::new();
        let mut after = After::Rest;
        let mut has_fault = false;
        match self.random.u8(0..8) {
            0..=1 => {
                steps.push(Step::new(after, self.fault()));
                after = After::Time(0);
                has_fault = true;
            }
            2 => after = self.during(),
            _ => {}
        }
        let change = if !self.project.settings.is_empty() && self.random.u8(0..8) == 0 {
            self.configure()
        } else {
            Action::Apply(self.wish(user, true))
        };
        steps.push(Step::new(after, change));
        if self.random.bool()
            && let Some(scaled) = self.autoscaled(user)
        {
            let replicas = self.random.u32(0..6);
            steps.push(Step::new(After::Rest, Action::Scale(scaled, replicas)));
        }
        let mut is_down = false;
        while self.random.u8(0..5) < 3 {
            let when = if std::mem::take(&mut has_fault) && self.random.bool() {
                After::Fault
            } else {
                self.during()
            };
            let event = self.event(user);
            is_down = match event {
                Action::Crash => true,
                Action::Kill | Action::Restart | Action::Deploy(_) => false,
                _ => is_down,
            };
            steps.push(Step::new(when, event));
        }
        if is_down && self.random.bool() {
            steps.push(Step::new(After::Time(1_000), Action::Kill));
        }
        steps
    }

    /// Draws what happens during a change.
    fn event(&mut self, user: usize) -> Action {
        let which = self.random.u64(..);
        let target = self.target_of(user);
        match (self.random.u8(0..15), target) {
            (0..=1, _) => Action::Kill,
            (2..=3, _) => Action::Crash,
            (4..=7, _) => self.change_or_end(user),
            (8, Some(target)) => Action::Spoil(target, which),
            (9, Some(target)) => Action::Delete(target, self.propagation()),
            (10, _) => match self.record(user) {
                Some(record) => Action::Delete(record, self.propagation()),
                None => Action::Wait,
            },
            (11, _) => Action::Deploy(self.version()),
            (12, _) => self.configure(),
            (13, _) => self.retry(user),
            _ => self.action(),
        }
    }

    /// Returns what happens to objects of a release, and then the release changes or ends.
    fn disturbance(&mut self) -> Vec<Step> {
        let user = self.user();
        let mut steps = Vec::new();
        for _ in 0..self.random.u8(1..6) {
            let Some(target) = self.target_of(user) else {
                break;
            };
            let which = self.random.u64(..);
            let action = match self.random.u8(0..5) {
                0 => Action::Hold(target),
                1 => Action::Delete(target, self.propagation()),
                2 if self.project.suspends.is_some() => self.ask(user),
                _ => Action::Spoil(target, which),
            };
            let after = if steps.is_empty() {
                After::Rest
            } else {
                After::Time(0)
            };
            steps.push(Step { after, action });
        }
        let (after, action) = (self.after(), self.change_or_end(user));
        steps.push(Step { after, action });
        steps
    }

    /// Returns steps in which others use what a release has made, and then it changes or ends.
    fn use_by_others(&mut self) -> Vec<Step> {
        let step = |action| Step::new(After::Rest, action);
        let Some(other) = self.random.choice(&self.project.others).cloned() else {
            return Vec::new();
        };
        let named = Named::of(&other);
        let wanted = |user: &User<'_>| user.value_that_makes_place_for(&named);
        let mut places = self.users.iter().map(wanted).enumerate();
        let Some((user, (field, value))) = places.find_map(|(user, place)| Some((user, place?)))
        else {
            return vec![step(Action::Create(other))];
        };
        let former = self.users.get_mut(user).and_then(|user| {
            let chosen = user.choice.get_mut(field)?;
            Some(std::mem::replace(chosen, value))
        });
        let mut steps = vec![
            step(Action::Apply(self.wish(user, false))),
            step(Action::Create(other)),
        ];
        if self.random.bool()
            && let Some(user) = self.users.get_mut(user)
            && let Some((chosen, former)) = user.choice.get_mut(field).zip(former)
        {
            *chosen = former;
        }
        steps.push(step(self.change_or_end(user)));
        steps
    }

    /// Returns a change of a custom resource, or its deletion.
    fn change_or_end(&mut self, user: usize) -> Action {
        if self.random.u8(0..3) > 0 {
            return Action::Apply(self.wish(user, true));
        }
        let named = Named::of(&self.wish(user, false));
        Action::Delete(named, self.propagation())
    }

    fn action(&mut self) -> Action {
        let target = self.target();
        let user = self.user();
        let which = self.random.u64(..);
        let varies = self.random.bool();
        match (self.random.u8(0..131), target) {
            (0..=27, _) => Action::Apply(self.wish(user, true)),
            (28..=35, _) => Action::Recreate(self.wish(user, varies)),
            (36..=41, _) => {
                let named = Named::of(&self.wish(user, false));
                Action::Delete(named, self.propagation())
            }
            (42..=44, _) => Action::Put(self.wish(user, varies)),
            (45..=52, Some(target)) => Action::Spoil(target, which),
            (53..=58, Some(target)) => Action::Delete(target, self.propagation()),
            (59..=63, _) if !self.project.others.is_empty() => {
                let other = self.random.choice(&self.project.others).cloned();
                let other = other.unwrap_or_default();
                if self.random.u8(0..4) == 0 {
                    Action::Delete(Named::of(&other), Propagation::Background)
                } else {
                    Action::Create(other)
                }
            }
            (64..=71, _) => Action::Kill,
            (72..=73, _) => Action::Restart,
            (74..=75, _) => Action::Crash,
            (76..=80, _) if self.project.versions.len() > 1 => Action::Deploy(self.version()),
            (81..=83, _) => Action::Partition(self.random.u64(0..60_000)),
            (84..=94, _) => self.fault(),
            (95..=96, _) => Action::CutWatches,
            (97..=98, _) => Action::Compact,
            (99..=102, _) if !self.project.replaced.is_empty() => self.replacement(),
            (103..=106, Some(target)) if self.random.bool() => Action::Hold(target),
            (103..=106, _) => {
                if self.project.suspends.is_some() && self.random.bool() {
                    self.ask(user)
                } else {
                    Action::Hold(Named::of(&self.wish(user, false)))
                }
            }
            (107..=110, _) => {
                let commands = [
                    Helm::Uninstall,
                    Helm::Rollback,
                    Helm::Interrupted,
                    Helm::Operator,
                ];
                let command = commands.get(self.random.usize(0..commands.len()));
                let command = command.copied().unwrap_or(Helm::Uninstall);
                Action::Helm(Named::of(&self.wish(user, false)), command)
            }
            (111..=112, Some(target)) => Action::Scale(target, self.random.u32(0..6)),
            (117..=118, Some(target)) => Action::Forbid(target, self.random.u64(0..60_000)),
            (119..=121, Some(target)) => Action::Deny(target, self.random.u64(0..60_000)),
            (113..=116, _) => Action::Pause(self.random.u64(0..40_000)),
            (123..=127, _) => self.configure(),
            (128..=130, _) => self.retry(user),
            _ => Action::Wait,
        }
    }

    /// Asks for something else than the program does by itself.
    fn ask(&mut self, user: usize) -> Action {
        let custom = Named::of(&self.wish(user, false));
        if self.random.bool() {
            Action::Suspend(custom)
        } else {
            Action::Orphan(custom)
        }
    }

    /// Asks for another attempt.
    fn retry(&mut self, user: usize) -> Action {
        let named = Named::of(&self.wish(user, false));
        Action::Retry(named, self.random.u32(0..3))
    }

    /// Draws a change of the settings that values refer to, or their deletion.
    fn configure(&mut self) -> Action {
        let settings = &self.project.settings;
        match settings.first() {
            Some(first) if self.random.u8(0..4) == 0 => {
                Action::Delete(Named::of(first), Propagation::Background)
            }
            Some(_) => Action::Configure(self.random.usize(0..settings.len())),
            None => Action::Wait,
        }
    }

    /// Returns what somebody does with an object that is there from the beginning.
    fn replacement(&mut self) -> Action {
        let chosen = self.random.choice(&self.project.replaced);
        let object = chosen.cloned().unwrap_or_default();
        match self.random.u8(0..4) {
            0 => Action::Delete(Named::of(&object), Propagation::Background),
            1 => Action::Create(object),
            _ => Action::Recreate(object),
        }
    }

    fn propagation(&mut self) -> Propagation {
        match self.random.u8(0..4) {
            0 => Propagation::Orphan,
            1 => Propagation::Foreground,
            _ => Propagation::Background,
        }
    }

    fn fault(&mut self) -> Action {
        let of = match self.random.u8(0..10) {
            0..=6 => Requests::Writes,
            7..=8 => Requests::Reads,
            _ => Requests::Watches,
        };
        let fault = match (of, self.random.u8(0..10)) {
            (Requests::Watches, 0..=4) => Fault::Cut,
            (Requests::Watches, 5..=7) => Fault::Silence,
            (_, 0..=3) => Fault::AnswerLost,
            (_, 4) => Fault::Unreachable,
            (_, 5) => Fault::Hang,
            (_, 6) => Fault::Status(500),
            (_, 7) => Fault::Status(429),
            (_, 8) => Fault::Status(503),
            _ => Fault::Late(std::time::Duration::from_millis(self.random.u64(0..20_000))),
        };
        Action::Fault(of, self.random.u32(0..12), fault)
    }
}
