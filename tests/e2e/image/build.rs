//! Builds an image's file tree from its Dockerfile without a container engine: the steps run as commands in
//! a root directory of their own. The first stage has this machine's programs, and a few others in [`STAND_INS`]:
//! nothing is installed, and `cargo build` takes the programs that were built with the tests, together with the
//! libraries that these need.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::dockerfile::{Stage, Step, parse};
use crate::transcript::programs;
use crate::world::output;

/// The image with the compiler in the Dockerfiles.
pub(super) const COMPILER: &str = "docker.io/library/rust:1.95.0-slim-bookworm";
/// The image without a shell that static programs are put into.
pub(super) const STATIC: &str = "gcr.io/distroless/static-debian12:nonroot";
/// The image of the certification, in which there is no shell either.
const UBI: &str = "registry.access.redhat.com/ubi10/ubi-micro:10.1";
/// Directories of this machine that stand for the image with the compiler.
const HERE: &[&str] = &["usr", "bin", "sbin", "lib", "lib64"];

/// Directory of the first stage with [`STAND_INS`].
const COMMANDS: &str = "/commands";
/// Directory of the first stage with the programs that were built with the tests.
pub(super) const PROGRAMS: &str = "/programs";
/// Programs of the first stage that stand for those of the image with the compiler.
const STAND_INS: &[(&str, &str)] = &[
    ("apt-get", "#!/bin/sh\n"),
    ("dpkg", "#!/bin/sh\n"),
    ("rustup", "#!/bin/sh\n"),
    (
        "cargo",
        r#"#!/bin/sh -e
case "$*" in
  "build --release --locked --target "*" --bin "*) ;;
  *) echo "not known here: cargo $*" >&2; exit 1 ;;
esac
release=target/$5/release
mkdir -p "$release"
cp -a "/programs/${*##* }" "$release/"
if [ -n "$CARGO_HOME" ]; then
  crate=$CARGO_HOME/registry/src/index/anyhow-1.0.0
  mkdir -p "$crate" && echo licence > "$crate/LICENSE-MIT"
fi
"#,
    ),
];

/// Runs a command in the first stage: `$1` is its root, `$2` its working directory, `$3` the directory of the
/// programs, `$4` the text.
const RUN: &str = r#"
for dir in usr dev programs; do mkdir -p "$1/$dir"; done
mount --bind -o ro /usr "$1/usr"
mount --bind -o ro "$3" "$1/programs"
mount --rbind /dev "$1/dev"
exec unshare --root="$1" --wd="$2" sh -ec "$4"
"#;

/// A file tree, and how its program is started.
pub(super) struct Image {
    tree: TempDir,
    pub(super) env: BTreeMap<String, String>,
    pub(super) workdir: String,
    pub(super) user: String,
    pub(super) entrypoint: Vec<String>,
    pub(super) labels: BTreeMap<String, String>,
}

