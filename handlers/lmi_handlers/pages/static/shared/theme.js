// @ts-check
// The button that chooses between the system's colours, light ones and dark ones.

/** @type {Record<string, string>} */
const NEXT = { auto: "light", light: "dark", dark: "auto" };
/** @type {Record<string, string>} */
const NAMES = { auto: "system", light: "light", dark: "dark" };
/** @type {Record<string, string>} */
const ICONS = { auto: "sun-moon", light: "sun", dark: "moon" };

/** @param {HTMLButtonElement} button */
export function themeButton(button) {
  const root = document.documentElement;
  const chosen = () => (root.dataset.theme && Object.hasOwn(NEXT, root.dataset.theme) ? root.dataset.theme : "auto");
  const show = () => {
    const theme = chosen();
    button.dataset.icon = ICONS[theme];
    button.setAttribute("aria-label", `Theme: ${NAMES[theme]}. Change to ${NAMES[NEXT[theme]]}`);
    button.title = `Theme: ${NAMES[theme]}`;
  };
  button.addEventListener("click", () => {
    root.dataset.theme = NEXT[chosen()];
    show();
    try {
      localStorage.setItem("lmi-theme", root.dataset.theme);
    } catch {
      // No storage: the choice lasts as long as the page.
    }
  });
  show();
}
