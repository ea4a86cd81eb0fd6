// @ts-check
// The latest errors that requests got.

import { byId, element } from "../shared/dom.js";
import { several } from "./words.js";

/** @typedef {import("./words.js").RequestError} RequestError */

const TODAY = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const BEFORE = { month: "short", day: "numeric", ...TODAY };

/** @param {RequestError[]} errors the latest first */
export function showErrors(errors) {
  byId("errors").querySelector("tbody")?.replaceChildren(...errors.map(row));
  byId("errors").hidden = errors.length === 0;
  byId("no-errors").hidden = errors.length > 0;
}

/** @param {RequestError} error */
function row(error) {
  const moment = new Date(error.time * 1000);
  const isToday = moment.toDateString() === new Date().toDateString();
  const form = /** @type {Intl.DateTimeFormatOptions} */ (isToday ? TODAY : BEFORE);
  const often = error.count > 1 ? [element("span", { class: "badge" }, several(error.count, "time"))] : [];
  const status = error.status < 400 ? `${error.status}, in its stream` : String(error.status);
  return element("tr", {},
    cell("Time", element("time", { datetime: moment.toISOString() }, moment.toLocaleString("en-GB", form))),
    cell("Status", element("span", { class: error.ofServer ? "badge bad" : "badge" }, status)),
    cell("Model", error.model || element("span", { class: "quiet-text" }, "none")),
    cell("Error", element("span", {}, error.message), " ", ...often),
    cell("Request", element("code", {}, error.path), element("br"), element("code", { class: "quiet-text" }, error.requestId)));
}

/**
 * @param {string} label shown beside it where the table is narrow
 * @param {(Node | string)[]} children
 */
function cell(label, ...children) {
  return element("td", { "data-label": label }, element("div", {}, ...children));
}
