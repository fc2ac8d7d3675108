//! The state that a cluster must have at rest: that after a fresh install of its last custom resources.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::history::{Action, After, Named, Propagation, Step};
use super::people::{REPLICAS, autoscaler_of, state_of, uid};
use super::permitted::{Case, is_of_undeployed};
use super::project::{Custom, Project, Setup};
use super::snapshot::{Difference, Places, Snapshot, title, title_of};
use super::time::Time;
use super::world::{Program, Scaled, World};

/// States of a custom resource, each with what it depends on: the first one is installed, then the others follow, each
/// after a rest. A version of the program starts when the state is there.
type Chain = Vec<(Setup, Value)>;

/// Time without a change after which a fresh install is complete.
const REST: Duration = Duration::from_mins(1);
/// Time within which a fresh install is complete.
const LIMIT: Duration = Duration::from_hours(1);

/// Makes fresh installs, and keeps their results.
pub(super) struct Oracle {
    program: Program,
    project: Arc<Project>,
    known: Mutex<HashMap<String, Arc<Fresh>>>,
}

/// The result of a fresh install.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub(super) snapshot: Snapshot,
    /// All objects, as people name them.
    pub(super) names: Vec<Named>,
    /// Places where another fresh install differs, as the chart draws random values.
    random: Mutex<Option<Places>>,
}

impl Oracle {
    pub(super) fn new(program: Program, project: Arc<Project>) -> Self {
        Self {
            program,
            project,
            known: Mutex::default(),
        }
    }

    /// Returns what there is without custom resources.
    fn without(&self, setup: Setup) -> anyhow::Result<Arc<Fresh>> {
        self.fresh(&vec![(setup, Value::Null)])
    }

    /// Returns what there may be once there has been a custom resource.
    pub(super) fn left(&self, setup: Setup) -> anyhow::Result<Arc<Fresh>> {
        let first = self.project.resources.first();
        let first = first.map_or(Value::Null, Custom::first);
        // Not all settings let it be deployed.
        let good = Setup::of(setup.version);
        self.fresh(&vec![(good, first), (setup, Value::Null)])
    }

    /// Returns what an install of these states leaves beside what there is without it.
    pub(super) fn fresh(&self, chain: &Chain) -> anyhow::Result<Arc<Fresh>> {
        let key = serde_json::to_string(chain)?;
        let known = self.known.lock().get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let mut fresh = self.install(chain, 1)?;
        let is_something = chain.iter().any(|(_, object)| !object.is_null());
        if is_something && let Some((setup, _)) = chain.last() {
            let without = self.without(*setup)?;
            let (objects, without_it) = (&mut fresh.snapshot.objects, &without.snapshot.objects);
            objects.retain(|title, _| !without_it.contains_key(title));
            fresh.names.retain(|name| !without.names.contains(name));
        }
        let fresh = Arc::new(fresh);
        let mut all = self.known.lock();
        all.insert(key, Arc::clone(&fresh));
        Ok(fresh)
    }

    fn install(&self, chain: &Chain, seed: u64) -> anyhow::Result<Fresh> {
        let Some((setup, _)) = chain.first() else {
            return Ok(Fresh::default());
        };
        let time = Time::new(seed)?;
        time.run(async {
            let (program, project) = (Arc::clone(&self.program), Arc::clone(&self.project));
            let mut world = World::new(program, project, *setup, 1, seed).await?;
            world.start()?;
            let step = |after, action| Step::new(After::Time(after), action);
            for (setup, object) in chain {
                let former = world.setup();
                let is_deployed = setup.version == former.version;
                if !is_deployed {
                    world.end().await?;
                }
                if object.is_null() {
                    let customs = world.server.objects();
                    for object in customs.iter().filter(|object| self.is_custom(object)) {
                        let action = Action::Delete(Named::of(object), Propagation::Background);
                        world.step(&step(0, action)).await?;
                    }
                } else {
                    let action = Action::Apply(object.clone());
                    world.step(&step(1000, action)).await?;
                }
                if setup.settings != former.settings {
                    world
                        .step(&step(0, Action::Configure(setup.settings)))
                        .await?;
                }
                if !is_deployed {
                    world.step(&step(0, Action::Deploy(setup.version))).await?;
                }
                let rests = world.rest(REST, LIMIT).await?;
                let why = "a fresh install does not come to rest within";
                anyhow::ensure!(rests, "{why} {LIMIT:?}: {chain:?}");
            }
            let objects = world.server.objects();
            let names = objects.iter().filter(|object| is_nameable(object));
            let names = names.map(Named::of).collect();
            let snapshot = world.snapshot();
            world.end().await?;
            Ok(Fresh {
                snapshot,
                names,
                random: Mutex::default(),
            })
        })
    }

