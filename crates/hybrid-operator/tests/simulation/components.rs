//! Charts that a native controller installs, run through generated histories.

use std::sync::LazyLock;

use hybrid_operator::helm::{self, Chart, Component, install};
use hybrid_operator::manager::Manager;
use hybrid_operator::native::{self, Action, Condition};
use hybrid_operator_test::simulation::{Process, Project, Simulation};
use kube::{Client, CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tower::BoxError;

use super::{custom, definition, options, project};

/// Specification with the values of the chart.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "demo.example.com",
    version = "v1",
    kind = "Shop",
    namespaced,
    status = "ShopStatus",
    schema = "disabled"
)]
pub(crate) struct ShopSpec {
    #[serde(flatten)]
    values: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ShopStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Runs an operator with a native controller as a process.
async fn operator(process: Process) -> Result<(), BoxError> {
    let chart = Chart::load(process.directory.join("web"))?;
    let controller = native::controller::<Shop>("shop")
        .with(helm::components())
        .reconcile(move |shop, context| {
            let values = Value::from(shop.spec.values.clone());
            let component = Component::new("web", &chart)
                .release_name(&shop.name_any())
                .values(values);
            async move {
                let release = install(&context, component).await?;
                let fails = !release.ready && !release.message.is_empty();
                let present = shop.status.clone().unwrap_or_default();
                let conditions = context.conditions(Some(&present.conditions));
                let conditions =
                    conditions.set("Irreconcilable", fails, "Release", release.message);
                let status = ShopStatus {
                    conditions: conditions.into_vec(),
                };
                context.patch_status(&status).await?;
                Ok::<_, native::Error>(Action::done())
            }
        });
    let options = options(&process)?;
    let client = Client::new(process.transport, "operator");
    let manager = Manager::new(options).network(client).with(controller);
    Ok(manager.run_until(process.stop).await?)
}

fn shops() -> Project {
    let project = project();
    // Of a namespace that goes while no operator runs, the objects of a component outside of it stay.
    let kept = |object: &Value| object.get("kind") == Some(&"Namespace".into());
    let mut objects = project.objects;
    objects.extend(project.replaced.into_iter().filter(kept));
    Project {
        versions: project.versions.into_iter().take(2).collect(),
        resources: vec![custom("Shop", "team", "a"), custom("Shop", "team", "b")],
        objects,
        replaced: vec![definition("Shop", "Namespaced")],
        settings: Vec::new(),
        suspends: None,
        others: project.others,
        elects: project.elects,
        requests: project.requests,
    }
}

static SIMULATION: LazyLock<Simulation> =
    LazyLock::new(|| Simulation::new(operator, shops()).unwrap());

/// Runs the histories of `COMPONENT_SEEDS=FROM..TO`.
#[test]
fn components_end_like_a_fresh_install() {
    super::search(&SIMULATION, "COMPONENT_SEEDS", 10);
}
