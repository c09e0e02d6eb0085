// Keys for what the page shows; without this script every button and link works as well.
"use strict";
(() => {
  const writing = (at) => at instanceof Element && at.closest("textarea, input, select") !== null;
  let sent = false;

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (event.key === "Escape" && writing(event.target)) return event.target.blur();
    if (event.repeat || sent || writing(event.target)) return;
    const key = event.key.toLowerCase();
    const wanted = [...document.querySelectorAll("[data-key]")].find((e) => e.dataset.key === key);
    if (!wanted) return;
    event.preventDefault();
    if (wanted.tagName === "SUMMARY") {
      wanted.parentElement.open = true;
      (wanted.parentElement.querySelector("textarea") ?? wanted).focus();
    } else {
      wanted.click();
    }
  });

  // One answer a page: the server would take a second one for the same, this spares the trip.
  const form = document.querySelector("form.answer");
  if (form) {
    form.addEventListener("submit", (event) => {
      if (sent) return event.preventDefault();
      sent = true;
      document.body.classList.add("sent");
    });
  }
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });

  // A live region is read out when it changes, not when the page comes with it.
  const state = document.getElementById("state");
  if (state && state.textContent) {
    const said = state.textContent;
    state.textContent = "";
    setTimeout(() => { state.textContent = said; }, 60);
  }
})();
