//! The targets of the Makefiles that `init` writes, with programs in place of the container engine and of what
//! changes a cluster.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hybrid_operator_test::{shared_or_skip, skipped};

use super::{memcached, ok, project, text};
use crate::support::{PROGRAM, Text as _, or_skip};

const BASE: &str = concat!("localhost/hybrid-operator:v", env!("CARGO_PKG_VERSION"));

/// Says where it is run and with which arguments. `images` prints what is in the file `images` beside it, which
/// `build` adds to.
const ENGINE: &str = r#"#!/bin/sh -e
here=$(dirname "$0")
if [ "$1" = images ]; then grep -sx "$3" "$here/images" || true; exit; fi
echo "in $(pwd -P): $*"
while [ $# -gt 1 ]; do [ "$1" != -t ] || echo "$2" >>"$here/images"; shift; done
"#;

/// Runs only what changes nothing.
const KUBECTL: &str = r#"#!/bin/sh
case "$1" in config|kustomize) PATH=${PATH#*:} exec kubectl "$@" ;; esac
echo "kubectl $1"
"#;

const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "staging",
 "clusters": [{"name": "one", "cluster": {"server": "https://one.example.com:6443"}},
              {"name": "two", "cluster": {"server": "https://two.example.com:6443"}}],
 "users": [{"name": "me", "user": {"token": "secret"}}],
 "contexts": [{"name": "live", "context": {"cluster": "one", "user": "me"}},
              {"name": "staging", "context": {"cluster": "two", "user": "me"}}]}"#;

/// A project, and a directory of programs that goes before others.
struct Made {
    _directory: tempfile::TempDir,
    project: PathBuf,
    programs: PathBuf,
    kubeconfig: &'static str,
}

impl Made {
    fn with(flags: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let folder = fs::canonicalize(directory.path()).unwrap().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (project, programs) = (at("cache-operator"), at("programs"));
        ok(&project, &format!("init --domain example.com {flags}"));
        let made = Self {
            project,
            programs,
            kubeconfig: KUBECONFIG,
            _directory: directory,
        };
        made.program("docker", ENGINE);
        made.program("kubectl", KUBECTL);
        for name in ["cargo", "hybrid-operator"] {
            made.program(name, &format!("#!/bin/sh\necho \"{name} $*\"\n"));
        }
        made
    }

    fn program(&self, name: &str, text: &str) {
        write_program(&self.programs.join(name), text);
    }

    fn make(&self, arguments: &str) -> Output {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path: OsString = [self.programs.as_os_str(), &inherited].join(":".as_ref());
        let kubeconfig = self.programs.join("kubeconfig");
        fs::write(&kubeconfig, self.kubeconfig).unwrap();
        Command::new("make")
            .arg("-s")
            .args(arguments.split_whitespace())
            .current_dir(&self.project)
            .env("PATH", path)
            .env("KUBECONFIG", kubeconfig)
            // Of `make test`.
            .env_remove("MAKELEVEL")
            .env_remove("MAKEFLAGS")
            .env_remove("MFLAGS")
            .output()
            .unwrap()
    }

    #[track_caller]
    fn made(&self, arguments: &str) -> String {
        let output = self.make(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments}\n{out}{err}");
        out
    }

