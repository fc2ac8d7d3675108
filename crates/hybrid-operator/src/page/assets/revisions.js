// The history of a release: its revisions, a manifest, and the difference of two revisions.

import { address, ago, counted, element, link, nameOf } from "./elements.js";

export class Revisions {
  constructor(subject, { go }) {
    this.subject = subject;
    this.go = go;
    this.parameters = {};
    this.history = null;
    this.charts = new Map();
    this.table = element("div", { class: "body" });
    const select = (id, label) => {
      const made = element("select", { id, change: () => this.compare() });
      return { made, field: element("div", { class: "field" }, element("label", { for: id }, label), made) };
    };
    this.from = select("from", "Compare revision");
    this.to = select("to", "with revision");
    this.choice = element("div", { class: "filters" }, this.from.field, this.to.field);
    this.shown = element("div", { class: "shown", "aria-live": "polite" });
    this.root = element("section", { class: "card", "aria-label": "History" }, element("h2", {}, "History"), this.table, this.choice, this.shown);
  }

  asked(parameters) {
    this.parameters = parameters;
    this.show();
  }

  received(history) {
    const known = JSON.stringify(history);
    if (this.known === known) return;
    this.known = known;
    const isFirst = this.history === null;
    this.history = history;
    this.render();
    this.readCharts();
    if (isFirst) this.show();
  }

  name() {
    return nameOf(this.subject);
  }

  render() {
    const { history } = this;
    this.choice.hidden = history.length < 2;
    if (history.length === 0) {
      this.table.replaceChildren(element("p", { class: "muted" }, "There is no release yet."));
      return;
    }
    const rows = history.map(({ revision, status, written, record, account }, index) => {
      const before = history[index + 1]?.revision;
      return element("tr", {},
        element("th", { scope: "row" }, `#${revision}`),
        element("td", {}, element("span", { class: "word", "data-state": stateOf(status) }, status)),
        element("td", {}, ago(written)),
        element("td", { class: "chart" }, this.charts.get(revision) ?? "…"),
        element("td", { class: "actions" },
          link({ resource: this.name(), manifest: revision }, { title: `In ${record}${account ? `, applied as ${account}` : ""}` }, "Manifest"),
          before === undefined ? null : link({ resource: this.name(), compare: `${before}..${revision}` }, { "aria-label": `Changes of revision ${revision}` }, "Changes")));
    });
    const heads = ["Revision", "Status", "Written", "Chart", "Show"].map((head) => element("th", { scope: "col" }, head));
    this.table.replaceChildren(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Revisions" },
      element("table", { class: "history" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows))));
    for (const { made } of [this.from, this.to]) {
      const chosen = made.value;
      made.replaceChildren(...history.map(({ revision }) => element("option", { value: revision }, `#${revision}`)));
      if (history.some(({ revision }) => String(revision) === chosen)) made.value = chosen;
    }
    this.choose();
  }

  /** Makes the choice of revisions what the address says, or else the newest two. */
  choose() {
    const [from, to] = this.compared() ?? [this.history[1]?.revision, this.history[0]?.revision];
    if (from !== undefined) this.from.made.value = from;
    if (to !== undefined) this.to.made.value = to;
  }

  compared() {
    const found = /^(\d+)\.\.(\d+)$/.exec(this.parameters.compare ?? "");
    return found ? [Number(found[1]), Number(found[2])] : null;
  }

  compare() {
    this.go(address({ resource: this.name(), compare: `${this.from.made.value}..${this.to.made.value}` }), { replace: true });
  }

  async read(path, parameters) {
    const { group, kind, namespace, name } = this.subject;
    const answer = await fetch(`api/${path}?${new URLSearchParams({ group, kind, namespace, name, ...parameters })}`);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  /** Reads the charts of revisions that are not known yet: a revision never changes its chart. */
  async readCharts() {
    if (this.history.slice(0, 10).every(({ revision }) => this.charts.has(revision))) return;
    try {
      for (const { revision, chart, appVersion } of await this.read("charts")) {
        this.charts.set(revision, appVersion ? `${chart} (${appVersion})` : chart);
      }
    } catch {
      // The history is worth showing without them.
    }
    for (const { revision } of this.history) if (!this.charts.has(revision)) this.charts.set(revision, "–");
    this.render();
  }

  /** Shows the manifest or the difference that the address asks for. */
  async show() {
    if (this.history === null) return;
    this.choose();
    const compared = this.compared();
    const { manifest } = this.parameters;
    const asked = compared ? `${compared}` : manifest;
    if (this.asking === asked) return;
    this.asking = asked;
    if (!asked) return this.shown.replaceChildren();
    this.shown.replaceChildren(element("p", { class: "muted" }, "Reading the records …"));
    let parts;
    try {
      parts = compared
        ? differences(compared, await this.read("difference", { from: compared[0], to: compared[1] }))
        : objects(manifest, await this.read("manifest", { revision: manifest }));
    } catch (error) {
      parts = [element("p", { class: "notice", "data-state": "failed" }, error.message)];
    }
    if (this.asking === asked) this.shown.replaceChildren(...parts);
  }
}

function stateOf(status) {
  if (status === "deployed") return "ready";
  if (status === "failed") return "failed";
  return status.startsWith("pending") || status === "uninstalling" ? "progressing" : "new";
}

function title(object, hook, word) {
  return element("summary", {}, word ? element("span", { class: "word", "data-change": word }, word) : null, element("span", { class: "mono" }, object), hook ? element("span", { class: "muted" }, "hook") : null);
}

function differences([from, to], all) {
  const heading = element("h3", {}, `Changes from revision ${from} to ${to}`);
  if (all.length === 0) return [heading, element("p", { class: "muted" }, "The manifests are equal.")];
  return [heading, element("p", { class: "muted" }, `${counted(all.length, "object")} differ. The content of Secrets is hidden.`),
    ...all.map(({ object, hook, change, hunks }) => element("details", { open: true }, title(object, hook, change), code(hunks)))];
}

function objects(revision, all) {
  return [element("h3", {}, `Manifest of revision ${revision}`),
    element("p", { class: "muted" }, `${counted(all.length, "object")}. The content of Secrets is hidden.`),
    ...all.map(({ object, hook, yaml }) => element("details", {}, title(object, hook), code(yaml, false)))];
}

function code(text, isDifference = true) {
  const lines = text.replace(/\n$/, "").split("\n").map((line) => {
    const kind = isDifference ? { "+": "ins", "-": "del", "@": "span" }[line[0]] : undefined;
    return kind ? element(kind, { class: line[0] === "@" ? "place" : null }, `${line}\n`) : `${line}\n`;
  });
  return element("pre", { tabindex: "0" }, element("code", {}, ...lines));
}