impl Image {
    pub(super) fn empty() -> Self {
        Self {
            tree: tempfile::tempdir().unwrap(),
            env: BTreeMap::new(),
            workdir: "/".to_owned(),
            user: "0".to_owned(),
            entrypoint: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Returns the root of the file tree.
    pub(super) fn root(&self) -> &Path {
        self.tree.path()
    }

    /// Returns the place of a path of the image on this machine.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        let path = Path::new(&self.workdir).join(path);
        self.root().join(path.strip_prefix("/").unwrap())
    }

    /// Returns the sorted paths of files and links below a directory of the image.
    pub(super) fn files(&self, directory: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![self.at(directory)];
        while let Some(path) = left.pop() {
            if path.is_dir() && !path.is_symlink() {
                left.extend(
                    fs::read_dir(path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            } else {
                let path = path.strip_prefix(self.root()).unwrap();
                found.push(format!("/{}", path.display()));
            }
        }
        found.sort();
        found
    }

    pub(super) fn set_env(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    /// Replaces `$NAME` and `${NAME}` as instructions do.
    fn expanded(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.env {
            text = text.replace(&format!("${{{name}}}"), value);
            text = text.replace(&format!("${name}"), value);
        }
        assert!(!text.contains('$'), "a variable is not set: {text}");
        text
    }
}

/// Builds an image from a project's Dockerfile. `base` is an image that the last stage may begin with.
pub(super) fn build(project: &Path, dockerfile: &Path, base: Option<(&str, &Image)>) -> Image {
    let mut built: Vec<(Option<String>, Image)> = Vec::new();
    for stage in parse(&fs::read_to_string(dockerfile).unwrap()) {
        let image = build_stage(project, &stage, &built, base);
        built.push((stage.name, image));
    }
    built.pop().unwrap().1
}

fn build_stage(
    project: &Path,
    stage: &Stage,
    built: &[(Option<String>, Image)],
    base: Option<(&str, &Image)>,
) -> Image {
    let mut image = Image::empty();
    let compiles = stage.base == COMPILER;
    match base.filter(|(name, _)| *name == stage.base) {
        Some((_, base)) => {
            copy(&base.root().join("."), image.root());
            image.env.clone_from(&base.env);
            image.workdir.clone_from(&base.workdir);
            image.user.clone_from(&base.user);
            image.entrypoint.clone_from(&base.entrypoint);
        }
        None if compiles => this_machine(&mut image),
        None => {
            assert!([STATIC, UBI].contains(&&*stage.base), "{}", stage.base);
            distroless(&mut image);
        }
    }
    for step in &stage.steps {
        match step {
            Step::Run(text) => {
                assert!(compiles, "the final image has no shell for: RUN {text}");
                run_in_build_stage(&image, text);
            }
            Step::Copy { from, sources, to } => {
                let to = image.at(&image.expanded(to));
                let from = from.as_ref().map(|from| {
                    let mut stages = built.iter();
                    &stages
                        .find(|(name, _)| name.as_ref() == Some(from))
                        .unwrap()
                        .1
                });
                for source in sources {
                    match from {
                        Some(stage) => copy_into(&stage.at(source), &to),
                        None if source == "." => copy_context(project, &to),
                        None if source.ends_with('*') => {
                            for file in beginning_with(project, source.trim_end_matches('*')) {
                                copy_into(&file, &to);
                            }
                        }
                        None => copy_into(&project.join(source), &to),
                    }
                }
            }
            Step::Arg(name, Some(default)) => image.set_env(name, default),
            Step::Arg(name, None) => {
                assert_eq!(name, "TARGETARCH", "not known here: ARG {name}");
                image.set_env(name, processor());
            }
            Step::Label(labels) => {
                for (name, value) in labels {
                    let value = image.expanded(value);
                    image.labels.insert(name.clone(), value);
                }
            }
            Step::Env(name, value) => {
                let value = image.expanded(value);
                image.set_env(name, &value);
            }
            Step::Workdir(path) => {
                image.workdir = image.expanded(path);
                fs::create_dir_all(image.at(".")).unwrap();
            }
            Step::User(user) => image.user.clone_from(user),
            Step::Entrypoint(words) => image.entrypoint.clone_from(words),
        }
    }
    image
}

/// Returns this machine's processor as the engines call it.
fn processor() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Puts this machine's programs, and those that stand for others, into the stage that compiles.
pub(super) fn this_machine(image: &mut Image) {
    for name in HERE {
        if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
            symlink(target, image.root().join(name)).unwrap();
        }
    }
    for (name, script) in STAND_INS {
        let file = image.at(COMMANDS).join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    image.set_env("PATH", &format!("{COMMANDS}:/usr/bin"));
}

/// Makes what the static distroless image has, and adds the libraries of the tests' programs, which unlike
/// those of the image are linked dynamically.
pub(super) fn distroless(image: &mut Image) {
    for directory in ["tmp", "etc/ssl/certs", "home/nonroot"] {
        fs::create_dir_all(image.root().join(directory)).unwrap();
    }
    let passwd = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n";
    fs::write(image.root().join("etc/passwd"), passwd).unwrap();
    "65532".clone_into(&mut image.user);
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    image.set_env("PATH", path);
    image.set_env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
    let output = output(Command::new("ldd").arg(programs().join("memcached-operator")));
    for library in output
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let to = image.root().join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(library, to).unwrap();
    }
}

/// Runs a command of the stage that compiles.
fn run_in_build_stage(image: &Image, text: &str) {
    output(
        Command::new("unshare")
            .args(["--mount", "--", "sh", "-ec", RUN, "sh"])
            .arg(image.root())
            .arg(&image.workdir)
            .arg(programs())
            .arg(text)
            .envs(&image.env),
    );
}

/// Copies the project without what `.dockerignore` names at its top level.
fn copy_context(project: &Path, to: &Path) {
    let ignored = fs::read_to_string(project.join(".dockerignore")).unwrap();
    let ignored: Vec<&str> = ignored
        .lines()
        .map(|line| {
            line.strip_prefix('/')
                .unwrap_or_else(|| panic!("not known here: {line}"))
        })
        .collect();
    let is_ignored = |name: &str| {
        ignored
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => *pattern == name,
            })
    };
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(project).unwrap() {
        let entry = entry.unwrap();
        if !is_ignored(entry.file_name().to_str().unwrap()) {
            copy(&entry.path(), to);
        }
    }
}

/// Returns the files of a directory whose names begin with a text. There must be one.
fn beginning_with(directory: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(Result::unwrap)
        .filter(|entry| entry.file_name().to_str().unwrap().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "nothing is named {start}*");
    files
}

/// Copies a file, or what is in a directory, as COPY does.
fn copy_into(source: &Path, to: &Path) {
    if source.is_dir() {
        fs::create_dir_all(to).unwrap();
        copy(&source.join("."), to);
    } else {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy(source, to);
    }
}

pub(super) fn copy(source: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(source).arg(to).status();
    assert!(
        status.unwrap().success(),
        "cp {} {}",
        source.display(),
        to.display()
    );
}
