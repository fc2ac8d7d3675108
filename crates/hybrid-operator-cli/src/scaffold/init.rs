//! `init`: the files of a project without kinds.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::extra::{self, Extra};
use super::template::render;
use super::{Draft, Plugin, ScaffoldError, add_project_file, names};
use crate::project::{BASE_IMAGE, PROJECT, Project, ProjectFile, WATCHES};

/// Answers of `init`.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) domain: String,
    pub(crate) project_name: String,
    pub(crate) plugin: Plugin,
    pub(crate) license: License,
    pub(crate) owner: Option<String>,
    pub(crate) framework: Framework,
    /// Parts beyond what everybody needs.
    pub(crate) extras: Vec<Extra>,
}

/// Licence of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum License {
    /// Apache License 2.0
    Apache2,
    /// No licence file
    None,
}

/// Source of the framework.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framework {
    /// The released crates.
    Released,
    /// A checkout on this machine.
    Path(String),
    /// A git repository, and a commit or tag of it.
    Git {
        url: String,
        revision: Option<String>,
    },
}

impl Framework {
    /// Interprets `--framework`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, ScaffoldError> {
        let Some(text) = text else {
            return Ok(Self::Released);
        };
        if text.contains("://") || text.starts_with("git@") {
            let (url, revision) = match text.split_once('#') {
                Some((url, revision)) => (url, Some(revision.to_owned())),
                None => (text, None),
            };
            let url = url.to_owned();
            return Ok(Self::Git { url, revision });
        }
        let path = Path::new(text);
        let checkout = fs::canonicalize(path)
            .ok()
            .filter(|path| path.join("crates/hybrid-operator/Cargo.toml").is_file());
        let checkout = checkout.as_deref().and_then(Path::to_str);
        let checkout = checkout.ok_or_else(|| ScaffoldError::Framework {
            path: path.to_owned(),
        })?;
        Ok(Self::Path(checkout.to_owned()))
    }

    /// Returns what the base image is built from, as in a Makefile: a checkout or the URL of a repository. It is
    /// empty if the Makefile has to find out.
    fn source(&self) -> String {
        let source = match self {
            Self::Released => String::new(),
            Self::Path(source) => source.clone(),
            Self::Git { url, revision } => match revision {
                Some(revision) => format!("{url}#{revision}"),
                None => url.clone(),
            },
        };
        source.replace('$', "$$").replace('#', "\\#")
    }

    /// Returns the dependency on one of its crates, as in `Cargo.toml`.
    fn dependency(&self, crate_name: &str) -> String {
        match self {
            Self::Released => format!("{:?}", env!("CARGO_PKG_VERSION")),
            Self::Path(path) => format!("{{ path = {:?} }}", format!("{path}/crates/{crate_name}")),
            Self::Git { url, revision } => match revision {
                Some(revision) => format!("{{ git = {url:?}, rev = {revision:?} }}"),
                None => format!("{{ git = {url:?} }}"),
            },
        }
    }

    /// Returns the arguments of `cargo install` for the program of this version. A checkout is on one machine only.
    fn installed(&self) -> String {
        let program = "hybrid-operator-cli";
        match self {
            Self::Released | Self::Path(_) => format!("{program}@{}", env!("CARGO_PKG_VERSION")),
            Self::Git { url, revision } => {
                let revision = revision.iter().map(|revision| format!("--rev {revision} "));
                format!("--git {url} {}{program}", revision.collect::<String>())
            }
        }
    }
}

impl Init {
    fn file(&self) -> ProjectFile {
        ProjectFile {
            domain: self.domain.clone(),
            layout: vec![self.plugin.layout().to_owned()],
            project_name: self.project_name.clone(),
            resources: Vec::new(),
            version: "3".to_owned(),
            other: std::collections::BTreeMap::new(),
        }
    }

    /// Returns the data for the templates.
    fn data(&self) -> Value {
        let owner = self.owner.clone();
        let owner = owner.unwrap_or_else(|| format!("the authors of {}", self.project_name));
        let license = match self.license {
            License::Apache2 => "Apache-2.0",
            License::None => "",
        };
        json!({
            "project_name": self.project_name,
            "charts": self.plugin.has_charts(),
            "rust": self.plugin.has_code(),
            "license": license,
            "owner": owner,
            "base_image": *BASE_IMAGE,
            "framework": {
                "source": self.framework.source(),
                "installed": self.framework.installed(),
                "hybrid_operator": self.framework.dependency("hybrid-operator"),
                "hybrid_operator_test": self.framework.dependency("hybrid-operator-test"),
            },
        })
    }
}

