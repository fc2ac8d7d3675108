//! Custom resources whose charts render more than the memory of the container, in which the operator stays alive.

use std::fs;
use std::path::{Path, PathBuf};

use hybrid_operator_test::skipped;
use serde_json::{Value, json};

use crate::world::{Project, World, new_namespace, says};

/// The limit of the manifest of generated projects.
const CONTAINER: usize = 128 << 20;

/// Number of large releases.
const RELEASES: usize = 4;

/// Renders `objects` `ConfigMaps` with as many lines, or as many annotations, also as hooks.
const CHART: &str = "\
{{- $line := repeat 99 \"x\" }}
{{- range $i := until (int .Values.objects) }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $.Release.Name }}-{{ $i }}
  annotations:
{{- if $.Values.hook }}
    helm.sh/hook: pre-install,pre-delete
{{- end }}
{{- range $n := until (int $.Values.small) }}
    a{{ $n }}: b
{{- end }}
data:
  text: |
{{- range until (int $.Values.lines) }}
    {{ $line }}
{{- end }}
{{- end }}
";

/// A control group of version 1 or 2 with a memory limit, removed at the end.
struct Container(PathBuf);

impl Container {
    /// Creates a group below that of this process; an error says why that is impossible.
    fn create(name: &str) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let memory = groups.lines().find_map(|line| line.split_once(":memory:"));
        let (parent, limit) = match memory {
            Some((_, group)) => (
                Path::new("/sys/fs/cgroup/memory").join(group.trim_start_matches('/')),
                "memory.limit_in_bytes",
            ),
            None => (PathBuf::from("/sys/fs/cgroup"), "memory.max"),
        };
        let folder = parent.join(name);
        let created = fs::create_dir(&folder)
            .and_then(|()| fs::write(folder.join(limit), CONTAINER.to_string()));
        created.map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_that_do_not_fit_into_the_container_are_refused_and_the_operator_lives() {
    let (plane, namespace) = or_skip!(new_namespace("memory").await);
    let container = match Container::create(&format!("operator-{}", std::process::id())) {
        Ok(container) => container,
        Err(reason) => return skipped(1, &format!("no memory limit can be set: {reason}")),
    };
    let project = Project::new("", &[("maps.yaml", CHART)]);
    // Without it, glibc keeps nearly as much again for its threads.
    let enter = format!(
        "export MALLOC_ARENA_MAX=2 && echo $$ >{}/cgroup.procs && exec \"$0\" \"$@\"",
        container.0.display()
    );
    let operator = project.operator(plane, namespace.name());
    let operator = operator.under("sh", ["-c", &enter]);
    let world = World::run(plane, operator, namespace).await;
    let small = json!({"objects": 3, "lines": 100});
    world.deploy("usual", small.clone()).await;
    // As large as the container permits: long texts, and maps with many entries.
    let shapes = [
        ("text", json!({"objects": 6, "lines": 4000})),
        ("maps", json!({"objects": 5, "lines": 1, "small": 9000})),
        (
            "hooks",
            json!({"objects": 5, "lines": 1, "small": 9000, "hook": true}),
        ),
    ];
    for (name, spec) in &shapes {
        for n in 0..RELEASES {
            world.widget(&format!("{name}{n}"), spec.clone()).await;
        }
        for n in 0..RELEASES {
            world.ready("Widget", &format!("{name}{n}")).await;
        }
    }
    // 80 MB each, and 200 MB, while the others are deleted.
    let sizes = (0..RELEASES).map(|n| (format!("huge{n}"), 200));
    let sizes: Vec<(String, usize)> = sizes.chain([("largest".to_owned(), 500)]).collect();
    for (name, objects) in &sizes {
        let spec = json!({"objects": objects, "lines": 4000});
        world.widget(name, spec).await;
    }
    for (name, _) in &shapes {
        for n in 0..RELEASES {
            world.remove("Widget", &format!("{name}{n}")).await;
        }
    }
    let expected = "the memory limit of the operator's container (128Mi) leaves no more for one \
                    release: raise `resources.limits.memory` of its Deployment";
    let refused = |cr: &Value| says(cr, "Irreconcilable", expected);
    for (name, _) in &sizes {
        world.until("Widget", name, "refused", refused).await;
    }
    // What becomes small enough is deployed, by the process that was started.
    world.deploy("largest", small).await;
    assert!(!world.operator.log().contains("panicked"));
}
