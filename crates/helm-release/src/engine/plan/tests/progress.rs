//! Every release comes to rest: from each state, all outcomes of all steps are followed.
//!
//! An outcome is what a step leaves behind: success, failure, or a process that stopped in between. While
//! nothing but the operator changes anything, there are no endless steps without a pause, and what goes on
//! endlessly with pauses are attempts of one failed revision.

use std::collections::HashMap;
use std::fmt;

use super::*;

/// Maximum number of steps without a pause.
const MAX_STEPS: usize = 13;
/// Attempts are told apart up to here.
const MANY: u32 = 4;
/// More records than any state leads to.
const MAX_RECORDS: usize = 12;

const DIGESTS: [Option<&str>; 3] = [Some("new"), Some("old"), None];

#[derive(Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
struct Stored {
    status: Status,
    digest: Option<&'static str>,
    ours: bool,
    proven: bool,
    /// Whether it restores an earlier revision.
    rolls_back: bool,
    /// Whether its proof was not verified yet.
    unverified: bool,
    attempts: u32,
    hook_failed: bool,
    /// Whether its delay or timeout is over.
    over: bool,
}

impl Stored {
    /// Returns a record that this operator has just written.
    fn of(status: Status, digest: Option<&'static str>) -> Self {
        Self {
            status,
            digest,
            ours: true,
            proven: true,
            rolls_back: status == Status::PendingRollback,
            unverified: false,
            attempts: 0,
            hook_failed: false,
            over: false,
        }
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |holds: bool, text| if holds { text } else { "" };
        let digest = self.digest.unwrap_or("no");
        write!(f, "{} with {digest} inputs", self.status)?;
        if self.attempts > 0 {
            write!(f, ", {} attempts", self.attempts)?;
        }
        f.write_str(flag(self.rolls_back, ", rolls back"))?;
        f.write_str(flag(self.hook_failed, ", hook failed"))?;
        f.write_str(flag(!self.ours, ", of another client"))?;
        f.write_str(flag(!self.proven, ", without proof"))?;
        f.write_str(flag(self.unverified, ", unverified"))?;
        f.write_str(flag(self.over, ", long ago"))
    }
}

/// A release and what is wanted of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
struct World {
    history: Vec<Stored>,
    /// Digest of the inputs; `None` as long as the chart does not render.
    wanted: Option<&'static str>,
    drift: u8,
    adoption: bool,
    chunked: bool,
    unheld: bool,
    forced: bool,
    /// Whether `reset-at` has a new value, and the number of records that it has cleared.
    reset: bool,
    forgiven: usize,
    unchanged: bool,
    unreported: bool,
    tested: bool,
    awaits_crds: bool,
    awaits_dependency: bool,
}

const DRIFTS: [Drift; 4] = [Drift::None, Drift::Some, Drift::Exhausted, Drift::Unknown];

/// State that a step leads to, and whether time passes before the next step.
type Outcome = (World, bool);

impl World {
    fn new(history: Vec<Stored>) -> Self {
        Self {
            history,
            wanted: Some("new"),
            ..Self::default()
        }
    }

    fn step(&self, options: &DesiredFacts) -> Step {
        let record = |(stored, number): (&Stored, u32)| {
            let time = if stored.over {
                LONG_AGO
            } else {
                Duration::ZERO
            };
            RecordFacts {
                revision: Revision(number),
                status: stored.status,
                digest: stored.digest.map(ToOwned::to_owned),
                ours: stored.ours,
                proven: stored.proven,
                attempts: stored.attempts,
                hook_failed: stored.hook_failed,
                unchanged_for: time,
                written: time,
            }
        };
        let forgiven = if self.reset {
            self.history.len()
        } else {
            self.forgiven
        };
        let facts = ObservedFacts {
            unheld: self.unheld,
            chunked: self.chunked,
            adoption: if self.adoption {
                Adoption::Wanted
            } else {
                Adoption::None
            },
            drift: DRIFTS[usize::from(self.drift)],
            awaits_dependency: self.awaits_dependency,
            awaits_crds: self.awaits_crds,
            unreported: self.unreported,
            forgiven: Revision(u32::try_from(forgiven).unwrap()),
            forced: self.forced,
            tested: self.tested,
            ..observed(self.history.iter().zip(1..).map(record).collect())
        };
        let desired = DesiredFacts {
            digest: self.wanted.map(ToOwned::to_owned),
            content: Some(
                if self.unchanged && self.history.last().is_some_and(|last| last.proven) {
                    Content::Unchanged(())
                } else {
                    Content::Due(())
                },
            ),
            ..options.clone()
        };
        next_step(&facts, Some(&desired))
    }

