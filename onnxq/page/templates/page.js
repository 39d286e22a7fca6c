"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const WIDE = 360, HIGH = 110; // of a chart
  const all = (what, from = document) => [...from.querySelectorAll(what)];
  const make = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text; // never as HTML: names are anybody's
    if (kind) made.className = kind;
    return made;
  };
  const draw = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  all(".tools, .chips").forEach((one) => { one.hidden = false; });

  // tables: sorting, filtering, all rows
  const shown = new Map();
  const show = (table) => {
    const { words, precisions } = shown.get(table);
    const rows = [...table.tBodies[0].rows];
    let count = 0;
    for (const row of rows) {
      row.text ??= row.textContent.toLowerCase() + " " + all("[title]", row).map((e) => e.title.toLowerCase()).join(" ");
      const fits = row.text.includes(words) && (!precisions || precisions.has(row.dataset.precision));
      row.classList.toggle("out", !fits);
      count += fits;
    }
    const narrowed = words !== "" || (precisions && precisions.size < precisions.all);
    table.classList.toggle("found", Boolean(narrowed));
    const told = document.querySelector(`[data-count="${table.id}"]`);
    if (told) told.textContent = narrowed ? `${count} of ${rows.length}` : "";
  };
  all("table[id]").forEach((table) => shown.set(table, { words: "", precisions: null }));
  all("[data-filter]").forEach((input) => input.addEventListener("input", () => {
    const table = document.getElementById(input.dataset.filter);
    shown.get(table).words = input.value.trim().toLowerCase();
    show(table);
  }));
  all("[data-all]").forEach((button) => button.addEventListener("click", () => {
    document.getElementById(button.dataset.all).classList.add("all");
    button.remove();
  }));
  all("[data-chips]").forEach((group) => {
    const table = document.getElementById(group.dataset.chips);
    const buttons = all("button", group);
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      const precisions = new Set(buttons.filter((b) => b.getAttribute("aria-pressed") === "true").map((b) => b.dataset.chip));
      precisions.all = buttons.length;
      shown.get(table).precisions = precisions;
      show(table);
    });
  });
  all("[data-sort]").forEach((button) => button.addEventListener("click", () => {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const isNumber = button.dataset.sort === "number";
    const down = head.getAttribute("aria-sort") === "ascending";
    all("th[aria-sort]", head.parentElement).forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      if (!isNumber) return cell.textContent.trim();
      return cell.dataset.v === "" ? null : Number(cell.dataset.v);
    };
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // unknown ones last
      const order = isNumber ? a - b : a.localeCompare(b, "en", { numeric: true });
      return down ? -order : order;
    });
    const first = all("tr:not(.more)", body).length;
    rows.forEach(([, row], place) => { row.classList.toggle("more", place >= first); });
    body.append(...rows.map(([, row]) => row));
  }));

  // the panel
  const panel = document.getElementById("panel");
  const body = document.getElementById("panel-body");
  let before = null;
  // pictures in rows beyond the first ones are drawn when they are seen
  const fill = (cell) => {
    const { tensor, weight } = cell.parentElement.querySelector(".name").dataset;
    const { chart } = tensor ? data.tensors[tensor] : data.weights[weight];
    if (!chart || cell.firstChild) return;
    const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    if (chart.band) svg.append(draw("rect", { class: "band", x: chart.band[0], y: 0, width: chart.band[1], height: HIGH }));
    if (chart.ranges) svg.append(draw("path", { class: "ranges", d: chart.ranges }));
    svg.append(draw("path", { class: "bars", d: chart.bars }));
    cell.append(svg);
  };
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    seen.unobserve(entry.target);
    fill(entry.target);
  }));
  all("td.spark:empty").forEach((cell) => seen.observe(cell));
  window.addEventListener("beforeprint", () => all("td.spark:empty").filter((cell) => cell.offsetParent).forEach(fill));
  const facts = (pairs) => {
    const list = make("dl", undefined, "facts");
    for (const [name, value] of pairs) list.append(make("dt", name), make("dd", value));
    return list;
  };
  const picture = (chart, name) => {
    const svg = draw("svg", { class: "chart", viewBox: `0 -4 ${WIDE} ${HIGH + 22}`, role: "img", "aria-label": `${name}: ${chart.words}` });
    if (chart.band) svg.append(draw("rect", { class: "band", x: chart.band[0], y: -4, width: chart.band[1], height: HIGH + 4 }));
    if (chart.ranges) svg.append(draw("path", { class: "ranges", d: chart.ranges }));
    if (chart.steps) svg.append(draw("path", { class: "steps", d: chart.steps }));
    svg.append(draw("path", { class: "bars", d: chart.bars }), draw("path", { class: "axis", d: `M0 ${HIGH}H${WIDE}` }));
    for (const [at, text] of chart.ticks) {
      const tick = draw("text", { x: at, y: HIGH + 14, class: at === 0 ? "start" : at === WIDE ? "end" : "mid" });
      tick.textContent = text;
      svg.append(tick);
    }
    return svg;
  };
  const link = (words, go) => {
    const button = make("button", words, "name");
    button.type = "button";
    button.addEventListener("click", go);
    return button;
  };
  const links = (title, places) => {
    if (!places.length) return [];
    const list = make("div", undefined, "links");
    places.slice(0, 40).forEach((place) => list.append(link(data.nodes[place].name, () => openNode(place))));
    if (places.length > 40) list.append(make("span", `and ${places.length - 40} more`, "quiet"));
    return [make("h3", title), list];
  };
  const part = (title, one) => [
    make("h3", title), ...(one.chart ? [picture(one.chart, one.name)] : []), ...(one.chart && one.chart.ranges ? [make("p", one.chart.words, "hint")] : []), facts(one.facts),
  ];
  const open = (kind, title, parts) => {
    if (panel.hidden) before = document.activeElement;
    document.getElementById("panel-kind").textContent = kind;
    document.getElementById("panel-title").textContent = title;
    body.replaceChildren(...parts);
    panel.hidden = false;
    document.body.classList.add("beside");
    panel.scrollTop = 0;
    panel.focus({ preventScroll: true });
  };
  const close = () => {
    panel.hidden = true;
    document.body.classList.remove("beside");
    mark(null);
    if (before) before.focus({ preventScroll: true });
  };
  document.getElementById("panel-close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !panel.hidden) close(); });
  const inGraph = (place) => {
    if (!drawing) return [];
    const button = make("button", "Show it in the graph", "act");
    button.type = "button";
    button.addEventListener("click", () => { drawing.scrollIntoView({ block: "center" }); centre(place); });
    return [make("p"), button];
  };
  function openNode(place) {
    const node = data.nodes[place];
    const parts = [facts(node.facts)];
    if (node.revert) parts.push(make("h3", "To leave it in float"), make("pre", node.revert, "command"));
    node.tensors.forEach((t) => parts.push(...part(`Tensor ${data.tensors[t].name}`, data.tensors[t])));
    if (!node.tensors.length) parts.push(make("p", "Its result has no integers and is no output: there is no tensor to compare.", "hint"));
    node.weights.forEach((w) => parts.push(...part(`Weight ${data.weights[w].name}`, data.weights[w])));
    parts.push(...links("Reads from", node.ins), ...links("Read by", node.outs), ...inGraph(place));
    open(node.op, node.name, parts);
    mark(place);
  }
  const openPart = (kind, one) => {
    const parts = part("", one).slice(1);
    if (one.node !== null) parts.push(make("h3", kind === "tensor" ? "Made by" : "Read by"), link(data.nodes[one.node].name, () => openNode(one.node)), ...inGraph(one.node));
    open(kind, one.name, parts);
    mark(one.node);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.name");
    if (!button) return;
    if (button.dataset.node) openNode(Number(button.dataset.node));
    if (button.dataset.tensor) openPart("tensor", data.tensors[Number(button.dataset.tensor)]);
    if (button.dataset.weight) openPart("weight", data.weights[Number(button.dataset.weight)]);
  });

  // the graph
  const drawing = document.getElementById("drawing");
  const boxes = drawing ? all(".node", drawing) : [];
  let marked = null;
  function mark(place) {
    if (marked !== null && boxes[marked]) boxes[marked].classList.remove("on");
    marked = place;
    if (place !== null && boxes[place]) boxes[place].classList.add("on");
  }
  let centre = () => {};
  if (!drawing) return;
  const whole = drawing.viewBox.baseVal;
  const size = [whole.width, whole.height];
  const view = { x: 0, y: 0, scale: 1, whole: true }; // of the drawing's units to the screen's
  drawing.removeAttribute("viewBox");
  const world = document.getElementById("world");
  const FAR = 0.4; // letters cannot be read any more
  const place = () => {
    world.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
    drawing.classList.toggle("far", view.scale < FAR);
  };
  const zoom = (factor, x = drawing.clientWidth / 2, y = drawing.clientHeight / 2) => {
    const scale = Math.min(Math.max(view.scale * factor, least() / 2), 4);
    view.x = x - (x - view.x) * scale / view.scale;
    view.y = y - (y - view.y) * scale / view.scale;
    view.scale = scale;
    view.whole = false;
    place();
  };
  const least = () => Math.min(drawing.clientWidth / size[0], drawing.clientHeight / size[1]);
  const fit = () => {
    view.scale = Math.min(least(), 1.25);
    view.x = (drawing.clientWidth - size[0] * view.scale) / 2;
    view.y = (drawing.clientHeight - size[1] * view.scale) / 2;
    view.whole = true;
    place();
  };
  centre = (node) => {
    const [x, y, width] = data.nodes[node].box;
    view.scale = Math.max(view.scale, 0.9);
    view.x = drawing.clientWidth / 2 - (x + width / 2) * view.scale;
    view.y = drawing.clientHeight / 2 - (y + 19) * view.scale;
    view.whole = false;
    place();
    mark(node);
  };
  let held = null;
  drawing.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { x: event.clientX - view.x, y: event.clientY - view.y, moved: false, at: [event.clientX, event.clientY] };
  });
  drawing.addEventListener("pointermove", (event) => {
    if (!held) return;
    if (!held.moved && Math.hypot(event.clientX - held.at[0], event.clientY - held.at[1]) > 4) {
      held.moved = true;
      drawing.setPointerCapture(event.pointerId);
      drawing.classList.add("moving");
    }
    if (!held.moved) return;
    view.x = event.clientX - held.x;
    view.y = event.clientY - held.y;
    view.whole = false;
    place();
  });
  let wasMoved = false;
  const letGo = () => {
    wasMoved = Boolean(held && held.moved);
    held = null;
    drawing.classList.remove("moving");
  };
  drawing.addEventListener("pointerup", letGo);
  drawing.addEventListener("pointercancel", letGo);
  drawing.addEventListener("click", (event) => {
    const node = event.target.closest(".node");
    if (node && !wasMoved) openNode(Number(node.dataset.node));
  });
  drawing.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    const at = drawing.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - at.left, event.clientY - at.top);
  }, { passive: false });
  const beside = (from, step) => {
    const [x, y] = data.nodes[from].box;
    const row = data.nodes.filter((n) => Math.abs(n.box[1] - y) < 1).sort((a, b) => a.box[0] - b.box[0]);
    const next = row[row.findIndex((n) => n.box[0] === x) + step];
    return next ? next.place : from;
  };
  const WALK = {
    ArrowDown: (n) => data.nodes[n].outs[0] ?? n, ArrowUp: (n) => data.nodes[n].ins[0] ?? n,
    ArrowLeft: (n) => beside(n, -1), ArrowRight: (n) => beside(n, 1),
  };
  drawing.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (WALK[event.key]) centre(marked === null ? 0 : WALK[event.key](marked));
    else if (event.key === "Enter" && marked !== null) openNode(marked);
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });
  all("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    ({ in: () => zoom(1.4), out: () => zoom(1 / 1.4), fit })[button.dataset.zoom]();
  }));
  all("input[name=colour]").forEach((input) => input.addEventListener("change", () => {
    drawing.dataset.colour = input.value;
    document.querySelector(".legends").dataset.colour = input.value;
  }));
  const find = document.getElementById("graph-find");
  find.addEventListener("input", () => {
    const words = find.value.trim().toLowerCase();
    const hits = words ? data.nodes.filter((n) => n.name.toLowerCase().includes(words) || n.op.toLowerCase().includes(words)) : [];
    const places = new Set(hits.map((n) => n.place));
    boxes.forEach((box, n) => box.classList.toggle("hit", places.has(n)));
    drawing.classList.toggle("finding", words !== "");
    document.getElementById("graph-count").textContent = words ? `${hits.length} of ${boxes.length}` : "";
  });
  find.addEventListener("keydown", (event) => {
    const hit = boxes.findIndex((box) => box.classList.contains("hit"));
    if (event.key === "Enter" && hit >= 0) centre(hit);
  });
  let sized = 0;
  new ResizeObserver(() => {
    if (drawing.clientWidth === sized) return;
    view.x += (drawing.clientWidth - sized) / 2;
    sized = drawing.clientWidth;
    if (view.whole) fit();
    else place();
  }).observe(drawing);
  window.addEventListener("beforeprint", () => { drawing.setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`); world.removeAttribute("transform"); drawing.classList.remove("far"); });
  window.addEventListener("afterprint", () => { drawing.removeAttribute("viewBox"); place(); });
})();
