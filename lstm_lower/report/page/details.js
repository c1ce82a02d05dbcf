"use strict";
// What is told of a node, a group or a port that was clicked.

/** Fills the panel beside the graphs; `go(pane, number)` shows a node. */
function showDetails(panel, pane, item, go) {
  panel.replaceChildren();
  if (item === null) {
    panel.append(
      el("p", { class: "hint" }, "Click a node for its shapes, types, definition and formula. Everything made from the same source node is highlighted on both sides."),
      el("p", { class: "hint" }, "Wheel: zoom. Drag: move. + and − open and close a box; from the keyboard, Tab, arrows and Enter. Colours show which part of the source a node comes from."),
    );
    return;
  }
  if (item.kind === "group") panel.append(...groupDetails(item));
  else if (item.kind === "port") panel.append(...portDetails(pane, item, go));
  else panel.append(...nodeDetails(pane, item.node, go));
}

const MOST_UNBROKEN = 22;
const heading = (text) => el("h3", {}, text);

function groupDetails(item) {
  const counts = new Map();
  const walk = (inner) => {
    if (inner.kind === "node") counts.set(inner.title, (counts.get(inner.title) ?? 0) + 1);
    [...inner.children, ...inner.bodies].forEach(walk);
  };
  walk(item);
  const rows = [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) => [name, String(count)]);
  return [
    el("h2", {}, item.title),
    el("p", { class: "name" }, item.subtitle),
    el("p", {}, `${item.count} nodes${item.seconds ? `, ${timeText(item.seconds)} in a run` : ""}`),
    rows.length ? table([["operator"], ["nodes", true]], rows) : null,
  ].filter(Boolean);
}

function portDetails(pane, item, go) {
  const { name, type } = value(item.value);
  return [el("h2", {}, item.direction === "in" ? "Input" : "Output"), el("p", { class: "name" }, name), el("p", {}, type), ...usersOf(pane, item.value, go)];
}

function nodeDetails(pane, node, go) {
  const operator = CONTENTS.operators[node.operator];
  const part = partOf(node.sources);
  const { seconds } = pane.tree.leaves.get(node.number);
  const parts = [
    el("h2", {}, shortOperator(node.operator)),
    el("p", { class: "name" }, node.name),
    node.operator.includes("::") ? el("p", { class: "name" }, `of domain ${node.operator.slice(0, node.operator.lastIndexOf("::"))}`) : null,
    part === null ? null : el("p", {}, el("span", { class: `chip hue${part}` }), ` from ${CONTENTS.parts[part]}`),
    seconds ? el("p", {}, `${timeText(seconds)} in a run`) : null,
    valueTable(pane, "reads", node.inputs, operator?.inputs ?? [], go),
    valueTable(pane, "makes", node.outputs, operator?.outputs ?? [], go),
  ];
  const attributes = Object.entries(node.attributes);
  if (attributes.length) parts.push(heading("attributes"), table([["name"], ["value"]], attributes));
  parts.push(...originDetails(pane, node, go));
  if (operator?.text) parts.push(heading(operator.lowered ? "definition" : "what it does"), el("p", { class: "text" }, operator.text));
  if (operator?.formula) parts.push(heading("formula: the rule that lowers it"), el("pre", {}, operator.formula));
  return parts.filter(Boolean);
}

function valueTable(pane, title, numbers, names, go) {
  if (!numbers.length) return null;
  const name = (at) => names[Math.min(at, names.length - 1)] ?? "";
  const rows = numbers.map((number, at) => {
    if (number === null) return [name(at), "left out", ""];
    const { name: own, type, constant } = value(number);
    const maker = title === "reads" ? makerOf(pane, number) : null;
    const shown = constant !== null ? el("code", {}, shortened(constant, 80)) : maker ? link(own, () => go(pane, maker.number)) : own;
    return [name(at), shown, constant === null ? el("span", { class: type.length <= MOST_UNBROKEN ? "type" : null }, type) : ""];
  });
  return el("div", {}, heading(title), table([["operand"], ["value"], ["type"]], rows));
}

const link = (text, go) => el("button", { type: "button", class: "link", onclick: go }, shortened(text, 48));

function makerOf(pane, number) {
  for (const node of pane.state.nodes.values()) if (node.outputs.includes(number) && !isConstant(node)) return node;
  return null;
}

function usersOf(pane, number, go) {
  const users = [...pane.state.nodes.values()].filter((node) => node.inputs.includes(number));
  if (!users.length) return [];
  return [heading("read by"), el("ul", {}, users.slice(0, 30).map((node) => el("li", {}, link(`${shortOperator(node.operator)} ${node.name}`, () => go(pane, node.number)))))];
}

function originDetails(pane, node, go) {
  const found = [];
  const born = pane.state.born.get(node.number);
  if (born > 0) found.push(heading("made by"), el("p", {}, `${stepTitle(born)}: ${CONTENTS.passes[STEPS[born].pass] ?? ""}`));
  const others = node.sources.filter((source) => source !== node.number);
  if (others.length) {
    found.push(
      heading("stands for, in the source"),
      el(
        "ul",
        {},
        others.slice(0, 20).map((source) => {
          const origin = FIRST.nodes.get(source);
          return el("li", {}, link(`${shortOperator(origin.operator)} ${origin.name}`, () => go(null, source)));
        }),
        others.length > 20 ? el("li", {}, `and ${others.length - 20} more`) : null,
      ),
    );
  }
  return found;
}
