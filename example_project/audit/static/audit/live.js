// Asks for the moving part of the page until the audit has ended.
"use strict";

(function () {
  const live = document.getElementById("live");
  const pause = 700; // milliseconds

  function ended() {
    return live.querySelector("[data-ended]") !== null;
  }

  function phase(root) {
    return root.querySelector("#state").dataset.phase;
  }

  // Within a phase only what changed is touched, so the bar moves smoothly and nothing flickers.
  function update(next) {
    if (phase(next) !== phase(live)) {
      live.replaceChildren(next);
      return;
    }
    for (const part of next.querySelectorAll("[data-live]")) {
      const shown = live.querySelector(`[data-live="${part.dataset.live}"]`);
      if (part.tagName === "PROGRESS") {
        shown.max = part.max;
        if (part.hasAttribute("value")) shown.value = part.value;
      } else if (shown.innerHTML !== part.innerHTML) {
        shown.innerHTML = part.innerHTML;
      }
    }
  }

  async function ask() {
    try {
      const response = await fetch(live.dataset.url);
      if (response.ok) {
        const template = document.createElement("template");
        template.innerHTML = await response.text();
        update(template.content);
      }
    } catch {
      // The server may be restarting; the next time will do.
    }
    if (!ended()) setTimeout(ask, pause);
  }

  if (!ended()) setTimeout(ask, pause);
})();