/// Adds the files of a new project, and returns the content of `PROJECT`: the present one if the
/// command ran before.
pub(crate) fn init(
    draft: &mut Draft,
    root: &Path,
    init: &Init,
) -> Result<ProjectFile, ScaffoldError> {
    let has_code = init.plugin.has_code();
    names::check_domain(&init.domain)?;
    names::check_project(&init.project_name, has_code)?;
    let file = present(root, init)?.unwrap_or_else(|| init.file());
    add_project_file(draft, &file)?;
    let data = init.data();
    for (path, template) in files(init) {
        draft.add(path, render(template, &data)?)?;
    }
    for (path, template) in shared_files(init.plugin) {
        draft.add_shared(path, render(template, &data)?)?;
    }
    for extra in &init.extras {
        extra::add(draft, init, *extra, &data)?;
    }
    Ok(file)
}

/// Returns the content of `PROJECT` in the directory, which must be that of the same project.
fn present(root: &Path, init: &Init) -> Result<Option<ProjectFile>, ScaffoldError> {
    if !root.join(PROJECT).is_file() {
        return Ok(None);
    }
    let other = |present: &str, difference: String| ScaffoldError::OtherProject {
        present: present.to_owned(),
        difference,
    };
    let present = Project::open(root)?.file;
    let wanted = init.file();
    let name = &present.project_name;
    if *name != wanted.project_name {
        return Err(other(name, format!("projectName {name}")));
    }
    if present.domain != wanted.domain {
        return Err(other(name, format!("domain {}", present.domain)));
    }
    if present.layout != wanted.layout {
        return Err(other(name, format!("layout {}", present.layout.join(", "))));
    }
    Ok(Some(present))
}

/// Returns the files that only `init` writes, with their templates.
fn files(init: &Init) -> Vec<(&'static str, &'static str)> {
    let mut files = vec![
        (".dockerignore", "project/dockerignore"),
        (".gitignore", "project/gitignore"),
        ("README.md", "project/README.md"),
    ];
    macro_rules! config {
        ($($path:literal),*) => {
            files.extend([$((concat!("config/", $path), concat!("project/config/", $path))),*])
        };
    }
    config!(
        "default/metrics_service.yaml",
        "manager/kustomization.yaml",
        "manager/manager.yaml",
        "rbac/leader_election_role.yaml",
        "rbac/leader_election_role_binding.yaml",
        "rbac/metrics_auth_role.yaml",
        "rbac/metrics_auth_role_binding.yaml",
        "rbac/metrics_reader_role.yaml",
        "rbac/operator_role.yaml",
        "rbac/operator_role_binding.yaml",
        "rbac/service_account.yaml"
    );
    if init.license == License::Apache2 {
        files.push(("LICENSE", "project/LICENSE.apache2"));
    }
    files.extend(if init.plugin.has_code() {
        vec![
            ("Cargo.toml", "project/Cargo.toml"),
            ("Dockerfile", "project/Dockerfile.native"),
            ("Makefile", "project/Makefile.native"),
            ("rust-toolchain.toml", "project/rust-toolchain.toml"),
            ("rustfmt.toml", "project/rustfmt.toml"),
        ]
    } else {
        vec![
            ("Dockerfile", "project/Dockerfile.helm"),
            ("Makefile", "project/Makefile.helm"),
        ]
    });
    files
}

/// Returns the files that list kinds, which `create` edits.
fn shared_files(plugin: Plugin) -> Vec<(&'static str, &'static str)> {
    let mut files = vec![
        ("config/crd/kustomization.yaml", "project/resources.yaml"),
        (
            "config/default/kustomization.yaml",
            "project/config/default/kustomization.yaml",
        ),
        (
            "config/rbac/kustomization.yaml",
            "project/config/rbac/kustomization.yaml",
        ),
        (
            "config/samples/kustomization.yaml",
            "project/resources.yaml",
        ),
    ];
    if plugin.has_charts() {
        files.push((WATCHES, "project/watches.yaml"));
    }
    if plugin.has_code() {
        files.extend([
            ("src/api/mod.rs", "project/api.rs"),
            ("src/controllers/mod.rs", "project/controllers.rs"),
            ("src/lib.rs", "project/lib.rs"),
            ("src/main.rs", "project/main.rs"),
        ]);
    }
    files
}
