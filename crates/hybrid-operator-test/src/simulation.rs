//! Runs a program against an API server in memory, in virtual time, through histories of what people,
//! faults and deployments do, and compares the result with a fresh install.

mod generator;
mod helm;
mod history;
mod invariants;
mod network;
mod oracle;
mod people;
mod permitted;
mod project;
mod snapshot;
mod time;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use serde_json::Value;
use tower::BoxError;

pub use history::{Action, After, Helm, History, Named, Propagation, Requests, Step};
pub use network::Transport;
pub use project::{Custom, Field, Project};
pub use world::Process;

use generator::Made;
use oracle::{Fresh, Oracle};
use project::Setup;
use snapshot::title_of;
use time::Time;
use world::{Program, World};

use crate::fault::Fault;

/// Time without a change after which a history has come to rest.
const REST: Duration = Duration::from_mins(1);
/// Time within which a history comes to rest after its last fault.
const LIMIT: Duration = Duration::from_mins(45);
/// Time of rest in which nothing is requested, but for watches.
const SILENCE: Duration = Duration::from_mins(3);
/// Time after which a watch without answers has ended.
const WATCHED: Duration = Duration::from_mins(6);
/// Time after which a process has continued what one that was killed had begun.
const RESUMED: Duration = Duration::from_mins(6);

/// A program, and what happens to it.
pub struct Simulation {
    program: Program,
    project: Arc<Project>,
    oracle: Oracle,
    made: Vec<Made>,
}

