//! Simulates queue, backoff and plan for hours of virtual time with faults: requests fail,
//! responses are lost, the process crashes, specs and objects change. Checks that all releases
//! converge and that writes stay rate-limited.

use std::time::Duration;

use operator_runtime::controller::{Backoff, Key, Priority, Queue};
use tokio::time::Instant;

use helm_core::release::{Revision, Status};

use super::{
    DesiredFacts, Drift, MAX_FAILED_REVISIONS, ObservedFacts, RecordFacts, Refusal, Step, Until,
    next_step,
};

const RESOURCES: usize = 20;
/// Number of resources that may be deleted.
const DELETABLE: usize = 6;
const FAULT_PERIOD: Duration = Duration::from_hours(6);
/// Twice the longest backoff, and some periods.
const RECOVERY_PERIOD: Duration = Duration::from_mins(15);
const PERIOD: Duration = Duration::from_mins(1);
const TIMEOUT: Duration = Duration::from_mins(5);
/// Maximum number of writes per second and custom resource: a few attempts of a few writes.
const MAX_WRITES_PER_SECOND: usize = 24;

/// Simulated release record.
#[derive(Debug, Clone)]
struct SimRecord {
    revision: u32,
    status: Status,
    /// Spec that it was rendered from.
    spec: u64,
    /// Stands for the random values of its render.
    render: u64,
    attempts: u32,
    /// Whether it restores an earlier revision.
    rolls_back: bool,
    written: Duration,
}

/// Simulated custom resource with its records and objects.
#[derive(Debug, Default)]
struct SimResource {
    spec: u64,
    deleting: bool,
    gone: bool,
    finalizer: bool,
    history: Vec<SimRecord>,
    /// Spec and render of the objects; drift makes them `Some((spec, 0))`.
    objects: Option<(u64, u64)>,
    /// Spec and render last applied by this process. Lost when it crashes.
    applied: Option<(u64, u64)>,
    /// Times of writes.
    writes: Vec<Duration>,
}

/// Failure of a write, as seen by the process.
#[derive(Debug)]
struct Failed;

/// Returns whether the API server rejects a spec.
fn is_refused(spec: u64) -> bool {
    spec % 5 == 4
}

struct Simulation {
    now: Duration,
    /// Deterministic for a seed.
    numbers: fastrand::Rng,
    faults: bool,
    renders: u64,
    resources: Vec<SimResource>,
}

impl Simulation {
    /// Performs a write, which may fail before or after the server has executed it.
    fn write(&mut self, n: usize, change: impl FnOnce(&mut SimResource)) -> Result<(), Failed> {
        self.resources[n].writes.push(self.now);
        let fault = self.faults && self.numbers.u8(..5) == 0;
        if fault && self.numbers.bool() {
            return Err(Failed);
        }
        change(&mut self.resources[n]);
        if fault { Err(Failed) } else { Ok(()) }
    }

