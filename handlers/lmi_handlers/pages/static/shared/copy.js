// @ts-check
// Copies a text, and says so on the button that was pressed.

import { announce } from "./announce.js";

const SHOWN_MS = 1500;

/**
 * @param {HTMLButtonElement} button
 * @param {string} text
 */
export async function copy(button, text) {
  const told = (await copied(text)) ? "Copied" : "Not copied: the browser does not allow it";
  announce(told);
  const before = button.dataset.text ?? button.textContent ?? "";
  button.dataset.text = before;
  button.textContent = told;
  setTimeout(() => (button.textContent = before), SHOWN_MS);
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text); // only on https and on this host's own address
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** @param {string} text */
function copiedBySelection(text) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}