    /// Returns whether the newest record has this status.
    fn is(&self, status: Status) -> bool {
        self.history
            .last()
            .is_some_and(|last| last.status == status)
    }

    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    /// Changes the newest record.
    fn newest(&self, change: impl FnOnce(&mut Stored)) -> Self {
        self.changed(|world| change(world.history.last_mut().unwrap()))
    }

    /// Adds a pending record.
    fn begin(&self, status: Status, digest: Option<&'static str>) -> Self {
        self.changed(|world| {
            for record in &mut world.history {
                if record.status.is_pending() && status != Status::PendingRollback {
                    (record.status, record.attempts) = (Status::Failed, 0);
                    record.hook_failed = false;
                }
            }
            if world.reset {
                (world.reset, world.forgiven) = (false, world.history.len());
            }
            world.forced = false;
            world.history.push(Stored::of(status, digest));
        })
    }

    /// Returns the ends of the deployment of the newest record, which is pending.
    fn deployed(&self) -> Vec<Outcome> {
        let mut outcomes = vec![(
            self.changed(|world| {
                for record in &mut world.history {
                    if record.status == Status::Deployed {
                        record.status = Status::Superseded;
                    }
                }
                world.history.last_mut().unwrap().status = Status::Deployed;
                (world.drift, world.tested, world.unreported) = (0, false, false);
            }),
            false,
        )];
        for (hook_failed, unreported) in [(false, false), (true, false), (false, true)] {
            let failed = self.newest(|record| {
                record.status = Status::Failed;
                record.attempts = (record.attempts + 1).min(MANY);
                (record.hook_failed, record.over) = (hook_failed, false);
            });
            outcomes.push((failed.changed(|world| world.unreported = unreported), false));
        }
        outcomes
    }

    /// Returns the outcomes of a deployment that has just begun: it may also be interrupted.
    fn deploying(self) -> Vec<Outcome> {
        let mut outcomes = self.deployed();
        outcomes.push((self, false));
        outcomes
    }

