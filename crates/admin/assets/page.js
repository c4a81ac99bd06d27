// What the page does besides the requests that htmx makes from attributes: updates, dialogs, announcements.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  // A view is requested again at most this often, and at least every REFRESH_MAX_MS.
  const REFRESH_MIN_MS = 2000;
  const REFRESH_MAX_MS = 10000;
  const TOAST_MS = 8000;
  const TOASTS_MAX = 4;
  let isPaused = false, wanted = false, lastRefresh = Date.now(), announced = {};

  // ---- Updates

  function refresh() {
    if (isPaused || document.hidden) { wanted = true; return; }
    wanted = false;
    lastRefresh = Date.now();
    htmx.trigger("#live", "tailwater:refresh");
    document.dispatchEvent(new CustomEvent("tailwater:charts"));
  }

  function changed() {
    wanted = true;
  }

  setInterval(() => {
    const age = Date.now() - lastRefresh;
    if ((wanted && age >= REFRESH_MIN_MS) || age >= REFRESH_MAX_MS) refresh();
  }, 500);

  function listen() {
    const events = new EventSource("/api/v1/events");
    events.addEventListener("change", changed);
    // The browser connects again by itself, unless the session has ended.
    events.onerror = () => { if (events.readyState === EventSource.CLOSED) setTimeout(listen, REFRESH_MAX_MS); };
  }
  listen();
  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) refresh(); });

  const pause = $("pause");
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Continue updates" : "Pause updates";
    if (!isPaused) refresh();
  });

  // ---- Requests that fail

  function offline(text) {
    const box = $("offline");
    if (text && box.hidden) box.textContent = text;
    box.hidden = !text;
  }

  document.addEventListener("htmx:before:response", (event) => {
    const { ctx } = event.detail;
    const response = ctx.response.raw;
    if (response.status === 401 || (response.redirected && new URL(response.url).pathname === "/login")) {
      event.preventDefault();
      location.assign("/login");
    }
  });
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx } = event.detail;
    const { status } = ctx.response || {};
    const isLive = ctx.sourceElement && ctx.sourceElement.id === "live";
    if (isLive && status >= 400) {
      // The last known state stays.
      event.preventDefault();
      offline(`This view cannot be updated: the daemon answered ${status}. What you see is of ${clock()}.`);
    } else if (!isLive && status >= 400 && status !== 422) {
      event.preventDefault();
      refused(ctx);
    } else if (isLive) {
      offline("");
    }
  });
  document.addEventListener("htmx:error", (event) => {
    const { ctx } = event.detail;
    if (ctx && ctx.sourceElement && ctx.sourceElement.id === "live") {
      offline(`The daemon does not answer. What you see is of ${clock()}.`);
    } else if (ctx && ctx.sourceElement) {
      failed("The daemon does not answer. Nothing is known about the action: see this view when it answers again.");
    }
  });

  function refused(ctx) {
    let text = `The daemon refused it: ${ctx.response.status}.`;
    try {
      text = JSON.parse(ctx.text).message || text;
    } catch {
      const page = new DOMParser().parseFromString(ctx.text || "", "text/html").querySelector(".failure");
      if (page) text = page.textContent;
    }
    failed(text);
  }

  // Shows a failure in the open dialog, or else as a message.
  function failed(text) {
    const form = $("dialog").open && $("dialog-content").querySelector("form");
    if (!form) { toast(text, true); return; }
    let box = form.querySelector(".failure");
    if (!box) {
      box = document.createElement("p");
      box.className = "failure";
      box.setAttribute("role", "alert");
      form.querySelector("h2").after(box);
    }
    box.textContent = text;
  }

  // ---- Dialogs

  const dialog = $("dialog");
  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = event.detail;
    const target = ctx && (typeof ctx.target === "string" ? document.querySelector(ctx.target) : ctx.target);
    if (target && target.id === "dialog-content") {
      const had = dialog.open;
      if (!had) dialog.showModal();
      const first = dialog.querySelector("[role=alert]") ? null : dialog.querySelector("input, select, textarea, button[type=submit]");
      if (!had && first) first.focus();
      return;
    }
    $("updated").textContent = `Updated at ${clock()}.`;
    announceChanges();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  dialog.addEventListener("close", () => { $("dialog-content").replaceChildren(); });
  dialog.addEventListener("input", (event) => {
    const { repeat } = event.target.dataset;
    if (repeat !== undefined) {
      event.target.setCustomValidity(event.target.value.trim() === repeat ? "" : `Type ${repeat} to confirm`);
    }
  });

  document.addEventListener("tailwater:done", (event) => {
    if (dialog.open) dialog.close();
    toast(event.detail.message, false);
    setTimeout(refresh, 200);
  });

  // ---- Announcements

  // Messages are listed one below the other, so that none hides an earlier one that has not been read.
  function toast(text, isFailure) {
    const message = document.createElement("p");
    message.textContent = text;
    message.className = isFailure ? "toast failure" : "toast";
    const box = $("announcer");
    box.append(message);
    while (box.children.length > TOASTS_MAX) box.firstChild.remove();
    setTimeout(() => message.remove(), TOAST_MS);
  }

  // What matters most of a view is said when it changes; the rest of the view is not read out at each update.
  function announceChanges() {
    for (const element of document.querySelectorAll("[data-announce]")) {
      const text = element.dataset.announce;
      const before = announced[element.id];
      announced[element.id] = text;
      if (before !== undefined && before !== text) toast(text, false);
    }
    const title = $("live").dataset.title;
    if (title) document.title = `${title} - Tailwater`;
  }

  function clock() {
    return new Date(lastRefresh).toLocaleTimeString();
  }

  // ---- Colours

  const theme = $("theme");
  theme.value = localStorage.getItem("tailwater-theme") || "";
  theme.addEventListener("change", () => {
    if (theme.value) {
      document.documentElement.dataset.theme = theme.value;
      localStorage.setItem("tailwater-theme", theme.value);
    } else {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("tailwater-theme");
    }
    document.dispatchEvent(new CustomEvent("tailwater:charts"));
  });

  announceChanges();
})();
