"use strict";
// The pages beside the graphs: what was found, what each pass did, errors, inputs and outputs, the program.

function fillOverview(page) {
  const { before, after, check } = CONTENTS;
  const counts = [
    ["nodes", before.nodes, after.nodes],
    ["loops", before.loops, after.loops],
    ["ops to lower", before.composites.length, after.composites.length],
    ["weights", before.weights, after.weights],
    ["weight bytes", bytesText(before.weight_bytes), bytesText(after.weight_bytes)],
    ["ai.onnx opset", before.opset, after.opset],
  ].map((row) => row.map(String));
  const verdict = check === null ? ["not run", "plain"] : [check.verdict, check.passed ? "good" : "bad"];
  const changed = STEPS.length - 1;
  page.append(
    el(
      "div",
      { class: "cards" },
      card("nodes", `${before.nodes} → ${after.nodes}`),
      card("loops", `${before.loops} → ${after.loops}`),
      ...(before.composites.length
        ? [card("ops lowered", String(before.composites.length - after.composites.length))]
        : []),
      card("passes that changed it", String(changed)),
      card("check against float64", verdict[0], verdict[1]),
    ),
    el("h2", {}, "Before and after"),
    table([[""], ["before", true], ["after", true]], counts),
  );
  if (before.composites.length) page.append(el("h2", {}, "What was lowered"), compositeTable(before.composites));
  else page.append(el("p", {}, changed ? "The model has no op to lower, but passes changed it." : "The model has no op to lower, and no pass changed it."));
  const operators = [...new Set([...Object.keys(before.operators), ...Object.keys(after.operators)])];
  const rows = operators.map((name) => [name, String(before.operators[name] ?? 0), String(after.operators[name] ?? 0)]);
  page.append(el("h2", {}, "Operators"), table([["operator"], ["before", true], ["after", true]], rows));
}

const card = (title, text, kind = "") => el("div", { class: `card ${kind}` }, el("div", { class: "figure" }, text), el("div", {}, title));

function compositeTable(composites) {
  const kinds = new Map();
  for (const composite of composites) {
    const sizes = Object.entries(composite.operands).map(([name, type]) => `${name}: ${type}`).join("  ");
    const key = `${composite.op}|${sizes}`;
    if (!kinds.has(key)) kinds.set(key, { op: composite.op, nodes: [], sizes });
    kinds.get(key).nodes.push(composite.node);
  }
  const rows = [...kinds.values()].map(({ op, nodes, sizes }) => [op, String(nodes.length), shortened(nodes[0], 60), sizes]);
  return table([["op"], ["nodes", true], ["the first"], ["operands"]], rows, { class: "wide" });
}

/** `show(step)` draws the graph before and after a step. */
function fillPasses(page, show) {
  page.append(
    el("h2", {}, "What each pass changed"),
    el("p", {}, "In the order in which they ran. A click shows the graph before and after a pass, with added and removed nodes marked."),
  );
  const rows = STEPS.map((step, at) =>
    el(
      "tr",
      { class: "press", tabindex: 0, "data-step": at, onclick: () => show(at), onkeydown: (event) => event.key === "Enter" && show(at) },
      [String(at), at === 0 ? "the source" : step.pass, at === 0 ? "" : String(step.round), at === 0 ? "" : signed(step.added), at === 0 ? "" : signed(-step.gone.length), at === 0 ? "" : String(step.nodes.length - step.added), String(step.count)].map((text, column) => el("td", { class: column === 1 ? null : "number" }, text)),
      el("td", { class: "what" }, CONTENTS.passes[step.pass] ?? ""),
    ),
  );
  page.append(table([["", true], ["pass"], ["round", true], ["new", true], ["gone", true], ["changed", true], ["nodes", true], ["what it does"]], rows, { id: "steps" }));
  for (const note of CONTENTS.notes) page.append(el("p", {}, note));
  page.append(el("h2", {}, "What was left alone, and why"));
  if (!CONTENTS.refusals.length) {
    page.append(el("p", {}, "Nothing was refused."));
    return;
  }
  const names = [...new Set(CONTENTS.refusals.map(([name]) => name))].sort();
  const body = el("div", {});
  const choice = el("select", { id: "refusing", "aria-label": "Pass" }, el("option", { value: "" }, `all passes (${CONTENTS.refusals.length})`));
  for (const name of names) choice.append(el("option", { value: name }, `${name} (${CONTENTS.refusals.filter(([own]) => own === name).length})`));
  const list = () => body.replaceChildren(table([["pass"], ["where"], ["why"]], CONTENTS.refusals.filter(([name]) => !choice.value || name === choice.value)));
  choice.addEventListener("change", list);
  list();
  page.append(choice, body);
}

