"use strict";
// Draws the icicles that flame.py embedded. Boxes are elements placed in percent, so that they can be read aloud, searched
// and printed; only those that are wide enough at the current zoom are made, so that 20,000 nodes are drawn at once.
(() => {
  const ROW_PX = 20;
  const LEAST_PX = 3; // Narrower boxes cannot be told apart, nor hit: those of one caller are one strip.
  const TEXT_PX = 26; // Below this width three letters do not fit.
  const SIGNS = { slower: "+ ", faster: "− " };
  const toneOf = (step) => (step ? (step > 0 ? "slower" : "faster") : "same");
  const widgets = [];

  async function read(script) {
    if (script.dataset.encoding !== "zlib") return JSON.parse(script.textContent);
    const bytes = Uint8Array.from(atob(script.textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const digits = (value) => (value >= 99.95 || value === 0 ? 0 : value >= 9.995 ? 1 : 2);
  const inPercent = (value) => `${value.toFixed(Math.abs(value) < 9.95 ? 1 : 0).replace("-", "−")} %`;
  const percent = (part, whole) => inPercent(whole ? (100 * part) / whole : 0);
  const count = (num, one, many = `${one}s`) => `${num.toLocaleString("en")} ${num === 1 ? one : many}`;
  function time(ns) {
    const size = Math.abs(ns);
    const [scale, unit] = size < 999.5 ? [1, "ns"] : size < 999.5e3 ? [1e3, "µs"] : [1e6, "ms"];
    return `${ns < 0 ? "−" : ""}${(size / scale).toFixed(digits(size / scale))} ${unit}`;
  }
  const signed = (value, amount) => `${value > 0 ? "+" : ""}${amount(value)}`;

  // A lane's lists, with what follows from them: depth, end of the subtree, place in either arm.
  function makeLane(raw, isDiff) {
    const num = raw.parent.length;
    const lane = { ...raw, num, depth: new Int32Array(num), end: new Int32Array(num) };
    lane.cost = { base: raw.base, candidate: isDiff ? raw.candidate : new Array(num).fill(0) };
    lane.ownCost = { base: raw.own, candidate: raw.candidate_own };
    lane.numSamples = { base: raw.samples, candidate: raw.candidate_samples };
    lane.x = { base: new Float64Array(num), candidate: new Float64Array(num) };
    for (const arm of ["base", "candidate"]) {
      const taken = new Float64Array(num);
      for (let node = 1; node < num; node++) {
        const parent = raw.parent[node];
        lane.x[arm][node] = lane.x[arm][parent] + taken[parent];
        taken[parent] += lane.cost[arm][node];
      }
    }
    for (let node = 1; node < num; node++) lane.depth[node] = lane.depth[raw.parent[node]] + 1;
    for (let node = num - 1; node >= 0; node--) {
      lane.end[node] = Math.max(lane.end[node], node + 1);
      if (node) lane.end[raw.parent[node]] = Math.max(lane.end[raw.parent[node]], lane.end[node]);
    }
    lane.change = (node) => lane.cost.candidate[node] - lane.cost.base[node];
    lane.amount = raw.is_time ? time : (share) => percent(share, 1);
    return lane;
  }

  // Text is looked for as it is, and as a regular expression where it is one.
  function matcher(text) {
    const plain = text.toLowerCase();
    let pattern = null;
    try { pattern = new RegExp(text, "i"); } catch { /* `f(` is none. */ }
    return (name) => name.toLowerCase().includes(plain) || (pattern !== null && pattern.test(name));
  }

  class Flame {
    constructor(figure, data) {
      Object.assign(this, { figure, data, boxes: new Map(), matches: null });
      this.arms = data.is_diff ? ["base", "candidate"] : ["base"];
      this.arm = this.arms.at(-1);
      this.lanes = data.lanes.map((raw) => makeLane(raw, data.is_diff));
      for (const part of ["tools", "graph", "hover", "search", "matched", "reset", "facts", "legend", "pruned"]) {
        this[part] = figure.querySelector(`.flame-${part}`);
      }
      this.tools.hidden = this.graph.hidden = false;
      this.listen();
      this.showLane(this.lanes[data.opened]);
    }

    listen() {
      const boxOf = (event) => event.target.closest(".flame-box");
      const hit = (event) => event.target.closest(".flame-box, .flame-rest");
      this.graph.addEventListener("click", (event) => hit(event) && this.zoom(hit(event).flameNode));
      this.graph.addEventListener("mousemove", (event) => {
        this.hover.hidden = !boxOf(event);
        if (boxOf(event)) this.showHover(boxOf(event).flameNode, event.clientX, event.clientY);
      });
      this.graph.addEventListener("focus", () => this.graph.matches(":focus-visible") && this.hoverSelected());
      for (const kind of ["mouseleave", "blur"]) this.graph.addEventListener(kind, () => { this.hover.hidden = true; });
      this.search.addEventListener("input", () => this.find());
      this.reset.addEventListener("click", () => this.zoom(0));
      this.figure.querySelector(".flame-widths")?.addEventListener("change", (event) => this.showArm(event.target.value));
    }

    // Buttons of views and lanes; a group of one is no choice, and is not shown.
    showLane(lane) {
      Object.assign(this, { lane, zoomed: 0, selected: 0 });
      const views = [...new Set(this.lanes.map((other) => other.view))];
      const find = (view, name) => this.lanes.find((other) => other.view === view && (!name || other.name === name));
      const names = this.lanes.filter((other) => other.view === lane.view).map((other) => other.name);
      this.showChoice(".flame-views", views, lane.view, (view) => this.showLane(find(view, lane.name) || find(view)));
      this.showChoice(".flame-lanes", names, lane.name, (name) => this.showLane(find(lane.view, name)));
      this.facts.textContent = lane.facts;
      if (!this.data.is_diff) this.showOrigins();
      this.draw();
    }

    showChoice(place, names, chosen, choose) {
      const group = this.figure.querySelector(place);
      const hadFocus = group.contains(document.activeElement);
      group.hidden = names.length < 2;
      group.replaceChildren(...names.map((name) => {
        const button = element("button", "", name);
        button.type = "button";
        button.dataset.testid = "flame-choice";
        button.setAttribute("aria-pressed", String(name === chosen));
        button.addEventListener("click", () => choose(name));
        return button;
      }));
      if (hadFocus) group.children[names.indexOf(chosen)].focus();
    }

    showArm(arm) {
      this.arm = arm;
      while (this.zoomed && !this.lane.cost[arm][this.zoomed]) this.zoomed = this.lane.parent[this.zoomed];
      this.zoom(this.zoomed);
    }

    stepOf(node) { return this.data.is_diff ? this.lane.step[node] : 0; }
    nameOf(arm) { return this.data.is_diff ? this.data.names[arm === "base" ? 0 : 1] : ""; }
    frame(node, what) { return this.data.frames[what][this.lane.frame[node]]; }
    label(node) { return node ? this.frame(node, "name") : this.lane.name; }

    // Whose code the innermost frames are.
    showOrigins() {
      this.legend.replaceChildren(element("li", "", "innermost frames:"), ...this.lane.origins.map(([origin, title, share]) => {
        const item = element("li", origin);
        item.append(element("i"), `${title} `, element("b", "", share));
        return item;
      }));
    }

    draw() {
      const { lane, zoomed, arm } = this;
      const whole = Math.max(lane.cost.base[zoomed], lane.cost.candidate[zoomed]);
      const widthPx = this.graph.clientWidth || 1000;
      const drawn = document.createDocumentFragment();
      this.boxes.clear();
      for (let node = lane.parent[zoomed]; node >= 0; node = lane.parent[node]) {
        drawn.prepend(this.box(node, 0, 1, widthPx, true));
      }
      const runs = [];
      let deepest = lane.depth[zoomed];
      for (let node = zoomed; node < lane.end[zoomed];) {
        const width = lane.cost[arm][node] / whole;
        const left = (lane.x[arm][node] - lane.x[arm][zoomed]) / whole;
        if (width * widthPx >= LEAST_PX) {
          drawn.append(this.box(node, left, width, widthPx, false));
          deepest = Math.max(deepest, lane.depth[node++]);
          continue;
        }
        if (width) this.addNarrow(runs, node, left, width);
        node = lane.end[node];
      }
      for (const run of runs.filter(({ left, end }) => (end - left) * widthPx > 1)) {
        drawn.append(this.rest(run));
        deepest = Math.max(deepest, lane.depth[run.parent] + 1);
      }
      this.graph.style.height = `${(deepest + 1) * ROW_PX}px`;
      this.graph.replaceChildren(drawn);
      this.reset.disabled = !zoomed;
      this.select(this.boxes.has(this.selected) ? this.selected : zoomed);
      this.pruned.textContent = lane.notes[arm];
      this.showMatched();
    }

    box(node, left, width, widthPx, isAbove) {
      const { lane } = this;
      const box = this.strip("flame-box", node, lane.depth[node], left, width, this.tone(node), this.stepOf(node));
      if (isAbove) box.classList.add("above");
      if (!this.data.is_diff) box.style.setProperty("--shade", this.frame(node, "shade"));
      if (node && this.matches?.[lane.frame[node]]) box.classList.add("match");
      if (width * widthPx < TEXT_PX) box.classList.add("thin");
      else this.write(box, node);
      this.boxes.set(node, box);
      return box;
    }

    strip(className, node, depth, left, width, tone, step) {
      const strip = element("div", `${className} ${tone}`);
      strip.flameNode = node;
      strip.style.cssText = `top:${depth * ROW_PX}px;left:${100 * left}%;width:${100 * width}%`;
      if (step) strip.dataset.step = Math.abs(step);
      return strip;
    }

    // Neighbours that are too narrow to tell apart: one strip, which leads to their caller.
    addNarrow(runs, node, left, width) {
      const parent = this.lane.parent[node];
      const step = this.stepOf(node);
      let run = runs.findLast((other) => other.parent === parent);
      if (!run || left - run.end > 1e-6) runs.push(run = { parent, left, num: 0, step: 0 });
      const isStronger = Math.abs(step) > Math.abs(run.step);
      Object.assign(run, { end: left + width, num: run.num + 1, step: isStronger ? step : run.step });
    }

    rest({ parent, left, end, num, step }) {
      const strip = this.strip("flame-rest", parent, this.lane.depth[parent] + 1, left, end - left, toneOf(step), step);
      strip.title = `${count(num, "narrow box", "narrow boxes")}: zoom in, or search`;
      return strip;
    }

    write(box, node) {
      const tone = this.tone(node);
      const note = tone in SIGNS ? signed(this.lane.change(node), this.lane.amount) : node ? this.frame(node, "place") : "";
      box.append(element("bdi", "", (SIGNS[tone] || "") + this.label(node)), " ", element("em", "", note));
      this.describe(box, node);
    }

    // For who reads with ears, and for tests; a thin box is described when it is selected: it would take half the time.
    describe(box, node) {
      const { lane } = this;
      const costs = this.arms.map((arm) => `${this.nameOf(arm)} ${lane.amount(lane.cost[arm][node])}`.trim());
      if (this.data.is_diff) costs.push(signed(lane.change(node), lane.amount), this.verdict(node));
      box.id = `${this.figure.id}-box-${node}`;
      Object.assign(box.dataset, { testid: "flame-box", name: this.label(node) });
      box.setAttribute("role", "treeitem");
      box.setAttribute("aria-level", lane.depth[node] + 1);
      box.setAttribute("aria-label", [this.label(node), ...costs].join(", "));
    }

    // The class of a box: its origin, or which way it changed.
    tone(node) {
      if (!this.data.is_diff) return node ? this.frame(node, "origin") : "root";
      return toneOf(this.stepOf(node));
    }

    changeText(node) {
      const { lane } = this;
      const change = lane.change(node);
      if (!lane.has_interval) return `${signed(change, lane.amount)}, without an interval`;
      const ends = [change - lane.half[node], change + lane.half[node]].map((end) => signed(end, lane.amount));
      return `${signed(change, lane.amount)} (95 %: ${ends.join(" to ")})`;
    }

    verdict(node) {
      const { lane } = this;
      const absent = this.arms.filter((arm) => !lane.numSamples[arm][node]).map((arm) => `; no sample in ${this.nameOf(arm)}`);
      if (lane.step[node]) return toneOf(lane.step[node]) + absent.join("");
      const isByChance = Math.abs(lane.change(node)) > lane.half[node] && lane.has_interval;
      return `within noise${isByChance ? ": one of so many boxes may differ as much by chance" : ""}${absent.join("")}`;
    }

    // Pairs of a term and what is known of it.
    known(node) {
      const { lane } = this;
      const rows = this.arms.map((arm) => {
        const own = lane.is_time || this.data.is_diff ? `, own ${lane.amount(lane.ownCost[arm][node])}` : "";
        const share = lane.is_time ? ` = ${percent(lane.cost[arm][node], lane.cost[arm][0])} of the lane` : "";
        const text = `${lane.amount(lane.cost[arm][node])}${share}${own}, ${count(lane.numSamples[arm][node], "sample")}`;
        return [this.nameOf(arm) || (lane.is_time ? "a token" : "of the lane"), text];
      });
      if (!this.data.is_diff) return [...rows, ["innermost", `in ${percent(lane.own[node], lane.base[node])} of its own`]];
      rows.push(["difference", this.changeText(node)]);
      if (Math.abs(lane.change(0)) > lane.half[0]) rows.push(["of the change", percent(lane.change(node), lane.change(0))]);
      if (lane.was[node]) rows.push(["renamed", `${this.data.names[0]} calls it ${lane.was[node]}`]);
      return [...rows, ["verdict", this.verdict(node)]];
    }

    showHover(node, x, y) {
      const list = element("dl");
      for (const [term, text] of this.known(node)) list.append(element("dt", "", term), element("dd", "", text));
      const heading = element("b");
      heading.append(element("bdi", "", this.label(node)));
      this.hover.replaceChildren(heading, element("span", "", node ? this.frame(node, "place") : ""), list);
      this.hover.hidden = false;
      const { offsetWidth: width, offsetHeight: height } = this.hover;
      this.hover.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
      this.hover.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
    }

    hoverSelected() {
      const box = this.boxes.get(this.selected);
      if (!box) return;
      box.scrollIntoView({ block: "nearest" });
      const edge = box.getBoundingClientRect();
      this.showHover(this.selected, edge.left, edge.top + ROW_PX - 14);
    }

    select(node) {
      this.boxes.get(this.selected)?.removeAttribute("aria-selected");
      this.selected = node;
      const box = this.boxes.get(node);
      if (box) this.describe(box, node);
      box?.setAttribute("aria-selected", "true");
      this.graph.setAttribute("aria-activedescendant", box?.id || "");
    }

    zoom(node) {
      this.zoomed = this.selected = node;
      this.hover.hidden = true;
      this.draw();
    }

    find() {
      const matches = matcher(this.search.value);
      const { name, place } = this.data.frames;
      this.matches = this.search.value ? name.map((text, index) => matches(`${text} (${place[index]})`)) : null;
      this.graph.classList.toggle("searching", this.matches !== null);
      for (const [node, box] of this.boxes) {
        box.classList.toggle("match", node !== 0 && Boolean(this.matches?.[this.lane.frame[node]]));
      }
      this.showMatched();
    }

    // Time under a match counts once, however many matches lie on one stack.
    showMatched() {
      const { lane, zoomed, matches } = this;
      this.matched.textContent = "";
      if (!matches) return;
      const sums = { base: 0, candidate: 0 };
      for (let node = zoomed; node < lane.end[zoomed];) {
        if (node === 0 || !matches[lane.frame[node]]) { node++; continue; }
        for (const arm of this.arms) sums[arm] += lane.cost[arm][node];
        node = lane.end[node];
      }
      const change = this.data.is_diff ? `, ${signed(sums.candidate - sums.base, lane.amount)}` : "";
      this.matched.textContent = `${percent(sums[this.arm], lane.cost[this.arm][zoomed])} matched${change}`;
    }

    neighbour(key) {
      const { lane, selected } = this;
      if (key === "ArrowUp") return lane.parent[selected];
      const drawn = [...this.boxes.keys()];
      if (key === "ArrowDown") return drawn.find((node) => lane.parent[node] === selected);
      const siblings = drawn.filter((node) => lane.parent[node] === lane.parent[selected]);
      return siblings[siblings.indexOf(selected) + (key === "ArrowLeft" ? -1 : 1)];
    }

    // Returns whether the key was one of ours.
    onKey(event) {
      const isInside = this.figure.contains(event.target);
      if (event.key === "Escape") {
        if (!isInside && !this.zoomed && !this.matches) return false;
        if (this.search.value) { this.search.value = ""; this.find(); } else this.zoom(0);
        if (event.target === this.search) this.graph.focus();
      } else if (event.key === "/" && !event.target.matches("input, textarea, select")) {
        this.search.focus();
      } else if (event.target !== this.graph) {
        return false;
      } else if (event.key === "Enter" || event.key === "Backspace") {
        this.zoom(event.key === "Enter" ? this.selected : Math.max(0, this.lane.parent[this.zoomed]));
        this.hoverSelected();
      } else if (event.key.startsWith("Arrow")) {
        const next = this.neighbour(event.key);
        if (this.boxes.has(next)) this.select(next);
        this.hoverSelected();
      } else return false;
      return true;
    }
  }

  function onKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const widget = widgets.find(({ figure }) => figure.contains(event.target))
      || widgets.find(({ figure }) => figure.offsetParent !== null);
    if (widget?.onKey(event)) event.preventDefault();
  }

  async function start(figure, script) {
    try {
      return widgets[widgets.push(new Flame(figure, await read(script))) - 1];
    } catch (error) {
      figure.querySelector(".flame-facts").textContent = `This browser cannot draw it (${error.message}): see the table.`;
      return null;
    }
  }

  // A figure is read when it is first seen: a page may hold hundreds, most of them hidden.
  function watch(script) {
    const figure = script.closest(".flame");
    let widget = null;
    let widthPx = 0;
    new ResizeObserver(async () => {
      if (!figure.clientWidth || figure.clientWidth === widthPx) return;
      widthPx = figure.clientWidth;
      if (widget) (await widget)?.draw();
      else widget = start(figure, script);
    }).observe(figure);
  }

  document.addEventListener("keydown", onKey);
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll('script[data-widget="flame"]').forEach(watch);
  });
})();
