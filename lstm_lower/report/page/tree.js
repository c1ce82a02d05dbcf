"use strict";
// What is drawn, as a tree: nodes, the bodies of loops and branches, and groups of what belongs together.
//
// An item: { key, kind, title, subtitle, notes, tip, part, node, children, bodies, parent, count }.
//   kind: "node", "group", "body" (of a node), "port" (an input or output of a graph, drawn where it is read or made).
// Nodes that stand for one node of the source are a group; of what is left, nodes of one module or whose names begin alike; and
// where a group is still large, nodes that follow each other. Weights and other state are noted in the boxes that read
// or make them: as boxes of their own they would have lines through all of the graph.

const MOST_ITEMS = 80;
const ENOUGH_ITEMS = 36;
const FEWEST_GROUPED = 3;

function buildTree(state) {
  const nodesOf = new Map();
  for (const node of state.nodes.values()) {
    if (isConstant(node)) continue;
    if (!nodesOf.has(node.graph)) nodesOf.set(node.graph, []);
    nodesOf.get(node.graph).push(node);
  }
  const bodiesOf = new Map();
  for (const graph of state.graphs.values()) {
    if (graph.owner === null) continue;
    if (!bodiesOf.has(graph.owner)) bodiesOf.set(graph.owner, []);
    bodiesOf.get(graph.owner).push(graph);
  }
  const leaves = new Map();
  const makers = new Map();

  function nodeItem(node) {
    const type = node.outputs.length ? shortType(value(node.outputs[0]).type) : "";
    const item = {
      key: `n${node.number}`, kind: "node", title: shortOperator(node.operator), subtitle: type, tip: `${node.operator}\n${node.name}`,
      part: partOf(node.sources), node, children: [], bodies: [], count: 1, notes: [],
    };
    for (const graph of bodiesOf.get(node.number) ?? []) {
      const body = graphItem(graph);
      item.bodies.push(body);
      item.count += body.count;
    }
    const inside = item.bodies.reduce((sum, body) => sum + body.seconds, 0);
    item.seconds = state.step === LAST ? inside + (TIMES.get(node.number) ?? 0) : 0;
    leaves.set(node.number, item);
    for (const output of node.outputs) makers.set(output, item);
    return item;
  }

  function group(key, title, subtitle, part, children) {
    const count = children.reduce((sum, child) => sum + child.count, 0);
    const parts = new Set(children.map((child) => child.part).filter((found) => found !== null));
    const item = {
      key: `g${key}`, kind: "group", title, subtitle: subtitle === title ? "" : subtitle, tip: `${title}\n${subtitle}`,
      part: part ?? (parts.size === 1 ? [...parts][0] : null), children, bodies: [], count,
    };
    item.seconds = children.reduce((sum, child) => sum + child.seconds, 0);
    return item;
  }

  function graphItem(graph) {
    const nodes = sorted(nodesOf.get(graph.number) ?? []);
    const items = bySource(graph, nodes);
    const children = divided(`${graph.number}`, items);
    const item = { key: `b${graph.number}`, kind: "body", title: graph.role, graph, children, bodies: [], part: null };
    item.count = children.reduce((sum, child) => sum + child.count, 0);
    item.seconds = children.reduce((sum, child) => sum + child.seconds, 0);
    return item;
  }

  function bySource(graph, nodes) {
    const groups = new Map();
    const order = [];
    // What is in a loop and comes from where the loop does needs no box of its own.
    const around = graph.owner === null ? null : state.nodes.get(graph.owner).sources[0];
    for (const node of nodes) {
      const own = !node.sources.length || node.sources[0] === node.number || node.sources[0] === around;
      const source = own ? null : node.sources[0];
      if (source === null) {
        order.push(nodeItem(node));
      } else if (groups.has(source)) {
        groups.get(source).push(node);
      } else {
        groups.set(source, [node]);
        order.push(source);
      }
    }
    return order.flatMap((entry) => {
      if (typeof entry !== "number") return [entry];
      const members = groups.get(entry).map(nodeItem);
      if (members.length < FEWEST_GROUPED) return members;
      const origin = FIRST.nodes.get(entry);
      const key = `${graph.number}.s${entry}`;
      const inner = members.length > MOST_ITEMS ? inBlocks(key, members) : members;
      const made = group(key, shortOperator(origin.operator), origin.name, partOf([entry]), inner);
      made.scope = scopeOf(origin);
      return [made];
    });
  }

  const tree = graphItem(state.graphs.get(0));
  for (const node of state.nodes.values()) if (!leaves.has(node.number) && !isConstant(node)) throw new Error(`node ${node.number} is in no graph`);
  adopt(tree);
  connect(tree, makers, state);
  return { root: tree, leaves };

  function divided(key, items) {
    if (items.length <= MOST_ITEMS) return items;
    const scoped = balanced(key, byScope(key, items, 0));
    return scoped.length <= MOST_ITEMS ? scoped : inBlocks(key, scoped);
  }

  /** Takes the largest groups of names apart, as long as that leaves few items: one box with nearly everything tells little. */
  function balanced(key, items) {
    let found = items;
    for (;;) {
      const whole = [...found].filter((item) => item.members).sort((a, b) => b.count - a.count)[0];
      if (!whole) return found;
      const parts = byScope(key, whole.members, whole.depth);
      if (found.length - 1 + parts.length > ENOUGH_ITEMS) return found;
      found = found.flatMap((item) => (item === whole ? parts : [item]));
    }
  }

  /** Groups items of one module, or whose names begin alike, one level below what all of them have in common. */
  function byScope(key, items, depth) {
    const parts = (item) => item.scope ?? (item.node ? scopeOf(item.node) : []);
    const named = items.filter((item) => parts(item).length > depth);
    const heads = new Map();
    for (const item of named) {
      const head = parts(item)[depth];
      if (!heads.has(head)) heads.set(head, []);
      heads.get(head).push(item);
    }
    if (heads.size === 1 && named.length === items.length) return byScope(key, items, depth + 1);
    const done = new Set();
    return items.flatMap((item) => {
      const head = parts(item)[depth];
      const members = head === undefined ? [] : heads.get(head);
      if (members.length < FEWEST_GROUPED) return [item];
      if (done.has(head)) return [];
      done.add(head);
      const path = parts(item).slice(0, depth + 1).join("/");
      const inner = members.length > MOST_ITEMS ? byScope(`${key}/${head}`, members, depth + 1) : members;
      const made = group(`${key}/${path}`, head, path, null, inner.length > MOST_ITEMS ? inBlocks(`${key}/${path}`, inner) : inner);
      return [Object.assign(made, { members, depth: depth + 1 })];
    });
  }

  /** Groups of items that follow each other, as large as there are groups. */
  function inBlocks(key, items) {
    const size = Math.min(MOST_ITEMS / 2, Math.ceil(Math.sqrt(items.length)));
    const blocks = [];
    for (let at = 0; at < items.length; at += size) {
      const members = items.slice(at, at + size);
      if (members.length === 1) blocks.push(members[0]);
      else blocks.push(Object.assign(group(`${key}#${at}`, `${at + 1} to ${at + members.length}`, commonest(members), null, members), { chain: true }));
    }
    return blocks.length <= MOST_ITEMS ? blocks : inBlocks(`${key}#`, blocks);
  }
}

