/* Loads a vendored library the first time that a page needs it. */
"use strict";

const hypermla = (() => {
  const vendor = new URL("../vendor/", document.currentScript.src);
  const loading = new Map();

  function load(element) {
    return new Promise((resolve, reject) => {
      element.addEventListener("load", resolve);
      element.addEventListener("error", () => reject(new Error(`${element.src || element.href} did not load`)));
      document.head.append(element);
    });
  }

  function once(path, make) {
    if (!loading.has(path)) loading.set(path, load(make(new URL(path, vendor).href)));
    return loading.get(path);
  }

  return {
    script: (path) => once(path, (src) => Object.assign(document.createElement("script"), { src })),
    style: (path) =>
      once(path, (href) => Object.assign(document.createElement("link"), { rel: "stylesheet", href })),
    /* Runs `start` on every page, also after instant navigation. */
    onPage: (start) => document$.subscribe(start),
  };
})();
