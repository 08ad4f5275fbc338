"use strict";
// What the pages share: buttons that copy, tables that sort, and links to what is folded in.

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

const units = { ms: 1e-3, s: 1, m: 60, h: 3600 };

// What a cell of a table is sorted by: a number, a time in seconds, or its words; what says nothing comes last.
function keyOf(cell) {
  const text = cell ? cell.textContent.trim().replace(/\u202f|,(?=\d{3})/g, "").replace(/^≈ /, "").replace("−", "-").replace("∞", "Infinity") : "";
  const time = /^\d[\d.]* (ms|s|m|h)\b/.test(text);
  if (time) {
    const parts = text.match(/[\d.]+ [a-z]+/g).map((part) => part.split(" "));
    return parts.reduce((sum, [count, unit]) => sum + count * units[unit], 0);
  }
  const number = parseFloat(text);
  return Number.isNaN(number) ? text : number;
}

function compared(one, other) {
  const numbers = (typeof other === "number") - (typeof one === "number");
  return numbers || (typeof one === "number" ? (one > other) - (one < other) : one.localeCompare(other));
}

function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], rows = Array.from(body.rows);
  rows.forEach((row, i) => { row.dataset.at = row.dataset.at || i; });
  const down = head.getAttribute("aria-sort") === "ascending", at = head.cellIndex;
  const key = head.hasAttribute("data-place") ? (row) => Number(row.dataset.at) : (row) => keyOf(row.cells[at]);
  const keyed = rows.map((row) => [key(row), row]);
  keyed.sort(([one], [other]) => (down ? -1 : 1) * compared(one, other));
  for (const other of head.parentNode.cells) { other.removeAttribute("aria-sort"); }
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...keyed.map(([, row]) => row));
}

// Heads become buttons where a table is to be seen, because a page of many ops has hundreds of them.
function addSorting(around) {
  for (const table of around.querySelectorAll("table.sortable:not([data-sorting])")) {
    if (table.closest("details:not([open])")) { continue; }
    table.dataset.sorting = "";
    for (const head of table.tHead.rows[0].querySelectorAll("th")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(head));
      head.append(button);
    }
  }
}
