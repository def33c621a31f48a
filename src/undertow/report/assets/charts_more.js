// Before and after, and points that move.

// rows [{name, group, before, after, low, high}]: a line from before to after, with the interval of the gain.
function dumbbells(host, { rows, format }) {
  const row = 34;
  const left = Math.min(170, 24 + 6.6 * Math.max(...rows.map((own) => Math.min(24, own.title.length))));
  const plot = area(host, { height: rows.length * row + 78, left, top: 30, right: 24 });
  const { svg, x0, x1, y0, y1 } = plot;
  const edges = rows.flatMap((own) => [own.before, own.after, own.before + (own.low ?? 0), own.before + (own.high ?? 0)]);
  const sx = linear(roundedDomain(edges, { max: 1 }), [x0, x1], (x1 - x0) / 80);
  svg.append(sv("g", { class: "grid" }, ...sx.ticks.map((tick) => sv("line", { x1: sx(tick), x2: sx(tick), y1, y2: y0 }))),
    sv("g", { class: "tick mid" }, ...sx.ticks.map((tick) => sv("text", { x: sx(tick), y: y0 + 18 }, `${Math.round(100 * tick)} %`))),
    sv("text", { class: "label end", x: x1, y: y0 + 35 }, "test accuracy"));
  const place = (k) => y1 + (k + 0.5) * row;
  rows.forEach((own, k) => {
    const y = place(k), better = own.after >= own.before;
    const colour = better ? "var(--s0)" : "var(--s1)";
    svg.append(sv("text", { class: "tick strong end", x: x0 - 14, y: y + 4 }, shorten(own.title, 24), sv("title", {}, own.title)));
    if (known(own.low)) svg.append(sv("line", { class: "interval", x1: sx(own.before + own.low), x2: sx(own.before + own.high), y1: y, y2: y, style: { stroke: colour } }));
    svg.append(sv("line", { class: "stem", x1: sx(own.before), x2: sx(own.after), y1: y, y2: y, style: { stroke: colour } }),
      sv("circle", { class: "hollow", cx: sx(own.before), cy: y, r: 5 }),
      sv("path", { class: "dot", d: SHAPES[0](6), transform: `translate(${sx(own.after)} ${y})`, style: { fill: colour } }));
  });
  const mark = sv("rect", { class: "frame soft", x: 0, width: plot.width, height: row, visibility: "hidden" });
  svg.append(mark);
  let here = -1;
  const show = (k, cx, cy) => {
    here = Math.min(rows.length - 1, Math.max(0, k));
    const own = rows[here], box = host.getBoundingClientRect();
    mark.setAttribute("visibility", "visible"); mark.setAttribute("y", place(here) - row / 2);
    showTip(cx ?? box.left + x1 - 120, cy ?? box.top + place(here), own.title, [["before", format(own.before)], ["after", format(own.after)],
      ["gain", points(own.after - own.before) + (known(own.low) ? `  (${points(own.low)} to ${points(own.high)})` : "")]]);
  };
  readable(host, { point: (px, py, cx, cy) => show(Math.floor((py - y1) / row), cx, cy), go: (dx, dy) => show(here - dy - (dy ? 0 : -dx)), leave: () => mark.setAttribute("visibility", "hidden") });
}

// Points of one checkpoint with the way they came; `moment` may lie between two checkpoints.
function scatter(host, { track, moment, classes, only }) {
  const width = Math.max(220, host.clientWidth);
  const plot = area(host, { height: Math.min(width, Math.max(300, width - 96), 520), left: 10, right: 10, top: 10, bottom: 10 });
  const { svg, x0, x1, y0, y1 } = plot;
  const flatX = track.x.flat().filter(known), flatY = track.y.flat().filter(known);
  const [cx, cy] = [flatX, flatY].map((own) => (own.reduce((a, b) => Math.min(a, b), Infinity) + own.reduce((a, b) => Math.max(a, b), -Infinity)) / 2);
  // One unit is as long upwards as sideways: directions are principal components.
  const reach = Math.max(flatX.reduce((a, b) => Math.max(a, Math.abs(b - cx)), 0) / (x1 - x0), flatY.reduce((a, b) => Math.max(a, Math.abs(b - cy)), 0) / (y0 - y1)) * 2.08 || 1;
  const sx = (own) => (x0 + x1) / 2 + (own - cx) / reach, sy = (own) => (y0 + y1) / 2 - (own - cy) / reach;
  const from = Math.floor(moment), share = moment - from, to = Math.min(track.checkpoints.length - 1, from + 1);
  const between = (rows, n) => rows[from][n] + ((rows[to][n] ?? rows[from][n]) - rows[from][n]) * share;
  const tails = sv("g", { class: "tails" }), marks = sv("g", {});
  const shown = [];
  track.labels.forEach((label, n) => {
    const [px, py] = [sx(between(track.x, n)), sy(between(track.y, n))];
    if (!known(px) || !known(py)) return;
    const aside = only !== null && label !== only;
    const colour = seriesColour(label ?? 6);
    let d = "";
    for (let k = Math.max(0, from - 5); k <= from; k += 1) if (known(track.x[k][n])) d += `${d ? "L" : "M"}${sx(track.x[k][n]).toFixed(1)} ${sy(track.y[k][n]).toFixed(1)}`;
    if (!aside) tails.append(sv("path", { d: `${d}L${px.toFixed(1)} ${py.toFixed(1)}`, style: { stroke: colour } }));
    marks.append(sv("path", { class: `point${aside ? " aside" : ""}`, d: SHAPES[(label ?? 0) % SHAPES.length](4.2), transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})`, style: { fill: colour } }));
    if (!aside) shown.push([px, py, n]);
  });
  svg.append(tails, marks);
  let here = 0;
  const show = (k, clientX, clientY) => {
    if (!shown.length) return;
    here = (k + shown.length) % shown.length;
    const [px, py, n] = shown[here], box = host.getBoundingClientRect(), label = track.labels[n];
    showTip(clientX ?? box.left + px, clientY ?? box.top + py, `sample ${track.samples[n]}`, [["class", label === null ? "unknown" : classes[label] ?? String(label), seriesColour(label ?? 6)]]);
  };
  readable(host, {
    point: (px, py, cx2, cy2) => {
      const k = shown.reduce((best, own, place) => (Math.hypot(own[0] - px, own[1] - py) < Math.hypot(shown[best][0] - px, shown[best][1] - py) ? place : best), 0);
      if (shown.length && Math.hypot(shown[k][0] - px, shown[k][1] - py) < 14) show(k, cx2, cy2); else hideTip();
    },
    go: (dx, dy) => show(here + (dx || dy)), leave() {},
  });
}
