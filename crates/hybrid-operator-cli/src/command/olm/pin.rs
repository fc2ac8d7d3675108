//! `olm bundle --pin`: pins the images of a project's charts.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use chart_source::{Access, OciName, Patience, Puller};
use helm_core::chart::Chart;
use helm_core::{CompiledChart, Values};
use hybrid_operator::helm::{self, ChartReader};
use hybrid_operator::watches::Watch;
use serde_json::{Value, json};

use crate::files::FileSet;
use crate::olm::kustomize::containers;
use crate::olm::parts::Parts;
use crate::olm::{group_version, items, kind, name, text};
use crate::pins::edit::{self, MANAGER};
use crate::pins::subject::Subject;
use crate::pins::{Asked, Digests, Finding, Pins, Reference};
use crate::project::WATCHES;
use crate::rbac::survey::{Survey, named_api_versions};
use crate::template_source::templates;

/// The pins of a project while they are found.
pub(super) struct Pinning {
    root: PathBuf,
    pins: Pins,
    /// Variables of the operator before.
    before: BTreeMap<String, String>,
    /// Custom resources of the samples.
    samples: Vec<Value>,
    /// The watches file, with the lines that were added.
    watches: String,
    /// Lines that people have to write themselves.
    by_hand: Vec<String>,
    registries: Registries,
}

impl Pinning {
    pub(super) fn new(root: &Path, parts: &mut Parts) -> anyhow::Result<Self> {
        let file = root.join(WATCHES);
        let watches = if file.is_file() {
            let text = fs::read_to_string(&file);
            text.with_context(|| format!("cannot read {}", file.display()))?
        } else {
            String::new()
        };
        let before: BTreeMap<String, String> = manager(&mut parts.deployments)
            .into_iter()
            .flat_map(|container| items(container, "/env"))
            .filter_map(|variable| {
                let value = variable.get("value")?.as_str()?;
                Some((text(variable, "/name").to_owned(), value.to_owned()))
            })
            .collect();
        Ok(Self {
            root: root.to_owned(),
            pins: Pins::new(before.clone(), &watches),
            before,
            samples: parts.examples.clone(),
            watches,
            by_hand: Vec::new(),
            registries: Registries::new()?,
        })
    }

    /// Returns the specs of the samples of a kind, with their names.
    pub(super) fn samples(&self, watch: &Watch) -> Vec<(String, Values)> {
        let of_kind = self.samples.iter().filter(|sample| {
            kind(sample) == watch.gvk.kind && group_version(sample).0 == watch.gvk.group
        });
        let spec = |sample: &Value| {
            let spec = sample.get("spec").and_then(Value::as_object)?;
            Some((format!("sample {}", name(sample)), spec.clone()))
        };
        of_kind.filter_map(spec).collect()
    }

    /// Pins the images of a kind.
    pub(super) fn add(
        &mut self,
        watch: &Watch,
        reader: &ChartReader,
        chart: &Chart,
        survey: &Survey,
    ) -> anyhow::Result<()> {
        let loaded: helm::Chart = reader.load(&watch.chart)?;
        let compiled = CompiledChart::compile(chart)?;
        let apis = named_api_versions(&templates(chart));
        let subject = Subject::new(watch, &loaded, &compiled, apis, &self.before);
        let defaults = subject.leaves(&Values::new());
        let mut chosen = BTreeSet::new();
        for (_, spec) in self.samples(watch) {
            let changed = subject.leaves(&spec).into_iter();
            let changed = changed.filter(|(path, text)| defaults.get(path) != Some(text));
            chosen.extend(changed.map(|(path, _)| path));
        }
        let registries = &mut self.registries;
        let mut ask = |image: &Reference| registries.digest(image);
        let mut digests = Digests::new(&mut ask);
        let new = self.pins.add(&subject, survey, chosen, &mut digests);
        if !new.is_empty() {
            match edit::add_overrides(&self.watches, &watch.gvk, &new) {
                Ok(edited) => self.watches = edited,
                Err(why) => self.by_hand.push(format!("{WATCHES}: {why}")),
            }
        }
        Ok(())
    }

    /// Leaves the images of a kind whose chart cannot be rendered.
    pub(super) fn leave(&mut self, watch: &Watch) {
        self.by_hand.push(format!(
            "the images of {} are not pinned: its chart cannot be rendered; add a values file with what it requires under ci/ of the chart",
            watch.gvk.kind
        ));
    }

