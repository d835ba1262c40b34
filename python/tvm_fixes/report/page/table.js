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
// Tables to sort by a click on a title, and to filter by a text.

// Other rows are shown on demand: a browser takes a while to show thousands.
const SHOWN_ROWS = 200;

/**
 * A table of rows.
 *
 * A column has a `title`, and `value(row)` to sort by; `text(row)` is shown instead of it, `isName`
 * marks names of the model, `isNumber` numbers.  `onOpen(row)` is called for rows with `opens(row)`.
 */
class Table {
  constructor(columns, rows, { sort = null, opens = () => false, onOpen = () => {} } = {}) {
    this.columns = columns.map((column) => ({ text: (row) => column.value(row), ...column }));
    this.rows = rows;
    this.opens = opens;
    this.onOpen = onOpen;
    this.limit = SHOWN_ROWS;
    this.sort = sort || { column: null, isRising: true };
    this.filter = "";
    this.body = make("tbody");
    this.heads = this.columns.map((column) => this.head(column));
    this.status = make("span");
    this.more = make("button", { type: "button", onclick: () => this.showAll() });
    const input = make("input", { type: "search", placeholder: "Filter", spellcheck: false });
    input.setAttribute("aria-label", "Filter rows");
    input.addEventListener("input", () => {
      this.filter = input.value.trim().toLowerCase();
      this.show();
    });
    this.element = make("div", {},
      make("div", { className: "above" }, rows.length > 12 ? input : null, this.status, this.more),
      make("div", { className: "scroll" },
        make("table", {}, make("thead", {}, make("tr", {}, ...this.heads)), this.body)));
    this.show();
  }

  head(column) {
    const button = make("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const isSame = this.sort.column === column.title;
      this.sort = { column: column.title, isRising: isSame ? !this.sort.isRising : !column.isNumber };
      this.show();
    });
    return make("th", { scope: "col", className: column.isNumber ? "number" : "" }, button);
  }

  /** The rows that the filter leaves, in order; unknown values come last. */
  get visible() {
    const text = (row) => this.columns.map((column) => column.text(row)).join("\n").toLowerCase();
    const kept = this.filter ? this.rows.filter((row) => text(row).includes(this.filter)) : [...this.rows];
    const column = this.columns.find(({ title }) => title === this.sort.column);
    if (!column) return kept;
    const sign = this.sort.isRising ? 1 : -1;
    const isBlank = (value) => !isKnown(value) || value === "";
    const values = new Map(kept.map((row) => [row, column.value(row)]));
    return kept.sort((one, other) => {
      const [a, b] = [values.get(one), values.get(other)];
      if (isBlank(a) || isBlank(b)) return Number(isBlank(a)) - Number(isBlank(b));
      return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    });
  }

  show() {
    const rows = this.visible, shownRows = rows.slice(0, this.limit);
    this.body.replaceChildren(...shownRows.map((row) => this.line(row)));
    this.heads.forEach((head, at) => {
      const { title } = this.columns[at], isSorted = this.sort.column === title;
      const arrow = this.sort.isRising ? " ↑" : " ↓";
      head.firstChild.textContent = title + (isSorted ? arrow : "");
      head.setAttribute("aria-sort", isSorted ? (this.sort.isRising ? "ascending" : "descending") : "none");
    });
    const isCut = shownRows.length < rows.length;
    this.status.textContent = isCut ? `${count(shownRows.length)} of ${count(rows.length)} rows` : `${count(rows.length)} rows`;
    this.more.hidden = !isCut;
    this.more.textContent = `Show all ${count(rows.length)}`;
  }

  showAll() {
    this.limit = Infinity;
    this.show();
  }

  line(row) {
    const cells = this.columns.map((column) => {
      const text = column.text(row), isEmpty = !isKnown(text) || text === "";
      const className = [column.isNumber ? "number" : "", column.isWide ? "wide" : "", column.mark ? column.mark(row) : ""].join(" ");
      return make("td", { className }, isEmpty ? "–" : column.isName ? named(text) : String(text));
    });
    const line = make("tr", {}, ...cells);
    if (this.opens(row)) {
      line.tabIndex = 0;
      line.addEventListener("click", () => this.onOpen(row));
      line.addEventListener("keydown", (event) => event.key === "Enter" && this.onOpen(row));
    }
    return line;
  }
}

/** Pairs of a label and a value, a list of values, or an element. */
function facts(pairs, className = "facts") {
  const known = pairs.filter(([, value]) => isKnown(value) && value !== "" && !(Array.isArray(value) && !value.length));
  const content = (value) => {
    if (Array.isArray(value)) return make("ul", {}, ...value.map((one) => make("li", {}, named(one))));
    return value instanceof Node ? value : named(value);
  };
  return make("dl", { className }, ...known.flatMap(([label, value]) => [make("dt", {}, label), make("dd", {}, content(value))]));
}
