//! Public Helm operators, as their authors wrote them: each project is run, what it deploys is compared with what Helm
//! renders and with what the Go operator deployed on such a control plane, and its custom resources are touched, edited
//! and deleted.
//!
//! The projects are not part of this repository. The folder has `archives/NAME.tgz`, a project each, and, if the Go
//! operator was run, `expected/NAME.json`: the conditions of its custom resources, the objects of their releases, hooks
//! included, and its memory. There, `@@random@@` stands for what templates draw at random, and namespaces, owner
//! references, empty annotations and nulls are left out.
//!
//! `make operators` prints a table of the results, and takes another folder as `OPERATORS`.

mod compare;
mod project;
mod report;
mod run;

use std::fs;
use std::path::PathBuf;

use futures::StreamExt;
use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::{ControlPlane, shared_or_skip, skipped};

use crate::transcript::is_current;
use crate::world::root;

use project::Project;
use report::Report;

/// Projects that run at the same time.
const AT_ONCE: usize = 2;

/// Projects that are not run, each with the reason.
const EXCLUDED: &[(&str, &str)] = &[
    (
        "EvannDev_artifacthub-operator",
        "the schema of its chart refers to a document of the web, which is not in the chart and which tests do not fetch",
    ),
    (
        "SumoLogic_sumologic-kubernetes-collection-helm-operator",
        "its repository has no chart",
    ),
];

/// The project that runs alone: its admission webhook has no Pods that answer, and refuses the Ingresses of others.
const ALONE: &str = "Fish-pro_ingress-nginx-helm-operator";

/// Returns the folder of the projects, and whether it is the one that this test knows.
fn folder() -> Option<(PathBuf, bool)> {
    let named = std::env::var_os("OPERATORS");
    let is_known = named.is_none();
    let folder = named.map_or_else(|| root().join("../shared/operators"), PathBuf::from);
    Some((fs::canonicalize(folder).ok()?, is_known))
}

#[tokio::test(flavor = "multi_thread")]
async fn public_operators_deploy_what_they_deploy_under_the_go_operator() {
    let Some((folder, is_known)) = folder() else {
        return skipped(12, &"public operators: there is no folder of them");
    };
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    for program in ["chart-operator", "hybrid-operator"] {
        is_current(program).unwrap();
    }
    let mut projects = Vec::new();
    for entry in fs::read_dir(folder.join("archives")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".tgz").unwrap();
        match EXCLUDED.iter().find(|(excluded, _)| *excluded == name) {
            Some((_, reason)) => skipped(1, &format!("{name}: {reason}")),
            None => projects.push(Project::unpack(&folder, name)),
        }
    }
    assert!(!is_known || projects.len() + EXCLUDED.len() == 13);
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let (alone, together): (Vec<_>, Vec<_>) =
        projects.iter().partition(|project| project.name == ALONE);
    let runs = together.iter().map(|project| run::run(project, &plane));
    let mut reports: Vec<Report> = futures::stream::iter(runs)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for project in alone {
        reports.push(run::run(project, &plane).await);
    }
    println!("{}", report::table(&mut reports));
    let differences: Vec<String> = reports.into_iter().flat_map(Report::differences).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
