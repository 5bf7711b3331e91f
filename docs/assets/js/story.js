// Shows on a story's axis which step is being read; without it all marks stand there as links.
(function () {
  "use strict";

  function follow(root) {
    const steps = [...root.querySelectorAll("[data-step]")];
    const marks = [...root.querySelectorAll("[data-mark]")];
    const now = root.querySelector(".story__now");
    const start = now ? now.textContent : "";
    let shown = -2;

    function show() {
      if (!root.isConnected) {
        removeEventListener("scroll", show);
        return;
      }
      const line = innerHeight * 0.45;
      const at = steps.findLastIndex((step) => step.getBoundingClientRect().top < line);
      if (at === shown) return;
      shown = at;
      const keys = steps.map((step) => step.dataset.step);
      marks.forEach((mark) => {
        const place = keys.indexOf(mark.dataset.mark);
        mark.classList.toggle("story__mark--on", place === at);
        mark.classList.toggle("story__mark--past", place < at);
        if (place === at && mark.dataset.said && now) now.textContent = mark.dataset.said;
      });
      if (at < 0 && now) now.textContent = start;
    }

    addEventListener("scroll", show, { passive: true });
    show();
  }

  hypermla.onPage(() => document.querySelectorAll(".story").forEach(follow));
})();
