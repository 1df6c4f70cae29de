"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("live");
  const byId = (id) => document.getElementById(id);
  const make = (tag, kind, content) => {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    if (content !== undefined) element.textContent = content;
    return element;
  };

  // Light and dark: what the system says, until the button says otherwise.
  const theme = byId("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const nameTheme = () => {
    theme.textContent = isDark() ? "Light colours" : "Dark colours";
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  prefersDark.addEventListener("change", nameTheme);
  nameTheme();

  // Tabs: without this script they are links to the sections.
  const links = [...document.querySelectorAll(".tabs a")];
  const panels = links.map((link) => byId(link.hash.slice(1)));
  const list = document.querySelector(".tabs ul");
  list.setAttribute("role", "tablist");
  const show = (index, focus) => {
    links.forEach((link, position) => {
      const chosen = position === index;
      link.setAttribute("aria-selected", String(chosen));
      link.tabIndex = chosen ? 0 : -1;
      panels[position].hidden = !chosen;
    });
    const link = links[index];
    list.scrollLeft = link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2;
    if (focus) link.focus({ preventScroll: true });
  };
  const ofHash = () => Math.max(0, links.findIndex((link) => link.hash === location.hash));
  links.forEach((link, index) => {
    link.parentElement.setAttribute("role", "presentation");
    link.setAttribute("role", "tab");
    link.setAttribute("aria-controls", panels[index].id);
    panels[index].setAttribute("role", "tabpanel");
    panels[index].setAttribute("tabindex", "0");
    link.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", link.hash);
      show(index, true);
      const top = list.closest(".tabs").offsetTop;
      if (scrollY > top) scrollTo({ top, behavior: "instant" });
    });
    link.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next =
        event.key === "Home" ? 0 : event.key === "End" ? links.length - 1 : step && (index + step + links.length) % links.length;
      if (next === undefined) return;
      event.preventDefault();
      links[next].click();
    });
  });
  addEventListener("hashchange", () => show(ofHash(), false));
  show(ofHash(), false);

  // Tables: a header sorts its column, first the largest where it holds numbers.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent.trim() : cell.dataset.sort;
  };
  const compareText = new Intl.Collator(undefined, { numeric: true }).compare;
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const label = head.textContent;
      if (!label) return;
      const button = make("button", "", label);
      button.type = "button";
      head.textContent = "";
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const body = table.tBodies[0];
        const keyed = [...body.rows].map((row) => [keyOf(row, column), row]);
        const numeric = keyed.every(([key]) => key !== "" && !Number.isNaN(Number(key)));
        const before = head.getAttribute("aria-sort");
        const down = before === "none" ? numeric : before === "ascending";
        const compare = numeric ? (a, b) => Number(a[0]) - Number(b[0]) : (a, b) => compareText(a[0], b[0]);
        keyed.sort((a, b) => (down ? compare(b, a) : compare(a, b)));
        body.append(...keyed.map(([, row]) => row));
        for (const other of table.tHead.rows[0].cells) {
          if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
        }
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
      });
    });
  }

  // Prototypes: kept as numbers, made into cards a page at a time.
  const cards = byId("cards");
  if (!cards) return;
  const data = JSON.parse(byId("prototypes-data").textContent);
  const PAGE = 24;
  const FEATURES = 8;
  const entries = [];
  data.batches.forEach((batch, number) => {
    batch.order = batch.features.map((_, column) => column).sort((a, b) => batch.weights[b] - batch.weights[a]);
    batch.row.forEach((row, position) => {
      const label = data.classes[batch.class[position]];
      entries.push({
        number, position, row, class: batch.class[position], weight: batch.weight[position],
        text: `${label} row ${row}`.toLocaleLowerCase(),
      });
    });
  });
  const largest = entries.reduce((most, entry) => Math.max(most, entry.weight), 0);
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en");
  const shown = (value) => {
    if (value === null) return "–";
    const size = Math.abs(value);
    const plain = size >= 1e9 || (value && size < 1e-3) ? value.toExponential(2) : format.format(value);
    return plain.replaceAll("-", "−");
  };
  const ranks = data.classes.map((_, index) => index).sort((a, b) => compareText(data.classes[a], data.classes[b]));
  const rankOf = [];
  ranks.forEach((index, rank) => { rankOf[index] = rank; });
  for (const index of ranks) {
    const option = make("option", "", data.classes[index]);
    option.value = index;
    byId("of-class").append(option);
  }
  const sort = byId("sort");
  const features = [...new Set(data.batches.flatMap((batch) => batch.order.map((column) => batch.features[column])))];
  for (const feature of features) {
    const option = make("option", "", `value of ${data.features[feature]}`);
    option.value = `f${feature}`;
    sort.append(option);
  }
  const byWeight = (a, b) => b.weight - a.weight || a.number - b.number || a.position - b.position;
  const orderings = {
    weight: byWeight,
    class: (a, b) => rankOf[a.class] - rankOf[b.class] || byWeight(a, b),
    row: (a, b) => a.row - b.row || a.number - b.number,
    batch: (a, b) => a.number - b.number || byWeight(a, b),
  };
  const orderingOf = (key) => {
    if (key in orderings) return orderings[key];
    const feature = Number(key.slice(1));
    const columns = data.batches.map((batch) => batch.features.indexOf(feature));
    for (const entry of entries) {
      const column = columns[entry.number];
      const value = column < 0 ? null : data.batches[entry.number].values[entry.position][column];
      entry.key = value === null ? -Infinity : value;
    }
    return (a, b) => (a.key === b.key ? byWeight(a, b) : b.key > a.key ? 1 : -1);
  };

  const bar = (share) => {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("class", "bar");
    svg.setAttribute("viewBox", "0 0 100 1");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    for (const [kind, width] of [["rail", 100], ["fill", 100 * share]]) {
      const rect = document.createElementNS(space, "rect");
      rect.setAttribute("class", kind);
      rect.setAttribute("width", width);
      rect.setAttribute("height", 1);
      svg.append(rect);
    }
    return svg;
  };
  const valueLine = (batch, entry, column) => {
    const line = make("div");
    const term = make("dt");
    const label = data.features[batch.features[column]];
    term.append(make("bdi", "", label));
    term.title = label;
    line.append(term, make("dd", "", shown(batch.values[entry.position][column])));
    return line;
  };
  const cardOf = (entry) => {
    const batch = data.batches[entry.number];
    const card = make("article", "card");
    const header = make("header");
    const title = make("h4");
    const dot = make("span", `dot c${entry.class % 8}`);
    title.append(dot, make("bdi", "name", data.classes[entry.class]));
    header.append(title, make("span", "muted", `row ${whole.format(entry.row)} · batch ${entry.number + 1}`));
    const weight = make("div", "weight");
    weight.append(bar(largest > 0 ? entry.weight / largest : 0), make("span", "", shown(entry.weight)));
    const values = make("dl");
    values.append(...batch.order.slice(0, FEATURES).map((column) => valueLine(batch, entry, column)));
    card.append(header, weight, values);
    const left = batch.order.slice(FEATURES);
    if (left.length) {
      const more = make("button", "", `${whole.format(left.length)} more`);
      more.type = "button";
      more.setAttribute("aria-expanded", "false");
      more.addEventListener("click", () => {
        const open = more.getAttribute("aria-expanded") === "true";
        if (open) [...values.children].slice(FEATURES).forEach((line) => line.remove());
        else values.append(...left.map((column) => valueLine(batch, entry, column)));
        more.setAttribute("aria-expanded", String(!open));
        more.textContent = open ? `${whole.format(left.length)} more` : "fewer";
      });
      card.append(more);
    }
    return card;
  };

  let chosen = entries;
  let page = 0;
  const pages = () => Math.max(1, Math.ceil(chosen.length / PAGE));
  const draw = () => {
    cards.replaceChildren(...chosen.slice(page * PAGE, (page + 1) * PAGE).map(cardOf));
    if (!chosen.length) {
      const nothing = make("div", "empty");
      nothing.append(make("p", "", "No prototype fits this search."));
      cards.append(nothing);
    }
    byId("found").textContent = `${whole.format(chosen.length)} of ${whole.format(entries.length)} prototypes`;
    byId("page").textContent = `page ${whole.format(page + 1)} of ${whole.format(pages())}`;
    byId("before").disabled = page === 0;
    byId("after").disabled = page >= pages() - 1;
  };
  const select = () => {
    const wanted = byId("find").value.trim().toLocaleLowerCase();
    const ofClass = byId("of-class").value;
    const ofBatch = byId("of-batch").value;
    chosen = entries.filter(
      (entry) =>
        (!wanted || entry.text.includes(wanted)) &&
        (ofClass === "" || entry.class === Number(ofClass)) &&
        (ofBatch === "" || entry.number + 1 === Number(ofBatch)),
    );
    chosen.sort(orderingOf(sort.value));
    page = 0;
    draw();
  };
  const turn = (step) => {
    page = Math.min(Math.max(page + step, 0), pages() - 1);
    draw();
    byId("prototypes").scrollIntoView({ block: "start" });
  };
  byId("find").addEventListener("input", select);
  for (const id of ["of-class", "of-batch", "sort"]) byId(id).addEventListener("change", select);
  byId("find").form.addEventListener("submit", (event) => event.preventDefault());
  byId("before").addEventListener("click", () => turn(-1));
  byId("after").addEventListener("click", () => turn(1));
  select();
})();
