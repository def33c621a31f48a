// Rich or lazy: measures over training, and the three panels of the spectrum.
const MEASURES = [
  ["d_lr", "D_LR", "0: only the directions the output needs are left (rich). Towards 1: features as they were (lazy)."],
  ["effective_dimension", "Effective dimension", "How many directions the last features use.", ["effective_dimension_rest"]],
  ["initial_kernel_alignment", "Likeness to the start", "1: features are as they were initialised."],
  ["squared_parameter_norm", "Size of the parameters", "Norm of all weights: the root of their summed squares (the saved rows hold the square)."],
  ["nc1", "NC1, spread within classes", "0: every sample of a class lies at its mean. Spread within over spread between classes; stabilised adds 0.0001 to the latter in every direction, as in the paper's tables.", ["nc1_stabilised"]],
  ["trace_within", "Variance within classes", "Summed over directions and classes."],
  ["nc2_etf", "NC2, means at equal angles", "0: the class means form a simplex."],
  ["nc3", "NC3, head like means", "0: the head's rows are the class means."],
  ["nc4", "NC4, head like nearest mean", "Share of samples on which they agree; 1 in a collapsed network."],
];
const NAMES = { effective_dimension_rest: "without the first direction", effective_dimension: "all features", nc1: "plain", nc1_stabilised: "stabilised" };

function richnessSection(section, runs) {
  const listed = new Set(MEASURES.flatMap(([name, , , more]) => [name, ...(more ?? [])]));
  for (const run of runs) {
    const others = unique(run.richness.map((curve) => curve.measure)).filter((name) => !listed.has(name)).map((name) => [name, name.replaceAll("_", " "), ""]);
    for (const [name, title, note, more] of [...MEASURES, ...others]) {
      const found = run.richness.filter((curve) => curve.measure === name || more?.includes(curve.measure));
      if (found.length) put(section, run, measureCard(run, name, title, note, found));
    }
  }
}
function measureCard(run, name, title, note, found) {
  const layers = unique(found.map((curve) => curve.layer)), kinds = unique(found.map((curve) => curve.measure));
  const label = (curve) => [kinds.length > 1 ? NAMES[curve.measure] ?? curve.measure : "", layers.length > 1 ? curve.layer : ""].filter(Boolean).join(", ");
  const series = styled(found, (curve) => ({ name: label(curve) || title }));
  const positive = found.every((curve) => curve.y.every((own) => !known(own) || own >= 0));
  // Curves a hundred times apart would lie flat on each other.
  const tops = found.map((curve) => Math.max(...curve.y.filter(known)));
  const log = Math.min(...tops) > 0 && Math.max(...tops) > 100 * Math.min(...tops) && found.every((curve) => curve.y.every((own) => !known(own) || own > 0));
  return card(run, {
    id: `rich-${name}`, title, size: "third", fill: 190, note, legend: () => (series.length > 1 ? series : []),
    draw: (host, seen) => lines(host, { series: series.filter(seen), x: { label: UNIT }, y: log ? { log } : { min: positive ? 0 : undefined, max: name === "d_lr" ? 1 : undefined }, height: 190 }),
    table: () => tableOf(["curve", UNIT, "value", "low", "high"], series, (own) => own.name),
  });
}

const PANELS = [
  ["quality", "Quality", "Share of the target that the first k features express."],
  ["utilisation", "Utilisation", "Share of the network's answers that they carry."],
  ["intensity", "Intensity", "Eigenvalues of the features over the first one."],
];
function spectrumSection(section, runs) {
  const having = runs.filter((run) => run.spectra.length);
  if (!having.length) return;
  const epochs = rising(having.flatMap((run) => run.spectra.flatMap((own) => own.checkpoints)));
  const layers = unique(having.flatMap((run) => run.spectra.map((own) => own.layer)));
  const made = [];
  const pick = slider(UNIT_UP, "spectrum", epochs, epochs.length - 1, (value) => { state.epoch = value; redraw(made); });
  const state = { epoch: pick.value, layer: layers.at(-1) };
  control(section, pick.node);
  if (layers.length > 1) {
    const layer = select("layer", "spectrum-layer", layers.map((name) => ({ name, value: name })), layers.at(-1), (value) => { state.layer = value; redraw(made); });
    state.layer = layer.value;
    control(section, layer.node);
  }
  for (const run of having) for (const panel of PANELS) made.push(...put(section, run, spectrumCard(run, panel, state)));
}
function spectrumCard(run, [measure, title, note], state) {
  // A run may lack the layer that is chosen for all: it shows its deepest one.
  const grid = () => run.spectra.findLast((own) => own.measure === measure && own.layer === state.layer) ?? run.spectra.findLast((own) => own.measure === measure);
  const series = () => {
    const own = grid();
    if (!own) return [];
    const place = nearest(own.checkpoints, state.epoch), last = own.checkpoints.length - 1;
    const curve = (k, faint, slot) => ({ name: at(own.checkpoints[k]), x: own.positions, y: own.value[k], colour: faint ? "var(--ink-3)" : seriesColour(slot), dash: faint ? (k ? "7 4" : "2 3") : "", faint });
    return [...[0, last].filter((k) => k !== place).map((k) => curve(k, true, 6)), curve(place, false, 0)];
  };
  return card(run, {
    id: `spectrum-${measure}`, title, size: "third", fill: 220, note, legend: series, fixedLegend: true,
    draw: (host) => lines(host, { series: series(), x: { label: "feature", log: true }, y: measure === "intensity" ? { log: true } : { min: 0, max: 1, format: percent }, height: 220 }),
    table: () => { const own = grid(); return { columns: [UNIT, "feature", measure], rows: (own?.checkpoints ?? []).flatMap((epoch, k) => own.positions.map((place, n) => [epoch, place, own.value[k][n]])) }; },
  });
}
