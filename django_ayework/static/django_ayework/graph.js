/* Moves and zooms graphs: <svg data-graph> in a view that has the focus.

   Drag with the pointer, or press the arrow keys, to move; the wheel with ctrl, or the keys + and -, zoom;
   the key 0 shows all of it. Buttons with data-graph-act="in", "out" or "fit" do the same. What is seen is
   kept when a fragment of the page refreshes, by the id of the view. Without this module the view scrolls. */

const seen = new Map(); // by the id of a view: the part of its graph that is seen
const MOST = 12; // how many times larger than all of it
const LARGEST = 1.2; // the scale at first, at most
const LEAST = 0.5; // the scale at which texts can still be read
let drag = null;

function graphIn(view) {
  return view?.querySelector("svg[data-graph]");
}

function whole(svg) {
  return { x: 0, y: 0, width: Number(svg.getAttribute("width")), height: Number(svg.getAttribute("height")) };
}

/* At first: all of it, a small graph not much enlarged; of one that would be too small to read, the beginning. */
function initial(svg, view) {
  const all = whole(svg);
  const width = Math.max(all.width, view.clientWidth / LARGEST);
  if (view.clientWidth / all.width >= LEAST) return { ...all, x: (all.width - width) / 2, width };
  const height = svg.clientHeight / LEAST;
  return { x: 0, y: Math.min(0, (all.height - height) / 2), width: view.clientWidth / LEAST, height };
}

function show(view, part) {
  const svg = graphIn(view);
  if (!svg) return;
  const all = whole(svg);
  const width = Math.min(Math.max(part.width, all.width / MOST), all.width * 3);
  const height = width * (part.height / part.width);
  const x = Math.min(Math.max(part.x, -width * 0.8), all.width - width * 0.2);
  const y = Math.min(Math.max(part.y, -height * 0.8), all.height - height * 0.2);
  seen.set(view.id, { x, y, width, height });
  svg.setAttribute("viewBox", [x, y, width, height].map((each) => each.toFixed(1)).join(" "));
}

function fit(view) {
  const svg = graphIn(view);
  if (svg) show(view, whole(svg));
}

/* Zooms around a point of the graph, by default the middle of what is seen. */
function zoom(view, factor, point) {
  const part = seen.get(view.id);
  if (!part) return;
  const at = point || { x: part.x + part.width / 2, y: part.y + part.height / 2 };
  const most = whole(graphIn(view)).width;
  const width = Math.min(Math.max(part.width * factor, most / MOST), most * 3);
  const scale = width / part.width;
  show(view, {
    x: at.x - (at.x - part.x) * scale,
    y: at.y - (at.y - part.y) * scale,
    width,
    height: part.height * scale,
  });
}

function move(view, x, y) {
  const part = seen.get(view.id);
  if (part) show(view, { ...part, x: part.x + part.width * x, y: part.y + part.height * y });
}

function pointOf(svg, event) {
  const matrix = svg.getScreenCTM();
  return matrix ? new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse()) : null;
}

const ACTS = {
  in: (view) => zoom(view, 0.8),
  out: (view) => zoom(view, 1.25),
  fit: (view) => fit(view),
};
const KEYS = {
  "+": ACTS.in,
  "=": ACTS.in,
  "-": ACTS.out,
  0: ACTS.fit,
  ArrowLeft: (view) => move(view, -0.1, 0),
  ArrowRight: (view) => move(view, 0.1, 0),
  ArrowUp: (view) => move(view, 0, -0.1),
  ArrowDown: (view) => move(view, 0, 0.1),
};

function viewOf(event) {
  return event.target instanceof Element ? event.target.closest(".ayework-graph-view") : null;
}

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element && event.target.closest("[data-graph-act]");
  if (button) ACTS[button.dataset.graphAct]?.(button.closest("section").querySelector(".ayework-graph-view"));
});

document.addEventListener("click", (event) => {
  if (drag?.moved && viewOf(event)) event.preventDefault(); // a drag that ends on a node opens nothing
}, true);

document.addEventListener("keydown", (event) => {
  const view = viewOf(event);
  const act = KEYS[event.key];
  if (!view || !act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act(view);
});

document.addEventListener("wheel", (event) => {
  const view = viewOf(event);
  if (!view || !event.ctrlKey) return;
  event.preventDefault();
  zoom(view, event.deltaY > 0 ? 1.15 : 0.87, pointOf(graphIn(view), event));
}, { passive: false });

document.addEventListener("pointerdown", (event) => {
  const view = viewOf(event);
  drag = view && event.button === 0 ? { view, x: event.clientX, y: event.clientY, moved: false } : null;
});

document.addEventListener("dragstart", (event) => {
  if (viewOf(event)) event.preventDefault(); // links are not dragged out of a graph
});

document.addEventListener("pointermove", (event) => {
  if (!drag || !event.buttons) return;
  const svg = graphIn(drag.view);
  const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
  if (!svg || (!drag.moved && Math.hypot(x, y) < 5)) return;
  drag = { ...drag, x: event.clientX, y: event.clientY, moved: true };
  svg.classList.add("ayework-moving");
  const scale = svg.getScreenCTM()?.a || 1;
  const part = seen.get(drag.view.id);
  show(drag.view, { ...part, x: part.x - x / scale, y: part.y - y / scale });
});

document.addEventListener("pointerup", () => {
  setTimeout(() => { drag = null; }); // after the click
  for (const svg of document.querySelectorAll(".ayework-moving")) svg.classList.remove("ayework-moving");
});

/* A node that has the focus is brought into what is seen. */
document.addEventListener("focusin", (event) => {
  const view = viewOf(event);
  const svg = graphIn(view);
  if (!svg || event.target === view || drag) return;
  view.scrollTo(0, 0);
  const [node, frame, part] = [event.target.getBoundingClientRect(), view.getBoundingClientRect(), seen.get(view.id)];
  const scale = svg.getScreenCTM()?.a || 1;
  const beyond = (from, to, start, end) => (from < start ? from - start - 12 : to > end ? to - end + 12 : 0);
  const x = beyond(node.left, node.right, frame.left, frame.right) / scale;
  const y = beyond(node.top, node.bottom, frame.top, frame.bottom) / scale;
  if (part && (x || y)) show(view, { ...part, x: part.x + x, y: part.y + y });
});

function start() {
  for (const view of document.querySelectorAll(".ayework-graph-view")) {
    const svg = graphIn(view);
    if (svg) show(view, seen.get(view.id) || initial(svg, view));
  }
}

document.documentElement.classList.add("ayework-scripted");
document.addEventListener("live:shown", start);
start();
