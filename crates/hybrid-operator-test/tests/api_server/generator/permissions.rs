//! Roles, their bindings, and requests of the users that these name.

use serde_json::{Value, json};

use super::{Event, Generator, KINDS, Kind};
use crate::sides::{APPLY, MERGE, Step};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Number of requests of users after a change of what they may do, at most.
const ACCESSES: usize = 8;

impl Generator {
    /// Returns events that change what users may do, and show it.
    pub(super) fn permission(&mut self, namespace: &str) -> Vec<Event> {
        let rbac = format!("{RBAC}/namespaces/{namespace}");
        let bindings = format!("{rbac}/rolebindings");
        let name = self.pick(&["b", "c"]);
        let role =
            json!({"metadata": {"name": "r"}, "rules": [self.rule(), self.rule(), self.rule()]});
        let steps = [
            Step::put(format!("{rbac}/roles/r"), role),
            Step::delete(format!("{bindings}/{name}")),
            Step::post(bindings, self.binding(name)),
        ];
        let mut events: Vec<Event> = steps.into_iter().map(Event::Request).collect();
        for _ in 0..ACCESSES {
            let kind = &KINDS[self.random.usize(..KINDS.len())];
            // Whoever changes roles needs to have what they give.
            if kind.plural != "roles" {
                let name = self.pick(&["x", "y", "z"]);
                let users = ["u".to_owned(), self.account()];
                let user = Some(self.pick(&users));
                let step = self.access(kind, namespace, name);
                events.push(Event::Permitted(Step { user, ..step }));
            }
        }
        events
    }

    /// Returns the user name of a service account.
    fn account(&self) -> String {
        let [namespace, _] = self.namespaces();
        format!("system:serviceaccount:{namespace}:x")
    }

    fn rule(&mut self) -> Value {
        let group = self.group();
        let all = json!(["*"]);
        let groups = json!([[""], [group, ""], all, all]);
        let resources = json!([
            ["configmaps", "secrets"],
            ["things", "leases"],
            ["things/status"],
            ["*/scale"],
            ["things/*"],
            all,
            all,
            all,
        ]);
        let verbs = json!([
            ["get", "list"],
            ["create", "update"],
            ["patch"],
            ["patch", "delete"],
            all,
            all,
        ]);
        let mut rule = json!({
            "apiGroups": self.pick_json(&groups), "resources": self.pick_json(&resources),
            "verbs": self.pick_json(&verbs),
        });
        if self.chance(20) {
            rule["resourceNames"] = self.pick_json(&json!([["x"], ["y", "z"]]));
        }
        rule
    }

    fn binding(&mut self, name: &str) -> Value {
        let [first, second] = self.namespaces();
        let group = "rbac.authorization.k8s.io";
        let account = |namespace: &str| json!({"kind": "ServiceAccount", "name": "x", "namespace": namespace});
        let everybody = |name: String| json!({"apiGroup": group, "kind": "Group", "name": name});
        let candidates = [
            account(&first),
            account(&second),
            json!({"apiGroup": group, "kind": "User", "name": "u"}),
            everybody("system:authenticated".to_owned()),
            everybody(format!("system:serviceaccounts:{first}")),
            everybody("nobody".to_owned()),
        ];
        let subjects = [self.pick(&candidates), self.pick(&candidates)];
        let role = match self.random.u8(..8) {
            0 => ("Role", "none"),
            1 => ("ClusterRole", "none"),
            _ => ("Role", "r"),
        };
        json!({
            "metadata": {"name": name}, "subjects": subjects,
            "roleRef": {"apiGroup": group, "kind": role.0, "name": role.1},
        })
    }

    /// Returns a request that changes nothing.
    fn access(&mut self, kind: &Kind, namespace: &str, name: &str) -> Step {
        let collection = self.collection(kind, namespace);
        let path = format!("{collection}/{name}");
        let mut object = json!({"metadata": {"name": name}});
        self.set_type(kind, "v1", &mut object);
        let labels = json!({"metadata": {"labels": {"p": "q"}}});
        let things = format!("{}/{name}", self.things("v1", namespace));
        let label = |path: &str| Step::patch(format!("{path}?dryRun=All"), MERGE, labels.clone());
        match self.random.u8(..10) {
            0 => Step::get(path),
            1 => Step::get(collection),
            2 => {
                let selected = format!("{collection}?fieldSelector=metadata.name={name}");
                Step::get(selected)
            }
            3 => Step::post(format!("{collection}?dryRun=All"), object),
            4 => Step::put(format!("{path}?dryRun=All"), object),
            5 => Step::delete(format!("{path}?dryRun=All")),
            6 => label(&path),
            7 => label(&format!("{things}/status")),
            8 => label(&format!("{things}/scale")),
            _ => {
                let path = format!("{path}?dryRun=All&fieldManager=m3&force=true");
                Step::patch(path, APPLY, object)
            }
        }
    }
}
