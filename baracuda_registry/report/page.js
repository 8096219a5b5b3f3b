// The table of SKUs with its drawer, the coverage matrix and the selection map.

const $ = (id) => document.getElementById(id);
let catalog, sources, opener;

const orderOf = (sku) => (!sku.deterministic ? "not deterministic" : sku.stable ? "fixed" : "not bit-stable");
const idOf = (variant) => `${catalog.skus[variant.sku].id}/${variant.design}`;

function table() {
  const groups = catalog.skus.map((sku, index) => ({ sku, variants: catalog.variants.filter((v) => v.sku === index), open: false }));
  const texts = new Map(catalog.variants.map((variant) => {
    const sku = catalog.skus[variant.sku];
    return [variant, [idOf(variant), sku.type, variant.summary, orderOf(sku), sku.deterministic ? "deterministic" : "", ...variant.constraints.flat()].join(" ").toLowerCase()];
  }));
  const unique = (name) => [...new Set(catalog.skus.map((sku) => (name === "order" ? orderOf(sku) : sku[name])))];
  for (const name of ["op", "type", "tier", "order"]) options($(`f-${name}`), unique(name), "all");
  const body = document.querySelector("#sku-table tbody");

  const draw = () => {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Object.fromEntries(["op", "type", "tier", "order"].map((name) => [name, $(`f-${name}`).value]));
    let skus = 0, shown = 0;
    const rows = [];
    for (const group of groups) {
      const { sku } = group;
      const fits = Object.entries(chosen).every(([name, value]) => !value || (name === "order" ? orderOf(sku) : sku[name]) === value);
      const found = fits ? group.variants.filter((variant) => words.every((word) => texts.get(variant).includes(word))) : [];
      if (!found.length) continue;
      skus++; shown += found.length;
      const open = group.open || (words.length > 0 && found.length <= 6);
      const button = el("button", { class: "expand", type: "button", "aria-expanded": String(open), title: sku.id,
        onclick: () => { group.open = !open; const at = rows.indexOf(row); draw(); body.children[at]?.querySelector("button")?.focus(); } }, sku.op);
      const row = el("tr", {}, el("td", { class: "op" }, button), el("td", {}, sku.type), el("td", { class: "wide" }, sku.tier),
        el("td", { class: "wide" }, sku.math), el("td", { class: "wide" }, sku.sums), el("td", { class: "wide" }, orderOf(sku)),
        el("td", { class: "num" }, String(found.length)));
      rows.push(row);
      if (open) rows.push(el("tr", { class: "inner" }, el("td", { colspan: 7 }, el("ul", { class: "variants" }, ...found.map(entry)))));
    }
    $("count").textContent = `${shown} variants in ${skus} SKUs`;
    body.replaceChildren(...rows);
  };
  let waiting;
  $("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(draw, 80); });
  for (const name of ["op", "type", "tier", "order"]) $(`f-${name}`).addEventListener("change", draw);
  draw();
}

function entry(variant) {
  const button = el("button", { class: "link", type: "button", onclick: () => { opener = button; show(variant); } }, variant.design);
  return el("li", {}, button, el("span", { class: "tag" }, variant.pinned ? "pinned only" : `rank ${variant.rank}`), el("span", { class: "what" }, variant.summary));
}

async function show(variant) {
  const sku = catalog.skus[variant.sku];
  $("drawer-title").textContent = `${sku.op} ${sku.type} · ${variant.design}`;
  const facts = el("dl");
  const fact = (name, ...content) => { if (content.some(Boolean)) facts.append(el("dt", {}, name), el("dd", {}, ...content)); };
  fact("How", variant.summary);
  fact("Guarantee", `arithmetic in ${sku.math}, sums in ${sku.sums}, order ${orderOf(sku)}`);
  fact("Rank", variant.pinned ? `${variant.rank}, only when pinned` : String(variant.rank), ...variant.rules.map(([when, rank]) => el("div", {}, `${rank} where ${when}`)));
  fact("Needs", ...variant.constraints.map(([text, why]) => el("div", {}, why ? `${text} — ${why}` : text)));
  if (variant.alignment > 1) fact("Alignment", `${variant.alignment} bytes`);
  fact("Tuning", Object.entries(variant.tuning).map(([name, value]) => `${name} ${value}`).join(", "));
  fact("Targets", variant.targets.join(", "));
  fact("Where", variant.path);
  const parts = [el("p", { class: "id" }, idOf(variant)), facts];
  if (variant.resources.length) {
    const head = ["Architecture", "Kernel", "Registers", "Spills", "Stack", "Static shared"];
    parts.push(el("h3", {}, "Resources"), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Resources" }, el("table", {},
      el("thead", {}, el("tr", {}, ...head.map((text, i) => el("th", { scope: "col", class: i > 1 ? "num" : "" }, text)))),
      el("tbody", {}, ...variant.resources.map((row) => el("tr", {}, ...row.map((value, i) => el("td", { class: i > 1 ? "num" : "" }, i > 2 ? `${value} B` : String(value)))))))));
  }
  for (const [role, symbol, parameters] of variant.kernels) parts.push(el("h3", {}, `Kernel ${role}`), el("pre", { tabindex: 0 }, `${symbol}(\n    ${parameters.join(",\n    ")})`));
  const holder = el("div", {}, el("p", {}, variant.source < 0 ? "" : "Unpacking the source…"));
  if (variant.source >= 0) parts.push(el("h3", {}, "Source"), holder);
  $("drawer-body").replaceChildren(...parts);
  if (!$("drawer").open) $("drawer").showModal();
  $("drawer").scrollTop = 0;
  history.replaceState(null, "", `#v=${encodeURIComponent(idOf(variant))}`);
  if (variant.source >= 0) {
    try {
      sources = sources || await unpack("sources");
      const text = sources.texts[variant.source].map((line) => sources.lines[line]).join("\n");
      holder.replaceChildren(el("pre", { tabindex: 0, "aria-label": "CUDA source" }, highlighted(text)));
    } catch (error) {
      holder.replaceChildren(el("p", { class: "warn" }, `The source cannot be unpacked: ${error.message}`));
    }
  }
}

