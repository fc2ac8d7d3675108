//! Queue, backoff and plan through hours of trouble in virtual time: requests fail, answers are
//! lost, the process dies, specs and objects change. In the end everything is what it should be,
//! and on the way nothing ran hot.
use std::time::{Duration, Instant};

use helm_core::release::{Revision, Status};

use super::{Desired, Drift, LEFTOVERS, Observed, Record, Refusal, Step, Until, next_step};
use crate::controller::{Backoff, Key, Priority, Queue};

const RESOURCES: usize = 20;
/// So many of them may be deleted.
const MORTAL: usize = 6;
const TROUBLE: Duration = Duration::from_hours(6);
/// The longest backoff twice, and periods.
const CALM: Duration = Duration::from_mins(15);
const PERIOD: Duration = Duration::from_mins(1);
const TIMEOUT: Duration = Duration::from_mins(5);
/// Writes within a second that one custom resource may take, however often things go wrong: a few
/// attempts of a few writes.
const HOT: usize = 24;

/// A record as the store keeps it.
#[derive(Debug, Clone)]
struct Stored {
    revision: u32,
    status: Status,
    /// The spec that it was rendered from.
    spec: u64,
    /// What the random values of its render were.
    render: u64,
    attempts: u32,
    /// Whether it restores an earlier revision.
    rolls_back: bool,
    written: Duration,
}

/// A custom resource, its records and its objects, as the API server has them.
#[derive(Debug, Default)]
struct Resource {
    spec: u64,
    deleting: bool,
    gone: bool,
    finalizer: bool,
    history: Vec<Stored>,
    /// Spec and render of the objects; a person's change makes them `Some((spec, 0))`.
    objects: Option<(u64, u64)>,
    /// What this process applied last. Lost when it dies.
    applied: Option<(u64, u64)>,
    /// When it was written to.
    writes: Vec<Duration>,
}

/// A write did not succeed, as far as the process knows.
#[derive(Debug)]
struct Failed;

/// Specs that the API server refuses.
fn is_refused(spec: u64) -> bool {
    spec % 5 == 4
}

struct World {
    now: Duration,
    /// The same in every run of a seed.
    numbers: fastrand::Rng,
    trouble: bool,
    renders: u64,
    resources: Vec<Resource>,
}

impl World {
    /// One write: it may fail before the server has done it, or after.
    fn write(&mut self, n: usize, change: impl FnOnce(&mut Resource)) -> Result<(), Failed> {
        self.resources[n].writes.push(self.now);
        let fault = self.trouble && self.numbers.u8(..5) == 0;
        if fault && self.numbers.bool() {
            return Err(Failed);
        }
        change(&mut self.resources[n]);
        if fault { Err(Failed) } else { Ok(()) }
    }

    fn observe(&self, n: usize) -> (Observed, Desired) {
        let resource = &self.resources[n];
        let record = |stored: &Stored| Record {
            revision: Revision(stored.revision),
            status: stored.status,
            digest: Some(stored.spec.to_string()),
            ours: true,
            attempts: stored.attempts,
            hook_failed: false,
            unchanged_for: self.now.saturating_sub(stored.written),
            written: self.now.saturating_sub(stored.written),
        };
        let drift = match (resource.applied, resource.history.last()) {
            (Some(applied), Some(latest)) if applied == (latest.spec, latest.render) => {
                if resource.objects == Some(applied) {
                    Drift::None
                } else {
                    Drift::Some
                }
            }
            _ => Drift::Unknown,
        };
        let observed = Observed {
            deleting: resource.deleting,
            finalizer: resource.finalizer,
            drift,
            ..super::tests::observed(resource.history.iter().map(record).collect())
        };
        let desired = Desired {
            digest: Some(resource.spec.to_string()),
            timeout: TIMEOUT,
            ..super::tests::desired()
        };
        (observed, desired)
    }

