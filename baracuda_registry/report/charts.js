// Elements, the highlighter, and the charts of measured performance.

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function options(select, values, all) {
  select.replaceChildren(...(all ? [el("option", { value: "" }, all)] : []), ...values.map((v) => el("option", { value: v }, v)));
}

const WORDS = new Set("alignas asm auto break case const constexpr continue default do else enum extern false for if inline namespace nullptr operator return sizeof static static_assert struct switch template true typedef typename union using volatile while __global__ __device__ __shared__ __forceinline__ __restrict__ __launch_bounds__ __syncthreads".split(" "));
const TYPES = /^(bool|char|short|int|long|unsigned|signed|float|double|void|size_t|u?int\d+_t|[a-z]+\d*_t|__half2?|__nv_bfloat162?|u?int[234]|float[234]|double2)$/;
const TOKENS = /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(^[ \t]*#[^\n]*)|(\b0[xX][\da-fA-F]+[uUlL]*|\b\d[\d.]*(?:[eE][+-]?\d+)?[fFuUlL]*)|([A-Za-z_]\w*)/gm;

function highlighted(text) {
  const code = el("code");
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    const [whole, comment, string, directive, number, word] = match;
    const kind = comment ? "c" : string ? "s" : directive ? "p" : number ? "n" : WORDS.has(word) ? "k" : TYPES.test(word) ? "t" : "";
    if (!kind) continue;
    code.append(text.slice(end, match.index), el("span", { class: kind }, whole));
    end = match.index + whole.length;
  }
  code.append(text.slice(end));
  return code;
}

function micro(us) {
  return us >= 1000 ? `${(us / 1000).toPrecision(3)} ms` : `${us.toPrecision(3)} µs`;
}

// Share of the copy bandwidth: one bar a case, from 0 to a little above 100 %.
function shareChart(rows) {
  const shown = rows.filter((row) => row.share);
  if (!shown.length) return null;
  const top = Math.max(1.05, ...shown.map((row) => row.share));
  const figure = el("figure", {}, el("figcaption", {}, "Share of the copy bandwidth at the bytes that must move; the line is 100 %."));
  const bars = el("div", { class: "bars", role: "list" });
  for (const row of shown) {
    const text = `${Math.round(100 * row.share)} %`;
    const track = el("div", { class: "track" },
      el("div", { class: "fill", style: `width:${(100 * row.share) / top}%` }),
      el("div", { class: "one", style: `left:${100 / top}%` }));
    bars.append(el("div", { class: "label", role: "listitem" }, `${row.case}${row.correct ? "" : " (wrong!)"} · ${row.design}, ${micro(row.us)}`),
      track, el("div", { class: "value" }, text));
  }
  figure.append(bars);
  return figure;
}

// Speed-up over one peer on a logarithmic axis; the line is 1.
function speedChart(rows, peer) {
  const shown = rows.filter((row) => row.peers[peer]).map((row) => ({ ...row, times: row.peers[peer] / row.us }));
  if (!shown.length) return null;
  const low = Math.log(Math.min(0.8, ...shown.map((row) => row.times)));
  const high = Math.log(Math.max(2, ...shown.map((row) => row.times)) * 1.05);
  const place = (value) => (100 * (Math.log(value) - low)) / (high - low);
  const figure = el("figure", {}, el("figcaption", {}, `Speed-up over ${peer} (logarithmic; the line is 1, squares are slower).`));
  const bars = el("div", { class: "bars", role: "list" });
  for (const row of shown) {
    const track = el("div", { class: "track" }, el("div", { class: "one", style: `left:${place(1)}%` }),
      el("div", { class: row.times < 1 ? "dot other" : "dot", style: `left:${place(row.times)}%` }));
    bars.append(el("div", { class: "label", role: "listitem" }, row.case), track, el("div", { class: "value" }, `${row.times.toPrecision(3)} ×`));
  }
  figure.append(bars);
  return figure;
}

function performance_(results, body) {
  if (!results.length) {
    body.append(el("p", {}, "No benchmark results were given when this page was made."));
    return;
  }
  const file = el("select"), op = el("select"), dtype = el("select"), peer = el("select");
  const plots = el("div");
  file.append(...results.map((result, index) => el("option", { value: index }, result.title)));
  const unique = (values) => [...new Set(values)];
  const draw = () => {
    const rows = results[file.value].rows.filter((row) => row.op === op.value && row.dtype === dtype.value);
    const bandwidth = results[file.value].copy_bandwidth;
    plots.replaceChildren(...[
      bandwidth && el("p", {}, `A copy moves ${(bandwidth / 1e12).toFixed(2)} TB/s there, read and written.`),
      shareChart(rows), peer.value && speedChart(rows, peer.value)].filter(Boolean));
  };
  const narrow = () => {
    const rows = results[file.value].rows.filter((row) => row.op === op.value);
    const kept = [dtype.value, peer.value];
    options(dtype, unique(rows.map((row) => row.dtype)));
    options(peer, unique(rows.flatMap((row) => Object.keys(row.peers))));
    peer.parentElement.hidden = !peer.options.length;
    if ([...dtype.options].some((o) => o.value === kept[0])) dtype.value = kept[0];
    if ([...peer.options].some((o) => o.value === kept[1])) peer.value = kept[1];
    draw();
  };
  const opened = () => { options(op, unique(results[file.value].rows.map((row) => row.op))); narrow(); };
  file.addEventListener("change", opened);
  op.addEventListener("change", narrow);
  dtype.addEventListener("change", draw);
  peer.addEventListener("change", draw);
  const control = (name, select) => el("label", {}, name, select);
  body.append(el("form", { class: "controls" }, control("Results", file), control("Op", op), control("Type", dtype), control("Peer", peer)), plots);
  opened();
}