function coverage() {
  const { cells, reserved } = catalog.coverage;
  const tiers = [...new Set(cells.map((cell) => cell.arch))];
  const notes = new Map(), rows = new Map();
  for (const cell of cells) {
    const type = cell.aux_element ? `${cell.element}/${cell.aux_element}` : cell.element;
    const key = `${cell.op} ${type}`;
    if (!rows.has(key)) rows.set(key, { op: cell.op, type, cells: {} });
    const marks = cell.reasons.map((reason) => { if (!notes.has(reason)) notes.set(reason, notes.size + 1); return notes.get(reason); });
    rows.get(key).cells[cell.arch] = el("td", { class: cell.variants ? "" : "none", title: cell.reasons.join("\n") },
      (cell.variants || "–") + (marks.length ? ` [${marks.join(",")}]` : ""));
  }
  $("coverage-table").replaceChildren(
    el("thead", {}, el("tr", {}, ...["Op", "Type", ...tiers].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, ...[...rows.values()].map((row) => el("tr", {}, el("th", { scope: "row" }, row.op), el("td", {}, row.type), ...tiers.map((tier) => row.cells[tier] || el("td"))))));
  $("coverage-notes").replaceChildren(...[...notes.keys()].map((reason) => el("li", {}, reason)));
  $("reserved").replaceChildren(...Object.entries(reserved).map(([category, names]) => el("p", {}, `Not in this library yet, ${category}: ${names.join(", ")}`)));
}

function selection() {
  const maps = catalog.maps;
  const typeOf = (map) => (map.aux_element ? `${map.element}/${map.aux_element}` : map.element);
  const unique = (values) => [...new Set(values)];
  options($("m-op"), unique(maps.map((map) => map.op)));
  options($("m-device"), unique(maps.map((map) => map.device)));
  const colour = (index) => `background: hsl(${(index * 137.5) % 360} var(--cell-s) var(--cell-l))`;
  const draw = () => {
    const map = maps.find((m) => m.op === $("m-op").value && typeOf(m) === $("m-type").value && m.device === $("m-device").value);
    if (!map) return;
    $("map-caption").textContent = `Across: ${map.x.label}. Down: ${map.y.label}. Numbers are the designs below; – is a problem that nothing serves, · is no problem.`;
    $("map").replaceChildren(
      el("thead", {}, el("tr", {}, el("td"), ...map.x.values.map((value) => el("th", { scope: "col" }, String(value))))),
      el("tbody", {}, ...map.cells.map((row, y) => el("tr", {}, el("th", { scope: "row" }, String(map.y.values[y])),
        ...row.map((index, x) => (index < 0 ? el("td", { class: "void" }, index === -1 ? "–" : "·")
          : el("td", { style: colour(index), title: `${map.x.label} ${map.x.values[x]}, ${map.y.label} ${map.y.values[y]}: ${map.designs[index]}` }, String(index + 1))))))));
    $("map-legend").replaceChildren(...map.designs.map((design, index) => el("li", {}, el("i", { style: colour(index) }, String(index + 1)), design)));
  };
  const narrow = () => {
    const kept = $("m-type").value;
    options($("m-type"), unique(maps.filter((map) => map.op === $("m-op").value).map(typeOf)));
    if ([...$("m-type").options].some((option) => option.value === kept)) $("m-type").value = kept;
    draw();
  };
  $("m-op").addEventListener("change", narrow);
  $("m-type").addEventListener("change", draw);
  $("m-device").addEventListener("change", draw);
  narrow();
}

async function start() {
  catalog = await unpack("catalog");
  const { meta } = catalog;
  $("meta").textContent = `Version ${meta.version}: ${catalog.variants.length} variants of ${catalog.skus.length} SKUs. Made ${meta.date}.`;
  table();
  coverage();
  performance_(catalog.benchmarks, $("performance-body"));
  selection();
  $("drawer-close").addEventListener("click", () => $("drawer").close());
  $("drawer").addEventListener("click", (event) => { if (event.target === $("drawer")) $("drawer").close(); });
  $("drawer").addEventListener("close", () => { history.replaceState(null, "", "#skus"); opener?.isConnected && opener.focus(); });
  const wanted = location.hash.startsWith("#v=") && decodeURIComponent(location.hash.slice(3));
  const variant = wanted && catalog.variants.find((v) => idOf(v) === wanted);
  if (variant) show(variant);
  document.documentElement.dataset.ready = "1";
}

start().catch((error) => {
  $("failure").hidden = false;
  $("failure").textContent = `The page's data cannot be read: ${error.message}`;
});
