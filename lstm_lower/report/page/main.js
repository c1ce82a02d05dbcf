"use strict";
// Puts the page together: tabs, colours, search, and what the two panes do together.

const PAGES = [
  ["overview", "Overview"],
  ["graphs", "Graphs"],
  ["passes", "Passes"],
  ["errors", "Errors"],
  ["times", "Times"],
  ["interface", "Inputs and outputs"],
  ["program", "Program"],
].filter(([id]) => id !== "times" || CONTENTS.times);

const MOST_FOUND = 40;
let left = null;
let right = null;

/** Opens a page, and records it, so that the browser's back button leads to the one before. */
function open(id) {
  if (location.hash !== `#${id}`) history.pushState(null, "", `#${id}`);
  show(id);
}

function show(id) {
  for (const [name] of PAGES) {
    const tab = byId(`tab-${name}`);
    byId(name).classList.toggle("shown", name === id);
    tab.setAttribute("aria-selected", String(name === id));
    // Of the tabs one is a stop of the Tab key; arrows lead to the others.
    tab.tabIndex = name === id ? 0 : -1;
  }
  if (id !== "graphs") return;
  if (left === null) openGraphs();
  else [left, right].forEach((pane) => pane.apply());
}

/** The page that the address names. */
function asked() {
  const id = location.hash.slice(1);
  return PAGES.some(([known]) => known === id) ? id : "overview";
}

function openGraphs() {
  const on = { select, step: mark };
  left = new Pane(byId("left"), "left", 0, on);
  right = new Pane(byId("right"), "right", LAST, on);
  mark();
  select(left, null);
  const chips = CONTENTS.parts.map((label, at) =>
    el("button", { type: "button", class: "part", title: label, onclick: () => showPart(at) }, el("span", { class: `chip hue${at}` }), shortened(label, 60)),
  );
  byId("legend").replaceChildren(...(chips.length ? [el("span", {}, "From:"), ...chips, el("span", { class: "part" }, el("span", { class: "chip plain" }), "the rest")] : []));
}

/** Shows the first node of a part of the source, and lights up everything that comes from the part. */
function showPart(at) {
  const first = Math.min(...Object.keys(CONTENTS.part_of).filter((number) => CONTENTS.part_of[number] === at).map(Number));
  go(null, first);
  for (const pane of [left, right]) {
    const numbers = [...pane.state.nodes.values()].filter((node) => partOf(node.sources) === at && !isConstant(node)).map((node) => node.number);
    if (pane.chosen === null && numbers.length) {
      // The largest box that is of this part alone.
      let item = pane.tree.leaves.get(numbers[0]);
      while (item.parent?.part === at) item = item.parent;
      pane.center(pane.uncover(item));
    }
    pane.light(numbers, pane.chosen);
  }
}

/** Marks, where the panes show neighbouring states, what went and what is new. */
function mark() {
  if (left === null || right === null) return;
  const near = right.state.step - left.state.step === 1;
  const marks = (pane, other, name) => {
    const found = new Map();
    if (near) for (const number of pane.state.nodes.keys()) if (!other.state.nodes.has(number)) found.set(number, name);
    return found;
  };
  for (const [pane, other, name] of [[left, right, "gone"], [right, left, "new"]]) {
    const marked = marks(pane, other, name);
    if (marked.size || pane.marks.size) {
      pane.marks = marked;
      pane.draw();
    }
  }
}

/** Shows what was chosen, and lights up what comes from the same nodes of the source. */
function select(pane, item) {
  showDetails(byId("details"), pane, item, go);
  const other = pane === left ? right : left;
  if (item === null || item.kind !== "node") {
    pane.light([], item?.key ?? null);
    other?.light([], null);
    return;
  }
  pane.light([], item.key);
  const mine = new Set(item.node.sources);
  const related = [...other.state.nodes.values()].filter((node) => !isConstant(node) && node.sources.some((source) => mine.has(source)));
  other.light(related.map((node) => node.number), null);
  const same = related.find((node) => node.number === item.node.number) ?? related.find((node) => node.sources[0] === item.node.sources[0]) ?? related[0];
  const shown = same && other.visible(same.number);
  if (shown) other.align(shown, pane.boxOf(item).y);
}

