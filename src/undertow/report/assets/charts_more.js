// Before and after, and points that move.

// rows [{name, group, before, after, low, high}]: a line from before to after, with the interval of the gain.
function dumbbells(host, { rows, format, label }) {
  const row = 34;
  const left = Math.min(170, 24 + 6.6 * Math.max(...rows.map((own) => Math.min(24, own.title.length))));
  const plot = area(host, { height: rows.length * row + 78, left, top: 30, right: 24 });
  const { svg, x0, x1, y0, y1 } = plot;
  const edges = rows.flatMap((own) => [own.before, own.after, own.before + (own.low ?? 0), own.before + (own.high ?? 0)]);
  const sx = linear(roundedDomain(edges, { max: 1 }), [x0, x1], (x1 - x0) / 80);
  svg.append(sv("g", { class: "grid" }, ...sx.ticks.map((tick) => sv("line", { x1: sx(tick), x2: sx(tick), y1, y2: y0 }))),
    sv("g", { class: "tick mid" }, ...sx.ticks.map((tick) => sv("text", { x: sx(tick), y: y0 + 18 }, `${Math.round(100 * tick)} %`))),
    sv("text", { class: "label end", x: x1, y: y0 + 35 }, label));
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
function scatter(host, { track, moment, classes, only, whole }) {
  const width = Math.max(220, host.clientWidth);
  const plot = area(host, { height: Math.min(width, Math.max(300, width - 96), 520), left: 10, right: 10, top: 10, bottom: 10 });
  const { svg, x0, x1, y0, y1 } = plot;
  const from = Math.floor(moment), share = moment - from, to = Math.min(track.checkpoints.length - 1, from + 1);
  const placed = (rows, n) => (known(rows[from][n]) ? rows[from][n] + ((rows[to][n] ?? rows[from][n]) - rows[from][n]) * share : null);
  const ends = [track.x, track.y].map((rows) => (whole ? rows.flat() : track.labels.map((_, n) => placed(rows, n))).filter(known)
    .reduce(([low, high], own) => [Math.min(low, own), Math.max(high, own)], [Infinity, -Infinity]));
  const [cx, cy] = ends.map(([low, high]) => (low + high) / 2);
  // One unit is as long upwards as sideways: directions are principal components.
  const reach = Math.max((ends[0][1] - ends[0][0]) / (x1 - x0), (ends[1][1] - ends[1][0]) / (y0 - y1)) * 1.06 || 1;
  const sx = (own) => (x0 + x1) / 2 + (own - cx) / reach, sy = (own) => (y0 + y1) / 2 - (own - cy) / reach;
  const clip = `way-${(count += 1)}`; // ways may come from outside of what is shown
  const tails = sv("g", { class: "tails", "clip-path": `url(#${clip})` }), marks = sv("g", {});
  const shown = [];
  track.labels.forEach((label, n) => {
    const [x, y] = [placed(track.x, n), placed(track.y, n)];
    if (!known(x) || !known(y)) return;
    const [px, py] = [sx(x), sy(y)];
    const aside = only !== null && label !== only;
    const colour = seriesColour(label ?? 6);
    const way = [];
    for (let k = Math.max(0, from - 5); k <= from; k += 1) if (known(track.x[k][n])) way.push([sx(track.x[k][n]), sy(track.y[k][n])]);
    const path = (steps) => `M${steps.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;
    way.push([px, py]);
    if (!aside) tails.append(sv("path", { class: "older", d: way.length > 3 ? path(way.slice(0, -2)) : "", style: { stroke: colour } }), sv("path", { d: path(way.slice(-3)), style: { stroke: colour } }));
    marks.append(sv("path", { class: `point${aside ? " aside" : ""}`, d: SHAPES[(label ?? 0) % SHAPES.length](4.2), transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})`, style: { fill: colour } }));
    if (!aside) shown.push([px, py, n]);
  });
  svg.append(sv("clipPath", { id: clip }, sv("rect", { x: 0, y: 0, width: plot.width, height: plot.height })), tails, marks, ...ruler(plot, reach));
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
// How long one round number is: the axes change with the moment.
function ruler({ x0, y0, x1 }, reach) {
  const most = (reach * (x1 - x0)) / 5, power = 10 ** Math.floor(Math.log10(most));
  const long = [5, 2, 1].find((own) => own * power <= most) * power;
  return [sv("path", { class: "ruler", d: `M${x0} ${y0 - 3}v6m0 -3h${(long / reach).toFixed(1)}m0 -3v6` }), sv("text", { class: "tick halo", x: x0, y: y0 - 8 }, number(long))];
}
