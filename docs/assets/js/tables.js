/* Turns the table of a .explorer block into one that sorts, searches and filters in the page.
   data-filters lists the columns, from 0, that get a choice of their values. */
"use strict";

hypermla.onPage(async () => {
  const blocks = [...document.querySelectorAll(".explorer:not([data-ready])")];
  if (!blocks.length) return;
  await hypermla.script("simple-datatables/dist/umd/simple-datatables.js");
  blocks.forEach(explore);
});

/* Text of a cell or of a node in it, as the library keeps them. */
function textOf(part) {
  if (part.text !== undefined) return part.text;
  const inner = part.data ?? part.childNodes ?? "";
  return Array.isArray(inner) ? inner.map(textOf).join("") : String(inner);
}

function explore(block) {
  block.dataset.ready = "";
  const table = block.querySelector("table");
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const numeric = headings.map((_, column) => rows.every((row) => !row[column] || isFinite(parseFloat(row[column]))));
  for (const row of table.tBodies[0].rows) {
    for (const [column, cell] of [...row.cells].entries()) {
      // What is not stated comes after every number.
      if (numeric[column]) cell.dataset.order = parseFloat(cell.textContent) || (cell.textContent.trim() ? 0 : 1e300);
    }
  }
  const filtered = (block.dataset.filters || "").split(",").filter(Boolean).map(Number);

  const grid = new simpleDatatables.DataTable(table, {
    // Names and numbers are made of what the library takes for punctuation.
    ignorePunctuation: false,
    perPage: 25,
    perPageSelect: [25, 100, ["all", -1]],
    labels: {
      placeholder: "",
      searchLabel: "Search records",
      searchTitle: "Search in the table",
      perPage: "rows a page",
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

  const bar = document.createElement("div");
  bar.className = "explorer__choices";
  const chosen = new Map();
  for (const column of filtered) {
    const values = [...new Set(rows.map((row) => row[column]))].filter(Boolean).sort();
    if (values.length < 2) continue;
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    select.addEventListener("change", () => {
      if (select.value) chosen.set(column, select.value);
      else chosen.delete(column);
      const queries = [...chosen].map(([key, value]) => ({ terms: [value], columns: [key] }));
      grid.multiSearch(queries, "choice");
    });
    label.append(headings[column], select);
    bar.append(label);
  }
  block.prepend(bar);
}
