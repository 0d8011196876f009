// Shows the suspects one by one. Data never become markup: every text is set with textContent.
(function () {
  const settings = JSON.parse(document.getElementById("settings").textContent);
  const at = (id) => document.getElementById(id);
  const known = new Map(); // place -> suspect
  const requested = new Map(); // start of a batch -> promise
  // Digits as labels have their own keys; other labels have the keys 1 to 9, and more labels are typed.
  const isDigits = settings.classes.every((label) => /^[0-9]$/.test(label));
  const keys = new Map(settings.classes.slice(0, isDigits ? 10 : 9).map(
    (label, index) => [isDigits ? label : String(index + 1), label]));
  let state = null;
  let place = 0;
  let shown = -1; // the suspect on the screen, the only one that may be decided on
  let busy = false;
  let waiting = false; // whether the view must be shown again after the current request

  function make(tag, text, className) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  }

  // Quotes show spaces around a label.
  function quoted(label) { return label && label === label.trim() ? label : "'" + label + "'"; }

  function showError(message) {
    at("error").textContent = message;
    at("error").hidden = false;
  }

  async function call(path, body) {
    const options = body && {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    };
    const saved = " Decisions that were shown as made are saved.";
    const response = await fetch(path, options).catch(() => {
      throw new Error("The server does not respond. Check that it is running." + saved);
    });
    if (response.ok) return response.json();
    const reason = await response.json().catch(() => ({}));
    throw new Error(reason.error || "The server refused the request (" + response.status + ")." + saved);
  }

  function load(start) {
    if (start >= state.total) return Promise.resolve();
    if (!requested.has(start)) {
      requested.set(start, call("suspects/" + start).then(
        (found) => found.forEach((suspect) => known.set(suspect.place, suspect)),
        (error) => { requested.delete(start); throw error; },
      ));
    }
    return requested.get(start);
  }

  async function suspectAt(wanted) {
    const start = wanted - (wanted % settings.batch);
    if (!known.has(wanted)) await load(start);
    load(start + settings.batch).then(() => preload(wanted + 1), () => undefined); // in advance
    return known.get(wanted);
  }

  function preload(wanted) {
    const suspect = known.get(wanted);
    if (!suspect) return;
    [suspect, ...suspect.similar].forEach(({ picture }) => {
      if (picture !== null) new Image().src = "picture/" + picture;
    });
  }

  function number(value) { return value.toLocaleString("en"); }
  function count(value, noun) { return number(value) + " " + noun + (value === 1 ? "" : "s"); }

  function view() {
    const found = { status: at("status").value };
    const pair = settings.confusions[Number(at("byConfusion").value) - 1];
    if (at("byConfusion").value && pair) [found.given, found.suggested] = pair;
    else if (at("byGiven").value) found.given = settings.given[Number(at("byGiven").value) - 1][0];
    return found;
  }

  function probability(p) { return p > 0.995 ? "over 0.99" : p < 0.005 ? "under 0.01" : p.toFixed(2); }

  function percent(p) { return (100 * p).toFixed(p < 0.1 || (p > 0.99 && p < 0.9995) ? 1 : 0) + " %"; }

  function isFiltered() { return Boolean(at("byGiven").value || at("byConfusion").value); }

  function showProgress() {
    const reviewed = state.keep + state.change + state.drop + state.skip;
    const counts = [
      number(state.keep) + " kept", number(state.change) + " changed", number(state.drop) + " dropped",
      number(state.skip) + " skipped",
    ];
    if (isFiltered() || at("status").value !== "undecided") counts.push(number(state.matching) + " in this view");
    if (settings.reviewer) counts.push("reviewer " + settings.reviewer);
    const position = place < state.total
      ? number(place + 1) + " of " + count(state.total, "suspect")
      : number(reviewed) + " of " + count(state.total, "suspect") + " reviewed";
    at("progress").textContent = [position, ...counts].join(" · ");
    at("bar").max = Math.max(1, state.total);
    at("bar").value = reviewed;
  }

  function picture(row, alt, image) {
    image.alt = alt;
    image.classList.remove("small");
    image.onload = () => image.classList.toggle("small", image.naturalWidth < 100);
    image.src = "picture/" + row;
    return image;
  }

  function card(similar) {
    const figure = make("figure");
    if (similar.picture !== null) figure.append(picture(similar.picture, "picture of " + similar.name, make("img")));
    similar.texts.forEach((text) => figure.append(make("p", text)));
    figure.append(make("figcaption", similar.name));
    return figure;
  }

  function describe(decision) {
    const words = { keep: "kept", change: "changed to " + quoted(decision.label), drop: "dropped", skip: "skipped" };
    return words[decision.action];
  }

  function showDecision(decision) {
    const isOwn = decision && decision.reviewer === settings.reviewer;
    const note = (decision && decision.note) || "";
    at("before").textContent = decision
      ? "· " + describe(decision) + (decision.reviewer ? " by " + decision.reviewer : "")
        + (note && !isOwn ? ": " + note : "") : "";
    at("note").value = isOwn ? note : ""; // another reviewer's note is not saved again in one's own name
  }

  function showWhy(suspect) {
    at("why").hidden = !suspect.probabilities.length;
    at("probabilities").replaceChildren(...suspect.probabilities.map(([label, p]) => {
      const item = make("li");
      const name = make("span", quoted(label));
      const bar = make("progress");
      name.title = label;
      bar.value = p;
      item.append(name, make("span", percent(p)), bar);
      return item;
    }));
    at("nearestText").textContent = suspect.nearest.length
      ? "Most similar rows: " + suspect.nearest.map((row) => row.name + " is " + quoted(row.label)).join(", ") + "." : "";
    at("unusual").replaceChildren(...suspect.unusual.map(
      ([column, value, comparison]) => make("li", column + " = " + value + ": " + comparison)));
  }

  function showExamples(suspect) {
    const withCards = suspect.similar.some((row) => row.picture !== null || row.texts.length);
    const half = { givenCards: suspect.given, suggestedCards: suspect.suggested };
    at("examples").hidden = !withCards;
    at("givenAgain").textContent = quoted(suspect.given);
    at("suggestedAgain").textContent = quoted(suspect.suggested);
    Object.entries(half).forEach(([id, label]) => {
      at(id).classList.toggle("words", suspect.picture === null);
      at(id).replaceChildren(...suspect.similar.filter((row) => row.label === label).map(card));
    });
    at("tableBox").hidden = !suspect.features.length;
    const heads = ["", "this row", ...suspect.similar.map((row) => quoted(row.label) + ": " + row.name)];
    const head = make("tr");
    head.append(...heads.map((text) => { const cell = make("th", text); cell.scope = "col"; return cell; }));
    at("columns").replaceChildren(...(suspect.similar.length ? [head] : []));
    at("features").replaceChildren(...suspect.features.map(([name, ...values]) => {
      const row = make("tr");
      const title = make("th", name);
      title.scope = "row";
      row.append(title, ...values.map((value) => make("td", value)));
      return row;
    }));
  }

  async function showEnd() {
    const found = await call("decisions");
    const everything = at("status").value === "undecided" && !isFiltered();
    const isEmpty = state.total === 0;
    at("doneTitle").textContent = isEmpty ? "This audit has no suspects."
      : everything ? "All suspects are reviewed." : "No more suspects in this view.";
    at("doneText").textContent = number(state.keep) + " kept, " + number(state.change) + " changed, "
      + number(state.drop) + " dropped, " + number(state.skip) + " skipped. Press U to undo the last decision.";
    at("revisit").hidden = state.skip === 0;
    at("everything").hidden = everything;
    at("command").textContent = settings.command;
    at("disputed").hidden = found.disagreements.length === 0;
    at("disputed").textContent = "Reviewers decided differently on " + count(found.disagreements.length, "row")
      + " (" + found.disagreements.slice(0, 20).join(", ") + "); the last decision counts.";
    at("decisionBox").hidden = found.decisions.length === 0;
    at("decisions").replaceChildren(...found.decisions.map((decision) => {
      const row = make("tr");
      const texts = [decision.name, quoted(decision.given), describe(decision), decision.note || "", decision.reviewer || ""];
      row.append(...texts.map((text) => make("td", text)));
      return row;
    }));
  }

  async function show(wanted, decision) {
    place = wanted;
    showProgress();
    const finished = place >= state.total;
    if (finished) await showEnd();
    at("done").hidden = !finished;
    at("suspect").hidden = finished;
    if (finished) {
      document.body.dataset.place = "finished";
      return;
    }
    const suspect = await suspectAt(place);
    at("name").textContent = suspect.name.replace(/^row /, "Row ");
    showDecision(decision);
    at("probability").textContent = "wrong with probability " + probability(suspect.p_error);
    at("given").textContent = quoted(suspect.given);
    at("suggested").textContent = quoted(suspect.suggested);
    at("chance").textContent = suspect.p_suggested === null
      ? "" : "right with probability " + probability(suspect.p_suggested);
    at("picture").hidden = suspect.picture === null;
    if (suspect.picture !== null) picture(suspect.picture, "picture of " + suspect.name, at("picture"));
    at("texts").replaceChildren(...suspect.texts.map(([name, text]) => {
      const box = make("div");
      box.append(make("small", name), make("p", text));
      return box;
    }));
    showWhy(suspect);
    showExamples(suspect);
    shown = place;
    document.body.dataset.place = String(place);
  }

  async function go(request) {
    if (busy || !state) return;
    busy = true;
    document.body.dataset.busy = "yes";
    try {
      state = await request();
      await show(state.next, state.decision);
      at("error").hidden = true;
    } catch (error) {
      showError(error.message);
    } finally {
      busy = false;
      delete document.body.dataset.busy;
    }
    if (waiting) look(); // the view was changed in the meantime
  }

  function decide(action, label) {
    if (action !== "undo" && (shown !== place || place >= state.total)) return;
    const decision = { action: action, view: view() };
    if (action !== "undo") decision.place = place;
    if (label !== undefined) decision.label = label;
    if (action !== "undo" && at("note").value) decision.note = at("note").value;
    go(() => call("decide", decision));
  }

  function look() {
    waiting = busy;
    if (!busy) go(() => call("view", { view: view(), after: -1 }));
  }

  function change(label) {
    const suspect = known.get(place);
    if (!suspect || shown !== place) return;
    if (label === suspect.given) decide("keep");
    else decide("change", label);
  }

  function showAll(status) {
    at("status").value = status;
    at("byGiven").value = at("byConfusion").value = "";
    look();
  }

  const actions = {
    k: () => decide("keep"),
    a: () => { const suspect = known.get(place); if (suspect) change(suspect.suggested); },
    d: () => decide("drop"),
    s: () => decide("skip"),
    ArrowRight: () => decide("skip"),
    u: () => decide("undo"),
    Backspace: () => decide("undo"),
    r: () => showAll("skipped"),
    n: () => at("note").focus(),
    f: () => at("status").focus(),
    "/": () => at("filter").focus(),
  };

  function leave(event) {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    if (event.target.tagName === "SELECT" && event.key === "Enter") return;
    event.preventDefault();
    event.target.blur();
  }

  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === at("filter")) {
      if (event.key === "Escape") at("filter").blur();
      if (event.key !== "Enter") return;
      event.preventDefault();
      const typed = at("filter").value;
      if (!settings.classes.includes(typed)) return;
      at("filter").value = "";
      at("filter").blur();
      change(typed);
      return;
    }
    if (event.target instanceof Element && event.target.matches("input, select")) {
      leave(event);
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (keys.has(key)) {
      event.preventDefault();
      change(keys.get(key));
    } else if (Object.hasOwn(actions, key)) {
      event.preventDefault();
      actions[key]();
    }
  });
  [["keep", "k"], ["accept", "a"], ["drop", "d"], ["skip", "s"], ["undo", "u"], ["revisit", "r"]].forEach(([id, key]) => {
    at(id).addEventListener("click", () => { actions[key](); at(id).blur(); });
  });
  at("everything").addEventListener("click", () => showAll("undecided"));
  at("view").addEventListener("submit", (event) => event.preventDefault());
  at("status").addEventListener("change", look);
  at("byGiven").addEventListener("change", () => { at("byConfusion").value = ""; look(); });
  at("byConfusion").addEventListener("change", () => { at("byGiven").value = ""; look(); });
  settings.given.forEach(([label, rows], index) => {
    at("byGiven").append(new Option(quoted(label) + " (" + number(rows) + ")", String(index + 1)));
  });
  settings.confusions.forEach(([given, suggested, rows], index) => {
    at("byConfusion").append(new Option(quoted(given) + " → " + quoted(suggested) + " (" + number(rows) + ")", String(index + 1)));
  });
  keys.forEach(function (label, key) {
    const button = make("button");
    button.type = "button";
    button.append(make("kbd", key), " " + quoted(label));
    button.addEventListener("click", () => { change(label); button.blur(); });
    at("choices").append(button);
  });
  at("numbering").textContent =
    `Rows have the numbers that a spreadsheet shows; the first row of data is row ${settings.first_row}.`;
  at("other").hidden = settings.classes.length <= keys.size;
  settings.classes.forEach((label) => at("classes").append(new Option("", label)));
  call("state").then((first) => { state = first; return show(state.next, state.decision); }).catch((error) => showError(error.message));
})();
