/*
 * Licensed to the Apache Software Foundation (ASF) under one or more contributor license
 * agreements.  See the NOTICE file distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
 * Version 2.0 (the "License"); you may not use this file except in compliance with the
 * License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software distributed under the
 * License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
 * either express or implied.  See the License for the specific language governing permissions
 * and limitations under the License.
 */
// The page: an overview of the model, the graph, and the tables.

const byId = (id) => document.getElementById(id);

/** The report, from the compressed JSON in the page. */
async function readReport() {
  const packed = Uint8Array.from(atob(byId("data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function tile(title, value, detail, { mark = "", extra = null } = {}) {
  return make("div", { className: "tile" },
    make("h2", {}, title), make("strong", { className: mark }, value), extra, make("p", {}, detail || ""));
}

/** Parts of a whole, as a bar. */
function stack(parts) {
  const bars = parts.map(([title, value], at) => {
    const bar = make("i", { className: `s${at}`, title: `${title}: ${bytes(value)}` });
    bar.style.flexGrow = value;
    return bar;
  });
  return make("div", { className: "stack" }, ...bars);
}

function runTile({ profile, compilation, no_profile: reason }) {
  const { latency_ms: ours, reference_latency_ms: theirs, reference } = compilation || {};
  const compiled = isKnown(ours) && isKnown(theirs) ? `when compiled ${time(ours / 1e3)}, ${shown(reference)} ${time(theirs / 1e3)}` : "";
  if (!profile) return tile("One run", "not measured", compiled || shown(reason));
  const measured = `kernels ${time(profile.kernel_seconds)}, median of ${profile.runs} runs`;
  const other = profile.reference ? `${shown(profile.reference.name)} ${time(profile.reference.run_seconds)}` : compiled;
  return tile("One run", time(profile.run_seconds), [measured, other].filter(Boolean).join("; "));
}

// The time of the reference for a call, which several calls may share.
function referenceTime({ reference_seconds: seconds, matched_with: calls }) {
  if (!isKnown(seconds)) return "";
  return time(seconds) + (calls.length > 1 ? `, ${count(calls.length)} kernels` : "");
}

function referenceName({ profile }) {
  return profile && profile.reference ? shown(profile.reference.name.replace(/ [^ ]*$/, "")) : "Reference";
}

// The sizes of symbolic dims that were compared.
function sizesText({ sizes, further }) {
  const compared = [sizes, ...(further || []).filter((each) => !each.skipped).map((each) => each.sizes)];
  const text = (each) => Object.entries(each || {}).map(([name, size]) => `${name}=${size}`).join(", ");
  return compared.map(text).filter(Boolean).join("; ");
}

function outputsTile({ compilation, comparison }) {
  const outputs = comparison ? comparison.outputs : (compilation && compilation.outputs) || [];
  const reference = comparison ? comparison.reference : compilation && compilation.reference;
  if (!reference) return tile("Outputs", "not compared", "compiled without a comparison");
  const { title, mark, off } = summary(outputs, "equal"), sizes = sizesText(comparison || compilation);
  const worst = outputs.map((output) => output.max_rel_error).filter(isKnown).reduce((a, b) => Math.max(a, b), 0);
  const details = [`with ${reference}`, sizes, `relative error ${errorText(worst)}${off}`];
  return tile("Outputs", title, shown(details.filter(Boolean).join("; ")), { mark });
}

// The number of equal results; whether those that differ are accepted, since the reference is off.
function summary(results, allEqual) {
  const differ = results.filter((result) => !result.equal).length, rejected = results.filter((result) => !result.accepted).length;
  return {
    title: differ ? `${count(differ)} of ${count(results.length)} differ` : allEqual,
    mark: rejected ? "bad" : differ ? "" : "good",
    off: differ > rejected ? `; the float64 run agrees with ours for ${differ - rejected}` : "",
  };
}

const verdictColumn = (result) => ({
  title: "Verdict", isName: true, value: (row) => verdictText(result(row)),
  mark: (row) => (result(row).equal ? "good" : result(row).accepted ? "" : "bad"),
});

const verdictText = (result) => (result.accepted ? result.verdict : result.problem || "differs");

function valuesTile({ comparison }) {
  if (!comparison) return null;
  const { values, first, reference_off: referenceOff } = comparison, { title, mark } = summary(values.map((value) => value.result), `${count(values.length)} equal`);
  const accepted = referenceOff.length ? `the float64 run agrees with ours: ${shown(referenceOff[0])}` : "all intermediate values are equal";
  return tile("Values", title, first === null ? accepted : `first: ${shown(first)}`, { mark });
}

function sizeParts({ inspection }) {
  const { nbytes, constant_bytes: constants, code_bytes: code, debug_bytes: debug } = inspection;
  return [["constants", constants], ["code", code], ["debug information", debug], ["other", Math.max(0, nbytes - constants - code - debug)]];
}

function sizeTile(report) {
  const { nbytes, size_ratio: ratio } = report.inspection, parts = sizeParts(report);
  const named = `constants ${bytes(parts[0][1])}, code ${bytes(parts[1][1])}`;
  return tile("Size", bytes(nbytes), ratio ? `${digits(ratio)} × parameters · ${named}` : named, { extra: stack(parts) });
}

function kernelsTile({ graph }) {
  const kernels = new Set(graph.map((call) => call.kernel)).size;
  const largest = graph.map((call) => call.nbytes).filter(isKnown).reduce((a, b) => a + b, 0);
  return tile("Kernels", `${count(graph.length)} calls`, `of ${count(kernels)} kernels · ${bytes(largest)} read and written`);
}

function showTop(report) {
  const { target, triple, versions, compilation, profile } = report;
  document.title = `${shown(report.name)} – tvm-fixes report`;
  byId("name").textContent = shown(report.name);
  const machine = [target.kind, target.mcpu || target.arch, triple].filter(Boolean).join(" ");
  const packages = Object.entries(versions).map((pair) => pair.join(" ")).join(", ");
  const layout = compilation && compilation.layout ? `layout ${compilation.layout}` : "";
  byId("about").textContent = [shown(machine), layout, shown(packages)].filter(Boolean).join(" · ");
  const tiles = [runTile, outputsTile, valuesTile, sizeTile, kernelsTile].map((one) => one(report));
  byId("tiles").append(...tiles.filter(Boolean));
  const why = [];
  if (!profile) why.push(`Times are not shown: ${shown(report.no_profile)}.`);
  if (!report.has_edges) why.push("Edges are unknown: the artifact was compiled by an earlier version. The order is that of the program.");
  if (profile && !profile.is_exact) why.push("The model has branches or loops: times are shown for kernels with one call in the program.");
  if (!report.graph.length) why.push("The artifact records no kernels.");
  byId("why").textContent = why.join(" ");
  byId("why").hidden = !why.length;
}

// The graph.

function showLegend(graph) {
  const legend = byId("legend"), { color } = graph, theme = graph.theme;
  const swatch = (fill, text) => {
    const box = make("canvas", { width: 11, height: 11 });
    const context = box.getContext("2d");
    context.fillStyle = fill;
    context.fillRect(0, 0, 11, 11);
    return make("span", { className: "key" }, box, shown(text));
  };
  if (!color.span) {
    const classes = graph.classes.slice(0, 12).map((name) => swatch(graph.classColor(name, theme), name));
    legend.replaceChildren(...classes, swatch(theme.unknown, "no layout"));
    return;
  }
  if (graph.range.isEmpty) {
    legend.replaceChildren(swatch(theme.unknown, "unknown"));
    return;
  }
  const bar = make("canvas", { width: 130, height: 10 }), context = bar.getContext("2d");
  for (let x = 0; x < 130; x += 1) {
    context.fillStyle = mixed(theme[color.key], x / 129);
    context.fillRect(x, 0, 1, 10);
  }
  const { low, high } = graph.range, parts = [color.text(low), bar, color.text(high)];
  if (graph.calls.some((call) => !isKnown(call[color.key]))) parts.push(swatch(theme.unknown, "unknown"));
  if (color.key === "error" && graph.calls.some((call) => call.verdict === "different")) parts.push(swatch(theme.bad, "differs (outlined)"));
  legend.replaceChildren(...parts);
}

function link(graph, at, value = "") {
  const text = make("span", {}, `${at} · ${operators(graph.calls[at])}`);
  return make("li", {}, make("button", {
    type: "button", className: "link", title: shown(graph.calls[at].kernel),
    onclick: () => graph.select(at, { show: graph.view.scale < TEXT_SCALE }),
  }, text, make("b", {}, value)));
}

function links(graph, title, list) {
  if (!list.length) return [];
  const some = list.slice(0, 30), left = list.length - some.length;
  return [make("h3", {}, title), make("ul", {}, ...some.map((at) => link(graph, at)), left ? make("li", { className: "quiet" }, `and ${left} more`) : null)];
}

/** Shown until a kernel is selected: how to use the graph, and where to look first. */
function showHelp(graph, details) {
  const key = graph.calls.some((call) => isKnown(call.seconds)) ? "seconds" : "nbytes";
  const order = graph.calls.map((_, at) => at).filter((at) => isKnown(graph.calls[at][key]));
  order.sort((one, other) => graph.calls[other][key] - graph.calls[one][key]);
  const text = key === "seconds" ? time : bytes;
  const first = order.slice(0, 12).map((at) => link(graph, at, text(graph.calls[at][key])));
  details.replaceChildren(
    make("h2", {}, "No kernel selected"),
    make("p", { className: "quiet" }, "Each box is a call of a kernel. Click one to see the nodes of the model that it computes, its tensors and its figures."),
    make("p", { className: "quiet" }, "Drag to move, turn the wheel to zoom. Arrow keys follow the data; 0 shows all, / searches."),
    ...(first.length ? [make("h3", {}, key === "seconds" ? "Slowest" : "Most bytes"), make("ul", {}, ...first)] : []));
}

function showDetails(graph, report, at) {
  const details = byId("details");
  if (at === null) {
    showHelp(graph, details);
    return;
  }
  const call = report.graph[at], total = report.profile && report.profile.kernel_seconds;
  const verdict = call.verdict === null ? null : make("span", { className: call.verdict.startsWith("equal") ? "good" : call.verdict === "different" ? "bad" : "" }, call.verdict);
  const flow = perSecond(call.nbytes, call.seconds), work = perSecond(call.flops, call.seconds);
  const nodes = call.nodes.map((node) => make("li", {}, shown(node.operator), " ",
    make("span", { className: "quiet name" }, shown([node.name, node.path].filter(Boolean).join(" in ")))));
  details.replaceChildren(
    make("h2", {}, operators(call)),
    make("p", { className: "quiet" }, `call ${at} of `, named(call.kernel, "span", "name code")),
    facts([
      ["time", isKnown(call.seconds) ? `${time(call.seconds)}${total ? ` (${share(call.seconds / total)})` : ""}` : null],
      [referenceName(report), referenceTime(call) || null],
      ["runs", call.runs > 1 ? count(call.runs) : null],
      ["bytes", isKnown(call.nbytes) ? bytes(call.nbytes) + (isKnown(flow) ? ` (${rate(flow)} GB/s)` : "") : null],
      ["operations", call.flops ? `${inUnit(call.flops, ["", "k", "M", "G", "T"])}FLOP${isKnown(work) ? ` (${rate(work)} GFLOP/s)` : ""}` : null],
      ["of the limit", isKnown(call.share_of_limits) ? ofLimit(call.share_of_limits) : null],
      ["layout", call.layout],
      ["relative error", isKnown(call.error) ? errorText(call.error) : null],
      ["values", verdict],
    ], ""),
    make("h3", {}, call.nodes.length ? "Nodes of the model" : "Its nodes are unknown"), make("ul", {}, ...nodes),
    ...(call.operands.length ? [make("h3", {}, "Operands"), make("ul", {}, ...call.operands.map((type) => make("li", {}, named(type, "span", "name code"))))] : []),
    ...(call.results.length ? [make("h3", {}, "Results"), make("ul", {}, ...call.results.map((type) => make("li", {}, named(type, "span", "name code"))))] : []),
    ...links(graph, `Time in ${referenceName(report)} shared with`, call.matched_with.filter((other) => other !== at)),
    ...links(graph, "Reads the results of", call.reads || []),
    ...links(graph, "Read by", graph.readers[at]));
  details.scrollTop = 0;
}

function showTip(graph, at, x, y) {
  const tip = byId("tip");
  tip.hidden = at === null || at === undefined;
  if (tip.hidden) return;
  const call = graph.calls[at];
  const numbers = [isKnown(call.seconds) ? time(call.seconds) : null, isKnown(call.nbytes) ? bytes(call.nbytes) : null,
    call.layout || null, isKnown(call.error) ? `error ${errorText(call.error)}` : null];
  tip.replaceChildren(make("div", {}, make("b", {}, operators(call))), make("div", { className: "quiet name" }, places(call)),
    make("div", { className: "quiet" }, numbers.filter(Boolean).join(" · ")));
  const stage = byId("stage");
  tip.style.left = `${Math.max(4, Math.min(x + 14, stage.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, stage.clientHeight - tip.offsetHeight - 8))}px`;
}

function showGraph(report) {
  const graph = new Graph(byId("canvas"), report, {
    onSelect: (at) => showDetails(graph, report, at),
    onHover: (at, x, y) => showTip(graph, at, x, y),
  });
  byId("canvas").setAttribute("aria-label",
    `Graph of ${report.graph.length} kernel calls. The arrow keys follow the data and the order of the program.`);
  const select = byId("color");
  select.append(...COLORS.map(({ key, title }) => make("option", { value: key }, title)));
  const has = (key) => report.graph.some((call) => isKnown(call[key]));
  for (const option of select.options) option.disabled = option.value !== "layout" && !has(option.value);
  select.value = ["seconds", "error", "nbytes"].find(has) || "layout";
  const color = () => {
    graph.colorBy(select.value);
    showLegend(graph);
  };
  select.addEventListener("change", color);
  graph.dark.addEventListener("change", () => showLegend(graph));
  byId("in").addEventListener("click", () => graph.zoom(1.4));
  byId("out").addEventListener("click", () => graph.zoom(1 / 1.4));
  byId("fit").addEventListener("click", () => graph.fit());
  color();
  showDetails(graph, report, null);
  return graph;
}

function listenToSearch(graph) {
  const input = byId("search"), matches = byId("matches");
  let found = [], at = -1;
  input.addEventListener("input", () => {
    [found, at] = [graph.find(input.value), -1];
    matches.textContent = input.value.trim() ? `${count(found.length)} found` : "";
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !found.length) return;
    at = (at + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    if (event.shiftKey && at < 0) at = found.length - 1;
    matches.textContent = `${count(at + 1)} of ${count(found.length)}`;
    graph.select(found[at], { show: true });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    input.focus();
  });
}

// The tables.

function kernelTable(report, open) {
  const { graph, profile } = report, total = profile && profile.kernel_seconds;
  const others = profile ? profile.kernels.filter((kernel) => !isKnown(kernel.call)) : [];
  const rows = [...graph.map((call, at) => ({ ...call, at })), ...others.map((kernel) => ({ ...kernel, at: null }))];
  const has = (key) => rows.some((row) => isKnown(row[key]) && row[key] !== "");
  const number = (title, value, text, key) => (has(key) ? { title, value, text: (row) => text(value(row)), isNumber: true } : null);
  const columns = [
    { title: "#", value: (row) => row.at, text: (row) => row.at, isNumber: true },
    { title: "Operators", value: operators, isWide: true },
    { title: "Module or node", value: places, isWide: true, isName: true },
    number("Time", (row) => row.seconds, time, "seconds"),
    has("reference_seconds")
      ? { title: referenceName(report), value: (row) => row.reference_seconds, text: referenceTime, isNumber: true } : null,
    number("Share", (row) => (isKnown(row.seconds) && total ? row.seconds / total : null), share, "seconds"),
    number("GFLOP/s", (row) => perSecond(row.flops || null, row.seconds), rate, "seconds"),
    number("GB/s", (row) => perSecond(row.nbytes, row.seconds), rate, "seconds"),
    number("Of limit", (row) => row.share_of_limits, ofLimit, "share_of_limits"),
    number("Bytes", (row) => row.nbytes, bytes, "nbytes"),
    has("layout") ? { title: "Layout", value: (row) => row.layout || "" } : null,
    number("Error", (row) => row.error, errorText, "error"),
    { title: "Kernel", value: (row) => row.kernel, isName: true },
  ].filter(Boolean);
  const sort = has("seconds") ? { column: "Time", isRising: false } : null;
  return new Table(columns, rows, { sort, opens: (row) => row.at !== null, onOpen: (row) => open(row.at) }).element;
}

function valueTable({ comparison, graph }, open) {
  const key = (node) => JSON.stringify([node.name, node.operator, node.path]);
  const at = new Map(graph.flatMap((call, place) => call.nodes.map((node) => [key(node), place])));
  const result = (name) => (row) => row.result[name];
  const columns = [
    { title: "Value", value: result("name"), isName: true, isWide: true },
    { title: "Operator", value: (row) => shortOperator(row.node.operator) },
    { title: "Module or node", value: (row) => row.node.path || row.node.name, isName: true, isWide: true },
    { title: "Type", value: (row) => `${row.result.dtype} (${row.result.shape.join(", ")})` },
    { title: "Relative error", value: result("max_rel_error"), text: (row) => errorText(row.result.max_rel_error), isNumber: true },
    { title: "Absolute error", value: result("max_abs_error"), text: (row) => errorText(row.result.max_abs_error), isNumber: true },
    { title: "NaN", value: (row) => row.nans, text: (row) => (row.nans ? count(row.nans) : ""), isNumber: true },
    { title: "Infinite", value: (row) => row.infinities, text: (row) => (row.infinities ? count(row.infinities) : ""), isNumber: true },
    verdictColumn((row) => row.result),
  ];
  const table = new Table(columns, comparison.values, { opens: (row) => at.has(key(row.node)), onOpen: (row) => open(at.get(key(row.node))) });
  const skipped = Object.entries(comparison.skipped).map(([name, reason]) => `${name}: ${reason}`);
  return make("div", {}, facts([
    ["compared with", comparison.reference], ["sizes", sizesText(comparison)], ["first difference", comparison.first],
    ["reference off at", comparison.reference_off.slice(0, 20).join(", ")],
    ["error grows at", comparison.growth.slice(0, 20).join(", ")], ["not compared", skipped],
  ]), table.element);
}

function outputTable({ compilation, comparison }) {
  const outputs = comparison ? comparison.outputs : compilation.outputs;
  const numeric = (title, name) => ({ title, value: (row) => row[name], text: (row) => errorText(row[name]), isNumber: true });
  return new Table([
    { title: "Output", value: (row) => row.name, isName: true, isWide: true },
    { title: "Type", value: (row) => `${row.dtype} (${row.shape.join(", ")})` },
    numeric("Relative error", "max_rel_error"), numeric("Absolute error", "max_abs_error"),
    numeric("From float64", "float64_error"), numeric("Reference from float64", "reference_float64_error"),
    verdictColumn((row) => row),
  ], outputs).element;
}

function sizeTables(report) {
  const { inspection } = report;
  const parts = sizeParts(report).map(([title, value]) => [title, bytes(value)]);
  const files = Object.entries(inspection.files).map(([name, size]) => `${name}: ${bytes(size)}`);
  const constants = new Table([
    { title: "Constant", value: (row) => row.parameters.join(", ") || row.made_by || `constant ${row.index}`, isName: true, isWide: true },
    { title: "Type", value: (row) => (row.dtype ? `${row.dtype} (${row.shape.join(", ")})` : row.kind) },
    { title: "Bytes", value: (row) => row.nbytes, text: (row) => bytes(row.nbytes), isNumber: true },
    { title: "Made by", value: (row) => row.made_by, isName: true },
    { title: "Equal to", value: (row) => (isKnown(row.duplicate_of) ? `constant ${row.duplicate_of}` : "") },
    { title: "#", value: (row) => row.index, isNumber: true },
  ], inspection.constants.filter((one) => one.kind === "tensor"), { sort: { column: "Bytes", isRising: false } });
  return make("div", {}, facts([...parts, ["duplicates", inspection.duplicate_bytes ? bytes(inspection.duplicate_bytes) : ""], ["files", files]]), constants.element);
}

function compilationFacts({ compilation, inputs, outputs, profile }) {
  const steps = compilation ? Object.entries(compilation.seconds).map(([name, seconds]) => `${name}: ${time(seconds)}`) : [];
  const others = profile ? Object.entries(profile.other_seconds).map(([name, seconds]) => `${name}: ${time(seconds)}`) : [];
  const limits = profile ? `${digits(profile.limits.flops / 1e9)} GFLOP/s, ${digits(profile.limits.bandwidth / 1e9)} GB/s (NumPy)` : "";
  const known = compilation || {};
  return facts([
    ["inputs", inputs], ["outputs", outputs], ["layout", known.layout], ["fixes", known.fixes],
    ["warnings", known.warnings], ["layout transforms", isKnown(known.activation_transforms) ? count(known.activation_transforms) : null],
    ["unproven conditions", isKnown(known.unproved) ? count(known.unproved) : null], ["not folded", known.unfolded],
    ["products in integers", known.integer_products ? count(known.integer_products) : ""], ["products in floats", known.float_products],
    ["later schedule rules", known.fallbacks], ["compile time", steps], ["calls of the virtual machine", others], ["limits of the machine", limits],
  ]);
}

function showTables(report, open) {
  const outputs = report.comparison ? report.comparison.outputs : (report.compilation && report.compilation.outputs) || [];
  const tabs = [
    report.graph.length ? ["Kernels", () => kernelTable(report, open)] : null,
    report.comparison ? ["Values", () => valueTable(report, open)] : null,
    outputs.length ? ["Outputs", () => outputTable(report)] : null,
    ["Size", () => sizeTables(report)],
    ["Compilation", () => compilationFacts(report)],
  ].filter(Boolean);
  const made = new Map(), buttons = tabs.map(([title]) => make("button", { type: "button" }, title));
  const show = (at) => {
    if (!made.has(at)) made.set(at, tabs[at][1]());
    byId("panel").replaceChildren(made.get(at));
    byId("panel").setAttribute("aria-label", tabs[at][0]);
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", String(index === at));
      button.tabIndex = index === at ? 0 : -1;
    });
  };
  buttons.forEach((button, at) => {
    button.setAttribute("role", "tab");
    button.addEventListener("click", () => show(at));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = (at + step + tabs.length) % tabs.length;
      show(next);
      buttons[next].focus();
    });
  });
  byId("tabs").append(...buttons);
  show(0);
}

async function start() {
  try {
    const report = await readReport();
    byId("report").hidden = false;
    showTop(report);
    const graph = showGraph(report);
    listenToSearch(graph);
    showTables(report, (at) => {
      graph.select(at, { show: true });
      byId("graph").scrollIntoView({ block: "nearest" });
    });
    graph.resize();
    window.report = { graph, values: report };
  } catch (error) {
    byId("failure").textContent = `The page cannot be shown: ${error.message}`;
    byId("failure").hidden = false;
    throw error;
  }
}

start();