    /// Returns how a cluster differs from what it must be like.
    pub(super) fn differences(&self, world: &World) -> anyhow::Result<Vec<Difference>> {
        let live = world.snapshot();
        let objects = world.server.objects();
        let without = self.without(world.setup())?;
        let mut found = self.changed_numbers(world, &live, &objects)?;
        let mut rest = live.clone();
        // What is there in any case, and what people have made.
        let given = without.snapshot.clone();
        let random = self.random(&without, &vec![(world.setup(), Value::Null)])?;
        found.extend(given.differences(&live.only(&given), &random));
        rest.remove(&given);
        rest.remove(&self.left(world.setup())?.snapshot);
        rest.objects
            .retain(|title, _| !world.others.contains_key(title));
        for object in objects.iter().filter(|object| self.is_custom(object)) {
            if object.pointer("/metadata/deletionTimestamp").is_some() {
                let path = "/metadata/deletionTimestamp";
                let why = json!("is still being deleted");
                found.push(Difference::of(&title(object), path, None, Some(&why)));
            }
            let is_back = self.is_back(world, object)?;
            let mut best: Option<Explanation> = None;
            for chain in self.chains(world, object)? {
                let fresh = self.fresh(&chain)?;
                let varying = self.random(&fresh, &chain)?;
                let mut differences = fresh
                    .snapshot
                    .differences(&live.only(&fresh.snapshot), &varying);
                let deployed = self.fresh(&chain.iter().take(1).cloned().collect())?;
                let case = Case {
                    world,
                    live: &live,
                    fresh: &fresh.snapshot,
                    deployed: deployed.is_deployed().then_some(&deployed.snapshot),
                    is_custom_left: true,
                    is_back,
                };
                differences.retain(|difference| !case.is_permitted(difference));
                let titles = rest.objects.keys();
                let left = titles.filter(|title| !fresh.snapshot.objects.contains_key(*title));
                let distance = (differences.len(), left.count());
                if best.as_ref().is_none_or(|best| distance < best.distance) {
                    best = Some(Explanation {
                        distance,
                        differences,
                        fresh,
                    });
                }
            }
            if let Some(best) = best {
                found.extend(best.differences);
                rest.remove(&best.fresh.snapshot);
            }
        }
        let case = Case {
            world,
            live: &live,
            fresh: &Snapshot::default(),
            deployed: None,
            is_custom_left: objects.iter().any(|object| self.is_custom(object)),
            is_back: false,
        };
        for (title, object) in &rest.objects {
            let difference = Difference::of(title, "", None, Some(object));
            if !case.is_permitted(&difference) {
                found.push(difference);
            }
        }
        Ok(found)
    }

    /// Returns the sequences of states of which one must have led to the present one: the present state
    /// alone, or, if that cannot be deployed, after any one that can.
    fn chains(&self, world: &World, object: &Value) -> anyhow::Result<Vec<Chain>> {
        let with = |spec: &Value| state_of(object, spec);
        let last = (
            world.setup(),
            with(object.get("spec").unwrap_or(&Value::Null)),
        );
        let alone = vec![last.clone()];
        let mut chains = vec![alone.clone()];
        if self.fresh(&alone)?.is_deployed() {
            return Ok(chains);
        }
        for (setup, spec) in world.past.get(&title(object)).into_iter().flatten() {
            let first = (*setup, with(spec));
            let chain = vec![first.clone(), last.clone()];
            if first != last && !chains.contains(&chain) && self.fresh(&vec![first])?.is_deployed()
            {
                chains.push(chain);
            }
        }
        Ok(chains)
    }

