// Elements, numbers, scales and colours. Names from outside reach the page as text nodes only, never as markup.
const PAGE = JSON.parse(document.getElementById("page-data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, own] of Object.entries(value)) node.style.setProperty(key, own);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const sv = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Numbers for people.
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const percent = (value) => (known(value) ? `${(100 * value).toFixed(1)}\u00a0%` : "–");
const points = (value) => (known(value) ? `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)} points` : "–");
function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(1).replace(".0e", "e").replace("e-", "e−").replace("e+", "e");
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3))).replace("-", "−");
}
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const UNIT = PAGE.runs?.[0]?.unit ?? "epoch"; // what checkpoints are counted in
const UNIT_UP = UNIT[0].toUpperCase() + UNIT.slice(1);
const at = (epoch) => `${UNIT} ${number(epoch)}`;
const unique = (values) => [...new Set(values)];
const rising = (values) => unique(values).sort((a, b) => a - b);
const nearest = (values, wanted) =>
  values.reduce((best, value, place) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? place : best), 0);

// Scales: a function from a value to a place, with its ticks.
function ticksBetween(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((own) => own * power).find((own) => own >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}
function linear([low, high], [from, to], wanted = 5) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.back = (place) => low + ((place - from) / (to - from)) * span;
  scale.ticks = ticksBetween(low, high, wanted);
  return scale;
}
function logarithmic([low, high], [from, to], wanted = 5) {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  const inner = linear([a, b], [from, to]);
  const scale = (value) => inner(Math.log10(Math.max(value, low)));
  scale.back = (place) => 10 ** inner.back(place);
  const every = Math.max(1, Math.ceil((b - a) / wanted));
  scale.ticks = [];
  for (let k = Math.ceil(a - 1e-9); k <= b + 1e-9; k += every) scale.ticks.push(Number((10 ** k).toPrecision(6)));
  if (scale.ticks.length < 3 && b - a < 2.2) {
    const finer = [];
    for (let k = Math.floor(a); k <= b; k += 1) for (const own of [1, 2, 5]) finer.push(own * 10 ** k);
    scale.ticks = finer.filter((own) => own >= low * 0.999 && own <= high * 1.001);
  }
  return scale;
}
function roundedDomain(values, { min, max, log } = {}) {
  const seen = values.filter((value) => known(value) && (!log || value > 0));
  let low = Math.min(...seen, ...(known(min) ? [min] : []));
  let high = Math.max(...seen, ...(known(max) ? [max] : []));
  if (!Number.isFinite(low)) return log ? [0.1, 1] : [0, 1];
  if (log) return [low / 1.15, high * 1.15];
  if (low === high) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  const step = ticksBetween(low, high, 5);
  const width = step.length > 1 ? step[1] - step[0] : (high - low) / 4;
  const down = known(min) && low >= min ? min : Math.floor(low / width + 1e-9) * width;
  const up = known(max) && high <= max ? max : Math.ceil(high / width - 1e-9) * width;
  return [down, up];
}

// Colour. More is always further from the paper, so the ramp turns round with the theme.
const dark = () => {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const RAMPS = {
  light: { seq: ["#f0f4f3", "#c9dfe0", "#8fc1cb", "#4f9ab5", "#2a6f9b", "#17477a", "#0b2450"], div: ["#8a3d00", "#d9843b", "#f3cfa6", "#f4f4f1", "#a9cfe0", "#3d8ab5", "#0a4a7d"] },
  dark: { seq: ["#17232c", "#1c3d57", "#1f5f83", "#2f86a3", "#5fb0b5", "#a4d6c4", "#eef7dc"], div: ["#ffb777", "#d0793a", "#6d4322", "#1d2931", "#1f5270", "#3f94c0", "#a5dcff"] },
};
const channels = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
function colourOf(kind, share) {
  const ramp = RAMPS[dark() ? "dark" : "light"][kind];
  const place = Math.min(1, Math.max(0, share)) * (ramp.length - 1);
  const from = Math.min(ramp.length - 2, Math.floor(place));
  const [a, b] = [channels(ramp[from]), channels(ramp[from + 1])];
  return `rgb(${a.map((own, k) => Math.round(own + (b[k] - own) * (place - from))).join(",")})`;
}
const SERIES = 8;
const seriesColour = (place) => `var(--s${place % SERIES})`;
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "", "7 4", "2 3", "9 3 2 3"];
const SHAPES = [
  (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (r) => `M0 ${-1.25 * r}L${1.1 * r} ${0.8 * r}H${-1.1 * r}z`,
  (r) => `M${-0.9 * r} ${-0.9 * r}H${0.9 * r}V${0.9 * r}H${-0.9 * r}z`,
  (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0z`,
  (r) => `M0 ${1.25 * r}L${1.1 * r} ${-0.8 * r}H${-1.1 * r}z`,
];

// On a page that follows a run in training, choices outlive the reload.
const memory = {
  get(key, fallback) {
    if (!PAGE.live) return fallback;
    try { return JSON.parse(sessionStorage.getItem(location.pathname + key)) ?? fallback; } catch { return fallback; }
  },
  set(key, value) {
    if (!PAGE.live) return;
    try { sessionStorage.setItem(location.pathname + key, JSON.stringify(value)); } catch { /* no storage, nothing to keep */ }
  },
};
