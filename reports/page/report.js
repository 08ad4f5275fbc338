"use strict";
(function () {
  const form = document.getElementById("filters");
  const items = Array.from(document.querySelectorAll("[data-f]"), (node) => {
    const [group, dtype, subject, words] = node.dataset.f.split("|");
    return { node, group, dtype, subject, words: words || "" };
  }).filter((item) => item.words);
  const groups = Array.from(document.querySelectorAll("[data-group]"));
  const fields = ["view", "dtype", "subject", "text"];

  function state() {
    const data = new FormData(form);
    return Object.fromEntries(fields.map((name) => [name, String(data.get(name) || "")]));
  }

  function matches(item, wanted) {
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    return (wanted.view === "all" || wanted.view === item.group)
      && (!wanted.dtype || wanted.dtype === item.dtype)
      && (!wanted.subject || wanted.subject === item.subject)
      && words.every((word) => item.words.includes(word));
  }

  function apply() {
    const wanted = state();
    let shown = 0, squares = 0;
    const alive = new Set();
    for (const item of items) {
      const keep = matches(item, wanted);
      const square = item.node.classList.contains("k");
      if (square) { squares += 1; shown += keep; item.node.classList.toggle("off", !keep); }
      else { item.node.toggleAttribute("hidden", !keep); }
      if (keep) { const group = item.node.closest("[data-group]"); if (group) { alive.add(group); } }
    }
    for (const group of groups) { group.hidden = !alive.has(group); }
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

  form.hidden = false;
  form.addEventListener("input", () => remember(apply()));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", recall);
  apply();
  recall();
})();
