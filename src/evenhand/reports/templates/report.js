(function () {
  "use strict";
  function byHand(text) {
    var area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "away";
    document.body.appendChild(area);
    area.select();
    var done = false;
    try { done = document.execCommand("copy"); } catch (error) { done = false; }
    area.remove();
    return done;
  }
  document.querySelectorAll("button[data-copy]").forEach(function (button) {
    var source = document.getElementById(button.dataset.copy);
    var label = button.textContent;
    function told(done) {
      button.textContent = done ? "Copied" : "Copy it by hand below";
      var hidden = source.closest("details");
      if (!done && hidden) { hidden.open = true; }
      setTimeout(function () { button.textContent = label; }, 2000);
    }
    button.hidden = false;
    button.addEventListener("click", function () {
      var text = source.textContent;
      if (navigator.clipboard && navigator.clipboard.writeText) {
        navigator.clipboard.writeText(text).then(
          function () { told(true); },
          function () { told(byHand(text)); }
        );
      } else {
        told(byHand(text));
      }
    });
  });
})();
