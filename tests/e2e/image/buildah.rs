//! Builds images with buildah, a container engine that is one program, where it is installed. The images that
//! a Dockerfile begins with are made here, so nothing is fetched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::build::{COMPILER, Image, PROGRAMS, STATIC, distroless, this_machine};
use crate::transcript::programs;
use crate::world::output;

/// A store of images.
pub(super) struct Buildah {
    store: TempDir,
}

impl Buildah {
    /// Returns a store with the images that the Dockerfiles of this repository begin with, or `None` if
    /// buildah is not installed.
    pub(super) fn find() -> Option<Self> {
        let version = Command::new("buildah")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        version.ok()?;
        let store = tempfile::tempdir().unwrap();
        let found = Self { store };
        let mut compiler = Image::empty();
        this_machine(&mut compiler);
        found.import(COMPILER, &compiler);
        let mut last = Image::empty();
        distroless(&mut last);
        found.import(STATIC, &last);
        Some(found)
    }

    /// Builds an image from a project's Dockerfile under a name.
    pub(super) fn build(&self, project: &Path, dockerfile: &Path, name: &str) -> Image {
        self.run(&[
            "build",
            "--isolation=chroot",
            "--pull-never",
            "--volume=/usr:/usr:ro",
            &format!("--volume={}:{PROGRAMS}:ro", programs().display()),
            &format!("--file={}", dockerfile.display()),
            &format!("--tag={name}"),
            project.to_str().unwrap(),
        ]);
        self.export(name)
    }

    /// Returns the configuration of an image: `User`, `Env`, `Labels` and so on.
    pub(super) fn config(&self, name: &str) -> Value {
        let image = self.run(&["inspect", "--type=image", name]);
        let image: Value = serde_json::from_str(&image).unwrap();
        image["OCIv1"]["config"].clone()
    }

    /// Puts an image into the store.
    fn import(&self, name: &str, image: &Image) {
        let container = self.run(&["from", "scratch"]);
        let tree = format!("{}/.", image.root().display());
        self.run(&["copy", "--quiet", &container, &tree, "/"]);
        let variables = image.env.iter();
        let variables: Vec<String> = variables
            .map(|(name, value)| format!("--env={name}={value}"))
            .collect();
        let variables = variables.iter().map(String::as_str);
        let user = format!("--user={}", image.user);
        let settings = ["config", &user].into_iter().chain(variables);
        self.run(&settings.chain([container.as_str()]).collect::<Vec<_>>());
        self.run(&["commit", "--quiet", "--rm", &container, name]);
    }

    /// Takes an image out of the store.
    fn export(&self, name: &str) -> Image {
        let container = self.run(&["from", "--pull-never", name]);
        let tree = PathBuf::from(self.run(&["mount", &container]));
        let mut image = Image::empty();
        super::build::copy(&tree.join("."), image.root());
        let config = self.config(name);
        let text = |field: &str| config[field].as_str().unwrap_or_default().to_owned();
        let list = |field: &str| {
            let values = config[field].as_array().into_iter().flatten();
            values.map(|value| value.as_str().unwrap().to_owned())
        };
        image.user = text("User");
        image.workdir = text("WorkingDir");
        image.entrypoint = list("Entrypoint").collect();
        for variable in list("Env") {
            let (name, value) = variable.split_once('=').unwrap();
            image.set_env(name, value);
        }
        image
    }

    /// Runs a command of buildah in this store and returns its output.
    fn run(&self, arguments: &[&str]) -> String {
        let folder = self.store.path();
        let text = output(
            Command::new("buildah")
                .arg("--storage-driver=vfs")
                .arg(format!("--root={}", folder.join("root").display()))
                .arg(format!("--runroot={}", folder.join("run").display()))
                .args(arguments),
        );
        text.trim().to_owned()
    }
}
