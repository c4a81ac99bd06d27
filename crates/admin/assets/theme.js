// Sets the colours that the visitor chose, before the page is drawn.
(() => {
  "use strict";
  const chosen = localStorage.getItem("tailwater-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