/** Shows a node in a pane; without one in that which has it, the source's first. */
function go(pane, number) {
  const target = pane ?? [left, right].find((each) => each.state.nodes.has(number)) ?? (left.show(0), left);
  const item = target.reveal(number);
  if (item === null) return;
  target.center(item);
  select(target, item);
}

function showStep(step) {
  open("graphs");
  left.show(Math.max(0, step - 1));
  right.show(Math.max(1, step));
  for (const pane of [left, right]) {
    const marked = [...pane.marks.keys()].find((number) => pane.tree.leaves.has(number));
    if (marked !== undefined) pane.center(pane.visible(marked));
  }
}

function search() {
  const text = byId("search").value.trim().toLowerCase();
  const list = byId("found");
  list.replaceChildren();
  list.hidden = !text;
  if (!text) return;
  open("graphs");
  const fits = (node) =>
    node.name.toLowerCase().includes(text) || node.operator.toLowerCase().includes(text) || node.outputs.some((output) => CONTENTS.values[output][0].toLowerCase().includes(text));
  // Enter takes the first one: what is called just that comes before what only has it in its name.
  const rank = (node) => {
    const names = [shortOperator(node.operator).toLowerCase(), node.name.toLowerCase()];
    return names.includes(text) ? 0 : names.some((name) => name.startsWith(text)) ? 1 : 2;
  };
  let count = 0;
  for (const pane of [left, right]) {
    const nodes = [...pane.state.nodes.values()].filter((node) => !isConstant(node) && fits(node));
    for (const node of nodes.sort((a, b) => rank(a) - rank(b))) {
      count += 1;
      if (count > MOST_FOUND) continue;
      const side = pane === left ? "left" : "right";
      const press = () => {
        list.hidden = true;
        go(pane, node.number);
      };
      list.append(el("li", {}, el("button", { type: "button", onclick: press }, el("strong", {}, shortOperator(node.operator)), el("span", { class: "full" }, shortened(node.name, 60)), el("span", { class: "side" }, side))));
    }
  }
  if (count > MOST_FOUND) list.append(el("li", { class: "more" }, `and ${count - MOST_FOUND} more`));
  if (!count) list.append(el("li", { class: "more" }, "nothing found"));
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "☀" : "☾";
}

function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  byId("name").textContent = CONTENTS.name;
  for (const [id, title] of PAGES) {
    byId("tabs").append(el("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": id, onclick: () => open(id) }, title));
  }
  byId("tabs").addEventListener("keydown", (event) => {
    const tabs = PAGES.map(([id]) => byId(`tab-${id}`));
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    tabs[to % tabs.length].focus();
    tabs[to % tabs.length].click();
  });
  addEventListener("resize", () => show(asked()));
  addEventListener("popstate", () => show(asked()));
  byId("search").addEventListener("input", search);
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") byId("found").querySelector("button")?.click();
    if (event.key === "Escape") byId("found").hidden = true;
  });
  document.querySelector(".search").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || byId("found").hidden) return;
    event.preventDefault();
    const stops = [byId("search"), ...byId("found").querySelectorAll("button")];
    stops[Math.min(stops.length - 1, Math.max(0, stops.indexOf(document.activeElement) + step))].focus();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) byId("found").hidden = true;
  });
  // Paper is light.
  addEventListener("beforeprint", () => document.documentElement.classList.add("paper"));
  addEventListener("afterprint", () => document.documentElement.classList.remove("paper"));
  byId("footer").append(CONTENTS.by, " · ", el("details", {}, el("summary", {}, "licences"), el("pre", {}, byId("licence").content.textContent)));
  fillOverview(byId("overview"));
  fillPasses(byId("passes"), showStep);
  fillErrors(byId("errors"));
  fillTimes(byId("times"), (node) => {
    open("graphs");
    right.show(LAST);
    go(right, node);
  });
  fillInterface(byId("interface"));
  fillProgram(byId("program"));
  show(asked());
  document.documentElement.dataset.ready = "true";
}

start();
