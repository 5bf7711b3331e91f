// Remembers in this browser which steps of a learning path are done: a box after each step's
// heading, and a count on the path's page and in the list of paths.
(function () {
  "use strict";

  const key = (path) => "hypermla.path." + path;

  function read(path) {
    try {
      const found = JSON.parse(window.localStorage.getItem(key(path)) || "[]");
      return new Set(Array.isArray(found) ? found : []);
    } catch {
      return new Set(); // Storage is off, or holds something else.
    }
  }

  function write(path, done) {
    try {
      window.localStorage.setItem(key(path), JSON.stringify(Array.from(done).sort((a, b) => a - b)));
    } catch {
      // Without storage the boxes work until the page is left.
    }
  }

  const said = (done, steps) => done.size + " of " + steps + " steps done";

  function box(heading, number, done, changed) {
    const field = document.createElement("input");
    field.type = "checkbox";
    field.checked = done.has(number);
    field.addEventListener("change", () => {
      if (field.checked) done.add(number);
      else done.delete(number);
      changed();
    });
    const label = document.createElement("label");
    label.className = "step-done";
    label.append(field, " Step " + number + " done");
    heading.after(label);
  }

  function setUp(root) {
    if (root.dataset.ready) return;
    root.dataset.ready = "true";
    const { path, steps } = root.dataset;
    const done = read(path);
    const count = document.createElement("output");
    const show = () => { count.textContent = said(done, steps); };
    root.append(count);
    show();
    document.querySelectorAll("h2[id^='step-']").forEach((heading) => {
      box(heading, Number(heading.id.slice("step-".length)), done, () => {
        write(path, done);
        show();
      });
    });
  }

  hypermla.onPage(() => {
    document.querySelectorAll(".learning-path").forEach(setUp);
    document.querySelectorAll(".path-progress").forEach((place) => {
      place.textContent = said(read(place.dataset.path), place.dataset.steps);
    });
  });
})();
