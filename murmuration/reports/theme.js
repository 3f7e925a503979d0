"use strict";
(function () {
  const root = document.documentElement;
  root.classList.remove("no-script");

  /* Which theme: a hash (#dark, #light), else an earlier choice, else what the system prefers. */
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  function remembered() {
    try { return window.localStorage.getItem("theme"); } catch (error) { return null; }
  }
  function remember(theme) {
    try { window.localStorage.setItem("theme", theme); } catch (error) { /* a file opened from disk may have no storage */ }
  }
  function asked() {
    const hash = window.location.hash.slice(1);
    if (hash === "dark" || hash === "light") return hash;
    const choice = remembered();
    return choice === "dark" || choice === "light" ? choice : system.matches ? "dark" : "light";
  }
  function use(theme) { root.dataset.theme = theme; }
  use(asked());

  /* Figures name colours by CSS variables; plotly needs their values, which a hidden element is asked for. Only settings
     called ...color or ...colorscale are touched, so that text which happens to look like a variable stays text. */
  const probe = document.createElement("span");
  probe.hidden = true;
  function resolved(variable) {
    probe.style.color = variable;
    return window.getComputedStyle(probe).color;
  }
  function coloured(value, name) {
    if (Array.isArray(value)) return value.map((item) => coloured(item, name));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, key)]));
    }
    const named = typeof value === "string" && /color(scale)?$/i.test(name) && /^var\(--[\w-]+\)$/.test(value);
    return named ? resolved(value) : value;
  }

  const finePointer = window.matchMedia("(pointer: fine)");
  const figures = [];
  let paperWidth = null; /* set while printing: the page is narrower then, and plotly is not told */
  function draw(figure) {
    const drawn = coloured(figure.spec, "");
    if (paperWidth) drawn.layout.width = paperWidth;
    drawn.layout.dragmode = finePointer.matches ? "zoom" : false;
    const settings = { displayModeBar: false, responsive: true, showTips: false };
    window.Plotly.react(figure.place, drawn.data, drawn.layout, settings);
    figure.theme = root.dataset.theme;
  }
  function drawInTurn() {
    /* a figure in a closed part has no width: it is drawn when the part opens */
    const next = figures.find((figure) => figure.theme !== root.dataset.theme && figure.place.offsetParent !== null);
    if (!next) return;
    draw(next);
    window.setTimeout(drawInTurn, 0);
  }

  function unfold() {
    /* a link to a closed part opens it */
    const section = document.getElementById(window.location.hash.slice(1));
    const part = section && section.querySelector("details.folded");
    if (part) part.open = true;
  }

  function toggle() {
    use(root.dataset.theme === "dark" ? "light" : "dark");
    remember(root.dataset.theme);
    drawInTurn();
  }

  function copy(event) {
    const button = event.currentTarget;
    const source = document.getElementById(button.dataset.copy);
    const done = () => {
      button.textContent = "Copied";
      window.setTimeout(() => { button.textContent = "Copy"; }, 1500);
    };
    const select = () => window.getSelection().selectAllChildren(source);
    if (navigator.clipboard) navigator.clipboard.writeText(source.textContent).then(done, select);
    else select();
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(probe);
    document.getElementById("theme").addEventListener("click", toggle);
    document.querySelectorAll("button.copy").forEach((button) => button.addEventListener("click", copy));
    document.querySelectorAll("script[data-figure]").forEach((script) => {
      const place = document.getElementById(script.dataset.figure);
      figures.push({ place, spec: JSON.parse(script.textContent), theme: null });
    });
    const selector = document.getElementById("recipe");
    if (selector) {
      /* parts of one recipe at a time; without a script all of them are there */
      const show = () => {
        document.querySelectorAll(".recipe").forEach((part) => { part.hidden = part.dataset.recipe !== selector.value; });
        drawInTurn();
      };
      selector.addEventListener("change", show);
      show();
    }
    document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", drawInTurn));
    unfold();
    drawInTurn();
  });
  window.addEventListener("hashchange", () => { use(asked()); unfold(); drawInTurn(); });
  system.addEventListener("change", () => { if (!remembered()) { use(asked()); drawInTurn(); } });

  /* Paper is white and narrow: print in the light theme, every figure as wide as a page, then go back. */
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    paperWidth = 640;
    use("light");
    figures.forEach(draw);
  });
  window.addEventListener("afterprint", () => {
    paperWidth = null;
    use(before || asked());
    figures.forEach((figure) => { figure.theme = null; });
    drawInTurn();
  });
})();
