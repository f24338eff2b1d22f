"use strict";
// Draws the icicle that flamegraph.py embedded: one element a box, placed in percent, so a resize costs nothing.
(() => {
  const ROW_PX = 20;
  const THIN = 0.0008; // Below this share of the width a box is no pixel wide: hidden until zoomed into.
  const data = JSON.parse(document.getElementById("data").textContent);
  const graph = document.getElementById("graph");
  const tip = document.getElementById("tip");
  const search = document.getElementById("search");
  const matched = document.getElementById("matched");
  const reset = document.getElementById("reset");
  const nodes = data.nodes.label.map((label, index) => ({
    index, label, name: data.labels[label], parent: null, children: [], x: 0, depth: 0, taken: 0, match: false,
    samples: data.nodes.samples[index], self: data.nodes.self[index],
  }));
  const root = nodes[0];
  let zoomed = root;
  let selected = root;

  for (const node of nodes.slice(1)) {
    const parent = nodes[data.nodes.parent[node.index]];
    Object.assign(node, { parent, depth: parent.depth + 1, x: parent.x + parent.taken, lane: parent.lane || node });
    parent.taken += node.samples;
    parent.children.push(node);
  }

  const percent = (part, whole) => `${((100 * part) / whole).toFixed(part / whole < 0.0995 ? 1 : 0)} %`;
  const within = (node, outer) => node.x >= outer.x && node.x + node.samples <= outer.x + outer.samples;

  function makeBox(node) {
    const box = document.createElement("div");
    const kind = node.depth < 2 ? "top" : data.origins[node.label];
    box.className = `box ${kind}`;
    box.style.top = `${node.depth * ROW_PX}px`;
    box.style.setProperty("--shade", data.shades[node.label]);
    const [, name, place] = /^(.*?)( \([^()]*\))?$/s.exec(node.name);
    box.append(name);
    const note = document.createElement("em");
    note.textContent = node.depth < 2 ? `  ${percent(node.samples, root.samples)}` : place || "";
    box.append(note);
    box.onclick = () => zoom(node);
    box.onmousemove = (event) => showTip(node, event.clientX, event.clientY);
    box.onmouseleave = () => { tip.hidden = true; };
    return box;
  }

  function place() {
    let deepest = 0;
    for (const node of nodes) {
      const above = node.depth < zoomed.depth && within(zoomed, node);
      const below = node.depth >= zoomed.depth && within(node, zoomed);
      const width = above ? 1 : node.samples / zoomed.samples;
      node.shown = above || (below && width >= THIN);
      node.box.hidden = !node.shown;
      if (!node.shown) continue;
      node.box.style.left = above ? "0" : `${(100 * (node.x - zoomed.x)) / zoomed.samples}%`;
      node.box.style.width = `${100 * width}%`;
      node.box.classList.toggle("above", above);
      node.box.classList.toggle("thin", width < 0.012);
      deepest = Math.max(deepest, node.depth);
    }
    graph.style.height = `${(deepest + 1) * ROW_PX}px`;
    reset.disabled = zoomed === root;
    showMatched();
  }

  function zoom(node) {
    zoomed = node;
    select(node);
    place();
  }
  function select(node) {
    selected.box.classList.remove("selected");
    selected = node;
    selected.box.classList.add("selected");
  }

  function showTip(node, x, y) {
    const name = document.createElement("b");
    name.textContent = node.name;
    const facts = document.createElement("span");
    const lane = node.lane && node.lane !== node ? `${percent(node.samples, node.lane.samples)} of ${node.lane.name}, ` : "";
    facts.textContent =
      `${node.samples.toLocaleString("en")} samples, ${lane}${percent(node.samples, root.samples)} of all; ` +
      `innermost in ${percent(node.self, node.samples)} of its own`;
    tip.replaceChildren(name, facts);
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
  }

  // Samples under a match count once, however many matches lie on one stack.
  function samplesMatched(node) {
    if (node.match) return node.samples;
    return node.children.reduce((sum, child) => sum + samplesMatched(child), 0);
  }

  function showMatched() {
    matched.textContent = search.value ? `${percent(samplesMatched(zoomed), zoomed.samples)} matched` : "";
  }

  function find() {
    const text = search.value.toLowerCase();
    for (const node of nodes) {
      node.match = text !== "" && node !== root && node.name.toLowerCase().includes(text);
      node.box.classList.toggle("match", node.match);
    }
    graph.classList.toggle("searching", text !== "");
    showMatched();
  }

  function neighbour(key) {
    if (key === "ArrowUp" || key === "ArrowDown") return key === "ArrowUp" ? selected.parent : selected.children[0];
    const siblings = selected.parent ? selected.parent.children : [];
    return siblings[siblings.indexOf(selected) + (key === "ArrowLeft" ? -1 : 1)];
  }

  function onKey(event) {
    if (event.key === "Escape") {
      if (search.value !== "") { search.value = ""; find(); } else zoom(root);
      search.blur();
    } else if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "/") {
      search.focus();
    } else if (event.key === "Enter" && event.target !== reset) {
      zoom(selected);
    } else if (event.key.startsWith("Arrow")) {
      const next = neighbour(event.key);
      if (!next || !next.shown) return;
      select(next);
      const edge = next.box.getBoundingClientRect();
      showTip(next, edge.left, edge.top + ROW_PX - 14);
    } else return;
    event.preventDefault();
  }

  if (root.samples === 0) {
    graph.innerHTML = '<p class="empty">No stack samples: nothing was sampled in the profile windows.</p>';
    return;
  }
  for (const node of nodes) node.box = makeBox(node);
  graph.append(...nodes.map((node) => node.box));
  document.getElementById("pruned").textContent = data.num_pruned
    ? `${data.num_pruned.toLocaleString("en")} boxes below ${percent(data.prune_share, 1)} of all samples are left out.` : "";
  reset.onclick = () => zoom(root);
  search.oninput = find;
  document.addEventListener("keydown", onKey);
  place();
})();
