//! Charts that ask what the cluster serves are rendered anew when that changes.

use serde_json::json;

use crate::world::{ANYTHING, MAP, Project, World, create, define_kind, definition_of, undefine};

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
    let chart = chart(group);
    let templates = [("map.yaml", chart.as_str())];
    let world = World::of(prefix, "dryRunOption: server", &templates).await?;
    world.deploy("one", json!({})).await;
    shows(&world, "false", "null").await;
    Some(world)
}

/// Waits until the `ConfigMap` of the chart shows this.
async fn shows(world: &World, serves: &str, found: &str) {
    let data = json!({"serves": serves, "found": found});
    world.data("one-map", data).await;
}

#[tokio::test]
async fn a_new_kind_upgrades_the_releases_whose_templates_ask_for_it() {
    let group = "asked.example.com";
    let world = or_skip!(start("asked", group).await);
    define_kind(world.plane, group, "Asked").await;
    shows(&world, "true", "null").await;
    world.has_history("one", &["superseded", "deployed"]).await;
    undefine(&world.namespace, &format!("askeds.{group}")).await;
}

#[tokio::test]
async fn a_kind_that_comes_to_be_served_wakes_the_releases_that_look_it_up() {
    let group = "looked.example.com";
    let world = or_skip!(start("looked", group).await);
    define_kind(world.plane, group, "Looked").await;
    let looked = crate::world::api_of(&world.namespace, group, "Looked");
    let object = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Looked",
        "metadata": {"name": "it"}, "spec": {"size": 3},
    });
    create(&looked, object).await;
    shows(&world, "false", "{\"size\":3}").await;
    undefine(&world.namespace, &format!("lookeds.{group}")).await;
}

/// A chart that reads whether the kind of its own `crds/` is served, and with `required`, does not
/// render otherwise.
fn own(group: &str, kind: &str, required: bool) -> String {
    let has = format!(".Capabilities.APIVersions.Has \"{group}/v1/{kind}\"");
    let check =
        format!("{{{{ if not ({has}) }}}}{{{{ fail \"{kind} is not served\" }}}}{{{{ end }}}}");
    let check = if required { &*check } else { "" };
    format!(
        "{check}
apiVersion: v1
kind: ConfigMap
metadata: {{name: {{{{ .Release.Name }}}}-map}}
data: {{serves: {{{{ {has} | quote }}}}}}
"
    )
}

#[tokio::test]
async fn a_chart_sees_its_own_definitions_in_the_first_revision() {
    for (prefix, required) in [("sees", false), ("requires", true)] {
        let group = format!("{prefix}.example.com");
        let project = Project::new("", &[("map.yaml", &own(&group, "Own", required))]);
        let definition = definition_of(&group, "Own", "Namespaced", ANYTHING);
        project.write("chart/crds/own.yaml", &definition);
        let world = or_skip!(project.start(prefix).await);
        world.deploy("one", json!({})).await;
        world.data("one-map", json!({"serves": "true"})).await;
        assert_eq!(world.history("one").await, ["deployed"], "{prefix}");
        // Neither does the next one begin a revision.
        world.deploy("two", json!({})).await;
        assert_eq!(world.history("two").await, ["deployed"], "{prefix}");
        assert_eq!(world.history("one").await, ["deployed"], "{prefix}");
        undefine(&world.namespace, &format!("owns.{group}")).await;
    }
}

#[tokio::test]
async fn an_upgrade_that_requires_a_new_definition_of_its_chart_gets_it() {
    let group = "grows.example.com";
    let options = "crds: createReplace";
    let project = Project::new(options, &[("map.yaml", &own(group, "Old", false))]);
    let definition = definition_of(group, "Old", "Namespaced", ANYTHING);
    project.write("chart/crds/old.yaml", &definition);
    let world = or_skip!(project.start("grows").await);
    world.deploy("one", json!({})).await;
    let definition = definition_of(group, "New", "Namespaced", ANYTHING);
    project.write("chart/crds/new.yaml", &definition);
    project.write("chart/templates/map.yaml", &own(group, "New", true));
    world.has_history("one", &["superseded", "deployed"]).await;
    world.ready("Widget", "one").await;
    world.has_history("one", &["superseded", "deployed"]).await;
    for one in ["olds", "news"] {
        undefine(&world.namespace, &format!("{one}.{group}")).await;
    }
}

#[tokio::test]
async fn objects_of_any_kind_and_lists_in_crds_are_installed_and_stay() {
    let group = "listed.example.com";
    let project = Project::new("", &[("map.yaml", MAP)]);
    let definition = definition_of(group, "Listed", "Namespaced", ANYTHING);
    let definition: serde_json::Value = go_yaml::from_str(&definition).unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": format!("{group}/v1"), "kind": "Listed", "metadata": {"name": "first"}},
        definition,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"a": "b"}},
    ]});
    // JSON is YAML.
    project.write("chart/crds/all.yaml", &list.to_string());
    let world = or_skip!(project.start("listed").await);
    world.deploy("one", json!({})).await;
    world.data("shared", json!({"a": "b"})).await;
    let listed = crate::world::api_of(&world.namespace, group, "Listed");
    assert!(listed.get_opt("first").await.unwrap().is_some());
    world.remove("Widget", "one").await;
    world.gone("ConfigMap", "one-map").await;
    world.data("shared", json!({"a": "b"})).await;
    assert!(listed.get_opt("first").await.unwrap().is_some());
    undefine(&world.namespace, &format!("listeds.{group}")).await;
}

#[tokio::test]
async fn objects_in_crds_that_cannot_be_installed_are_reported() {
    for (prefix, text, reported) in [
        ("unreadable", "kind: [", "chart/crds/bad.yaml"),
        (
            "nameless",
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {}}]\n",
            "chart/crds/bad.yaml",
        ),
        (
            "invalid",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NotAName}\n",
            "NotAName",
        ),
    ] {
        let project = Project::new("", &[("map.yaml", MAP)]);
        project.write("chart/crds/bad.yaml", text);
        let world = or_skip!(project.start(prefix).await);
        world.widget("one", json!({})).await;
        let message = world.message("one", "Irreconcilable").await;
        assert!(message.contains(reported), "{prefix}: {message}");
        assert!(world.history("one").await.is_empty());
    }
}
