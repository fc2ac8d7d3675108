// The list of all custom resources: counts by state, search, filters, and a table.

import { STATES, ago, badge, counted, drawn, element, icon, link, nameOf, address } from "./elements.js";

/** Number of rows that are shown at first, and that a click adds. */
const PAGE = 200;
/** Time without a key press after which a search becomes part of the address, in milliseconds. */
const TYPED = 250;

const ORDER = Object.keys(STATES);
const collator = new Intl.Collator("en", { numeric: true });

const COLUMNS = [
  { id: "state", label: "State", key: (row) => ORDER.indexOf(row.state), order: (a, b) => a - b },
  { id: "name", label: "Custom resource", key: (row) => `${row.namespace ?? ""}/${row.name}` },
  { id: "kind", label: "Kind", key: (row) => row.kind },
  { id: "release", label: "Release", key: (row) => row.release?.revision ?? -1, order: (a, b) => b - a },
  { id: "chart", label: "Chart", key: (row) => row.release?.chartVersion ?? "" },
  { id: "changed", label: "Last change", key: (row) => Date.parse(row.changed ?? 0) || 0, order: (a, b) => b - a },
];

export class List {
  source = "api/list";
  events = ["rows", "changes"];

  constructor({ go }) {
    this.go = go;
    this.rows = new Map();
    this.kinds = [];
    this.parameters = {};
    this.limit = PAGE;
    /** Elements of the rows that are shown, by the name of the custom resource. */
    this.shown = new Map();
    this.isComplete = false;
    this.build();
  }

  build() {
    this.title = element("h1", {}, "Custom resources");
    this.total = element("p", { class: "total" });
    this.bar = drawn("svg", { class: "bar", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.chips = new Map(["", ...ORDER].map((state) => [state, this.chip(state)]));
    const chips = element("div", { class: "chips", role: "group", "aria-label": "States" }, ...[...this.chips.values()].map((chip) => chip.button));
    this.rollouts = element("div", { class: "rollouts" });
    this.search = element("input", {
      type: "search", id: "search", placeholder: "Search names, charts, messages", autocomplete: "off", spellcheck: "false",
      input: () => this.typed(),
    });
    this.selects = {
      kind: element("select", { id: "kind", change: (event) => this.ask({ kind: event.target.value }) }),
      namespace: element("select", { id: "namespace", change: (event) => this.ask({ namespace: event.target.value }) }),
    };
    this.result = element("p", { class: "result", role: "status" });
    const field = (label, input) => element("div", { class: "field" }, element("label", { for: input.id }, label), input);
    const filters = element("div", { class: "filters", role: "search" },
      field("Search", this.search), field("Kind", this.selects.kind), field("Namespace", this.selects.namespace), this.result);
    this.headers = COLUMNS.map((column) => this.header(column));
    this.body = element("tbody", { role: "rowgroup" });
    const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...this.headers));
    this.table = element("table", { class: "list", role: "table" },
      element("caption", { class: "hidden" }, "Custom resources"), head, this.body);
    this.more = element("button", { type: "button", class: "more", click: () => this.showMore() }, "Show more");
    this.empty = element("div", { class: "empty" });
    this.root = element("div", { class: "view" },
      element("section", { class: "card summary", "aria-label": "Summary" }, element("div", { class: "heading" }, this.title, this.total), this.bar, chips),
      this.rollouts,
      element("section", { class: "card", "aria-label": "List" }, filters, this.table, this.empty, this.more));
  }

  chip(state) {
    const count = element("span", { class: "count" }, "–");
    const label = state ? STATES[state].label : "All";
    const button = element("button", { type: "button", class: "chip", "data-state": state || "all", "aria-pressed": "false",
      click: () => this.ask({ state: this.parameters.state === state ? "" : state }) },
      state ? icon(state) : null, element("span", {}, label), count);
    return { button, count };
  }

  header(column) {
    const sort = () => {
      const descending = this.sorting().id === column.id && !this.sorting().descending;
      this.ask({ sort: (descending ? "-" : "") + column.id });
    };
    return element("th", { scope: "col", role: "columnheader", class: `of-${column.id}` },
      element("button", { type: "button", class: "sort", click: sort }, column.label));
  }

  sorting() {
    const asked = this.parameters.sort ?? "state";
    const descending = asked.startsWith("-");
    const column = COLUMNS.find(({ id }) => id === asked.replace(/^-/, "")) ?? COLUMNS[0];
    return { ...column, descending };
  }

