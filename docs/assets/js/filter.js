// Gives every table in a <div class="filter-table"> a form to filter its rows by. The choices are
// what the cells of the facet columns hold; the address keeps what was chosen.
(function () {
  "use strict";

  function labelled(text, field) {
    const label = document.createElement("label");
    label.append(text + " ", field);
    return label;
  }

  function values(row, column) {
    return row.cells[column].textContent.split(",").map((word) => word.trim()).filter(Boolean);
  }

  // Natural order: sm_90 before sm_100.
  const order = new Intl.Collator("en", { numeric: true }).compare;

  function setUp(root) {
    if (root.dataset.ready) return;
    root.dataset.ready = "true";
    const table = root.querySelector("table");
    const heads = Array.from(table.tHead.rows[0].cells, (head) => head.textContent.trim());
    const rows = Array.from(table.tBodies[0].rows);
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const noun = root.dataset.noun;
    const known = new URLSearchParams(window.location.search);

    const form = document.createElement("form");
    form.setAttribute("role", "search");
    form.setAttribute("aria-label", "Filter " + noun);
    const words = document.createElement("input");
    words.type = "search";
    words.name = "words";
    words.value = known.get("words") || "";
    form.append(labelled("Words", words));

    const facets = root.dataset.facets.split(",").map((name) => {
      const column = heads.indexOf(name);
      const select = document.createElement("select");
      select.name = name.toLowerCase();
      const found = new Set(rows.flatMap((row) => values(row, column)));
      select.append(new Option("any", ""), ...Array.from(found).sort(order).map((v) => new Option(v, v)));
      select.value = known.get(select.name) || "";
      if (select.selectedIndex < 0) select.value = "";
      form.append(labelled(name, select));
      return { select, column };
    });

    const reset = document.createElement("button");
    reset.type = "reset";
    reset.className = "md-button";
    reset.textContent = "Show all";
    const count = document.createElement("output");
    form.append(reset, count);
    root.prepend(form);

    function update() {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !(
          wanted.every((word) => texts[index].includes(word)) &&
          facets.every(({ select, column }) =>
            select.value === "" || values(row, column).includes(select.value))
        );
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = shown + " of " + rows.length + " " + noun;
    }

    function remember() {
      // A page opened from a folder may not change its address.
      if (window.location.protocol === "file:") return;
      const url = new URL(window.location.href);
      for (const field of [words, ...facets.map((facet) => facet.select)]) {
        if (field.value) url.searchParams.set(field.name, field.value);
        else url.searchParams.delete(field.name);
      }
      window.history.replaceState(window.history.state, "", url);
    }

    form.addEventListener("input", () => { update(); remember(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    // The fields are cleared after the event.
    form.addEventListener("reset", () => window.setTimeout(() => { update(); remember(); }));
    update();
  }

  hypermla.onPage(() => document.querySelectorAll(".filter-table").forEach(setUp));
})();