    /// Takes a step, as the actions do: write by write. Answers when it comes again.
    fn take(&mut self, n: usize, step: &Step) -> Result<Duration, Failed> {
        let now = self.now;
        match step {
            Step::Nothing | Step::Refuse(_) => {
                self.supersede(n)?;
                return Ok(PERIOD);
            }
            Step::Wait { delay, .. } => return Ok(*delay),
            Step::Install | Step::Upgrade | Step::Rollback { .. } => {
                self.write(n, |resource| resource.finalizer = true)?;
                let spec = self.resources[n].spec;
                // A record with the same inputs gives its content, random values and all.
                let same = |record: &&Stored| record.spec == spec;
                let known = self.resources[n].history.iter().rev().find(same);
                let known = known.filter(|record| record.status != Status::Superseded);
                let known = known.map(|record| record.render);
                let render = known.unwrap_or_else(|| {
                    self.renders += 1;
                    self.renders
                });
                let (status, spec, render) = match step {
                    Step::Rollback { to } => {
                        let good = self.record(n, to.0).clone();
                        (Status::PendingRollback, good.spec, good.render)
                    }
                    Step::Upgrade => (Status::PendingUpgrade, spec, render),
                    _ => (Status::PendingInstall, spec, render),
                };
                self.give_up(n)?;
                self.write(n, |resource| {
                    let revision = resource.history.last().map_or(1, |last| last.revision + 1);
                    resource.history.push(Stored {
                        revision,
                        status,
                        spec,
                        render,
                        attempts: 0,
                        rolls_back: status == Status::PendingRollback,
                        written: now,
                    });
                })?;
                self.resume(n)?;
            }
            Step::Resume { .. } => self.resume(n)?,
            Step::Retry { revision } => {
                let revision = revision.0;
                self.write(n, |resource| {
                    let last = resource.history.last_mut().unwrap();
                    assert_eq!(last.revision, revision);
                    last.status = if last.rolls_back {
                        Status::PendingRollback
                    } else {
                        Status::PendingUpgrade
                    };
                    last.written = now;
                })?;
                self.resume(n)?;
            }
            Step::Discard { revision } => {
                let revision = revision.0;
                self.write(n, |resource| {
                    resource
                        .history
                        .retain(|record| record.revision != revision);
                })?;
            }
            Step::Repair { revision } => {
                let record = self.record(n, revision.0);
                let content = (record.spec, record.render);
                self.write(n, |resource| resource.objects = Some(content))?;
                self.resources[n].applied = Some(content);
            }
            Step::Uninstall => {
                self.write(n, |resource| resource.objects = None)?;
                self.write(n, |resource| resource.history.clear())?;
                self.write(n, |resource| {
                    (resource.finalizer, resource.gone) = (false, true);
                })?;
            }
            step => unreachable!("nothing here asks for {step:?}"),
        }
        Ok(Duration::ZERO)
    }

    fn record(&mut self, n: usize, revision: u32) -> &mut Stored {
        let history = &mut self.resources[n].history;
        history
            .iter_mut()
            .find(|record| record.revision == revision)
            .unwrap()
    }

    /// What is pending with other inputs is given up before a new revision.
    fn give_up(&mut self, n: usize) -> Result<(), Failed> {
        while let Some(at) = self.resources[n]
            .history
            .iter()
            .position(|record| record.status.is_pending())
        {
            self.write(n, |resource| resource.history[at].status = Status::Failed)?;
        }
        Ok(())
    }

    /// From a pending record to a deployed one.
    fn resume(&mut self, n: usize) -> Result<(), Failed> {
        let last = self.resources[n].history.len() - 1;
        let (spec, render, rolls_back) = {
            let record = &self.resources[n].history[last];
            (record.spec, record.render, record.rolls_back)
        };
        // What was good once may be refused, too, while there is trouble.
        let refused = rolls_back && self.trouble && self.numbers.u8(..3) == 0;
        if is_refused(spec) || refused {
            let now = self.now;
            self.write(n, |resource| {
                let record = &mut resource.history[last];
                record.status = Status::Failed;
                record.attempts += 1;
                record.written = now;
            })?;
            return Err(Failed);
        }
        self.write(n, |resource| resource.objects = Some((spec, render)))?;
        self.resources[n].applied = Some((spec, render));
        self.write(n, |resource| {
            resource.history[last].status = Status::Deployed;
        })?;
        self.supersede(n)
    }

    /// Only the newest deployed record is the deployed one.
    fn supersede(&mut self, n: usize) -> Result<(), Failed> {
        let is_deployed = |record: &Stored| record.status == Status::Deployed;
        loop {
            let history = &self.resources[n].history;
            let newest = history.iter().rposition(is_deployed);
            match history.iter().position(is_deployed) {
                Some(earlier) if Some(earlier) != newest => self.write(n, |resource| {
                    resource.history[earlier].status = Status::Superseded;
                })?,
                _ => return Ok(()),
            }
        }
    }

    /// What holds at any time.
    fn check(&self, n: usize) {
        let resource = &self.resources[n];
        let revisions: Vec<u32> = resource.history.iter().map(|r| r.revision).collect();
        assert!(revisions.is_sorted_by(|a, b| a < b), "{resource:?}");
        let good = |r: &Stored| matches!(r.status, Status::Deployed | Status::Superseded);
        let since = resource.history.iter().rev().take_while(|r| !good(r));
        assert!(since.count() <= LEFTOVERS + 2, "{resource:?}");
    }

