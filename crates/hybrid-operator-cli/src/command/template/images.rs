//! `template --images`: lists the container images of what is rendered.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::Context as _;
use helm_core::Rendered;
use helm_core::manifest::Hook;
use serde::Serialize;

use crate::output::{self, Format, Paint, Table};
use crate::preview::{self, images};

/// Images, each with the objects that use it.
#[derive(Default)]
pub(super) struct Images(BTreeMap<String, BTreeSet<String>>);

/// An image in JSON and YAML.
#[derive(Serialize)]
struct Image<'a> {
    image: &'a str,
    objects: &'a BTreeSet<String>,
}

impl Images {
    /// Adds those of a rendered chart and of the hooks that are printed with it.
    pub(super) fn add(&mut self, rendered: &Rendered, hooks: &[&Hook]) -> anyhow::Result<()> {
        let objects = rendered.objects();
        let objects = objects.context("cannot read the rendered objects")?;
        let deployed = preview::deployed(objects, hooks)?;
        for (image, users) in images::images(&deployed) {
            self.0.entry(image).or_default().extend(users);
        }
        Ok(())
    }

    /// Prints one image per line, or in another format with the objects that use it.
    pub(super) fn print(&self, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
        let list: Vec<Image<'_>> = self
            .0
            .iter()
            .map(|(image, objects)| Image { image, objects })
            .collect();
        if output::print_data(format, &list, out)? {
            return Ok(());
        }
        if format == Format::Wide {
            let mut table = Table::new(&["IMAGE", "OBJECTS"]);
            for (image, users) in &self.0 {
                let users: Vec<&str> = users.iter().map(String::as_str).collect();
                table.row([image.clone(), users.join(", ")]);
            }
            out.write_all(table.text(Paint(false)).as_bytes())?;
            return Ok(());
        }
        for image in self.0.keys() {
            writeln!(out, "{image}")?;
        }
        Ok(())
    }
}
