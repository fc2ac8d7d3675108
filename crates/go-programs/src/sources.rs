//! The programs: their embedded sources, and how they are built.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{BuildError, Program};

macro_rules! embedded {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../programs/", $folder, "/", $name)))),+]
    };
}

/// These programs are not debugged, and building without debug information takes 10% less time.
const NO_DEBUG_INFO: &str = "-gcflags=all=-dwarf=false";

/// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok in one binary.
pub static CONTROL_PLANE: Program = Program {
    name: "control plane",
    variable: "CONTROL_PLANE_BIN",
    file: "controlplane",
    sources: embedded!["control-plane":
        "go.mod",
        "go.sum",
        "main.go",
        "up.go",
        "plane.go",
        "certs.go",
        "files.go",
        "client.go",
        "kwok.go",
        "stages.yaml",
    ],
    package: ".",
    // Without the version the API server reports v0.0.0, and charts with a `kubeVersion` reject it.
    flags: &[
        "-trimpath",
        NO_DEBUG_INFO,
        "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
         -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
    ],
    largest_module: "k8s.io/kubernetes@v1.36.3",
    build: "etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok; \
            usually 5 to 8 minutes on two cores",
};

/// Helm's command, in the version that the chart engine reproduces.
pub static HELM: Program = Program {
    name: "helm",
    variable: "HELM",
    file: "helm",
    sources: embedded!["helm": "go.mod", "go.sum"],
    package: "helm.sh/helm/v4/cmd/helm",
    // Without the version it reports v4.3.
    flags: &[
        "-trimpath",
        NO_DEBUG_INFO,
        "-ldflags=-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.1",
    ],
    largest_module: "k8s.io/client-go@v0.37.1",
    build: "helm.sh/helm/v4 v4.3.1; usually 4 minutes on two cores",
};

/// The Operator Lifecycle Manager, which also asks the packages of Operator Framework about bundles and
/// catalogs.
pub static OLM: Program = Program {
    name: "olm",
    variable: "OLM",
    file: "olm",
    sources: embedded!["olm": "go.mod", "go.sum", "main.go", "lifecycle.go", "serve.go"],
    package: ".",
    flags: &[
        "-trimpath",
        NO_DEBUG_INFO,
        "-ldflags=-s -w",
        // Otherwise signatures of images are checked with a C library.
        "-tags=containers_image_openpgp",
    ],
    largest_module: "github.com/operator-framework/operator-lifecycle-manager@v0.46.0",
    build: "packages of github.com/operator-framework; usually 5 minutes on two cores",
};

/// An OCI registry without TLS that keeps everything in memory.
pub static REGISTRY: Program = Program {
    name: "registry",
    variable: "OCI_REGISTRY",
    file: "registry",
    sources: embedded!["registry": "go.mod", "go.sum", "main.go"],
    package: ".",
    flags: &["-trimpath", NO_DEBUG_INFO, "-ldflags=-s -w"],
    largest_module: "github.com/distribution/distribution/v3@v3.0.0",
    build: "github.com/distribution/distribution/v3 v3.0.0; usually 2 minutes on two cores",
};

/// The sharder of kubernetes-controller-sharding.
pub static SHARDER: Program = Program {
    name: "sharder",
    variable: "SHARDER",
    file: "sharder",
    sources: embedded!["sharder": "go.mod", "go.sum", "main.go"],
    package: ".",
    flags: &["-trimpath", NO_DEBUG_INFO, "-ldflags=-s -w"],
    largest_module: "k8s.io/client-go@v0.33.2",
    build: "github.com/timebertt/kubernetes-controller-sharding v0.11.0; usually 2 minutes on two cores",
};

/// Sources of the Go operators.
const GO_OPERATORS: &[(&str, &str)] = embedded!["helm-operator": "go.mod", "go.sum"];

/// The Helm operator of operator-sdk.
pub static HELM_OPERATOR: Program = Program {
    name: "helm-operator",
    variable: "HELM_OPERATOR",
    file: "helm-operator",
    sources: GO_OPERATORS,
    package: "github.com/operator-framework/operator-sdk/cmd/helm-operator",
    flags: &["-trimpath", NO_DEBUG_INFO, "-ldflags=-s -w"],
    largest_module: "k8s.io/client-go@v0.33.9",
    build: "github.com/operator-framework/operator-sdk v1.42.2; usually 3 minutes on two cores",
};

/// The Helm operator of helm-operator-plugins.
pub static HELM_OPERATOR_PLUGINS: Program = Program {
    name: "helm-operator-plugins",
    variable: "HELM_OPERATOR_PLUGINS",
    file: "helm-operator-plugins",
    package: "github.com/operator-framework/helm-operator-plugins",
    build: "github.com/operator-framework/helm-operator-plugins v0.8.0; usually 3 minutes on two cores",
    ..HELM_OPERATOR
};