    /// Returns all outcomes of a step, its success first. There is none at rest.
    #[expect(clippy::too_many_lines, reason = "one table of all steps")]
    fn outcomes(&self, step: &Step) -> Vec<Outcome> {
        let now = |worlds: Vec<Self>| worlds.into_iter().map(|world| (world, false)).collect();
        let mut outcomes = match step {
            Step::Settle | Step::Refuse(_) => Vec::new(),
            Step::Unbind => unreachable!("nobody annotates objects"),
            Step::Compute | Step::Render { .. } => unreachable!("inputs and content are known"),
            Step::Hold => now(vec![self.changed(|world| world.unheld = false)]),
            Step::Install(()) => self.begin(Status::PendingInstall, self.wanted).deploying(),
            Step::Upgrade(()) => self.begin(Status::PendingUpgrade, self.wanted).deploying(),
            Step::Rollback { to } => {
                let to = usize::try_from(to.0).unwrap() - 1;
                let mut all = self
                    .begin(Status::PendingRollback, self.history[to].digest)
                    .deploying();
                all.extend(self.forged(to));
                all
            }
            Step::Resume { .. } => self.deployed(),
            Step::Retry { .. } => {
                let pending = self.changed(|world| {
                    let before = world.history.len() - 1;
                    let record = world.history.last_mut().unwrap();
                    record.status = if record.rolls_back {
                        Status::PendingRollback
                    } else {
                        Status::PendingUpgrade
                    };
                    if world.reset {
                        (world.reset, world.forgiven) = (false, before);
                        (record.attempts, record.hook_failed) = (0, false);
                    }
                });
                pending.deploying()
            }
            Step::Report { .. } => now(vec![self.changed(|world| world.unreported = false)]),
            Step::Repair { .. } => now(vec![
                self.changed(|world| world.drift = 0),
                self.changed(|world| world.drift = 2),
            ]),
            Step::Inspect { .. } => now(vec![
                self.changed(|world| world.drift = 0),
                self.changed(|world| world.drift = 1),
            ]),
            Step::Adopt { .. } => {
                let adopted = self.changed(|world| world.adoption = false);
                let rendered = adopted.newest(|record| {
                    (record.digest, record.proven, record.ours) = (self.wanted, true, true);
                });
                let other = adopted.newest(|record| {
                    (record.digest, record.proven, record.ours) = (None, false, true);
                });
                now(vec![rendered, other])
            }
            Step::Convert => {
                let converted = |digest: Option<&'static str>| {
                    self.changed(|world| {
                        world.chunked = false;
                        world.history.push(Stored {
                            proven: digest.is_some(),
                            ..Stored::of(Status::Deployed, digest)
                        });
                    })
                };
                now(vec![converted(self.wanted), converted(None)])
            }
            Step::Keep { .. } => now(vec![self.changed(|world| {
                let record = world.history.last_mut().unwrap();
                if record.digest.is_some() {
                    world.wanted = record.digest;
                } else {
                    (record.digest, record.proven) = (world.wanted, false);
                }
            })]),
            Step::Crds { .. } => {
                let installed = self.changed(|world| world.awaits_crds = false);
                let renders = installed.changed(|world| world.wanted = Some("new"));
                now(vec![renders, installed])
            }
            Step::Test { .. } => now(vec![self.changed(|world| world.tested = true)]),
            Step::CleanUp { .. } => now(vec![
                self.newest(|record| record.status = Status::Uninstalled),
            ]),
            Step::Discard { revision } => now(vec![self.changed(|world| {
                let at = usize::try_from(revision.0).unwrap() - 1;
                world.history.remove(at);
                world.forgiven = world
                    .forgiven
                    .saturating_sub(usize::from(at < world.forgiven));
            })]),
            Step::Remove { .. } => {
                let mut all = now(vec![self.changed(|world| {
                    world.history.clear();
                    world.forgiven = 0;
                })]);
                // It is polled.
                let begun = self.newest(|record| record.status = Status::Uninstalling);
                if begun != *self {
                    all.push((begun, true));
                }
                all
            }
            Step::Wait { until, .. } => match until {
                Until::NextAttempt { .. } => vec![(self.newest(|record| record.over = true), true)],
                Until::Dependency => {
                    vec![(self.changed(|world| world.awaits_dependency = false), true)]
                }
                Until::OthersOperation => {
                    let ended = |status| {
                        self.newest(|record| {
                            (record.status, record.digest, record.proven) = (status, None, false);
                        })
                    };
                    vec![
                        (ended(Status::Deployed), true),
                        (ended(Status::Failed), true),
                        (self.newest(|record| record.over = true), true),
                    ]
                }
            },
            Step::Forget | Step::Leave | Step::Uninstall | Step::Orphan => {
                unreachable!("{step:?}")
            }
        };
        let applies = matches!(
            step,
            Step::Resume { .. }
                | Step::Retry { .. }
                | Step::Repair { .. }
                | Step::Inspect { .. }
                | Step::Test { .. }
        );
        if applies {
            outcomes.extend(self.forged(self.history.len() - 1));
        }
        outcomes
    }

    /// Returns the outcome of a step that finds that the proof of a record is wrong.
    fn forged(&self, at: usize) -> Option<Outcome> {
        let forged = self.changed(|world| {
            let record = &mut world.history[at];
            (record.proven, record.unverified) = (false, false);
        });
        self.history[at].unverified.then_some((forged, false))
    }
}

#[derive(Clone, Copy)]
enum Steps {
    Unknown,
    OnTheWay,
    Known(usize),
}

/// All worlds that some worlds lead to, with these options.
struct Graph {
    worlds: Vec<World>,
    steps: Vec<Step>,
    /// The worlds that each leads to, and whether time passes.
    edges: Vec<Vec<(usize, bool)>>,
}

