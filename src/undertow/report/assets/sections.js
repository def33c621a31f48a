// Charts from their descriptions: what they show, their titles, notes and axes come with the run (charts.py).
// Here is only what a reader can change: checkpoints, probes, layers, cuts.
const panelOf = (section, run) => section.querySelector(`.panel[data-run="${run.id}"] .cards`);
const put = (section, run, ...made) => { panelOf(section, run)?.append(...made.map((own) => own.node)); return made; };
const redraw = (made) => made.forEach((own) => own.redraw());
const control = (section, ...nodes) => section.querySelector(".controls").append(...nodes);
const chartOf = (run, id) => run.charts.find((own) => own.id === id);
const options = (names) => names.map((name) => ({ name, value: name }));
const filled = (text, chosen) => text.replace(/\{(\w+)\}/g, (whole, name) => chosen[name] ?? whole);
const styled = (own) => ({ ...own, colour: own.slot < 0 ? "var(--ink)" : seriesColour(own.slot), dash: DASHES[own.dash % 4] });
const axisOf = (own) => ({ ...own, min: own.low, max: own.high, format: own.share ? percent : undefined });

// more: series(), refs(), note(), pin(), pick, absent, fixedLegend
function lineCard(run, chart, more = {}) {
  const all = chart.series.map(styled), levels = chart.levels.map((own) => ({ ...styled(own), y: own.y.find(known), low: own.low?.find(known), high: own.high?.find(known) }));
  const series = more.series ?? (() => all), refs = more.refs ?? (() => levels);
  const named = (x) => chart.x.names?.[x] ?? x;
  return card(run, {
    ...more, id: chart.id, title: chart.title, size: chart.size, fill: chart.size === "wide" ? undefined : chart.height, note: more.note ?? chart.note,
    legend: () => { const found = [...series(), ...refs()]; return found.length > 1 || found[0]?.name !== chart.title ? found : []; },
    draw: (host, seen) => lines(host, { series: series().filter(seen), refs: refs().filter(seen), x: axisOf(chart.x), y: axisOf(chart.y), height: chart.height, pin: more.pin?.(), pick: more.pick }),
    table: more.table ?? (() => ({
      columns: ["curve", chart.x.label ?? "x", chart.y.label ?? "value", "low", "high"],
      rows: [...series().flatMap((own) => own.x.map((x, k) => [own.name, named(x), own.y[k], own.low?.[k], own.high?.[k]])), ...refs().map((own) => [own.name, null, own.y, own.low, own.high])],
    })),
  });
}
// Sections in which nothing is chosen.
function plainSection(section, runs) {
  for (const run of runs) for (const chart of run.charts.filter((own) => own.section === section.id)) put(section, run, chart.kind === "pairs" ? pairsCard(run, chart) : lineCard(run, chart));
}
function pairsCard(run, chart) {
  const rows = chart.rows.map((own) => ({ ...own, title: `${own.layer} · ${own.name}` }));
  return card(run, {
    id: chart.id, title: chart.title, size: chart.size, note: chart.note,
    draw: (host) => dumbbells(host, { rows, format: percent, label: chart.x.label }),
    table: () => ({ columns: ["layer", "probe", "before", "after", "difference_low", "difference_high"], rows: rows.map((own) => [own.layer, own.probe, own.before, own.after, own.low, own.high]) }),
  });
}

