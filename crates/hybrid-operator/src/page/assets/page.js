// The page: which of its views the address names, and the connection to the operator.

import { keepTimes, named } from "./elements.js";
import { List } from "./list.js";
import { Details } from "./details.js";

/** Time until the page connects again after the connection was refused, in milliseconds. */
const AGAIN = 3000;

const main = document.getElementById("main");
const connection = document.getElementById("connection");

let view = null;
let stream = null;
let timer = 0;
/** Whether the view has its data and is on the page. */
let isShown = false;
let isFirst = true;
/** The address of the list that was shown last. */
let listed = ".";

function parameters() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

/** Shows what the address names. */
function show() {
  const asked = parameters();
  const subject = asked.resource ? named(asked.resource) : null;
  const key = subject ? asked.resource : "";
  if (view?.key === key) {
    view.asked(asked);
    return;
  }
  isFirst = view === null;
  view = subject ? new Details(subject, { go, back: listed }) : new List({ go });
  view.key = key;
  view.asked(asked);
  isShown = false;
  document.title = `${subject ? `${subject.name} · ` : ""}hybrid-operator`;
  connect();
}

/** Goes to an address of the page. `replace` does so without a new entry in the history of the browser. */
function go(address, { replace = false } = {}) {
  if (!new URLSearchParams(location.search).has("resource")) listed = location.search || ".";
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show();
}

/** Puts the view on the page as soon as it has its data, so that nothing moves later. */
function reveal() {
  if (isShown) return;
  isShown = true;
  main.replaceChildren(view.root);
  if (isFirst) return;
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function tell(state, text) {
  if (connection.dataset.state === state) return;
  connection.dataset.state = state;
  connection.textContent = text;
}

/** Follows what the view shows. A page that nobody sees follows nothing. */
function connect() {
  stream?.close();
  clearTimeout(timer);
  stream = null;
  if (document.hidden) return;
  const opened = new EventSource(view.source);
  const shown = view;
  stream = opened;
  opened.addEventListener("about", (event) => about(JSON.parse(event.data)));
  for (const name of shown.events) {
    opened.addEventListener(name, (event) => {
      tell("live", "Live");
      shown.received(name, JSON.parse(event.data));
      reveal();
    });
  }
  opened.addEventListener("error", () => {
    tell("lost", "Not connected: is the operator running, and the port forwarded? Trying again …");
    if (opened.readyState === EventSource.CLOSED) timer = setTimeout(connect, AGAIN);
  });
}

function about({ operator, version, pod, elected }) {
  document.getElementById("operator").textContent = operator;
  document.getElementById("about").textContent = [pod && `Pod ${pod}`, `version ${version}`].filter(Boolean).join(" · ");
  document.body.dataset.elected = elected;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-inside], a[data-list]");
  if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, select, textarea");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("input[type=search]");
  if (search) {
    event.preventDefault();
    search.focus();
  }
});
document.addEventListener("visibilitychange", connect);
addEventListener("popstate", show);
keepTimes();
show();