  /** Shows what the parameters of the address ask for. */
  asked(parameters) {
    this.parameters = parameters;
    this.limit = PAGE;
    if (document.activeElement !== this.search) this.search.value = parameters.q ?? "";
    this.render();
  }

  /** Changes the address. */
  ask(change, options) {
    this.go(address({ ...this.parameters, ...change }), options);
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask({ q: this.search.value.trim() }, { replace: true }), TYPED);
  }

  /** Takes what the operator sends: everything, or what has changed. */
  received(name, { kinds, rows, gone }) {
    if (name === "rows") this.rows.clear();
    for (const row of rows) this.rows.set(nameOf(row), row);
    for (const row of gone) this.rows.delete(nameOf(row));
    if (kinds) this.kinds = kinds;
    if (!this.isComplete) {
      this.isComplete = true;
      return this.render();
    }
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.render();
    });
  }

  showMore() {
    this.limit += PAGE;
    this.render();
    this.body.rows[this.limit - PAGE]?.querySelector("a")?.focus();
  }

  render() {
    if (!this.isComplete) return;
    const all = [...this.rows.values()];
    const { q, state, kind, namespace } = this.parameters;
    const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const matching = all.filter((row) =>
      (!kind || `${row.kind}.${row.group}` === kind) && (!namespace || row.namespace === namespace) && contains(row, words));
    this.count(all, matching);
    this.choices(all);
    this.showRollouts();
    const found = state ? matching.filter((row) => row.state === state) : matching;
    this.sort(found);
    this.fill(found);
    this.sayHowMany(all.length, found.length);
  }

  /** Shows how many there are in each state, of those that the other filters leave. */
  count(all, matching) {
    const counts = Object.fromEntries(ORDER.map((state) => [state, 0]));
    for (const row of matching) counts[row.state] += 1;
    this.total.textContent = `${counted(all.length, "custom resource")} of ${counted(this.kinds.length, "kind")}`;
    for (const [state, { button, count }] of this.chips) {
      const number = state ? counts[state] : matching.length;
      count.textContent = number.toLocaleString("en");
      button.setAttribute("aria-pressed", String((this.parameters.state ?? "") === state));
      button.classList.toggle("none", number === 0);
    }
    let x = 0;
    const parts = ORDER.filter((state) => counts[state] > 0).map((state) => {
      // One of thousands is visible, too.
      const width = Math.max(counts[state], matching.length / 120);
      const part = drawn("rect", { x, y: 0, width, height: 1, "data-state": state });
      x += width;
      return part;
    });
    this.bar.setAttribute("viewBox", `0 0 ${Math.max(x, 1)} 1`);
    this.bar.replaceChildren(...parts);
  }

  /** Offers the kinds and namespaces that there are. */
  choices(all) {
    const kinds = this.kinds.map(({ kind, group }) => [`${kind}.${group}`, kind]);
    const namespaces = [...new Set(all.map((row) => row.namespace).filter(Boolean))].sort(collator.compare);
    this.choose(this.selects.kind, "All kinds", kinds, this.parameters.kind);
    this.choose(this.selects.namespace, "All namespaces", namespaces.map((name) => [name, name]), this.parameters.namespace);
  }

  choose(select, all, choices, asked = "") {
    const wanted = asked && !choices.some(([value]) => value === asked) ? [...choices, [asked, asked]] : choices;
    const known = JSON.stringify(wanted);
    if (select.known !== known) {
      select.known = known;
      select.replaceChildren(...[["", all], ...wanted].map(([value, label]) => element("option", { value }, label)));
    }
    if (select.value !== asked) select.value = asked;
  }

  showRollouts() {
    const rolling = this.kinds.filter(({ rollout }) => rollout);
    const known = JSON.stringify(rolling);
    if (this.rollouts.known === known) return;
    this.rollouts.known = known;
    this.rollouts.replaceChildren(...rolling.map(({ kind, rollout }) => {
      const { waiting, started, next, halted } = rollout;
      const text = halted
        ? `The roll-out of ${kind} is halted: upgrades failed. ${counted(waiting, "release")} stay as they are until the chart or the watches file changes.`
        : `A changed chart or entry of ${kind} is rolled out: ${counted(waiting, "release")} still to come.`;
      const names = [started.length ? `In progress: ${started.join(", ")}. ` : "", next.length ? `Next: ${next.join(", ")}${waiting > next.length ? ", …" : ""}` : ""].join("");
      return element("section", { class: "notice", "data-state": halted ? "failed" : "progressing", "aria-label": `Roll-out of ${kind}` },
        icon(halted ? "failed" : "progressing"), element("div", {}, element("p", {}, text), element("p", { class: "muted" }, names)));
    }));
  }

  sort(rows) {
    const { key, order = collator.compare, descending } = this.sorting();
    const [, name] = COLUMNS;
    const keys = new Map(rows.map((row) => [row, [key(row), name.key(row)]]));
    const sign = descending ? -1 : 1;
    rows.sort((a, b) => {
      const [[first, one], [second, other]] = [keys.get(a), keys.get(b)];
      return sign * order(first, second) || collator.compare(one, other);
    });
    const sorting = this.sorting();
    this.headers.forEach((header, index) => {
      const isSorted = COLUMNS[index].id === sorting.id;
      if (isSorted) header.setAttribute("aria-sort", sorting.descending ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    });
  }

  /** Makes the table show these rows. Elements of rows that have not changed stay. */
  fill(found) {
    const visible = found.slice(0, this.limit);
    const native = new Set(this.kinds.filter(({ native }) => native).map(({ kind, group }) => `${kind}.${group}`));
    const names = new Set(visible.map(nameOf));
    for (const [name, { element }] of this.shown) if (!names.has(name)) element.remove();
    const shown = new Map();
    let place = this.body.firstElementChild;
    for (const row of visible) {
      const name = nameOf(row);
      const before = this.shown.get(name);
      const made = before?.row === row ? before : { row, element: tableRow(row, native.has(`${row.kind}.${row.group}`)) };
      shown.set(name, made);
      const hadFocus = before && before !== made && before.element.contains(document.activeElement);
      if (before && before !== made) {
        if (before.element === place) place = place.nextElementSibling;
        before.element.remove();
      }
      if (made.element === place) place = place.nextElementSibling;
      else this.body.insertBefore(made.element, place);
      if (hadFocus) made.element.querySelector("a").focus({ preventScroll: true });
    }
    this.shown = shown;
    this.more.hidden = found.length <= visible.length;
    this.more.textContent = `Show ${Math.min(PAGE, found.length - visible.length)} more of ${found.length.toLocaleString("en")}`;
  }

  sayHowMany(all, found) {
    const isFiltered = ["q", "state", "kind", "namespace"].some((name) => this.parameters[name]);
    const text = isFiltered ? `${found.toLocaleString("en")} of ${counted(all, "custom resource")}` : "";
    if (this.result.textContent !== text) this.result.textContent = text;
    this.table.hidden = found === 0;
    this.empty.hidden = found > 0;
    if (found > 0) return;
    const isStandby = this.kinds.length === 0 && document.body.dataset.elected === "true";
    this.empty.replaceChildren(...(isFiltered
      ? [element("p", {}, "No custom resource matches."), link({}, { class: "button" }, "Show all")]
      : isStandby
        ? [element("p", {}, "This replica is not the leader, and knows no releases."), element("p", { class: "muted" }, "Forward the port of the Pod that holds the lease.")]
        : [element("p", {}, "There are no custom resources yet."), element("p", { class: "muted" }, "They appear here as soon as somebody creates one.")]));
  }
}

