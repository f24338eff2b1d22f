"use strict";
// Draws what timeline.py embedded: lanes that zoom and pan, and the whole run below them.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const [AXIS_PX, NAME_PX, BAR_PX, LANE_PX] = [30, 15, 18, 38];
  const [BAND_PX, CHART_PX, TITLE_PX] = [20, 46, 16];
  const NUM_COLORS = 8;
  const LEAST_US = 2; // Zoomed in further, pieces of whole microseconds tell nothing more.
  const KINDS = { warmup: "not yet steady", measure: "measured", profile: "stacks are sampled", between: "between windows" };

  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== "") element.textContent = text;
    return element;
  };
  const hue = (index) => `--hue: var(--c${index % NUM_COLORS})`;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  function number(value) {
    if (Math.abs(value) > 1e12) return value.toExponential(2);
    return value.toLocaleString("en", Math.abs(value) < 1000 ? { maximumSignificantDigits: 4 } : { maximumFractionDigits: 0 });
  }
  function duration(us) {
    if (us < 1000) return `${us} µs`;
    return us < 1e6 ? `${(us / 1000).toFixed(us < 1e5 ? 2 : 1)} ms` : `${(us / 1e6).toFixed(3)} s`;
  }
  const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

  // Round numbers from low to high with their texts, about `most`: 1, 2 or 5 times a power of ten apart.
  function ticks(low, high, most) {
    const rough = (high - low) / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough) || 10 * power;
    const numDigits = clamp(-Math.floor(Math.log10(step)), 0, 9);
    const [first, last] = [Math.ceil(low / step), Math.floor(high / step)];
    return Array.from({ length: clamp(last - first + 1, 0, 60) }, (_, at) => (first + at) * step).map((value) => [value, value.toFixed(numDigits)]);
  }

  async function read(script) {
    const bytes = Uint8Array.from(atob(script.textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function unpack(packed) {
    const pieces = [];
    for (let place = 0, at = 0; place < packed.length; place += 3) {
      const start = at + packed[place];
      at = start + packed[place + 1];
      pieces.push({ start, end: at, phase: packed[place + 2] });
    }
    return pieces;
  }

  function makeHover(box) {
    const element = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
    const hide = () => { box.hidden = true; };
    const show = (title, lines, x, y) => {
      box.replaceChildren(element("b", title), ...lines.map((line) => element("span", line)));
      box.hidden = false;
      box.style.left = `${clamp(x + 14, 4, Math.max(4, innerWidth - box.offsetWidth - 8))}px`;
      box.style.top = `${y + 18 + box.offsetHeight > innerHeight ? Math.max(4, y - box.offsetHeight - 10) : y + 18}px`;
    };
    return { hide, show };
  }

  function painted(root, data, phase, tag, attributes) {
    const { wait } = data.phases[phase];
    const style = wait ? `${hue(phase)};fill:url(#${root.id}-wait-${phase})` : hue(phase);
    return make(tag, { ...attributes, class: wait ? "wait" : phase < NUM_COLORS ? "work" : "work again", style });
  }

  // Waits are pale and striped: told apart without colour, and on paper.
  function patterns(root, data) {
    const defs = make("defs");
    data.phases.forEach((phase, index) => {
      if (!phase.wait) return;
      const pattern = make("pattern", { id: `${root.id}-wait-${index}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${index % 2 ? 45 : 135})`, style: hue(index) });
      pattern.append(make("rect", { width: 6, height: 6, class: "wait-ground" }), make("path", { d: "M0 0V6", class: "stripe" }));
      defs.append(pattern);
    });
    return defs;
  }

  function drawLegend(root, data) {
    const whole = data.lengthUs * data.lanes.length;
    const total = data.phases.map(() => 0);
    for (const lane of data.lanes) for (const piece of lane.pieces) total[piece.phase] += piece.end - piece.start;
    root.querySelector(".timeline-legend").replaceChildren(...data.phases.map((phase, index) => {
      const item = document.createElement("li");
      const picture = make("svg", { viewBox: "0 0 18 12", "aria-hidden": "true" });
      picture.append(painted(root, data, index, "rect", { width: 18, height: 12 }));
      item.append(picture, `${phase.name}${phase.wait ? " (wait)" : ""} ${percent(total[index] / whole)}`);
      return item;
    }));
  }

  function Lanes(root, data, hover) {
    const box = root.querySelector(".timeline-lanes");
    const note = root.querySelector(".timeline-note");
    const svg = make("svg", { role: "img", "aria-label": `${data.lanes.length} lanes over ${duration(data.lengthUs)}` });
    const height = AXIS_PX + data.lanes.length * LANE_PX;
    const view = { start: 0, end: data.lengthUs };
    const chosen = { lane: 0, piece: -1 };
    let [drag, width] = [null, 0];
    const x = (us) => (width * (us - view.start)) / (view.end - view.start);
    const us = (px) => view.start + (px / width) * (view.end - view.start);
    const top = (lane) => AXIS_PX + lane * LANE_PX + NAME_PX;
    box.replaceChildren(svg);

    function axis() {
      const parts = ticks(view.start / 1000, view.end / 1000, width / 90).flatMap(([ms, text]) => [
        make("path", { d: `M${x(ms * 1000)} 14V${height}`, class: "grid" }),
        make("text", { x: clamp(x(ms * 1000), 2, width - 30), y: 10, class: "muted", "text-anchor": x(ms * 1000) < 20 ? "start" : "middle" }, `${text} ms`),
      ]);
      data.steps.forEach(([end, label], index) => {
        if (end < view.start || end > view.end) return;
        parts.push(make("path", { d: `M${x(end)} 16V${height}`, class: "step" }));
        const start = index ? data.steps[index - 1][0] : end;
        if (x(end) - x(start) > 54) parts.push(make("text", { x: Math.max(x(start), 0) + 4, y: 24, class: "muted" }, `step ${label}`));
      });
      return parts;
    }

    // One path a lane and phase, pieces below a pixel joined: 4,000 pieces are some 100 elements.
    function bars(lane, row) {
      const paths = new Map();
      const labels = [];
      const last = new Map();
      for (const piece of lane.pieces) {
        if (piece.end <= view.start || piece.start >= view.end) continue;
        const [left, right] = [Math.max(x(piece.start), 0), Math.min(x(piece.end), width)];
        if (right - left < 0.5 && left - (last.get(piece.phase) ?? -9) < 0.5) continue;
        last.set(piece.phase, right);
        const wide = Math.max(right - left, 0.5);
        paths.set(piece.phase, `${paths.get(piece.phase) || ""}M${left.toFixed(2)} ${top(row)}h${wide.toFixed(2)}v${BAR_PX}h-${wide.toFixed(2)}z`);
        const { name } = data.phases[piece.phase];
        if (wide > 7 * Math.min(name.length, 16) + 8) labels.push(make("text", { x: left + 4, y: top(row) + 13, class: "label" }, name.length > 16 ? `${name.slice(0, 15)}…` : name));
      }
      return [...[...paths].map(([phase, d]) => painted(root, data, phase, "path", { d })), ...labels];
    }

    // From where a batch was sent down to where the step that trains on it began.
    function flows() {
      return data.flows.filter(([, , sent, begun]) => begun >= view.start && sent <= view.end).flatMap(([from, to, sent, begun]) => {
        const [fromY, toY] = from < to ? [top(from) + BAR_PX, top(to)] : [top(from), top(to) + BAR_PX];
        const middle = (fromY + toY) / 2;
        return [
          make("path", { d: `M${x(sent)} ${fromY}C${x(sent)} ${middle} ${x(begun)} ${middle} ${x(begun)} ${toY}`, class: "flow" }),
          make("path", { d: `M${x(begun)} ${toY}l-3 ${from < to ? -6 : 6}h6z`, class: "flow-head" }),
        ];
      });
    }

    function mark() {
      const piece = data.lanes[chosen.lane].pieces[chosen.piece];
      if (!piece || piece.end < view.start || piece.start > view.end) return [];
      const left = Math.max(x(piece.start), 1);
      return [make("rect", { x: left, y: top(chosen.lane) - 1, width: Math.max(2, Math.min(x(piece.end), width - 1) - left), height: BAR_PX + 2, class: "chosen" })];
    }

    function draw() {
      width = Math.max(box.clientWidth, 100);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      const grounds = data.lanes.map((lane, row) => make("rect", { x: 0, y: top(row), width, height: BAR_PX, class: "ground" }));
      const names = data.lanes.map((lane, row) => make("text", { x: 2, y: top(row) - 4, class: "name label" }, lane.name));
      const selection = drag && Math.abs(drag.now - drag.from) > 3 ? [make("rect", { x: Math.min(drag.from, drag.now), y: 0, width: Math.abs(drag.now - drag.from), height, class: "drag" })] : [];
      svg.replaceChildren(patterns(root, data), ...grounds, ...axis(), ...data.lanes.flatMap(bars), ...flows(), ...names, ...mark(), ...selection);
      const isWhole = view.start === 0 && view.end === data.lengthUs;
      for (const name of ["reset", "out", "left", "right"]) root.querySelector(`[data-do=${name}]`).disabled = isWhole;
      note.textContent = `${isWhole ? "" : `${duration(Math.round(view.end - view.start))} of `}${duration(data.lengthUs)}, from ${data.startS.toFixed(2)} s on. Drag or Ctrl + wheel: zoom; Shift + wheel: pan.`;
    }

    function show(start, end) {
      const length = clamp(end - start, Math.min(LEAST_US, data.lengthUs), data.lengthUs);
      view.start = clamp(start, 0, data.lengthUs - length);
      view.end = view.start + length;
      draw();
    }
    const zoom = (factor, around = us(width / 2)) => show(around - (around - view.start) * factor, around + (view.end - around) * factor);
    const pan = (share) => show(us(share * width), us((1 + share) * width));
    const actions = {
      in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.25), right: () => pan(0.25),
      reset: () => { hover.hide(); chosen.piece = -1; show(0, data.lengthUs); },
    };

    function tell(row, piece, clientX, clientY) {
      const lane = data.lanes[row];
      const phase = data.phases[piece.phase];
      const inLane = lane.pieces.reduce((sum, other) => sum + (other.phase === piece.phase ? other.end - other.start : 0), 0);
      hover.show(`${phase.name}${phase.wait ? " (wait)" : ""}`, [
        `${lane.name}, ${duration(piece.end - piece.start)} from ${duration(piece.start)} on`,
        `${percent((piece.end - piece.start) / data.lengthUs)} of these ${duration(data.lengthUs)}; all ${phase.name} of this lane: ${percent(inLane / data.lengthUs)}`,
      ], clientX, clientY);
    }

    const find = (row, at) => data.lanes[row].pieces.findIndex((piece) => piece.start <= at && at < piece.end);
    const place = (event) => event.clientX - box.getBoundingClientRect().left;
    function look(event) {
      const y = event.clientY - box.getBoundingClientRect().top;
      const row = Math.floor((y - AXIS_PX) / LANE_PX);
      const isBar = row >= 0 && row < data.lanes.length && y >= top(row);
      const index = isBar ? find(row, us(place(event))) : -1;
      if (index < 0) hover.hide(); else tell(row, data.lanes[row].pieces[index], event.clientX, event.clientY);
    }

    function walk(by) {
      const { pieces } = data.lanes[chosen.lane];
      if (!pieces.length) { hover.hide(); return; }
      chosen.piece = chosen.piece < 0 ? Math.max(0, pieces.findIndex((piece) => piece.end > view.start)) : clamp(chosen.piece + by, 0, pieces.length - 1);
      const piece = pieces[chosen.piece];
      const length = view.end - view.start;
      if (piece.end > view.end || piece.start < view.start) show(piece.start - length / 4, piece.start + (3 * length) / 4); else draw();
      const edge = box.getBoundingClientRect();
      tell(chosen.lane, piece, edge.left + Math.max(0, x(piece.start)), edge.top + top(chosen.lane) + 6);
    }
    function changeLane(by) {
      const held = data.lanes[chosen.lane].pieces[chosen.piece];
      chosen.lane = clamp(chosen.lane + by, 0, data.lanes.length - 1);
      chosen.piece = held ? find(chosen.lane, held.start) : -1;
      walk(0);
    }
    const keys = {
      "+": actions.in, "=": actions.in, "-": actions.out, "−": actions.out, ArrowLeft: actions.left, ArrowRight: actions.right,
      0: actions.reset, Home: actions.reset, Escape: actions.reset,
      ArrowUp: () => changeLane(-1), ArrowDown: () => changeLane(1), n: () => walk(1), p: () => walk(-1),
    };

    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
      event.preventDefault();
      keys[event.key]();
    });
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, us(place(event))); else pan(((event.deltaX || event.deltaY) > 0 ? 1 : -1) * 0.1);
    }, { passive: false });
    box.addEventListener("pointerdown", (event) => {
      look(event);
      if (event.button !== 0 || event.pointerType === "touch") return;
      drag = { from: place(event), now: place(event) };
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      if (!drag) { look(event); return; }
      drag.now = clamp(place(event), 0, width);
      hover.hide();
      draw();
    });
    function drop(event) {
      if (!drag) return;
      const { from, now } = drag;
      drag = null;
      if (event.type === "pointerup" && Math.abs(now - from) > 3) show(us(Math.min(from, now)), us(Math.max(from, now))); else draw();
    }
    box.addEventListener("pointerup", drop);
    box.addEventListener("pointercancel", drop);
    box.addEventListener("pointerleave", hover.hide);
    box.addEventListener("blur", hover.hide);
    for (const button of root.querySelectorAll("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());
    return { draw };
  }

  // Bands, tok/s a window, and one small chart a gauge, all on the time axis of the whole run.
  function Run(root, box, data, charts, hover, isWhole) {
    const svg = make("svg", { role: "img", "aria-label": "The whole run over time" });
    const [low, high] = [data.fromS, data.toS];
    const rates = data.bands.filter((band) => band.tokPerS > 0 && (band.kind === "measure" || band.kind === "profile"));
    const rows = [...(isWhole && rates.length ? [{ title: "tok/s by window", lines: [], rates }] : []), ...charts];
    const head = isWhole && data.bands.length ? BAND_PX + 12 : 4;
    const height = head + rows.length * (CHART_PX + TITLE_PX + 8) + 20;
    let [cursor, width] = [null, 0];
    const line = make("path", { class: "cursor" });
    const x = (s) => (width * (s - low)) / (high - low);
    box.replaceChildren(svg);

    function bands() {
      if (!isWhole) return [];
      const parts = data.bands.flatMap((band) => {
        const [left, wide] = [x(band.startS), Math.max(0.5, x(band.endS) - x(band.startS))];
        const rect = make("rect", { x: left, y: 2, width: wide, height: BAND_PX, class: `band ${band.kind}` });
        const name = band.kind === "warmup" ? "warm-up" : band.kind === "between" ? "" : band.label;
        const text = name && wide > 6.5 * name.length + 8 ? [make("text", { x: left + 4, y: 16, class: "label" }, name)] : [];
        const hatch = band.reasons.length ? [make("rect", { x: left, y: 2, width: wide, height: BAND_PX, class: "disturbed", style: `fill:url(#${root.id}-disturbed)` })] : [];
        return [rect, ...hatch, ...text];
      });
      // Where the lanes above lie.
      if (data.lengthUs) parts.push(make("rect", { x: x(data.startS), y: BAND_PX + 4, width: Math.max(3, x(data.startS + data.lengthUs / 1e6) - x(data.startS)), height: 4, class: "here" }));
      return parts;
    }

    function chart(row, index) {
      const base = head + index * (CHART_PX + TITLE_PX + 8) + TITLE_PX;
      const values = row.rates ? row.rates.map((band) => band.tokPerS) : row.lines.flatMap((line) => line.values);
      const [least, most] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
      const y = (value) => most > least ? base + CHART_PX - 3 - ((CHART_PX - 6) * (value - least)) / (most - least) : base + CHART_PX / 2;
      const parts = [
        make("rect", { x: 0, y: base, width, height: CHART_PX, class: "ground" }),
        make("text", { x: 2, y: base - 4, class: "name" }, row.title),
        make("text", { x: width - 2, y: base - 4, class: "muted", "text-anchor": "end" }, most > least ? `${number(least)} to ${number(most)}` : number(least)),
      ];
      if (row.rates) {
        const follows = (at) => at > 0 && row.rates[at - 1].endS === row.rates[at].startS;
        const path = row.rates.map((band, at) => `${follows(at) ? "V" : `M${x(band.startS)} `}${y(band.tokPerS)}H${x(band.endS)}`).join("");
        const disturbed = row.rates.filter((band) => band.reasons.length).map((band) => `M${x(band.startS)} ${base + CHART_PX - 1}H${x(band.endS)}`);
        parts.push(make("path", { d: path, class: "line", style: hue(0) }), make("path", { d: disturbed.join(""), class: "disturbed-line" }));
      }
      row.lines.forEach((one, color) => {
        const path = one.values.map((value, at) => `${at ? "L" : "M"}${x(one.atS[at]).toFixed(1)} ${y(value).toFixed(1)}`).join("");
        parts.push(make("path", { d: one.values.length > 1 ? path : `${path}h2`, class: "line", style: hue(color) }));
      });
      return parts;
    }

    const axis = () => ticks(low, high, width / 90).flatMap(([s, text]) => [
      make("path", { d: `M${x(s)} ${head}V${height - 16}`, class: "grid" }),
      make("text", { x: clamp(x(s), 2, width - 16), y: height - 4, class: "muted", "text-anchor": x(s) < 20 ? "start" : "middle" }, `${text} s`),
    ]);

    function draw() {
      width = Math.max(box.clientWidth, 100);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      const hatch = make("pattern", { id: `${root.id}-disturbed`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
      hatch.append(make("path", { d: "M0 0V6", class: "disturbed" }));
      const defs = make("defs");
      defs.append(...(isWhole ? [hatch] : [])); // Once a widget: an id is unique.
      const drawn = rows.map(chart);
      svg.replaceChildren(defs, ...bands(), ...drawn.map((parts) => parts[0]), ...axis(), ...drawn.flatMap((parts) => parts.slice(1)), line);
    }

    function nearest({ atS, values }, s) {
      return values[atS.reduce((found, at, index) => (Math.abs(at - s) < Math.abs(atS[found] - s) ? index : found), 0)];
    }
    function tell(s, clientX, clientY) {
      cursor = clamp(s, low, high);
      line.setAttribute("d", `M${x(cursor)} 0V${height - 16}`);
      const band = data.bands.find((one) => cursor >= one.startS && cursor <= one.endS);
      const told = band ? [`${band.label} (${KINDS[band.kind]}): ${number(band.tokPerS)} tok/s, ${band.steps} steps`, ...band.reasons.map((reason) => `left out: ${reason}`)] : [];
      for (const row of rows) for (const one of row.lines.slice(0, 12)) told.push(`${row.title}${one.name ? ` of ${one.name}` : ""}: ${number(nearest(one, cursor))}`);
      hover.show(`${cursor.toFixed(2)} s`, told, clientX, clientY);
    }
    const leave = () => { cursor = null; line.removeAttribute("d"); hover.hide(); };
    box.addEventListener("pointermove", (event) => tell(low + ((event.clientX - box.getBoundingClientRect().left) / width) * (high - low), event.clientX, event.clientY));
    box.addEventListener("pointerleave", leave);
    box.addEventListener("blur", leave);
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") leave();
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const edge = box.getBoundingClientRect();
      const s = clamp((cursor === null ? low : cursor) + (by * (high - low)) / 50, low, high);
      tell(s, edge.left + x(s), edge.top + head);
    });
    return { draw };
  }

  async function start(script) {
    const root = script.closest(".timeline");
    const data = await read(script);
    for (const lane of data.lanes) lane.pieces = unpack(lane.pieces);
    const hover = makeHover(root.querySelector(".timeline-hover"));
    const parts = [];
    if (data.lanes.length) {
      parts.push(Lanes(root, data, hover));
      drawLegend(root, data);
    } else {
      root.querySelector(".timeline-tools").remove();
      root.querySelector(".timeline-lanes").textContent = "No phases are kept of this run: it ended no step, or recorded no spans.";
    }
    if (data.bands.length || data.charts.length) parts.push(Run(root, root.querySelector(".timeline-run"), data, data.charts, hover, true));
    const more = root.querySelector(".timeline-more");
    if (data.more.length) {
      const rest = Run(root, root.querySelector(".timeline-rest"), data, data.more, hover, false);
      more.hidden = false;
      more.querySelector("summary").textContent = `Other gauges: ${data.more.length}`;
      more.addEventListener("toggle", rest.draw);
      parts.push(rest);
    }
    let width = 0;
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      for (const part of parts) part.draw();
    }).observe(root);
  }

  function startVisible() {
    for (const script of document.querySelectorAll('[data-widget="timeline"]')) {
      if (script.dataset.started || !script.closest(".timeline").getClientRects().length) continue;
      script.dataset.started = "yes";
      start(script);
    }
  }
  document.addEventListener("DOMContentLoaded", startVisible);
  document.addEventListener("page-shown", startVisible);
})();
