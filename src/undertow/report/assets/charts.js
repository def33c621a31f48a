// Charts drawn as SVG into a host: lines, heat maps, dumbbells, scatters. Each can be read by mouse, touch and keys.
const tip = el("div", { class: "tip", role: "status", "aria-live": "polite", hidden: true });
document.body.append(tip);
const hideTip = () => { tip.hidden = true; };
document.addEventListener("scroll", hideTip, { passive: true });

// rows [name, value, colour, interval]; on a narrow screen the tip stands above or below its host, not upon it.
function showTip(x, y, title, rows, host) {
  tip.replaceChildren(el("strong", {}, title), ...rows.map(([name, value, colour, interval]) =>
    el("div", { class: "tip-row" },
      colour ? el("i", { style: { background: colour } }) : null, el("span", {}, name), el("b", {}, value), interval ? el("small", {}, interval) : null)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  if (host && innerWidth <= 640) {
    const around = host.getBoundingClientRect(), above = around.top - box.height - 4;
    tip.style.left = `${Math.min(Math.max(8, x - box.width / 2), innerWidth - box.width - 8)}px`;
    tip.style.top = `${above >= 8 ? above : Math.min(around.bottom + 4, innerHeight - box.height - 8)}px`;
    return;
  }
  const left = x + 16 + box.width > innerWidth ? x - box.width - 16 : x + 16;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.min(Math.max(8, y - box.height / 2), innerHeight - box.height - 8)}px`;
}

// Pointer and arrow keys lead to `go(dx, dy)` and `point(x, y)`; both answer with a place for the tip.
function readable(host, { point, go, leave, pick }) {
  host.onpointermove = (event) => {
    const box = host.getBoundingClientRect();
    point(event.clientX - box.left, event.clientY - box.top, event.clientX, event.clientY);
  };
  host.onpointerdown = host.onpointermove; // a finger does not hover
  host.onpointerleave = (event) => { if (event?.pointerType !== "touch") { hideTip(); leave(); } }; // a finger lifted still reads
  host.onblur = host.onpointerleave;
  host.onclick = () => pick?.();
  host.onkeydown = (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key === "Escape") host.onpointerleave();
    else if (event.key === "Enter") pick?.();
    else if (moves[event.key]) { event.preventDefault(); go(...moves[event.key]); }
  };
}

function area(host, { height, left = 46, right = 14, top = 26, bottom = 40 }) {
  const width = Math.max(220, host.clientWidth);
  if (host.card?.fills) height = Math.max(height, Math.floor(host.card.high));
  const svg = sv("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  host.replaceChildren(svg);
  return { svg, width, height, x0: left, x1: width - right, y0: height - bottom, y1: top };
}
function drawAxes(plot, { sx, sy, x, y, format }) {
  const { svg, x0, x1, y0 } = plot;
  const grid = sv("g", { class: "grid" }, ...sy.ticks.map((tick) => sv("line", { x1: x0, x2: x1, y1: sy(tick), y2: sy(tick) })));
  const ys = sv("g", { class: "tick end" }, ...sy.ticks.map((tick) => sv("text", { x: x0 - 8, y: sy(tick) + 4 }, format(tick))));
  const xs = x.names ? nameTicks(plot, x.names, sx) : sv("g", { class: "tick mid" }, ...sx.ticks.map((tick) => sv("text", { x: sx(tick), y: y0 + 19 }, number(tick))));
  svg.append(grid, sv("line", { class: "axis", x1: x0, x2: x1, y1: y0, y2: y0 }), ys, xs);
  if (x.label) svg.append(sv("text", { class: "label end", x: x1, y: plot.height - 5 }, x.label));
  if (y.label) svg.append(sv("text", { class: "label", x: x0 - 42, y: 12 }, y.label));
}
// Names stand upright where there is room, else they lean; of very many every second or third is written.
const LETTER = 6.3;
const leaning = (names, width) => Math.max(0, ...names.map((name) => Math.min(16, name.length))) * LETTER > width / Math.max(1, names.length) - 6;
function nameTicks({ x0, x1, y0 }, names, sx) {
  const lean = leaning(names, x1 - x0), every = Math.ceil(16 / ((x1 - x0) / names.length));
  return sv("g", { class: `tick ${lean ? "end" : "mid"}` }, ...names.map((name, place) => (place % every ? null : sv("text", lean
    ? { transform: `translate(${sx(place) + 5} ${y0 + 14}) rotate(-38)` } : { x: sx(place), y: y0 + 19 }, shorten(name, 16), sv("title", {}, name)))));
}
function pathOf(xs, ys, sx, sy) {
  let path = "", pen = "M";
  xs.forEach((x, k) => {
    if (!known(ys[k])) { pen = "M"; return; }
    path += `${pen}${sx(x).toFixed(1)} ${sy(ys[k]).toFixed(1)}`; pen = "L";
  });
  return path;
}
function bandOf(series, sx, sy) {
  const keep = series.x.map((_, k) => k).filter((k) => known(series.low[k]) && known(series.high[k]));
  if (keep.length < 2) return "";
  const side = (ks, edge) => ks.map((k) => `${sx(series.x[k]).toFixed(1)} ${sy(series[edge][k]).toFixed(1)}`).join("L");
  return `M${side(keep, "high")}L${side([...keep].reverse(), "low")}z`;
}
function drawSeries(svg, series, sx, sy) {
  const style = { stroke: series.colour };
  if (series.low && series.bars) svg.append(...whiskers(series, sx, sy));
  else if (series.low) svg.append(sv("path", { class: "band", d: bandOf(series, sx, sy), style: { fill: series.colour } }));
  svg.append(sv("path", { class: `line${series.faint ? " faint" : ""}`, d: pathOf(series.x, series.y, sx, sy), "stroke-dasharray": series.dash, style }));
  if (series.x.length > 1 && series.marker === undefined) return;
  const shape = SHAPES[(series.marker ?? 0) % SHAPES.length](4.5);
  svg.append(...series.x.map((x, k) => (known(series.y[k])
    ? sv("path", { class: "dot", d: shape, transform: `translate(${sx(x)} ${sy(series.y[k])})`, style: { fill: series.colour } }) : "")));
}
const whiskers = (series, sx, sy) => series.x.filter((_, k) => known(series.low[k])).map((x) => {
  const k = series.x.indexOf(x);
  return sv("path", { class: "whisker", d: `M${sx(x) - 4} ${sy(series.low[k])}h8m-4 0V${sy(series.high[k])}m-4 0h8`, style: { stroke: series.colour } });
});

// spec: series [{name, x, y, low, high, colour, dash}], x {label, log, names}, y {label, log, min, max, format}, pin, pick, refs
function lines(host, spec) {
  const { series, x, y } = spec;
  const format = y.format ?? number;
  const all = series.flatMap((own) => [...own.y, ...(own.low ?? []), ...(own.high ?? [])]);
  const domain = roundedDomain([...all, ...(spec.refs ?? []).flatMap((ref) => [ref.y, ref.low, ref.high])], y);
  const places = rising(series.flatMap((own) => own.x));
  const lean = x.names && leaning(x.names, host.clientWidth - 64);
  const plot = area(host, { height: spec.height ?? 300, left: 50, bottom: lean ? 24 + 0.62 * LETTER * Math.max(...x.names.map((name) => Math.min(16, name.length))) + (x.label ? 14 : 0) : 40 });
  const { svg, x0, x1, y0, y1 } = plot;
  const across = x.names ? [-0.5, x.names.length - 0.5] : places.length ? [places[0], places.at(-1)] : [1, 10];
  const sx = (x.log ? logarithmic : linear)(across, [x0, x1], (x1 - x0) / 75);
  const sy = (y.log ? logarithmic : linear)(domain, [y0, y1], (y0 - y1) / 34);
  const tickFormat = y.format === percent ? (value) => `${Math.round(100 * value)} %` : number;
  drawAxes(plot, { sx, sy, x, y, format: tickFormat });
  for (const ref of spec.refs ?? []) {
    if (known(ref.low)) svg.append(sv("rect", { class: "band", x: x0, width: x1 - x0, y: sy(ref.high), height: Math.max(0, sy(ref.low) - sy(ref.high)), style: { fill: ref.colour } }));
    svg.append(sv("line", { class: "ref", x1: x0, x2: x1, y1: sy(ref.y), y2: sy(ref.y), "stroke-dasharray": ref.dash, style: { stroke: ref.colour } }));
  }
  [...series].sort((a, b) => (b.faint ? 1 : 0) - (a.faint ? 1 : 0)).forEach((own) => drawSeries(svg, own, sx, sy));
  const cross = sv("g", { class: "cross", visibility: "hidden" });
  if (known(spec.pin)) svg.append(sv("line", { class: "pin", x1: sx(spec.pin), x2: sx(spec.pin), y1, y2: y0 }),
    ...dots(series, spec.pin, sx, sy));
  svg.append(cross);
  let here = null;
  const show = (place, clientX, clientY) => {
    if (!places.length) return;
    here = place;
    const value = places[place];
    cross.setAttribute("visibility", "visible");
    cross.replaceChildren(sv("line", { x1: sx(value), x2: sx(value), y1, y2: y0 }), ...dots(series, value, sx, sy));
    const rows = [...series.map((own) => [own, own.x.indexOf(value)]).filter(([, k]) => k >= 0).map(([own, k]) =>
      [own.name, format(own.y[k]), own.colour, own.low && known(own.low[k]) && own.low[k] < own.high[k] ? between(own.low[k], own.high[k], format) : ""])];
    const box = host.getBoundingClientRect();
    showTip(clientX ?? box.left + sx(value), clientY ?? box.top + 60, x.names ? x.names[value] : `${x.label ?? ""} ${number(value)}`.trim(), rows, host);
  };
  readable(host, {
    point: (px, py, cx, cy) => show(nearest(places.map((value) => sx(value)), px), cx, cy),
    go: (dx) => show(Math.min(places.length - 1, Math.max(0, (here ?? (known(spec.pin) ? nearest(places, spec.pin) : -dx)) + dx))),
    leave: () => cross.setAttribute("visibility", "hidden"),
    pick: spec.pick && (() => here !== null && spec.pick(places[here])),
  });
}
const between = (low, high, format) => `${format(low).replace("\u00a0%", "")}–${format(high).replace("\u00a0%", "")}`;
const dots = (series, value, sx, sy) => series.filter((own) => !own.faint).map((own) => [own, own.x.indexOf(value)])
  .filter(([own, k]) => k >= 0 && known(own.y[k]))
  .map(([own, k]) => sv("circle", { class: "dot", cx: sx(value), cy: sy(own.y[k]), r: 4, style: { fill: own.colour } }));

// spec: xs, ys (bottom first), value[y][x], kind, format, xLabel, yLabel, square, detail(ix, iy), pinX, pick(ix), diagonal
function heat(host, spec) {
  const { xs, ys, value } = spec;
  const longest = Math.max(...ys.map((name) => Math.min(18, String(name).length)));
  const left = spec.square ? 46 : 16 + longest * 6.4;
  const width = Math.max(220, host.clientWidth);
  const inner = width - left - 14;
  const cell = spec.square ? inner / xs.length : Math.min(40, Math.max(20, 260 / ys.length));
  const height = spec.square ? inner + 88 : cell * ys.length + 88;
  const plot = area(host, { height, left, top: 46 });
  const { svg, x0, x1, y0, y1 } = plot;
  const seen = value.flat().filter(known);
  const ranked = rising(seen);
  // The first checkpoints know nothing and would take most of the colours: the lowest twelfth shares one; of
  // differences, the twelfth that is furthest from zero.
  const spared = spec.robust ? Math.floor(ranked.length / 12) : 0;
  let [low, high] = [ranked[spared], ranked.at(-1)];
  if (spec.kind === "div") { high = rising(seen.map(Math.abs)).at(-1 - spared) || 0.01; low = -high; }
  if (!seen.length) { svg.append(sv("text", { class: "label", x: x0, y: y1 + 20 }, "Nothing was measured for this choice.")); readable(host, { point() {}, go() {}, leave() {} }); return; }
  const [w, h] = [(x1 - x0) / xs.length, (y0 - y1) / ys.length];
  const level = (own) => Math.round(63 * (high > low ? Math.min(1, Math.max(0, (own - low) / (high - low))) : 0.5));
  const paths = new Map();
  value.forEach((row, iy) => row.forEach((own, ix) => {
    if (!known(own)) return;
    const d = `M${(x0 + ix * w).toFixed(2)} ${(y0 - (iy + 1) * h).toFixed(2)}h${(w + 0.5).toFixed(2)}v${(h + 0.5).toFixed(2)}h${(-w - 0.5).toFixed(2)}z`;
    paths.set(level(own), (paths.get(level(own)) ?? "") + d);
  }));
  svg.append(sv("rect", { class: "void", x: x0, y: y1, width: x1 - x0, height: y0 - y1, rx: 3 }),
    sv("g", { "shape-rendering": "crispEdges" }, ...[...paths].map(([own, d]) => sv("path", { d, style: { fill: colourOf(spec.kind, own / 63) } }))));
  heatAxes(plot, spec, w, h);
  heatKey(plot, spec, low, high, [low > ranked[0] ? "≤ " : "", high < ranked.at(-1) ? "≥ " : ""]);
  if (spec.diagonal) svg.append(sv("line", { class: "pin", x1: x0, y1: y0, x2: x1, y2: y1 }));
  if (known(spec.pinX)) svg.append(sv("rect", { class: "frame soft", x: x0 + spec.pinX * w, y: y1, width: w, height: y0 - y1 }));
  const frame = sv("rect", { class: "frame", width: w, height: h, visibility: "hidden" });
  svg.append(frame);
  let here = null;
  const show = (ix, iy, cx, cy) => {
    here = [ix, iy];
    frame.setAttribute("visibility", "visible");
    frame.setAttribute("x", x0 + ix * w); frame.setAttribute("y", y0 - (iy + 1) * h);
    const box = host.getBoundingClientRect();
    const [title, rows] = spec.detail(ix, iy);
    showTip(cx ?? box.left + x0 + ix * w, cy ?? box.top + y0 - iy * h, title, rows);
  };
  const clamp = (place, most) => Math.min(most - 1, Math.max(0, place));
  readable(host, {
    point: (px, py, cx, cy) => show(clamp(Math.floor((px - x0) / w), xs.length), clamp(Math.floor((y0 - py) / h), ys.length), cx, cy),
    go: (dx, dy) => show(clamp((here?.[0] ?? 0) + dx, xs.length), clamp((here?.[1] ?? 0) + dy, ys.length)),
    leave: () => frame.setAttribute("visibility", "hidden"),
    pick: spec.pick && (() => here && spec.pick(here[0])),
  });
}
function heatAxes({ svg, x0, x1, y0 }, spec, w, h) {
  const everyX = Math.ceil(36 / w), everyY = Math.ceil((spec.square ? 26 : 13) / h);
  svg.append(
    sv("g", { class: "tick mid" }, ...spec.xs.map((name, ix) => (ix % everyX ? null : sv("text", { x: x0 + (ix + 0.5) * w, y: y0 + 18 }, number(name))))),
    sv("g", { class: "tick end" }, ...spec.ys.map((name, iy) => (iy % everyY ? null
      : sv("text", { x: x0 - 8, y: y0 - (iy + 0.5) * h + 4 }, typeof name === "number" ? number(name) : shorten(name, 18), sv("title", {}, String(name)))))),
    sv("text", { class: "label end", x: x1, y: y0 + 35 }, spec.xLabel));
}
function heatKey({ svg, x0, x1 }, spec, low, high, [below, above]) {
  const width = Math.min(150, (x1 - x0) / 3), from = x1 - width - 48;
  const steps = 24;
  svg.append(sv("text", { class: "label", x: 4, y: 12 }, spec.yLabel),
    sv("g", {}, ...Array.from({ length: steps }, (_, k) => sv("rect", { x: from + (k * width) / steps, y: 20, width: width / steps + 0.5, height: 8, style: { fill: colourOf(spec.kind, k / (steps - 1)) } }))),
    sv("text", { class: "tick end", x: from - 6, y: 28 }, below + spec.format(low)), sv("text", { class: "tick", x: from + width + 6, y: 28 }, above + spec.format(high)));
}
