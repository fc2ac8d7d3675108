//! Tables of charts and the rules for them.

use helm_core::chart::{Chart, File};

use super::*;
use crate::rbac::survey::survey;

#[derive(Default)]
struct Case<'a> {
    file: &'a str,
    text: &'a str,
    needs: WatchNeeds,
    options: RoleOptions,
    previous: Vec<Grant>,
}

impl<'a> Case<'a> {
    /// Returns the case of a chart with one template.
    fn of(text: &'a str) -> Self {
        Self {
            file: "templates/a.yaml",
            text,
            ..Self::default()
        }
    }

    fn rules(&self) -> ChartRules {
        let metadata = File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n");
        let chart = Chart::from_files([File::new(self.file, self.text), metadata]).unwrap();
        let api = ChartApi {
            group: "x.example.com",
            version: "v1",
            kind: "Shop",
            plural: "shops",
            namespaced: true,
            chart: &chart,
            directory: "helm-charts/c",
        };
        let survey = survey(&chart, &[]).unwrap();
        let mut kinds = Kinds::default();
        kinds.add_chart(&chart);
        let apis = [(api, self.needs.clone())];
        rules(&apis, &survey, &kinds, &self.previous, self.options)
    }

    /// Returns the rules beside those of the custom resources and records.
    fn others(&self) -> String {
        let yaml = self.rules().rules.to_yaml();
        let records = "deletecollection, get, list, patch, update, watch]\n";
        yaml.split_once(records).unwrap().1.to_owned()
    }
}

const OBJECT: &str = "[create, delete, get, list, patch, update, watch]";

#[test]
fn every_chart_has_rules_for_its_custom_resources_and_records() {
    let expected = "\
                    # The custom resources.
- apiGroups: [x.example.com]
  resources: [shops]
  verbs: [get, list, patch, watch]
- apiGroups: [x.example.com]
  resources: [shops/status]
  verbs: [patch]
- apiGroups: [x.example.com]
  resources: [shops/finalizers]
  verbs: [update]
# The release records.
- apiGroups: [\"\"]
  resources: [secrets]
  verbs: [create, delete, deletecollection, get, list, patch, update, watch]
";
    assert_eq!(Case::of("").rules().rules.to_yaml(), expected);
}

#[test]
fn objects_hooks_lookups_and_logs() {
    let case = Case::of(
        "{{ $x := lookup \"v1\" \"Node\" \"\" \"\" }}apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n\
         apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, annotations: {helm.sh/hook: pre-install, \
         helm.sh/hook-output-log-policy: hook-failed}}\n",
    );
    let expected = format!(
        "# The chart's objects.\n- apiGroups: [batch]\n  resources: [jobs]\n  verbs: {OBJECT}\n\
         # The output of hooks.\n- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [list]\n\
         - apiGroups: [\"\"]\n  resources: [pods/log]\n  verbs: [get]\n\
         # Read by lookup in templates.\n- apiGroups: [\"\"]\n  resources: [nodes]\n  verbs: [get, list, watch]\n"
    );
    assert_eq!(case.others(), expected);
}

#[test]
fn what_the_watches_file_refers_to() {
    let case = Case {
        file: "crds/a.yaml",
        text: "kind: CustomResourceDefinition\n",
        needs: WatchNeeds {
            values_from: ["ConfigMap", "Secret"].into(),
            depends_on: [GroupKind::new("db.example.com", "Database")].into(),
            expand_volumes: true,
            crds: Crds::CreateReplace,
            service_account: None,
        },
        ..Case::default()
    };
    let expected = "\
                    # Referred to in the watches file.
- apiGroups: [\"\"]
  resources: [configmaps]
  verbs: [get, list, watch]
- apiGroups: [\"\"]
  resources: [persistentvolumeclaims]
  verbs: [list, patch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get]
- apiGroups: [db.example.com]
  resources: [databases]
  verbs: [get, list, watch]
# The definitions in the chart's crds/.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [create, get, patch]
";
    assert_eq!(case.others(), expected);
}

#[test]
fn an_impersonating_operator_only_reads_the_objects() {
    let mut case = Case::of("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    case.needs.service_account = Some("deployer".to_owned());
    let objects = "# The chart's objects.\n- apiGroups: [\"\"]\n  resources: [configmaps]\n  \
                   verbs: [get, list, watch]\n# The service accounts that the operator acts as.\n\
                   - apiGroups: [\"\"]\n  resources: [serviceaccounts]\n";
    let named = format!("{objects}  resourceNames: [deployer]\n  verbs: [impersonate]\n");
    assert_eq!(case.others(), named);
    case.needs.service_account = Some("{{ .Object.metadata.name }}".to_owned());
    assert_eq!(case.others(), format!("{objects}  verbs: [impersonate]\n"));
}

const ROLES: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: own}
rules:
- {apiGroups: [''], resources: [nodes], verbs: [get]}
- {apiGroups: [''], resources: [endpoints], verbs: [get], resourceNames: ['{{ .Release.Name }}']}
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: own}
roleRef: {kind: ClusterRole, name: own}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: theirs}
roleRef: {kind: ClusterRole, name: view}
";

#[test]
fn permissions_of_the_charts_own_roles_are_granted() {
    let ChartRules { rules, warnings } = Case::of(ROLES).rules();
    let yaml = rules.to_yaml();
    let (_, section) = yaml
        .split_once("# Granted by the chart's own roles")
        .unwrap();
    let (_, rules) = section.split_once('\n').unwrap();
    let expected = "- apiGroups: [\"\"]\n  resources: [nodes, endpoints]\n  verbs: [get]\n\
                    - nonResourceURLs: [/metrics]\n  verbs: [get]\n";
    assert_eq!(rules, expected);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("\"view\""), "{warnings:?}");
}

