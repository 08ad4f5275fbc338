(function () {
  const form = document.getElementById("filters"), table = document.getElementById("sites-table");
  let lines = null;

  function collected() {
    return lines || (lines = Array.from(table.tBodies[0].rows, (node) => (
      { node, state: node.className, op: node.dataset.op, words: node.textContent.toLowerCase() })));
  }

  function apply() {
    const data = new FormData(form), state = data.get("state"), op = data.get("op");
    const words = String(data.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const line of collected()) {
      const keep = (state === "all" || line.state === state) && (!op || line.op === op)
        && words.every((word) => line.words.includes(word));
      line.node.hidden = !keep;
      shown += keep;
    }
    form.querySelector("output").textContent = shown + " of " + lines.length + " call sites";
  }

  // A box of the tree shows the sites of its module; without a script it leads to the module's line.
  function follow(event) {
    const box = event.target.closest("[data-module]");
    if (!box) { return; }
    event.preventDefault();
    form.elements.text.value = box.dataset.module;
    apply();
    document.getElementById("sites").scrollIntoView();
  }

  if (form) {
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("click", follow);
  }
  const open = () => reveal(location.hash.slice(1));
  window.addEventListener("hashchange", open);
  document.addEventListener("toggle", (event) => addSorting(event.target), true);
  requestAnimationFrame(() => setTimeout(() => {
    addButtons();
    addSorting(document);
    for (const node of document.querySelectorAll(".order a:not(.outside)")) { node.tabIndex = -1; }
    open();
  }));
})();
