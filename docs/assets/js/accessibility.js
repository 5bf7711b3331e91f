/* Names and focus for what the theme makes in the browser without either. */
"use strict";

hypermla.onPage(() => {
  // Annotations are links without text until they are opened.
  document.querySelectorAll(".md-annotation__index").forEach((link, index) => {
    link.setAttribute("aria-label", `Note ${index + 1}`);
  });
  // Wide tables scroll, so that the keyboard has to reach them.
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((wrap, index) => {
    wrap.tabIndex = 0;
    wrap.setAttribute("role", "region");
    wrap.setAttribute("aria-label", `Table ${index + 1}`);
  });
  // So do drawings and formulas on a phone.
  document.querySelectorAll("figure.roofline, div.arithmatex").forEach((part) => {
    part.tabIndex = 0;
  });
  document.querySelectorAll("figure.drawn").forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  });
});