/** Tells items what they are in. */
function adopt(item) {
  for (const inner of [...item.children, ...item.bodies]) {
    inner.parent = item;
    adopt(inner);
  }
}

/** The operators that most of some items are. */
function commonest(items) {
  const counts = new Map();
  for (const item of items) counts.set(item.title, (counts.get(item.title) ?? 0) + 1);
  const names = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 3);
  return names.map(([name]) => name).join(", ");
}

/** Nodes in an order in which they can run. */
function sorted(nodes) {
  const maker = new Map(nodes.flatMap((node) => node.outputs.map((output) => [output, node])));
  const done = new Set();
  const order = [];
  for (const first of nodes) {
    const waiting = [first];
    while (waiting.length) {
      const node = waiting[waiting.length - 1];
      const open = done.has(node) ? [] : node.inputs.map((input) => maker.get(input)).filter((other) => other && !done.has(other) && !waiting.includes(other));
      if (open.length) {
        waiting.push(open[0]);
      } else {
        waiting.pop();
        if (!done.has(node)) {
          done.add(node);
          order.push(node);
        }
      }
    }
  }
  return order;
}

/** Whether a value is an input or output of the model that carries state, by what is told of these in the same order. */
function isState(number, numbers, ports) {
  const place = numbers.indexOf(number);
  return place >= 0 && place < ports.length && !["data", "result", "loss"].includes(ports[place].role);
}

