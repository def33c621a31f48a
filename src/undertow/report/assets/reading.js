// Where the reader is, and commands to take along.
function whereabouts() {
  const links = [...document.querySelectorAll("nav.sections a")];
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  const mark = () => {
    const place = Math.max(0, sections.findLastIndex((section) => section.getBoundingClientRect().top < innerHeight * 0.35));
    links.forEach((link, k) => (k === place ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  };
  document.addEventListener("scroll", mark, { passive: true });
  mark();
}
function copying() {
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("code").textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { getSelection().selectAllChildren(button.parentElement.querySelector("code")); }
  });
}
