/* Sends each form once in ten seconds. A second press, before the first one is answered, would act twice.
   An answer may be a file, which leaves the page as it is: so the form can be sent again later. */

const PAUSE = 10_000; // milliseconds
const sent = new Set();

addEventListener("submit", (event) => {
  const form = event.target;
  if (sent.has(form)) event.preventDefault();
  if (event.defaultPrevented) return;
  sent.add(form);
  setTimeout(() => sent.delete(form), PAUSE);
});
addEventListener("pageshow", () => sent.clear()); // the browser shows the page again that it has kept
