/* Renders formulas with KaTeX, on pages that have any. */
"use strict";

hypermla.onPage(async () => {
  const formulas = document.querySelectorAll(".arithmatex");
  if (!formulas.length) return;
  await Promise.all([
    hypermla.style("katex/dist/katex.min.css"),
    hypermla.script("katex/dist/katex.min.js"),
  ]);
  for (const element of formulas) {
    if (element.querySelector(".katex")) continue;
    const display = element.tagName === "DIV";
    // arithmatex wraps a formula in \( \) or \[ \].
    const source = element.textContent.trim().replace(/^\\[([]/, "").replace(/\\[)\]]$/, "");
    katex.render(source, element, { displayMode: display, throwOnError: false });
  }
});
