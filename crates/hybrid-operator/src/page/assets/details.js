// One custom resource: why it is as it is, its objects, conditions, events and history.

import { ago, badge, counted, element, icon } from "./elements.js";
import { Revisions } from "./revisions.js";

/** States of objects, as states of custom resources. */
const OBJECT_STATES = {
  Ready: "ready", Expired: "ready", InProgress: "progressing", Unknown: "new",
  Failed: "failed", Missing: "failed", Terminating: "deleting", Changed: "drifted",
};
/** Conditions that are good if they are true, and those that are bad. */
const GOOD = ["Ready", "Deployed", "Initialized", "TestSuccess", "OutputsComplete"];
const BAD = ["Irreconcilable", "ReleaseFailed", "Stalled", "Drifted", "Contested", "WatchRefused"];
/** Number of objects above which those that are ready are folded. */
const MANY = 12;

export class Details {
  events = ["resource"];

  constructor(subject, { go, back }) {
    this.subject = subject;
    const { group, kind, namespace, name } = subject;
    const query = new URLSearchParams({ group, kind, namespace, name });
    this.source = `api/resource?${query}`;
    this.revisions = new Revisions(subject, { go });
    this.sections = new Map();
    const section = (id, title) => {
      const body = element("div", { class: "body" });
      const root = element("section", { class: "card", "aria-label": title }, element("h2", {}, title), body);
      this.sections.set(id, { body, root });
      return root;
    };
    this.state = element("span", { class: "state" });
    this.cause = element("div");
    const heading = element("h1", {}, namespace ? element("span", { class: "muted" }, `${namespace}/`) : null, name);
    this.parts = element("div", { class: "parts" },
      element("div", { class: "column" }, section("objects", "Objects"), section("conditions", "Conditions")),
      element("div", { class: "column" }, section("release", "Release"), section("reconciles", "Reconciles"), section("events", "Events")));
    this.root = element("div", { class: "view details" },
      element("nav", { "aria-label": "Breadcrumb" }, element("a", { href: back, "data-list": true, class: "back" }, "← Custom resources")),
      element("div", { class: "heading" }, heading, this.state, element("p", { class: "total" }, group ? `${kind}.${group}` : kind)),
      this.cause, this.parts, this.revisions.root);
    this.parts.hidden = this.revisions.root.hidden = true;
  }

  asked(parameters) {
    this.revisions.asked(parameters);
  }

  received(_, details) {
    if (details === null) return this.isGone();
    this.parts.hidden = false;
    for (const id of ["objects", "release", "events"]) this.sections.get(id).root.hidden = details.native;
    this.revisions.root.hidden = details.native;
    this.state.replaceChildren(badge(details.row.state));
    this.fill("cause", this.cause, [details.row, details.attempts, details.conditions, details.rollout], () => cause(details));
    this.section("objects", [details.objects, details.row.release], () => objects(details));
    this.section("conditions", [details.conditions, details.row.state], () => conditions(details));
    this.section("release", details.row, () => release(details));
    this.section("reconciles", [details.row, details.attempts, details.generation, details.observedGeneration], () => reconciles(details));
    this.section("events", details.events, () => events(details.events));
    this.revisions.received(details.history);
  }

  isGone() {
    this.parts.hidden = this.revisions.root.hidden = true;
    this.state.replaceChildren();
    this.known = {};
    const why = document.body.dataset.elected === "true"
      ? "This replica does not know it: it is gone, or another replica is the leader."
      : "The operator does not know it: it is gone, or not selected.";
    this.cause.replaceChildren(notice("new", element("p", {}, why)));
  }

  section(id, data, make) {
    this.fill(id, this.sections.get(id).body, data, make);
  }

  /** Makes the content of a part anew if its data has changed. */
  fill(id, part, data, make) {
    const known = JSON.stringify(data);
    this.known ??= {};
    if (this.known[id] === known) return;
    this.known[id] = known;
    part.replaceChildren(...[make()].flat().filter(Boolean));
  }
}

function notice(state, ...children) {
  return element("section", { class: "notice", "data-state": state, "aria-label": "What is the matter" }, icon(state), element("div", {}, ...children));
}

/** Says what keeps a custom resource from being ready, and what comes next. */
function cause({ row, attempts, conditions, rollout }) {
  const told = conditions.find(({ reason, message, type }) => reason === row.reason && (message.startsWith(row.message) || type === "Ready"));
  const parts = [];
  if (row.state !== "ready" && (row.reason || row.message)) {
    const message = told?.message ?? row.message;
    parts.push(element("p", {}, element("strong", {}, row.reason), told?.lastTransitionTime ? element("span", { class: "muted" }, " since ", ago(told.lastTransitionTime)) : null));
    if (message) parts.push(element("p", { class: "message" }, message));
  }
  const next = whatNext(row, attempts);
  if (next) parts.push(element("p", { class: "muted" }, ...next));
  if (rollout) parts.push(element("p", { class: "muted" }, `A roll-out of its kind is in progress: ${counted(rollout.waiting, "release")} wait.`));
  if (parts.length === 0) return [];
  return notice(row.state, ...parts);
}