function contains(row, words) {
  if (words.length === 0) return true;
  const text = [row.kind, `${row.namespace ?? ""}/${row.name}`, row.reason, row.message, row.release?.chartVersion, row.release?.name].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function tableRow(row, isNative) {
  const release = row.release;
  const cell = (column, ...children) => element("td", { role: "cell", class: `of-${column}` }, ...children);
  const told = row.state === "ready" ? null : element("p", { class: "told" },
    row.reason ? element("strong", {}, row.reason) : null, row.message ? ` ${row.message}` : null);
  return element("tr", { role: "row", "data-state": row.state },
    cell("state", badge(row.state)),
    element("th", { scope: "row", role: "rowheader", class: "of-name" },
      link({ resource: nameOf(row) }, { class: "name" },
        row.namespace ? element("span", { class: "muted" }, `${row.namespace}/`) : null, element("span", {}, row.name)),
      told?.childNodes.length ? told : null),
    cell("kind", row.kind),
    cell("release", ...(release ? [element("span", { class: "revision" }, `#${release.revision}`), element("span", { class: "status" }, ` ${release.status}`)] : [element("span", { class: "muted" }, isNative ? "–" : "none")])),
    cell("chart", release?.chartVersion ?? element("span", { class: "muted" }, "–")),
    cell("changed", ago(row.changed)));
}
