/* What the theme leaves out for readers of the page by keyboard or by ear; axe-core finds nothing with it. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll('.caption[role="heading"]').forEach((each) => each.setAttribute("aria-level", "2"));
  document.querySelectorAll("aside").forEach((each, i) => each.setAttribute("aria-label", i ? "This page" : "All pages"));
  document.querySelectorAll("pre, .table-wrapper").forEach((each) => (each.tabIndex = 0));
  // A click beside an open menu closes it; there is nothing there to read.
  document.querySelectorAll("label.overlay").forEach((each) => each.setAttribute("aria-hidden", "true"));
});
