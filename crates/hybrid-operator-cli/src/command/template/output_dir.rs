//! `--output-dir`: writes each template's output to a file with the template's path.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};
use helm_core::chart::CrdFile;
use helm_core::manifest::Hook;

/// The documents to write.
pub(super) struct Documents<'a> {
    pub(super) crds: Vec<CrdFile>,
    /// Template and text of each document of the manifest.
    pub(super) manifest: Vec<(&'a str, &'a str)>,
    pub(super) hooks: Vec<&'a Hook>,
}

/// Writes the documents to `directory`, those of templates to `directory/release` if there is a
/// release, and prints the path of each. As in Helm, several documents of one template share a file,
/// a hook is added to a file that exists, and other files are replaced.
pub(super) fn write(
    directory: &str,
    release: Option<&str>,
    documents: &Documents<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let below = match release {
        Some(release) => Path::new(directory).join(release).display().to_string(),
        None => directory.to_owned(),
    };
    let mut written = HashSet::new();
    for crd in &documents.crds {
        let data = String::from_utf8_lossy(crd.file().data());
        let is_new = written.insert(crd.path().to_owned());
        write_one(directory, crd.path(), &data, !is_new, out)?;
    }
    for (path, text) in &documents.manifest {
        let is_new = written.insert((*path).to_owned());
        write_one(&below, path, text, !is_new, out)?;
    }
    for hook in &documents.hooks {
        let exists = Path::new(&below).join(&hook.path).exists();
        write_one(&below, &hook.path, &hook.manifest, exists, out)?;
    }
    writeln!(out)?;
    Ok(())
}

fn write_one(
    directory: &str,
    path: &str,
    text: &str,
    append: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // The path of a subchart contains the name that its Chart.yaml gives it.
    if path.split('/').any(|part| part == "..") {
        bail!("--output-dir: the template {path} is outside of its chart");
    }
    let target = format!("{directory}/{path}");
    let failed = || format!("--output-dir: cannot write {target}");
    if let Some(parent) = Path::new(&target).parent() {
        fs::create_dir_all(parent).with_context(failed)?;
    }
    let file = if append {
        OpenOptions::new().append(true).open(&target)
    } else {
        File::create(&target)
    };
    let document = format!("---\n# Source: {path}\n{text}\n");
    file.and_then(|mut file| file.write_all(document.as_bytes()))
        .with_context(failed)?;
    writeln!(out, "wrote {target}")?;
    Ok(())
}
