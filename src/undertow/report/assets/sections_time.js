// Across time: composites, windows, densities, drift, the swap profile, trajectories.
function timeSection(section, runs) {
  const having = runs.filter((run) => run.composites.length || run.trajectories.length);
  const cuts = unique(having.flatMap((run) => [...run.composites, ...run.trajectories].map((own) => own.cut)));
  const measures = unique(having.flatMap((run) => run.composites.map((own) => own.measure))).sort().reverse();
  const made = [];
  const state = { cut: cuts[0], measure: measures[0] };
  const offer = (label, field, names) => {
    if (names.length < 2) return;
    const own = select(label, `time-${field}`, names.map((name) => ({ name, value: name })), names[0], (value) => { state[field] = value; redraw(made); });
    state[field] = own.value;
    control(section, own.node);
  };
  offer("Cut after", "cut", cuts);
  offer("matrix of", "measure", measures);
  for (const run of runs) {
    if (run.composites.length) made.push(...put(section, run, compositeCard(run, state)));
    if (run.trajectories.length) made.push(...put(section, run, trajectoryCard(run, state)));
    if (run.swap.length) put(section, run, swapCard(run));
    curveCards(section, run);
  }
}
function compositeCard(run, state) {
  const find = () => run.composites.find((own) => own.cut === state.cut && own.measure === state.measure) ?? null;
  return card(run, {
    id: "composites", title: "Layers of different ages put together", size: "half",
    note: () => `Layers up to ${state.cut} from one checkpoint, the rest from another: ${state.measure}. On the diagonal lies the model itself; below it, shallow layers are older than deep ones.`,
    draw(host) {
      const own = find();
      if (!own) { host.replaceChildren(el("p", { class: "missing" }, "This run was not measured at this cut.")); return; }
      heat(host, { xs: own.deep, ys: own.shallow, value: own.value, kind: "seq", format: (value) => `${(100 * value).toFixed(0)} %`, xLabel: `deep layers from ${UNIT}`, yLabel: `shallow layers from ${UNIT}`, square: true, diagonal: own.deep.length === own.shallow.length,
        detail: (ix, iy) => [`shallow ${number(own.shallow[iy])}, deep ${number(own.deep[ix])}`, [[own.measure, percent(own.value[iy][ix])]]] });
    },
    table: () => { const own = find(); return { columns: ["cut", "shallow", "deep", state.measure], rows: own ? own.shallow.flatMap((s, n) => own.deep.map((d, k) => [own.cut, s, d, own.value[n][k]])) : [] }; },
  });
}

const SWAP = [
  ["swap_early_late", "early shallow, late deep", 0, "", 0],
  ["swap_late_early", "late shallow, early deep", 1, "7 4", 1],
];
function swapCard(run) {
  const names = run.swap.map((own) => own.cut);
  const series = SWAP.map(([measure, name, slot, dash, marker]) => {
    const part = (place) => run.swap.map((own) => own[measure]?.[place] ?? null);
    return { name, x: names.map((_, k) => k), y: part(0), low: part(1), high: part(2), colour: seriesColour(slot), dash, marker, bars: true };
  });
  const whole = (measure, name, colour, dash) => { const own = run.swap.find((cut) => cut[measure])?.[measure]; return own ? [{ y: own[0], low: own[1], high: own[2], name, colour, dash }] : []; };
  const refs = [...whole("swap_early", "early model", "var(--s2)", "4 4"), ...whole("swap_late", "late model", "var(--ink-2)", "2 3")];
  return card(run, {
    id: "swap", title: "Where memorisation sits", size: "wide",
    note: () => `${run.reading ? `${run.reading} ` : ""}Parts of an early and of the late model, joined after each layer. Where “late shallow, early deep” drops, late features have lost what the early head could read.`,
    legend: () => [...series, ...refs],
    draw: (host, seen) => lines(host, { series: series.filter(seen), refs: refs.filter(seen), x: { names, label: "cut after" }, y: { ...SHARE, label: "test accuracy" }, height: 300 }),
    table: () => ({ columns: ["cut", "measure", "accuracy", "low", "high"], rows: run.swap.flatMap((own) => Object.entries(own).filter(([name]) => name !== "cut").map(([name, value]) => [own.cut, name, ...value])) }),
  });
}