    fn refused(&self, arguments: &str) -> String {
        let output = self.make(arguments);
        assert!(!output.status.success(), "{arguments}\n{output:?}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
        text(&output.stderr)
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a directory that is a checkout as far as the Makefile looks.
fn checkout(directory: &Path) -> PathBuf {
    let images = directory.join("images/hybrid-operator");
    fs::create_dir_all(&images).unwrap();
    fs::write(images.join("Dockerfile"), "FROM scratch\n").unwrap();
    fs::canonicalize(directory).unwrap()
}

fn base_built(at: &Path) -> String {
    let at = at.display();
    format!(
        "building {BASE} from {at}\nin {at}: build -t {BASE} -f images/hybrid-operator/Dockerfile .\n"
    )
}

fn project_built(made: &Made, base: &str) -> String {
    let project = made.project.display();
    format!("in {project}: build --build-arg BASE_IMG={base} -t shop:v1 .\n")
}

#[test]
fn the_image_of_a_chart_project_is_built_from_what_is_on_this_machine() {
    let made = Made::with(&format!("--helm-chart {}", memcached()));
    let build = "docker-build IMG=shop:v1";
    // A program that was installed is in no checkout.
    let error = made.refused(build);
    error.must_have(&format!("no registry has the image {BASE}"));
    error.must_have("FRAMEWORK=DIR");

    // The checkout in which the program was built, also through a link.
    let directory = tempfile::tempdir().unwrap();
    let checkout = checkout(directory.path());
    let programs = checkout.join("target/debug");
    fs::create_dir_all(&programs).unwrap();
    write_program(&programs.join("hybrid-operator"), "#!/bin/sh\n");
    let link = made.programs.join("hybrid-operator");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(programs.join("hybrid-operator"), link).unwrap();
    let project = project_built(&made, BASE);
    assert_eq!(made.made(build), base_built(&checkout) + &project);
    // Once it is there, it is not built again.
    assert_eq!(made.made(build), project);

    // An image of a registry is left to the engine.
    let base = "registry.example.com/hybrid-operator:v1";
    let output = made.made(&format!("{build} BASE_IMG={base}"));
    assert_eq!(output, project_built(&made, base));

    // Other platforms need an image of a registry.
    let error = made.refused("docker-buildx IMG=shop:v1");
    error.must_have("base-image-buildx");
    let output = made.made(&format!("docker-buildx IMG=shop:v1 BASE_IMG={base}"));
    output.must_have(&format!("--build-arg BASE_IMG={base} --platform"));
}

#[test]
fn the_base_image_is_built_from_the_checkout_or_the_repository_that_is_named() {
    let repository = "https://git.example.com/hybrid-operator.git#v1.2.3";
    let chart = memcached();
    let made = Made::with(&format!("--helm-chart {chart} --framework {repository}"));
    let build = "docker-build IMG=shop:v1";
    let project = made.project.display();
    let base = format!(
        "building {BASE} from {repository}\nin {project}: build -t {BASE} -f images/hybrid-operator/Dockerfile {repository}\n"
    );
    assert_eq!(made.made(build), base + &project_built(&made, BASE));

    let root = super::root();
    let framework = format!("--plugins helm --framework {}", root.display());
    let made = Made::with(&framework);
    let both = base_built(&root) + &project_built(&made, BASE);
    assert_eq!(made.made(build), both);
}

#[test]
fn targets_that_change_a_cluster_say_first_which_one() {
    let found = Command::new("kubectl")
        .args(["version", "--client"])
        .output();
    if found.is_err() {
        return skipped(1, &"there is no kubectl in $PATH");
    }
    let said = "Cluster: https://two.example.com:6443 (context staging)\n";
    let chart = format!("--helm-chart {}", memcached());
    for (flags, run) in [
        (chart.clone(), "hybrid-operator run"),
        (format!("--plugins hybrid {chart}"), "cargo run --locked"),
        (
            "--plugins native --group apps --version v1 --kind Order".to_owned(),
            "cargo run --locked",
        ),
    ] {
        let mut made = Made::with(&flags);
        fs::write(made.project.join("Cargo.lock"), "").unwrap();
        for (target, then) in [
            ("run", run),
            ("install", "kubectl apply"),
            ("uninstall", "kubectl delete"),
            ("deploy", "kubectl apply"),
            ("undeploy", "kubectl delete"),
        ] {
            let output = made.made(target);
            let said_first = output.starts_with(&format!("{said}{then}"));
            assert!(said_first, "{flags}: {target}\n{output}");
        }
        // In a Pod, kubectl finds its cluster without a kubeconfig.
        made.kubeconfig = "";
        let output = made.made("install");
        assert!(output.starts_with("Cluster: that of this Pod"), "{output}");
    }
}

#[tokio::test]
async fn a_chart_project_with_ci_is_checked_and_tested_with_its_samples() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let directory = project("--project-name ci-operator --plugins helm --with ci");
    let root = directory.path();
    ok(root, "create api --group ci --version v1 --kind Parcel");
    let make = |target: &str| {
        let output = Command::new("make")
            .args(["-s", target, &format!("HYBRID={PROGRAM}")])
            .current_dir(root)
            .env("KUBECONFIG", plane.kubeconfig_path())
            .env("WATCH_NAMESPACE", "default")
            .env_remove("MAKELEVEL")
            .env_remove("MAKEFLAGS")
            .env_remove("MFLAGS")
            .output()
            .unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        (output.status.success(), out, err)
    };
    let (succeeds, out, err) = make("check");
    assert!(succeeds, "{out}{err}");
    out.must_have("rendering config/samples/ci_v1_parcel.yaml\n");
    let (succeeds, out, err) = make("test");
    assert!(succeeds, "{out}{err}");
    let sample = "parcel.ci.example.com/parcel-sample";
    out.must_have(&format!("{sample} condition met\n"));
    out.must_have(" deleted");
    // What is out of date, and what cannot be rendered, fails.
    let crd = root.join("config/crd/bases/ci.example.com_parcels.yaml");
    fs::write(crd, "").unwrap();
    let (succeeds, _, err) = make("check");
    assert!(!succeeds);
    err.must_have("is out of date; run 'hybrid-operator generate crds'");
}
