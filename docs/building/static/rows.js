/* A table of a page that is filtered in the browser: `window.ROWS` in the last section. The filter stands in the address. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const rows = window.ROWS, section = document.querySelector("article section section:last-of-type");
  if (!rows || !section) return;
  const make = (tag, words, ...inside) => {
    const element = Object.assign(document.createElement(tag), words || {});
    element.append(...inside);
    return element;
  };
  const names = Object.keys(rows[0].facets), inputs = {};
  const form = make("form", { className: "rows-filter", onsubmit: () => false });
  form.setAttribute("role", "search");
  form.setAttribute("aria-label", "Rows");
  inputs.text = make("input", { type: "search", autocomplete: "off" });
  form.append(make("label", null, "find ", inputs.text));
  for (const name of names) {
    const values = [...new Set(rows.map((row) => row.facets[name]).filter(Boolean))].sort();
    inputs[name] = make("select", null, make("option", { value: "" }, "all"));
    inputs[name].append(...values.map((value) => make("option", { value }, value)));
    form.append(make("label", null, `${name} `, inputs[name]));
  }
  const count = make("output");
  count.setAttribute("aria-live", "polite");
  form.append(count);
  const list = make("div", { className: "rows" });
  for (const row of rows) {
    const title = make("span", { innerHTML: row.title });
    const facets = names.map((name) => row.facets[name]).filter(Boolean).join(" · ");
    row.element = make("details", { id: row.name || "" }, make("summary", null, title, make("small", null, facets)));
    row.words = `${row.name} ${row.title} ${row.text} ${facets}`.replace(/<[^>]*>/g, "").toLowerCase();
    // What a row opens to is made when it is opened: a thousand rows of it would take a second.
    row.element.addEventListener("toggle", () => {
      if (row.element.open && row.element.children.length < 2) {
        row.element.append(make("div", { innerHTML: row.text }));
        row.element.querySelectorAll("pre").forEach((pre) => (pre.tabIndex = 0));
      }
    });
    if (!row.name) row.element.removeAttribute("id");
    list.append(row.element);
  }
  const filter = () => {
    const words = inputs.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = names.every((name) => !inputs[name].value || row.facets[name] === inputs[name].value);
      row.element.hidden = !(fits && words.every((word) => row.words.includes(word)));
      shown += !row.element.hidden;
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  const read = () => {
    const hash = decodeURIComponent(location.hash.slice(1)), row = rows.find((each) => each.name && each.name === hash);
    const given = new URLSearchParams(hash.includes("=") ? location.hash.slice(1) : "");
    for (const [name, input] of Object.entries(inputs)) input.value = given.get(name) || "";
    filter();
    if (!row) return;
    row.element.open = true;
    row.element.scrollIntoView();
  };
  form.addEventListener("input", () => {
    filter();
    const set = Object.entries(inputs).filter(([, input]) => input.value).map(([name, input]) => [name, input.value]);
    history.replaceState(null, "", `#${new URLSearchParams(set)}`);
  });
  window.addEventListener("hashchange", read);
  section.querySelectorAll("p").forEach((each) => each.remove()); // they say that the table stands here
  section.append(form, list);
  read();
});
