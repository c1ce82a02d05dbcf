"use strict";
// The contents of the page, and the graph as it was after any of the passes.

const CONTENTS = JSON.parse(byId("contents").textContent);
const STEPS = CONTENTS.steps;
const LAST = STEPS.length - 1;

const value = (number) => {
  const [name, type, constant] = CONTENTS.values[number];
  return { number, name, type, constant };
};

function decodeNode([number, graph, operator, name, inputs, outputs, attributes, sources, scope = []], step) {
  return { number, graph, operator, name, inputs, outputs, attributes, sources, scope, step };
}

const decodeGraph = ([number, owner, role, inputs, outputs]) => ({ number, owner, role, inputs, outputs });

/** The nodes and graphs after a step; `born` tells the step that brought a node. */
function stateAt(step) {
  const nodes = new Map();
  const graphs = new Map();
  const born = new Map();
  for (let at = 0; at <= step; at++) {
    for (const number of STEPS[at].gone) nodes.delete(number);
    for (const list of STEPS[at].nodes) {
      const node = decodeNode(list, at);
      if (!born.has(node.number)) born.set(node.number, at);
      nodes.set(node.number, node);
    }
    for (const list of STEPS[at].graphs) graphs.set(list[0], decodeGraph(list));
  }
  for (const [number, graph] of graphs) if (graph.owner !== null && !nodes.has(graph.owner)) graphs.delete(number);
  return { step, nodes, graphs, born };
}

const FIRST = stateAt(0);

/** Names of what is around a node: the modules that its source tells, else what its name has before slashes. */
function scopeOf(node) {
  const told = node.scope.length ? node.scope : (FIRST.nodes.get(node.sources[0])?.scope ?? []);
  return told.length ? told : node.name.split("/").slice(0, -1).filter(Boolean);
}

/** The colour of a node: the number of the part of the source that it comes from, or null. */
function partOf(sources) {
  for (const source of sources) if (source in CONTENTS.part_of) return CONTENTS.part_of[source];
  return null;
}

/** Node -> seconds, in the last state; of loops and branches what is in them counts. */
const TIMES = new Map((CONTENTS.times?.nodes ?? []).filter((time) => time.number !== null && !time.bodies).map((time) => [time.number, time.seconds]));
const ALL_TIME = (CONTENTS.times?.nodes ?? []).reduce((sum, time) => sum + (time.bodies ? 0 : time.seconds), 0);

/** A share of the time of a run, as text; empty for what is less than a hundredth. */
const shareText = (seconds) => (ALL_TIME && seconds >= 0.01 * ALL_TIME ? `${Math.round((100 * seconds) / ALL_TIME)} % of the time` : "");

const timeText = (seconds) => (seconds >= 1 ? `${seconds.toFixed(2)} s` : seconds >= 1e-3 ? `${(1e3 * seconds).toFixed(2)} ms` : `${(1e6 * seconds).toFixed(0)} µs`);

const shortOperator = (operator) => operator.slice(operator.lastIndexOf(":") + 1);

const isConstant = (node) => node.outputs.length === 1 && CONTENTS.values[node.outputs[0]][2] !== null;

const stepTitle = (at) => (at === 0 ? "the source" : `${STEPS[at].pass}${STEPS[at].round > 1 ? `, round ${STEPS[at].round}` : ""}`);