#[test]
fn bind_is_granted_only_if_escalation_is_allowed() {
    let mut case = Case::of(ROLES);
    case.options.allow_escalation = true;
    let found = case.rules();
    let yaml = found.rules.to_yaml();
    assert!(
        yaml.ends_with("  resources: [clusterroles]\n  resourceNames: [view]\n  verbs: [bind]\n"),
        "{yaml}"
    );
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
}

#[test]
fn a_role_of_a_namespace_grants_nothing_of_the_cluster() {
    let mut case = Case::of(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
    );
    case.options.namespaced = true;
    let expected = format!(
        "# The chart's objects.\n- apiGroups: [\"\"]\n  resources: [services]\n  verbs: {OBJECT}\n"
    );
    assert_eq!(case.others(), expected);
    let warnings = case.rules().warnings;
    assert!(warnings[0].contains(": namespaces;"), "{warnings:?}");
}

#[test]
fn unreached_kinds_are_granted_on_request() {
    let mut case = Case::of(
        "{{ if and .Values.a (not .Values.a) }}\napiVersion: batch/v1\nkind: CronJob\n{{ end }}\n",
    );
    assert_eq!(case.others(), "");
    case.options.include_unreached = true;
    let expected = format!(
        "# The chart's objects.\n- apiGroups: [batch]\n  resources: [cronjobs]\n  verbs: {OBJECT}\n"
    );
    assert_eq!(case.others(), expected);
}

#[test]
fn kinds_of_an_earlier_version_are_kept_under_a_comment() {
    let grant = |resource: &str| Grant::new(Subject::resource("apps", resource), &["get"], "");
    let mut case = Case::of(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n",
    );
    case.previous = vec![grant("deployments"), grant("statefulsets")];
    let yaml = case.others();
    let (_, earlier) = yaml.split_once("# Of an earlier version").unwrap();
    let (_, rules) = earlier.split_once('\n').unwrap();
    let expected = "- apiGroups: [apps]\n  resources: [statefulsets]\n  verbs: [get]\n";
    assert_eq!(rules, expected);
}

#[test]
fn a_namespace_or_definition_of_the_chart_is_searched_before_its_deletion() {
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: orders.shop.io}\n\
                      spec: {group: shop.io, scope: Cluster, names: {kind: Order, plural: orders}}\n";
    let yaml = Case::of(definition).others();
    let wanted = "- apiGroups: [shop.io]\n  resources: [orders]\n  verbs: [list]\n";
    assert!(yaml.contains(wanted), "{yaml}");
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n";
    let yaml = Case::of(&format!("{definition}---\n{namespace}")).others();
    for wanted in [
        "- apiGroups: [\"*\"]\n  resources: [\"*\"]\n  verbs: [list]\n",
        "resources: [customresourcedefinitions]",
    ] {
        assert!(yaml.contains(wanted), "{wanted} is not in {yaml}");
    }
}