function curveCards(section, run) {
  const charts = [
    ["window", "How far back deep layers understand", `${UNIT_UP}s that shallow layers may lag behind and still be understood.`, run.window, UNIT, { label: `${UNIT}s back`, min: 0 }],
    ["density", "Consistency, sample by sample", "How many samples keep their answer when shallow layers are older: all mass at the right is a memory without gaps.", run.densities, "consistency", { label: "density", min: 0 }],
    ["parameter-drift", "Drift of the parameters", "Distance to the end, relative to its size.", run.drift.filter((own) => own.measure === "parameter_drift"), UNIT, { min: 0 }],
    ["feature-drift", "Drift of the features", "The same for what the layers give.", run.drift.filter((own) => own.measure === "feature_drift"), UNIT, { min: 0 }],
  ];
  for (const [id, title, note, curves, x, y] of charts) {
    if (!curves.length) continue;
    const series = styled(curves, (curve) => ({ name: curve.layer === "all" ? "whole network" : curve.layer ?? title, ...(curve.layer === "all" ? { colour: "var(--ink)", dash: "" } : {}) }));
    put(section, run, card(run, {
      id, title, size: "half", fill: 240, note, legend: () => (series.length > 1 ? series : []),
      draw: (host, seen) => lines(host, { series: series.filter(seen), x: { label: x }, y, height: 240 }),
      table: () => tableOf(["layer", x, "value", "low", "high"], series, (own) => own.name),
    }));
  }
}

// Points that move: a slider, and a button that plays.
function trajectoryCard(run, state) {
  const at0 = { moment: null, only: null, playing: 0, whole: false };
  const find = () => run.trajectories.find((own) => own.cut === state.cut) ?? run.trajectories[0];
  const last = () => find().checkpoints.length - 1;
  const classes = () => rising(find().labels.filter(known)).map((label) => ({ name: run.classes[label] ?? String(label), label, colour: seriesColour(label), shape: label }));
  const out = el("output", {});
  const input = el("input", { type: "range", min: 0, step: 1, "aria-label": `${UNIT_UP} of the trajectories, ${run.name}`, "data-control": "trajectory", oninput: () => { stop(); at0.moment = Number(input.value); own.redraw(); } });
  const button = el("button", { type: "button", class: "play", "aria-label": "Play", onclick: () => (at0.playing ? stop() : play()) }, "▶");
  const stop = () => { cancelAnimationFrame(at0.playing); at0.playing = 0; button.textContent = "▶"; button.setAttribute("aria-label", "Play"); };
  const play = () => {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const begun = performance.now(), from = at0.moment >= last() ? 0 : at0.moment;
    button.textContent = "❚❚"; button.setAttribute("aria-label", "Pause");
    const step = (now) => {
      // The first frame may carry a time before the press.
      const moment = from + (Math.max(0, now - begun) / 1000) * Math.max(3, last() / 8);
      at0.moment = Math.min(last(), still ? Math.floor(moment) : moment);
      own.redraw();
      if (at0.moment < last()) at0.playing = requestAnimationFrame(step); else stop();
    };
    at0.playing = requestAnimationFrame(step);
  };
  const scale = el("button", { type: "button", class: "scale", "aria-pressed": "false", onclick: () => {
    at0.whole = !at0.whole; scale.setAttribute("aria-pressed", String(at0.whole)); own.redraw(); } }, `One scale for all ${UNIT}s`);
  const own = card(run, {
    id: "trajectory", title: "Samples on their way", size: "half",
    note: () => `Features at ${find().cut} in two dimensions, coloured by class, with the way of the last checkpoints. The axes fit the points of the moment. Choose a class to see it alone.`,
    legend: classes, pressed: (item) => at0.only === null || at0.only === item.label,
    press: (item) => { at0.only = at0.only === item.label ? null : item.label; },
    draw(host) {
      at0.moment = Math.min(at0.moment ?? last(), last());
      input.max = last(); input.value = Math.round(at0.moment);
      out.textContent = number(find().checkpoints[Math.round(at0.moment)]);
      input.setAttribute("aria-valuetext", `${UNIT_UP} ${out.textContent}`);
      scatter(host, { track: find(), moment: at0.moment, classes: run.classes, only: at0.only, whole: at0.whole });
    },
    table: () => { const track = find(); return { columns: [UNIT, "sample", "label", "x", "y"], rows: track.checkpoints.flatMap((epoch, k) => track.samples.map((sample, n) => [epoch, sample, track.labels[n] === null ? null : run.classes[track.labels[n]] ?? String(track.labels[n]), track.x[k][n], track.y[k][n]])) }; },
  });
  own.node.append(el("div", { class: "player" }, button, el("label", { class: "control slider" }, el("span", {}, UNIT_UP), input, out), scale));
  return own;
}