function accuracySection(section, runs) {
  const having = runs.filter((run) => chartOf(run, "accuracy"));
  const epochs = rising(having.flatMap((run) => chartOf(run, "accuracy").series.flatMap((own) => own.x)));
  if (!epochs.length) return;
  const made = [];
  const pick = slider(UNIT_UP, "epoch", epochs, epochs.length - 1, (value) => { state.epoch = value; redraw(made); });
  const state = { epoch: pick.value };
  control(section, pick.node);
  if (runs.length > 1) made.push(...compareCards(section, runs));
  for (const run of having) {
    const chart = chartOf(run, "accuracy"), depth = chartOf(run, "depth");
    const pin = () => (chart.series.some((own) => own.x.includes(state.epoch)) ? state.epoch : null);
    made.push(...put(section, run, lineCard(run, chart, { pin, pick: (value) => pick.set(value) })));
    if (runs.length === 1 && run.suspects.length) panelOf(section, run)?.append(firstSuspects(run));
    if (depth) made.push(...put(section, run, depthCard(run, depth, state)));
  }
}
// A cut through the maps of layers at the chosen checkpoint, with the model's own accuracy across.
function depthCard(run, chart, state) {
  const panels = chartOf(run, "map").panels.filter((own) => own.first), checkpoints = panels[0].across;
  const place = () => nearest(checkpoints, state.epoch);
  const cut = (rows) => rows?.map((row) => row[place()]);
  const series = () => panels.map((own, k) => styled({ name: own.probe, x: own.down.map((_, n) => n), y: cut(own.value), low: cut(own.low), high: cut(own.high), slot: own.slot, dash: k, marker: k }));
  const refs = () => {
    const test = chartOf(run, "accuracy")?.series.find((own) => own.role === "test");
    const y = test?.y[nearest(test.x, state.epoch)];
    return known(y) ? [{ y, name: "the model itself", colour: "var(--ink)", dash: "4 4" }] : [];
  };
  return lineCard(run, chart, { series, refs, note: () => filled(chart.note, { checkpoint: at(checkpoints[place()]) }) });
}
function compareCards(section, runs) {
  const of = (choose) => runs.map((run) => [run, choose(chartOf(run, "accuracy")?.series ?? [])]).filter(([, own]) => own).map(([run, own], k) => ({ ...own, name: run.name, slot: k, dash: k }));
  const best = (series) => series.filter((own) => own.role === "probe").sort((a, b) => b.y.at(-1) - a.y.at(-1))[0];
  const charts = [
    ["Test accuracy of all runs", "The models themselves.", of((series) => series.find((own) => own.role === "test"))],
    ["Best layer of all runs", "What the best probe reads from the best layer.", of(best)],
  ].filter(([, , series]) => series.length);
  const made = charts.map(([title, note, series], k) => lineCard({ name: "all runs" }, { id: `compare-${k}`, title, note, series, levels: [], size: "half", height: 260, x: { label: UNIT }, y: { label: "accuracy", high: 1, share: true } }));
  section.querySelector(".together .cards").append(...made.map((own) => own.node));
  return made;
}

