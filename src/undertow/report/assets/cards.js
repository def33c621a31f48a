// A card: title, note, legend, chart, and its downloads; and the controls that several cards share.
const cards = [];
const watcher = new ResizeObserver((entries) => entries.forEach((entry) => {
  const own = entry.target.card;
  if (own && (Math.abs(own.drawnAt - entry.contentRect.width) > 1 || (own.fills && Math.abs(own.high - entry.contentRect.height) > 1))) own.redraw();
}));

// make: title, note, size (wide | half | third), draw(host, seen), legend(), table() -> {columns, rows};
// fill: at least so high, and as high as the row of cards allows; absent(): there is nothing to show for this choice
function card(run, make) {
  const host = el("div", { class: make.fill ? "host fill" : "host", style: make.fill ? { "min-height": `${make.fill + 12}px` } : undefined, tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": `${make.title}, ${run.name}. Arrow keys read its values.` });
  const legend = el("div", { class: "legend" });
  const note = el("p", { class: "note" });
  const hidden = new Set();
  const stem = `${run.name} ${make.title}`.replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "").toLowerCase() || "chart";
  const tool = (name, what, act) => el("button", { type: "button", class: "tool", title: what, "aria-label": `${what}: ${make.title}`, onclick: act }, name);
  const node = el("figure", { class: `card ${make.size ?? "half"}`, "data-chart": make.id },
    el("header", {}, el("h3", {}, make.title), el("div", { class: "tools" },
      tool("CSV", "Download the numbers", () => download(new Blob([csv(make.table())], { type: "text/csv" }), `${stem}.csv`)),
      tool("SVG", "Download as SVG", () => download(new Blob([picture(own)], { type: "image/svg+xml" }), `${stem}.svg`)),
      tool("PNG", "Download as PNG", () => bitmap(own, (blob) => download(blob, `${stem}.png`))))),
    make.note ? note : null, legend, host);
  const own = {
    node, host, title: `${make.title}, ${run.name}`, drawnAt: 0, high: 0, fills: Boolean(make.fill),
    legend: () => (make.legend?.() ?? []).filter((item) => !hidden.has(item.name)),
    redraw() {
      node.hidden = Boolean(make.absent?.());
      own.drawnAt = host.clientWidth;
      if (!own.drawnAt) return;
      note.textContent = typeof make.note === "function" ? make.note() : make.note;
      legend.replaceChildren(...(make.legend?.() ?? []).map((item) => chip(item, hidden, own, make)));
      own.high = host.clientHeight - 12;
      make.draw(host, (item) => !hidden.has(item.name));
    },
  };
  host.card = own;
  cards.push(own);
  watcher.observe(host);
  return own;
}
const swatch = (item) => (item.shape !== undefined
  ? sv("svg", { width: 12, height: 12, viewBox: "-6 -6 12 12" }, sv("path", { d: SHAPES[item.shape % SHAPES.length](4), style: { fill: item.colour } }))
  : sv("svg", { width: 22, height: 10 }, sv("line", { x1: 1, x2: 21, y1: 5, y2: 5, "stroke-dasharray": item.dash, style: { stroke: item.colour, "stroke-width": "2.4" } })));
function chip(item, hidden, own, make) {
  if (make.fixedLegend) return el("span", { class: "chip still" }, swatch(item), item.name);
  const pressed = make.pressed ? make.pressed(item) : !hidden.has(item.name);
  const press = () => {
    if (make.press) make.press(item);
    else if (!hidden.delete(item.name)) hidden.add(item.name);
    own.redraw();
    [...own.node.querySelectorAll(".chip")].find((node) => node.dataset.name === item.name)?.focus();
  };
  return el("button", { type: "button", class: "chip", "data-name": item.name, "aria-pressed": String(pressed), onclick: press }, swatch(item), el("span", {}, item.name));
}

// Downloads. A spreadsheet must not take a layer's name for a formula.
const cellOf = (value) => {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csv = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(cellOf).join(",")).join("\r\n") + "\r\n";
function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "opacity", "fill-opacity", "font-size", "font-weight", "font-family", "text-anchor", "visibility", "paint-order"];
function picture(own) {
  const source = own.host.querySelector("svg"), copy = source.cloneNode(true);
  const [theirs, mine] = [source.querySelectorAll("*"), copy.querySelectorAll("*")];
  theirs.forEach((node, k) => {
    const style = getComputedStyle(node);
    mine[k].removeAttribute("class");
    for (const name of KEPT) mine[k].style.setProperty(name, style.getPropertyValue(name));
  });
  const [width, height] = [Number(source.getAttribute("width")), Number(source.getAttribute("height"))];
  const ink = getComputedStyle(own.node), font = ink.fontFamily;
  const text = (x, y, size, weight, words) => sv("text", { x, y, style: { fill: ink.color, "font-family": font, "font-size": `${size}px`, "font-weight": weight } }, words);
  let [x, y] = [16, 46];
  const keys = own.legend().map((item) => {
    const long = 34 + item.name.length * 6.6;
    if (x + long > width + 16 && x > 16) [x, y] = [16, y + 20];
    const mark = swatch(item), colour = item.colour.startsWith("var(") ? ink.getPropertyValue(item.colour.slice(4, -1)) : item.colour;
    mark.firstChild.style.setProperty(item.shape === undefined ? "stroke" : "fill", colour);
    mark.setAttribute("x", x); mark.setAttribute("y", y - (item.shape === undefined ? 9 : 10));
    const made = sv("g", {}, mark, text(x + 28, y, 12, 400, item.name));
    x += long + 12;
    return made;
  });
  const top = keys.length ? y + 18 : 40;
  copy.setAttribute("x", 16); copy.setAttribute("y", top); copy.removeAttribute("aria-hidden");
  const whole = sv("svg", { width: width + 32, height: height + top + 12, viewBox: `0 0 ${width + 32} ${height + top + 12}` },
    sv("rect", { width: "100%", height: "100%", style: { fill: ink.backgroundColor } }), text(16, 24, 15, 600, own.title), ...keys, copy);
  return new XMLSerializer().serializeToString(whole);
}
function bitmap(own, done) {
  const image = new Image();
  image.onload = () => {
    const canvas = el("canvas", { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(done, "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture(own))}`;
}

// Controls. Each calls `act` with the new value; `key` is what a following page remembers it by.
let count = 0;
function select(label, key, options, chosen, act) {
  const id = `control-${(count += 1)}`;
  const kept = memory.get(key, chosen);
  const value = options.some((own) => own.value === kept) ? kept : chosen;
  const node = el("select", { id, "data-control": key, onchange: () => { memory.set(key, node.value); act(node.value); } },
    ...options.map((own) => el("option", { value: own.value, selected: own.value === value }, own.name)));
  return { node: el("label", { class: "control", for: id }, el("span", {}, label), node), value };
}
function slider(label, key, values, start, act) {
  const id = `control-${(count += 1)}`, kept = memory.get(key, null);
  const first = kept === null ? start : nearest(values, kept);
  const out = el("output", { for: id });
  const say = () => { out.textContent = number(values[input.value]); input.setAttribute("aria-valuetext", `${label} ${number(values[input.value])}`); };
  const input = el("input", { id, type: "range", min: 0, max: values.length - 1, step: 1, value: first, "data-control": key,
    oninput: () => { say(); memory.set(key, values[input.value]); act(values[input.value]); } });
  say();
  const set = (value) => { input.value = nearest(values, value); say(); memory.set(key, values[input.value]); act(values[input.value]); };
  return { node: el("label", { class: "control slider", for: id }, el("span", {}, label), input, out), value: values[first], set };
}
