// Across time: composites and trajectories, whose cut the reader chooses, and the charts that need no choice.
function timeSection(section, runs) {
  const parts = runs.flatMap((run) => chartOf(run, "composites")?.panels ?? []), tracks = runs.flatMap((run) => chartOf(run, "trajectory")?.rows ?? []);
  const first = (own) => !own.first; // what is shown first leads the list
  const state = {}, made = [];
  const offer = (label, field, names) => {
    state[field] = names[0];
    if (names.length < 2) return;
    const own = select(label, `time-${field}`, options(names), names[0], (value) => { state[field] = value; redraw(made); });
    state[field] = own.value;
    control(section, own.node);
  };
  offer("Cut after", "cut", unique([...parts, ...tracks].map((own) => own.cut)));
  offer("matrix of", "measure", unique([...parts].sort((a, b) => first(a) - first(b)).map((own) => own.measure)));
  const cards = { maps: compositeCard, tracks: trajectoryCard };
  for (const run of runs) for (const chart of run.charts.filter((own) => own.section === section.id)) made.push(...put(section, run, (cards[chart.kind] ?? lineCard)(run, chart, cards[chart.kind] ? state : {})));
}
function compositeCard(run, chart, state) {
  const find = () => chart.panels.find((own) => own.cut === state.cut && own.measure === state.measure) ?? null;
  return card(run, {
    id: chart.id, title: chart.title, size: chart.size, note: () => filled(chart.note, state),
    draw(host) {
      const own = find();
      if (!own) { host.replaceChildren(el("p", { class: "missing" }, "This run was not measured at this cut.")); return; }
      heat(host, { xs: own.across, ys: own.down, value: own.value, kind: "seq", format: (value) => `${(100 * value).toFixed(0)} %`, xLabel: chart.x.label, yLabel: chart.y.label, square: true, diagonal: own.across.length === own.down.length,
        detail: (ix, iy) => [`shallow ${number(own.down[iy])}, deep ${number(own.across[ix])}`, [[own.measure, percent(own.value[iy][ix])]]] });
    },
    table: () => { const own = find(); return { columns: ["cut", "shallow", "deep", state.measure], rows: own ? own.down.flatMap((s, n) => own.across.map((d, k) => [own.cut, s, d, own.value[n][k]])) : [] }; },
  });
}

// Points that move: a slider, and a button that plays.
function trajectoryCard(run, chart, state) {
  const at0 = { moment: null, only: null, playing: 0, whole: false };
  const find = () => chart.rows.find((own) => own.cut === state.cut) ?? chart.rows[0];
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
    id: chart.id, title: chart.title, size: chart.size, note: () => filled(chart.note, find()),
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
