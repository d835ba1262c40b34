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
// The drawing of the kernels on a canvas: thousands of nodes are too many for elements.

// The size of a place in a row, and of a row, as in placement.py.
const PLACE = 192, ROW = 62, WIDTH = 172, HEIGHT = 42;
const MIN_SCALE = 0.005, MAX_SCALE = 2.5;
// The smallest scales at which text is legible, and at which edges can be told apart.
const TEXT_SCALE = 0.5, EDGE_SCALE = 0.04;

const RAMPS = {
  light: {
    seconds: ["#fff3cf", "#fdd07a", "#f99a4c", "#df4f30", "#8f1230"],
    nbytes: ["#e6f0fa", "#b3d2ee", "#6fabdd", "#2f72b5", "#123f75"],
    error: ["#dcf1e2", "#a8dba0", "#f3dc72", "#ee9440", "#c02f2a"],
    classes: ["#4c86c6", "#e59a3c", "#57a773", "#b46fb5", "#c9605a", "#3fa7a3", "#8a7bd1", "#a58b4f"],
  },
  dark: {
    seconds: ["#4d433b", "#7a5329", "#b5622c", "#ee8f40", "#ffd994"],
    nbytes: ["#31455c", "#2c5380", "#2f6cab", "#5ea3e6", "#c3e0ff"],
    error: ["#2b5641", "#44805a", "#a48d33", "#dd7c3c", "#ff6f68"],
    classes: ["#5c97d9", "#e5a14c", "#62b981", "#c283c3", "#de7871", "#4fb9b4", "#9d8fe6", "#b99f62"],
  },
};

/** How to color the nodes: by a value on a logarithmic scale, or by a class. */
const COLORS = [
  { key: "seconds", title: "Time", text: time, span: 1e3 },
  { key: "error", title: "Error", text: errorText, span: 1e8, least: 1e-2 },
  { key: "nbytes", title: "Bytes", text: bytes, span: 1e4 },
  { key: "layout", title: "Layout", text: (value) => value || "no layout" },
];

function mixed(ramp, at) {
  const place = Math.min(Math.max(at, 0), 1) * (ramp.length - 1);
  const from = Math.min(Math.floor(place), ramp.length - 2);
  const part = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const parts = [0, 1, 2].map((i) => {
    const [low, high] = [part(ramp[from], i), part(ramp[from + 1], i)];
    return Math.round(low + (high - low) * (place - from));
  });
  return "#" + parts.map((value) => value.toString(16).padStart(2, "0")).join("");
}

function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#14202c" : "#f7fafc";
}