function whatNext(row, { failed, running, next }) {
  const isBusy = row.state === "failed" || row.state === "progressing" || row.state === "deleting" || failed > 0;
  if (row.state === "ready" && failed === 0) return null;
  if (row.state === "paused") return ["Paused: the operator changes nothing until the annotation is removed."];
  const count = failed > 0 ? `${counted(failed, "attempt")} of this revision failed. ` : "";
  if (running) return [`${count}A reconcile is in progress.`];
  if (next && isBusy && Date.parse(next) > Date.now()) return [`${count}The operator looks again `, ago(next), "."];
  return isBusy ? [`${count}The operator looks again when something changes.`] : null;
}

function objects({ objects, row }) {
  if (!objects) {
    const why = row.release ? "The objects are known once this process has reconciled it." : "There is no release yet.";
    return element("p", { class: "muted" }, why);
  }
  if (objects.length === 0) return element("p", { class: "muted" }, "The release has no objects.");
  const sorted = [...objects].sort((a, b) => Number(a.ready) - Number(b.ready));
  const unready = sorted.filter(({ ready }) => !ready);
  const ready = sorted.filter(({ ready }) => ready);
  const summary = unready.length === 0 ? `All ${counted(ready.length, "object")} ready` : `${unready.length} of ${counted(objects.length, "object")} not ready`;
  const name = row.release ? `Release ${row.release.name}, revision ${row.release.revision}` : "Objects";
  const list = (all) => all.map((object) => element("li", {}, objectLine(object, row)));
  const folded = ready.length > MANY && unready.length > 0
    ? [element("li", {}, element("details", {}, element("summary", {}, `${counted(ready.length, "object")} ready`), element("ul", { class: "tree" }, ...list(ready))))]
    : list(ready);
  return [
    element("p", { class: "muted" }, summary),
    element("ul", { class: "tree" },
      element("li", {}, element("span", { class: "node" }, icon(row.state), element("span", {}, name)),
        element("ul", {}, ...list(unready), ...folded))),
  ];
}

function objectLine({ group, kind, namespace, name, state, ready, message }, row) {
  const shown = ready ? "ready" : OBJECT_STATES[state] ?? "new";
  const elsewhere = namespace && namespace !== row.namespace ? `${namespace}/` : "";
  return [
    element("span", { class: "node" }, icon(shown),
      element("span", {}, element("span", { class: "muted", title: group || null }, `${kind} `), element("span", { class: "mono" }, `${elsewhere}${name}`)),
      element("span", { class: ready ? "hidden" : "word", "data-state": shown }, state)),
    message ? element("p", { class: "message" }, message) : null,
  ];
}

function conditions({ conditions: all, row }) {
  if (all.length === 0) return element("p", { class: "muted" }, "The operator has not reported anything yet.");
  return element("ul", { class: "conditions" }, ...all.map(({ type, status, reason, message, lastTransitionTime }) => {
    const isGood = GOOD.includes(type) ? status === "True" : BAD.includes(type) ? status !== "True" : null;
    const state = isGood === null ? "new" : isGood ? "ready" : type === "Ready" ? row.state : type === "Drifted" ? "drifted" : "failed";
    const lines = message.split("\n");
    const isLong = lines.length > 3 || message.length > 400;
    return element("li", {},
      element("p", { class: "node" }, icon(state), element("span", {}, element("strong", {}, type), ` ${status}`), element("span", { class: "muted" }, reason), ago(lastTransitionTime)),
      message === "" ? null : isLong
        ? element("details", {}, element("summary", {}, lines.find((line) => line.trim()) ?? "Message"), element("p", { class: "message" }, message))
        : element("p", { class: "message" }, message));
  }));
}

function release({ row }) {
  const { release } = row;
  return facts([
    ["Name", release ? element("span", { class: "mono" }, release.name) : "none yet"],
    ["Revision", release ? `#${release.revision}, ${release.status}` : null],
    ["Chart", release?.chartVersion],
    ["App version", release?.appVersion],
    ["Drift", row.state === "drifted" ? "not repaired" : release ? "none" : null],
  ]);
}

function reconciles({ native, row, attempts, generation, observedGeneration }) {
  const observed = observedGeneration === generation ? ", observed" : native && observedGeneration === null ? "" : `, observed: ${observedGeneration ?? "none"}`;
  return facts([
    ["Last change", ago(row.changed)],
    ["Created", ago(row.created)],
    ["Generation", generation === null ? null : `${generation}${observed}`],
    ["Next look", attempts.running ? "now" : attempts.next ? ago(attempts.next) : "when something changes"],
  ]);
}

function facts(all) {
  return element("dl", { class: "facts" }, ...all.filter(([, value]) => value).map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))));
}

function events(all) {
  if (all.length === 0) return element("p", { class: "muted" }, "None since this process started.");
  return element("ul", { class: "events" }, ...all.map(({ warning, reason, note, count, last }) => element("li", {},
    element("p", { class: "node" }, icon(warning ? "drifted" : "ready"), element("strong", {}, reason), count > 1 ? element("span", { class: "muted" }, `${count} times`) : null, ago(last)),
    note ? element("p", { class: "message" }, note) : null)));
}