/** Gives every container the edges between its children: `edges`, [from, to, values]; and items what leads out of them. */
function connect(root, makers, state) {
  const graphs = [...state.graphs.values()];
  const nodeOf = (number) => state.nodes.get(number);
  const inputs = new Map(graphs.flatMap((graph) => graph.inputs.map((number) => [number, graph])));
  const bodies = new Map();
  const edges = new Map();
  const ports = new Map();

  function chain(item) {
    const found = [];
    for (let at = item; at; at = at.parent) found.push(at);
    return found.reverse();
  }

  function edge(container, from, to, number) {
    const key = `${container.key}|${from.key}|${to.key}`;
    if (!edges.has(key)) {
      edges.set(key, [from, to, new Set()]);
      container.edges = container.edges ?? [];
      container.edges.push(edges.get(key));
    }
    edges.get(key)[2].add(number);
  }

  /** An input or output beside those that read or make it: one far away would have lines through all of the graph. */
  function port(container, number, direction) {
    const key = `${direction}${container.key}.${number}`;
    if (!ports.has(key)) {
      const { name, type } = value(number);
      const title = portTitle(number, direction);
      const item = { key, kind: "port", direction, title, subtitle: shortType(type), tip: `${name}\n${type}`, part: null, value: number, children: [], bodies: [], count: 0, parent: container };
      ports.set(key, item);
      if (direction === "in") container.children.unshift(item);
      else container.children.push(item);
    }
    return ports.get(key);
  }

  /** What a value is in the loop whose body it goes into or comes out of: a state, or one step of a sequence. */
  function portTitle(number, direction) {
    const { name } = value(number);
    const graph = graphs.find((each) => (direction === "in" ? each.inputs : each.outputs).includes(number));
    const owner = graph.owner === null ? null : nodeOf(graph.owner);
    if (!owner || (owner.operator !== "Scan" && owner.operator !== "Loop")) return owner ? lastPart(name) : name;
    const isScan = owner.operator === "Scan";
    const before = isScan ? 0 : direction === "in" ? 2 : 1;
    const states = isScan ? owner.inputs.length - Number(owner.attributes.num_scan_inputs) : owner.inputs.length - 2;
    const place = (direction === "in" ? graph.inputs : graph.outputs).indexOf(number) - before;
    if (place < 0) return direction === "in" && place === -2 ? "step" : "condition";
    if (place < states) return direction === "in" ? `state ${place + 1}` : `next state ${place + 1}`;
    const around = direction === "in" ? owner.inputs[place] : owner.outputs[place];
    return `${lastPart(around === null || around === undefined ? name : value(around).name)}[t]`;
  }

  function use(number, user) {
    const maker = makers.get(number);
    if (!maker) {
      if (isState(number, graphs[0].inputs, CONTENTS.inputs)) user.notes.push(`← ${value(number).name}`);
      else if (inputs.has(number)) edge(user.parent, port(user.parent, number, "in"), user, number);
      return;
    }
    const [from, to] = [chain(maker), chain(user)];
    let depth = 0;
    while (from[depth + 1] && from[depth + 1] === to[depth + 1]) depth++;
    if (!from[depth + 1] || !to[depth + 1]) return;
    for (const item of from.slice(depth + 2)) item.leadsOut = true;
    for (const item of to.slice(depth + 2)) item.leadsIn = true;
    edge(from[depth], from[depth + 1], to[depth + 1], number);
  }

  const nodes = [];
  const walk = (item) => {
    if (item.kind === "body") bodies.set(item.graph.number, item);
    if (item.kind === "node") nodes.push(item);
    [...item.children, ...item.bodies].forEach(walk);
  };
  walk(root);
  for (const item of nodes) for (const input of item.node.inputs) if (input !== null) use(input, item);
  for (const graph of graphs) {
    for (const number of graph.outputs) {
      const maker = makers.get(number);
      if (maker && graph.owner === null && isState(number, graph.outputs, CONTENTS.outputs)) {
        maker.notes.push(`→ ${value(number).name}`);
        continue;
      }
      const own = maker && chain(maker).includes(bodies.get(graph.number));
      if (own) edge(maker.parent, maker, port(maker.parent, number, "out"), number);
      // A body may hand on what it was given, or what stands outside.
      else use(number, port(bodies.get(graph.number), number, "out"));
    }
  }
}
