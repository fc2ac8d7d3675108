//! The checks of preflight, by their names. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::Image;

/// Labels that an image needs.
const LABELS: [&str; 7] = [
    "name",
    "vendor",
    "version",
    "release",
    "summary",
    "description",
    "maintainer",
];
/// Labels that must not use the trademark.
const MARKED: [&str; 3] = ["name", "vendor", "maintainer"];
/// Most layers.
const LAYERS: usize = 40;
/// Prefix of a file that deletes one of a lower layer.
const DELETED: &str = ".wh.";
/// Name, after the prefix, of a file that deletes all that lower layers have in its directory.
const ALL: &str = ".wh..opq";
/// Directories of the RPM database.
const DATABASES: [&str; 2] = ["var/lib/rpm/", "usr/lib/sysimage/rpm/"];

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// With what to do.
    Failed(String),
    /// With what it needs.
    NotRun(String),
}

/// Returns the checks with their results, in the order of preflight.
pub(crate) fn checks(image: &Image) -> Vec<(&'static str, Verdict)> {
    let visible = visible(image);
    vec![
        ("HasLicense", license(&visible)),
        ("HasUniqueTag", tag(image)),
        ("LayerCountAcceptable", layers(image)),
        ("HasNoProhibitedPackages", packages(image)),
        ("HasRequiredLabel", labels(image)),
        ("HasNoProhibitedLabels", marked_labels(image)),
        ("RunAsNonRoot", user(image)),
        ("HasModifiedFiles", modified(image, &visible)),
        (
            "BasedOnUbi",
            Verdict::NotRun("it compares the layers with Red Hat's catalog".to_owned()),
        ),
        ("HasProhibitedContainerName", name(image)),
    ]
}

fn passed_if(is_right: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if is_right {
        Verdict::Passed
    } else {
        Verdict::Failed(otherwise())
    }
}

fn license(visible: &BTreeMap<&str, u64>) -> Verdict {
    let mut licences = visible
        .iter()
        .filter(|(path, _)| path.starts_with("licenses/"));
    passed_if(licences.any(|(_, size)| *size > 0), || {
        "put the licences as files into the directory /licenses".to_owned()
    })
}

fn tag(image: &Image) -> Verdict {
    let tag = |name: &str| -> String {
        let last = name.rsplit('/').next().unwrap_or_default();
        // The annotation of an index may be the tag alone.
        last.rsplit_once(':')
            .map_or(last, |(_, tag)| tag)
            .to_ascii_lowercase()
    };
    let tags: Vec<String> = image.names.iter().map(|name| tag(name)).collect();
    match tags.as_slice() {
        [] => Verdict::NotRun("the archive does not name the image".to_owned()),
        [one] => passed_if(one != "latest", || {
            "give the image a tag other than latest".to_owned()
        }),
        _ => Verdict::Passed,
    }
}

fn layers(image: &Image) -> Verdict {
    let count = image.layers.len();
    passed_if(count <= LAYERS, || {
        format!("{count} layers are more than {LAYERS}; join RUN and COPY instructions")
    })
}

fn labels(image: &Image) -> Verdict {
    let is_missing = |label: &&&str| image.labels.get(**label).is_none_or(String::is_empty);
    let missing: Vec<&str> = LABELS.iter().filter(is_missing).copied().collect();
    passed_if(missing.is_empty(), || {
        format!("add the labels {}", missing.join(", "))
    })
}

fn marked_labels(image: &Image) -> Verdict {
    let is_wrong = |label: &&&str| {
        image
            .labels
            .get(**label)
            .is_some_and(|text| misuses_trademark(text))
    };
    let wrong: Vec<&str> = MARKED.iter().filter(is_wrong).copied().collect();
    passed_if(wrong.is_empty(), || {
        format!(
            "change the labels {}, which use the trademark Red Hat",
            wrong.join(", ")
        )
    })
}

