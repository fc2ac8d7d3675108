//! `image check` of OCI layouts and of archives as `docker save` writes them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod preflight;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::path::Path;

use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use support::{Done, PROGRAM, Project, Text as _, alone};

fn check(project: &Project, file: &str) -> Done {
    let arguments = format!("image check {file}");
    let mut command = alone(Path::new(PROGRAM), project.0.path(), &arguments);
    Done::of(command.output().unwrap())
}

/// Returns an archive with files, each with its content.
fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    archive.into_inner().unwrap()
}

fn zipped(data: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(data).unwrap();
    gzip.finish().unwrap()
}

fn config(user: &str) -> Value {
    let labels = [
        "name",
        "vendor",
        "version",
        "release",
        "summary",
        "description",
        "maintainer",
    ];
    let labels: serde_json::Map<_, _> = labels
        .map(|label| (label.to_owned(), "x".into()))
        .into_iter()
        .collect();
    json!({"config": {"User": user, "Labels": labels}})
}

/// Returns the layers: one as that of a base with packages, and one with the content.
fn layers() -> [Vec<u8>; 2] {
    [
        packed(&[
            ("./etc/os-release", b"ID=rhel"),
            ("./var/lib/rpm/rpmdb.sqlite", b"x"),
        ]),
        packed(&[
            ("licenses/LICENSE", b"Apache"),
            ("usr/local/bin/helm-operator", b"x"),
        ]),
    ]
}

const EXPECTED: &str = "\
passed   HasLicense
passed   HasUniqueTag
passed   LayerCountAcceptable
passed   HasNoProhibitedPackages
passed   HasRequiredLabel
passed   HasNoProhibitedLabels
passed   RunAsNonRoot
passed   HasModifiedFiles
not run  BasedOnUbi: it compares the layers with Red Hat's catalog
passed   HasProhibitedContainerName
";

#[test]
fn archive_of_docker_is_judged_and_what_fails_has_its_way_out() {
    let project = Project::with(&[]);
    let save = |user: &str, tag: &str| {
        let [base, content] = layers();
        let manifest =
            json!([{"Config": "c.json", "RepoTags": [tag], "Layers": ["base.tar", "content.tar"]}]);
        let (manifest, config) = (manifest.to_string(), config(user).to_string());
        let archive = packed(&[
            ("base.tar", &base),
            ("content.tar", &content),
            ("c.json", config.as_bytes()),
            ("manifest.json", manifest.as_bytes()),
        ]);
        std::fs::write(project.path("image.tar"), archive).unwrap();
    };
    save("1001", "example.com/shop-operator:v1");
    assert_eq!(check(&project, "image.tar").ok(), EXPECTED);
    save("root", "example.com/redhat-shop:latest");
    let done = check(&project, "image.tar");
    assert_eq!(done.code, Some(3), "{done:?}");
    done.out
        .must_have("FAILED   HasUniqueTag: give the image a tag other than latest\n");
    done.out
        .must_have("FAILED   RunAsNonRoot: name a user other than root, such as USER 1001\n");
    done.out.must_have("FAILED   HasProhibitedContainerName: ");
}

#[test]
fn layout_of_an_image_is_found_through_its_index() {
    let project = Project::with(&[("image/oci-layout", "{}")]);
    let blob = |data: &[u8], kind: &str| {
        let hex = HEXLOWER.encode(&Sha256::digest(data));
        std::fs::create_dir_all(project.path("image/blobs/sha256")).unwrap();
        std::fs::write(project.path(&format!("image/blobs/sha256/{hex}")), data).unwrap();
        json!({"mediaType": kind, "digest": format!("sha256:{hex}"), "size": data.len()})
    };
    let layers = layers().map(|layer| blob(&zipped(&layer), "layer"));
    let config = blob(config("1001:0").to_string().as_bytes(), "config");
    let manifest = json!({"config": config, "layers": layers}).to_string();
    let mut manifest = blob(manifest.as_bytes(), "manifest");
    // An attestation is no image.
    let mut other = manifest.clone();
    other
        .as_object_mut()
        .unwrap()
        .insert("platform".to_owned(), json!({"os": "unknown"}));
    let index = json!({"manifests": [manifest.clone(), other]}).to_string();
    manifest = blob(index.as_bytes(), "index");
    let annotations = json!({"io.containerd.image.name": "example.com/shop-operator:v1"});
    manifest
        .as_object_mut()
        .unwrap()
        .insert("annotations".to_owned(), annotations);
    project.write(
        "image/index.json",
        &json!({"manifests": [manifest]}).to_string(),
    );
    assert_eq!(check(&project, "image").ok(), EXPECTED);

    project.write("image/index.json", &json!({"manifests": []}).to_string());
    let done = check(&project, "image");
    assert_eq!(done.code, Some(1), "{done:?}");
    done.err.must_have("image has 0 images");
    project.write("empty/a", "");
    check(&project, "empty")
        .err
        .must_have("neither an OCI layout nor an archive");
}