const signed = (count) => (count === 0 ? "0" : count > 0 ? `+${count}` : `−${-count}`);

const number = (found) => (found === null || found === undefined ? "–" : typeof found === "string" ? found : found === 0 ? "0" : found.toExponential(1));

function fillErrors(page) {
  const check = CONTENTS.check;
  if (CONTENTS.certificate !== null) page.append(el("h2", {}, "When the step was made"), el("p", { id: "certificate" }, CONTENTS.certificate));
  page.append(el("h2", {}, "Errors against float64"));
  if (check === null) {
    page.append(el("p", {}, "The model was not run (--no-run)."));
    return;
  }
  page.append(
    el("p", {}, "The source evaluated in float64, with an oracle for each op that was lowered; the lowered model run by onnxruntime, its graph optimiser off and on."),
    el("p", {}, el("strong", { class: check.passed ? "good" : "bad" }, check.verdict), `: the tolerance is ${number(check.rtol)} of an output's largest magnitude plus ${number(check.atol)}.`),
  );
  const recorded = check.outputs.some((row) => row.recorded !== null);
  const original = check.outputs.some((row) => row.original !== null);
  const columns = [
    ["output"], ["shape"], ["largest error", true], ["relative, not optimised", true], ["relative, optimised", true],
    ...(recorded ? [["recorded result", true]] : []), ...(original ? [["the original's own", true]] : []), ["verdict"],
  ];
  const rows = check.outputs.map((row) => [
    row.name,
    `${row.dtype} [${row.shape.join(", ")}]`,
    number(row.absolute.default),
    number(row.relative.disabled),
    number(row.relative.default),
    ...(recorded ? [number(row.recorded)] : []),
    ...(original ? [number(row.original)] : []),
    el("span", { class: row.agrees ? "good" : row.verdict === "random" ? "" : "bad" }, row.verdict),
  ]);
  page.append(table(columns, rows));
}

const MOST_TIMES = 40;

/** `go(number)` shows a node of the last state. */
function fillTimes(page, go) {
  const times = CONTENTS.times;
  if (!times) return;
  const share = (seconds) => `${((100 * seconds) / ALL_TIME).toFixed(1)} %`;
  const where = (place) => (place.length ? place.map((name) => shortened(name, 48)).join(" in ") : "the main graph");
  page.append(
    el("h2", {}, "Where the time of a run goes"),
    el("p", {}, "From onnxruntime's profile of the lowered model. Profiling makes short calls appear longer than they are. Nodes that onnxruntime fused have names of its own."),
    el("h3", {}, "by loop"),
    table([["in"], ["iterations", true], ["calls", true], ["time", true], ["share", true]], times.loops.map(([place, iterations, calls, seconds]) => [where(place), String(iterations), String(calls), timeText(seconds), share(seconds)])),
    el("h3", {}, "by operator"),
    table([["operator"], ["calls", true], ["time", true], ["share", true]], times.ops.map(([op, calls, seconds]) => [op, String(calls), timeText(seconds), share(seconds)])),
    el("h3", {}, "by node, the longest first"),
  );
  const rows = times.nodes
    .filter((time) => !time.bodies)
    .slice(0, MOST_TIMES)
    .map((time) => [time.op, time.number === null ? time.name : link(time.name, () => go(time.number)), where(time.place), String(time.calls), timeText(time.seconds), share(time.seconds)]);
  page.append(table([["operator"], ["node"], ["in"], ["calls", true], ["time", true], ["share", true]], rows, { id: "slowest" }));
}

function fillInterface(page) {
  const columns = [["name"], ["type"], ["role"], ["state"]];
  const row = (port, text) => [port.name, el("code", {}, port.type), port.role, text];
  const inputs = CONTENTS.inputs.map((port) => row(port, [port.partner && `next value: ${port.partner}`, port.has_value && "has an initial value"].filter(Boolean).join("; ")));
  const outputs = CONTENTS.outputs.map((port) => row(port, port.partner && (port.role === "gradient" ? `of ${port.partner}` : `next value of ${port.partner}`)));
  page.append(el("h2", {}, "Inputs"), table(columns, inputs), el("h2", {}, "Outputs"), table(columns, outputs));
}

function fillProgram(page) {
  const text = CONTENTS.program;
  const copy = el("button", { type: "button", id: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(byId("code"));
      copy.textContent = "Selected";
    }
  });
  page.append(
    el("h2", {}, CONTENTS.inputs.some((port) => port.partner) ? "A training loop" : "A program that runs it"),
    el("p", {}, "With onnxruntime and numpy alone, for the model that ", el("code", {}, "lstm-lower lower"), " writes. Put your own data in the place of the random ones."),
    copy,
    el("pre", { id: "code" }, text),
  );
}
