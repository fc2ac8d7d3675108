//! Records that are too large for a Secret: the chart is reduced, the rest goes beside it.

use serde::{Deserialize, Serialize};

use super::codec::{self, CodecError};
use super::{Release, ReleaseChart};

/// How large a stored record can be so that its Secret stays below the 1 MiB that Kubernetes
/// accepts, in bytes.
pub const MAX_STORED: usize = 1_048_576 - 16_384;

/// A record in a form that fits into Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The record as [`codec::encode`] gives it, its chart possibly reduced.
    pub record: String,
    /// What was taken out of the chart, encoded, to be stored in pieces; empty when nothing was.
    pub removed: String,
}

/// Encodes a record in at most `limit` bytes. While it is larger, parts of its chart are taken
/// out: files, then templates, then schema and values. Helm's rollback, uninstall, get and test
/// need none of them. A record whose manifest, hooks and config alone are larger is given as it
/// is: then `record` is longer than `limit`.
pub fn compact(release: &Release, limit: usize) -> Result<Compacted, CodecError> {
    let mut record = codec::encode(release)?;
    let Some(chart) = release.chart.as_ref().filter(|_| record.len() > limit) else {
        return Ok(Compacted {
            record,
            removed: String::new(),
        });
    };
    let mut reduced = release.clone();
    let mut removed = Removed::default();
    let steps: [fn(&ReleaseChart, &mut ReleaseChart, &mut Removed); 3] = [
        |from, to, removed| {
            removed.chart.files.clone_from(&from.files);
            to.files = None;
        },
        |from, to, removed| {
            removed.chart.templates.clone_from(&from.templates);
            to.templates = None;
        },
        |from, to, removed| {
            removed.chart.schema.clone_from(&from.schema);
            removed.chart.values.clone_from(&from.values);
            to.schema = None;
            to.values = None;
        },
    ];
    for step in steps {
        if record.len() <= limit {
            break;
        }
        if let Some(to) = &mut reduced.chart {
            step(chart, to, &mut removed);
        }
        record = codec::encode(&reduced)?;
    }
    let json = codec::go_json(&removed).map_err(CodecError::Json)?;
    Ok(Compacted {
        record,
        removed: codec::pack(&json)?,
    })
}

/// Puts back what [`compact`] took out.
pub fn restore(release: &mut Release, removed: &[u8]) -> Result<(), CodecError> {
    let json = codec::unpack(removed)?;
    let Removed { chart } = serde_json::from_slice(&json).map_err(CodecError::Json)?;
    let target = release.chart.get_or_insert_default();
    target.files = target.files.take().or(chart.files);
    target.templates = target.templates.take().or(chart.templates);
    target.schema = target.schema.take().or(chart.schema);
    target.values = target.values.take().or(chart.values);
    Ok(())
}

#[derive(Default, Serialize, Deserialize)]
struct Removed {
    chart: ReleaseChart,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::release::{Revision, StoredFile};

    /// Bytes that do not compress.
    fn noise(length: usize, mut seed: u64) -> Arc<[u8]> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_be_bytes()[0]
        };
        (0..length).map(|_| next()).collect()
    }

    fn release() -> Release {
        let mut release = Release::new("big".parse().unwrap(), "n", Revision::FIRST);
        let file = |name: &str, seed| StoredFile {
            name: name.to_owned(),
            data: noise(40_000, seed),
            modified: None,
        };
        release.chart = Some(ReleaseChart {
            templates: Some(vec![file("templates/a.yaml", 1)]),
            files: Some(vec![file("big.bin", 2)]),
            values: Some(serde_json::from_str(r#"{"a":1}"#).unwrap()),
            ..ReleaseChart::default()
        });
        release
    }

    #[test]
    fn a_small_record_is_left_alone() {
        let compacted = compact(&release(), MAX_STORED).unwrap();
        assert!(compacted.removed.is_empty());
    }

    #[test]
    fn parts_are_taken_out_until_it_fits_and_come_back() {
        for (limit, templates_stay) in [(90_000, true), (20_000, false)] {
            let compacted = compact(&release(), limit).unwrap();
            assert!(compacted.record.len() <= limit);
            let mut read = codec::decode(compacted.record.as_bytes()).unwrap();
            let chart = read.chart.as_ref().unwrap();
            assert!(chart.files.is_none());
            assert_eq!(chart.templates.is_some(), templates_stay);
            assert!(chart.values.is_some());
            restore(&mut read, compacted.removed.as_bytes()).unwrap();
            assert_eq!(read, release());
        }
    }
}