// Layer x checkpoint maps: a probe, or what it lies above the model or another probe.
function layersSection(section, runs) {
  const panels = runs.flatMap((run) => chartOf(run, "map")?.panels ?? []);
  if (!panels.length) return;
  const names = unique(panels.map((own) => own.probe)), kinds = unique(panels.map((own) => own.measured));
  const first = panels.find((own) => own.first) ?? panels[0];
  const made = [], state = {};
  const change = (field) => (value) => { state[field] = value; redraw(made); };
  const probe = select("Probe", "map-probe", options(names), first.probe, change("probe"));
  const minus = select("minus", "map-minus", [{ name: "nothing", value: "" }, { name: "the model", value: "model" }, ...names.map((name) => ({ name, value: `probe:${name}` }))], "", change("minus"));
  const kind = select("measured", "map-kind", options(kinds), first.measured, change("kind"));
  Object.assign(state, { probe: probe.value, minus: minus.value, kind: kind.value });
  control(section, probe.node, minus.node, kind.node);
  for (const run of runs) {
    if (chartOf(run, "map")) made.push(...put(section, run, mapCard(run, chartOf(run, "map"), state)));
    if (chartOf(run, "dimension")) made.push(...put(section, run, dimensionCard(run, chartOf(run, "dimension"), state)));
  }
}
const SHUFFLED = "A control, fitted with shuffled labels: which classes a shuffle favours is luck, so single values scatter around chance by more than their interval. ";
function mapCard(run, chart, state) {
  const { down: layers, across: checkpoints } = chart.panels[0];
  const find = (name) => chart.panels.find((own) => own.probe === name && own.measured === state.kind);
  const shown = () => {
    const grid = find(state.probe);
    if (!grid) return { ys: layers, value: layers.map(() => checkpoints.map(() => null)) };
    if (!state.minus) return { ys: grid.model ? [...layers, "the model"] : layers, value: grid.model ? [...grid.value, grid.model] : grid.value, grid };
    const other = state.minus === "model" ? grid.model && layers.map(() => grid.model) : find(state.minus.slice(6))?.value;
    const less = (a, b) => (known(a) && known(b) ? a - b : null);
    return { ys: layers, grid, value: layers.map((_, n) => checkpoints.map((__, k) => less(grid.value[n][k], other?.[n][k]))) };
  };
  const what = () => (state.minus ? "difference" : "accuracy");
  const detail = (ix, iy) => {
    const { ys, value, grid } = shown();
    const own = value[iy][ix], edges = !state.minus && grid?.low?.[iy] ? ` (${percent(grid.low[iy][ix])} to ${percent(grid.high[iy][ix])})` : "";
    return [`${ys[iy]}, ${at(checkpoints[ix])}`, [[what(), (state.minus ? points(own) : percent(own)) + edges]]];
  };
  const lead = () => (state.minus ? `How many points ${state.probe} lies above ${state.minus === "model" ? "the model" : state.minus.slice(6)}. Blue is above, orange below.` : filled(chart.note, state));
  return card(run, {
    id: chart.id, title: chart.title, size: chart.size, note: () => (state.kind.includes("shuffled") ? SHUFFLED : "") + lead(),
    draw: (host) => heat(host, { xs: checkpoints, ...shown(), kind: state.minus ? "div" : "seq", robust: true, format: state.minus ? (own) => `${own > 0 ? "+" : own < 0 ? "−" : ""}${Math.abs(100 * own).toFixed(0)}` : (own) => `${(100 * own).toFixed(0)} %`, xLabel: chart.x.label, yLabel: chart.y.label, detail }),
    table: () => { const { ys, value } = shown(); return { columns: ["layer", UNIT, what()], rows: ys.flatMap((name, n) => checkpoints.map((epoch, k) => [name, epoch, value[n][k]])) }; },
  });
}
function dimensionCard(run, chart, state) {
  const all = chart.series.map(styled), series = () => all.filter((own) => own.probe === state.probe);
  return lineCard(run, chart, { series, absent: () => !series().length, note: () => filled(chart.note, state) });
}

// The spectrum at one checkpoint, with the first and the last behind it.
function spectrumSection(section, runs) {
  const charts = runs.flatMap((run) => run.charts.filter((own) => own.section === section.id).map((chart) => [run, chart]));
  if (!charts.length) return;
  const epochs = rising(charts.flatMap(([, chart]) => chart.panels.flatMap((own) => own.down)));
  const layers = unique(charts.flatMap(([, chart]) => chart.panels.map((own) => own.layer)));
  const made = [];
  const pick = slider(UNIT_UP, "spectrum", epochs, epochs.length - 1, (value) => { state.epoch = value; redraw(made); });
  const state = { epoch: pick.value, layer: layers.at(-1) };
  control(section, pick.node);
  if (layers.length > 1) {
    const layer = select("layer", "spectrum-layer", options(layers), layers.at(-1), (value) => { state.layer = value; redraw(made); });
    state.layer = layer.value;
    control(section, layer.node);
  }
  for (const [run, chart] of charts) made.push(...put(section, run, spectrumCard(run, chart, state)));
}
function spectrumCard(run, chart, state) {
  // A run may lack the layer that is chosen for all: it shows its deepest one.
  const panel = () => chart.panels.findLast((own) => own.layer === state.layer) ?? chart.panels.at(-1);
  const series = () => {
    const own = panel(), place = nearest(own.down, state.epoch), last = own.down.length - 1;
    const curve = (k, faint) => ({ name: at(own.down[k]), x: own.across, y: own.value[k], colour: faint ? "var(--ink-3)" : seriesColour(0), dash: faint ? (k ? "7 4" : "2 3") : "", faint });
    return [...[0, last].filter((k) => k !== place).map((k) => curve(k, true)), curve(place, false)];
  };
  const table = () => { const own = panel(); return { columns: [UNIT, "feature", chart.title.toLowerCase()], rows: own.down.flatMap((epoch, k) => own.across.map((place, n) => [epoch, place, own.value[k][n]])) }; };
  return lineCard(run, chart, { series, table, fixedLegend: true });
}
