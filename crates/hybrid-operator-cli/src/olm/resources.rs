//! The kinds of objects that an operator creates for its custom resources, which consoles show. Pure.

use std::collections::BTreeMap;

use helm_core::chart::Chart;
use serde_json::{Value, json};

use crate::rbac::kinds::{GroupKind, Kinds};
use crate::rbac::native::Controller;
use crate::rbac::survey::Survey;

/// The kinds of objects, by the kind of the custom resources that they are created for.
#[derive(Debug, Default)]
pub(crate) struct Created {
    /// Each kind with its version.
    of: BTreeMap<GroupKind, BTreeMap<GroupKind, String>>,
    /// Definitions of the kinds.
    kinds: Kinds,
}

impl Created {
    /// Adds what a chart can contain, for the kind of its releases.
    pub(crate) fn add_chart(&mut self, owner: GroupKind, chart: &Chart, survey: &Survey) {
        self.kinds.add_chart(chart);
        let created = self.of.entry(owner).or_default();
        for found in survey.renders.iter().flat_map(|render| &render.objects) {
            let key = found.object.key();
            let kind = GroupKind::new(&key.group, &key.kind);
            created.entry(kind).or_insert_with(|| key.version.clone());
        }
    }

    /// Adds what a native controller owns.
    pub(crate) fn add_controller(&mut self, controller: &Controller) {
        let owner = GroupKind::new(&controller.group, &controller.kind);
        let created = self.of.entry(owner).or_default();
        for owned in &controller.owns {
            let kind = GroupKind::new(&owned.group, &owned.kind);
            created.entry(kind).or_insert_with(|| owned.version.clone());
        }
    }

    /// Returns the `resources` of the definition of a kind.
    pub(super) fn resources(&self, owner: &GroupKind) -> Vec<Value> {
        let created = self.of.get(owner).into_iter().flatten();
        created
            .map(|(kind, version)| {
                let name = if Kinds::is_built_in(kind) {
                    String::new()
                } else {
                    format!("{}.{}", self.kinds.resource(kind).plural, kind.group)
                };
                json!({"kind": kind.kind, "name": name, "version": version})
            })
            .collect()
    }
}
