//! Reads images: OCI layouts, and the archives of `docker save` and `podman save`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use flate2::read::GzDecoder;
use serde_json::Value;

use super::{Image, Layer};
use crate::olm::{items, text};

/// Largest document that is read.
const DOCUMENT: u64 = 4 << 20;
/// Annotations with the name of an image in an index.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// Reads the only image of a directory or an archive.
///
/// # Errors
/// If it is not an image, or has several.
pub(crate) fn read(path: &Path) -> anyhow::Result<Image> {
    let store = Store::open(path)?;
    if store.has("manifest.json") {
        return of_docker(&store);
    }
    if !store.has("index.json") {
        bail!(
            "{} is neither an OCI layout nor an archive of 'docker save': it has no index.json and no manifest.json",
            path.display()
        );
    }
    let mut names = BTreeSet::new();
    let mut document = store.document("index.json")?;
    // An index may list another one, as for several platforms.
    for _ in 0..4 {
        if document.get("manifests").is_none() {
            return of_manifest(&store, &document, names);
        }
        let listed: Vec<Value> = items(&document, "/manifests")
            .filter(|one| text(one, "/platform/os") != "unknown")
            .cloned()
            .collect();
        let [one] = listed.as_slice() else {
            bail!(
                "{} has {} images; save the one of a platform",
                path.display(),
                listed.len()
            );
        };
        let annotations = one.get("annotations").and_then(Value::as_object);
        let name = NAMES
            .iter()
            .find_map(|name| annotations?.get(*name)?.as_str());
        names.extend(name.map(str::to_owned));
        document = store.document(&blob(text(one, "/digest"))?)?;
    }
    bail!("the index of {} lists indexes only", path.display())
}

fn of_docker(store: &Store) -> anyhow::Result<Image> {
    let manifest = store.document("manifest.json")?;
    let images = manifest.as_array().map_or(&[][..], Vec::as_slice);
    let [image] = images else {
        bail!("the archive has {} images; save one", images.len());
    };
    let names = items(image, "/RepoTags").filter_map(Value::as_str);
    let config = store.document(text(image, "/Config"))?;
    let layers = items(image, "/Layers").filter_map(Value::as_str);
    of_config(
        store,
        &config,
        layers.map(str::to_owned),
        names.map(str::to_owned).collect(),
    )
}

fn of_manifest(store: &Store, manifest: &Value, names: BTreeSet<String>) -> anyhow::Result<Image> {
    let config = store.document(&blob(text(manifest, "/config/digest"))?)?;
    let layers: Vec<String> = items(manifest, "/layers")
        .map(|layer| blob(text(layer, "/digest")))
        .collect::<anyhow::Result<_>>()?;
    of_config(store, &config, layers.into_iter(), names)
}

fn of_config(
    store: &Store,
    config: &Value,
    layers: impl Iterator<Item = String>,
    names: BTreeSet<String>,
) -> anyhow::Result<Image> {
    let labels = config.pointer("/config/Labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let label = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    Ok(Image {
        names,
        user: text(config, "/config/User").to_owned(),
        labels: labels.filter_map(label).collect(),
        layers: layers
            .map(|name| layer(store, &name))
            .collect::<anyhow::Result<_>>()?,
    })
}

/// Reads the names of the files of a layer.
fn layer(store: &Store, name: &str) -> anyhow::Result<Layer> {
    let broken = || format!("cannot read the layer {name}");
    let mut magic = [0; 4];
    let read = store
        .open_file(name)?
        .read(&mut magic)
        .with_context(broken)?;
    let reader = store.open_file(name)?;
    let reader: Box<dyn Read> = match magic.get(..read).unwrap_or_default() {
        [0x1f, 0x8b, ..] => Box::new(GzDecoder::new(reader)),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            bail!("the layer {name} is compressed with zstd; save the image with gzip")
        }
        _ => reader,
    };
    let mut layer = Layer::default();
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries().with_context(broken)? {
        let entry = entry.with_context(broken)?;
        if !entry.header().entry_type().is_dir() {
            let path = entry.path().with_context(broken)?;
            // A link is as large as the path that it has, as in a file system.
            let link = entry.link_name_bytes().map(|path| path.len() as u64);
            layer
                .files
                .insert(plain(&path), link.unwrap_or(entry.size()));
        }
    }
    Ok(layer)
}

/// Returns a path without a leading `./` or `/`.
fn plain(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Returns the path of a blob.
fn blob(digest: &str) -> anyhow::Result<String> {
    let (algorithm, hex) = digest.split_once(':').unwrap_or_default();
    let is_hex = !hex.is_empty() && hex.chars().all(|c| c.is_ascii_hexdigit());
    if algorithm != "sha256" || !is_hex {
        bail!("{digest:?} is not a digest of sha256");
    }
    Ok(format!("blobs/{algorithm}/{hex}"))
}

/// A directory, or an archive with the places of its files.
enum Store {
    Directory(PathBuf),
    Archive {
        path: PathBuf,
        places: BTreeMap<String, (u64, u64)>,
    },
}

impl Store {
    fn open(path: &Path) -> anyhow::Result<Self> {
        if path.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let broken = || format!("cannot read {} as an archive", path.display());
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut archive = tar::Archive::new(BufReader::new(file));
        let mut places = BTreeMap::new();
        for entry in archive.entries_with_seek().with_context(broken)? {
            let entry = entry.with_context(broken)?;
            let name = plain(&entry.path().with_context(broken)?);
            places.insert(name, (entry.raw_file_position(), entry.size()));
        }
        let path = path.to_owned();
        Ok(Self::Archive { path, places })
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(path) => path.join(name).is_file(),
            Self::Archive { places, .. } => places.contains_key(name),
        }
    }

    fn open_file(&self, name: &str) -> anyhow::Result<Box<dyn Read>> {
        match self {
            Self::Directory(path) => {
                let path = path.join(plain(Path::new(name)));
                let file = fs::File::open(&path);
                let file = file.with_context(|| format!("cannot read {}", path.display()))?;
                Ok(Box::new(BufReader::new(file)))
            }
            Self::Archive { path, places } => {
                let (offset, size) = places
                    .get(&plain(Path::new(name)))
                    .with_context(|| format!("{} has no {name}", path.display()))?;
                let broken = || format!("cannot read {name} of {}", path.display());
                let mut file = File::open(path).with_context(broken)?;
                file.seek(SeekFrom::Start(*offset)).with_context(broken)?;
                Ok(Box::new(BufReader::new(file).take(*size)))
            }
        }
    }

    fn document(&self, name: &str) -> anyhow::Result<Value> {
        let mut text = Vec::new();
        let broken = || format!("cannot read {name} of the image");
        let mut file = self.open_file(name)?.take(DOCUMENT);
        file.read_to_end(&mut text).with_context(broken)?;
        serde_json::from_slice(&text).with_context(broken)
    }
}
