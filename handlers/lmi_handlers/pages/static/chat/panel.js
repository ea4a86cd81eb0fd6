// @ts-check
// The panel with parameters and requests: beside the conversation, over it where the window is narrow.

import { byId } from "../shared/dom.js";

const NARROW = matchMedia("(max-width: 60rem)");

export class Panel {
  constructor() {
    this.element = byId("panel");
    this.button = byId("panel-button");
    this.button.addEventListener("click", () => this.#show(this.element.hidden));
    byId("panel-close").addEventListener("click", () => this.#close());
    NARROW.addEventListener("change", () => this.#show(!NARROW.matches));
    this.#show(!NARROW.matches);
  }

  /** @param {string} tab the id of the tab to show */
  open(tab) {
    this.#show(true);
    byId(tab).click();
  }

  /** Close the panel where it lies over the conversation. */
  closeIfOver() {
    if (NARROW.matches && !this.element.hidden) this.#close();
  }

  #close() {
    this.#show(false);
    this.button.focus();
  }

  #show(/** @type {boolean} */ shown) {
    this.element.hidden = !shown;
    this.button.setAttribute("aria-expanded", String(shown));
    if (shown && NARROW.matches) byId("panel-close").focus();
  }
}
