"use strict";
// The drawing of a tree that has been laid out. Elements are made when they first come into view: letters outside it would
// take most of the time that a large graph takes to draw and to move.

/** The place of a container's children, which `uncoverView` draws. */
function drawContainer(container) {
  for (const child of container.children) child.element = null;
  container.slots = { lines: shape("g", {}), items: shape("g", {}) };
  return shape("g", { transform: `translate(${container.area.x} ${container.area.y})` }, container.slots.lines, container.slots.items);
}

/** Draws what of a container is in a view and hides what is not; `view` is `{left, top, right, bottom}` around the container. */
function uncoverView(container, view, make) {
  const inside = moved(view, container.area);
  // In their order, whenever they are made: the Tab key walks through them.
  let next = null;
  for (const child of container.children.toReversed()) {
    const seen = meets(inside, child.x, child.y, child.x + child.width, child.y + child.height);
    if (seen && !child.element) container.slots.items.insertBefore((child.element = make.item(child)), next);
    next = child.element ?? next;
    hide(child.element, !seen);
    if (!seen || !child.open) continue;
    for (const inner of child.bodies.length ? child.bodies : [child]) uncoverView(inner, moved(inside, child), make);
  }
  for (const line of container.lines) {
    const [xs, ys] = [line.points.map(({ x }) => x), line.points.map(({ y }) => y)];
    const seen = meets(inside, Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys));
    if (seen && !line.element) container.slots.lines.append((line.element = make.line(line)));
    hide(line.element, !seen);
  }
}

const moved = ({ left, top, right, bottom }, { x, y }) => ({ left: left - x, top: top - y, right: right - x, bottom: bottom - y });

const meets = (view, left, top, right, bottom) => left <= view.right && right >= view.left && top <= view.bottom && bottom >= view.top;

/** Hides an element or shows it; what the keyboard is at stays. */
function hide(element, hidden) {
  if (!element || (element.style.display === "none") === hidden) return;
  if (!hidden || !element.contains(document.activeElement)) element.style.display = hidden ? "none" : "";
}

/** Where an item is in the drawing, which moves and grows with the pane: `{x, y}` of its corner. */
function cornerOf(item) {
  const { parent } = item;
  const around = parent.kind === "body" ? parent.parent : parent;
  const { x, y } = around ? cornerOf(around) : { x: 0, y: 0 };
  return { x: x + parent.area.x + item.x, y: y + parent.area.y + item.y };
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
    { class: classes.join(" "), transform: `translate(${round(item.x)} ${round(item.y)})`, "data-key": item.key, tabindex: 0, role: "button", "aria-label": `${item.title} ${item.subtitle ?? ""}`.trim(), onclick: select },
    shape("title", {}, item.tip),
  );
  group.addEventListener("keydown", (event) => {
    if (event.target !== group) return;
    // As in any tree: the arrow to the right opens, the one to the left closes.
    const turns = isContainer(item) && event.key === (item.open ? "ArrowLeft" : "ArrowRight");
    if (turns) on.toggle(item);
    else if (event.key === "Enter" || event.key === " ") on.select(item);
    else return;
    event.preventDefault();
  });
  group.addEventListener("focus", () => group.matches(":focus-visible") && on.follow(item));
  if (isContainer(item)) group.setAttribute("aria-expanded", String(item.open));
  if (isContainer(item) && !item.open) group.append(box(item, 3, "shadow"));
  group.append(box(item, 0, "box"));
  if (item.leadsIn) group.append(shape("path", { class: "tick", d: `M${round(item.width / 2) - 4} -7h8l-4 6z` }, shape("title", {}, "reads values from outside this box")));
  if (item.leadsOut) group.append(shape("path", { class: "tick", d: `M${round(item.width / 2) - 4} ${item.height + 1}h8l-4 6z` }, shape("title", {}, "its results are read outside this box")));
  group.append(...(item.open ? openParts(item, on) : closedParts(item, on)));
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

function openParts(item, on) {
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
    parts.push(shape("rect", { class: "body", x: x - 4, y: y - ABOVE - 1, width: width + 8, height: height + ABOVE + 3, rx: 4 }));
    parts.push(shape("text", { class: "small", x: x + 2, y: y - ABOVE + ROW - 4 }, body.title));
    parts.push(drawContainer(body));
  }
  if (!item.bodies.length) parts.push(drawContainer(item));
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