fn user(image: &Image) -> Verdict {
    let user = image.user.split(':').next().unwrap_or_default();
    passed_if(!["", "0", "root"].contains(&user), || {
        "name a user other than root, such as USER 1001".to_owned()
    })
}

fn name(image: &Image) -> Verdict {
    let mut names = image
        .names
        .iter()
        .filter(|name| name.contains([':', '/']))
        .peekable();
    if names.peek().is_none() {
        return Verdict::NotRun("the archive does not name the image".to_owned());
    }
    let wrong = names.find(|name| {
        let last = name.rsplit('/').next().unwrap_or_default();
        misuses_trademark(last.split(':').next().unwrap_or_default())
    });
    passed_if(wrong.is_none(), || {
        "choose a name without the trademark Red Hat".to_owned()
    })
}

/// Packages that must not be distributed are those of the base, which has none, unless the database has changed.
fn packages(image: &Image) -> Verdict {
    let mut upper = image
        .layers
        .iter()
        .skip(1)
        .flat_map(|layer| layer.files.keys());
    let is_database = |path: &String| DATABASES.iter().any(|start| path.starts_with(start));
    let has_one = |layer: &super::Layer| layer.files.keys().any(is_database);
    let base_has_one = image.layers.first().is_some_and(has_one);
    if base_has_one && !upper.any(is_database) {
        return Verdict::Passed;
    }
    Verdict::NotRun(
        "it reads the RPM database, which only that of an unchanged base is known".to_owned(),
    )
}

/// Preflight looks for files of packages only: where no file of a lower layer changes, there is none.
fn modified(image: &Image, visible: &BTreeMap<&str, u64>) -> Verdict {
    if !visible.contains_key("etc/os-release") {
        let advice = "take a base with the file /etc/os-release, without which preflight fails";
        return Verdict::Failed(advice.to_owned());
    }
    match changed(image).as_slice() {
        [] => Verdict::Passed,
        [first, ..] => Verdict::NotRun(format!(
            "it reads the RPM database, because layers change files of lower ones, such as /{first}"
        )),
    }
}

/// Returns the files of the image, without those that a layer deletes, with their sizes.
fn visible(image: &Image) -> BTreeMap<&str, u64> {
    let mut visible = BTreeMap::new();
    for layer in &image.layers {
        let mut added = Vec::new();
        for (path, size) in &layer.files {
            let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
            match file.strip_prefix(DELETED) {
                None => added.push((path.as_str(), *size)),
                Some(deleted) => {
                    let gone = match (folder, deleted) {
                        (folder, ALL) => folder.to_owned(),
                        ("", file) => file.to_owned(),
                        (folder, file) => format!("{folder}/{file}"),
                    };
                    visible.retain(|known: &&str, _| {
                        let rest = known.strip_prefix(gone.as_str());
                        let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
                        !gone.is_empty() && !rest.is_some_and(is_below)
                    });
                }
            }
        }
        visible.extend(added);
    }
    visible
}

/// Returns the files of lower layers that a layer changes or deletes.
fn changed(image: &Image) -> Vec<String> {
    let mut below: BTreeSet<&str> = BTreeSet::new();
    let mut changed = Vec::new();
    for layer in &image.layers {
        for path in layer.files.keys() {
            let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
            let is_deletion = file.starts_with(DELETED);
            if is_deletion || below.contains(path.as_str()) {
                let file = file.strip_prefix(DELETED).unwrap_or(file);
                changed.push(
                    format!("{folder}/{file}")
                        .trim_start_matches('/')
                        .to_owned(),
                );
            }
        }
        below.extend(layer.files.keys().map(String::as_str));
    }
    changed
}

/// Returns whether a text uses the trademark otherwise than in "for Red Hat".
fn misuses_trademark(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    // Whatever separates the words is no letter or digit.
    let words: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    let count = words.matches("redhat").count();
    let is_first = words.starts_with("redhat");
    let allowed = usize::from(words.contains("forredhat"));
    is_first || count > allowed
}

#[cfg(test)]
mod tests {
    use super::super::Layer;
    use super::*;

