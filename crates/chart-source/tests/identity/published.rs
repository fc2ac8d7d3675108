//! A registry in which a chart and its signatures are published.

use std::path::PathBuf;
use std::sync::Mutex;

use chart_source::verify::Policy;
use chart_source::{Cache, ChartReference, Digest, PullError, Pulled, Puller};
use serde_json::{Value, json};

use crate::support::{FileServer, access};
use crate::{digest, file};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A registry with the chart `a/web` in the version 1.0.0, as `helm push` has published it.
pub(crate) struct Published {
    pub(crate) server: FileServer,
    folder: tempfile::TempDir,
    bundles: Mutex<Vec<Value>>,
}

impl Published {
    pub(crate) fn new() -> Self {
        let published = Self {
            server: FileServer::start(),
            folder: tempfile::tempdir().unwrap(),
            bundles: Mutex::default(),
        };
        let manifest = file("manifest.json");
        published.blob(&file("web-1.0.0.tgz"));
        published.put("manifests/1.0.0", manifest.clone());
        published.put(&format!("manifests/{}", digest()), manifest);
        published
    }

    pub(crate) fn put(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.server.put(format!("/v2/a/web/{path}"), body);
    }

    /// Publishes a blob, and returns its descriptor.
    pub(crate) fn blob(&self, body: &[u8]) -> Value {
        self.put(&format!("blobs/{}", Digest::of(body)), body);
        json!({"digest": Digest::of(body).to_string(), "size": body.len()})
    }

    /// Publishes what is in a file of `tests/cosign/identity`.
    pub(crate) fn sign(&self, name: &str) {
        let content = file(&format!("identity/{name}.json"));
        if name.starts_with("text") {
            self.text(&serde_json::from_slice(&content).unwrap());
        } else {
            self.bundle(&content);
        }
    }

    pub(crate) fn bundle(&self, content: &[u8]) {
        let mut layer = self.blob(content);
        layer["mediaType"] = BUNDLE.into();
        let manifest = json!({
            "schemaVersion": 2, "artifactType": BUNDLE, "layers": [layer],
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest().to_string(), "size": 2},
        });
        let manifest = manifest.to_string();
        let of_manifest = Digest::of(manifest.as_bytes()).to_string();
        self.put(&format!("manifests/{of_manifest}"), manifest);
        let mut bundles = self.bundles.lock().unwrap();
        bundles.push(json!({"digest": of_manifest, "artifactType": BUNDLE}));
        let list = json!({"schemaVersion": 2, "manifests": *bundles});
        self.put(&format!("referrers/{}", digest()), list.to_string());
    }

    pub(crate) fn text(&self, signed: &Value) {
        let mut layer = self.blob(signed["payload"].as_str().unwrap().as_bytes());
        layer["mediaType"] = "application/vnd.dev.cosign.simplesigning.v1+json".into();
        layer["annotations"] = json!({
            "dev.cosignproject.cosign/signature": signed["signature"],
            "dev.sigstore.cosign/certificate": signed["certificate"],
            "dev.sigstore.cosign/chain": signed["chain"],
        });
        if signed["entry"] != "" {
            layer["annotations"]["dev.sigstore.cosign/bundle"] = signed["entry"].clone();
        }
        let manifest = json!({"schemaVersion": 2, "layers": [layer]});
        let tag = digest().to_string().replace(':', "-");
        self.put(&format!("manifests/{tag}.sig"), manifest.to_string());
    }

    pub(crate) fn cache(&self) -> Cache {
        Cache::at(self.folder.path().join("cache"))
    }

    pub(crate) fn puller(&self, policy: Policy) -> Puller {
        let puller = Puller::new(&access(), Some(self.cache())).unwrap();
        puller.verifying(policy)
    }

    pub(crate) fn reference(&self, digest: Option<Digest>) -> ChartReference {
        let name = format!("oci://{}/a/web:1.0.0", self.server.http.address());
        let reference = ChartReference::parse(&name, None, None).unwrap();
        ChartReference {
            digest,
            ..reference
        }
    }

    pub(crate) fn pull(&self, policy: Policy) -> Result<Pulled, PullError> {
        self.puller(policy).pull_blocking(&self.reference(None))
    }

    /// Returns the file with the evidence.
    pub(crate) fn proof(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.folder.path().join("cache")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let path = paths.find(|path| path.extension().unwrap() == "proof");
        path.unwrap()
    }
}