    /// What holds when nothing has gone wrong for long enough.
    fn check_end(&self, n: usize) {
        let resource = &self.resources[n];
        if resource.deleting {
            assert!(resource.gone && resource.objects.is_none(), "{resource:?}");
            return;
        }
        let latest = resource.history.last().unwrap();
        if is_refused(resource.spec) {
            let (observed, desired) = self.observe(n);
            let step = next_step(&observed, &desired);
            let waits = matches!(
                step,
                Step::Refuse(Refusal::Stalled { .. })
                    | Step::Retry { .. }
                    | Step::Wait {
                        until: Until::NextAttempt { .. },
                        ..
                    }
            );
            assert!(waits, "{step:?} {resource:?}");
        } else {
            assert_eq!(latest.status, Status::Deployed, "{resource:?}");
            assert_eq!(latest.spec, resource.spec, "{resource:?}");
        }
        if latest.status == Status::Deployed {
            let content = Some((latest.spec, latest.render));
            assert_eq!(resource.objects, content, "{resource:?}");
            let deployed = resource.history.iter();
            let deployed = deployed.filter(|r| r.status == Status::Deployed).count();
            assert_eq!(deployed, 1, "{resource:?}");
        }
        let hottest = resource.writes.iter().enumerate().map(|(at, from)| {
            let within = |time: &&Duration| **time < *from + Duration::from_secs(1);
            resource.writes[at..].iter().take_while(within).count()
        });
        assert!(hottest.max().unwrap_or(0) <= HOT, "{resource:?}");
    }
}

fn key(n: usize) -> Key {
    Key::new(Some("ns"), &n.to_string())
}

/// What happens to the world by itself, every few seconds.
fn disturb(world: &mut World, queue: &mut Queue, backoff: &mut Backoff) {
    let n = world.numbers.usize(..RESOURCES);
    match world.numbers.u8(..40) {
        0..=9 => world.resources[n].spec += 1,
        10..=17 => {
            if let Some((spec, _)) = world.resources[n].objects {
                world.resources[n].objects = Some((spec, 0));
            }
        }
        18 if n < MORTAL => {
            let resource = &mut world.resources[n];
            resource.gone |= !resource.finalizer;
            resource.deleting = true;
        }
        19 => {
            // The process dies: what it knew is lost, and it lists everything anew.
            *queue = Queue::default();
            *backoff = Backoff::default();
            for n in 0..RESOURCES {
                world.resources[n].applied = None;
                queue.add(key(n), Priority::Background);
            }
            return;
        }
        _ => return,
    }
    queue.add(key(n), Priority::Event);
}

#[test]
fn hours_of_trouble_leave_everything_as_it_should_be() {
    for seed in 1..=12 {
        let start = Instant::now();
        let (mut queue, mut backoff) = (Queue::default(), Backoff::default());
        let mut world = World {
            now: Duration::ZERO,
            numbers: fastrand::Rng::with_seed(seed),
            trouble: true,
            renders: 0,
            resources: std::iter::repeat_with(Resource::default)
                .take(RESOURCES)
                .collect(),
        };
        for n in 0..RESOURCES {
            queue.add(key(n), Priority::Background);
        }
        let mut disturbance = Duration::ZERO;
        while world.now < TROUBLE + CALM {
            world.trouble = world.now < TROUBLE;
            while let Some(next) = queue.take(start + world.now) {
                let n: usize = next.name.parse().unwrap();
                if !world.resources[n].gone {
                    let (observed, desired) = world.observe(n);
                    let step = next_step(&observed, &desired);
                    let delay = if let Ok(delay) = world.take(n, &step) {
                        backoff.reset(&next);
                        delay
                    } else {
                        backoff.failed(&next, world.numbers.u8(..))
                    };
                    queue.add_at(next.clone(), start + world.now + delay);
                    world.check(n);
                }
                queue.done(&next);
            }
            // Time goes on to what comes next.
            let due = queue.next_due().map_or(Duration::MAX, |due| due - start);
            if world.trouble && disturbance <= due {
                world.now = disturbance;
                disturb(&mut world, &mut queue, &mut backoff);
                let pause = Duration::from_millis(500 + world.numbers.u64(..8_000));
                disturbance = world.now + pause;
            } else {
                world.now = due;
            }
        }
        for n in 0..RESOURCES {
            world.check_end(n);
        }
        let alive = world.resources.iter().filter(|r| !r.deleting).count();
        assert!(alive < RESOURCES, "some were deleted");
        assert!(world.renders > 500, "{} renders", world.renders);
    }
}