    fn image() -> Image {
        let layer = |files: &[&str]| Layer {
            files: files.iter().map(|file| ((*file).to_owned(), 1)).collect(),
        };
        Image {
            names: ["example.com/shop:v1".to_owned()].into(),
            user: "1001".to_owned(),
            labels: LABELS
                .iter()
                .map(|label| ((*label).to_owned(), "x".to_owned()))
                .collect(),
            layers: vec![
                layer(&[
                    "usr/lib/sysimage/rpm/rpmdb.sqlite",
                    "etc/os-release",
                    "etc/passwd",
                ]),
                layer(&["licenses/LICENSE", "usr/local/bin/helm-operator"]),
            ],
        }
    }

    /// Returns the checks that did not pass.
    fn others(change: impl FnOnce(&mut Image)) -> Vec<&'static str> {
        let mut image = image();
        change(&mut image);
        let all = checks(&image).into_iter();
        all.filter(|(_, verdict)| *verdict != Verdict::Passed)
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn each_check_fails_for_its_reason_only() {
        assert_eq!(others(|_| ()), ["BasedOnUbi"]);
        let file = |image: &mut Image, path: &str, size| {
            image.layers[1].files.insert(path.to_owned(), size);
        };
        assert_eq!(
            others(|image| file(image, "licenses/LICENSE", 0))[0],
            "HasLicense"
        );
        for deletion in [
            "licenses/.wh.LICENSE",
            "licenses/.wh..wh..opq",
            ".wh.licenses",
            ".wh..wh..opq",
        ] {
            let deleted = |image: &mut Image| {
                image.layers.push(Layer::default());
                image.layers[2].files.insert(deletion.to_owned(), 0);
            };
            assert_eq!(others(deleted)[0], "HasLicense", "{deletion}");
        }
        let base = |image: &mut Image| {
            image.layers[0].files.remove("etc/os-release");
        };
        assert_eq!(others(base)[0], "HasModifiedFiles");
        let latest =
            |image: &mut Image| image.names = ["example.com/shop:latest".to_owned()].into();
        assert_eq!(others(latest)[0], "HasUniqueTag");
        assert_eq!(others(|image| image.names.clear()).len(), 3);
        let many = |image: &mut Image| image.layers.resize_with(41, Layer::default);
        assert_eq!(others(many)[0], "LayerCountAcceptable");
        let label = |image: &mut Image| drop(image.labels.remove("release"));
        assert_eq!(others(label)[0], "HasRequiredLabel");
        let vendor = |image: &mut Image| {
            let labels = &mut image.labels;
            labels.insert("vendor".to_owned(), "Red-Hat".to_owned());
        };
        assert_eq!(others(vendor)[0], "HasNoProhibitedLabels");
        for user in ["", "0", "root", "0:0"] {
            assert_eq!(
                others(|image| image.user = user.to_owned())[0],
                "RunAsNonRoot"
            );
        }
        assert_eq!(
            others(|image| file(image, "etc/passwd", 1))[0],
            "HasModifiedFiles"
        );
        assert_eq!(
            others(|image| file(image, "etc/.wh.passwd", 0))[0],
            "HasModifiedFiles"
        );
        let changed = |image: &mut Image| file(image, "usr/lib/sysimage/rpm/rpmdb.sqlite", 1);
        assert_eq!(others(changed)[0], "HasNoProhibitedPackages");
        let named = |image: &mut Image| image.names = ["a.io/redhat-shop:v1".to_owned()].into();
        assert_eq!(others(named)[1], "HasProhibitedContainerName");
    }

    #[test]
    fn the_trademark_is_allowed_after_for() {
        for (text, wrong) in [
            ("shop", false),
            ("Red Hat shop", true),
            ("shop for Red Hat", false),
            ("shop by red-hat", true),
            ("redhat for red hat", true),
        ] {
            assert_eq!(misuses_trademark(text), wrong, "{text}");
        }
    }
}
