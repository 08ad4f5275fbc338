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
    const at = row.cells.length - cell.cellIndex;
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
      ...all("#matrix td > .k", square), ...all(".cells.all tbody tr", line), ...all("[data-f]", marked),
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
    form.querySelector("output").textContent = shown + " of " + squares + " cells";
    return wanted;
  }

  function remember(wanted) {
    const kept = fields.filter((name) => wanted[name] && wanted[name] !== "all");
    const text = kept.map((name) => name + "=" + encodeURIComponent(wanted[name])).join("&");
    history.replaceState(null, "", "#" + text);
  }

  function recall() {
    const text = location.hash.slice(1);
    if (!text.includes("=")) { reveal(text); return; }
    for (const [name, value] of new URLSearchParams(text)) {
      if (fields.includes(name) && form.elements[name]) { form.elements[name].value = value; }
    }
    apply();
  }

  function reveal(id) {
    const target = id && document.getElementById(id);
    const around = target && target.closest("details");
    if (around) { around.open = true; target.scrollIntoView(); }
  }

  function select(node) {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  async function copy(node, button) {
    try { await navigator.clipboard.writeText(node.textContent); }
    catch { select(node); document.execCommand("copy"); }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // A page has thousands of squares. By keyboard those that lead to a failure are reached, and each op by its name.
  function shortenTabbing() {
    for (const node of document.querySelectorAll("#matrix a.k[href^='#c-']")) { node.tabIndex = -1; }
  }

  function addButtons() {
    for (const node of document.querySelectorAll("code.cmd, .copied > pre")) {
      const button = document.createElement("button");
      const program = node.tagName === "PRE";
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      const what = program ? node.getAttribute("aria-label") : node.textContent.slice(0, 80);
      button.setAttribute("aria-label", "Copy: " + what);
      button.addEventListener("click", () => copy(node, button));
      node.after(button);
    }
  }

  form.hidden = false;
  form.addEventListener("input", () => remember(apply()));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", recall);
  requestAnimationFrame(() => setTimeout(() => { addButtons(); shortenTabbing(); recall(); }));
})();