/// The Helm operator of helm-operator-plugins with releases in chunks.
pub static HELM_OPERATOR_CHUNKS: Program = Program {
    name: "helm-operator-chunks",
    variable: "HELM_OPERATOR_CHUNKS",
    file: "helm-operator-chunks",
    sources: embedded!["helm-operator-chunks": "go.mod", "go.sum", "main.go"],
    package: ".",
    build: "packages of github.com/operator-framework/helm-operator-plugins v0.8.0; usually 3 minutes on two cores",
    ..HELM_OPERATOR
};

/// The code with which Argo CD judges objects.
pub static ARGO_CD: Program = Program {
    name: "argo-cd",
    variable: "ARGO_CD",
    file: "argo-cd",
    sources: embedded!["argo-cd": "go.mod", "go.sum", "main.go"],
    package: ".",
    flags: &["-trimpath", NO_DEBUG_INFO, "-ldflags=-s -w"],
    largest_module: "github.com/argoproj/argo-cd/v3@v3.2.12",
    build: "packages of github.com/argoproj/argo-cd/v3 v3.2.12; usually 3 minutes on two cores",
};

/// The code with which Flux judges objects.
pub static FLUX: Program = Program {
    name: "flux",
    variable: "FLUX",
    file: "flux",
    sources: embedded!["flux": "go.mod", "go.sum", "main.go"],
    package: ".",
    flags: &["-trimpath", NO_DEBUG_INFO, "-ldflags=-s -w"],
    largest_module: "k8s.io/client-go@v0.37.1",
    build: "github.com/fluxcd/pkg/runtime v0.117.0; usually 3 minutes on two cores",
};

impl Program {
    /// Returns a name that identifies these sources and build flags.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for part in self
            .sources
            .iter()
            .flat_map(|(name, text)| [*name, *text])
            .chain(self.flags.iter().copied())
            .chain([self.package])
        {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let digest = hasher.finalize();
        let start = digest.first_chunk().copied().map_or(0, u64::from_be_bytes);
        format!("{start:016x}")
    }

    /// Writes the sources into a new directory.
    pub(crate) fn unpack(&self, dir: &Path) -> Result<(), BuildError> {
        fs::create_dir_all(dir).map_err(BuildError::cache("create", dir))?;
        for (name, text) in self.sources {
            let path = dir.join(name);
            fs::write(&path, text).map_err(BuildError::cache("write", &path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PROGRAMS: [(&Program, &str); 10] = [
        (&CONTROL_PLANE, "control-plane"),
        (&HELM, "helm"),
        (&OLM, "olm"),
        (&REGISTRY, "registry"),
        (&SHARDER, "sharder"),
        (&HELM_OPERATOR, "helm-operator"),
        (&HELM_OPERATOR_PLUGINS, "helm-operator"),
        (&HELM_OPERATOR_CHUNKS, "helm-operator-chunks"),
        (&ARGO_CD, "argo-cd"),
        (&FLUX, "flux"),
    ];

    #[test]
    fn all_source_files_are_embedded() {
        for (program, folder) in PROGRAMS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("programs")
                .join(folder);
            let mut there: Vec<String> = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != "README.md")
                .collect();
            there.sort();
            let mut embedded: Vec<_> = program
                .sources
                .iter()
                .map(|(name, _)| (*name).to_owned())
                .collect();
            embedded.sort();
            assert_eq!(there, embedded);
        }
    }

    #[test]
    fn programs_report_the_version_that_go_mod_requires() {
        for (program, module, setting) in [
            (&CONTROL_PLANE, "k8s.io/kubernetes", "gitVersion="),
            (&HELM, "helm.sh/helm/v4", "version.version="),
        ] {
            let required = required(program.sources[0].1, module);
            let mut words = program.flags.iter().flat_map(|flag| flag.split(' '));
            assert!(
                words.any(|word| word.ends_with(&format!("{setting}{required}"))),
                "{required}"
            );
            assert!(program.build.contains("kube-apiserver") || program.build.contains(required));
        }
    }

    #[test]
    fn largest_module_is_a_requirement_in_go_mod() {
        for (program, _) in PROGRAMS {
            let (module, version) = program.largest_module.split_once('@').unwrap();
            assert_eq!(required(program.sources[0].1, module), version);
        }
    }

    /// Returns the version of a module in a `go.mod`.
    fn required<'a>(go_mod: &'a str, module: &str) -> &'a str {
        go_mod
            .lines()
            .find_map(|line| line.trim().strip_prefix(module)?.strip_prefix(' '))
            .and_then(|rest| rest.split(' ').next())
            .unwrap()
    }

    #[test]
    fn benchmark_uses_the_same_helm_version() {
        let module = "helm.sh/helm/v4";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/go/go.mod");
        let benchmark = fs::read_to_string(path).unwrap();
        assert_eq!(
            required(&benchmark, module),
            required(HELM.sources[0].1, module)
        );
    }

    #[test]
    fn unpack_writes_the_embedded_files() {
        let dir = tempfile::tempdir().unwrap();
        HELM.unpack(&dir.path().join("src")).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("src/go.mod")).unwrap(),
            HELM.sources[0].1
        );
    }
}