    /// Returns whether the last state of a custom resource fails, and was there before, or one whose install leaves
    /// the same.
    fn is_back(&self, world: &World, object: &Value) -> anyhow::Result<bool> {
        let title = title(object);
        let past = world.past.get(&title).and_then(|past| past.split_last());
        let Some((last, before)) = past else {
            return Ok(false);
        };
        let chain = |(setup, spec): &(Setup, Value)| vec![(*setup, state_of(object, spec))];
        let fresh = self.fresh(&chain(last))?;
        if fresh.is_deployed() {
            return Ok(false);
        }
        let random = self.random(&fresh, &chain(last))?;
        let version = last.0.version;
        for state in before.iter().filter(|(setup, _)| setup.version == version) {
            let former = self.fresh(&chain(state))?;
            let differences = fresh.snapshot.differences(&former.snapshot, &random);
            let mut differences = differences.iter();
            if differences.all(|it| it.object == title && it.path.starts_with("/spec")) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns where a number that an autoscaler has set is not there, although both objects are. The autoscaler
    /// may be left of an attempt if no revision is deployed.
    fn changed_numbers(
        &self,
        world: &World,
        snapshot: &Snapshot,
        objects: &[Value],
    ) -> anyhow::Result<Vec<Difference>> {
        let mut found = Vec::new();
        for (named, scaled) in &world.scaled {
            let live = objects.iter().find(|object| Named::of(object) == *named);
            let autoscaler = autoscaler_of(objects, named);
            let Some((live, autoscaler)) = live.zip(autoscaler) else {
                continue;
            };
            let (expected, number) = (json!(scaled.replicas), live.pointer(REPLICAS));
            if [uid(live), uid(autoscaler)] == scaled.uids
                && number != Some(&expected)
                && !is_of_undeployed(snapshot, autoscaler)
                && !self.loses_number(named, scaled)?
            {
                let title = title_of(named);
                found.push(Difference::of(&title, REPLICAS, Some(&expected), number));
            }
        }
        Ok(found)
    }

    /// Returns whether an object has no autoscaler in a state that followed, or the chart began or ceased to set, or
    /// changed, a number that the autoscaler did not own.
    fn loses_number(&self, named: &Named, scaled: &Scaled) -> anyhow::Result<bool> {
        for state in &scaled.later {
            let fresh = self.fresh(&vec![state.clone()])?;
            let objects = &fresh.snapshot.objects;
            let Some(object) = objects.get(&title_of(named)) else {
                continue;
            };
            let number = json!(scaled.replicas);
            let is_changed =
                |is_charted: bool| object.pointer(REPLICAS) != Some(&number).filter(|_| is_charted);
            if autoscaler_of(objects.values(), named).is_none()
                || scaled.charted.is_some_and(is_changed)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns where the result of another install differs.
    fn random(&self, fresh: &Fresh, chain: &Chain) -> anyhow::Result<Places> {
        let mut random = fresh.random.lock();
        if let Some(known) = &*random {
            return Ok(known.clone());
        }
        let other = self.install(chain, 2)?;
        let places = fresh
            .snapshot
            .places_of_differences(&other.snapshot.only(&fresh.snapshot));
        *random = Some(places.clone());
        Ok(places)
    }

    fn is_custom(&self, object: &Value) -> bool {
        self.project.resources.iter().any(|custom| {
            custom.object.get("kind") == object.get("kind")
                && custom.object.get("apiVersion") == object.get("apiVersion")
        })
    }
}

/// A fresh install, and how the cluster differs from it.
struct Explanation {
    /// Number of differences, and of objects that it does not explain.
    distance: (usize, usize),
    differences: Vec<Difference>,
    fresh: Arc<Fresh>,
}

impl Fresh {
    /// Returns whether the last state was deployed.
    fn is_deployed(&self) -> bool {
        let mut titles = self.snapshot.objects.keys();
        titles.any(|title| title.starts_with("Release ")) && self.snapshot.is_deployed()
    }
}

/// Returns whether people can know the name of an object, and the cluster itself does not make it.
fn is_nameable(object: &Value) -> bool {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    object.pointer("/metadata/generateName").is_none()
        && object.get("kind") != Some(&json!("APIService"))
        && !matches!(name, Some("kube-root-ca.crt" | "default"))
}

impl Snapshot {
    /// Returns the objects that another snapshot has, too.
    pub(super) fn only(&self, other: &Self) -> Self {
        let objects = self
            .objects
            .iter()
            .filter(|(title, _)| other.objects.contains_key(*title));
        Self {
            objects: objects
                .map(|(title, object)| (title.clone(), object.clone()))
                .collect::<BTreeMap<_, _>>(),
        }
    }

    fn remove(&mut self, other: &Self) {
        self.objects
            .retain(|title, _| !other.objects.contains_key(title));
    }
}
