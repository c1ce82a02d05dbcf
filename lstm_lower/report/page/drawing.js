"use strict";
// The drawing of a tree that has been laid out.

/** Draws the children of a container; `on` are listeners: `select(item)`, `toggle(item)`. */
function drawContainer(container, on, marks) {
  return shape(
    "g",
    { transform: `translate(${container.area.x} ${container.area.y})` },
    container.lines.map((line) => drawEdge(line)),
    container.children.map((child) => drawItem(child, on, marks)),
  );
}

function drawEdge(line) {
  const names = line.values.map((number) => `${value(number).name}  ${value(number).type}`);
  const tip = names.length > 8 ? [...names.slice(0, 8), `and ${names.length - 8} more`] : names;
  return shape(
    "g",
    { class: "edge", "data-from": line.from.key, "data-to": line.to.key },
    shape("path", { d: curve(line.points), class: "reach" }, shape("title", {}, tip.join("\n"))),
    shape("path", { d: curve(line.points), class: "line", "marker-end": "url(#arrow)" }),
  );
}

/** A smooth line through points. */
function curve(points) {
  const [first, ...rest] = points;
  const last = rest.pop();
  if (!rest.length) return `M${at(first)}L${at(last)}`;
  const middles = rest.map((point, index) => {
    const next = rest[index + 1];
    return next ? { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 } : last;
  });
  return `M${at(first)}${rest.map((point, index) => `Q${at(point)} ${at(middles[index])}`).join("")}`;
}

const at = ({ x, y }) => `${round(x)} ${round(y)}`;
const round = (number) => Math.round(number * 10) / 10;

function drawItem(item, on, marks) {
  const classes = [item.kind, item.part === null ? "plain" : `hue${item.part}`];
  if (isContainer(item)) classes.push(item.open ? "open" : "closed");
  if (item.bodies.length) classes.push("loop");
  if (item.node && CONTENTS.operators[item.node.operator]?.lowered) classes.push("composite");
  const mark = markOf(item, marks);
  if (mark) classes.push(mark);
  const select = (event) => {
    event.stopPropagation();
    on.select(item);
  };
  const group = shape(
    "g",
    { class: classes.join(" "), transform: `translate(${round(item.x)} ${round(item.y)})`, "data-key": item.key, tabindex: 0, role: "button", "aria-label": `${item.title} ${item.subtitle ?? ""}`, onclick: select },
    shape("title", {}, item.tip),
  );
  group.addEventListener("keydown", (event) => {
    if (event.target === group && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      on.select(item);
    }
  });
  if (isContainer(item) && !item.open) group.append(box(item, 3, "shadow"));
  group.append(box(item, 0, "box"));
  if (item.leadsIn) group.append(shape("path", { class: "tick", d: `M${round(item.width / 2) - 4} -7h8l-4 6z` }, shape("title", {}, "reads values from outside this box")));
  if (item.leadsOut) group.append(shape("path", { class: "tick", d: `M${round(item.width / 2) - 4} ${item.height + 1}h8l-4 6z` }, shape("title", {}, "its results are read outside this box")));
  group.append(...(item.open ? openParts(item, on, marks) : closedParts(item, on)));
  return group;
}

/** The mark of a node, or of what is in a closed box. */
function markOf(item, marks) {
  if (item.node && marks.has(item.node.number)) return marks.get(item.node.number);
  if (!marks.size || item.open) return null;
  for (const inner of [...item.children, ...item.bodies]) {
    const found = markOf(inner, marks);
    if (found) return found;
  }
  return null;
}

function box(item, shift, name) {
  const round = item.kind === "port" ? item.height / 2 : 5;
  return shape("rect", { class: name, x: shift, y: shift, width: item.width, height: item.height, rx: round });
}

function closedParts(item, on) {
  const [title, ...small] = lines(item);
  const left = PADDING + 2;
  const parts = [shape("text", { class: "title", x: left, y: ROW + 1 }, title)];
  small.forEach((text, at) => parts.push(shape("text", { class: text === shareText(item.seconds ?? 0) ? "small hot" : "small", x: left, y: (at + 2) * ROW }, text)));
  if (isContainer(item)) {
    parts.push(shape("text", { class: "small end", x: item.width - 24, y: ROW + 1 }, countText(item)));
    parts.push(toggle(item, on, "+"));
  }
  return parts;
}

function openParts(item, on, marks) {
  const title = shortened(item.title, MOST_LETTERS);
  const after = PADDING + measure(title, TITLE) + 8;
  const parts = [
    shape("text", { class: "title", x: PADDING, y: 17 }, title),
    shape("text", { class: "small", x: after, y: 17 }, shortened(item.subtitle ?? "", MOST_LETTERS)),
    shape("text", { class: "small end", x: item.width - 24, y: 17 }, countText(item)),
    toggle(item, on, "−"),
  ];
  for (const body of item.bodies) {
    const { x, y, width, height } = body.area;
    parts.push(shape("rect", { class: "body", x: x - 4, y: y - ROW - 1, width: width + 8, height: height + ROW + 3, rx: 4 }));
    parts.push(shape("text", { class: "small", x: x + 2, y: y - 4 }, body.title));
    parts.push(drawContainer(body, on, marks));
  }
  if (!item.bodies.length) parts.push(drawContainer(item, on, marks));
  return parts;
}

/** The sign that opens or closes a container. */
function toggle(item, on, sign) {
  const press = (event) => {
    event.stopPropagation();
    on.toggle(item);
  };
  return shape(
    "g",
    { class: "toggle", transform: `translate(${item.width - 20} 4)`, onclick: press, role: "button", "aria-label": sign === "+" ? "Open" : "Close" },
    shape("rect", { width: 15, height: 15, rx: 3 }),
    shape("text", { x: 7.5, y: 12 }, sign),
  );
}
