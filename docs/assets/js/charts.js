// A mark of a chart leads to the page of its version, which the page links to in its tables.
(function () {
  "use strict";

  function open(event) {
    const mark = event.target.closest ? event.target.closest(".mark, circle") : null;
    const title = mark && mark.querySelector("title");
    const named = title && title.textContent.match(/[\w@-]+ v\d+|^v\d+/);
    const links = [...document.querySelectorAll("article table a")];
    const link = named && links.find((found) => found.textContent.trim() === named[0]);
    if (link) link.click();
  }

  document.addEventListener("click", open);
})();
