// Shows the suspects one by one. Data never become markup: every text is set with textContent.
(function () {
  const settings = JSON.parse(document.getElementById("settings").textContent);
  const at = (id) => document.getElementById(id);
  const known = new Map(); // place -> suspect
  const requested = new Map(); // start of a batch -> promise
  let state = null;
  let place = 0;
  let shown = -1; // the suspect on the screen, the only one that may be decided on
  let busy = false;

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
    load(start + settings.batch).catch(() => undefined); // in advance
    return known.get(wanted);
  }

  function count(text, number) { return number.toLocaleString("en") + " " + text; }

  function showProgress() {
    const reviewed = state.keep + state.change + state.skip;
    at("progress").textContent = [
      Math.min(place + 1, state.total).toLocaleString("en") + " of " + count("suspects", state.total),
      count("kept", state.keep), count("changed", state.change), count("skipped", state.skip),
    ].join(" · ");
    at("bar").max = Math.max(1, state.total);
    at("bar").value = reviewed;
  }

  async function show(wanted) {
    place = wanted;
    showProgress();
    const finished = place >= state.total;
    at("done").hidden = !finished;
    at("suspect").hidden = finished;
    if (finished) {
      document.body.dataset.place = "finished";
      return;
    }
    const suspect = await suspectAt(place);
    at("name").textContent = "Row " + suspect.name;
    at("probability").textContent = "wrong with probability " + suspect.p_error.toFixed(2);
    at("given").textContent = suspect.given;
    at("suggested").textContent = suspect.suggested;
    at("suggested").classList.toggle("differs", suspect.suggested !== suspect.given);
    at("features").replaceChildren(...suspect.features.map(([name, value]) => {
      const row = document.createElement("tr");
      const head = document.createElement("th");
      const cell = document.createElement("td");
      head.scope = "row";
      head.textContent = name;
      cell.textContent = value;
      row.append(head, cell);
      return row;
    }));
    shown = place;
    document.body.dataset.place = String(place);
  }

  async function decide(action, label) {
    if (busy || !state || (action !== "undo" && shown !== place)) return;
    busy = true;
    try {
      const decision = { action: action };
      if (action !== "undo") decision.place = place;
      if (label !== undefined) decision.label = label;
      state = await call("decide", decision);
      await show(state.next);
      at("error").hidden = true;
    } catch (error) {
      showError(error.message);
    } finally {
      busy = false;
    }
  }

  function change(label) {
    const suspect = known.get(place);
    if (!suspect || shown !== place) return;
    if (label === suspect.given) decide("keep");
    else decide("change", label);
  }

  const actions = {
    k: () => decide("keep"),
    a: () => { const suspect = known.get(place); if (suspect) change(suspect.suggested); },
    s: () => decide("skip"),
    ArrowRight: () => decide("skip"),
    u: () => decide("undo"),
    Backspace: () => decide("undo"),
    "/": () => at("filter").focus(),
  };

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
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const number = Number(key);
    if (key.length === 1 && number >= 1 && number <= Math.min(9, settings.classes.length)) {
      event.preventDefault();
      change(settings.classes[number - 1]);
    } else if (Object.hasOwn(actions, key)) {
      event.preventDefault();
      actions[key]();
    }
  });
  [["keep", "k"], ["accept", "a"], ["skip", "s"], ["undo", "u"]].forEach(([id, key]) => {
    at(id).addEventListener("click", () => { actions[key](); at(id).blur(); });
  });
  settings.classes.slice(0, 9).forEach(function (label, place) {
    const button = document.createElement("button");
    const key = document.createElement("kbd");
    button.type = "button";
    key.textContent = String(place + 1);
    button.append(key, " " + label);
    button.addEventListener("click", () => { change(label); button.blur(); });
    at("choices").append(button);
  });
  at("other").hidden = settings.classes.length <= 9;
  settings.classes.forEach(function (label) {
    const option = document.createElement("option");
    option.value = label;
    at("classes").append(option);
  });
  call("state").then((first) => { state = first; return show(state.next); }).catch((error) => showError(error.message));
})();
