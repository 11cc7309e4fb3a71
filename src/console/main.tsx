import { render } from "preact";
import { App } from "./app.tsx";
import { applyTheme, chosenTheme } from "./theme.ts";

applyTheme(chosenTheme());
const root = document.getElementById("console");
if (root !== null) render(<App />, root);
