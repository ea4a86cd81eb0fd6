// @ts-check
// What a screen reader says when something has happened. The region is in the page from the start, and empty.

import { byId } from "./dom.js";

const LONGEST = 2000; // characters

/** @param {string} text */
export function announce(text) {
  byId("announcements").textContent = text.slice(0, LONGEST);
}
