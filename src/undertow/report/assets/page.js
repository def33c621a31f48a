// Put everything in its place; follow the theme, the reader and, on a server, the run.
function gallerySection(section, runs) {
  for (const run of runs.filter((own) => own.suspects.length)) {
    const names = unique(run.suspects.map((own) => own.given)).sort();
    const grid = el("div", { class: "gallery" });
    const show = (given) => grid.replaceChildren(...run.suspects.filter((own) => !given || own.given === given).map((own) =>
      el("figure", { class: "suspect" }, el("img", { src: own.image, alt: `Sample ${own.sample}, given as ${own.given}`, width: 96, height: 96 }),
        el("figcaption", {}, el("span", { class: "was" }, own.given), el("span", { "aria-hidden": "true" }, " → "), el("span", { class: "is" }, own.proposed),
          el("small", {}, `no. ${own.sample}${known(own.confidence) ? `, ${percent(own.confidence)}` : ""}`)))));
    const pick = select("Given as", "given", [{ name: "any class", value: "" }, ...names.map((name) => ({ name, value: name }))], "", show);
    show(pick.value);
    panelOf(section, run)?.append(el("div", { class: "card wide" }, el("div", { class: "controls inner" }, pick.node), grid));
  }
}

const SECTIONS = { accuracy: accuracySection, layers: layersSection, repair: repairSection, richness: richnessSection, spectrum: spectrumSection, time: timeSection, labels: gallerySection };
for (const [id, build] of Object.entries(SECTIONS)) {
  const section = document.getElementById(id);
  if (section) build(section, PAGE.runs);
}
themes(() => redraw(cards));
whereabouts();
copying();
follow();
