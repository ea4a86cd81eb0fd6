// @ts-check
// A question that is answered before something is done that cannot be undone.

import { element } from "../shared/dom.js";

/**
 * Ask, and return whether it is to be done.
 * @param {string} question
 * @param {string} facts
 * @param {string} action the text of the button that does it
 * @returns {Promise<boolean>}
 */
export function confirmed(question, facts, action) {
  const cancel = element("button", { type: "button", autofocus: true }, "Cancel");
  const dialog = element("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-facts" },
    element("form", { method: "dialog" },
      element("h2", { id: "confirm-title" }, question),
      element("p", { id: "confirm-facts" }, facts),
      element("p", { class: "buttons" }, element("button", { class: "main", value: "yes" }, action), cancel)));
  document.body.append(dialog);
  cancel.addEventListener("click", () => dialog.close());
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove(); // the browser gives the focus back to the button that opened it
      resolve(dialog.returnValue === "yes");
    });
    dialog.showModal();
  });
}