    /// Adds the variables to the operator's container, and returns the changed files of the project.
    pub(super) fn finish(&mut self, parts: &mut Parts) -> anyhow::Result<FileSet> {
        let mut files = FileSet::default();
        if !self.watches.is_empty() {
            files.add(WATCHES, self.watches.as_str())?;
        }
        let variables = self.pins.variables.iter();
        let changed: BTreeMap<String, String> = variables
            .filter(|(name, value)| self.before.get(*name) != Some(value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        parts.related.append(&mut self.pins.related);
        if changed.is_empty() {
            return Ok(files);
        }
        let Some(container) = manager(&mut parts.deployments) else {
            bail!(
                "--pin does not know which container is the operator: none has the name manager; name it so in config/manager"
            );
        };
        set(container, &changed);
        let path = self.root.join(MANAGER);
        let edited = fs::read_to_string(&path)
            .ok()
            .and_then(|text| edit::set_variables(&text, &changed));
        match edited {
            Some(edited) => files.add(MANAGER, edited)?,
            None => self.by_hand.push(format!(
                "add these variables to the operator's container, which is not in {MANAGER} in YAML's block style:\n{}",
                edit::variables_by_hand(&changed)?.trim_end()
            )),
        }
        Ok(files)
    }

    /// Prints what is not pinned by digest, with what to do. Fails for such images if `digests` are needed.
    pub(super) fn report(&self, digests: bool, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut left = 0;
        for finding in &self.pins.findings {
            match finding {
                Finding::ByTag { image, why } => {
                    writeln!(out, "{image} is pinned by its tag only: {why}")?;
                }
                Finding::Left {
                    image,
                    object,
                    template,
                    why,
                    line,
                } => {
                    left += 1;
                    writeln!(
                        out,
                        "{image} of {object} ({template}) is not pinned: {why}; {line}"
                    )?;
                }
            }
        }
        for text in &self.by_hand {
            writeln!(out, "{text}")?;
        }
        if digests && left > 0 {
            bail!(
                "--image-digests needs images with a digest, and {left} are not pinned; see the output"
            );
        }
        Ok(())
    }
}

/// Returns the operator's container: the one named `manager`, or the only one.
fn manager(deployments: &mut [Value]) -> Option<&mut Value> {
    let mut all: Vec<&mut Value> = deployments.iter_mut().flat_map(containers).collect();
    let is_manager = |container: &&mut Value| text(container, "/name") == "manager";
    let at = match all.len() {
        1 => 0,
        _ => all.iter().position(is_manager)?,
    };
    Some(all.swap_remove(at))
}

/// Sets variables of a container.
fn set(container: &mut Value, variables: &BTreeMap<String, String>) {
    let Some(fields) = container.as_object_mut() else {
        return;
    };
    let list = fields.entry("env").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else {
        return;
    };
    for (name, value) in variables {
        let new = json!({"name": name, "value": value});
        match list.iter_mut().find(|one| text(one, "/name") == name) {
            Some(present) => *present = new,
            None => list.push(new),
        }
    }
}

/// The registries of images.
struct Registries {
    /// Client of registries elsewhere, over TLS.
    remote: Puller,
    /// Client of registries on this machine, without TLS.
    local: Puller,
    /// Hosts that did not answer, with the reason.
    silent: BTreeMap<String, String>,
}

impl Registries {
    fn new() -> anyhow::Result<Self> {
        let access = Access {
            docker_configs: Access::default_docker_configs(|name| std::env::var(name).ok()),
            patience: Patience {
                answer: Duration::from_secs(10),
                attempts: 2,
                ..Patience::default()
            },
            ..Access::default()
        };
        let plain = Access {
            plain_http: true,
            ..access.clone()
        };
        Ok(Self {
            remote: Puller::new(&access, None)?,
            local: Puller::new(&plain, None)?,
            silent: BTreeMap::new(),
        })
    }

    /// Asks for the digest of an image. A registry that cannot be reached is asked once.
    fn digest(&mut self, image: &Reference) -> Asked {
        let image = image.qualified();
        let host = image.registry.clone().unwrap_or_default();
        if let Some(why) = self.silent.get(&host) {
            return Err(why.clone());
        }
        let name = OciName {
            host: host.clone(),
            repository: image.path,
            tag: image.tag,
            digest: None,
        };
        // As Docker does.
        let machine = host.split(':').next().unwrap_or_default();
        let is_local = machine == "localhost" || machine.starts_with("127.");
        let puller = if is_local { &self.local } else { &self.remote };
        puller.digest_blocking(&name).map(|digest| digest.to_string()).map_err(|error| {
            let is_silent = matches!(
                error,
                chart_source::PullError::Unreachable { .. } | chart_source::PullError::Timeout { .. }
            );
            let cause = error.source().map(|source| format!(" ({source})"));
            if is_silent {
                let cause = cause.unwrap_or_default();
                let why = format!("{host} does not answer{cause}; check the network, and HTTPS_PROXY and NO_PROXY");
                self.silent.insert(host, why.clone());
                return why;
            }
            format!("{error}{}", cause.unwrap_or_default())
        })
    }
}
