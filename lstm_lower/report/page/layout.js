"use strict";
// Where everything is drawn. dagre lays out one container at a time, from the inside out: an open container is then one
// box of its size in the one around it. So no layout has more than some dozens of boxes, however large the graph is.

const FONT = "system-ui, sans-serif";
const TITLE = `600 12px ${FONT}`;
const SMALL = `11px ${FONT}`;
const ROW = 15;
const PADDING = 8;
const HEADER = 26;
// Above a body: its name, and below that arrows of what its nodes read from outside.
const ABOVE = ROW + 8;
const MOST_LETTERS = 30;
const MOST_NOTES = 3;

const measure = (() => {
  const context = document.createElement("canvas").getContext("2d");
  const known = new Map();
  return (text, font) => {
    const key = `${font}|${text}`;
    if (!known.has(key)) {
      context.font = font;
      known.set(key, context.measureText(text).width);
    }
    return known.get(key);
  };
})();

const isContainer = (item) => item.kind === "group" || item.bodies.length > 0;

/** The texts of a box: its title, and what is below it. */
function lines(item) {
  const title = shortened(item.title, MOST_LETTERS);
  const notes = item.notes ?? [];
  const most = notes.length > MOST_NOTES ? [...notes.slice(0, MOST_NOTES - 1), `and ${notes.length - MOST_NOTES + 1} more`] : notes;
  return [title, ...[item.subtitle ?? "", ...most, shareText(item.seconds ?? 0)].filter(Boolean).map((text) => shortened(text, MOST_LETTERS))];
}

const countText = (item) => (item.count > 1 ? `${item.count} nodes` : "");

/** Gives an item and what is open in it their places: `x`, `y` of the corner in the container, `width`, `height`. */
function place(item, isOpen) {
  item.open = isContainer(item) && isOpen(item);
  if (!item.open) {
    const texts = lines(item);
    const extra = isContainer(item) ? measure(countText(item), SMALL) + 26 : 0;
    const widths = texts.map((text, at) => measure(text, at ? SMALL : TITLE) + (at ? 0 : extra));
    item.width = Math.ceil(Math.max(44, ...widths) + 2 * PADDING + 4);
    item.height = texts.length * ROW + 9;
    return;
  }
  const inner = item.bodies.length ? item.bodies : [item];
  let x = PADDING;
  let tallest = 0;
  for (const body of inner) {
    arrange(body, isOpen);
    body.area.x = x;
    body.area.y = HEADER + (item.bodies.length ? ABOVE : 0);
    x += body.area.width + PADDING;
    tallest = Math.max(tallest, body.area.y + body.area.height);
  }
  const title = measure(shortened(item.title, MOST_LETTERS), TITLE) + measure(shortened(item.subtitle ?? "", MOST_LETTERS), SMALL);
  item.width = Math.ceil(Math.max(x, title + measure(countText(item), SMALL) + 70));
  item.height = Math.ceil(tallest + PADDING);
  if (inner.length === 1) inner[0].area.x = (item.width - inner[0].area.width) / 2;
}

/** Lays out the children of a container; `area` is the room that they take. */
function arrange(container, isOpen) {
  for (const child of container.children) place(child, isOpen);
  const places = new Map(container.children.map((child, at) => [child, at]));
  const edges = (container.edges ?? []).filter(([from, to]) => from !== to);
  const layout = layoutOf(
    container.children.map(({ width, height }) => [width, height]),
    edges.map(([from, to, values]) => [places.get(from), places.get(to), Math.min(4, values.size)]),
  );
  container.children.forEach((child, at) => ([child.x, child.y] = layout.corners[at]));
  container.lines = edges.map(([from, to, values], at) => ({ from, to, values: [...values], points: ended(layout.points[at], from, to) }));
  container.area = { x: 0, y: 0, width: layout.width, height: layout.height };
}

const layouts = new Map();

/** What dagre makes of boxes and of edges between them by number; steps written out are laid out once. */
function layoutOf(sizes, edges) {
  const key = JSON.stringify([sizes, edges]);
  if (!layouts.has(key)) layouts.set(key, newLayout(sizes, edges));
  return layouts.get(key);
}

function newLayout(sizes, edges) {
  if (!sizes.length) return { corners: [], points: [], width: 0, height: 0 };
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 18, edgesep: 10, ranksep: 30, marginx: 2, marginy: 2, ranker: "network-simplex" });
  sizes.forEach(([width, height], at) => graph.setNode(at, { width, height }));
  for (const [from, to, weight] of edges) graph.setEdge(from, to, { weight });
  dagre.layout(graph);
  const corners = sizes.map(([width, height], at) => [graph.node(at).x - width / 2, graph.node(at).y - height / 2]);
  const points = edges.map(([from, to]) => graph.edge(from, to).points);
  return { corners, points, width: graph.graph().width, height: graph.graph().height };
}

/** A line's points, from the lower side of a box to the upper side of another wherever the line goes down. */
function ended(points, from, to) {
  const [second, last] = [points[1], points[points.length - 2]];
  const inside = (x, item) => Math.min(item.x + item.width - 6, Math.max(item.x + 6, x));
  if (second.y < from.y + from.height || last.y > to.y) return points;
  return [{ x: inside(second.x, from), y: from.y + from.height }, ...points.slice(1, -1), { x: inside(last.x, to), y: to.y }];
}

/** What is open at the beginning: outer containers first, those of named parts before mere chains, until so many boxes are drawn. */
function openAtFirst(root, most) {
  const open = new Set();
  let shown = root.children.length;
  let waiting = root.children;
  while (waiting.length) {
    const next = [];
    const inside = (item) => (item.bodies.length ? item.bodies.flatMap((body) => body.children) : item.children);
    const chained = (item) => Number(inside(item).some((child) => child.chain));
    for (const item of waiting.filter(isContainer).sort((a, b) => chained(a) - chained(b) || b.count - a.count)) {
      const inner = inside(item);
      // Long lists of inputs tell little.
      if (shown + inner.length > most || inner.every((child) => child.kind === "port")) continue;
      open.add(item.key);
      shown += inner.length;
      next.push(...inner);
    }
    waiting = next;
  }
  return open;
}
