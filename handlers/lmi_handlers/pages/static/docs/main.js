// The page of the API.

import { byId } from "../shared/dom.js";
import { showLinks } from "../shared/links.js";
import { themeButton } from "../shared/theme.js";
import { showRoutes } from "./routes.js";
import { showStart } from "./start.js";

themeButton(byId("theme"));
showLinks();
showStart(byId("notice"), byId("models"), byId("snippets"));
showRoutes(byId("routes"));
