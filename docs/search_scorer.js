// The order of the search's results: pages whose title has the words of the search come first, then the pages for
// users, then those about the inside and the lists of names. Sphinx puts this into language_data.js, and calls score.
var Scorer = (function () {
  const order = [
    [/^(guides|operations|troubleshooting|faq$)/, 4],
    [/^(tutorial|coming-from|explanation\/lifecycle)/, 2],
    [/^explanation\/(architecture|performance-notes)|^(changelog|style|index)$/, -6],
  ];

  function stems(text) {
    const stemmer = new Stemmer();
    const words = text.toLowerCase().match(/\w+/g) || [];
    return words.filter((word) => !stopwords.has(word)).map((word) => stemmer.stemWord(word));
  }

  function score([page, title, anchor, descr, score, file, kind]) {
    const query = stems(new URLSearchParams(window.location.search).get("q") || "");
    if (kind === "object") return query.length > 1 || /attribute|property/.test(descr) ? 0 : score;
    const titled = new Set(stems(title));
    const share = query.length ? query.filter((word) => titled.has(word)).length / query.length : 0;
    const place = order.find(([pattern]) => pattern.test(page));
    return score + 20 * share + (place ? place[1] : 0);
  }

  return {
    score,
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 8,
    partialTitle: 6,
    term: 5,
    partialTerm: 2,
  };
})();
