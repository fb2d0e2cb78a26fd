/* Refreshes fragments of a page.

   <div data-live="ADDRESS" data-live-every="3">...</div>   asks the address every 3 seconds (5 unless given)
   <p data-live-announce>...</p>          in a fragment: read out when its text has changed
   data-live-done                         on an element of a fragment: nothing more will change
   <button data-live-pause hidden ...>    pauses and resumes all fragments; shown by this script
   <a data-live-reload href="">Reload</a> hidden by this script
   <p data-live-failed hidden>...</p>     shown while the last answer is missing: what the page shows is old

   A fragment stays as it is while a field in it has an input that was not sent.

   Nothing is asked while the page is hidden. Open details, the focus and the scroll of a fragment stay, if
   their elements have an id; the focus stays on a link without one, too. */

const fragments = new Map();
let paused = false;
let announcer;

class Fragment {
  constructor(element) {
    this.element = element;
    this.seconds = Number(element.dataset.liveEvery) || 5;
    this.wait = this.seconds;
    this.etag = "";
    this.timer = 0;
    this.said = spoken(element);
    this.plan();
  }

  plan() {
    clearTimeout(this.timer);
    if (this.element.querySelector("[data-live-done]")) return;
    this.timer = setTimeout(() => this.refresh(), this.wait * 1000);
  }

  async refresh() {
    clearTimeout(this.timer);
    if (paused || document.hidden || !this.element.isConnected) return;
    try {
      const headers = { "X-Requested-With": "XMLHttpRequest" };
      if (this.etag) headers["If-None-Match"] = this.etag;
      const answer = await fetch(this.element.dataset.live, { headers, cache: "no-store", redirect: "error" });
      if (answer.ok) {
        this.etag = answer.headers.get("ETag") || "";
        this.show(await answer.text());
      } else if (answer.status !== 304) {
        throw new Error(`status ${answer.status}`);
      }
      this.wait = this.seconds;
      this.mark(false);
    } catch {
      this.wait = Math.min(this.wait * 2, 60);
      this.mark(true);
    }
    this.plan();
  }

  mark(isStale) {
    this.element.toggleAttribute("data-live-stale", isStale);
    const isAny = document.querySelector("[data-live-stale]") !== null;
    for (const each of document.querySelectorAll("[data-live-failed]")) each.hidden = !isAny;
  }

  show(html) {
    const open = new Map([...this.element.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    if (focused && focused.matches("input, select, textarea")) return; // somebody is typing
    if ([...this.element.querySelectorAll("input")].some((each) => each.value !== each.defaultValue)) return;
    const scrolled = new Map(
      [...this.element.querySelectorAll("[id]")].filter((each) => each.scrollTop || each.scrollLeft)
        .map((each) => [each.id, [each.scrollLeft, each.scrollTop]]),
    );
    const href = focused && !focused.id ? focused.getAttribute("href") : null;
    const link = href && { href, place: alike(this.element, href).indexOf(focused) };
    this.element.innerHTML = html;
    for (const [id, isOpen] of open) {
      const each = document.getElementById(id);
      if (each) each.open = isOpen;
    }
    for (const [id, [left, top]] of scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (focused && focused.id) document.getElementById(focused.id)?.focus({ preventScroll: true });
    else if (link) alike(this.element, link.href)[link.place]?.focus({ preventScroll: true });
    this.element.dispatchEvent(new CustomEvent("live:shown", { bubbles: true }));
    const said = spoken(this.element);
    if (said && said !== this.said) announcer.textContent = said;
    this.said = said;
  }
}

/* The links of an element to an address: a link without an id keeps the focus by its place among them. */
function alike(element, href) {
  return [...element.querySelectorAll("a[href]")].filter((each) => each.getAttribute("href") === href);
}

function spoken(element) {
  return [...element.querySelectorAll("[data-live-announce]")].map((each) => each.textContent.trim()).join(" ");
}

function refreshAll() {
  for (const fragment of fragments.values()) fragment.refresh();
}

function start() {
  announcer = document.createElement("div");
  announcer.className = "visually-hidden ayework-announcer";
  announcer.setAttribute("role", "status");
  document.body.append(announcer);
  for (const element of document.querySelectorAll("[data-live]")) fragments.set(element, new Fragment(element));
  for (const link of document.querySelectorAll("[data-live-reload]")) link.hidden = true;
  for (const button of document.querySelectorAll("[data-live-pause]")) {
    button.hidden = false;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      paused = !paused;
      for (const each of document.querySelectorAll("[data-live-pause]")) {
        each.setAttribute("aria-pressed", String(paused));
      }
      if (!paused) refreshAll();
    });
  }
  document.addEventListener("visibilitychange", () => document.hidden || refreshAll());
}

start();
