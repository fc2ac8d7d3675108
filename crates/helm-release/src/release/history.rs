//! Decides which records of a history may be deleted, from metadata only.

use helm_core::release::Status;

use super::meta::RecordMeta;

/// Returns the records to delete so that at most `max` remain, oldest first; 0 keeps all. `history`
/// must be sorted oldest first.
///
/// Keeps all records whose objects may exist without being listed in another record: the last
/// deployed one and each later one, which may have created objects. A later record whose objects
/// were removed (`uninstalled`) may be deleted. The newest record is always kept because it holds
/// the state of the release.
pub(crate) fn removable(history: &[RecordMeta], max: usize) -> Vec<&RecordMeta> {
    let Some((_, older)) = history.split_last().filter(|_| max > 0) else {
        return Vec::new();
    };
    let last = |status| history.iter().rposition(|meta| meta.status == status);
    // Without a deployed revision, keep the last one that was deployed.
    let base = last(Status::Deployed).or_else(|| last(Status::Superseded));
    let may_go = |(index, meta): &(usize, &RecordMeta)| {
        base.is_some_and(|base| *index < base) || meta.status == Status::Uninstalled
    };
    older
        .iter()
        .enumerate()
        .filter(may_go)
        .map(|(_, meta)| meta)
        .take(history.len().saturating_sub(max))
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::*;
    use crate::release::Format;

    fn history(statuses: &[Status]) -> Vec<RecordMeta> {
        let record = |(status, revision): (&Status, u32)| {
            let metadata: ObjectMeta = serde_json::from_value(json!({
                "name": format!("sh.helm.release.v1.web.v{revision}"),
                "labels": {"status": status.as_str()}}))
            .unwrap();
            RecordMeta::of(&metadata, Format::Helm).unwrap()
        };
        statuses.iter().zip(1..).map(record).collect()
    }

    #[test]
    fn records_whose_objects_may_exist_are_never_removable() {
        use Status::{
            Deployed, Failed, PendingUpgrade, Superseded, Uninstalled, Uninstalling, Unknown,
        };
        let table: Vec<(&str, Vec<Status>, usize, Vec<u32>)> = vec![
            ("no record", vec![], 1, vec![]),
            ("one record", vec![Deployed], 1, vec![]),
            (
                "old revisions beyond the limit",
                vec![Superseded, Superseded, Superseded, Deployed],
                2,
                vec![1, 2],
            ),
            (
                "no limit",
                vec![Superseded, Superseded, Superseded, Deployed],
                0,
                vec![],
            ),
            (
                "fewer than the limit",
                vec![Superseded, Superseded, Superseded, Deployed],
                9,
                vec![],
            ),
            (
                "failures since the deployed one",
                vec![Superseded, Deployed, Failed, Failed, PendingUpgrade],
                1,
                vec![1],
            ),
            (
                "failures before the deployed one, which pruned their objects",
                vec![Deployed, Failed, Failed, Failed, Deployed],
                2,
                vec![1, 2, 3],
            ),
            (
                "a retried install that failed may have left objects",
                vec![Failed, Failed, Failed, Failed],
                1,
                vec![],
            ),
            (
                "a failed install whose objects were removed",
                vec![Uninstalled, Uninstalled, Failed, Uninstalled],
                2,
                vec![1, 2],
            ),
            (
                "failed upgrades without a deployed revision",
                vec![Superseded, Superseded, Failed, Failed],
                1,
                vec![1],
            ),
            (
                "uninstalled by hand, with its history",
                vec![Superseded, Superseded, Uninstalled],
                1,
                vec![1],
            ),
            (
                "interrupted uninstall",
                vec![Superseded, Deployed, Uninstalling],
                1,
                vec![1],
            ),
            (
                "statuses of a later Helm",
                vec![Deployed, Unknown, Unknown],
                1,
                vec![],
            ),
        ];
        for (what, statuses, max, expected) in table {
            let records = history(&statuses);
            let removable = removable(&records, max);
            let revisions: Vec<u32> = removable.iter().map(|meta| meta.revision.0).collect();
            assert_eq!(revisions, expected, "{what}");
        }
    }

    proptest::proptest! {
        #[test]
        fn records_needed_for_pruning_are_never_removed(
            statuses in proptest::collection::vec(0..Status::ALL.len(), 0..12),
            max in 0_usize..6,
        ) {
            let statuses: Vec<Status> = statuses.iter().map(|i| Status::ALL[*i]).collect();
            let records = history(&statuses);
            let removable = removable(&records, max);
            let gone = |index: usize| removable.iter().any(|meta| **meta == records[index]);
            let deployed = statuses.iter().rposition(|status| *status == Status::Deployed);
            for (index, status) in statuses.iter().enumerate() {
                let since = deployed.is_some_and(|deployed| index >= deployed);
                proptest::prop_assert!(!(since && *status != Status::Uninstalled && gone(index)));
                proptest::prop_assert!(index + 1 < statuses.len() || !gone(index));
            }
            proptest::prop_assert!(max == 0 || records.len() - removable.len() >= max.min(records.len()));
        }
    }
}
