// Makes elements. Texts of the cluster become text nodes and attributes, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** States of custom resources, the most urgent first, and the outlines of their icons. */
export const STATES = {
  failed: { label: "Failed", icon: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5.6 5.6l4.8 4.8m0-4.8-4.8 4.8" },
  drifted: { label: "Drifted", icon: "M8 1.8 15 14H1zM8 6.2v3.6m0 2v.1" },
  progressing: { label: "Progressing", icon: "M13.9 6.2A6.2 6.2 0 1 0 14.2 8.6M14.2 2.4v3.9h-3.9" },
  deleting: { label: "Deleting", icon: "M2.5 4.2h11M6 4.2V2h4v2.2M4 4.2l.7 9.8h6.6l.7-9.8M6.6 7v4.5m2.8-4.5v4.5" },
  paused: { label: "Paused", icon: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M6.4 5.6v4.8m3.2-4.8v4.8" },
  new: { label: "New", icon: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M4.8 8h.1M8 8h.1m3.1 0h.1" },
  ready: { label: "Ready", icon: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8.3l2.1 2.1L11 6" },
};

/** Makes an element with attributes and children: elements, texts, or nothing. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Makes an element of a drawing. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** Makes the icon of a state. */
export function icon(state) {
  const path = drawn("path", { d: (STATES[state] ?? STATES.new).icon });
  return drawn("svg", { viewBox: "0 0 16 16", class: "icon", "data-state": state, "aria-hidden": "true" }, path);
}

/** Makes the name of a state with its icon. */
export function badge(state, label = STATES[state]?.label ?? state) {
  return element("span", { class: "badge", "data-state": state }, icon(state), element("span", {}, label));
}

/** Makes a time that is shown relative to now, and is kept so by `keepTimes`. */
export function ago(time) {
  if (!time) return element("span", { class: "muted" }, "–");
  const date = new Date(time);
  return element("time", { datetime: time, title: date.toLocaleString() }, relative(date));
}

/** Says how far away a time is, such as `3 min ago`. */
export function relative(date, now = Date.now()) {
  const seconds = Math.round((date.getTime() - now) / 1000);
  const size = Math.abs(seconds);
  if (size < 1) return "now";
  const [count, unit] =
    size < 60 ? [size, "s"]
    : size < 3600 ? [Math.round(size / 60), "min"]
    : size < 172800 ? [Math.round(size / 3600), "h"]
    : [Math.round(size / 86400), "days"];
  return seconds < 0 ? `${count} ${unit} ago` : `in ${count} ${unit}`;
}

/** Keeps the relative times of the page right. */
export function keepTimes() {
  setInterval(() => {
    for (const shown of document.querySelectorAll("time[datetime]")) {
      const text = relative(new Date(shown.dateTime));
      if (shown.textContent !== text) shown.textContent = text;
    }
  }, 1000);
}

/** Returns `1 object`, or `2 objects`. */
export function counted(count, one, several = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
}

/** Makes a link inside of the page. */
export function link(parameters, attributes, ...children) {
  return element("a", { ...attributes, href: address(parameters), "data-inside": true }, ...children);
}

/** Returns the address of what these parameters name. */
export function address(parameters) {
  const kept = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(kept).toString();
  return query ? `?${query}` : ".";
}

/** Returns the parameter that names a custom resource: `KIND.GROUP/NAMESPACE/NAME`. */
export function nameOf({ kind, group, namespace, name }) {
  return `${group ? `${kind}.${group}` : kind}/${namespace ?? ""}/${name}`;
}

/** Returns what `nameOf` names, or nothing. */
export function named(text) {
  const [whole, namespace, name] = text.split("/");
  if (!whole || !name) return null;
  const dot = whole.indexOf(".");
  const [kind, group] = dot < 0 ? [whole, ""] : [whole.slice(0, dot), whole.slice(dot + 1)];
  return { kind, group, namespace: namespace ?? "", name };
}