class Graph {
  constructor(canvas, report, { onSelect, onHover }) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.onSelect = onSelect;
    this.onHover = onHover;
    this.hasEdges = report.has_edges;
    this.calls = report.graph;
    this.nodes = this.calls.map((call) => ({
      x: call.x * PLACE, y: call.y * ROW, label: operators(call), place: commonPlace(call),
    }));
    this.readers = this.calls.map(() => []);
    this.calls.forEach((call, at) => {
      for (const read of call.reads || []) this.readers[read].push(at);
    });
    this.selected = null;
    this.found = new Set();
    this.drawn = 0;
    this.view = { x: 0, y: 0, scale: 1 };
    this.isFitted = true;
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.colorBy(this.color.key));
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
  }

  /** The colors of a theme, and those of the elements. */
  get theme() {
    const style = getComputedStyle(document.documentElement);
    const names = ["edge", "bad", "accent", "unknown"];
    const own = names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
    return { ...RAMPS[this.dark.matches ? "dark" : "light"], ...Object.fromEntries(own) };
  }

  colorBy(key) {
    this.color = COLORS.find((color) => color.key === key);
    const theme = this.theme, { least, span } = this.color;
    const values = this.calls.map((call) => call[key]);
    if (!span) {
      this.classes = [...new Set(values.filter(Boolean))].sort();
      this.fills = values.map((value) => this.classColor(value, theme));
    } else {
      const known = values.filter((value) => isKnown(value) && value > 0);
      const high = known.reduce((a, b) => Math.max(a, b), least || 0) || 1;
      const low = Math.max(known.reduce((a, b) => Math.min(a, b), high), high / span);
      this.range = { low, high, isEmpty: !values.some(isKnown) };
      const at = (value) => (high > low ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : 1);
      this.fills = values.map((value) => (
        isKnown(value) ? mixed(theme[key], at(value)) : theme.unknown));
    }
    this.inks = this.fills.map(inkOn);
    this.draw();
  }

  classColor(value, theme) {
    if (!value) return theme.unknown;
    return theme.classes[this.classes.indexOf(value) % theme.classes.length];
  }

  // The view.

  get bounds() {
    const xs = this.nodes.map((node) => node.x), ys = this.nodes.map((node) => node.y);
    const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
    const most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
    return {
      left: least(xs) - WIDTH / 2, right: most(xs) + WIDTH / 2,
      top: least(ys) - HEIGHT / 2, bottom: most(ys) + HEIGHT / 2,
    };
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (this.isFitted) this.fit();
    else this.draw();
  }

  fit() {
    const { left, right, top, bottom } = this.bounds;
    if (!this.nodes.length) return this.draw();
    const width = this.canvas.clientWidth - 32, height = this.canvas.clientHeight - 32;
    const scale = Math.min(width / (right - left), height / (bottom - top), 1.25);
    this.view.scale = Math.max(scale, MIN_SCALE);
    this.center((left + right) / 2, (top + bottom) / 2);
    this.isFitted = true;
    return undefined;
  }

  center(x, y) {
    this.view.x = this.canvas.clientWidth / 2 - x * this.view.scale;
    this.view.y = this.canvas.clientHeight / 2 - y * this.view.scale;
    this.isFitted = false;
    this.draw();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(Math.max(this.view.scale * factor, MIN_SCALE), MAX_SCALE);
    const change = scale / this.view.scale;
    this.view = { x: x - (x - this.view.x) * change, y: y - (y - this.view.y) * change, scale };
    this.isFitted = false;
    this.draw();
  }

  /** Where a node is on the canvas, in CSS pixels. */
  at(index) {
    const { x, y, scale } = this.view, node = this.nodes[index];
    return { x: x + node.x * scale, y: y + node.y * scale };
  }

  /** The node at a point of the canvas; null if there is none. */
  nodeAt(x, y) {
    const { scale } = this.view;
    const [px, py] = [(x - this.view.x) / scale, (y - this.view.y) / scale];
    // Accept a click near a node of a few pixels.
    const more = Math.max(0, 4 / scale - HEIGHT / 2);
    const near = (node) => Math.abs(node.x - px) <= WIDTH / 2 + more && Math.abs(node.y - py) <= HEIGHT / 2 + more;
    let best = null;
    this.nodes.forEach((node, index) => {
      if (!near(node)) return;
      const distance = Math.hypot(node.x - px, node.y - py);
      if (best === null || distance < best.distance) best = { index, distance };
    });
    return best && best.index;
  }

  // The selection.

  select(index, { show = false } = {}) {
    this.selected = index;
    if (index !== null && show) {
      this.view.scale = Math.max(this.view.scale, Math.min(0.9, MAX_SCALE));
      this.center(this.nodes[index].x, this.nodes[index].y);
    } else if (index !== null) {
      const { x, y } = this.at(index);
      const isSeen = x > 0 && y > 0 && x < this.canvas.clientWidth && y < this.canvas.clientHeight;
      if (!isSeen) this.center(this.nodes[index].x, this.nodes[index].y);
    }
    this.draw();
    this.onSelect(index);
  }

  /** Mark the calls whose operators, nodes, modules or kernel contain a text; return them. */
  find(text) {
    const wanted = text.trim().toLowerCase();
    const has = (call, node) => [node.label, call.kernel, ...call.nodes.flatMap((n) => [n.name, n.operator, n.path])]
      .some((one) => one.toLowerCase().includes(wanted));
    const found = wanted ? this.nodes.flatMap((node, at) => (has(this.calls[at], node) ? [at] : [])) : [];
    this.found = new Set(found);
    this.draw();
    return found;
  }

  // The drawing.

  draw() {
    if (this.isDrawing || !this.fills) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      this.paint();
    });
  }

  paint() {
    const { context, canvas, view, theme } = this, ratio = devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
    const left = -view.x / view.scale, top = -view.y / view.scale;
    const right = left + canvas.clientWidth / view.scale, bottom = top + canvas.clientHeight / view.scale;
    const isSeen = ({ x, y }) => (
      x + WIDTH > left && x - WIDTH < right && y + HEIGHT > top && y - HEIGHT < bottom);
    if (view.scale >= EDGE_SCALE) this.paintEdges(theme, (a, b) => (
      Math.max(a.y, b.y) > top && Math.min(a.y, b.y) < bottom && Math.max(a.x, b.x) + PLACE > left && Math.min(a.x, b.x) - PLACE < right));
    this.drawn = 0;
    this.nodes.forEach((node, at) => {
      if (!isSeen(node)) return;
      this.drawn += 1;
      this.paintNode(node, at, theme);
    });
    this.paintSelection(theme);
  }

  paintEdges(theme, isSeen) {
    const { context } = this, lines = [new Path2D(), new Path2D()];
    this.calls.forEach((call, at) => {
      for (const read of call.reads || []) {
        if (isSeen(this.nodes[read], this.nodes[at])) this.addEdge(lines[Number(this.isFar(read, at))], read, at);
      }
    });
    context.strokeStyle = theme.edge;
    context.lineWidth = Math.max(1.2, 0.7 / this.view.scale);
    context.globalAlpha = 0.9;
    context.stroke(lines[0]);
    // Edges to another column, or over many rows, are drawn behind the nodes.
    context.globalAlpha = 0.35;
    context.stroke(lines[1]);
    context.globalAlpha = 1;
  }

  isFar(from, to) {
    const steps = (this.nodes[to].y - this.nodes[from].y) / ROW;
    return steps < 1 || steps > this.calls[from].trail.length + 1 
      || this.calls[from].column !== this.calls[to].column;
  }

  addEdge(path, from, to) {
    const start = this.nodes[from], end = this.nodes[to];
    if (this.isFar(from, to)) {
      this.addFarEdge(path, start, end);
      return;
    }
    let x = start.x, y = start.y + HEIGHT / 2;
    path.moveTo(x, y);
    const curve = (toX, toY) => {
      const middle = (y + toY) / 2;
      path.bezierCurveTo(x, middle, toX, middle, toX, toY);
      [x, y] = [toX, toY];
    };
    const rows = Math.round((end.y - start.y) / ROW);
    this.calls[from].trail.slice(0, rows - 1).forEach((place, row) => {
      const passY = start.y + (row + 1) * ROW;
      curve(place * PLACE, passY - HEIGHT / 2);
      path.lineTo(x, (y = passY + HEIGHT / 2));
    });
    curve(end.x, end.y - HEIGHT / 2);
  }

  /** From the right of a node, to the left of one in a later column, or to the right of another. */
  addFarEdge(path, start, end) {
    const x = start.x + WIDTH / 2, isLater = end.x > start.x + PLACE;
    const toX = end.x + (isLater ? -WIDTH / 2 : WIDTH / 2);
    const bend = isLater ? 50 : 60 + Math.min(60, Math.abs(end.y - start.y) / 20);
    path.moveTo(x, start.y);
    path.bezierCurveTo(x + bend, start.y, toX + (isLater ? -bend : bend), end.y, toX, end.y);
  }

  paintNode(node, at, theme) {
    const { context } = this, { scale } = this.view;
    const x = node.x - WIDTH / 2, y = node.y - HEIGHT / 2;
    const shade = this.found.size && !this.found.has(at) ? 0.3 : 1;
    context.globalAlpha = shade;
    context.fillStyle = this.fills[at];
    if (scale < 0.15) {
      context.fillRect(x, y, WIDTH, HEIGHT);
    } else {
      context.beginPath();
      context.roundRect(x, y, WIDTH, HEIGHT, 6);
      context.fill();
      context.lineWidth = 1;
      context.strokeStyle = theme.edge;
      context.stroke();
    }
    if (this.calls[at].verdict === "different") this.outline(node, theme.bad, 2);
    if (this.found.has(at)) this.outline(node, theme.accent, 2.5);
    if (scale >= TEXT_SCALE) this.paintText(node, at, x, y, shade);
    context.globalAlpha = 1;
  }

  paintText(node, at, x, y, shade) {
    const { context } = this;
    context.fillStyle = this.inks[at];
    context.textBaseline = "middle";
    context.font = "600 12px system-ui, sans-serif";
    node.title ??= this.fitted(operatorList(this.calls[at]), WIDTH - 18);
    context.fillText(node.title, x + 9, y + 14);
    context.font = "11px system-ui, sans-serif";
    const value = this.valueText(at), room = WIDTH - 24 - context.measureText(value).width;
    context.textAlign = "right";
    context.fillText(value, x + WIDTH - 9, y + 30);
    context.textAlign = "left";
    context.globalAlpha = 0.8 * shade;
    context.fillText(this.shortened(node.place, room, true), x + 9, y + 30);
  }

  /** As many words as fit, and the number of the others. */
  fitted(words, width) {
    for (let number = words.length; number > 0; number -= 1) {
      const more = number < words.length ? ` +${words.length - number}` : "";
      const text = words.slice(0, number).join(" + ") + more;
      if (this.context.measureText(text).width <= width) return text;
    }
    return this.shortened(words.join(" + "), width);
  }

  valueText(at) {
    const value = this.calls[at][this.color.key];
    return isKnown(value) && value !== "" ? this.color.text(value) : "";
  }

  /** The text; if it is too wide, without its end or its beginning. */
  shortened(text, width, keepsEnd = false) {
    const { context } = this;
    if (context.measureText(text).width <= width) return text;
    let [low, high] = [0, text.length];
    const part = (length) => (keepsEnd ? `…${text.slice(text.length - length)}` : `${text.slice(0, length)}…`);
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (context.measureText(part(middle)).width <= width) low = middle;
      else high = middle - 1;
    }
    return low ? part(low) : "";
  }

  outline(node, color, width) {
    const { context } = this, line = Math.max(width, 1.5 / this.view.scale);
    context.lineWidth = line;
    context.strokeStyle = color;
    context.strokeRect(node.x - WIDTH / 2 - line / 2, node.y - HEIGHT / 2 - line / 2, WIDTH + line, HEIGHT + line);
  }

  paintSelection(theme) {
    const { context, selected } = this;
    if (selected === null) return;
    const path = new Path2D();
    for (const read of this.calls[selected].reads || []) this.addEdge(path, read, selected);
    for (const reader of this.readers[selected]) this.addEdge(path, selected, reader);
    context.strokeStyle = theme.accent;
    context.lineWidth = Math.max(2, 1.6 / this.view.scale);
    context.stroke(path);
    this.outline(this.nodes[selected], theme.accent, 3);
  }

  // Pointer and keys.

  listen() {
    const { canvas } = this, pointers = new Map();
    let moved = 0, apart = 0;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
      [moved, apart] = [0, 0];
    });
    canvas.addEventListener("pointermove", (event) => {
      const { offsetX: x, offsetY: y } = event, before = pointers.get(event.pointerId);
      if (!before) {
        const over = this.nodeAt(x, y);
        canvas.classList.toggle("over", over !== null);
        this.onHover(over, x, y);
        return;
      }
      pointers.set(event.pointerId, [x, y]);
      moved += Math.hypot(x - before[0], y - before[1]);
      if (pointers.size === 2) {
        const [[ax, ay], [bx, by]] = pointers.values();
        const now = Math.hypot(ax - bx, ay - by);
        if (apart) this.zoom(now / apart, (ax + bx) / 2, (ay + by) / 2);
        apart = now;
      } else if (moved > 3) {
        canvas.classList.add("moves");
        this.pan(x - before[0], y - before[1]);
      }
    });
    const end = (event) => {
      pointers.delete(event.pointerId);
      canvas.classList.remove("moves");
      if (event.type === "pointerup" && moved <= 3) this.select(this.nodeAt(event.offsetX, event.offsetY));
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => this.onHover(null));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  pan(x, y) {
    this.view.x += x;
    this.view.y += y;
    this.isFitted = false;
    this.draw();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.selected, last = this.calls.length - 1;
    const first = (list, other) => (list && list.length ? list[0] : other);
    const actions = {
      ArrowUp: () => this.select(at === null ? last : first(this.calls[at].reads, at)),
      ArrowDown: () => this.select(at === null ? 0 : first(this.readers[at], at)),
      ArrowLeft: () => this.select(at === null ? last : Math.max(0, at - 1)),
      ArrowRight: () => this.select(at === null ? 0 : Math.min(last, at + 1)),
      Enter: () => at !== null && this.select(at, { show: true }),
      Escape: () => this.select(null),
      "+": () => this.zoom(1.4),
      "=": () => this.zoom(1.4),
      "-": () => this.zoom(1 / 1.4),
      0: () => this.fit(),
    };
    if (!(event.key in actions) || last < 0) return;
    event.preventDefault();
    actions[event.key]();
  }
}
