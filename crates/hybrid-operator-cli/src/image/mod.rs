//! Checks of an image for Red Hat's certification: those of its preflight that need the image alone.
//!
//! [`archive`] reads images, and [`checks`] judges them. Preflight also reads the RPM database and asks Red Hat's
//! catalog; checks that need these are named as not run.

pub(crate) mod archive;
pub(crate) mod checks;

use std::collections::{BTreeMap, BTreeSet};

/// Properties of an image that the checks read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Names, if the archive has them.
    pub(crate) names: BTreeSet<String>,
    /// User of its program.
    pub(crate) user: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) layers: Vec<Layer>,
}

/// A layer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Files and links with their sizes. A file that the layer deletes has the prefix `.wh.`.
    pub(crate) files: BTreeMap<String, u64>,
}
