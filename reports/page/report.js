"use strict";
(function () {
  const form = document.getElementById("filters");
  const gaps = ["unsupported", "refused", "not-run"];
  const bad = ["fail", "unstable", "crash", "timeout", "error"];
  const fields = ["view", "dtype", "subject", "text"];

  function kindOf(node) {
    const found = (list) => list.some((name) => node.classList.contains(name));
    return found(gaps) ? "gap" : found(bad) ? "bad" : "ok";
  }

  // A square of the matrix says by its place what it is about; its label says what came out.
  function square(node) {
    const cell = node.closest("td"), row = cell.parentNode, around = node.closest("[data-p]");
    const table = node.closest("table"), op = node.closest("[data-op]").dataset.op;
    const head = table.tHead.rows[0].cells;
    // Properties of which there is no cell share one, so places are counted from the end.
    const at = Array.from(row.cells).slice(cell.cellIndex).reduce((sum, each) => sum + each.colSpan, 0);
    const property = around ? around.dataset.p : head[head.length - at].textContent;
    const dtype = around ? head[cell.cellIndex].textContent : row.dataset.d;
    const subject = around ? row.cells[0].textContent : row.dataset.s;
    const words = [op, property, dtype, subject, node.getAttribute("aria-label")].join(" ").toLowerCase();
    return { node, square: true, group: kindOf(node), dtype, subject, words };
  }

  function line(node) {
    const op = node.closest("[data-op]").dataset.op, cells = node.cells;
    const words = (op + " " + node.textContent).toLowerCase();
    const group = kindOf(node.querySelector(".o"));
    return { node, group, dtype: cells[1].textContent, subject: cells[2].textContent, words };
  }

  function marked(node) {
    const [group, dtype, subject, words] = node.dataset.f.split("|");
    return { node, group, dtype: shortened[dtype] || dtype, subject, words: words || "" };
  }

  const shortened = Object.fromEntries(Array.from(form.elements.dtype.options, (item) => [item.text, item.value]));
  const all = (selector, read) => Array.from(document.querySelectorAll(selector), read);
  let items = null;

  function collected() {
    return items || (items = [
      ...all("#matrix td > .k", square), ...all(".cells.all tr[id]", line), ...all("[data-f]", marked),
    ].filter((item) => item.words));
  }

  function state() {
    const data = new FormData(form);
    return Object.fromEntries(fields.map((name) => [name, String(data.get(name) || "")]));
  }

  function isPlain(wanted) {
    return fields.every((name) => !wanted[name] || wanted[name] === "all");
  }

  function matches(item, wanted, words) {
    return (wanted.view === "all" || wanted.view === item.group)
      && (!wanted.dtype || wanted.dtype === item.dtype)
      && (!wanted.subject || item.subject.split(" ")[0] === wanted.subject || item.subject === wanted.subject)
      && words.every((word) => item.words.includes(word));
  }

  function apply() {
    const wanted = state();
    // Nothing is looked at until something is asked for, so that a page of thousands of cells opens at once.
    if (isPlain(wanted) && !items) { return wanted; }
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, squares = 0;
    const alive = new Set();
    for (const item of collected()) {
      const keep = matches(item, wanted, words);
      if (item.square) { squares += 1; shown += keep; item.node.classList.toggle("off", !keep); }
      else { item.node.toggleAttribute("hidden", !keep); }
      if (keep) { const group = item.node.closest("[data-group]"); if (group) { alive.add(group); } }
    }
    for (const group of document.querySelectorAll("[data-group]")) { group.hidden = !alive.has(group); }
    form.querySelector("output").textContent = squares ? shown + " of " + squares + " cells" : "";
    return wanted;
  }

  function filterText(wanted) {
    const kept = fields.filter((name) => wanted[name] && wanted[name] !== "all");
    return kept.map((name) => name + "=" + encodeURIComponent(wanted[name])).join("&");
  }

  function remember(wanted) { history.replaceState(null, "", "#" + filterText(wanted)); }

  function recall() {
    const text = location.hash.slice(1);
    if (!text.includes("=")) { reveal(text); return; }
    const said = new URLSearchParams(text);
    for (const [name, value] of said) {
      if (fields.includes(name) && form.elements[name]) { form.elements[name].value = value; }
    }
    apply();
    reveal(said.get("at"));
  }

  // A link to one cell keeps the filter: what is asked for and the place stand in the address together.
  function follow(event) {
    const link = event.target.closest("a[href^='#']"), wanted = state();
    if (!link || isPlain(wanted)) { return; }
    const id = link.getAttribute("href").slice(1), target = document.getElementById(id);
    if (!target) { return; }
    event.preventDefault();
    history.pushState(null, "", "#" + filterText(wanted) + "&at=" + encodeURIComponent(id));
    reveal(id);
    target.scrollIntoView();
  }

  // A page has thousands of squares. By keyboard those that lead to a failure are reached, and each op by its name.
  function shortenTabbing() {
    for (const node of document.querySelectorAll("#matrix a.k[href^='#c-']")) { node.tabIndex = -1; }
  }

  form.hidden = false;
  form.addEventListener("input", () => remember(apply()));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", recall);
  document.addEventListener("click", follow);
  document.addEventListener("toggle", (event) => addSorting(event.target), true);
  requestAnimationFrame(() => setTimeout(() => { addButtons(); addSorting(document); shortenTabbing(); recall(); }));
})();