impl Graph {
    fn of(options: &DesiredFacts, begin: &[World]) -> Self {
        let mut numbers: HashMap<World, usize> = HashMap::new();
        let mut graph = Self {
            worlds: Vec::new(),
            steps: Vec::new(),
            edges: Vec::new(),
        };
        let number = |world: World, worlds: &mut Vec<World>, numbers: &mut HashMap<_, _>| {
            *numbers.entry(world).or_insert_with_key(|world: &World| {
                assert!(
                    world.history.len() <= MAX_RECORDS,
                    "endless revisions: {world:#?}"
                );
                worlds.push(world.clone());
                worlds.len() - 1
            })
        };
        for world in begin {
            number(world.clone(), &mut graph.worlds, &mut numbers);
        }
        while let Some(world) = graph.worlds.get(graph.edges.len()).cloned() {
            let step = world.step(options);
            let edges = world
                .outcomes(&step)
                .into_iter()
                .map(|(next, pause)| (number(next, &mut graph.worlds, &mut numbers), pause));
            graph.edges.push(edges.collect());
            graph.steps.push(step);
        }
        graph
    }

    /// Returns the greatest number of steps without a pause from a world. `known` has those of others.
    fn steps_from(&self, at: usize, known: &mut [Steps]) -> usize {
        match known[at] {
            Steps::Known(steps) => return steps,
            Steps::OnTheWay => panic!(
                "endless {:?} without a pause: {:#?}",
                self.steps[at], self.worlds[at]
            ),
            Steps::Unknown => known[at] = Steps::OnTheWay,
        }
        let next = self.edges[at].iter().filter(|(_, pause)| !pause);
        let steps = next
            .map(|(next, _)| 1 + self.steps_from(*next, known))
            .max()
            .unwrap_or(0);
        known[at] = Steps::Known(steps);
        steps
    }

    /// Returns for each world the number of its strongly connected component (Tarjan's algorithm), and the
    /// sizes of these.
    fn components(&self) -> (Vec<usize>, Vec<usize>) {
        let count = self.worlds.len();
        let (mut index, mut low) = (vec![usize::MAX; count], vec![0; count]);
        let (mut component, mut sizes) = (vec![usize::MAX; count], Vec::new());
        let (mut open, mut next) = (Vec::new(), 0);
        for root in 0..count {
            let mut path = vec![(root, 0)];
            while let Some((at, edge)) = path.pop() {
                if edge == 0 {
                    if index[at] != usize::MAX {
                        continue;
                    }
                    (index[at], low[at]) = (next, next);
                    next += 1;
                    open.push(at);
                } else {
                    let (to, _) = self.edges[at][edge - 1];
                    if component[to] == usize::MAX {
                        low[at] = low[at].min(low[to]);
                    }
                }
                if let Some((to, _)) = self.edges[at].get(edge) {
                    path.push((at, edge + 1));
                    if index[*to] == usize::MAX {
                        path.push((*to, 0));
                    }
                    continue;
                }
                if low[at] == index[at] {
                    let begin = open.iter().rposition(|other| *other == at).unwrap();
                    sizes.push(open.len() - begin);
                    for member in open.drain(begin..) {
                        component[member] = sizes.len() - 1;
                    }
                }
            }
        }
        (component, sizes)
    }
}

