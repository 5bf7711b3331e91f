/* Turns the table of a .explorer block into one that sorts, searches and filters in the page.
   data-filters lists the columns, from 0, that get a choice of their values; data-key names the
   block in the address, which keeps what the reader chose. */
"use strict";

hypermla.onPage(async () => {
  const blocks = [...document.querySelectorAll(".explorer:not([data-ready])")];
  if (!blocks.length) return;
  await hypermla.script("simple-datatables/dist/umd/simple-datatables.js");
  blocks.forEach(explore);
});

/* Columns that stay whatever the width: which version, at what, and how long it took. */
const LEAST = 3;

/* Text of a cell or of a node in it, as the library keeps them. */
function textOf(part) {
  if (part.text !== undefined) return part.text;
  const inner = part.data ?? part.childNodes ?? "";
  return Array.isArray(inner) ? inner.map(textOf).join("") : String(inner);
}

/* A name as an address holds it. */
function slugOf(text) {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
}

/* What the address says of one block, and a way to change it. */
function memoryOf(key) {
  return {
    get: (name) => new URLSearchParams(window.location.search).get(`${key}.${name}`) || "",
    set(name, value) {
      // A page opened from a folder may not change its address.
      if (window.location.protocol === "file:") return;
      const url = new URL(window.location.href);
      if (value) url.searchParams.set(`${key}.${name}`, value);
      else url.searchParams.delete(`${key}.${name}`);
      window.history.replaceState(window.history.state, "", url);
    },
  };
}

function explore(block) {
  block.dataset.ready = "";
  const memory = memoryOf(block.dataset.key);
  const table = block.querySelector("table");
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  order(table, headings, rows);
  const grid = gridOf(table, headings);
  const filters = (block.dataset.filters || "").split(",").filter(Boolean).map(Number);
  block.prepend(choices(grid, memory, headings, rows, filters), columns(memory, block, headings));
  rememberOrder(grid, memory, headings);
  rememberWords(block, memory);
}

/* Numbers sort as such; what is not stated comes after every number. */
function order(table, headings, rows) {
  const numeric = headings.map((_, column) => rows.every((row) => !row[column] || isFinite(parseFloat(row[column]))));
  for (const row of table.tBodies[0].rows) {
    for (const [column, cell] of [...row.cells].entries()) {
      if (numeric[column]) cell.dataset.order = parseFloat(cell.textContent) || (cell.textContent.trim() ? 0 : 1e300);
    }
  }
}

function gridOf(table, headings) {
  return new simpleDatatables.DataTable(table, {
    // Names and numbers are made of what the library takes for punctuation.
    ignorePunctuation: false,
    // Widths follow the columns that are shown.
    fixedColumns: false,
    perPage: 25,
    perPageSelect: [25, 100, ["all", -1]],
    labels: {
      placeholder: "",
      searchLabel: "Search records",
      searchTitle: "Search in the table",
      perPage: "rows per page",
      noRows: "No rows",
      noResults: "Nothing matches",
      info: "{start} to {end} of {rows} rows",
    },
    columns: headings.map((_, select) => ({
      select,
      type: "html",
      // A choice means the whole value, a search any part of it.
      searchMethod: (terms, cell, _row, _column, source) => {
        const text = textOf(cell).trim();
        if (source === "choice") return terms.includes(text);
        return terms.every((term) => text.toLowerCase().includes(term.toLowerCase()));
      },
    })),
  });
}

/* A field per filtered column, with the values that it holds. */
function choices(grid, memory, headings, rows, filters) {
  const bar = document.createElement("div");
  bar.className = "explorer__choices";
  const fields = new Map();
  function apply() {
    const chosen = [...fields].filter(([, select]) => select.value);
    grid.multiSearch(chosen.map(([column, select]) => ({ terms: [select.value], columns: [column] })), "choice");
  }
  for (const column of filters) {
    const values = [...new Set(rows.map((row) => row[column]))].filter(Boolean).sort();
    if (values.length < 2) continue;
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    const known = memory.get(slugOf(headings[column]));
    if (values.includes(known)) select.value = known;
    select.addEventListener("change", () => {
      memory.set(slugOf(headings[column]), select.value);
      apply();
    });
    fields.set(column, select);
    label.append(headings[column], select);
    bar.append(label);
  }
  if ([...fields.values()].some((select) => select.value)) apply();
  return bar;
}

/* Which columns are shown: those of the address, or as many as the window holds. A style hides the
   others, since the library neither searches nor filters columns that it hides itself. */
function columns(memory, block, headings) {
  const style = block.appendChild(document.createElement("style"));
  const boxes = headings.map(() => Object.assign(document.createElement("input"), { type: "checkbox", checked: true }));
  const shown = () => headings.filter((_, column) => boxes[column].checked).map(slugOf).join(",");
  function apply() {
    const cells = boxes.flatMap((box, column) =>
      box.checked ? [] : `.explorer[data-key="${block.dataset.key}"] :is(th, td):nth-child(${column + 1})`);
    style.textContent = cells.length ? `${cells.join(", ")} { display: none; }` : "";
  }
  const wanted = memory.get("columns").split(",").filter(Boolean);
  if (wanted.length) boxes.forEach((box, column) => { box.checked = wanted.includes(slugOf(headings[column])); });
  apply();
  if (!wanted.length) fit(block.querySelector(".datatable-container"), boxes, apply);
  boxes.forEach((box) => box.addEventListener("change", () => { apply(); memory.set("columns", shown()); }));
  return chooser(headings, boxes);
}

/* Hides columns from the right until the table fits. */
function fit(container, boxes, apply) {
  for (let last = boxes.length - 1; last >= LEAST && container.scrollWidth > container.clientWidth; last -= 1) {
    boxes[last].checked = false;
    apply();
  }
}

function chooser(headings, boxes) {
  const root = document.createElement("details");
  root.className = "facts explorer__columns";
  const summary = document.createElement("summary");
  summary.textContent = "Columns";
  const list = document.createElement("div");
  for (const [column, box] of boxes.entries()) {
    const label = document.createElement("label");
    label.append(box, " ", headings[column]);
    list.append(label);
  }
  root.append(summary, list);
  return root;
}

function rememberOrder(grid, memory, headings) {
  const [name, direction] = memory.get("sort").split(":");
  const column = headings.findIndex((heading) => slugOf(heading) === name);
  if (column >= 0) grid.columns.sort(column, direction === "desc" ? "desc" : "asc");
  grid.on("datatable.sort", (sorted, way) => memory.set("sort", `${slugOf(headings[sorted])}:${way}`));
}

function rememberWords(block, memory) {
  const field = block.querySelector(".datatable-input");
  field.value = memory.get("words");
  if (field.value) field.dispatchEvent(new Event("input", { bubbles: true }));
  field.addEventListener("input", () => memory.set("words", field.value));
}
