// Light or dark: as the system has it, until somebody presses the button.
function themes(changed) {
  const button = document.querySelector("[data-theme-button]"), root = document.documentElement;
  const again = () => { button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours"); changed(); };
  try { if (localStorage.getItem("undertow-theme")) root.dataset.theme = localStorage.getItem("undertow-theme"); } catch { /* no storage: follow the system */ }
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("undertow-theme", root.dataset.theme); } catch { /* it holds for this visit */ }
    again();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  again();
}
