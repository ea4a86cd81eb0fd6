// Sets the theme that was chosen before anything is drawn; theme.js has the button that chooses it.
"use strict";
try {
  document.documentElement.dataset.theme = localStorage.getItem("lmi-theme") || "auto";
} catch {
  document.documentElement.dataset.theme = "auto"; // no storage in this browser
}
