//! Charts that ask what the cluster serves are rendered anew when that changes.

use hybrid_operator_test::wait;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::world::{ANYTHING, LIMIT, Project, World, cluster_api, define, definition_of};

/// Reads `.Capabilities` of one kind, and looks up an object of another.
fn chart(group: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: {{{{ .Release.Name }}}}-map}}
data:
  serves: {{{{ .Capabilities.APIVersions.Has \"{group}/v1/Asked\" | quote }}}}
  found: {{{{ (lookup \"{group}/v1\" \"Looked\" .Release.Namespace \"it\").spec | toJson | quote }}}}
"
    )
}

async fn start(prefix: &str, group: &str) -> Option<World> {
    let project = Project::new("dryRunOption: server", &[("map.yaml", &chart(group))]);
    let world = project.start(prefix).await?;
    world.widget("one", json!({})).await;
    world.ready("Widget", "one").await;
    world
        .data("one-map", json!({"serves": "false", "found": "null"}))
        .await;
    Some(world)
}

async fn remove_definition(world: &World, name: &str) {
    let definitions = cluster_api(&world.namespace, "CustomResourceDefinition");
    let deleted = definitions.delete(name, &DeleteParams::default()).await;
    drop(deleted.unwrap());
    wait::gone(&definitions, name, LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_new_kind_upgrades_the_releases_whose_templates_ask_for_it() {
    let group = "asked.example.com";
    let Some(world) = start("asked", group).await else {
        return;
    };
    define(
        world.plane,
        &definition_of(group, "Asked", "Namespaced", ANYTHING),
    )
    .await;
    world
        .data("one-map", json!({"serves": "true", "found": "null"}))
        .await;
    world.has_history("one", &["superseded", "deployed"]).await;
    remove_definition(&world, &format!("askeds.{group}")).await;
}

#[tokio::test]
async fn a_kind_that_comes_to_be_served_wakes_the_releases_that_look_it_up() {
    let group = "looked.example.com";
    let Some(world) = start("looked", group).await else {
        return;
    };
    define(
        world.plane,
        &definition_of(group, "Looked", "Namespaced", ANYTHING),
    )
    .await;
    let looked = crate::world::api_of(&world.namespace, group, "Looked");
    let object = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Looked",
        "metadata": {"name": "it"}, "spec": {"size": 3},
    });
    let object = serde_json::from_value(object).unwrap();
    drop(
        looked
            .create(&PostParams::default(), &object)
            .await
            .unwrap(),
    );
    world
        .data(
            "one-map",
            json!({"serves": "false", "found": "{\"size\":3}"}),
        )
        .await;
    remove_definition(&world, &format!("lookeds.{group}")).await;
}
