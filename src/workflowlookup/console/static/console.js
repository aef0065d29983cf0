// Live updates, keyboard shortcuts, relative times. Every page works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("has-js");
  const byId = (id) => document.getElementById(id);
  const seconds = (n) => n * 1000;

  // ── live updates: one stream of changed ids, and one request at a time for what is new ──
  const live = () => byId("live");
  let source = null, busy = false, again = false, changed = new Set();

  function showConnection(state, text) {
    const mark = byId("pulse");
    if (!mark) return;
    mark.hidden = false;
    mark.dataset.state = state;
    mark.textContent = text;
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        const element = live();
        if (!element) return;
        const ids = changed;
        changed = new Set();
        if (element.dataset.url) {
          await htmx.ajax("GET", element.dataset.url, { source: element, target: element, swap: "none" });
        } else {
          const { target, select } = element.dataset; // the target itself stays: another request may already have it
          await htmx.ajax("GET", location.pathname + location.search, { source: element, target, select, swap: "innerHTML" });
          for (const id of ids) byId("run-" + id)?.classList.add("is-new");
          if (ids.size) byId("announcement").textContent = ids.size === 1 ? "A run has changed." : ids.size + " runs have changed.";
        }
      } while (again);
    } finally {
      busy = false;
    }
  }

  // A list that was asked for before the reader chose another one must not replace it.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { elt, path } = event.detail.requestConfig;
    if (elt.id === "live" && elt.dataset.select && path !== location.pathname + location.search) event.detail.shouldSwap = false;
  });

  // ── an update keeps the place on the screen, opened parts, and what somebody has typed ──
  const PLACES = "#rows li[id], #timeline details[id], #timeline li[id], #now, #why li[id]";
  const isShown = (element) => element.checkVisibility?.() ?? true;
  const keyOfForm = (form) => form.getAttribute("action") + " " + (form.elements.question?.value ?? "");
  const keyOfPart = (part) => (part.parentElement.closest("[id]")?.id ?? "") + " " + (part.id || part.querySelector("summary")?.textContent);
  const fieldsOf = (form) => [...form.elements].filter((field) => field.name && field.matches("textarea, select, input:not([type=hidden])"));

  // Where the focused row is on the screen, else the first one, and all that follow, in case it disappears.
  function rememberPlace() {
    if (scrollY === 0) return () => {};
    const all = [...document.querySelectorAll(PLACES)].filter(isShown);
    const tops = all.map((element) => element.getBoundingClientRect().top);
    const focused = document.activeElement?.closest(PLACES);
    const isInRow = Boolean(focused?.matches("li"));
    const top = focused?.getBoundingClientRect().top;
    const first = focused && top > -innerHeight && top < innerHeight ? all.indexOf(focused) : tops.findIndex((one) => one >= 0);
    const places = first < 0 ? [] : all.slice(first).map((element, at) => [element.id, tops[first + at]]);
    return () => {
      const found = places.find(([id]) => byId(id));
      if (!found) return;
      scrollBy({ top: byId(found[0]).getBoundingClientRect().top - found[1], behavior: "instant" });
      if (isInRow && document.activeElement === document.body) byId(found[0]).querySelector("a")?.focus({ preventScroll: true });
    };
  }

  function rememberParts() {
    const open = new Map([...document.querySelectorAll("main details")].map((part) => [keyOfPart(part), [part, part.open]]));
    return () => {
      for (const part of document.querySelectorAll("main details")) {
        const [before, wasOpen] = open.get(keyOfPart(part)) ?? [part, false];
        if (before !== part) part.open = wasOpen;
      }
    };
  }

  function rememberTexts() {
    const typed = [];
    for (const form of document.querySelectorAll("#now form")) {
      for (const field of fieldsOf(form)) {
        const isFocused = field === document.activeElement;
        const isText = field.matches("textarea, input");
        if (field.value || isFocused) typed.push({ form, field, key: keyOfForm(form), name: field.name, value: field.value, isFocused, isText, range: isText ? [field.selectionStart, field.selectionEnd] : [] });
      }
    }
    return () => {
      const unsent = [];
      for (const one of typed.filter(({ field }) => !field.isConnected)) {
        const form = [...document.querySelectorAll("#now form")].find((other) => keyOfForm(other) === one.key);
        const field = form && fieldsOf(form).find((other) => other.name === one.name);
        if (!field) { if (one.isText && one.value.trim()) unsent.push(one); continue; }
        field.value = one.value;
        if (one.isFocused) { field.focus({ preventScroll: true }); if (one.isText) field.setSelectionRange(...one.range); }
      }
      if (unsent.length) keepUnsent(unsent);
    };
  }

  // The form is gone, because somebody else was faster: what was typed stays, to be copied.
  function keepUnsent(texts) {
    const box = byId("unsent"), text = box.querySelector("textarea");
    text.value = [...(text.value ? [text.value] : []), ...texts.map((one) => one.value)].join("\n\n");
    box.hidden = false;
    const last = [...document.querySelectorAll("#timeline .entry")].sort((one, other) => one.id.slice(1) - other.id.slice(1)).pop();
    if (last) box.querySelector("a").href = "#" + last.id;
    if (texts.some((one) => one.isFocused)) text.focus({ preventScroll: true });
  }
  byId("unsent")?.querySelector("button").addEventListener("click", () => {
    byId("unsent").querySelector("textarea").value = "";
    byId("unsent").hidden = true;
  });

  // htmx replaces everything before the microtasks after this event run, and the browser paints after them.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.requestConfig.elt.id !== "live" || !event.detail.shouldSwap) return;
    const restore = [rememberParts(), rememberTexts(), rememberPlace()]; // a field in a closed part cannot get the focus
    queueMicrotask(() => restore.forEach((one) => one()));
  });

  // ── a reader who may no longer read is told so ──
  const ENDS = {
    401: "You are no longer signed in: your token was revoked or has expired. This page does not change any more.",
    404: "This was deleted, or you may no longer see it. This page does not change any more.",
  };
  let hasEnded = false;
  function tellEnd(status) {
    const box = byId("ended");
    if (!box || !ENDS[status] || hasEnded) return;
    hasEnded = true;
    disconnect();
    showConnection("away", status === 401 ? "Signed out" : "Ended");
    box.querySelector("span").textContent = ENDS[status];
    box.querySelector("a").href = location.pathname + location.search;
    box.hidden = false;
  }
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.requestConfig.elt.id === "live") tellEnd(event.detail.xhr.status);
  });

  // ── a link to an event opens the part of the timeline that has it ──
  function showEvent() {
    const id = location.hash.slice(1);
    if (!/^e[0-9]{1,15}$/.test(id) || !byId("timeline")) return;
    const entry = byId(id);
    if (entry) {
      for (let part = entry.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
      entry.scrollIntoView({ block: "center" });
      return;
    }
    const query = new URLSearchParams(location.search);
    if (query.get("event") === id.slice(1)) return;
    for (const name of ["show", "events"]) query.delete(name);
    query.set("event", id.slice(1));
    location.replace(location.pathname + "?" + query + "#" + id);
  }
  addEventListener("hashchange", showEvent);
  showEvent();

  function connect() {
    if (source || !live() || document.hidden || hasEnded) return;
    source = new EventSource(live().dataset.events);
    source.addEventListener("open", () => { showConnection("live", "Live"); refresh(); });
    source.addEventListener("changed", (event) => {
      for (const id of JSON.parse(event.data)) changed.add(id);
      refresh().then(lookForAttention);
    });
    source.addEventListener("error", () => {
      showConnection("away", "Reconnecting");
      if (source && source.readyState === EventSource.CLOSED) { disconnect(); lookForAttention(); setTimeout(connect, seconds(5)); }
    });
  }

  function disconnect() {
    source?.close();
    source = null;
  }

  // Browsers allow six connections to one server, so hidden pages close theirs.
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);

  // ── what needs somebody: the count in the title, and notices of the desktop ──
  const NOTIFY = "workflowlookup-notify", ATTENTION_SECONDS = 20;
  let waiting = 0;
  let announced = null; // the keys of the runs at the last look; null before the first
  const isNotifying = () => {
    try { return "Notification" in window && Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "on"; } catch { return false; }
  };

  function showWaiting() {
    document.title = (waiting ? "(" + waiting + ") " : "") + document.title.replace(/^\(\d+\) /, "");
  }
  document.addEventListener("htmx:afterSettle", showWaiting); // what is swapped in may bring another title

  async function lookForAttention() {
    const mark = byId("attention");
    if (!mark) return;
    let found;
    try {
      const answer = await fetch("/attention", { headers: { Accept: "application/json" } });
      if (answer.status === 401) {
        mark.hidden = false;
        mark.textContent = "Signed out";
        mark.href = location.pathname + location.search;
        if (live()) tellEnd(401);
        return;
      }
      if (!answer.ok) return;
      found = await answer.json();
    } catch {
      return; // the server is away: the next look tells
    }
    mark.hidden = found.waiting === 0;
    mark.textContent = found.waiting === 1 ? "1 waits" : found.waiting + " wait";
    waiting = found.waiting;
    showWaiting();
    const keys = new Set(found.runs.map((run) => run.key));
    if (announced && isNotifying()) {
      for (const run of found.runs.filter((one) => !announced.has(one.key))) {
        const notice = new Notification(run.headline, { body: run.text, tag: run.key });
        notice.onclick = () => { focus(); location.assign(run.link); };
      }
    }
    announced = keys;
  }
  lookForAttention();
  setInterval(lookForAttention, seconds(ATTENTION_SECONDS));

  const notifyButton = document.querySelector("[data-notify]");
  function showNotifying() {
    if (!notifyButton || !("Notification" in window)) return;
    notifyButton.hidden = false;
    notifyButton.textContent = isNotifying() ? "Stop notifying me" : "Notify me";
    notifyButton.title = Notification.permission === "denied" ? "The browser forbids notifications of this page." : "";
    notifyButton.disabled = Notification.permission === "denied";
  }
  notifyButton?.addEventListener("click", async () => {
    const turnOn = !isNotifying() && (await Notification.requestPermission()) === "granted";
    try { localStorage.setItem(NOTIFY, turnOn ? "on" : "off"); } catch { /* no storage: they stay off */ }
    showNotifying();
  });
  showNotifying();

  // ── relative times ──
  function ago(then) {
    const passed = Math.max(0, Date.now() - then) / 1000;
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (passed >= size) return Math.floor(passed / size) + " " + unit + " ago";
    }
    return "just now";
  }
  setInterval(() => {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const then = Date.parse(time.dateTime);
      if (!Number.isNaN(then)) time.textContent = ago(then);
    }
  }, seconds(20));

  // ── copying links ──
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    const address = new URL(button.dataset.copy, location.href).href;
    button.dataset.name ??= button.textContent;
    try {
      await navigator.clipboard.writeText(address);
    } catch {
      prompt("The link to this run", address);
      return;
    }
    button.textContent = "Copied";
    byId("announcement").textContent = "The link is copied.";
    setTimeout(() => (button.textContent = button.dataset.name), seconds(2));
  });

  // ── shortcuts ──
  const pages = { r: "/runs", a: "/approvals", l: "/library", s: "/statistics", t: "/tools", h: "/health" };
  const KEYS = "workflowlookup-keys";
  const keys = byId("keys"), keysOn = byId("keys-on");
  let isOn = true, pressedG = 0;
  try { isOn = localStorage.getItem(KEYS) !== "off"; } catch { /* no storage: they stay on */ }
  if (keysOn) {
    keysOn.checked = isOn;
    keysOn.addEventListener("change", () => {
      isOn = keysOn.checked;
      try { localStorage.setItem(KEYS, isOn ? "on" : "off"); } catch { /* for this page only */ }
    });
  }
  document.querySelector("[data-keys]")?.addEventListener("click", () => keys.showModal());

  function step(by) {
    const links = [...document.querySelectorAll(".row a.name, .entry a.offset")].filter(isShown);
    const at = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
  }

  document.addEventListener("keydown", (event) => {
    if (!isOn || !keys || keys.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea, [contenteditable]")) return;
    const isGoing = Date.now() - pressedG < seconds(1.5);
    pressedG = 0;
    const link = document.querySelector(`nav a[href="${pages[event.key]}"]`);
    if (isGoing && link) location.assign(link.href);
    else if (event.key === "g") pressedG = Date.now();
    else if (event.key === "?") keys.showModal();
    else if (event.key === "/") { byId("main").querySelector("[data-search]")?.focus(); event.preventDefault(); }
    else if (event.key === "n") document.querySelector("a[rel=next]")?.click();
    else if (event.key === "p") document.querySelector("a[rel=prev]")?.click();
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
  });
})();
