// What each layer knows: accuracy over training, layer x checkpoint maps, repair, richness, spectra.
const SHARE = { label: "accuracy", min: undefined, max: 1, format: percent };
const panelOf = (section, run) => section.querySelector(`.panel[data-run="${run.id}"] .cards`);
const put = (section, run, ...made) => { panelOf(section, run)?.append(...made.map((own) => own.node)); return made; };
const redraw = (made) => made.forEach((own) => own.redraw());
const control = (section, ...nodes) => section.querySelector(".controls").append(...nodes);
const styled = (curves, more = () => ({})) => curves.map((curve, k) => ({ ...curve, colour: seriesColour(k), dash: DASHES[k % DASHES.length], ...more(curve, k) }));
const tableOf = (columns, series, tag) => ({
  columns, rows: series.flatMap((own) => own.x.map((x, k) => [tag(own), x, own.y[k], own.low?.[k], own.high?.[k]])),
});
const OVERVIEW = { test: [6, "", 0], fit: [1, "2 3", 1], true: [4, "7 4", 2], wrong: [3, "9 3 2 3", 3] };
const PROBE_SLOTS = [0, 2, 5, 7, 3];

function overviewSeries(run) {
  let probes = 0;
  return run.overview.map((curve) => {
    const [slot, dash] = OVERVIEW[curve.role] ?? [PROBE_SLOTS[probes % 5], DASHES[probes++ % 4]];
    return { ...curve, colour: curve.role === "test" ? "var(--ink)" : seriesColour(slot), dash };
  });
}
// The accuracies of layers at one checkpoint, fitted with the labels that training had.
const judged = (run) => {
  const fitting = (run.latent?.grids ?? []).filter((grid) => grid.measure === "accuracy" && grid.split === "test");
  const by = (grids, field, order) => { const found = order.find((name) => grids.some((grid) => grid[field] === name)); return grids.filter((grid) => grid[field] === found); };
  return by(by(fitting, "fit", ["given", "true", undefined]), "labels", ["true", "given", undefined]);
};

function accuracySection(section, runs) {
  const epochs = rising(runs.flatMap((run) => run.overview.flatMap((curve) => curve.x)));
  if (!epochs.length) return;
  const made = [];
  const state = { epoch: epochs.at(-1) };
  const pick = slider(UNIT_UP, "epoch", epochs, epochs.length - 1, (value) => { state.epoch = value; redraw(made); });
  state.epoch = pick.value;
  control(section, pick.node);
  if (runs.length > 1) compareCards(section, runs).forEach((own) => made.push(own));
  for (const run of runs.filter((own) => own.overview.length)) {
    const series = overviewSeries(run);
    made.push(...put(section, run, card(run, {
      id: "accuracy", title: "The model and its best layers", size: "most", fill: 340,
      note: "The model itself, and the best layer of each probe. Bands are 95 % intervals of each curve alone; the best layer's at the top of the page is wider, for it was picked. Click or slide to choose a checkpoint.",
      legend: () => series,
      draw: (host, seen) => lines(host, { series: series.filter(seen), x: { label: UNIT }, y: SHARE, height: 340, pin: series.some((own) => own.x.includes(state.epoch)) ? state.epoch : null, pick: (value) => pick.set(value) }),
      table: () => tableOf(["curve", UNIT, "accuracy", "low", "high"], series, (own) => own.name),
    })));
    if (judged(run).length) made.push(...put(section, run, depthCard(run, state)));
  }
}
function depthCard(run, state) {
  const layers = run.latent.layers;
  const series = () => {
    const place = nearest(run.latent.checkpoints, state.epoch);
    const cut = (rows) => rows?.map((row) => row[place]);
    return judged(run).map((grid, k) => ({ name: grid.name, x: layers.map((_, n) => n), y: cut(grid.value), low: cut(grid.low), high: cut(grid.high), colour: seriesColour(PROBE_SLOTS[k % 5]), dash: DASHES[k % 4], marker: k }));
  };
  const refs = () => {
    const test = run.overview.find((curve) => curve.role === "test");
    const y = test?.y[nearest(test.x, state.epoch)];
    return known(y) ? [{ y, name: "the model itself", colour: "var(--ink)", dash: "4 4" }] : [];
  };
  return card(run, {
    id: "depth", title: "Through the layers", size: "less", fill: 340,
    note: () => `What probes read from each layer at ${at(run.latent.checkpoints[nearest(run.latent.checkpoints, state.epoch)])}, first layer on the left.`,
    legend: () => [...series(), ...refs()],
    draw: (host, seen) => lines(host, { series: series().filter(seen), refs: refs().filter(seen), x: { names: layers }, y: SHARE, height: 340 }),
    table: () => tableOf(["probe", "layer", "accuracy", "low", "high"], series().map((own) => ({ ...own, x: layers })), (own) => own.name),
  });
}
function compareCards(section, runs) {
  const all = { name: "all runs" };
  const of = (choose) => styled(runs.map((run) => [run, choose(run)]).filter(([, curve]) => curve).map(([run, curve]) => ({ ...curve, name: run.name })));
  const charts = [
    ["Test accuracy of all runs", of((run) => run.overview.find((curve) => curve.role === "test")), SHARE],
    ["Best layer of all runs", of((run) => run.overview.filter((curve) => curve.role === "probe").sort((a, b) => b.y.at(-1) - a.y.at(-1))[0]), SHARE],
  ].filter(([, series]) => series.length);
  const made = charts.map(([title, series, y], k) => card(all, {
    id: `compare-${k}`, title, size: "half", note: k ? "What the best probe reads from the best layer." : "The models themselves.",
    legend: () => series,
    draw: (host, seen) => lines(host, { series: series.filter(seen), x: { label: UNIT }, y, height: 260 }),
    table: () => tableOf(["run", UNIT, "accuracy", "low", "high"], series, (own) => own.name),
  }));
  section.querySelector(".together .cards").append(...made.map((own) => own.node));
  return made;
}

