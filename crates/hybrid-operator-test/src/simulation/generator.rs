//! Draws histories from seeds.

use serde_json::{Value, json};

use super::history::{Action, After, Helm, History, Named, Propagation, Requests, Step};
use super::project::{Custom, Project};
use crate::fault::Fault;

/// Longest history.
const MAX_STEPS: usize = 9;

/// Draws a history. `targets` are objects that the program makes.
pub(super) fn history(seed: u64, project: &Project, targets: &[Named]) -> History {
    let mut random = fastrand::Rng::with_seed(seed);
    let users: Vec<User> = project
        .resources
        .iter()
        .map(|custom| User::new(custom, &mut random))
        .collect();
    let mut drawing = Drawing {
        random,
        project,
        targets,
        users,
    };
    let mut steps = Vec::new();
    for (index, user) in drawing.users.iter().enumerate() {
        if index == 0 || drawing.random.bool() {
            let action = Action::Apply(user.object());
            steps.push(Step {
                after: After::Time(0),
                action,
            });
        }
    }
    let count = drawing.random.usize(1..=MAX_STEPS);
    while steps.len() < count {
        if drawing.random.u8(0..4) == 0 {
            steps.extend(drawing.pattern());
        } else {
            let action = drawing.action();
            let after = drawing.after();
            steps.push(Step { after, action });
        }
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
    targets: &'a [Named],
    users: Vec<User<'a>>,
}

/// Somebody who changes one custom resource.
struct User<'a> {
    custom: &'a Custom,
    /// The values that the fields have.
    choice: Vec<usize>,
    /// The fields that vary in this history.
    varying: Vec<usize>,
    annotation: Option<usize>,
}

impl<'a> User<'a> {
    fn new(custom: &'a Custom, random: &mut fastrand::Rng) -> Self {
        let mut varying: Vec<usize> = (0..custom.fields.len()).collect();
        random.shuffle(&mut varying);
        varying.truncate(random.usize(1..=3));
        Self {
            custom,
            choice: vec![0; custom.fields.len()],
            varying,
            annotation: None,
        }
    }

    fn object(&self) -> Value {
        let mut object = self.custom.with(&self.choice);
        if let Some((name, value)) = self
            .annotation
            .and_then(|index| self.custom.annotations.get(index))
        {
            let metadata = object
                .pointer_mut("/metadata")
                .and_then(Value::as_object_mut);
            if let Some(metadata) = metadata {
                metadata.insert("annotations".to_owned(), json!({name: value}));
            }
        }
        object
    }

    fn vary(&mut self, random: &mut fastrand::Rng) {
        if !self.custom.annotations.is_empty() && random.u8(0..10) == 0 {
            let index = random.usize(0..self.custom.annotations.len());
            self.annotation = if self.annotation.is_some() {
                None
            } else {
                Some(index)
            };
            return;
        }
        if let Some(index) = random.choice(&self.varying).copied()
            && let Some(field) = self.custom.fields.get(index)
            && let Some(chosen) = self.choice.get_mut(index)
        {
            *chosen = random.usize(0..field.values.len());
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

    /// Returns a custom resource as somebody wants it next.
    fn wish(&mut self, varies: bool) -> Value {
        let index = self.random.usize(0..self.users.len().max(1));
        let Some(user) = self.users.get_mut(index) else {
            return Value::Null;
        };
        if varies {
            user.vary(&mut self.random);
        }
        user.object()
    }

    /// Returns steps that single actions are unlikely to be.
    fn pattern(&mut self) -> Vec<Step> {
        let step = |after, action| Step { after, action };
        let requests = self.random.u32(0..30);
        let before = self.wish(false);
        let changed = self.wish(true);
        match self.random.u8(0..4) {
            // A change that is interrupted.
            0 => {
                let end = if self.random.bool() {
                    Action::Kill
                } else {
                    Action::Crash
                };
                vec![
                    step(After::Rest, Action::Apply(changed)),
                    step(After::Requests(requests), end),
                ]
            }
            // A change of which an answer is lost, and that is taken back.
            1 => {
                let writes = self.random.u32(0..12);
                vec![
                    step(
                        After::Rest,
                        Action::Fault(Requests::Writes, writes, Fault::AnswerLost),
                    ),
                    step(After::Time(0), Action::Apply(changed)),
                    step(After::Requests(requests), Action::Apply(before)),
                ]
            }
            // What happens while the program is down.
            2 => vec![
                step(After::Rest, Action::Crash),
                step(After::Time(0), self.action()),
                step(After::Time(1_000), Action::Kill),
            ],
            // Something of others, and then a change or the end.
            _ => {
                let other = self.random.choice(&self.project.others).cloned();
                let end = if self.random.bool() {
                    Action::Apply(changed)
                } else {
                    Action::Delete(Named::of(&before), self.propagation())
                };
                let other = other.map_or(Action::Wait, Action::Create);
                vec![step(After::Rest, other), step(After::Rest, end)]
            }
        }
    }

    fn action(&mut self) -> Action {
        let target = self.random.choice(self.targets).cloned();
        let which = self.random.u64(..);
        let varies = self.random.bool();
        match (self.random.u8(0..118), target) {
            (0..=27, _) => Action::Apply(self.wish(true)),
            (28..=35, _) => Action::Recreate(self.wish(varies)),
            (36..=41, _) => {
                let named = Named::of(&self.wish(false));
                Action::Delete(named, self.propagation())
            }
            (42..=44, _) => Action::Put(self.wish(varies)),
            (45..=52, Some(target)) => Action::Spoil(target, which),
            (53..=58, Some(target)) => {
                let propagation = self.propagation();
                Action::Delete(target, propagation)
            }
            (59..=63, _) if !self.project.others.is_empty() => {
                let other = self
                    .random
                    .choice(&self.project.others)
                    .cloned()
                    .unwrap_or_default();
                if self.random.u8(0..4) == 0 {
                    Action::Delete(Named::of(&other), Propagation::Background)
                } else {
                    Action::Create(other)
                }
            }
            (64..=71, _) => Action::Kill,
            (72..=73, _) => Action::Restart,
            (74..=75, _) => Action::Crash,
            (76..=80, _) if self.project.versions.len() > 1 => {
                Action::Deploy(self.random.usize(0..self.project.versions.len()))
            }
            (81..=83, _) => Action::Partition(self.random.u64(0..60_000)),
            (84..=94, _) => self.fault(),
            (95..=96, _) => Action::CutWatches,
            (97..=98, _) => Action::Compact,
            (99..=102, _) if !self.project.replaced.is_empty() => self.replacement(),
            (103..=106, Some(target)) if self.random.bool() => Action::Hold(target),
            (103..=106, _) => Action::Hold(Named::of(&self.wish(false))),
            (107..=110, _) => {
                let commands = [Helm::Uninstall, Helm::Rollback, Helm::Interrupted];
                let command = commands.get(self.random.usize(0..commands.len()));
                let command = command.copied().unwrap_or(Helm::Uninstall);
                Action::Helm(Named::of(&self.wish(false)), command)
            }
            (111..=112, Some(target)) => Action::Scale(target, self.random.u32(0..6)),
            (113..=116, _) => Action::Pause(self.random.u64(0..40_000)),
            _ => Action::Wait,
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
        match self.random.u8(0..6) {
            0 => Propagation::Orphan,
            1..=2 => Propagation::Foreground,
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
