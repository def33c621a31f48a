// Put everything in its place; follow the theme, the reader and, on a server, the run.
const SECTIONS = { accuracy: accuracySection, layers: layersSection, repair: plainSection, richness: plainSection, own: plainSection, spectrum: spectrumSection, time: timeSection, labels: gallerySection };
for (const [id, build] of Object.entries(SECTIONS)) {
  const section = document.getElementById(id);
  if (section) build(section, PAGE.runs);
}
themes(() => redraw(cards));
whereabouts();
copying();
follow();