/// Returns the worlds from which all others are reached.
fn beginnings() -> Vec<World> {
    let mut newest = Vec::new();
    for status in Status::ALL {
        let failed = [Status::Failed, Status::Uninstalling, Status::Uninstalled].contains(&status);
        for digest in DIGESTS {
            for proven in [true, false] {
                let one = Stored {
                    proven,
                    unverified: proven,
                    ..Stored::of(status, digest)
                };
                newest.push(one.clone());
                if status.is_pending() {
                    newest.push(Stored {
                        ours: false,
                        ..one.clone()
                    });
                }
                if status == Status::Failed {
                    newest.push(Stored {
                        attempts: 1,
                        rolls_back: true,
                        ..one.clone()
                    });
                }
                if failed {
                    newest.push(Stored {
                        attempts: 1,
                        ..one.clone()
                    });
                    newest.push(Stored {
                        attempts: MAX_HOOK_ATTEMPTS,
                        hook_failed: true,
                        ..one
                    });
                }
            }
        }
    }
    let old = |status, digest, proven| {
        let attempts = u32::from(status == Status::Failed);
        let is = |record: &&Stored| {
            (record.status, record.digest, record.proven) == (status, digest, proven)
                && record.attempts == attempts
                && !record.rolls_back
        };
        newest.iter().find(is).unwrap().clone()
    };
    let good = old(Status::Superseded, Some("old"), true);
    let bad = old(Status::Failed, Some("old"), true);
    let before = [
        vec![],
        vec![good.clone()],
        vec![old(Status::Superseded, Some("old"), false)],
        vec![old(Status::Superseded, Some("new"), true)],
        vec![old(Status::Superseded, None, false)],
        vec![bad.clone()],
        vec![good.clone(), old(Status::Failed, Some("new"), true)],
        [vec![good], vec![bad; MAX_FAILED_REVISIONS + 1]].concat(),
    ];
    let mut worlds = vec![World::new(Vec::new())];
    for before in &before {
        for newest in &newest {
            let history = before.iter().chain([newest]).cloned().collect();
            worlds.push(World::new(history));
        }
    }
    // One or two of these at a time.
    let changes: [fn(&mut World); 9] = [
        |world| world.chunked = world.history.is_empty(),
        |world| world.unreported = world.is(Status::Failed),
        |world| world.unchanged = world.is(Status::Deployed),
        |world| world.adoption = world.is(Status::Deployed),
        |world| world.drift = if world.is(Status::Deployed) { 3 } else { 0 },
        |world| world.reset = true,
        |world| world.forced = true,
        |world| (world.unheld, world.awaits_dependency, world.awaits_crds) = (true, true, true),
        |world| (world.wanted, world.awaits_crds) = (None, true),
    ];
    let plain = worlds.clone();
    for (at, first) in changes.iter().enumerate() {
        for second in &changes[at..] {
            worlds.extend(plain.iter().map(|world| {
                world.changed(|world| {
                    first(world);
                    second(world);
                })
            }));
        }
    }
    worlds
}

/// Options of an entry: those of upgrades with each other, and those of installs, which matter before the first
/// deployed revision, with the ones that lead back there.
fn options() -> Vec<DesiredFacts> {
    let (rollback, reinstall, retry) = ((true, false), (false, true), (false, false));
    let plain = (false, None);
    let clean_up = (true, None);
    let limited = (false, Some(1));
    let all = [
        (rollback, None, plain, true),
        (rollback, Some(1), clean_up, false),
        (reinstall, None, plain, true),
        (reinstall, None, clean_up, true),
        (reinstall, Some(1), limited, false),
        (retry, None, limited, true),
        (retry, Some(1), plain, false),
    ];
    let options = all
        .into_iter()
        .map(|(upgrade, upgrade_retries, install, repair)| DesiredFacts {
            rollback: upgrade.0,
            reinstall: upgrade.1,
            upgrade_retries,
            clean_up: install.0,
            install_retries: install.1,
            repair,
            test: true,
            ..desired()
        });
    options.collect()
}

#[test]
fn every_release_comes_to_rest_whatever_fails() {
    let begin = beginnings();
    let (mut longest, mut count) = (0, 0);
    for options in options() {
        let graph = Graph::of(&options, &begin);
        let mut known = vec![Steps::Unknown; graph.worlds.len()];
        for world in 0..graph.worlds.len() {
            longest = longest.max(graph.steps_from(world, &mut known));
        }
        let (component, sizes) = graph.components();
        for (at, step) in graph.steps.iter().enumerate() {
            let attempts = matches!(
                step,
                Step::Retry { .. }
                    | Step::Resume { .. }
                    | Step::Wait {
                        until: Until::NextAttempt { .. },
                        ..
                    }
            );
            let repeats = sizes[component[at]] > 1;
            assert!(
                !repeats || attempts,
                "endless {step:?}: {:#?}",
                graph.worlds[at]
            );
            let rests = matches!(step, Step::Settle | Step::Refuse(_));
            assert_eq!(graph.edges[at].is_empty(), rests, "{step:?}");
        }
        count += graph.worlds.len();
    }
    assert_eq!(longest, MAX_STEPS);
    assert!(count > 100_000, "{count} worlds");
}
