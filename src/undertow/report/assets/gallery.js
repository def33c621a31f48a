// Suspected labels as pictures: the belief that decides their order, the proposal, and the truth where it is known.
const FIRST = 24; // pictures before one asks for all
const belief = (value) => (!known(value) ? "–" : value > 1 ? number(value) : value >= 0.9995 ? ">\u00a099.9\u00a0%" : percent(value));
function truthMark(own) {
  if (own.true === null || own.true === undefined) return null;
  const right = own.true === own.proposed;
  const why = right ? "The proposal is the true label." : own.true === own.given ? "The given label is the true one." : "Neither label is the true one.";
  return el("small", { class: `truth${right ? "" : " off"}`, title: why }, `true: ${own.true}\u00a0`, el("span", { role: "img", "aria-label": why }, right ? "✓" : "✗"));
}
function suspectTile(own) {
  const sure = known(own.confidence) ? `proposal: ${belief(own.confidence)}` : "";
  return el("figure", { class: "suspect" },
    own.image ? el("img", { src: own.image, alt: `Sample ${own.sample}, given as ${own.given}`, width: 96, height: 96 }) : null, own.text ? el("p", { class: "sample" }, own.text) : null,
    el("figcaption", {}, el("span", { class: "was" }, own.given), el("span", { "aria-hidden": "true" }, " → "), el("span", { class: "is" }, own.proposed),
      known(own.score) ? el("small", { class: "score" }, `wrong: ${belief(own.score)}`) : null, sure ? el("small", {}, sure) : null,
      truthMark(own), el("small", {}, `no. ${own.sample}`)));
}
// The six that come first, beside the first chart: what they look like says more than their number.
function firstSuspects(run) {
  const tiles = run.suspects.slice(0, 6).map(suspectTile);
  return el("div", { class: "card less glance" }, el("header", {}, el("h3", {}, "First suspects"), el("a", { class: "more", href: "#labels" }, `all ${run.suspects.length}`)),
    el("div", { class: run.suspects.some((own) => own.text) ? "gallery texts six" : "gallery six" }, ...tiles));
}
function gallerySection(section, runs) {
  for (const run of runs.filter((own) => own.suspects.length)) {
    const names = unique(run.suspects.map((own) => own.given)).sort();
    const state = { given: "", all: false };
    const grid = el("div", { class: run.suspects.some((own) => own.text) ? "gallery texts" : "gallery" });
    const more = el("button", { type: "button", class: "all", "aria-expanded": "false", onclick: () => { state.all = !state.all; show(); } });
    const show = () => {
      const found = run.suspects.filter((own) => !state.given || own.given === state.given);
      grid.replaceChildren(...(state.all ? found : found.slice(0, FIRST)).map(suspectTile));
      more.hidden = found.length <= FIRST;
      more.textContent = state.all ? `Show the first ${FIRST}` : `Show all ${found.length}`;
      more.setAttribute("aria-expanded", String(state.all));
    };
    const pick = select("Given as", "given", [{ name: "any class", value: "" }, ...names.map((name) => ({ name, value: name }))], "", (value) => { state.given = value; show(); });
    state.given = pick.value;
    show();
    panelOf(section, run)?.append(el("div", { class: "card wide" }, el("div", { class: "controls inner" }, pick.node), grid, more));
  }
}