    fn observe(&self, n: usize) -> (ObservedFacts, DesiredFacts) {
        let resource = &self.resources[n];
        let record = |stored: &SimRecord| RecordFacts {
            revision: Revision(stored.revision),
            status: stored.status,
            digest: Some(stored.spec.to_string()),
            ours: true,
            attempts: stored.attempts,
            proven: true,
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
        let observed = ObservedFacts {
            deleting: resource.deleting,
            finalizer: resource.finalizer,
            unheld: !resource.finalizer && !resource.history.is_empty(),
            drift,
            ..super::observed(resource.history.iter().map(record).collect())
        };
        let desired = DesiredFacts {
            digest: Some(resource.spec.to_string()),
            timeout: TIMEOUT,
            ..super::desired()
        };
        (observed, desired)
    }

    /// Executes a step write by write. Returns the delay until the next reconcile.
    fn execute(&mut self, n: usize, step: &Step) -> Result<Duration, Failed> {
        let now = self.now;
        match step {
            Step::Settle | Step::Refuse(_) => {
                self.supersede(n)?;
                return Ok(PERIOD);
            }
            Step::Wait { delay, .. } => return Ok(*delay),
            Step::Unbind => unreachable!("nobody annotates objects"),
            Step::Hold => self.write(n, |resource| resource.finalizer = true)?,
            Step::Install | Step::Upgrade | Step::Rollback { .. } => {
                self.write(n, |resource| resource.finalizer = true)?;
                let spec = self.resources[n].spec;
                // Reuse the content of a record with the same inputs, including its random values.
                let same = |record: &&SimRecord| record.spec == spec;
                let known = self.resources[n].history.iter().rev().find(same);
                let known = known.filter(|record| record.status != Status::Superseded);
                let rendered = known.map(|record| record.render);
                let render = rendered.unwrap_or_else(|| {
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
                self.abandon_pending(n)?;
                self.write(n, |resource| {
                    let revision = resource.history.last().map_or(1, |last| last.revision + 1);
                    resource.history.push(SimRecord {
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
            step => unreachable!("unexpected step {step:?}"),
        }
        Ok(Duration::ZERO)
    }

    fn record(&mut self, n: usize, revision: u32) -> &mut SimRecord {
        let history = &mut self.resources[n].history;
        history
            .iter_mut()
            .find(|record| record.revision == revision)
            .unwrap()
    }

    /// Marks pending records as failed before a new revision.
    fn abandon_pending(&mut self, n: usize) -> Result<(), Failed> {
        while let Some(at) = self.resources[n]
            .history
            .iter()
            .position(|record| record.status.is_pending())
        {
            self.write(n, |resource| resource.history[at].status = Status::Failed)?;
        }
        Ok(())
    }

    /// Deploys the pending record.
    fn resume(&mut self, n: usize) -> Result<(), Failed> {
        let last = self.resources[n].history.len() - 1;
        let (spec, render, rolls_back) = {
            let record = &self.resources[n].history[last];
            (record.spec, record.render, record.rolls_back)
        };
        // During faults, a spec that was accepted before may be rejected.
        let refused = rolls_back && self.faults && self.numbers.u8(..3) == 0;
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

    /// Marks all deployed records but the newest as superseded.
    fn supersede(&mut self, n: usize) -> Result<(), Failed> {
        let is_deployed = |record: &SimRecord| record.status == Status::Deployed;
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

    /// Checks the invariants that hold at any time.
    fn check_invariants(&self, n: usize) {
        let resource = &self.resources[n];
        let revisions: Vec<u32> = resource.history.iter().map(|r| r.revision).collect();
        assert!(revisions.is_sorted_by(|a, b| a < b), "{resource:?}");
        let good = |r: &SimRecord| matches!(r.status, Status::Deployed | Status::Superseded);
        let since = resource.history.iter().rev().take_while(|r| !good(r));
        assert!(since.count() <= MAX_FAILED_REVISIONS + 2, "{resource:?}");
    }

    /// Checks the state after the recovery period.
    fn check_end(&self, n: usize) {
        let resource = &self.resources[n];
        if resource.deleting {
            assert!(resource.gone && resource.objects.is_none(), "{resource:?}");
            return;
        }
        let latest = resource.history.last().unwrap();
        if is_refused(resource.spec) {
            let (observed, desired) = self.observe(n);
            let step = next_step(&observed, Some(&desired));
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
            let deployed = resource
                .history
                .iter()
                .filter(|r| r.status == Status::Deployed)
                .count();
            assert_eq!(deployed, 1, "{resource:?}");
        }
        let hottest = resource.writes.iter().enumerate().map(|(at, from)| {
            let within = |time: &&Duration| **time < *from + Duration::from_secs(1);
            resource.writes[at..].iter().take_while(within).count()
        });
        assert!(
            hottest.max().unwrap_or(0) <= MAX_WRITES_PER_SECOND,
            "{resource:?}"
        );
    }
}

fn key(n: usize) -> Key {
    Key::new(Some("ns"), &n.to_string())
}

/// Changes the state at random, every few seconds.
fn disturb(simulation: &mut Simulation, queue: &mut Queue, backoff: &mut Backoff) {
    let n = simulation.numbers.usize(..RESOURCES);
    match simulation.numbers.u8(..40) {
        0..=9 => simulation.resources[n].spec += 1,
        10..=17 => {
            if let Some((spec, _)) = simulation.resources[n].objects {
                simulation.resources[n].objects = Some((spec, 0));
            }
        }
        18 if n < DELETABLE => {
            let resource = &mut simulation.resources[n];
            resource.gone |= !resource.finalizer;
            resource.deleting = true;
        }
        19 => {
            // The process crashes: it loses its memory and lists all resources again.
            *queue = Queue::default();
            *backoff = Backoff::default();
            for n in 0..RESOURCES {
                simulation.resources[n].applied = None;
                queue.add(key(n), Priority::Background, Instant::now());
            }
            return;
        }
        _ => return,
    }
    queue.add(key(n), Priority::Event, Instant::now());
}

#[test]
fn releases_converge_after_hours_of_faults() {
    for seed in 1..=12 {
        let start = Instant::now();
        let (mut queue, mut backoff) = (Queue::default(), Backoff::default());
        let mut simulation = Simulation {
            now: Duration::ZERO,
            numbers: fastrand::Rng::with_seed(seed),
            faults: true,
            renders: 0,
            resources: std::iter::repeat_with(SimResource::default)
                .take(RESOURCES)
                .collect(),
        };
        for n in 0..RESOURCES {
            queue.add(key(n), Priority::Background, Instant::now());
        }
        let mut disturbance = Duration::ZERO;
        while simulation.now < FAULT_PERIOD + RECOVERY_PERIOD {
            simulation.faults = simulation.now < FAULT_PERIOD;
            while let Some(next) = queue.take(start + simulation.now) {
                let n: usize = next.name.parse().unwrap();
                if !simulation.resources[n].gone {
                    let (observed, desired) = simulation.observe(n);
                    let step = next_step(&observed, Some(&desired));
                    let delay = if let Ok(delay) = simulation.execute(n, &step) {
                        backoff.reset(&next);
                        delay
                    } else {
                        backoff.failed(&next, simulation.numbers.u8(..))
                    };
                    queue.add_at(next.clone(), start + simulation.now + delay);
                    simulation.check_invariants(n);
                }
                queue.done(&next);
            }
            // Advance the time to the next event.
            let due = queue.next_due().map_or(Duration::MAX, |due| due - start);
            if simulation.faults && disturbance <= due {
                simulation.now = disturbance;
                disturb(&mut simulation, &mut queue, &mut backoff);
                let pause = Duration::from_millis(500 + simulation.numbers.u64(..8_000));
                disturbance = simulation.now + pause;
            } else {
                simulation.now = due;
            }
        }
        for n in 0..RESOURCES {
            simulation.check_end(n);
        }
        let alive = simulation.resources.iter().filter(|r| !r.deleting).count();
        assert!(alive < RESOURCES, "some were deleted");
        assert!(simulation.renders > 500, "{} renders", simulation.renders);
    }
}
