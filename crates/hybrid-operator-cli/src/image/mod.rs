//! What the certification of images says of one: the checks of Red Hat's preflight, as far as an image shows them.
//!
//! [`archive`] reads images, and [`checks`] judges them. Preflight also reads the RPM database and asks Red Hat's
//! catalog; checks that need these are named as not run.

pub(crate) mod archive;
pub(crate) mod checks;

use std::collections::{BTreeMap, BTreeSet};

/// What the checks read of an image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its names, if the archive has them.
    pub(crate) names: BTreeSet<String>,
    /// User of its program.
    pub(crate) user: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) layers: Vec<Layer>,
}

/// A layer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Its files, with their sizes. A file that the layer deletes has the prefix `.wh.`.
    pub(crate) files: BTreeMap<String, u64>,
}