/// A history whose result is not that of a fresh install.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The history.
    pub history: History,
    /// The differences from a fresh install, or the error that ended the history.
    pub wrong: Vec<String>,
    /// The end of the log of requests.
    pub log: Vec<String>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.history)?;
        for line in &self.wrong {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

impl Finding {
    /// Returns whether something of another finding is wrong here, too.
    fn is_like(&self, other: &Self) -> bool {
        let kind = |line: &String| {
            let begin = line.split(": expected ").next().unwrap_or_default();
            let without_numbers = begin.chars().filter(|letter| !letter.is_ascii_digit());
            without_numbers.collect::<String>()
        };
        let mut wrong = self.wrong.iter().map(kind);
        wrong.any(|one| other.wrong.iter().map(kind).any(|other| other == one))
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").finish_non_exhaustive()
    }
}

impl Simulation {
    /// Prepares a simulation of a program.
    ///
    /// # Errors
    /// If the program cannot be installed where nothing disturbs it.
    pub fn new<F>(
        program: impl Fn(Process) -> F + Send + Sync + 'static,
        project: Project,
    ) -> anyhow::Result<Self>
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let program: Program = Arc::new(move |process| program(process).boxed());
        let project = Arc::new(project);
        let oracle = Oracle::new(Arc::clone(&program), Arc::clone(&project));
        let mut simulation = Self {
            program,
            project: Arc::clone(&project),
            oracle,
            made: Vec::new(),
        };
        for custom in &project.resources {
            simulation.made.push(simulation.made(custom)?);
        }
        Ok(simulation)
    }

    /// Returns what the program makes for a custom resource.
    fn made(&self, custom: &Custom) -> anyhow::Result<Made> {
        let mut always = BTreeSet::new();
        for version in 0..self.project.versions.len() {
            always.extend(self.names(Setup::of(version), custom.first())?);
        }
        let mut by_value = BTreeMap::new();
        let plain = self
            .oracle
            .fresh(&vec![(Setup::default(), custom.first())])?;
        for (field, value, choice) in custom.variations() {
            // What the fields add or change is the same in each version.
            let object = custom.with(&choice);
            let fresh = self
                .oracle
                .fresh(&vec![(Setup::default(), object.clone())])?;
            let mut names = self.names(Setup::default(), object)?;
            names.retain(|named| {
                let content = |fresh: &Fresh| fresh.snapshot.objects.get(&title_of(named)).cloned();
                !always.contains(named) || content(&plain) != content(&fresh)
            });
            by_value.insert((field, value), names);
        }
        Ok(Made {
            always: always.into_iter().collect(),
            by_value,
        })
    }

    /// Returns the names of what the program makes for an object.
    fn names(&self, setup: Setup, object: Value) -> anyhow::Result<Vec<Named>> {
        let fresh = self.oracle.fresh(&vec![(setup, object)])?;
        let left = self.oracle.left(setup)?;
        let customs = self.project.resources.iter();
        let kinds: Vec<String> = customs
            .map(|custom| Named::of(&custom.object).kind)
            .chain(["Event".to_owned(), "Lease".to_owned()])
            .collect();
        let mut names = fresh.names.clone();
        names.retain(|named| !kinds.contains(&named.kind) && !left.names.contains(named));
        Ok(names)
    }

    /// Draws the history of a seed.
    pub fn history(&self, seed: u64) -> History {
        generator::history(seed, &self.project, &self.made)
    }

    /// Returns a history for each change of the first custom resource between two states in which at most one field
    /// has not its first value.
    pub fn changes(&self) -> Vec<History> {
        let Some(custom) = self.project.resources.first() else {
            return Vec::new();
        };
        let mut states = vec![custom.first()];
        let variations = custom.variations();
        states.extend(variations.map(|(.., choice)| custom.with(&choice)));
        let apply = |state: &Value| Step::new(After::Rest, Action::Apply(state.clone()));
        let mut histories = Vec::new();
        for before in &states {
            for after in states.iter().filter(|after| *after != before) {
                histories.push(History {
                    seed: 1,
                    replicas: 1,
                    steps: vec![apply(before), apply(after)],
                });
            }
        }
        histories
    }

    /// Runs a history; returns what is wrong with its result.
    ///
    /// # Errors
    /// If the history cannot be executed.
    pub fn run(&self, history: &History) -> anyhow::Result<Option<Finding>> {
        Ok(self.follow(history, false)?.0)
    }

    /// Runs a history; returns its requests in their order, with their times in nanoseconds, and the codes of
    /// the answers. The same history has the same ones each time, in each process.
    ///
    /// # Errors
    /// If the history cannot be executed.
    pub fn trace(&self, history: &History) -> anyhow::Result<Vec<String>> {
        Ok(self.follow(history, true)?.1)
    }

    fn follow(
        &self,
        history: &History,
        is_traced: bool,
    ) -> anyhow::Result<(Option<Finding>, Vec<String>)> {
        let time = Time::new(history.seed)?;
        let (program, project) = (Arc::clone(&self.program), Arc::clone(&self.project));
        let world = World::new(
            program,
            project,
            Setup::default(),
            history.replicas,
            history.seed,
        );
        let mut world = time.run(world)?;
        if is_traced {
            world.network.keep_trace();
        }
        let mut wrong = Vec::new();
        let lived = time.run(live(&mut world, history));
        match lived {
            Err(error) => wrong.push(format!("{error:#}")),
            Ok(()) => match self.judge(&time, &mut world) {
                Ok(found) => wrong = found,
                Err(error) => wrong.push(format!("{error:#}")),
            },
        }
        let finding = (!wrong.is_empty()).then(|| Finding {
            history: history.clone(),
            wrong,
            log: world.network.log(),
        });
        Ok((finding, world.network.take_trace()))
    }

    fn judge(&self, time: &Time, world: &mut World) -> anyhow::Result<Vec<String>> {
        let mut waited = Duration::ZERO;
        loop {
            let rests = time.run(world.rest(REST, LIMIT))?;
            let differences = self.oracle.differences(world)?;
            if differences.is_empty() && rests {
                break;
            }
            if waited >= LIMIT || !rests {
                let mut wrong: Vec<_> = differences.iter().map(ToString::to_string).collect();
                if !rests {
                    wrong.push(format!("it does not come to rest within {LIMIT:?}"));
                }
                return Ok(wrong);
            }
            let pause = Duration::from_mins(6);
            time.run(async {
                tokio::time::sleep(pause).await;
                Ok(())
            })?;
            waited += pause;
        }
        let calls = world.network.calls();
        time.run(async {
            tokio::time::sleep(SILENCE).await;
            world.check().await
        })?;
        let more = world.network.calls() - calls;
        if more > 0 && world.snapshot().is_deployed() {
            return Ok(vec![format!("{more} requests within {SILENCE:?} of rest")]);
        }
        time.run(world.end())?;
        Ok(Vec::new())
    }

    /// Runs the histories of a range of seeds on some threads. Returns what is wrong, each with the shortest
    /// history that shows it.
    ///
    /// # Errors
    /// If a history cannot be executed.
    pub fn search(&self, seeds: Range<u64>, threads: usize) -> anyhow::Result<Vec<Finding>> {
        let next = AtomicU64::new(seeds.start);
        let work = || -> anyhow::Result<Vec<Finding>> {
            let mut findings = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return Ok(findings);
                }
                if let Some(finding) = self.run(&self.history(seed))? {
                    findings.push(self.shrink(&finding)?);
                }
            }
        };
        let mut findings = std::thread::scope(|scope| -> anyhow::Result<Vec<Finding>> {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let mut findings = Vec::new();
            for thread in threads {
                let found = thread.join();
                findings.extend(found.map_err(|_| anyhow::anyhow!("a thread panicked"))??);
            }
            Ok(findings)
        })?;
        findings.sort_by_key(|finding| finding.history.seed);
        Ok(findings)
    }

    /// Returns the shortest history that is found by leaving steps out and that still has a finding of this kind.
    fn shrink(&self, finding: &Finding) -> anyhow::Result<Finding> {
        let mut best = finding.clone();
        let mut size = best.history.steps.len();
        while size > 0 {
            let before = best.history.steps.len();
            let mut begin = 0;
            while begin < best.history.steps.len() {
                let mut shorter = best.history.clone();
                let end = (begin + size).min(shorter.steps.len());
                shorter.steps.drain(begin..end);
                match self.run(&shorter)? {
                    Some(found) if found.is_like(finding) => best = found,
                    _ => begin += size,
                }
            }
            // A step that was needed may not be any more.
            if size > 1 || best.history.steps.len() == before {
                size /= 2;
            }
        }
        for index in 0..best.history.steps.len() {
            let mut calmer = best.history.clone();
            if let Some(step) = calmer.steps.get_mut(index)
                && step.after != After::Rest
            {
                step.after = After::Rest;
                if let Some(found) = self.run(&calmer)?.filter(|found| found.is_like(finding)) {
                    best = found;
                }
            }
        }
        Ok(best)
    }
}

/// Executes the steps of a history, and ends its faults and what people hold up.
async fn live(world: &mut World, history: &History) -> anyhow::Result<()> {
    world.start()?;
    for (number, step) in (1..).zip(&history.steps) {
        let done = world.step(step).await;
        done.with_context(|| format!("at step {number}"))?;
    }
    world.network.heal();
    let silences = |step: &Step| matches!(step.action, Action::Fault(.., Fault::Silence));
    if history.steps.iter().any(silences) {
        tokio::time::sleep(WATCHED).await;
    }
    world.start()?;
    let has_held = !world.held.is_empty();
    world.free().await?;
    world.restore().await?;
    world.take_over().await?;
    let is_job = |title: &String| title.starts_with("Job.batch ");
    let has_lost = !world.lost.is_empty() || world.touched.iter().any(is_job);
    if has_held || has_lost || world.network.has_forbidden() || world.network.has_denied() {
        world.rest(RESUMED, LIMIT).await?;
        world.reset().await?;
    }
    Ok(())
}
