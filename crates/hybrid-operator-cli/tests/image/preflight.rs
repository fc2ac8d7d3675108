//! Comparison of `image check` with preflight, the program of Red Hat's certification, where it is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::HEXLOWER;
use hybrid_operator_test::http_server::Reply;
use hybrid_operator_test::{HttpServer, skipped};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::support::Project;
use super::{check, config, packed, zipped};

/// An image that passes all checks that need no catalogue, or breaks one of them.
struct Case {
    says: &'static str,
    name: &'static str,
    tag: &'static str,
    config: Value,
    /// Files of each layer.
    layers: Vec<Vec<(&'static str, &'static [u8])>>,
}

impl Case {
    fn new(says: &'static str) -> Self {
        Self {
            says,
            name: "shop-operator",
            tag: "v1",
            config: config("1001"),
            layers: vec![
                vec![("etc/os-release", b"ID=rhel\n")],
                vec![("licenses/LICENSE", b"Apache")],
            ],
        }
    }

    fn with(says: &'static str, change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self::new(says);
        change(&mut case);
        case
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("as it should be"),
        Case::with("no licence", |case| {
            case.layers.pop();
        }),
        Case::with("empty licence", |case| {
            case.layers[1] = vec![("licenses/LICENSE", b"")];
        }),
        Case::with("deleted licence", |case| {
            case.layers.push(vec![("licenses/.wh.LICENSE", b"")]);
        }),
        Case::with("deleted directory of licences", |case| {
            case.layers.push(vec![(".wh.licenses", b"")]);
        }),
        Case::with("hidden licences", |case| {
            case.layers.push(vec![("licenses/.wh..wh..opq", b"")]);
        }),
        Case::with("no distribution", |case| {
            case.layers.remove(0);
        }),
        Case::with("latest", |case| case.tag = "latest"),
        Case::with("forty layers", |case| {
            case.layers.resize(40, vec![("a", b"b")]);
        }),
        Case::with("forty-one layers", |case| {
            case.layers.resize(41, vec![("a", b"b")]);
        }),
        Case::with("trademark in the name", |case| case.name = "redhat-shop"),
    ];
    for user in ["", "0", "root", "1001:0", "shop"] {
        cases.push(Case::with("user", |case| case.config = config(user)));
    }
    for (label, value) in [
        ("maintainer", ""),
        ("vendor", "Red Hat"),
        ("name", "For Red Hat OpenShift"),
    ] {
        cases.push(Case::with("label", |case| {
            case.config["config"]["Labels"][label] = value.into();
        }));
    }
    cases
}

/// Returns the program, or `None` if it is not installed.
fn preflight() -> Option<PathBuf> {
    let program = PathBuf::from(std::env::var_os("PREFLIGHT").unwrap_or("preflight".into()));
    let version = Command::new(&program).arg("--version").output();
    version.ok().map(|_| program)
}

#[test]
fn verdicts_are_those_of_preflight() {
    let Some(program) = preflight() else {
        let reason = "preflight is not installed; PREFLIGHT names the program";
        return skipped(1, &reason);
    };
    for case in cases() {
        let project = Project::with(&[]);
        let theirs = theirs(&program, &project, &case);
        let printed = ours(&project, &case);
        let mut compared = 0;
        for line in printed.lines() {
            let (verdict, rest) = line.split_at(9);
            let name = rest.split(':').next().unwrap();
            let Some(expected) = theirs.get(name) else {
                continue;
            };
            let Some(passed) = [("passed   ", true), ("FAILED   ", false)]
                .into_iter()
                .find_map(|(word, passed)| (word == verdict).then_some(passed))
            else {
                continue;
            };
            assert_eq!(
                passed, *expected,
                "{}: {name} of {}\n{printed}",
                case.says, case.config
            );
            compared += 1;
        }
        assert!(compared >= 7, "{}: {printed}\n{theirs:?}", case.says);
    }
}

/// Returns what `image check` prints about the image as `docker save` writes it.
fn ours(project: &Project, case: &Case) -> String {
    let names: Vec<String> = (0..case.layers.len())
        .map(|number| format!("{number}.tar"))
        .collect();
    let tag = format!("example.com/{}:{}", case.name, case.tag);
    let manifest = json!([{"Config": "c.json", "RepoTags": [tag], "Layers": names}]).to_string();
    let config = case.config.to_string();
    let layers: Vec<Vec<u8>> = case.layers.iter().map(|files| packed(files)).collect();
    let mut files: Vec<(&str, &[u8])> = vec![
        ("manifest.json", manifest.as_bytes()),
        ("c.json", config.as_bytes()),
    ];
    files.extend(
        names
            .iter()
            .zip(&layers)
            .map(|(name, layer)| (name.as_str(), layer.as_slice())),
    );
    std::fs::write(project.path("image.tar"), packed(&files)).unwrap();
    check(project, "image.tar").out
}

/// Returns the checks that preflight has passed or failed for the image in a registry.
fn theirs(program: &Path, project: &Project, case: &Case) -> BTreeMap<String, bool> {
    let mut blobs = BTreeMap::new();
    let mut blob = |data: Vec<u8>, kind: &str| {
        let digest = digest(&data);
        let size = data.len();
        blobs.insert(digest.clone(), data);
        json!({"mediaType": kind, "digest": digest, "size": size})
    };
    let layers: Vec<Vec<u8>> = case.layers.iter().map(|files| packed(files)).collect();
    let mut config = case.config.clone();
    config["os"] = "linux".into();
    config["architecture"] = "amd64".into();
    let contents: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    config["rootfs"] = json!({"type": "layers", "diff_ids": contents});
    let layer_kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let layers: Vec<Value> = layers
        .iter()
        .map(|layer| blob(zipped(layer), layer_kind))
        .collect();
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let config_kind = "application/vnd.oci.image.config.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": kind,
        "config": blob(config.to_string().into_bytes(), config_kind),
        "layers": layers,
    });
    let manifest = manifest.to_string().into_bytes();
    let listed = json!({"name": case.name, "tags": [case.tag]}).to_string();
    let registry = HttpServer::start(move |request| {
        let target = request.target.as_str();
        let last = target.rsplit('/').next().unwrap_or_default();
        match blobs.get(last) {
            Some(blob) => Reply::body(blob.clone()),
            None if target.contains("/manifests/") => Reply::body(manifest.clone())
                .header("content-type", kind)
                .header("docker-content-digest", digest(&manifest)),
            None if target.contains("/tags/list") => Reply::body(listed.clone()),
            None if target == "/v2/" => Reply::body("{}"),
            None => Reply::status(404),
        }
    })
    .unwrap();
    let output = Command::new(program)
        .args(["check", "container", "--insecure", "--platform=amd64"])
        .arg(format!("{}/{}:{}", registry.address(), case.name, case.tag))
        .current_dir(project.0.path())
        .env("HOME", project.0.path())
        .output()
        .unwrap();
    let start = output.stdout.iter().position(|byte| *byte == b'{');
    let printed = start.map_or(&[][..], |start| &output.stdout[start..]);
    let mut results = serde_json::Deserializer::from_slice(printed).into_iter::<Value>();
    let results = results.next().unwrap_or_else(|| panic!("{output:?}"));
    let results = results.unwrap();
    [("passed", true), ("failed", false)]
        .into_iter()
        .flat_map(|(list, passed)| {
            let checks = results["results"][list].as_array().into_iter().flatten();
            let name = |check: &Value| check["name"].as_str().unwrap().to_owned();
            checks
                .map(|check| (name(check), passed))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn digest(data: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(data)))
}
