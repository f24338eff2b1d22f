// The page's frame: which view is shown, themes, sorting and filtering, printing. All state is in the address.
(() => {
  "use strict";
  const root = document.documentElement;
  const THEMES = ["auto", "light", "dark"];
  let overviewY = 0;
  let shown = null;

  // file:// may refuse storage altogether.
  function stored(value) {
    try {
      if (value === undefined) return localStorage.getItem("flashprof-theme");
      localStorage.setItem("flashprof-theme", value);
    } catch { /* The theme is then not remembered. */ }
    return null;
  }

  function setTheme(name) {
    if (name === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", name);
    const button = document.querySelector('[data-action="theme"]');
    if (button) button.textContent = `theme: ${name}`;
  }

  function theme() {
    return root.getAttribute("data-theme") ?? "auto";
  }

  // `#overview?runs=rate.desc&q=swa`: a view, then its state.
  function address() {
    let hash = location.hash.slice(1);
    try { hash = decodeURIComponent(hash); } catch { /* As it is. */ }
    const cut = hash.indexOf("?");
    return cut < 0 ? [hash, ""] : [hash.slice(0, cut), hash.slice(cut + 1)];
  }

  function show() {
    // Not every browser says when it has printed.
    afterPrint();
    const [id, state] = address();
    const target = document.getElementById(id);
    const page = target?.closest(".page") ?? document.getElementById("overview");
    if (!page) return;
    const before = shown;
    if (before !== page) {
      for (const other of document.querySelectorAll(".page.shown")) other.classList.remove("shown");
      page.classList.add("shown");
      shown = page;
    }
    const title = page.getAttribute("data-title") ?? page.querySelector("h1, h2")?.textContent ?? "";
    document.getElementById("crumb").textContent = page.id === "overview" ? "" : title;
    document.title = page.id === "overview" ? document.querySelector(".home").textContent : title;
    if (page.id === "overview") restore(new URLSearchParams(state));
    if (before !== page) {
      document.dispatchEvent(new CustomEvent("page-shown", { detail: page }));
      if (before) page.querySelector("h1, h2")?.focus({ preventScroll: true });
    }
    if (target && target !== page && page.contains(target)) target.scrollIntoView();
    else if (before && before !== page) scrollTo(0, page.id === "overview" ? overviewY : 0);
  }

  // The cells of a column as numbers where all that are filled are numbers, else as words.
  function keyOf(row, index) {
    const cell = row.cells[index];
    return cell.dataset.v ?? cell.textContent.trim();
  }

  function sortBy(table, key, direction) {
    const heads = [...table.tHead.rows[0].cells];
    const index = heads.findIndex((head) => head.dataset.key === key);
    if (index < 0) return;
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[index].setAttribute("aria-sort", direction === "desc" ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => {
      const text = keyOf(row, index);
      return { row, text: text.toLowerCase(), number: text === "" ? NaN : Number(text) };
    });
    const isEmpty = ({ text }) => text === "" || text === "nan" || text === "–";
    const isNumeric = rows.every((item) => isEmpty(item) || !Number.isNaN(item.number));
    const order = new Intl.Collator("en", { numeric: true });
    const sign = direction === "desc" ? -1 : 1;
    rows.sort((a, b) => {
      // What is not known stands last, whichever way is sorted.
      if (isEmpty(a) || isEmpty(b)) return isEmpty(a) - isEmpty(b);
      return sign * (isNumeric ? a.number - b.number : order.compare(a.text, b.text));
    });
    body.append(...rows.map(({ row }) => row));
  }

  function filter(form) {
    const table = document.querySelector(`[data-sorts="${form.dataset.filters}"]`);
    const words = form.querySelector("input[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const box = form.querySelector("[data-show]");
    let count = 0;
    let all = 0;
    for (const row of table.tBodies[0].rows) {
      const isAsked = !box || box.checked || !row.hasAttribute("data-launch");
      const text = isAsked && words.length ? row.textContent.toLowerCase() : "";
      row.hidden = !isAsked || !words.every((word) => text.includes(word));
      all += isAsked;
      count += !row.hidden;
    }
    form.querySelector("output").textContent = words.length ? `${count} of ${all}` : "";
  }

  function restore(state) {
    for (const table of document.querySelectorAll("[data-sorts]")) {
      const [key, direction] = (state.get(table.dataset.sorts) ?? "when.desc").split(".");
      sortBy(table, key, direction);
    }
    for (const form of document.querySelectorAll("[data-filters]")) {
      const box = form.querySelector("[data-show]");
      const search = form.querySelector("input[type=search]");
      if (search.value !== (state.get("q") ?? "")) search.value = state.get("q") ?? "";
      if (box) box.checked = state.has("launches") || !hasOwn(form);
      filter(form);
    }
  }

  // Where there are launches alone, hiding them would show an empty table.
  function hasOwn(form) {
    return document.querySelector(`[data-sorts="${form.dataset.filters}"] tbody tr:not([data-launch])`) !== null;
  }

  function remember(change) {
    const state = new URLSearchParams(address()[0] === "overview" ? address()[1] : "");
    change(state);
    const text = state.toString();
    history.replaceState(null, "", text ? `#overview?${text}` : "#overview");
  }

  function onSort(button) {
    const head = button.closest("th");
    const table = button.closest("[data-sorts]");
    const isFirst = !head.hasAttribute("aria-sort");
    // Numbers and times are read from the top down, names from A.
    const isLargeFirst = head.classList.contains("num") || head.dataset.key === "when";
    const isUp = isFirst ? !isLargeFirst : head.getAttribute("aria-sort") === "descending";
    const direction = isUp ? "asc" : "desc";
    sortBy(table, head.dataset.key, direction);
    remember((state) => state.set(table.dataset.sorts, `${head.dataset.key}.${direction}`));
  }

  function onClick(event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.closest("th[data-key]")) onSort(button);
    if (button.dataset.action === "theme") {
      const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
      setTheme(next);
      stored(next);
    }
    if (button.dataset.action === "print") print();
    if (button.dataset.action === "print-all") {
      root.classList.add("all");
      for (const page of document.querySelectorAll(".page")) {
        document.dispatchEvent(new CustomEvent("page-shown", { detail: page }));
      }
      print();
    }
  }

  function onFilter(form) {
    filter(form);
    remember((state) => {
      const text = form.querySelector("input[type=search]").value.trim();
      if (text) state.set("q", text);
      else state.delete("q");
      if (form.querySelector("[data-show]")?.checked) state.set("launches", "1");
      else state.delete("launches");
    });
  }

  // Paper has nothing to click: all details are open on it.
  const opened = [];
  function beforePrint() {
    const scope = root.classList.contains("all") ? document : shown ?? document;
    for (const details of scope.querySelectorAll("details:not([open])")) {
      details.open = true;
      opened.push(details);
    }
  }

  function afterPrint() {
    for (const details of opened.splice(0)) details.open = false;
    root.classList.remove("all");
  }

  root.classList.add("js");
  const saved = stored();
  if (THEMES.includes(saved)) setTheme(saved);
  document.addEventListener("DOMContentLoaded", () => {
    setTheme(theme());
    for (const form of document.querySelectorAll("[data-filters]")) {
      form.addEventListener("submit", (event) => event.preventDefault());
      form.addEventListener("input", () => onFilter(form));
    }
    document.addEventListener("click", onClick);
    addEventListener("scroll", () => { if (shown?.id === "overview") overviewY = scrollY; }, { passive: true });
    addEventListener("hashchange", show);
    addEventListener("beforeprint", beforePrint);
    addEventListener("afterprint", afterPrint);
    show();
  });
})();