// Layer x checkpoint maps: a probe, or what it lies above the model or another probe.
function layersSection(section, runs) {
  const having = runs.filter((run) => run.latent);
  const grids = having.flatMap((run) => run.latent.grids);
  if (!grids.length) return;
  const kindOf = (grid) => [grid.fit && `fitted with ${grid.fit} labels`, grid.split, grid.labels && `${grid.labels} labels`].filter(Boolean).join(", ");
  const kinds = unique(grids.filter((grid) => grid.measure === "accuracy").map(kindOf));
  const first = having.flatMap(judged)[0];
  const names = unique(grids.filter((grid) => grid.measure === "accuracy").map((grid) => grid.name));
  const made = [];
  const change = (field) => (value) => { state[field] = value; redraw(made); };
  const options = (list) => list.map((name) => ({ name, value: name }));
  const probe = select("Probe", "map-probe", options(names), first?.name ?? names[0], change("probe"));
  const minus = select("minus", "map-minus", [{ name: "nothing", value: "" }, { name: "the model", value: "model" }, ...names.map((name) => ({ name, value: `probe:${name}` }))], "", change("minus"));
  const kind = select("measured", "map-kind", options(kinds), first ? kindOf(first) : kinds[0], change("kind"));
  const state = { probe: probe.value, minus: minus.value, kind: kind.value };
  control(section, probe.node, minus.node, kind.node);
  for (const run of having) made.push(...put(section, run, mapCard(run, state, kindOf)), ...dimensionCards(section, run, state));
}
const SHUFFLED = "A control, fitted with shuffled labels: which classes a shuffle favours is luck, so single values scatter around chance by more than their interval.";
function mapCard(run, state, kindOf) {
  const { layers, checkpoints } = run.latent;
  const find = (name) => run.latent.grids.find((grid) => grid.measure === "accuracy" && grid.name === name && kindOf(grid) === state.kind);
  const model = (grid) => {
    const curve = run.model.find((own) => own.split === grid.split && own.labels === grid.labels) ?? (grid.split === "test" ? run.overview.find((own) => own.role === "test") : null);
    return curve && checkpoints.map((epoch) => curve.y[curve.x.indexOf(epoch)] ?? null);
  };
  const shown = () => {
    const grid = find(state.probe);
    if (!grid) return { ys: layers, value: layers.map(() => checkpoints.map(() => null)) };
    const own = model(grid);
    if (!state.minus) return { ys: own ? [...layers, "the model"] : layers, value: own ? [...grid.value, own] : grid.value, grid };
    const other = state.minus === "model" ? own && layers.map(() => own) : find(state.minus.slice(6))?.value;
    const less = (a, b) => (known(a) && known(b) ? a - b : null);
    return { ys: layers, grid, value: layers.map((_, n) => checkpoints.map((__, k) => less(grid.value[n][k], other?.[n][k]))) };
  };
  const detail = (ix, iy) => {
    const { ys, value, grid } = shown();
    const own = value[iy][ix], edges = !state.minus && grid?.low?.[iy] ? ` (${percent(grid.low[iy][ix])} to ${percent(grid.high[iy][ix])})` : "";
    return [`${ys[iy]}, ${at(checkpoints[ix])}`, [[state.minus ? "difference" : "accuracy", (state.minus ? points(own) : percent(own)) + edges]]];
  };
  const title = "Layer by layer, checkpoint by checkpoint";
  return card(run, {
    id: "map", title, size: "wide",
    note: () => (state.kind.includes("shuffled") ? `${SHUFFLED} ` : "") + (state.minus ? `How many points ${state.probe} lies above ${state.minus === "model" ? "the model" : state.minus.slice(6)}. Blue is above, orange below.` : `Accuracy of ${state.probe}. The model's own answers are the top row; layers lie beneath it, the first at the bottom.`),
    draw: (host) => heat(host, { xs: checkpoints, ...shown(), kind: state.minus ? "div" : "seq", robust: true, format: state.minus ? (own) => `${own > 0 ? "+" : own < 0 ? "−" : ""}${Math.abs(100 * own).toFixed(0)}` : (own) => `${(100 * own).toFixed(0)} %`, xLabel: UNIT, yLabel: "layer", detail }),
    table: () => { const { ys, value } = shown(); return { columns: ["layer", UNIT, state.minus ? "difference" : "accuracy"], rows: ys.flatMap((name, n) => checkpoints.map((epoch, k) => [name, epoch, value[n][k]])) }; },
  });
}
function dimensionCards(section, run, state) {
  const { layers, checkpoints, grids } = run.latent;
  const find = () => grids.find((grid) => grid.measure === "dimension" && grid.name === state.probe && !["shuffled", "true"].includes(grid.fit));
  if (!grids.some((grid) => grid.measure === "dimension")) return [];
  const series = () => styled((find()?.value ?? []).map((row, n) => ({ name: layers[n], x: checkpoints, y: row }))).filter((own) => own.y.some(known));
  return put(section, run, card(run, {
    id: "dimension", title: "Dimensions that the probe uses", size: "wide", absent: () => !series().length,
    note: () => `Directions that ${state.probe} keeps per class. Few directions that suffice mean that a layer has sorted its classes.`,
    legend: series,
    draw: (host, seen) => lines(host, { series: series().filter(seen), x: { label: UNIT }, y: { label: "dimensions" }, height: 240 }),
    table: () => tableOf(["layer", UNIT, "dimensions", "low", "high"], series(), (own) => own.name),
  }));
}

function repairSection(section, runs) {
  for (const run of runs.filter((own) => own.repair.length)) {
    const rows = run.repair.map((own) => ({ ...own, title: `${own.layer} · ${own.name}` }));
    put(section, run, card(run, {
      id: "repair", title: "Before and after", size: "wide",
      note: `Hollow: the model as it is${known(rows[0].checkpoint) ? ` at ${at(rows[0].checkpoint)}` : ""}. Full: with a head made from that layer's probe. The thin bar is the 95 % interval of the gain.`,
      draw: (host) => dumbbells(host, { rows, format: percent }),
      table: () => ({ columns: ["layer", "probe", "before", "after", "difference_low", "difference_high"], rows: rows.map((own) => [own.layer, own.probe, own.before, own.after, own.low, own.high]) }),
    }));
  }
}
