// @ts-check
// The console: asks for the server's state again and again, and puts the page's parts together.

import { announce } from "../shared/announce.js";
import { button, byId } from "../shared/dom.js";
import { askAgain, MANAGEMENT_TOKEN, showInstead } from "../shared/key.js";
import { showLinks } from "../shared/links.js";
import { get, ServerError } from "../shared/server.js";
import { themeButton } from "../shared/theme.js";
import { showErrors } from "./errors.js";
import { showFigures } from "./figures.js";
import { LoadForm } from "./load_form.js";
import { ModelTable } from "./model_table.js";
import { Rates } from "./rates.js";
import { duration } from "./words.js";

/** @typedef {import("./words.js").State} State */

const EVERY_MS = 1000;
const SLOWER = 2; // times what an answer took is waited at least, as a server with many models has more to tell
const REFUSED = [401, 403];

class Console {
  constructor() {
    this.rates = new Rates();
    this.table = new ModelTable(this.rates, () => void this.refresh());
    this.form = new LoadForm(() => void this.refresh());
    this.latestError = -1; // none was requested yet
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.later = undefined;
    this.requests = 0; // to recognise the latest request
    themeButton(byId("theme"));
    void showLinks();
    byId("load").addEventListener("click", () => this.form.open());
    document.addEventListener("visibilitychange", () => void this.refresh());
    void this.refresh();
  }

  /** Ask for the state now, and again later as long as the page can be seen. */
  async refresh() {
    clearTimeout(this.later);
    const request = ++this.requests;
    const start = performance.now();
    let goesOn = true;
    try {
      const state = await get("/console/state");
      if (request !== this.requests) return; // another request was sent meanwhile
      this.show(state);
      await this.#readErrors(state);
    } catch (error) {
      if (request !== this.requests) return;
      goesOn = this.#showProblem(error);
    }
    if (request !== this.requests || document.hidden || !goesOn) return;
    const taken = performance.now() - start;
    this.later = setTimeout(() => void this.refresh(), Math.max(EVERY_MS, SLOWER * taken));
  }

  /** @param {State} state */
  show(state) {
    const notice = byId("notice");
    if (!notice.hidden) announce("The server is responding again");
    notice.hidden = true;
    byId("server").textContent = `LMI handlers ${state.version}, up for ${duration(state.time - state.startedAt)}`;
    this.rates.add(state);
    showFigures(state, this.rates);
    const reason = state.unchangeable ?? "";
    const fixed = byId("unchangeable");
    const sentence = reason && `${reason[0].toUpperCase()}${reason.slice(1)}.`;
    if (fixed.textContent !== sentence) fixed.textContent = sentence;
    fixed.hidden = !reason;
    byId("load").hidden = Boolean(reason);
    this.table.show(state.models, !reason);
  }

  /** @param {State} state */
  async #readErrors(state) {
    if (state.latestError === this.latestError) return;
    const { errors } = await get("/console/errors");
    showErrors(errors);
    this.latestError = state.latestError;
  }

  /**
   * Show why the state is unknown, and return whether to retry automatically.
   * @param {unknown} error
   */
  #showProblem(error) {
    const isRefused = error instanceof ServerError && REFUSED.includes(error.status);
    const message = error instanceof Error ? error.message : String(error);
    const notice = byId("notice");
    if (notice.hidden || notice.firstChild?.textContent !== message) {
      const again = button(isRefused ? "Enter token" : "Try again", () => {
        askAgain();
        void this.refresh();
      });
      notice.replaceChildren(message, " ", again);
    }
    notice.hidden = false;
    return !isRefused;
  }
}

showInstead(MANAGEMENT_TOKEN);
new Console();
